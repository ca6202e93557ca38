// What a load finds when it holds the keys of a state against those of a checkpoint, and which differences it
// lets be.
//
//   LoadOptions options;
//   options.policies.subtrees = {{"optimizer", KeyPolicy::allow_missing},  // made when it first steps
//                                {"frozen", KeyPolicy::skip}};
//   auto loaded = checkpointer->load(state, options);
//   for (const std::string& fqn : checkpointer->load_report().missing) ...
//
// Source of the words: torch.nn.Module.load_state_dict (missing and unexpected keys), torch.distributed.
// checkpoint's DefaultLoadPlanner, whose default is this one: a missing key is an error, an unexpected one is
// not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"

namespace shoal {

// A key is missing where the state has it and the checkpoint does not, unexpected where it is the other way
// round. A key that both have with another dtype, shape or kind is an error under each policy but skip.
enum class KeyPolicy : uint8_t {
  strict = 0,            // missing and unexpected keys are errors
  allow_missing = 1,     // a missing one stays as it is in the state; an unexpected one is an error
  allow_unexpected = 2,  // an unexpected one is left where it is; a missing one is an error
  lenient = 3,           // neither is an error
  skip = 4,              // neither read nor reported, whatever the checkpoint has
};

// By subtree: "model.layers" is that key and all that begin with "model.layers.", and the longest that fits
// wins. What each rank has of its own ("rng@rank7") goes by its name without the rank ("rng").
struct KeyPolicies {
  KeyPolicy root = KeyPolicy::allow_unexpected;  // of keys that no subtree has
  std::map<std::string, KeyPolicy, std::less<>> subtrees;

  KeyPolicy of(std::string_view fqn) const;
  friend bool operator==(const KeyPolicies&, const KeyPolicies&) = default;
};

// All of one rank's differences, those too that its policies allow; each list ascends by name. What is
// another rank's own ("rng@rank3" on rank 7) is not unexpected. A rank that holds a part of the model, as in
// pipeline parallelism, finds the rest unexpected: it knows nothing of the other ranks' states.
struct LoadReport {
  struct Difference {
    TensorMetadata wanted;  // with the state's name
    TensorMetadata stored;  // with the checkpoint's, which is another where a planner renames
    friend bool operator==(const Difference&, const Difference&) = default;
  };
  std::vector<std::string> missing;     // the state's names
  std::vector<std::string> unexpected;  // the checkpoint's names
  std::vector<Difference> mis_shaped;
  std::vector<Difference> mis_typed;  // another dtype; or a tensor here and an object there

  bool empty() const {
    return missing.empty() && unexpected.empty() && mis_shaped.empty() && mis_typed.empty();
  }
  friend bool operator==(const LoadReport&, const LoadReport&) = default;
};

inline constexpr size_t kMaxKeysNamed = 1000;                // in the message of an error
inline constexpr size_t kMaxReportBytes = size_t{64} << 10;  // likewise; then "and 12 more"

}  // namespace shoal
