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

// Must be the same on all ranks. The rules apply to the state's names; a per-rank object has the name "x"
// with which add_rank_object added it.
struct KeyRules {
  std::vector<std::string> keep_prefixes;            // empty: keep every name
  std::vector<std::string> drop_prefixes;            // take precedence over keep_prefixes
  std::function<bool(std::string_view fqn)> filter;  // null: keep every name; called last

  // Renames from the state's names to the checkpoint's, in a save and in a load. In the first pair whose
  // first string is a prefix of the name, the second string replaces that prefix. Then `rename` applies, if
  // it is not null.
  std::vector<std::pair<std::string, std::string>> rename_prefixes;
  std::function<std::string(std::string_view fqn)> rename;

  // Checks that each prefix, or the string that replaces it, begins at least one name: a prefix that begins
  // none is most often misspelt. Code::invalid_argument names those prefixes. A load checks the names of
  // state and checkpoint. A save does not check, since it knows the names of one rank only.
  using ForEachName = std::function<void(const std::function<void(std::string_view name)>& see)>;
  Status check_prefixes(const ForEachName& for_each_name) const;

  // The name in the checkpoint; nullopt: the rules leave this value out.
  std::optional<std::string> stored_name(std::string_view fqn) const;
  std::string renamed(std::string_view fqn) const;  // the name in the checkpoint, even if it is left out
};

}  // namespace shoal::dcp
