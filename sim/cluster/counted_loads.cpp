#include "sim/cluster/counted_loads.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "actors/loader/read_plan.h"
#include "base/visit.h"
#include "shoal/dtype.h"
#include "sim/basics/integer_math.h"

namespace shoal::sim {

CountedLoads::CountedLoads(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job)
    : events_(events),
      cluster_(cluster),
      costs_(profile.trainer),
      job_(std::move(job)),
      found_(job_.ranks, -1),
      loaded_(job_.ranks, -1),
      copies_until_(job_.ranks),
      requests_(job_.ranks),
      chosen_(job_.ranks),
      outcomes_(job_.ranks),
      received_(job_.ranks) {
  std::vector<uint32_t> items;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    items.push_back(static_cast<uint32_t>(job_.layout_of(rank)->entries().size()));
  }
  cluster_.set_items(std::move(items));
}

const CountedLoads::Sharded& CountedLoads::sharded_by(const Layout& layout) {
  auto [found, is_new] = sharded_.try_emplace(&layout);
  Sharded& sharded = found->second;
  if (!is_new) return sharded;
  sharded.dims_of_mesh.resize(layout.meshes().size());
  for (const LayoutEntry& entry : layout.entries()) {
    const auto* mesh = std::get_if<MeshSharding>(&entry.sharding);
    if (mesh == nullptr) {
      sharded.by_meshes_only &= std::holds_alternative<GroupSharding>(entry.sharding);
      continue;
    }
    for (size_t i = 0; i < mesh->placements.size(); ++i) {
      if (mesh->placements[i].kind == Placement::Kind::replicate) continue;
      sharded.dims_of_mesh[mesh_of(entry).value()] |= uint64_t{1} << i;
    }
  }
  return sharded;
}

// Replicas hold the same values, so the wanted bytes are computed once for all of them, and for all ranks
// of a class.
const CountedLoads::Wanted& CountedLoads::wanted_by(Rank rank) {
  if (classes_) rank = classes_->like(rank);
  const Layout& layout = *job_.layout_of(rank);
  const Sharded& sharded = sharded_by(layout);
  if (!sharded.by_meshes_only) return work_out(rank);
  std::vector<uint64_t> place{reinterpret_cast<uintptr_t>(&layout)};
  for (size_t mesh = 0; mesh < sharded.dims_of_mesh.size(); ++mesh) {
    const std::optional<Dims> coordinate = layout.meshes()[mesh].coordinate_of(rank);
    place.push_back(coordinate ? 1 : 0);
    for (size_t i = 0; coordinate && i < coordinate->size(); ++i) {
      if ((sharded.dims_of_mesh[mesh] >> i & 1) != 0) place.push_back((*coordinate)[i]);
    }
  }
  const Wanted*& known = by_place_[xxh3_128(std::as_bytes(std::span(place)))];
  if (known == nullptr) known = &work_out(rank);
  return *known;
}

// Computes what client/loading/placing.cpp requests for the tensors of a rank.
const CountedLoads::Wanted& CountedLoads::work_out(Rank rank) {
  const Layout& layout = *job_.layout_of(rank);
  std::vector<std::vector<Box>> boxes;
  // Numbers that distinguish the requests of this rank from those of other ranks.
  std::vector<uint64_t> numbers{reinterpret_cast<uintptr_t>(&layout)};
  for (const LayoutEntry& entry : layout.entries()) {
    boxes.push_back(entry.kind == LayoutEntry::Kind::tensor ? layout.shards_of(entry, rank).boxes
                                                            : std::vector<Box>());
    numbers.push_back(is_per_rank(entry) ? rank : 0);
    numbers.push_back(boxes.back().size());
    for (const Box& box : boxes.back()) {
      numbers.insert(numbers.end(), box.offsets.begin(), box.offsets.end());
      numbers.insert(numbers.end(), box.sizes.begin(), box.sizes.end());
    }
  }
  auto [found, is_new] = wanted_.try_emplace(xxh3_128(std::as_bytes(std::span(numbers))));
  if (!is_new) return found->second;
  local::LoadTargets& targets = found->second.targets;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    if (boxes[i].empty() && entry.kind == LayoutEntry::Kind::tensor) continue;
    for (const Box& box : boxes[i]) found->second.bytes += box.elements() * dtype_bytes(entry.dtype).value();
    targets.push_back({value_fqn(entry, rank), entry.kind, entry.dtype, entry.shape, std::move(boxes[i])});
  }
  if (classes_) cluster_.counted_root().plans()->will_be_shared(targets);
  return found->second;
}

void CountedLoads::find_classes() {
  if (job_.payload != nullptr || !job_.has_classes)
    return;  // a payload is compared with what each rank wants
  std::vector<LayoutPtr> layout_of;
  for (Rank rank = 0; rank < job_.ranks; ++rank) layout_of.push_back(job_.layout_of(rank));
  classes_ =
      std::make_unique<LoadClasses>(cluster_.counted_root(), std::move(layout_of), job_.ranks_per_host);
}

void CountedLoads::start() {
  cluster_.start(
      [this](actors::ClientId client, const local::LocalMessage& message) { listen(client, message); });
  find_classes();
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    cluster_.attach(node_of(rank), rank);
    bytes_wanted_ += wanted_by(rank).bytes;
    ask(rank);
  }
  forget_wanted();
}

void CountedLoads::load_with_retries() {
  retries_ = true;
  find_classes();
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    bytes_wanted_ += wanted_by(rank).bytes;
    ask(rank);
  }
  forget_wanted();
}

// The nodes have the targets now, and drop them once they have planned. A rank that asks again computes them
// again.
void CountedLoads::forget_wanted() {
  if (job_.payload != nullptr) return;  // which is compared with what each rank wants
  by_place_.clear();
  wanted_.clear();
  classes_.reset();  // the root changes from now on
}

void CountedLoads::ask(Rank rank) {
  local::Load load;
  load.request_id = ++requests_[rank];
  load.ordinal = 1 | (job_.falls_back ? kFallbackOrdinal : 0);  // no save precedes it
  load.slab_id = kSimulatedWindowSlab;
  const uint32_t round = requests_[rank] - 1;
  load.sharing = local::Load::Sharing{job_.method, rank, job_.ranks, round, job_.layout_of(rank), {}};
  const Wanted& wanted = wanted_by(rank);
  load.targets = wanted.targets;
  const uint64_t window = std::clamp(wanted.bytes, actors::kMinWindowBytes, kSimulatedWindowBytes);
  cluster_.from_client(node_of(rank), cluster_.client(rank), local::Slab{kSimulatedWindowSlab, window});
  cluster_.from_client(node_of(rank), cluster_.client(rank), std::move(load));
}

// Compares the pieces with what was saved, and notes what the rank has now.
void CountedLoads::check(actors::ClientId client, const local::Loaded& loaded) {
  const Rank rank = rank_of(client);
  const local::LoadTargets& targets = wanted_by(rank).targets;
  for (const local::LoadedPiece& piece : loaded.pieces) {
    const local::LoadTarget target = targets[piece.target];
    job_.payload->check_loaded(client, chosen_[rank], target, piece);
    received_[rank].add(target, piece);
  }
}

// Whether the rank has received every element that it wants.
Status CountedLoads::check_all_received(Rank rank) {
  const auto incomplete = received_[rank].incomplete(wanted_by(rank).targets);
  if (!incomplete) return ok_status();
  return Status(Code::internal, fmt::format("rank {} was notified that its load of {} is done, but it has "
                                            "not received all of {}",
                                            rank, to_string(chosen_[rank]), *incomplete));
}

void CountedLoads::load_again(Rank rank) {
  const bool may_ask = !is_attached_ || is_attached_(rank);  // else it asks when it attaches
  if (may_ask && !has_loaded(rank)) ask(rank);
}

bool CountedLoads::is_damaged(Rank rank) const {
  const CountedRoot& root = cluster_.counted_root();
  if (found_[rank] >= 0 && root.damaged_at(chosen_[rank])) return true;
  const std::vector<AttemptKey> all = root.committed();
  if (!job_.falls_back) return !all.empty() && root.damaged_at(all.back()).has_value();
  return std::ranges::none_of(all, [&](const AttemptKey& key) { return root.is_sound(key); });
}

void CountedLoads::on_done(Rank rank, const Status& outcome) {
  const bool is_over = outcome.ok() || ends_with_errors_ || (retries_ && outcome.code() == Code::not_found) ||
                       (outcome.code() == Code::corrupt && is_damaged(rank));
  if (!is_over && !retries_) {
    failure_ = outcome;
    return;
  }
  if (!is_over) {
    const uint32_t request = requests_[rank];
    return events_.schedule(events_.now() + kLoadAgainNs, [this, rank, request] {
      if (requests_[rank] == request) load_again(rank);
    });
  }
  if (outcome.ok() && job_.payload != nullptr && incomplete_.ok()) incomplete_ = check_all_received(rank);
  loaded_[rank] = events_.now();
  outcomes_[rank] = outcome;
  ++milestones_;
  ++loaded_count_;
}

void CountedLoads::listen(actors::ClientId client, const local::LocalMessage& message) {
  const Rank rank = rank_of(client);
  std::visit(base::Overloaded{
                 [&](const local::Found& found) {
                   if (found.request_id != requests_[rank] || has_loaded(rank)) return;
                   if (!found.outcome.ok()) return on_done(rank, found.outcome);
                   chosen_[rank] = found.checkpoint.key;
                   received_[rank].clear();
                   found_[rank] = events_.now();
                   ++milestones_;
                 },
                 [&](const local::Loaded& loaded) { on_loaded(client, loaded); },
                 [&](const local::LoadDone& done) {
                   if (done.request_id != requests_[rank] || has_loaded(rank)) return;
                   on_done(rank, done.outcome);
                 },
                 [&](const local::Failed& failed) {
                   if (!retries_) failure_ = failed.why;
                 },
                 // These trainers only load, and let the node read.
                 [](const base::OneOf<local::Attached, local::RosterUpdate, local::SlabFree, local::Decided,
                                      local::Refused, local::Pong, local::StatusReport,
                                      local::JobStatusReport, local::PlanUpdate, local::PlanGathering,
                                      local::FilesToRead, local::StagingGranted, local::GiveBack,
                                      local::PartRequest, local::Listing, local::StillWriting> auto&) {},
                 [](const local::OnlyFromClient auto&) {}},
             message);
}

// The client places one batch at a time.
void CountedLoads::on_loaded(actors::ClientId client, const local::Loaded& loaded) {
  const Rank rank = rank_of(client);
  if (loaded.request_id != requests_[rank]) return;
  uint64_t bytes = 0;
  for (const local::LoadedPiece& piece : loaded.pieces) bytes += piece.bytes;
  if (job_.payload != nullptr) check(client, loaded);
  bytes_passed_ += bytes;
  copies_until_[rank] =
      std::max(copies_until_[rank], events_.now()) + transfer_ns(bytes, costs_.copy_bytes_per_s);
  events_.schedule(copies_until_[rank], [this, client, request = loaded.request_id, batch = loaded.batch] {
    cluster_.from_client(node_of(rank_of(client)), client, local::Placed{request, batch});
  });
}

}  // namespace shoal::sim
