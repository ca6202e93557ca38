// Holds keys against keys: of a state and of a checkpoint, for loads with and without planners.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/load_report.h"
#include "shoal/status.h"

namespace shoal::client {

struct WantedKey {
  TensorMetadata value;    // with the state's name
  std::string stored_fqn;  // where to look for it
};

struct KeyComparison {
  LoadReport report;
  std::vector<uint32_t> readable;  // positions of wanted keys that the checkpoint has as they are wanted
  Status outcome;                  // what policies make of it: one error that names all they do not allow
};

// The wanted keys, one at a time: of many small tensors all of them take more than a load's window.
struct WantedKeys {
  size_t count = 0;
  std::function<void(uint32_t at, WantedKey& key)> read;  // into memory that is there
};

// Calls its argument with each key; as often as it is asked to.
using ForEachKey = std::function<void(const std::function<void(std::string_view key)>&)>;
// The subtrees of the policies that hold none of the keys, ascending; and a line about each, with the keys
// that are nearest to it.
std::vector<std::string> subtrees_without_keys(const KeyPolicies& policies, const ForEachKey& for_each_key);
std::vector<std::string> describe_subtrees_without_keys(const KeyPolicies& policies,
                                                        const ForEachKey& for_each_key);

// What the caller leaves out on purpose, under both of its names.
struct LeftOutKey {
  std::string fqn;  // in the state
  std::string stored_fqn;
};

// `stored` ascends by fqn, each once.
// Policies go by the state's name of what is wanted, and by the checkpoint's of what is unexpected.
// Code::key_mismatch: keys are missing, unexpected, or of another type or shape. Code::invalid_argument: a
// subtree of the policies holds no key of either side.
KeyComparison compare_keys(std::span<const TensorMetadata> stored, const WantedKeys& wanted,
                           const KeyPolicies& policies, Rank rank,
                           const std::vector<LeftOutKey>& not_wanted = {});
KeyComparison compare_keys(std::span<const TensorMetadata> stored, std::span<const WantedKey> wanted,
                           const KeyPolicies& policies, Rank rank,
                           const std::vector<LeftOutKey>& not_wanted = {});

// Code::invalid_argument names a policy that is none, and a subtree that no key can be in.
Status validate_policies(const KeyPolicies& policies);
// Of a load with a planner, which says itself which keys may differ.
Status check_no_policies(const KeyPolicies& policies);

// Whether the checkpoint must be known before it is said what to read of it. Otherwise the node finds what is
// wrong by itself.
bool needs_comparison_first(const KeyPolicies& policies);

}  // namespace shoal::client
