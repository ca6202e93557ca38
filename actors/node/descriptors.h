// How many file descriptors a node needs, computed before it serves and again as hosts join.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "actors/messages/messages.h"
#include "base/descriptors.h"
#include "transport/limits.h"

namespace shoal::actors {

// A trainer: its connection, and a slab's descriptor until that is mapped.
inline constexpr uint64_t kDescriptorsPerTrainer = 2;
// The node's own: the transport; the catalog (64 tables, and its logs); files and folders that operations
// have open, four each; connections for metrics and status, and the rest.
inline constexpr uint64_t kDescriptorsOfNode = transport::kDescriptorsOfTransport + 96 + 32 + 64;
// Those at the door of a node that listens, who have not proven themselves yet.
inline constexpr uint64_t kDescriptorsOfDoor = transport::kMaxUnprovenSessions;
// Assumed of hosts that have not joined, where nothing is known: no host has more trainers.
inline constexpr uint32_t kPlausibleTrainersPerHost = 256;

// Sessions of nodes that come to a coordinator and are sent to a relay; beside those that stay.
inline constexpr uint64_t kNodesInPassing = 128;

struct DescriptorDemand {
  bool listens = false;
  uint64_t peers = 0;     // nodes that have, or will have, a session with this one
  uint64_t trainers = 0;  // of this host
};

uint64_t descriptors_needed(const DescriptorDemand& demand);

// Raises the soft limit to what is needed, or, where `peers_max` is larger than demand.peers, to what so many
// peers need; at most to the hard limit. How many peers this process has descriptors for, at most
// `peers_max`. Code::refused: less than the demand, naming both figures and the remedy.
Result<uint64_t> ensure_descriptors(const DescriptorDemand& demand, uint64_t peers_max);

// Of the nodes that a coordinator is to have sessions with itself, those it can have, at least one, where
// there are descriptors for so many peers: some stay free for those who are sent on.
uint64_t direct_nodes_within(uint64_t direct_max, uint64_t peers_max);
// How many nodes such a coordinator reaches beside its own: each direct one has as many children at most.
uint64_t nodes_within(uint64_t direct_nodes);

// What those who joined tell of the number of hosts.
class HostCount {
 public:
  // Ranks of the job and of this host, as far as flags say them; 0: not said.
  HostCount(uint32_t world_size, uint32_t local_ranks) : world_size_(world_size), local_ranks_(local_ranks) {}
  // Of another host. True if it was not heard of before.
  bool joined(const std::string& host, uint32_t ranks, uint32_t world_size);
  // Of the job, this one among them. Hosts that have not joined are taken to be like the largest that is
  // known, or, where none is, to have kPlausibleTrainersPerHost.
  uint64_t hosts() const;

 private:
  uint32_t world_size_;
  uint32_t local_ranks_;
  std::map<std::string, uint32_t> joined_;  // ranks of each host
  uint64_t ranks_joined_ = 0;
  uint32_t most_ranks_ = 0;  // of one of them
};

}  // namespace shoal::actors
