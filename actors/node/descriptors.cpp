#include "actors/node/descriptors.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::actors {

uint64_t descriptors_needed(const DescriptorDemand& demand) {
  return kDescriptorsOfNode + (demand.listens ? kDescriptorsOfListener : 0) +
         demand.peers * transport::kDescriptorsPerPeer + demand.trainers * kDescriptorsPerTrainer;
}

NodeDescriptors descriptors_of_node(bool coordinates, uint64_t trainers, uint64_t hosts,
                                    uint32_t max_direct_nodes) {
  const uint64_t most = coordinates ? max_direct_nodes + kNodesInPassing : 1;
  const uint64_t others = std::max<uint64_t>(hosts, 1) - 1;
  return {{.listens = coordinates, .peers = coordinates ? std::min(others, most) : 1, .trainers = trainers},
          most};
}

Result<uint64_t> peers_within(const DescriptorDemand& demand, uint64_t peers_max, uint64_t limit) {
  const uint64_t needed = descriptors_needed(demand);
  if (limit < needed) {
    return Status(Code::refused,
                  fmt::format("this node needs {} file descriptors ({} other nodes at {}, {} trainers at {}, "
                              "{} for itself), but may have only {}; {}",
                              needed, demand.peers, transport::kDescriptorsPerPeer, demand.trainers,
                              kDescriptorsPerTrainer, descriptors_needed({.listens = demand.listens}), limit,
                              base::kDescriptorRemedy));
  }
  return std::min(peers_max, demand.peers + (limit - needed) / transport::kDescriptorsPerPeer);
}

Result<uint64_t> ensure_descriptors(const DescriptorDemand& demand, uint64_t peers_max) {
  DescriptorDemand most = demand;
  most.peers = std::max(demand.peers, peers_max);
  SHOAL_ASSIGN_OR_RETURN(base::DescriptorLimit limit, base::raise_descriptor_limit(descriptors_needed(most)));
  return peers_within(demand, peers_max, limit.soft);
}

uint64_t direct_nodes_within(uint64_t direct_max, uint64_t peers_max) {
  if (peers_max >= direct_max + kNodesInPassing) return direct_max;
  uint64_t in_passing = std::min(kNodesInPassing, peers_max / 2);
  return std::max<uint64_t>(1, std::min(direct_max, peers_max - in_passing));
}

uint64_t nodes_within(uint64_t direct_nodes) {
  return direct_nodes * (direct_nodes + 1);
}

bool HostCount::joined(const std::string& name, uint32_t ranks, uint32_t world_size) {
  if (world_size_ == 0) world_size_ = world_size;
  auto [host, is_new] = joined_.try_emplace(name, 0);
  ranks = std::max(host->second, ranks);
  ranks_joined_ += ranks - host->second;
  host->second = ranks;
  most_ranks_ = std::max(most_ranks_, ranks);
  return is_new;
}

uint64_t HostCount::hosts() const {
  uint64_t here = local_ranks_ > 0 ? local_ranks_ : kPlausibleTrainersPerHost;
  uint64_t known = here + ranks_joined_;
  uint64_t rest = world_size_ > known ? world_size_ - known : 0;
  uint64_t each = std::max(local_ranks_, local_ranks_ == 0 && most_ranks_ < kPlausibleTrainersPerHost
                                             ? kPlausibleTrainersPerHost
                                             : most_ranks_);
  return 1 + joined_.size() + (rest + each - 1) / each;
}

}  // namespace shoal::actors
