// ShardWriter: planning and writing what a rank has staged.
#include <utility>

#include "actors/shard_writer/shard_writer.h"
#include "base/rare_path.h"

namespace shoal::actors {

// --- planning ---

void ShardWriter::on_world(TimeNs now, const event::WorldKnown& known, EffectWriter& out) {
  if (known.rank_local) {
    rank_local_ = true;
    rank_local_worlds_[*known.rank_local].add_newest(known.world, known.options);
  } else {
    worlds_.add_newest(known.world, known.options);
  }
  for_each_unplanned([&](const AttemptKey& key, Rank rank) { plan_rank(now, key, rank, out); });
}

void ShardWriter::on_planning_failed(TimeNs now, const Status& why, EffectWriter& out) {
  planning_failed_ = why.with_context("there is no roster");
  for_each_unplanned(
      [&](const AttemptKey& key, Rank) { fail(now, key, std::nullopt, planning_failed_, out); });
}

Result<SavePlanPtr> ShardWriter::plan_of(KnownWorlds::Known& known, Rank rank) {
  auto found = known.plans.find(rank);
  if (found != known.plans.end()) return found->second;
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, config_.plans->plan(*known.world, rank, known.options));
  return known.plans.try_emplace(rank, std::move(plan)).first->second;
}

std::optional<RosterId> ShardWriter::roster_of(const NodeSave& save, Rank rank, const RankSave& rank_save) {
  if (const auto* written = std::get_if<local::Written>(rank_save.message.get())) {
    return written->assignment.roster_id;
  }
  const auto& staged = std::get<local::Staged>(*rank_save.message);
  if (!staged.roster_id.is_zero()) return staged.roster_id;
  if (rank_local_) {
    KnownWorlds::Known* known = rank_local_worlds_[rank].find_by_layout(staged.layout_id);
    return known ? std::optional(known->world->roster.id()) : std::nullopt;
  }
  if (!save.roster_id.is_zero()) return save.roster_id;
  const World& newest = worlds_.newest();
  if (rank_save.is(RankSaveState::awaiting_roster) || newest.layout_of(rank).id() != staged.layout_id) {
    return std::nullopt;
  }
  return newest.roster.id();
}

void ShardWriter::read_roster(const RosterId& id, EffectWriter& out) {
  if (!reading_rosters_.insert(id).second) return;
  operations_.start(operation::ReadRoster{config_.generation, id}, out,
                    [this, id](TimeNs now, Result<storage::RosterRecord> record, EffectWriter& then_out) {
                      reading_rosters_.erase(id);
                      if (!record.ok() && reads_roster_again(now, id, record.status(), then_out)) return;
                      if (record.ok()) roster_retries_.erase(id);
                      if (record.ok() && worlds_.empty()) {  // collective: the Planner passes no roster
                        worlds_.add_newest(record->world, record->options);
                      } else if (record.ok()) {
                        worlds_.add_earlier(record->world, record->options);
                      }
                      for_each_unplanned([&](const AttemptKey& key, Rank rank) {
                        const NodeSave& save = saves_.at(key);
                        if (roster_of(save, rank, save.ranks.at(rank)) != id) return;
                        if (worlds_.find(id) != nullptr) return plan_rank(now, key, rank, then_out);
                        fail(now, key, rank,
                             record.status().with_context("cannot read the roster of this save"), then_out);
                      });
                    });
}

// Whether an error passes, so that the roster is read again later.
bool ShardWriter::reads_roster_again(TimeNs now, const RosterId& id, const Status& why, EffectWriter& out) {
  PublishRetries& retries = roster_retries_.try_emplace(id, config_.timeouts).first->second;
  const TimeNs again_at = retries.next_at(now, why);
  if (again_at == 0) {
    roster_retries_.erase(id);
    return false;
  }
  out.warning("cannot read roster " + id.short_hex() + ": " + why.to_string());
  base::rare_path<"shard writer: reads a roster again">();
  timers_.set(again_at, out, [this, id](TimeNs, EffectWriter& then_out) { read_roster(id, then_out); });
  return true;
}

void ShardWriter::on_attempt_roster(TimeNs now, const wire::AttemptRoster& message, EffectWriter& out) {
  auto found = saves_.find(message.key);
  if (found == saves_.end() || !found->second.roster_id.is_zero()) return;
  found->second.roster_id = message.roster_id;
  if (worlds_.empty()) return;  // the first roster is being read or sent
  for_each_unplanned([&](const AttemptKey& key, Rank rank) {
    if (key == message.key) plan_rank(now, key, rank, out);
  });
}

void ShardWriter::take_plan(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  if (!superseded_.ok()) return;  // its tombstone is being published
  Status alike = saves_.at(key).check_user(rank);
  if (!alike.ok()) fail(now, key, rank, std::move(alike), out);
  if (is_collective() || !worlds_of(rank).empty()) {
    plan_rank(now, key, rank, out);
  } else if (!planning_failed_.ok()) {
    fail(now, key, std::nullopt, planning_failed_, out);
  } else {
    announce(now, key, out);
  }
  consider_report(now, key, out);
}

void ShardWriter::plan_rank(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  if (is_collective()) return plan_from_coordinator(now, key, rank, out);
  KnownWorlds& worlds = worlds_of(rank);
  if (worlds.empty()) return;  // rank-local: the client has not declared its layout yet
  RankSave& rank_save = saves_.at(key).ranks.at(rank);
  auto beyond = [&](const World& world) {
    return fail(now, key, rank,
                Status(Code::invalid_argument, "rank " + std::to_string(rank) + " is not in the roster of " +
                                                   std::to_string(world.roster.world_size()) + " ranks"),
                out);
  };
  if (rank >= worlds.newest().roster.world_size()) return beyond(worlds.newest());
  const std::optional<RosterId> roster_id = roster_of(saves_.at(key), rank, rank_save);
  if (!roster_id && rank_local_) return;  // the Planner has not sent the world of this layout yet
  if (!roster_id) return wait_for_roster(now, key, rank_save, out);
  KnownWorlds::Known* known = worlds.find(*roster_id);
  if (known == nullptr && rank_local_) {
    return fail(now, key, rank,
                Status(Code::unavailable, "the layout of this save is older than this node: save again"),
                out);
  }
  if (known == nullptr) return read_roster(*roster_id, out);
  if (rank >= known->world->roster.world_size()) return beyond(*known->world);
  auto plan = plan_of(*known, rank);
  if (!plan.ok()) return fail_planning(now, key, rank, plan.status(), out);
  if (rank_local_) rank_save.manifest = begin_manifest(key, rank, *known);
  write_rank(now, key, rank, **plan, known->world->layout_of(rank), out);
}

void ShardWriter::fail_planning(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out) {
  saves_.at(key).ranks.at(rank).on(RankSaveTrigger::planning_failed);
  fail(now, key, rank, std::move(why), out);
}

void ShardWriter::wait_for_roster(TimeNs now, const AttemptKey& key, RankSave& rank_save, EffectWriter& out) {
  if (rank_save.may(RankSaveTrigger::layout_is_not_newest)) {
    rank_save.on(RankSaveTrigger::layout_is_not_newest);
  }
  base::rare_path<"shard writer: a rank waits for the roster of its save">();
  rank_save.layout_id = std::get<local::Staged>(*rank_save.message).layout_id;
  report_soon(now, key, saves_.at(key), out);
}

// --- writing ---

void ShardWriter::write_rank(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                             const Layout& layout, EffectWriter& out) {
  RankSave& rank_save = saves_.at(key).ranks.at(rank);
  if (std::holds_alternative<local::Written>(*rank_save.message)) {
    return take_written(now, key, rank, plan, out);
  }
  rank_save.roster_id = plan.roster_id;
  rank_save.plan_id = plan.id;
  auto writes =
      config_.plans->writes(layout, plan, key, rank_save.client, std::get<local::Staged>(*rank_save.message));
  if (!writes.ok()) return fail_planning(now, key, rank, writes.status(), out);
  rank_save.on(RankSaveTrigger::planned);
  rank_save.files.resize(writes->size());
  rank_save.files_writing = writes->size();
  for (operation::WriteShard& write : *writes) {
    write.user = rank_save.user;
    const uint32_t file = write.file;
    operations_.start(std::move(write), out,
                      [this, key, rank, file](TimeNs then_now, Result<storage::WrittenShard> result,
                                              EffectWriter& then_out) {
                        file_written(then_now, key, rank, file, std::move(result), then_out);
                      });
  }
  if (writes->empty()) record_staged(now, key, rank, plan, out);
}

// Without this record nothing in the root shows that a rank without a shard has staged the save. A rank-local
// save needs none: each rank publishes a manifest.
void ShardWriter::record_staged(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                                EffectWriter& out) {
  if (rank_local_) return rank_written(now, key, rank, out);
  RankSave& rank_save = saves_.at(key).ranks.at(rank);
  base::rare_path<"shard writer: records that a rank without a shard has staged">();
  rank_save.files_writing = 1;
  operations_.start(
      operation::RecordStaged{key, rank, plan.layout_id, assignment_id_of(plan), rank_save.user}, out,
      [this, key, rank](TimeNs then_now, Result<operation::Done> result, EffectWriter& then_out) {
        write_ended(then_now, key, rank, result.status(), then_out);
      });
}

// The client repeats what an earlier node reported about durable files. The coordinator compares the sizes
// with the folder when it commits.
void ShardWriter::take_written(TimeNs now, const AttemptKey& key, Rank rank, const SavePlan& plan,
                               EffectWriter& out) {
  RankSave& rank_save = saves_.at(key).ranks.at(rank);
  const local::DurableAssignment durable = std::get<local::Written>(*rank_save.message).assignment;
  rank_save.message.reset();
  base::rare_path<"shard writer: takes over durable files of an earlier node">();
  if (durable.roster_id != plan.roster_id || durable.plan_id != plan.id ||
      durable.files.size() != plan.files) {
    return fail_planning(now, key, rank,
                         Status(Code::invalid_argument, "rank " + std::to_string(rank) +
                                                            " wrote by another plan than the one in force"),
                         out);
  }
  rank_save.on(RankSaveTrigger::planned);
  rank_save.roster_id = plan.roster_id;
  rank_save.plan_id = plan.id;
  for (const local::DurableFile& file : durable.files) {
    rank_save.files.push_back({rank, file.index, file.size, file.header_digest, file.payload_bytes});
  }
  // An older node wrote no staged record.
  if (rank_save.files.empty()) return record_staged(now, key, rank, plan, out);
  rank_written(now, key, rank, out);
}

void ShardWriter::file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file,
                               Result<storage::WrittenShard> written, EffectWriter& out) {
  auto found = saves_.find(key);
  auto late = late_.find({key, rank});
  RankSave* rank_save = found != saves_.end() ? &found->second.ranks.at(rank)
                        : late != late_.end() ? &late->second
                                              : nullptr;
  if (rank_save != nullptr && written.ok()) {
    rank_save->files[file] = {rank, file, written->size, written->header_digest, written->payload_bytes};
  }
  write_ended(now, key, rank, written.status(), out);
}

void ShardWriter::write_ended(TimeNs now, const AttemptKey& key, Rank rank, const Status& written,
                              EffectWriter& out) {
  if (written.ok() || !rank_local_ || !saves_.contains(key)) return count_write(now, key, rank, written, out);
  obey_abort_then(key, out, [this, key, rank, written](TimeNs then_now, EffectWriter& then_out) {
    count_write(then_now, key, rank, written, then_out);
  });
}

void ShardWriter::count_write(TimeNs now, const AttemptKey& key, Rank rank, const Status& written,
                              EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) {
    base::rare_path<"shard writer: a write ends after the decision">();
    return release_late(key, rank, !written.ok(), out);
  }
  RankSave& rank_save = found->second.ranks.at(rank);
  --rank_save.files_writing;
  rank_save.write_failed = rank_save.write_failed || !written.ok();
  if (!written.ok()) fail(now, key, rank, written, out);
  found = saves_.find(key);  // fail() may have closed the save
  if (found != saves_.end() && found->second.ranks.at(rank).files_writing == 0) {
    rank_written(now, key, rank, out);
  }
}

void ShardWriter::rank_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  RankSave& rank_save = save.ranks.at(rank);
  // Though another rank may have failed: a coordinator may find the save complete before it aborts it.
  rank_save.on(rank_save.write_failed ? RankSaveTrigger::not_all_durable : RankSaveTrigger::all_durable);
  free_slab(key, rank_save, out);
  if (!rank_local_) return report_soon(now, key, save, out);
  if (rank_save.manifest) return publish_rank_local(key, rank, out);
  fail(now, key, rank,
       Status(Code::invalid_argument, "its host has changed to mode rank-local while it wrote this save"),
       out);
}

// --- writes that end after the decision ---

void ShardWriter::release_late(const AttemptKey& key, Rank rank, bool failed, EffectWriter& out) {
  auto late = late_.find({key, rank});
  if (late == late_.end()) return;
  late->second.write_failed = late->second.write_failed || failed;
  if (--late->second.files_writing != 0) return;
  RankSave rank_save = std::move(late->second);
  late_.erase(late);
  free_slab(key, rank_save, out);
  forget_if_unused(rank_save.client, out);
  if (rank_save.is(RankSaveState::writing_committed)) {
    return notify_late_writer(key, rank, rank_save, out);  // a committed save is not swept
  }
  auto others = late_.lower_bound({key, 0});
  if (others != late_.end() && others->first.first == key) return;
  if (!is_closed_by_abort(key)) return;
  if (rank_local_) return sweep_rank_local(key, out);
  // The sweep after the abort may have missed these files. This message makes the coordinator sweep again.
  out.send(kCoordinatorNode, RoleKind::coordinator,
           wire::SaveFailed{key, rank, Status(Code::aborted, "its files were written after the abort"),
                            config_.host});
}

// Either the files of this rank are the committed ones, or another process of its rank has saved it.
void ShardWriter::notify_late_writer(const AttemptKey& key, Rank rank, const RankSave& rank_save,
                                     EffectWriter& out) {
  if (rank_save.write_failed) return refuse_stranger(rank_save.listener, key, out);
  std::vector<Hash128> written;
  for (const wire::WrittenFile& file : rank_save.files) written.push_back(file.header_digest);
  read_decision(key, out,
                [this, key, rank, client = rank_save.listener, written = std::move(written)](
                    const Result<DecisionPtr>& decision, EffectWriter& then_out) {
                  if (decision.ok() && (*decision)->committed()) {
                    std::vector<Hash128> named;
                    for (const storage::FileEntry& file : (*decision)->manifest().files) {
                      if (file.rank == rank) named.push_back(file.header_digest);
                    }
                    if (named != written) return refuse_stranger(client, key, then_out);
                  }
                  // While the manifest cannot be read, nobody knows whose files are committed.
                  const bool is_nowhere = decision.status().code() == Code::not_found;
                  const auto fate = is_nowhere ? NodeSaveState::committed : NodeSaveState::unknown;
                  notify_as_read(key, {client}, Outcome{fate, Status(Code::aborted, "")}, decision, then_out);
                });
}

}  // namespace shoal::actors
