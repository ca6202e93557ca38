// Compares the keys of a state with those of a checkpoint, for loads with and without planners.
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
  std::string stored_fqn;  // the checkpoint's name of it
};

struct KeyComparison {
  LoadReport report;
  std::vector<uint32_t> readable;  // indices of wanted keys that the checkpoint has with the wanted shape
  Status outcome;                  // one error that names all keys which the policies do not allow
};

// The wanted keys, read one at a time: with many small tensors, all keys need more memory than a load window.
struct WantedKeys {
  size_t count = 0;
  std::function<void(uint32_t at, WantedKey& key)> read;  // reuses the memory of `key`
};

// Calls its argument with each key. It may be called several times.
using ForEachKey = std::function<void(const std::function<void(std::string_view key)>&)>;
// The subtrees of the policies that contain no key, ascending. The second function returns one line about
// each, with the most similar keys.
std::vector<std::string> subtrees_without_keys(const KeyPolicies& policies, const ForEachKey& for_each_key);
std::vector<std::string> describe_subtrees_without_keys(const KeyPolicies& policies,
                                                        const ForEachKey& for_each_key);

// A key that the caller leaves out on purpose.
struct LeftOutKey {
  std::string fqn;  // in the state
  std::string stored_fqn;
};

// `stored` is ascending by fqn, each once. Policies apply to the state's name of a wanted key, and to the
// checkpoint's name of an unexpected one. The outcome is Code::key_mismatch if keys are missing, unexpected,
// or of another type or shape, and Code::invalid_argument if a subtree of the policies has no key of either
// side.
KeyComparison compare_keys(std::span<const TensorMetadata> stored, const WantedKeys& wanted,
                           const KeyPolicies& policies, Rank rank,
                           const std::vector<LeftOutKey>& cancelled = {});
KeyComparison compare_keys(std::span<const TensorMetadata> stored, std::span<const WantedKey> wanted,
                           const KeyPolicies& policies, Rank rank,
                           const std::vector<LeftOutKey>& cancelled = {});

// Code::invalid_argument names an invalid policy, or a subtree in which no key can be.
Status validate_policies(const KeyPolicies& policies);
// For a load with a planner, which itself decides which keys may differ: Code::invalid_argument if `policies`
// are not the default.
Status check_no_policies(const KeyPolicies& policies);

// Whether the client must compare keys before it requests bytes. Otherwise the node finds differing keys.
bool needs_comparison_first(const KeyPolicies& policies);

}  // namespace shoal::client
