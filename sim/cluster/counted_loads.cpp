#include "sim/cluster/counted_loads.h"

#include <algorithm>
#include <utility>

#include "actors/read_plan.h"
#include "sim/basics/integer_math.h"

namespace shoal {

namespace {

constexpr uint32_t kWindowSlab = 2;  // after those that it saves from
constexpr uint32_t kRequest = 1;

Rank rank_of(ClientId client) {
  return static_cast<Rank>(client - 1);
}
ClientId client_of(Rank rank) {
  return ClientId{rank} + 1;
}

}  // namespace

CountedLoads::CountedLoads(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job)
    : events_(events),
      cluster_(cluster),
      costs_(profile.trainer),
      job_(std::move(job)),
      found_(job_.ranks, -1),
      loaded_(job_.ranks, -1),
      copies_until_(job_.ranks) {
  std::vector<uint32_t> items;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    items.push_back(static_cast<uint32_t>(job_.layout_of(rank)->entries().size()));
  }
  cluster_.set_items(std::move(items));
}

// As client/placing.cpp asks for what a rank's tensors hold.
std::vector<local::LoadTarget> CountedLoads::targets_of(Rank rank, uint64_t* bytes) const {
  const Layout& layout = *job_.layout_of(rank);
  std::vector<local::LoadTarget> targets;
  for (const LayoutEntry& entry : layout.entries()) {
    local::LoadTarget target{value_fqn(entry, rank), entry.kind, entry.dtype, entry.shape, {}};
    if (entry.kind == LayoutEntry::Kind::tensor) {
      target.boxes = layout.shards_of(entry, rank).boxes;
      const uint64_t element_bytes = dtype_bytes(entry.dtype).value();
      for (const Box& box : target.boxes) *bytes += box.elements() * element_bytes;
    }
    if (!target.boxes.empty() || entry.kind == LayoutEntry::Kind::object)
      targets.push_back(std::move(target));
  }
  return targets;
}

void CountedLoads::start() {
  cluster_.start([this](ClientId client, const LocalMessage& message) { listen(client, message); });
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    local::Attach attach;
    attach.rank = rank;
    attach.world_size = job_.ranks;
    cluster_.from_client(node_of(rank), client_of(rank), attach);
    local::Load load;
    load.request_id = kRequest;
    load.ordinal = 1;  // no save came before it
    load.slab_id = kWindowSlab;
    load.sharing = local::Load::Sharing{job_.way, rank, job_.ranks, 0, job_.layout_of(rank), {}};
    uint64_t bytes = 0;
    load.targets = targets_of(rank, &bytes);
    bytes_wanted_ += bytes;
    const uint64_t window = std::clamp(bytes, kMinWindowBytes, kSimulatedWindowBytes);
    cluster_.from_client(node_of(rank), client_of(rank), local::Slab{kWindowSlab, window});
    cluster_.from_client(node_of(rank), client_of(rank), std::move(load));
  }
}

void CountedLoads::listen(ClientId client, const LocalMessage& message) {
  const Rank rank = rank_of(client);
  if (const auto* found = std::get_if<local::Found>(&message)) {
    if (!found->outcome.ok()) {
      failure_ = found->outcome;
      return;
    }
    found_[rank] = events_.now();
    ++milestones_;
  } else if (const auto* loaded = std::get_if<local::Loaded>(&message)) {
    // One batch is placed after the other.
    uint64_t bytes = 0;
    for (const local::LoadedPiece& piece : loaded->pieces) bytes += piece.bytes;
    bytes_passed_ += bytes;
    copies_until_[rank] =
        std::max(copies_until_[rank], events_.now()) + transfer_ns(bytes, costs_.copy_bytes_per_s);
    events_.schedule(copies_until_[rank], [this, client, batch = loaded->batch] {
      cluster_.from_client(node_of(rank_of(client)), client, local::Placed{kRequest, batch});
    });
  } else if (const auto* done = std::get_if<local::LoadDone>(&message)) {
    if (!done->outcome.ok()) {
      failure_ = done->outcome;
      return;
    }
    loaded_[rank] = events_.now();
    ++milestones_;
    ++loaded_count_;
  } else if (const auto* failed = std::get_if<local::Failed>(&message)) {
    failure_ = failed->why;
  }
}

}  // namespace shoal
