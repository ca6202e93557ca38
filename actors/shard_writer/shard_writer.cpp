// ShardWriter: messages of clients, planning, writing.
#include <algorithm>
#include <utility>

#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

Status ShardWriter::too_many_saves() {
  return Status(Code::busy, std::to_string(kMaxSavesInFlight) + " saves are in flight on this node");
}

Status ShardWriter::staged_before(const AttemptKey& key, Rank rank) {
  return Status(Code::already_exists,
                "rank " + std::to_string(rank) + " staged " + to_string(key) + " before");
}

void ShardWriter::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  if (const auto* from_client = std::get_if<event::FromClient>(&event)) {
    on_client(now, from_client->client, from_client->message, out);
  } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
    operations_.done(now, *done, out);
  } else if (const auto* received = std::get_if<event::Received>(&event)) {
    if (received->from == kCoordinatorNode) coordinator_lost_ = false;
    on_message(now, *received->message.body, out);
  } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
    timers_.fired(now, *timer, out);
  } else if (const auto* world = std::get_if<event::WorldKnown>(&event)) {
    on_world(now, *world, out);
  } else if (const auto* failed = std::get_if<event::PlanningFailed>(&event)) {
    planning_failed_ = failed->why;
    fail_unplanned(now, out);
  } else if (const auto* lost = std::get_if<event::ClientLost>(&event)) {
    on_client_lost(now, lost->client, out);
  } else if (const auto* peer = std::get_if<event::PeerLost>(&event)) {
    if (peer->node != kCoordinatorNode) return;
    if (!std::exchange(coordinator_lost_, true)) coordinator_lost_at_ = now;
    why_coordinator_lost_ = peer->why.message();
    resend_all(now, out);
    give_up_without_coordinator(now, out);
  } else if (const auto* up = std::get_if<event::PeerUp>(&event)) {
    if (up->node != kCoordinatorNode) return;
    coordinator_lost_ = false;
    resend_all(now, out);
    if (saves_.empty() && ended_.empty() && attached_.empty() && !leaving_) return;
    send_ended(out);
    ended_backoff_.reset();
    speak_for_ranks(now + ended_backoff_.next(), out);
  } else if (const auto* ended = std::get_if<event::TrainerEnded>(&event)) {
    on_trainer_ended(now, *ended, out);
  } else if (const auto* gone = std::get_if<event::CoordinatorSuperseded>(&event)) {
    on_coordinator_superseded(gone->why, out);
  } else if (const auto* ranks = std::get_if<event::RanksLost>(&event)) {
    on_ranks_lost(now, *ranks, out);
  } else if (const auto* drain = std::get_if<event::Drain>(&event)) {
    begin_drain(now, *drain, out);
  }
  if (draining_) consider_drain(now, out);
}

// --- clients ---

void ShardWriter::on_client(TimeNs now, ClientId client,
                            const std::shared_ptr<const local::LocalMessage>& message, EffectWriter& out) {
  if (const auto* attach = std::get_if<local::Attach>(message.get())) {
    clients_[client] = attach->rank;
    attached_[attach->rank] = client;
    lost_.erase(attach->rank);
    if (world_size_ == 0) world_size_ = attach->world_size;
    if (ended_.erase(attach->rank) != 0) send_ended_at(now, out);
  } else if (const auto* staged = std::get_if<local::Staged>(message.get())) {
    on_staged(now, client, message, *staged, out);
  } else if (const auto* written = std::get_if<local::Written>(message.get())) {
    auto attached = clients_.find(client);
    if (attached == clients_.end()) return;
    Share share;
    share.client = share.listener = client;
    share.message = message;
    share.user = written->user;
    share.slab_in_use = false;
    on_offered_again(now, {config_.generation, written->step, written->attempt}, attached->second,
                     std::move(share), out);
  } else if (const auto* not_staged = std::get_if<local::NotStaged>(message.get())) {
    on_not_staged(now, client, *not_staged, out);
  } else if (const auto* layout = std::get_if<local::LayoutUpdate>(message.get())) {
    on_layout(now, client, *layout, out);
  } else if (const auto* wanted = std::get_if<local::PlanRequest>(message.get())) {
    on_plan_request(now, client, *wanted, out);
  } else if (const auto* plans = std::get_if<local::PlanGathering>(message.get())) {
    on_plan_exchange(now, client, *plans, out);
  } else if (std::get_if<local::Ping>(message.get())) {
    out.to_client(client, local::Pong{});
  }
}

void ShardWriter::on_staged(TimeNs now, ClientId client, std::shared_ptr<const local::LocalMessage> message,
                            const local::Staged& staged, EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return;
  const Rank rank = attached->second;
  const AttemptKey key{config_.generation, staged.step, staged.attempt};
  Share share;
  share.client = share.listener = client;
  share.slab_id = share.listener_slab_id = staged.slab_id;
  share.user = staged.user;
  share.message = std::move(message);
  if (staged.again) return on_offered_again(now, key, rank, std::move(share), out);
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    free_slab(key, share, out);
    return notify_outcome(client, key, decided->second.late, out);
  }
  auto found = saves_.find(key);
  if (found == saves_.end()) {
    if (saves_.size() >= kMaxSavesInFlight) {
      out.to_client(client, local::Refused{staged.step, staged.attempt, too_many_saves()});
      return;
    }
    found = open_save(now, key, out);
  }
  auto before = found->second.shares.find(rank);
  if (before != found->second.shares.end() && before->second.asked) {  // and has its plan
    share.notified = std::move(before->second.notified);
    before->second = std::move(share);
  } else if (!found->second.shares.try_emplace(rank, std::move(share)).second) {
    // An earlier client of this rank has staged: the save has those bytes.
    out.to_client(client, local::Refused{staged.step, staged.attempt, staged_before(key, rank)});
    return;
  }
  take_plan(now, key, rank, out);
}

// The client offers what an earlier connection of this rank offered, usually to an earlier node: a slab, or
// files that are durable. This node may be writing it, and the attempt may be decided and its folder swept.
void ShardWriter::on_offered_again(TimeNs now, const AttemptKey& key, Rank rank, Share offered,
                                   EffectWriter& out) {
  const ClientId client = offered.listener;
  if (auto closed = decided_.find(key); closed != decided_.end()) {
    const Outcome known = closed->second;
    free_slab(key, offered, out);
    return notify_closed(key, known, client, out);
  }
  auto found = saves_.find(key);
  if (found == saves_.end()) {
    if (saves_.size() >= kMaxSavesInFlight) {
      out.to_client(client, local::Refused{key.step, key.attempt, too_many_saves()});
      return;
    }
    found = open_save(now, key, out);
  }
  if (!has_staged(found->second, rank)) found->second.shares.erase(rank);
  auto [share, fresh] = found->second.shares.try_emplace(rank, std::move(offered));
  if (fresh) {
    share->second.offered_again = share->second.asking = true;
    return ask_root(key, rank, out);
  }
  Share& standing = share->second;
  standing.listener = client;
  standing.listener_slab_id = offered.slab_id;
  if (!standing.slab_in_use && offered.slab_in_use) notify_free(key, standing, offered.slab_id, out);
}

void ShardWriter::ask_root(const AttemptKey& key, Rank rank, EffectWriter& out) {
  operations_.start(operation::ReadDecision{key}, out,
                    [this, key, rank](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      auto found = saves_.find(key);
                      if (found == saves_.end()) return;
                      if (decision.ok()) {
                        const bool committed = (*decision)->was_committed();
                        return settle(key, committed, committed ? "" : (*decision)->tombstone().cause,
                                      then_out);
                      }
                      auto share = found->second.shares.find(rank);
                      if (share == found->second.shares.end() || !share->second.asking) return;
                      share->second.asking = false;
                      take_plan(now, key, rank, then_out);
                    });
}

void ShardWriter::on_not_staged(TimeNs now, ClientId client, const local::NotStaged& report,
                                EffectWriter& out) {
  auto attached = clients_.find(client);
  if (attached == clients_.end()) return;
  const Rank rank = attached->second;
  const AttemptKey key{config_.generation, report.step, report.attempt};
  if (auto decided = decided_.find(key); decided != decided_.end()) {
    // The save may be committed although an earlier node dropped the bytes of this rank.
    return notify_closed(key, decided->second, client, out);
  }
  auto found = saves_.find(key);
  if (found == saves_.end()) {
    if (saves_.size() >= kMaxSavesInFlight) {  // sent once; it may be lost
      if (!rank_local_) {
        out.send(kCoordinatorNode, RoleKind::coordinator, wire::SaveFailed{key, rank, report.why});
      }
      return;
    }
    found = open_save(now, key, out);
  }
  if (has_staged(found->second, rank)) return;  // by an earlier connection
  if (!found->second.shares.contains(rank)) found->second.without_assignment.insert(client);
  fail(now, key, rank, report.why, out);
}

std::map<AttemptKey, ShardWriter::Save>::iterator ShardWriter::open_save(TimeNs now, const AttemptKey& key,
                                                                         EffectWriter& out) {
  auto found = saves_.emplace(key, Save(config_.timeouts)).first;
  const size_t ranks_here = std::max(config_.expected_ranks.size(), attached_.size());
  const TimeNs deadline = config_.timeouts.attempt_deadline_ms * kMillisecond;
  found->second.begun = now;
  found->second.backoff.spread_over(config_.timeouts, world_size(), ranks_here, deadline / 2);
  // So partial reports come well before the deadline, even if one rank hangs.
  found->second.partials.spread_over(config_.timeouts, world_size(), ranks_here, deadline / 8);
  found->second.deadline = timers_.set(now + config_.timeouts.node_deadline_ms * kMillisecond, out,
                                       [this, key](TimeNs, EffectWriter& then_out) {
                                         auto open = saves_.find(key);
                                         if (open == saves_.end()) return;
                                         open->second.deadline = 0;
                                         give_up(key, GiveUp::deadline, no_decision(open->second), then_out);
                                       });
  for (Rank rank : lost_) fail(now, key, rank, trainer_ended(rank), out);
  if (!coordinator_superseded_.ok()) give_up(key, GiveUp::superseded, coordinator_superseded_.message(), out);
  if (coordinator_lost_) give_up_without_coordinator(now, out);
  return found;
}

std::string ShardWriter::no_decision(const Save& save) const {
  std::string cause = "host " + config_.host + " heard no decision within " +
                      human_seconds(config_.timeouts.node_deadline_ms / 1e3);
  if (!save.set_missing.empty()) cause += ": " + save.set_missing;
  if (coordinator_lost_) cause += ": it has lost the coordinator";
  return cause;
}

void ShardWriter::on_client_lost(TimeNs now, ClientId client, EffectWriter& out) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  const Rank rank = found->second;
  clients_.erase(found);
  gone_.insert(client);
  auto attached = attached_.find(rank);
  // Else another client attached for this rank.
  if (attached != attached_.end() && attached->second == client) {
    attached_.erase(attached);
    lose_rank(now, rank, out);
  }
  forget_if_unused(client, out);
}

void ShardWriter::forget_if_unused(ClientId client, EffectWriter& out) {
  if (!gone_.contains(client)) return;
  for (const auto& [key, save] : saves_) {
    for (const auto& [rank, share] : save.shares) {
      if (share.client == client && share.slab_in_use) return;
    }
  }
  for (const auto& [key, share] : late_) {
    if (share.client == client) return;
  }
  gone_.erase(client);
  out.forget_client(client);
}

// States what became of the bytes: for a share that is written, SlabFree names its files.
void ShardWriter::free_slab(const AttemptKey& key, Share& share, EffectWriter& out) {
  if (!share.slab_in_use || share.files_writing != 0) return;
  share.slab_in_use = false;
  share.message.reset();
  notify_free(key, share, share.listener_slab_id, out);
  if (!clients_.contains(share.client)) forget_if_unused(share.client, out);
}

void ShardWriter::notify_free(const AttemptKey& key, const Share& share, uint32_t slab_id,
                              EffectWriter& out) {
  if (!clients_.contains(share.listener)) return;
  local::SlabFree report{slab_id, key.step, key.attempt, std::nullopt};
  if (share.written) {
    report.durable = local::DurableAssignment{share.roster_id, share.plan_id, {}};
    for (const wire::WrittenFile& file : share.files) {
      report.durable->files.push_back({file.index, file.size, file.header_digest, file.payload_bytes});
    }
  }
  out.to_client(share.listener, std::move(report));
}

// --- planning and writing ---

void ShardWriter::on_world(TimeNs now, const event::WorldKnown& known, EffectWriter& out) {
  if (known.rank_local) {
    rank_local_ = true;
    rank_local_worlds_[*known.rank_local].add_newest(known.world, known.options);
  } else {
    worlds_.add_newest(known.world, known.options);
  }
  for_each_unplanned([&](const AttemptKey& key, Rank rank) { plan_rank(now, key, rank, out); });
}

void ShardWriter::fail_unplanned(TimeNs now, EffectWriter& out) {
  for_each_unplanned([&](const AttemptKey& key, Rank rank) { fail(now, key, rank, planning_failed_, out); });
}

Result<SavePlanPtr> ShardWriter::plan_of(KnownWorlds::Known& known, Rank rank) {
  auto found = known.plans.find(rank);
  if (found != known.plans.end()) return found->second;
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, config_.plans->plan(*known.world, rank, known.options));
  return known.plans.try_emplace(rank, std::move(plan)).first->second;
}

std::optional<RosterId> ShardWriter::roster_of(const Save& save, Rank rank, const Share& share) {
  if (const auto* written = std::get_if<local::Written>(share.message.get())) {
    return written->assignment.roster_id;
  }
  const auto& staged = std::get<local::Staged>(*share.message);
  if (!staged.roster_id.is_zero()) return staged.roster_id;
  if (rank_local_) {
    KnownWorlds::Known* known = rank_local_worlds_[rank].find_by_layout(staged.layout_id);
    return known ? std::optional(known->world->roster.id()) : std::nullopt;
  }
  if (!save.roster_id.is_zero()) return save.roster_id;
  const World& newest = worlds_.newest();
  if (share.waits || newest.layout_of(rank).id() != staged.layout_id) return std::nullopt;
  return newest.roster.id();
}

void ShardWriter::read_roster(const RosterId& id, EffectWriter& out) {
  if (!reading_rosters_.insert(id).second) return;
  operations_.start(operation::ReadRoster{config_.generation, id}, out,
                    [this, id](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      reading_rosters_.erase(id);
                      auto record = result_as<storage::RosterRecord>(std::move(result));
                      if (record.ok() && worlds_.empty()) {  // collective: the Planner passes no roster
                        worlds_.add_newest(record->world, record->options);
                      } else if (record.ok()) {
                        worlds_.add_earlier(record->world, record->options);
                      }
                      for_each_unplanned([&](const AttemptKey& key, Rank rank) {
                        const Save& save = saves_.at(key);
                        if (roster_of(save, rank, save.shares.at(rank)) != id) return;
                        if (worlds_.find(id) != nullptr) return plan_rank(now, key, rank, then_out);
                        fail(now, key, rank,
                             record.status().with_context("the roster that it was saved under"), then_out);
                      });
                    });
}

void ShardWriter::on_plan_by(TimeNs now, const wire::AttemptRoster& report, EffectWriter& out) {
  auto found = saves_.find(report.key);
  if (found == saves_.end() || !found->second.roster_id.is_zero()) return;
  found->second.roster_id = report.roster_id;
  if (worlds_.empty()) return;  // the first roster is being read or sent
  for_each_unplanned([&](const AttemptKey& key, Rank rank) {
    if (key == report.key) plan_rank(now, key, rank, out);
  });
}

void ShardWriter::take_plan(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  if (!coordinator_superseded_.ok()) return;  // its tombstone is being published
  Status alike = check_user(saves_.at(key), rank);
  if (!alike.ok()) fail(now, key, rank, std::move(alike), out);
  if (is_collective() || !worlds_of(rank).empty()) {
    plan_rank(now, key, rank, out);
  } else if (!planning_failed_.ok()) {
    fail(now, key, rank, planning_failed_, out);
  } else {
    announce(now, key, out);
  }
  consider_report(now, key, out);
}

Status ShardWriter::check_user(const Save& save, Rank rank) {
  const UserMetadataPtr& user = save.shares.at(rank).user;
  for (const auto& [other, share] : save.shares) {
    if (other == rank || share.asked || share.user == user) continue;
    return check_same_user_metadata(other, or_none(share.user), rank, or_none(user));
  }
  return ok_status();
}

void ShardWriter::plan_rank(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  if (is_collective()) return plan_from_coordinator(now, key, rank, out);
  KnownWorlds& worlds = worlds_of(rank);
  if (worlds.empty()) return;  // rank-local: the client has not declared its layout yet
  Share& share = saves_.at(key).shares.at(rank);
  auto beyond = [&](const World& world) {
    return fail(now, key, rank,
                Status(Code::invalid_argument, "rank " + std::to_string(rank) + " is not in the roster of " +
                                                   std::to_string(world.roster.world_size()) + " ranks"),
                out);
  };
  if (rank >= worlds.newest().roster.world_size()) return beyond(worlds.newest());
  const std::optional<RosterId> roster_id = roster_of(saves_.at(key), rank, share);
  if (!roster_id && rank_local_) return;  // the Planner has not sent the world of this layout yet
  if (!roster_id) return wait_for_roster(now, key, share, out);
  KnownWorlds::Known* known = worlds.find(*roster_id);
  if (known == nullptr && rank_local_) {
    return fail(now, key, rank, Status(Code::unavailable, "was saved under a layout of before its node"),
                out);
  }
  if (known == nullptr) return read_roster(*roster_id, out);
  if (rank >= known->world->roster.world_size()) return beyond(*known->world);
  auto plan = plan_of(*known, rank);
  if (!plan.ok()) {
    share.waits.reset();
    share.planned = true;
    return fail(now, key, rank, plan.status(), out);
  }
  write_rank(now, key, rank, **plan, known->world->layout_of(rank), out);
}

void ShardWriter::write_rank(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                             const Layout& layout, EffectWriter& out) {
  Share& share = saves_.at(key).shares.at(rank);
  share.waits.reset();
  share.planned = true;
  if (std::holds_alternative<local::Written>(*share.message)) {
    return take_written(now, key, rank, plan, out);
  }
  share.roster_id = plan.roster_id;
  share.plan_id = plan.id;
  auto writes =
      config_.plans->writes(layout, plan, key, share.client, std::get<local::Staged>(*share.message));
  if (!writes.ok()) return fail(now, key, rank, writes.status(), out);
  share.files.resize(writes->size());
  share.files_writing = writes->size();
  for (operation::WriteShard& write : *writes) {
    write.user = share.user;
    const uint32_t file = write.file;
    operations_.start(
        std::move(write), out,
        [this, key, rank, file](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
          file_written(then_now, key, rank, file, result_as<storage::WrittenShard>(std::move(result)),
                       then_out);
        });
  }
  if (writes->empty()) record_staged(now, key, rank, plan, out);
}

// Without this record nothing in the root shows that a rank without a shard has staged the save. A rank-local
// save needs none: each rank publishes a manifest.
void ShardWriter::record_staged(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                                EffectWriter& out) {
  if (rank_local_) return rank_written(now, key, rank, out);
  Share& share = saves_.at(key).shares.at(rank);
  share.files_writing = 1;
  operations_.start(
      operation::RecordStaged{key, rank, plan.layout_id, assignment_id_of(plan), share.user}, out,
      [this, key, rank](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
        write_ended(then_now, key, rank, result.status(), then_out);
      });
}

// The client repeats what an earlier node reported about durable files. The coordinator compares the sizes
// with the folder when it commits.
void ShardWriter::take_written(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                               EffectWriter& out) {
  Share& share = saves_.at(key).shares.at(rank);
  const local::DurableAssignment report = std::get<local::Written>(*share.message).assignment;
  share.message.reset();
  if (report.roster_id != plan.roster_id || report.plan_id != plan.id || report.files.size() != plan.files) {
    return fail(now, key, rank,
                Status(Code::invalid_argument,
                       "rank " + std::to_string(rank) + " was written by another plan than that in force"),
                out);
  }
  share.roster_id = plan.roster_id;
  share.plan_id = plan.id;
  for (const local::DurableFile& file : report.files) {
    share.files.push_back({rank, file.index, file.size, file.header_digest, file.payload_bytes});
  }
  // An older node wrote no staged record.
  if (share.files.empty()) return record_staged(now, key, rank, plan, out);
  rank_written(now, key, rank, out);
}

void ShardWriter::file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file,
                               Result<storage::WrittenShard> written, EffectWriter& out) {
  auto found = saves_.find(key);
  auto late = late_.find({key, rank});
  Share* share = found != saves_.end() ? &found->second.shares.at(rank)
                 : late != late_.end() ? &late->second
                                       : nullptr;
  if (share != nullptr && written.ok()) {
    share->files[file] = {rank, file, written->size, written->header_digest, written->payload_bytes};
  }
  write_ended(now, key, rank, written.status(), out);
}

void ShardWriter::write_ended(TimeNs now, const AttemptKey& key, Rank rank, const Status& written,
                              EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) return release_late(key, rank, !written.ok(), out);
  Share& share = found->second.shares.at(rank);
  --share.files_writing;
  share.write_failed = share.write_failed || !written.ok();
  if (!written.ok()) fail(now, key, rank, written, out);
  found = saves_.find(key);
  if (found != saves_.end() && found->second.shares.at(rank).files_writing == 0)
    rank_written(now, key, rank, out);
}

void ShardWriter::release_late(const AttemptKey& key, Rank rank, bool failed, EffectWriter& out) {
  auto late = late_.find({key, rank});
  if (late == late_.end()) return;
  late->second.write_failed = late->second.write_failed || failed;
  if (--late->second.files_writing != 0) return;
  Share share = std::move(late->second);
  late_.erase(late);
  free_slab(key, share, out);
  forget_if_unused(share.client, out);
  if (share.is_committed) return notify_late_writer(key, rank, share, out);  // a committed save is not swept
  auto others = late_.lower_bound({key, 0});
  if (others != late_.end() && others->first.first == key) return;
  if (rank_local_) return sweep_rank_local(key, out);
  // The sweep after the abort may have missed these files. This message makes the coordinator sweep again.
  out.send(kCoordinatorNode, RoleKind::coordinator,
           wire::SaveFailed{key, rank, Status(Code::aborted, "its files were written after the abort")});
}

// Either the files of this rank are the committed ones, or another process of its rank has saved it.
void ShardWriter::notify_late_writer(const AttemptKey& key, Rank rank, const Share& share,
                                     EffectWriter& out) {
  if (share.write_failed) return refuse_stranger(share.listener, key, out);
  ++reading_;
  operations_.start(
      operation::ReadDecision{key}, out,
      [this, key, rank, client = share.listener, files = share.files](TimeNs, Result<OperationResult> result,
                                                                      EffectWriter& then_out) {
        --reading_;
        auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
        if (decision.ok() && (*decision)->committed()) {
          std::vector<Hash128> named, written;
          for (const storage::FileEntry& file : (*decision)->manifest().files) {
            if (file.rank == rank) named.push_back(file.header_digest);
          }
          for (const wire::WrittenFile& file : files) written.push_back(file.header_digest);
          if (named != written) return refuse_stranger(client, key, then_out);
        }
        read_and_notify(key, {client}, Outcome{Fate::committed, Status(Code::aborted, "")}, then_out);
      });
}

void ShardWriter::rank_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  Save& save = saves_.at(key);
  Share& share = save.shares.at(rank);
  share.written = save.failure.ok();
  free_slab(key, share, out);
  if (rank_local_) return publish_rank_local(key, rank, out);
  report_soon(now, key, save, out);
}

void ShardWriter::wait_for_roster(TimeNs now, const AttemptKey& key, Share& share, EffectWriter& out) {
  share.waits = std::get<local::Staged>(*share.message).layout_id;
  report_soon(now, key, saves_.at(key), out);
}

// Reports when all ranks here are ready; else after a while without the others.
void ShardWriter::report_soon(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
  if (save.partial == 0 && !save.partial_due) {
    save.partial =
        timers_.set(now + save.partials.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
          auto open = saves_.find(key);
          if (open == saves_.end()) return;
          open->second.partial = 0;
          open->second.partial_due = true;
          consider_report(then_now, key, then_out);
        });
  }
  consider_report(now, key, out);
}

std::unique_ptr<Role> make_shard_writer(const NodeConfig& config) {
  return std::make_unique<ShardWriter>(config);
}

}  // namespace shoal::actors
