// LoadTimes: where the time of a load went, and where its bytes came from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal {

// Of one rank's load. Stages overlap: their times do not add up to the whole. All ranks of a host share its
// node's reading, receiving and checking, which are told to each of them.
struct LoadTimes {
  bool was_shared = false;       // two-stage, and with other ranks in the end
  uint64_t choosing_ns = 0;      // until it was known which checkpoint, and who shares
  uint64_t planning_ns = 0;      // from there until the first read began
  uint64_t reading_ns = 0;       // at least one read of storage was under way
  uint64_t receiving_ns = 0;     // at least one chunk was awaited from a peer
  uint64_t placing_ns = 0;       // by the client: copying to the tensors
  uint64_t bytes_read = 0;       // from storage
  uint64_t bytes_received = 0;   // from peers
  uint64_t chunks_given_up = 0;  // awaited from a peer, and read from storage in the end
};

enum class LoadWay : uint8_t {  // how ranks that need the same bytes come by them
  automatic = 0,                // two_stage where it is worth it, and as long as it is faster
  direct = 1,                   // each host reads all that it needs
  two_stage = 2,                // hosts that need the same divide the reading and pass it on
};

// "automatic", "direct", "two-stage".
constexpr std::string_view load_way_name(LoadWay way) {
  return way == LoadWay::direct ? "direct" : way == LoadWay::two_stage ? "two-stage" : "automatic";
}
constexpr std::optional<LoadWay> load_way_of_name(std::string_view name) {
  for (LoadWay way : {LoadWay::automatic, LoadWay::direct, LoadWay::two_stage}) {
    if (load_way_name(way) == name) return way;
  }
  return std::nullopt;
}

}  // namespace shoal
