// LoadTimes: how long each stage of a load took, and where its bytes came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal {

// Times of one rank's load. Stages overlap, so that their times do not add up to the total. The node reads,
// receives and checks for all ranks of its host: each of them reports the node's times and bytes.
struct LoadTimes {
  bool was_shared = false;       // it was a shared load, and other ranks took part
  uint64_t choosing_ns = 0;      // until the checkpoint and the ranks that share it were known
  uint64_t planning_ns = 0;      // from then until the first read began
  uint64_t reading_ns = 0;       // while at least one read of storage was in progress
  uint64_t receiving_ns = 0;     // while the node waited for at least one chunk from a peer
  uint64_t placing_ns = 0;       // the client copied to the tensors
  uint64_t bytes_read = 0;       // from storage
  uint64_t bytes_received = 0;   // from peers
  uint64_t chunks_given_up = 0;  // chunks that no peer sent, so that the node read them from storage
};

enum class LoadMethod : uint8_t {  // how ranks that need the same bytes get them
  automatic = 0,                   // two_stage if it is expected to pay, and as long as it is faster
  direct = 1,                      // each host reads everything that it needs
  two_stage = 2,                   // a shared load: each host reads some chunks and sends them to the others
};

// "automatic", "direct", "two-stage".
constexpr std::string_view load_method_name(LoadMethod method) {
  return method == LoadMethod::direct      ? "direct"
         : method == LoadMethod::two_stage ? "two-stage"
                                           : "automatic";
}
constexpr std::optional<LoadMethod> load_method_of_name(std::string_view name) {
  for (LoadMethod method : {LoadMethod::automatic, LoadMethod::direct, LoadMethod::two_stage}) {
    if (load_method_name(method) == name) return method;
  }
  return std::nullopt;
}

}  // namespace shoal
