// LoadReport: the differences between the keys of a state and those of a checkpoint. KeyPolicies: which of
// these differences a load allows.
//
//   LoadOptions options;
//   options.policies.subtrees = {{"optimizer", KeyPolicy::allow_missing},  // made when it first steps
//                                {"frozen", KeyPolicy::skip}};
//   auto loaded = checkpointer->load(state, options);
//   for (const std::string& fqn : checkpointer->load_report().missing) ...
//
// Source of the terms: torch.nn.Module.load_state_dict (missing and unexpected keys). The default is that of
// torch.distributed.checkpoint's DefaultLoadPlanner: a missing key is an error, an unexpected key is not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

// A key is missing if the state has it and the checkpoint does not. It is unexpected if the checkpoint has it
// and the state does not. If both have a key but with a different dtype, shape or kind, that is an error
// under every policy except skip.
enum class KeyPolicy : uint8_t {
  strict = 0,            // missing and unexpected keys are errors
  allow_missing = 1,     // a missing key stays unchanged in the state; an unexpected key is an error
  allow_unexpected = 2,  // an unexpected key is not loaded; a missing key is an error
  lenient = 3,           // neither is an error
  skip = 4,              // keys are neither read nor reported, whatever the checkpoint has
};

// Policies by subtree. "model.layers" means that key and all keys that begin with "model.layers."; the
// longest matching subtree applies. The key of a per-rank object ("rng@rank7") is matched without its rank
// ("rng").
struct KeyPolicies {
  KeyPolicy root = KeyPolicy::allow_unexpected;  // for keys that match no subtree
  std::map<std::string, KeyPolicy, std::less<>> subtrees;

  KeyPolicy of(std::string_view fqn) const;
  friend bool operator==(const KeyPolicies&, const KeyPolicies&) = default;
};

// All differences of one rank, including those that its policies allow. Each list is ascending by name. An
// object of another rank ("rng@rank3" on rank 7) is not unexpected. If a rank holds only a part of the model,
// as in pipeline parallelism, the rest is unexpected: a rank does not know the states of other ranks.
struct LoadReport {
  struct Difference {
    TensorMetadata wanted;  // with the state's name
    TensorMetadata stored;  // with the checkpoint's name, which differs if a planner renames
    friend bool operator==(const Difference&, const Difference&) = default;
  };
  std::vector<std::string> missing;     // the state's names
  std::vector<std::string> unexpected;  // the checkpoint's names
  std::vector<Difference> shape_mismatches;
  std::vector<Difference> mis_typed;  // the dtypes differ, or one is a tensor and the other an object

  bool empty() const {
    return missing.empty() && unexpected.empty() && shape_mismatches.empty() && mis_typed.empty();
  }
  friend bool operator==(const LoadReport&, const LoadReport&) = default;
};

// Bounds of the message of one error. Beyond them it ends with, for example, "and 12 more".
inline constexpr size_t kMaxKeysNamed = 1000;
inline constexpr size_t kMaxReportBytes = size_t{64} << 10;

}  // namespace shoal
