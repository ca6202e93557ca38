// ShardWriter: events, and messages of clients.
#include "actors/shard_writer/shard_writer.h"

#include <algorithm>
#include <utility>

#include "base/rare_path.h"

namespace shoal::actors {

std::vector<TransitionsTaken> ShardWriter::transitions() const {
  return {{"rank's save", save_counts_.ranks.list()},
          {"node's save", save_counts_.saves.list()},
          {"local gather", save_counts_.gathers.list()},
          {"node's drain", drain_.transitions()}};
}

void ShardWriter::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  std::visit(
      Overloaded{[&](const event::FromClient& from) { on_client(now, from.client, from.message, out); },
                 [&](const event::ClientLost& lost) { on_client_lost(now, lost, out); },
                 [&](const event::OperationDone& done) { operations_.done(now, done, out); },
                 [&](const event::TimerFired& timer) { timers_.fired(now, timer, out); },
                 [&](const event::Received& received) { on_message(now, received, out); },
                 [&](const event::WorldKnown& known) { on_world(now, known, out); },
                 [&](const event::PlanningFailed& failed) { on_planning_failed(now, failed.why, out); },
                 [&](const event::PeerUp& up) { on_peer_up(now, up.node, out); },
                 [&](const event::PeerLost& lost) { on_peer_lost(now, lost, out); },
                 [&](const event::CoordinatorSuperseded& by) { on_coordinator_superseded(by.why, out); },
                 [&](const event::TrainerEnded& ended) { on_trainer_ended(now, ended, out); },
                 [&](const event::NextRunStarts&) { on_next_run(now, out); },
                 [&](const event::RanksLost& lost) { on_ranks_lost(now, lost, out); },
                 [&](const event::Drain& drain) { begin_drain(now, drain, out); },
                 [](const OneOf<event::Started, event::Stopping, event::SendDone> auto&) {}},
      event);
  if (drain_.is_draining()) consider_drain(now, out);
}

// --- messages of the coordinator ---

void ShardWriter::on_message(TimeNs now, const event::Received& received, EffectWriter& out) {
  if (received.from == kCoordinatorNode) coordinator_lost_ = false;
  std::visit(
      Overloaded{
          [&](const wire::Decided& decided) { on_decided(received.from, decided, out); },
          [&](const wire::AttemptRoster& roster) { on_attempt_roster(now, roster, out); },
          [&](const wire::GlobalPlan& plan) { on_global_plan(now, plan, out); },
          [&](const wire::PlanGathering& plans) { on_plans(plans, out); },
          [&](const wire::RanksEnded& ranks) { coordinators_ = ranks; },
          [&](const wire::Undecided& undecided) { on_undecided(undecided, out); },
          [&](const wire::Pending& pending) { on_pending(now, pending.key, out); },
          [&](const wire::ManifestsPublished& published) { on_manifests_published(now, published, out); },
          [&](const wire::SaveProgress& progress) { on_progress_elsewhere(now, progress, out); },
          // Messages to the other roles.
          [](const OneOf<wire::JoinRanks, wire::LayoutRequest, wire::Layouts, wire::RosterUpdate,
                         wire::JoinRejected, wire::ShardsWritten, wire::SaveFailed, wire::LayoutsStaged,
                         wire::Superseded, wire::LocalPlans, wire::JoinLoad, wire::LoadRoster,
                         wire::ChunkRequest, wire::ChunkData, wire::ChunksUnavailable, wire::ChunksCancelled,
                         wire::ChunksPending> auto&) {}},
      *received.message.body);
}

void ShardWriter::on_pending(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end() || found->second.resend == 0) return;
  found->second.backoff.slow_down();
  resend_later(now, key, found->second, out);
}

void ShardWriter::on_peer_up(TimeNs now, NodeId node, EffectWriter& out) {
  if (node != kCoordinatorNode) return;
  coordinator_lost_ = false;
  // RanksEnded names the ranks that are attached now. Others are introduced when they come back.
  std::erase_if(introduced_, [this](Rank rank) { return !attached_.contains(rank); });
  resend_all(now, out);
  if (rank_local_) {
    for (const auto& [key, save] : saves_) report_published(key, save, out);
  }
  send_ended(out);
  if (saves_.empty() && ended_.empty() && attached_.empty() && !drain_.have_ranks_ended()) return;
  ended_backoff_.reset();
  report_ranks(now + ended_backoff_.next(), out);
}

void ShardWriter::on_peer_lost(TimeNs now, const event::PeerLost& lost, EffectWriter& out) {
  if (lost.node != kCoordinatorNode) return;
  if (!std::exchange(coordinator_lost_, true)) coordinator_lost_at_ = now;
  why_coordinator_lost_ = lost.why.message();
  resend_all(now, out);
  give_up_without_coordinator(now, out);
}

// --- clients ---

void ShardWriter::on_client(TimeNs now, ClientId client,
                            const std::shared_ptr<const local::LocalMessage>& message, EffectWriter& out) {
  std::visit(
      Overloaded{[&](const local::Attach& attach) { on_attach(now, client, attach, out); },
                 [&](const local::Staged& staged) { on_staged(now, client, message, staged, out); },
                 [&](const local::Written& written) { on_written(now, client, message, written, out); },
                 [&](const local::NotStaged& not_staged) { on_not_staged(now, client, not_staged, out); },
                 [&](const local::LayoutUpdate& layout) { on_layout(now, client, layout, out); },
                 [&](const local::PlanRequest& request) { on_plan_request(now, client, request, out); },
                 [&](const local::PlanGathering& plans) { on_plan_gathering(now, client, plans, out); },
                 [&](const local::Ping&) { out.to_client(client, local::Pong{}); },
                 [&](const local::Detach&) { detached_.insert(client); },
                 // Messages to the Loader or to the node itself (actors/client_routes.h).
                 [](const OneOf<local::Slab, local::Latest, local::List, local::Load, local::Placed,
                                local::FilesRead, local::Close, local::StatusRequest, local::JobStatusRequest,
                                local::StagingRequest, local::StagingKept, local::PartStaged,
                                local::SaveReturned> auto&) {},
                 // Messages of a node to its clients.
                 [](const OneOf<local::Attached, local::Failed, local::RosterUpdate, local::SlabFree,
                                local::Decided, local::Found, local::Loaded, local::LoadDone, local::Refused,
                                local::Pong, local::StatusReport, local::JobStatusReport, local::PlanUpdate,
                                local::FilesToRead, local::StagingGranted, local::GiveBack,
                                local::PartRequest, local::Listing, local::StillWriting> auto&) {}},
      *message);
}

void ShardWriter::on_attach(TimeNs now, ClientId client, const local::Attach& attach, EffectWriter& out) {
  clients_[client] = attach.rank;
  attached_[attach.rank] = client;
  next_run_starts_ = false;  // whoever wanted to start one, this run goes on
  if (attach.pid != 0) pids_[attach.rank] = attach.pid;
  lost_.erase(attach.rank);
  if (auto awaited = awaited_.find(attach.rank); awaited != awaited_.end()) {
    timers_.cancel(&awaited->second.until, out);
    awaited_.erase(awaited);
  }
  if (world_size_ == 0) world_size_ = attach.world_size;
  if (ended_.erase(attach.rank) != 0) send_ended_at(now, out);
}

Status ShardWriter::too_many_saves() {
  return Status(Code::busy, std::to_string(kMaxSavesInFlight) +
                                " saves are in flight on this node, which is the most that it accepts");
}

Status ShardWriter::staged_before(const AttemptKey& key, Rank rank) {
  return Status(Code::already_exists,
                "rank " + std::to_string(rank) + " staged " + to_string(key) + " before");
}

void ShardWriter::on_staged(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                            const local::Staged& staged, EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return;
  const Rank rank = attached->second;
  staged_here_.insert(rank);
  const AttemptKey key{config_.generation, staged.step, staged.attempt};
  if (staged.again) {
    Offered offered{client, staged.slab_id, std::move(message), staged.user, staged.replicas};
    return on_offered_again(now, key, rank, std::move(offered), out);
  }
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    base::rare_path<"shard writer: a rank stages a save that is decided">();
    out.to_client(client, local::SlabFree{staged.slab_id, key.step, key.attempt, std::nullopt});
    return notify_outcome(client, key, decided->second.late, out);
  }
  auto found = find_or_open(now, key, out);
  if (found == saves_.end()) {
    out.to_client(client, local::Refused{staged.step, staged.attempt, too_many_saves()});
    return;
  }
  NodeSave& save = found->second;
  if (save.has_staged(rank)) {
    // An earlier client of this rank has staged: the save has those bytes.
    out.to_client(client, local::Refused{staged.step, staged.attempt, staged_before(key, rank)});
    return;
  }
  auto planned = save.ranks.find(rank);
  if (planned != save.ranks.end()) planned->second.on(RankSaveTrigger::staged_by_plan);
  RankSave& rank_save = planned != save.ranks.end() ? planned->second : save.add(rank, RankSaveState::staged);
  rank_save.stage(client, staged.slab_id, std::move(message), staged.user, staged.replicas);
  take_plan(now, key, rank, out);
}

void ShardWriter::on_written(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                             const local::Written& written, EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return;
  staged_here_.insert(attached->second);
  on_offered_again(now, {config_.generation, written.step, written.attempt}, attached->second,
                   {client, std::nullopt, std::move(message), written.user, written.replicas}, out);
}

// The client offers what an earlier connection of this rank offered, usually to an earlier node. This node
// may be writing it, and the attempt may be decided and its folder swept.
void ShardWriter::on_offered_again(TimeNs now, const AttemptKey& key, Rank rank, Offered offered,
                                   EffectWriter& out) {
  if (auto closed = decided_.find(key); closed != decided_.end()) {
    base::rare_path<"shard writer: a rank offers a decided save again">();
    const Outcome known = closed->second;
    if (auto late = late_.find({key, rank}); late != late_.end() && late->second.slab_in_use) {
      late->second.listener = offered.client;  // the slab is still read, and is free afterwards
      late->second.listener_slab_id = offered.slab_id;
      if (late->second.is(RankSaveState::writing_committed)) return;  // notify_late_writer answers
    } else if (offered.slab_id) {
      out.to_client(offered.client, local::SlabFree{*offered.slab_id, key.step, key.attempt, std::nullopt});
    }
    return notify_closed(key, known, offered.client, out);
  }
  auto found = find_or_open(now, key, out);
  if (found == saves_.end()) {
    out.to_client(offered.client, local::Refused{key.step, key.attempt, too_many_saves()});
    return;
  }
  NodeSave& save = found->second;
  if (!save.has_staged(rank)) {
    save.ranks.erase(rank);
    RankSave& rank_save = save.add(rank, RankSaveState::asking_root);
    rank_save.stage(offered.client, offered.slab_id, std::move(offered.message), offered.user,
                    std::move(offered.replicas));
    rank_save.offered_again = true;
    return ask_root(key, rank, out);
  }
  base::rare_path<"shard writer: a rank offers again what this node has">();
  RankSave& known = save.ranks.at(rank);
  replace_listener(key, save, known, offered.client, offered.slab_id, out);
  if (!known.slab_in_use && offered.slab_id) notify_free(key, known, *offered.slab_id, out);
}

// The trainer has another connection now. It hears what the earlier one would have heard, and what that one
// may have missed.
void ShardWriter::replace_listener(const AttemptKey& key, NodeSave& save, RankSave& rank_save,
                                   ClientId client, std::optional<uint32_t> slab_id, EffectWriter& out) {
  rank_save.listener = client;
  rank_save.listener_slab_id = slab_id;
  if (!save.is_undecidable()) return;
  if (save.notified_undecided.insert(client).second) notify_outcome(client, key, save.undecidable, out);
}

void ShardWriter::ask_root(const AttemptKey& key, Rank rank, EffectWriter& out) {
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key, rank](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      auto found = saves_.find(key);
                      if (found == saves_.end()) return;
                      if (decision.ok()) {
                        base::rare_path<"shard writer: what a rank offers again is decided in the root">();
                        return obey(key, **decision, then_out);
                      }
                      auto of_rank = found->second.ranks.find(rank);
                      if (of_rank == found->second.ranks.end() ||
                          !of_rank->second.may(RankSaveTrigger::no_decision_found)) {
                        return;
                      }
                      of_rank->second.on(RankSaveTrigger::no_decision_found);
                      take_plan(now, key, rank, then_out);
                    });
}

void ShardWriter::on_not_staged(TimeNs now, ClientId client, const local::NotStaged& message,
                                EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return;
  const Rank rank = attached->second;
  const AttemptKey key{config_.generation, message.step, message.attempt};
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    base::rare_path<"shard writer: a rank drops a save that is decided">();
    // The save may be committed although an earlier node dropped the bytes of this rank.
    return notify_closed(key, decided->second, client, out);
  }
  auto found = find_or_open(now, key, out);
  if (found == saves_.end()) {
    if (rank_local_) return abort_unopened(key, rank, client, message.why, out);
    // Sent once; it may be lost.
    return out.send(kCoordinatorNode, RoleKind::coordinator,
                    wire::SaveFailed{key, rank, message.why, config_.host});
  }
  NodeSave& save = found->second;
  if (auto known = save.ranks.find(rank); known != save.ranks.end()) {
    // The connection that staged it may still give it up: then its slab is freed as before.
    const bool is_same = known->second.listener == client;
    const std::optional<uint32_t> slab_id = is_same ? known->second.listener_slab_id : std::nullopt;
    replace_listener(key, save, known->second, client, slab_id, out);
  } else {
    save.without_part.insert(client);
  }
  if (save.has_staged(rank)) return;  // by an earlier connection
  fail(now, key, rank, message.why, out);
}

ShardWriter::Saves::iterator ShardWriter::find_or_open(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found != saves_.end() || saves_.size() >= kMaxSavesInFlight) return found;
  return open_save(now, key, out);
}

ShardWriter::Saves::iterator ShardWriter::open_save(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.emplace(key, NodeSave(now, config_.timeouts, save_counts_)).first;
  NodeSave& save = found->second;
  const size_t ranks_here = std::max(config_.expected_ranks.size(), attached_.size());
  const TimeNs deadline = config_.timeouts.attempt_deadline_ms * kMillisecond;
  save.backoff.spread_over(config_.timeouts, world_size(), ranks_here, deadline / 2);
  // So partial reports come well before the deadline, even if one rank hangs.
  save.partials.spread_over(config_.timeouts, world_size(), ranks_here, deadline / 8);
  await_progress(now, key, save, out);
  for (const auto& [rank, how] : lost_) fail(now, key, rank, never_stages(rank, how), out);
  if (!superseded_.ok()) give_up(key, GiveUp::superseded, superseded_.message(), out);
  if (coordinator_lost_) give_up_without_coordinator(now, out);
  return found;
}

void ShardWriter::on_client_lost(TimeNs now, const event::ClientLost& lost, EffectWriter& out) {
  const ClientId client = lost.client;
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const Rank rank = found->second;
  const bool ended_cleanly = detached_.erase(client) != 0;
  clients_.erase(found);
  gone_.insert(client);
  auto attached = attached_.find(rank);
  // Else another client attached for this rank.
  if (attached != attached_.end() && attached->second == client) {
    attached_.erase(attached);
    const Departure how = ended_cleanly ? Departure::closed : Departure::disconnected;
    // A trainer that closed its Checkpointer may open another one, and then stage what others have staged.
    // One that lives attaches again, and offers what it has staged.
    const bool may_return = how == Departure::closed || lost.process_lives;
    if (!may_return || ended_.contains(rank)) lose_rank(now, rank, how, out);
    await_return(now, rank, how, out);
  }
  forget_if_unused(client, out);
}

void ShardWriter::forget_if_unused(ClientId client, EffectWriter& out) {
  if (!gone_.contains(client)) return;
  for (const auto& [key, save] : saves_) {
    for (const auto& [rank, rank_save] : save.ranks) {
      if (rank_save.client == client && rank_save.slab_in_use) return;
    }
  }
  for (const auto& [key, rank_save] : late_) {
    if (rank_save.client == client) return;
  }
  gone_.erase(client);
  out.forget_client(client);
}

// Reports what became of the bytes: for a rank that is written, SlabFree names its files.
void ShardWriter::free_slab(const AttemptKey& key, RankSave& rank_save, EffectWriter& out) {
  if (!rank_save.slab_in_use || rank_save.files_writing != 0) return;
  rank_save.slab_in_use = false;
  rank_save.message.reset();
  if (rank_save.listener_slab_id) notify_free(key, rank_save, *rank_save.listener_slab_id, out);
  if (!clients_.contains(rank_save.client)) forget_if_unused(rank_save.client, out);
}

void ShardWriter::notify_free(const AttemptKey& key, const RankSave& rank_save, uint32_t slab_id,
                              EffectWriter& out) {
  if (!clients_.contains(rank_save.listener)) return;
  local::SlabFree report{slab_id, key.step, key.attempt, std::nullopt};
  if (rank_save.is_written()) {
    report.durable = local::DurableAssignment{rank_save.roster_id, rank_save.plan_id, {}};
    for (const wire::WrittenFile& file : rank_save.files) {
      report.durable->files.push_back({file.index, file.size, file.header_digest, file.payload_bytes});
    }
  }
  out.to_client(rank_save.listener, std::move(report));
}

std::unique_ptr<Role> make_shard_writer(const NodeConfig& config) {
  return std::make_unique<ShardWriter>(config);
}

}  // namespace shoal::actors
