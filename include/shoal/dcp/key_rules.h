// KeyRules: which values of a state a default planner saves or loads, and under which names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/status.h"

namespace shoal::dcp {

// Alike on all ranks. Names are those of the state; "x" of what add_rank_object adds, which all ranks have.
struct KeyRules {
  std::vector<std::string> keep_prefixes;            // none: every name
  std::vector<std::string> drop_prefixes;            // wins over what is kept
  std::function<bool(std::string_view fqn)> filter;  // null: every name; asked last

  // From the state's names to the checkpoint's, in a save and in a load alike: the first pair whose first
  // text begins the name puts the second in its place. Then `rename`, if it is not null.
  std::vector<std::pair<std::string, std::string>> rename_prefixes;
  std::function<std::string(std::string_view fqn)> rename;

  // Whether each prefix, and each text that a renamed prefix becomes, begins a name: most often one that
  // begins none is misspelt. Code::invalid_argument names those. Asked by a load, of the names of the state
  // and of the checkpoint; a save knows the names of one rank alone.
  using ForEachName = std::function<void(const std::function<void(std::string_view name)>& see)>;
  Status check_prefixes(const ForEachName& for_each_name) const;

  // The name in the checkpoint; nullopt: left out.
  std::optional<std::string> stored_name(std::string_view fqn) const;
  std::string renamed(std::string_view fqn) const;  // the same, whether or not it is left out
};

}  // namespace shoal::dcp
