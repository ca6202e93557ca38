#include "sim/cluster/counted_trainers.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/visit.h"
#include "sim/basics/integer_math.h"
#include "sim/cluster/stored_payload.h"

namespace shoal::sim {

namespace {

// A client that waits for an answer retries its node every 20 ms; any other client retries it every second
// (client/session/link.cpp).
constexpr actors::TimeNs kPressingSearchNs = 20 * actors::kMillisecond;
constexpr actors::TimeNs kIdleSearchNs = 1000 * actors::kMillisecond;

constexpr actors::TimeNs kReadOutcomesNs = 20 * actors::kMillisecond;

// The numbers of connections before it belong to trainers.
constexpr uint32_t kFirstTwin = uint32_t{1} << 20;

uint64_t hash_of(const std::vector<local::StagedPiece>& pieces) {
  uint64_t hash = pieces.size();
  for (const local::StagedPiece& piece : pieces) {
    for (uint64_t value : {uint64_t{piece.entry} << 32 | piece.local_box, piece.local_offset, piece.bytes}) {
      hash = mix64(hash ^ value) + 0x9e3779b97f4a7c15;
    }
  }
  return hash;
}

// What the planner of a rank offers, and what the planner with the global plan makes for it.
plan::PlannerPlan offered_plan(Rank rank, uint32_t save) {
  return std::make_shared<const std::string>(fmt::format("offer of rank {}, save {}", rank, save));
}
plan::PlannerPlan made_plan(Rank rank, uint32_t save) {
  return std::make_shared<const std::string>(fmt::format("plan of rank {}, save {}", rank, save));
}

}  // namespace

CountedTrainers::CountedTrainers(EventHeap& events, VirtualCluster& cluster, const Profile& profile, Job job,
                                 std::function<void(uint32_t)> save_begins)
    : events_(events),
      cluster_(cluster),
      costs_(profile.trainer),
      cpu_(profile.cpu),
      job_(std::move(job)),
      save_begins_(std::move(save_begins)),
      random_(stream_seed(job_.seed, Stream::arrivals)),
      returns_(stream_seed(job_.seed, Stream::returns)),
      trainers_(job_.ranks),
      living_(job_.ranks) {
  std::vector<uint32_t> items;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    items.push_back(static_cast<uint32_t>(layout_in(rank, 1)->entries().size()));
  }
  cluster_.set_items(items);
  times_.resize(job_.saves);
  for (TrainerTimings& save : times_) {
    save.called.resize(job_.ranks);
    for (auto* column : {&save.plan_received, &save.blocked, &save.written, &save.committed}) {
      column->resize(job_.ranks, -1);
    }
  }
}

void CountedTrainers::start() {
  start_with_load(nullptr);
  train_now();
}

void CountedTrainers::start_with_load(VirtualCluster::ToClient also) {
  const bool loads_first = also != nullptr;
  cluster_.start(
      [this, also = std::move(also)](actors::ClientId client, const local::LocalMessage& message) {
        listen(client, message);
        if (also) also(client, message);
      },
      [this](actors::ClientId client) { return &trainers_[rank_of(client)]; });
  std::map<LayoutPtr, std::shared_ptr<const local::LocalMessage>> updates;  // by layout: few for many ranks
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (job_.attach_skew_ns != 0 && !loads_first) {
      const uint64_t most = static_cast<uint64_t>(job_.attach_skew_ns);
      trainers_[rank].has_opened = false;
      attach_later(rank, static_cast<actors::TimeNs>(returns_.below(most + 1)));
      continue;
    }
    cluster_.attach(node_of(rank), rank);
    auto& update = updates[layout_now(rank)];
    if (update == nullptr) {
      update =
          std::make_shared<const local::LocalMessage>(local::LayoutUpdate{layout_now(rank), job_.options});
    }
    cluster_.from_client(node_of(rank), cluster_.client(rank), update);
  }
}

void CountedTrainers::train_now() {
  events_.schedule(events_.now() + job_.interval_ns, [this] {
    is_first_due_ = true;
    if (knows_enough()) begin_save();
  });
}

// Whether the ranks may call the first save.
bool CountedTrainers::knows_enough() const {
  const bool receives_roster = job_.options.mode == SaveMode::collective_free && !job_.keeps_offers;
  return !receives_roster || know_roster_ == job_.ranks;
}

void CountedTrainers::begin_save() {
  if (!trains_) return;
  const uint32_t save = ++saves_begun_;
  save_begins_(save);
  continued_ = 0;
  times_[save - 1].began = events_.now();
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    const auto late = static_cast<actors::TimeNs>(random_.below(static_cast<uint64_t>(job_.skew_ns) + 1));
    events_.schedule(
        events_.now() + late, [this, rank] { call_save(rank); }, &trainers_[rank]);
  }
}

void CountedTrainers::call_save(Rank rank) {
  Trainer& trainer = trainers_[rank];
  if (!trainer.alive) return;
  if (!trainer.has_opened || trainer.waits_for_read) {
    trainer.calls_later = true;
    return;
  }
  trainer.save = saves_begun_;
  const bool has_changed = layout_now(rank) != layout_in(rank, trainer.save);
  trainer.called = trainer.save;
  if (has_changed) change_layout(rank);
  times_[trainer.save - 1].called[rank] = events_.now();
  trainer.waits_for_slab = trainer.slabs_in_use == job_.max_in_flight;
  if (!trainer.waits_for_slab) ask_or_stage(rank);
}

// As a client does whose state has other tensors or placements than in the save before.
void CountedTrainers::change_layout(Rank rank) {
  Trainer& trainer = trainers_[rank];
  trainer.assignment.reset();
  trainer.has_planned = false;
  if (!trainer.is_attached) return;  // declared when it attaches
  cluster_.from_client(node_of(rank), cluster_.client(rank),
                       local::LayoutUpdate{layout_now(rank), job_.options});
}

void CountedTrainers::ask_or_stage(Rank rank) {
  Trainer& trainer = trainers_[rank];
  ++trainer.slabs_in_use;
  if (job_.options.mode == SaveMode::collective) {
    trainer.asks = true;
    trainer.has_gathered = false;
    trainer.made.clear();
    return ask(rank);
  }
  TrainerTimings& times = times_[trainer.save - 1];
  times.plan_received[rank] = events_.now() - times.called[rank];
  if (!trainer.assignment) return stage(rank, whole_assignment(rank), 0);
  const actors::TimeNs planning =
      std::exchange(trainer.has_planned, true)
          ? 0
          : static_cast<actors::TimeNs>(layout_now(rank)->entries().size()) * cpu_.plan_item_ns;
  stage(rank, *trainer.assignment, planning);
}

void CountedTrainers::ask(Rank rank) {
  const Trainer& trainer = trainers_[rank];
  const bool has_planner = job_.planner_rank.has_value();
  if (has_planner && !trainer.has_gathered) return offer_plan(rank);
  const PlanId knows = trainer.assignment ? trainer.assignment->assignment_id : PlanId{};
  notify_node(rank, trainer.save,
              local::PlanRequest{trainer.save, 1, layout_now(rank)->id(), knows, has_planner}, cpu_.event_ns);
}

// As a client with planners does (client/session/collective.cpp).
void CountedTrainers::offer_plan(Rank rank) {
  const Trainer& trainer = trainers_[rank];
  local::PlanGathering message{trainer.save,
                               1,
                               plan::GatherStage::offered,
                               *job_.planner_rank,
                               job_.options,
                               {offered_plan(rank, trainer.save)}};
  if (!trainer.made.empty()) {
    message.stage = plan::GatherStage::made;
    message.plans = trainer.made;
  }
  notify_node(rank, trainer.save, std::move(message), cpu_.event_ns);
}

void CountedTrainers::on_gathering(Rank rank, const local::PlanGathering& received) {
  Trainer& trainer = trainers_[rank];
  if (trainer.save != received.step || !trainer.asks || trainer.has_gathered) return;
  const auto fail = [&](const std::string& what) {
    failure_ = Status(Code::internal, fmt::format("rank {}, save {}: {}", rank, trainer.save, what));
  };
  if (received.stage == plan::GatherStage::delivered) {
    if (received.plans.size() != 1 || *received.plans[0] != *made_plan(rank, trainer.save)) {
      return fail("its part of the global plan is not the one that the planner made for it");
    }
    trainer.has_gathered = true;
    return ask(rank);
  }
  if (rank != job_.planner_rank || received.plans.size() != job_.ranks) {
    return fail("the plans of all ranks came to the wrong rank, or not all of them");
  }
  if (!trainer.made.empty()) return;  // a later coordinator has gathered again
  for (Rank other = 0; other < job_.ranks; ++other) {
    if (*received.plans[other] != *offered_plan(other, trainer.save)) {
      return fail(fmt::format("the planner received another plan than rank {} offered", other));
    }
    trainer.made.push_back(made_plan(other, trainer.save));
  }
  offer_plan(rank);
}

void CountedTrainers::stage(Rank rank, const Assignment& assignment, actors::TimeNs planning) {
  times_[trainers_[rank].save - 1].bytes_staged += assignment.bytes;
  const actors::TimeNs copying = is_in_parts(rank, assignment) ? 0 : copy_time(rank, assignment.bytes);
  const actors::TimeNs calling =
      costs_.call_ns + static_cast<actors::TimeNs>(assignment.pieces.size()) * costs_.item_ns;
  events_.schedule(
      cluster_.cores().end_of(events_.now(), planning + calling + copying),
      [this, rank, assignment] { staged(rank, assignment); }, &trainers_[rank]);
}

bool CountedTrainers::is_in_parts(Rank rank, const Assignment& assignment) const {
  if (job_.slab_bytes == 0 || assignment.bytes <= job_.slab_bytes) return false;
  const uint64_t drawn =
      mix64(stream_seed(job_.seed, Stream::staging) ^ (uint64_t{trainers_[rank].save} << 32 | rank));
  return drawn % kPermille < job_.parts_permille;
}

actors::TimeNs CountedTrainers::copy_time(Rank rank, uint64_t bytes) const {
  const actors::TimeNs copying = transfer_ns(bytes, costs_.copy_bytes_per_s);
  return job_.copy_permille.empty() ? copying : copying * job_.copy_permille[node_of(rank)] / 1000;
}

// The bytes are in the slab, or are copied in parts from now on: sends Staged to the node. Unless it copies
// parts, the trainer goes on.
void CountedTrainers::staged(Rank rank, const Assignment& planned) {
  Trainer& trainer = trainers_[rank];
  if (!trainer.alive) return;
  Offer offer{planned, free_slab(trainer), is_in_parts(rank, planned)};
  offer.assignment.replicas = digest_replicas(rank, trainer.save);
  trainer.staged.push_back({offer.slab, trainer.save});
  if (job_.keeps_offers) trainer.undecided[trainer.save] = offer;
  if (offer.in_parts) trainer.in_parts = InParts{offer.slab};
  send_staged(rank, trainer.save, offer, false);
  if (offer.in_parts) return;
  ++times_[trainer.save - 1].ranks_staged;
  let_continue(rank);
}

uint32_t CountedTrainers::free_slab(const Trainer& trainer) {
  uint32_t slab = 0;
  while (std::ranges::find(trainer.staged, slab, &UsedSlab::slab) != trainer.staged.end()) ++slab;
  return slab;
}

// As a client does (client/session/staging.cpp): it copies for the node that requests, as long as its call of
// save waits.
void CountedTrainers::on_part_request(Rank rank, const local::PartRequest& wanted) {
  Trainer& trainer = trainers_[rank];
  if (!trainer.in_parts || trainer.save != wanted.step || trainer.in_parts->slab != wanted.slab_id) {
    const Status why(Code::aborted, "the trainer has given up this save");
    return answer_part(rank, {wanted.slab_id, wanted.number, why});
  }
  uint64_t bytes = 0;
  for (const local::PartRange& range : wanted.ranges) bytes += range.bytes;
  actors::TimeNs& until = trainer.in_parts->copies_until;
  until = cluster_.cores().end_of(std::max(events_.now(), until), copy_time(rank, bytes));
  events_.schedule(
      until,
      [this, rank, slab = wanted.slab_id, number = wanted.number, client = cluster_.client(rank)] {
        if (trainers_[rank].alive && cluster_.client(rank) == client) answer_part(rank, {slab, number, {}});
      },
      &trainer);
}

void CountedTrainers::answer_part(Rank rank, local::PartStaged answer) {
  if (!trainers_[rank].is_attached) return;
  cluster_.from_client(node_of(rank), cluster_.client(rank), std::move(answer));
}

// Its call of save returns.
void CountedTrainers::end_parts(Rank rank) {
  trainers_[rank].in_parts.reset();
  let_continue(rank);
}

plan::ReplicaDigestsPtr CountedTrainers::digest_replicas(Rank rank, uint32_t save) {
  if (job_.options.replica_check == ReplicaCheck::off) return nullptr;
  const AttemptKey key{job_.generation, save, 1};
  ReplicaMemory::Digested digested =
      replicas_.digest(layout_in(rank, save), rank, job_.options.replica_check,
                       plan::replica_window_of(job_.generation, save), state_of(key));
  if (!digested.differing.empty()) times_[save - 1].differing[rank] = std::move(digested.differing);
  return digested.digests;
}

void CountedTrainers::send_staged(Rank rank, uint32_t save, const Offer& offer, bool again) {
  const Assignment& assignment = offer.assignment;
  if (job_.payload != nullptr) {
    job_.payload->stage(cluster_.client(rank), offer.slab, {job_.generation, save, 1}, layout_in(rank, save),
                        rank, assignment.pieces, offer.in_parts ? job_.parts_slab_bytes : 0);
  }
  local::Staged received;
  received.step = save;
  received.attempt = 1;
  received.layout_id = layout_in(rank, save)->id();
  received.roster_id = assignment.roster_id;
  received.plan_id = assignment.plan_id;
  received.slab_id = offer.slab;
  received.again = again;
  received.in_parts = offer.in_parts;
  received.pieces = assignment.pieces;
  received.replicas = assignment.replicas;
  notify_node(rank, save, std::move(received));
}

void CountedTrainers::notify_node(Rank rank, uint32_t save, local::LocalMessage message,
                                  actors::TimeNs takes) {
  actors::TimeNs& notified_at = times_[save - 1].notified_at;
  if (notified_at < 0) notified_at = events_.now();
  if (!trainers_[rank].is_attached) return;  // the message is sent again when the trainer attaches
  cluster_.from_client(node_of(rank), cluster_.client(rank), std::move(message), takes);
}

void CountedTrainers::let_continue(Rank rank) {
  Trainer& trainer = trainers_[rank];
  const uint32_t save = std::exchange(trainer.save, 0);
  TrainerTimings& times = times_[save - 1];
  times.blocked[rank] = events_.now() - times.called[rank];
  trainer.let_continue_after = save;
  ++continued_;
  ++milestones_;
  go_on();
  close_if_written(rank);
}

void CountedTrainers::go_on() {
  if (continued_ != living_ || saves_begun_ == job_.saves) return;
  continued_ = 0;
  events_.schedule(events_.now() + job_.interval_ns, [this] { begin_save(); });
}

void CountedTrainers::lose_host(size_t node) {
  const bool is_saving = continued_ != 0;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (node_of(rank) == node) forget_rank(rank);
  }
  if (is_saving) go_on();
}

void CountedTrainers::lose_rank(Rank rank, const std::string& how) {
  if (!trainers_[rank].alive) return;
  const bool is_saving = continued_ != 0;
  forget_rank(rank);
  if (!how.empty()) cluster_.end_trainer(node_of(rank), rank, how);
  cluster_.lose_client(node_of(rank), rank);
  if (is_saving) go_on();
}

void CountedTrainers::forget_rank(Rank rank) {
  Trainer& trainer = trainers_[rank];
  if (!trainer.alive) return;
  trainer.alive = false;
  trainer.undecided.clear();
  --living_;
  decided_ -= trainer.decided;
  if (continued_ != 0 && trainer.let_continue_after == saves_begun_) --continued_;
}

bool CountedTrainers::has_living(size_t node) const {
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (node_of(rank) == node && trainers_[rank].alive && !trainers_[rank].has_closed) return true;
  }
  return false;
}

void CountedTrainers::trainers_return(size_t node) {
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (node_of(rank) == node && trainers_[rank].alive && !trainers_[rank].has_closed) find_node(rank);
  }
}

void CountedTrainers::reconnect(Rank rank, actors::TimeNs after) {
  if (!trainers_[rank].alive || !trainers_[rank].is_attached || !cluster_.serves(node_of(rank))) return;
  // A node may notice the next connection before the end of this one.
  const bool is_noticed_late = returns_.below(2) == 0;
  cluster_.break_connection(node_of(rank), rank, is_noticed_late ? search_time() : 0);
  attach_later(rank, after == 0 ? search_time() : after);
}

actors::TimeNs CountedTrainers::search_time() {
  const actors::TimeNs most = returns_.below(2) == 0 ? kPressingSearchNs : kIdleSearchNs;
  return static_cast<actors::TimeNs>(returns_.below(static_cast<uint64_t>(most)));
}

void CountedTrainers::reopen(Rank rank, actors::TimeNs after) {
  trainers_[rank].reopens_after = after;
  close_if_wanted(rank);
}

// A call of save, load or close that waits keeps a trainer from closing.
void CountedTrainers::close_if_wanted(Rank rank) {
  Trainer& trainer = trainers_[rank];
  const size_t node = node_of(rank);
  const bool waits = trainer.save != 0 || trainer.waits_for_read || !trainer.undecided.empty();
  if (trainer.reopens_after == 0 || waits || !trainer.alive || !trainer.is_attached ||
      !cluster_.serves(node)) {
    return;
  }
  cluster_.from_client(node, cluster_.client(rank), local::Detach{});
  cluster_.break_connection(node, rank, 0);
  trainer.has_opened = false;
  attach_later(rank, std::exchange(trainer.reopens_after, 0));
}

// As a live close, which waits until the node needs the memory of this process no more.
void CountedTrainers::close_if_written(Rank rank) {
  const Trainer& trainer = trainers_[rank];
  const bool has_called_all = trainer.save == 0 && trainer.let_continue_after == job_.saves;
  if (!job_.closes_when_written || !has_called_all || trainer.reads || trainer.slabs_in_use != 0) return;
  if (trainer.alive && trainer.is_attached && !trainer.has_closed) close(rank);
}

void CountedTrainers::close_all() {
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (trainers_[rank].alive && !trainers_[rank].has_closed) close(rank);
  }
}

void CountedTrainers::close(Rank rank) {
  Trainer& trainer = trainers_[rank];
  const size_t node = node_of(rank);
  trainer.has_closed = true;
  if (std::exchange(trainer.is_attached, false) && cluster_.serves(node)) {
    cluster_.from_client(node, cluster_.client(rank), local::Detach{});
    cluster_.break_connection(node, rank, 0);
  }
  if (on_closed_) on_closed_(rank);
  if (!std::exchange(reads_outcomes_, true)) read_outcomes();
}

void CountedTrainers::read_outcomes() {
  bool is_done = true;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (!trainers_[rank].alive || !trainers_[rank].has_closed) continue;
    for (uint32_t save = 1; save <= saves_begun_; ++save) {
      if (times_[save - 1].committed[rank] >= 0) continue;
      const AttemptKey key{job_.generation, save, 1};
      const auto decision = cluster_.root().decision(key);
      const bool is_deleted = cluster_.root().was_deleted(key);
      // The nodes have ended before they saw that a set of manifests is complete, or because of a failure.
      // The next run decides it.
      const bool is_complete = cluster_.counted_root().is_complete_set(key);
      const bool is_left =
          !decision && !is_deleted && !cluster_.has_serving() && (job_.is_disturbed || is_complete);
      if (!decision && !is_deleted && !is_left) {
        is_done = false;
        continue;
      }
      trainers_[rank].undecided.erase(save);
      Status outcome;
      if (is_left && !is_complete) outcome = Status(Code::unavailable, "no node has decided it");
      if (decision && !is_deleted && !decision->committed())
        outcome = Status(Code::aborted, decision->tombstone().cause);
      receive(rank, {save, 1, std::move(outcome), {}}, !is_left);
    }
  }
  reads_outcomes_ = !is_done;
  if (!is_done) events_.schedule(events_.now() + kReadOutcomesNs, [this] { read_outcomes(); });
}

void CountedTrainers::attach_twin(Rank rank, size_t node, actors::TimeNs lasts) {
  if (cluster_.has_launcher() || node == node_of(rank)) return;
  if (!cluster_.serves(node) || saves_decided() == 0) return;
  const actors::ClientId twin = client_of(rank, kFirstTwin + twins_++);
  cluster_.attach(node, rank, twin);
  cluster_.from_client(node, twin, local::LayoutUpdate{layout_now(rank), job_.options});
  cluster_.lose_connection(node, twin, lasts);
}

void CountedTrainers::find_node(Rank rank) {
  attach_later(rank, search_time());
}

void CountedTrainers::attach_later(Rank rank, actors::TimeNs later) {
  Trainer& trainer = trainers_[rank];
  trainer.is_attached = false;
  drop_decided_slabs(rank);
  events_.schedule(
      events_.now() + later,
      [this, rank, returns = ++trainer.returns] {
        if (trainers_[rank].returns == returns) attach_again(rank);
      },
      &trainer);
}

void CountedTrainers::attach_again(Rank rank) {
  Trainer& trainer = trainers_[rank];
  const size_t node = node_of(rank);
  // If that process has ended meanwhile, the trainer finds the next one.
  if (!trainer.alive || trainer.has_closed || !cluster_.alive(node)) return;
  trainer.is_attached = true;
  trainer.has_opened = true;
  cluster_.attach(node, rank);
  declare_layouts(rank);
  if (on_attached_) on_attached_(rank);
  // A client keeps what its planner made: other ranks may lack their parts, and no other process has a copy.
  if (trainer.asks && trainer.has_gathered && !trainer.made.empty()) offer_plan(rank);
  if (trainer.asks) ask(rank);
  for (const auto& [save, offer] : trainer.undecided) {
    if (offer.durable) {
      cluster_.from_client(node, cluster_.client(rank),
                           local::Written{save, 1, *offer.durable, nullptr, offer.assignment.replicas});
    } else if (offer.was_never_staged) {
      const Status why(Code::deadline_exceeded, "no node served this host");
      cluster_.from_client(node, cluster_.client(rank), local::NotStaged{save, 1, why});
    } else if (offer.is_freed) {
      const Status why(Code::aborted, "a node that has since ended dropped what this rank had staged");
      cluster_.from_client(node, cluster_.client(rank), local::NotStaged{save, 1, why});
    } else {
      send_staged(rank, save, offer, true);
    }
  }
  if (std::exchange(trainer.calls_later, false)) call_save(rank);
}

void CountedTrainers::end_read(Rank rank) {
  trainers_[rank].reads = false;
  if (std::exchange(trainers_[rank].waits_for_read, false)) {
    if (std::exchange(trainers_[rank].calls_later, false)) call_save(rank);
    close_if_wanted(rank);
  }
  close_if_written(rank);
}

bool CountedTrainers::is_between_saves(Rank rank) const {
  const Trainer& trainer = trainers_[rank];
  return trainer.alive && trainer.has_opened && !trainer.waits_for_read && trainer.save == 0 &&
         trainer.decided == trainer.let_continue_after;
}

// As a client does (client/session/link.cpp): the layouts of undecided saves first.
void CountedTrainers::declare_layouts(Rank rank) {
  LayoutPtr declared = layout_now(rank);
  const auto declare = [&](const LayoutPtr& layout) {
    declared = layout;
    cluster_.from_client(node_of(rank), cluster_.client(rank), local::LayoutUpdate{layout, job_.options});
  };
  for (const auto& [save, offer] : trainers_[rank].undecided) {
    const LayoutPtr& layout = layout_in(rank, save);
    if (layout != layout_now(rank) && layout != declared && !offer.was_never_staged) declare(layout);
  }
  declare(layout_now(rank));
}

uint32_t CountedTrainers::saves_decided() const {
  uint32_t least = saves_begun_;
  for (const Trainer& trainer : trainers_) {
    if (trainer.alive) least = std::min(least, trainer.decided);
  }
  return least;
}

uint64_t CountedTrainers::slabs_in_use() const {
  uint64_t slabs = 0;
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    const Trainer& trainer = trainers_[rank];
    if (trainer.alive && trainer.is_attached && cluster_.serves(node_of(rank))) slabs += trainer.slabs_in_use;
  }
  return slabs;
}

void CountedTrainers::listen(actors::ClientId client, const local::LocalMessage& message) {
  const Rank rank = rank_of(client);
  if (!trainers_[rank].alive) return;
  std::visit(
      base::Overloaded{
          [&](const local::RosterUpdate& roster) { on_roster(rank, roster); },
          [&](const local::PlanUpdate& plan) { on_plan(rank, plan); },
          [&](const local::SlabFree& free) { on_slab_free(rank, free); },
          [&](const local::Decided& decided) { on_decided(rank, decided); },
          [&](const local::PlanGathering& gathering) { on_gathering(rank, gathering); },
          [&](const local::PartRequest& part) { on_part_request(rank, part); },
          [&](const base::OneOf<local::Failed, local::Refused> auto& failed) { failure_ = failed.why; },
          // These trainers only save, from slabs that need no grant.
          [](const base::OneOf<local::Attached, local::Found, local::Loaded, local::LoadDone, local::Pong,
                               local::StatusReport, local::JobStatusReport, local::FilesToRead,
                               local::StagingGranted, local::GiveBack, local::Listing,
                               local::StillWriting> auto&) {},
          [](const local::OnlyFromClient auto&) {}},
      message);
}

void CountedTrainers::on_roster(Rank rank, const local::RosterUpdate& roster) {
  Trainer& trainer = trainers_[rank];
  if (roster.world->layout_of(rank).id() != layout_now(rank)->id()) return;  // of an earlier layout
  auto plan = cluster_.plans().plan(*roster.world, rank, roster.options);
  SHOAL_CHECK(plan.ok());
  know_roster_ += !trainer.assignment;
  trainer.assignment = assignment_of(**plan, *layout_now(rank));
  trainer.has_planned = false;
  if (is_first_due_ && saves_begun_ == 0 && knows_enough()) begin_save();
}

void CountedTrainers::on_slab_free(Rank rank, const local::SlabFree& free) {
  Trainer& trainer = trainers_[rank];
  const auto save = static_cast<uint32_t>(free.step);
  auto offer = trainer.undecided.find(save);
  if (offer != trainer.undecided.end()) {
    if (std::exchange(offer->second.is_freed, true)) return;  // an earlier process has freed it
    offer->second.durable = free.durable;
  }
  const auto used = std::ranges::find(trainer.staged, free.slab_id, &UsedSlab::slab);
  if (used == trainer.staged.end()) return;  // it was dropped
  if (used->save != save) {
    failure_ = Status(Code::internal, fmt::format("rank {}: its node frees slab {} of save {}, which holds "
                                                  "save {}",
                                                  rank, free.slab_id, save, used->save));
    return;
  }
  trainer.staged.erase(used);
  ++milestones_;
  TrainerTimings& times = times_[save - 1];
  if (free.durable) times.written[rank] = events_.now() - times.called[rank];
  slab_is_free(rank, {free.slab_id, save}, true);
  if (trainer.save != save || !trainer.in_parts) return;
  if (free.durable) ++times.ranks_staged;
  end_parts(rank);
}

void CountedTrainers::slab_is_free(Rank rank, UsedSlab slab, bool is_freed) {
  Trainer& trainer = trainers_[rank];
  --trainer.slabs_in_use;
  if (job_.payload != nullptr && is_freed) {
    job_.payload->free(rank, slab.slab, {job_.generation, slab.save, 1});
  }
  if (slab_freed_) slab_freed_(rank, trainer.slabs_in_use);
  if (std::exchange(trainer.waits_for_slab, false)) ask_or_stage(rank);
  close_if_written(rank);
}

// No node reports on them any more. A live client replaces these slabs (client/session/link.cpp).
void CountedTrainers::drop_decided_slabs(Rank rank) {
  Trainer& trainer = trainers_[rank];
  std::vector<UsedSlab> dropped;
  std::erase_if(trainer.staged, [&](const UsedSlab& used) {
    const auto offer = trainer.undecided.find(used.save);
    const bool is_offered = offer != trainer.undecided.end() && !offer->second.is_freed;
    if (!is_offered) dropped.push_back(used);
    return !is_offered;
  });
  for (const UsedSlab& used : dropped) slab_is_free(rank, used, false);
}

void CountedTrainers::give_up(size_t node) {
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    Trainer& trainer = trainers_[rank];
    if (node_of(rank) != node || !trainer.alive || trainer.has_closed) continue;
    std::vector<uint32_t> waits;
    for (const auto& [save, offer] : trainer.undecided) waits.push_back(save);
    const bool is_in_call = trainer.asks || trainer.waits_for_slab;
    if (is_in_call) waits.push_back(trainer.save);
    const uint32_t in_parts = trainer.in_parts ? trainer.save : 0;
    for (uint32_t save : waits) {
      const bool is_notified = times_[save - 1].committed[rank] >= 0;
      if (is_notified || events_.now() - times_[save - 1].called[rank] < kAttachTimeoutNs) continue;
      if (is_in_call &&
          save == trainer.save) {  // the next node gets NotStaged (Checkpointer::Impl::count_save)
        Offer never;
        never.is_freed = true;
        never.was_never_staged = true;
        trainer.undecided[save] = std::move(never);
      }
      if (save == in_parts) give_up_parts(rank);
      receive(rank, {save, 1, Status(Code::unavailable, "no node serves this host"), {}});
    }
  }
}

// The next node gets NotStaged, because the trainer copies no further part (Session::end_parts).
void CountedTrainers::give_up_parts(Rank rank) {
  Trainer& trainer = trainers_[rank];
  const UsedSlab slab{trainer.in_parts->slab, trainer.save};
  Offer& offer = trainer.undecided[trainer.save];
  offer.is_freed = true;
  offer.was_never_staged = true;
  std::erase_if(trainer.staged, [&](const UsedSlab& used) { return used.slab == slab.slab; });
  slab_is_free(rank, slab, false);
}

void CountedTrainers::on_decided(Rank rank, const local::Decided& decided) {
  trainers_[rank].undecided.erase(static_cast<uint32_t>(decided.step));
  receive(rank, decided);
  close_if_wanted(rank);
}

void CountedTrainers::receive(Rank rank, const local::Decided& decided, bool is_decided) {
  Trainer& trainer = trainers_[rank];
  if (on_decision_ && is_decided) on_decision_(rank, decided);
  const auto save = static_cast<uint32_t>(decided.step);
  TrainerTimings& times = times_[save - 1];
  if (times.committed[rank] >= 0) return;  // the decision of a save that it offered again is repeated
  const actors::TimeNs notified = cluster_.cores().end_of(events_.now(), cpu_.event_ns);
  times.committed[rank] = notified - times.called[rank];
  ++decided_;
  ++trainer.decided;
  ++milestones_;
  if (!decided.outcome.ok()) {
    ++times.aborted_ranks;
    times.cause = decided.outcome.message();
  }
  if (trainer.save != save) return;
  if (trainer.in_parts) {
    end_parts(rank);
  } else if (std::exchange(trainer.waits_for_slab, false)) {
    let_continue(rank);
  } else if (std::exchange(trainer.asks, false)) {  // the save is decided, so no plan will follow
    --trainer.slabs_in_use;
    let_continue(rank);
  }
}

void CountedTrainers::on_plan(Rank rank, const local::PlanUpdate& received) {
  Trainer& trainer = trainers_[rank];
  if (trainer.save != received.step || !std::exchange(trainer.asks, false)) return;
  TrainerTimings& times = times_[received.step - 1];
  times.plan_received[rank] = events_.now() - times.called[rank];
  if (received.plan) trainer.assignment = assignment_of(*received.plan, *layout_now(rank));
  SHOAL_CHECK(trainer.assignment.has_value());
  stage(rank, *trainer.assignment, cpu_.event_ns);
}

CountedTrainers::Assignment CountedTrainers::assignment_of(const SavePlan& plan, const Layout& layout) {
  Assignment assignment;
  auto like_it = assignments_.find(plan.items.data());
  if (like_it != assignments_.end()) {
    assignment = like_it->second.second;
  } else {
    lay_out(plan, layout, assignment);
    assignments_.emplace(plan.items.data(), std::pair(plan.items, assignment));
  }
  assignment.roster_id = plan.roster_id;
  assignment.plan_id = plan.id;
  if (job_.options.mode == SaveMode::collective) assignment.assignment_id = assignment_id_of(plan);
  return assignment;
}

void CountedTrainers::lay_out(const SavePlan& plan, const Layout& layout, Assignment& assignment) {
  std::vector<local::StagedPiece> pieces;
  for (const WriteItem& item : plan.items) {
    const bool is_object = layout.entries()[item.entry].kind == LayoutEntry::Kind::object;
    const uint64_t bytes = is_object ? kSimulatedObjectBytes : item.bytes;
    if (bytes == 0) continue;
    pieces.push_back({item.entry, item.local_box, item.local_offset, bytes, assignment.bytes});
    assignment.bytes += bytes;
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return std::tie(a.entry, a.local_box, a.local_offset) < std::tie(b.entry, b.local_box, b.local_offset);
  });
  Pieces& known = known_pieces_[hash_of(pieces)];
  if (known.empty()) known = Pieces(std::move(pieces));
  assignment.pieces = known;
}

CountedTrainers::Assignment CountedTrainers::whole_assignment(Rank rank) {
  const Layout& layout = *layout_now(rank);
  Assignment assignment;
  lay_out(plan_all_held(layout, rank), layout, assignment);
  return assignment;
}

}  // namespace shoal::sim
