// Computes how many file descriptors a node needs: before it serves, and again when hosts join.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/messages/messages.h"
#include "base/descriptors.h"
#include "transport/limits.h"

namespace shoal::actors {

// A trainer's connection, and a slab's descriptor until the slab is mapped.
inline constexpr uint64_t kDescriptorsPerTrainer = 2;
// For the node itself: the transport; the catalog (64 tables and its logs); files and folders of operations,
// four each; connections for metrics and status, and the rest.
inline constexpr uint64_t kDescriptorsOfNode = transport::kDescriptorsOfTransport + 96 + 32 + 64;
// For connections to a listening node that have not authenticated yet.
inline constexpr uint64_t kDescriptorsOfListener = transport::kMaxUnprovenSessions;
// Assumed for hosts that have not joined, if no host is known. Hosts have at most so many trainers.
inline constexpr uint32_t kPlausibleTrainersPerHost = 256;

// Sessions of nodes that connect to a coordinator only to be sent to a relay, in addition to those that stay.
inline constexpr uint64_t kNodesInPassing = 128;

struct DescriptorDemand {
  bool listens = false;
  uint64_t peers = 0;     // nodes that have, or will have, a session with this one
  uint64_t trainers = 0;  // of this host
};

uint64_t descriptors_needed(const DescriptorDemand& demand);

// What a node needs at least, and the peers that it takes descriptors for if the limit allows them.
struct NodeDescriptors {
  DescriptorDemand demand;
  uint64_t peers_max = 0;
};
// `trainers`: of this host. `hosts`: of the job, this one included.
NodeDescriptors descriptors_of_node(bool coordinates, uint64_t trainers, uint64_t hosts,
                                    uint32_t max_direct_nodes);

// The number of peers, at most `peers_max`, for which `limit` descriptors suffice. Code::refused: the limit
// is below the demand; the message has both numbers and the remedy.
Result<uint64_t> peers_within(const DescriptorDemand& demand, uint64_t peers_max, uint64_t limit);

// Raises the soft limit to what the demand needs, or to what `peers_max` peers need if that is more; at most
// to the hard limit. Then as peers_within with the limit that this process has.
Result<uint64_t> ensure_descriptors(const DescriptorDemand& demand, uint64_t peers_max);

// Of `direct_max` nodes that a coordinator may have sessions with, the number it can have with descriptors
// for `peers_max` peers, at least one. Some descriptors stay free for nodes that are sent to a relay.
uint64_t direct_nodes_within(uint64_t direct_max, uint64_t peers_max);
// How many other nodes such a coordinator reaches: each direct node may serve as many children.
uint64_t nodes_within(uint64_t direct_nodes);

// Estimates the number of hosts of the job from the hosts that have joined.
class HostCount {
 public:
  // Ranks of the job and of this host, if settings state them; 0: not stated.
  HostCount(uint32_t world_size, uint32_t local_ranks) : world_size_(world_size), local_ranks_(local_ranks) {}
  // Another host has joined. Returns true if it is new.
  bool joined(const std::string& host, uint32_t ranks, uint32_t world_size);
  // Hosts of the job, this one included. Assumes that hosts which have not joined have as many ranks as the
  // largest known host, or kPlausibleTrainersPerHost if none is known.
  uint64_t hosts() const;

 private:
  uint32_t world_size_;
  uint32_t local_ranks_;
  std::map<std::string, uint32_t> joined_;  // ranks of each host
  uint64_t ranks_joined_ = 0;
  uint32_t most_ranks_ = 0;  // of one host
};

}  // namespace shoal::actors
