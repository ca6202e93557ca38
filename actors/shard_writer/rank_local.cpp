// ShardWriter: rank-local saves. Each rank publishes a manifest of what it wrote. A node that finds the set
// of manifests complete merges it into the attempt's manifest. A node whose rank fails publishes a tombstone.
// The other nodes find either in the root, by polls. They wait for no message.
//
// While a coordinator exists, it shortens the wait. It answers the node whose report completes the set, so
// that this node looks at once, and passes the commit on to the others.
//
// A look at the set lists as many manifests as there are ranks. So only the node of rank 0 looks at the set
// each time. The other nodes mostly look for the decision alone, which is one file name. They look at the set
// now and then, because the node of rank 0 may be gone. In a large job they take turns, so that the looks do
// not overload the root.
#include <algorithm>
#include <utility>

#include "actors/shard_writer/shard_writer.h"
#include "base/rank_names.h"
#include "base/rare_path.h"
#include "storage/decisions/rank_manifest_set.h"

namespace shoal::actors {

namespace {

// Longest interval between looks at a set that grows slowly, in poll_ms.
constexpr uint32_t kSlowestPolls = 20;
constexpr uint32_t kPollsOfDecision = 8;  // nodes other than that of rank 0 look at the set in every 8th poll
// So many nodes look at once as together list this many manifests, but at least one.
constexpr uint64_t kListedInTurn = 4096;

}  // namespace

std::shared_ptr<storage::RankManifest> ShardWriter::begin_manifest(const AttemptKey& key, Rank rank,
                                                                   const KnownWorlds::Known& planned_by) {
  auto manifest = std::make_shared<storage::RankManifest>();
  manifest->key = key;
  manifest->rank = rank;
  manifest->world_size = planned_by.world->roster.world_size();
  manifest->layout = planned_by.world->layouts.front();
  manifest->options = planned_by.options;
  return manifest;
}

void ShardWriter::publish_rank_local(const AttemptKey& key, Rank rank, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  RankSave& rank_save = save.ranks.at(rank);
  if (save.has_failed() || save.is_deciding()) return;
  const std::shared_ptr<storage::RankManifest> manifest = std::exchange(rank_save.manifest, nullptr);
  manifest->user = or_none(rank_save.user);
  for (const wire::WrittenFile& file : rank_save.files) {
    manifest->files.push_back(
        {shard_file_name(rank, file.index), file.size, file.header_digest, rank, file.index});
    manifest->payload_bytes += file.payload_bytes;
  }
  operations_.start(operation::PublishRankManifest{manifest}, out,
                    [this, key, rank](TimeNs now, Result<operation::Done> result, EffectWriter& then_out) {
                      published_rank_local(now, key, rank, result.status(), then_out);
                    });
}

void ShardWriter::published_rank_local(TimeNs now, const AttemptKey& key, Rank rank, const Status& outcome,
                                       EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) {
    base::rare_path<"rank-local: a save was decided while a rank published its manifest">();
    return sweep_rank_local(key, out);
  }
  if (!outcome.ok()) {
    return obey_abort_then(key, out, [this, key, rank, outcome](TimeNs then_now, EffectWriter& then_out) {
      fail(then_now, key, rank, outcome, then_out);
    });
  }
  NodeSave& save = found->second;
  save.ranks.at(rank).on(RankSaveTrigger::manifest_published);
  save.set.polls = 0;
  report_published(key, save, out);
  // Also if other ranks here have not published yet: a tombstone of another node ends the save for all of
  // them.
  look_at_set_now(now, key, save, out);
}

// A look that is in progress may have passed what is new.
void ShardWriter::look_at_set_now(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  save.set.pace = 0;
  if (save.set.is_looking) {
    save.set.must_look_again = true;
  } else {
    look_at_set(now, key, out);
  }
}

void ShardWriter::report_published(const AttemptKey& key, const NodeSave& save, EffectWriter& out) {
  // If all ranks of the job are here, the look that follows finds the set complete.
  if (!save.all_published() || save.is_deciding() || save.ranks.size() >= world_size()) return;
  if (awaits_attached(save)) return;
  const auto ranks = static_cast<uint32_t>(save.ranks.size());
  out.send(kCoordinatorNode, RoleKind::coordinator, wire::ManifestsPublished{key, ranks, world_size()});
}

void ShardWriter::on_manifests_published(TimeNs now, const wire::ManifestsPublished& published,
                                         EffectWriter& out) {
  auto found = saves_.find(published.key);
  if (found == saves_.end() || found->second.is_deciding()) return;
  found->second.set.is_complete = true;
  look_at_set_now(now, published.key, found->second, out);
}

void ShardWriter::obey_abort_then(const AttemptKey& key, EffectWriter& out,
                                  std::function<void(TimeNs now, EffectWriter& out)> act) {
  operations_.start(
      operation::ReadDecision{key}, out,
      [this, key, act = std::move(act)](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
        const bool is_aborted =
            decision.ok() && !(*decision)->was_committed() && !storage::is_folder_gone(**decision);
        if (is_aborted && saves_.contains(key)) {
          base::rare_path<"rank-local: a failure comes after an abort by another node">();
          obey(key, **decision, then_out);
        }
        act(now, then_out);
      });
}

uint64_t ShardWriter::turns(const NodeSave& save) const {
  const uint64_t here = std::max<uint64_t>(1, save.ranks.size());
  return world_size() * (world_size() / here) / kListedInTurn + 1;
}

bool ShardWriter::has_turn(const NodeSave& save) const {
  if (save.ranks.contains(0) || save.set.is_complete || save.set.is_gone) return true;
  if (save.set.polls % kPollsOfDecision != 0 || save.ranks.empty()) return false;
  // The index of this node, if all nodes have equally many ranks.
  const uint64_t place = save.ranks.begin()->first / save.ranks.size();
  return save.set.polls / kPollsOfDecision % turns(save) == place % turns(save);
}

void ShardWriter::look_at_set(TimeNs began, const AttemptKey& key, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  if (save.set.is_looking) return;
  save.set.is_looking = true;
  timers_.cancel(&save.resend, out);
  ++save.set.polls;
  const bool merges = has_turn(save) && save.all_published();
  auto looked = [this, key, merges, began](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
    looked_at_set(now, key, merges, now - began, std::move(decision), then_out);
  };
  if (merges) {
    operations_.start(operation::CompleteRankLocal{key}, out, std::move(looked));
  } else {
    operations_.start(operation::ReadDecision{key}, out, std::move(looked));
  }
}

void ShardWriter::looked_at_set(TimeNs now, const AttemptKey& key, bool was_merged, TimeNs took,
                                Result<DecisionPtr> decision, EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) return;
  NodeSave& save = found->second;
  save.set.is_looking = false;
  if (decision.ok() && storage::is_folder_gone(**decision)) {
    auto look_again = [this, key](TimeNs then_now, EffectWriter& then_out) {
      if (saves_.contains(key)) look_at_set(then_now, key, then_out);
    };
    return on_folder_gone(now, key, std::move(look_again), out);
  }
  if (decision.ok()) {
    if ((*decision)->was_committed()) {
      out.send(kCoordinatorNode, RoleKind::coordinator, wire::Decided{key, true, ""});
      operations_.start(operation::RecordDecision{*decision}, out,
                        // The catalog is an index: a failure does not matter.
                        [](TimeNs, Result<operation::Done>, EffectWriter&) {});
    }
    return obey(key, **decision, out);
  }
  const Status& why = decision.status();
  if (why.code() == Code::not_found) {
    if (was_merged && save.set.missing != why.message()) {
      base::rare_path<"rank-local: a set lacks other ranks than before">();
      if (!save.set.missing.empty()) extend(key, save, now, out);  // a further rank has published
      save.set.missing = why.message();
    }
    if (was_merged || save.set.polls == 1) look_for_lost(now, key, out);
  } else if (is_permanent(why)) {
    return fail(now, key, std::nullopt, why, out);
  }
  const bool is_last = save.set.is_last && was_merged && !save.set.must_look_again;
  if (is_last && !save.is_deciding()) return leave_rank_local(key, out);
  look_at_set_again(now, key, save, took, out);
}

void ShardWriter::on_folder_gone(TimeNs now, const AttemptKey& key, PendingTimers::Then retry,
                                 EffectWriter& out) {
  if (!std::exchange(saves_.at(key).set.is_gone, true)) {
    timers_.set(now + config_.timeouts.poll_ms * kMillisecond, out, std::move(retry));
    return;
  }
  base::rare_path<"rank-local: the folder of a save is gone">();
  close_unknown(key,
                Status(Code::unavailable, "the folder of " + to_string(key) +
                                              " is missing: the checkpoint was committed and deleted since, "
                                              "or the folder was removed by hand"),
                out);
}

void ShardWriter::look_at_set_again(TimeNs now, const AttemptKey& key, NodeSave& save, TimeNs took,
                                    EffectWriter& out) {
  if (save.is_deciding()) return;
  if (std::exchange(save.set.must_look_again, false)) return look_at_set(now, key, out);
  const TimeNs poll = config_.timeouts.poll_ms * kMillisecond;
  save.set.pace = std::min(std::max(poll, save.set.pace * 2), kSlowestPolls * poll);
  // A root that answers slowly is busy with such looks.
  const TimeNs until_next = std::max(save.set.pace, took);
  save.resend = timers_.set(now + until_next, out, [this, key](TimeNs then_now, EffectWriter& then_out) {
    auto open = saves_.find(key);
    if (open == saves_.end()) return;
    open->second.resend = 0;
    look_at_set(then_now, key, then_out);
  });
}

void ShardWriter::sweep_rank_local(const AttemptKey& key, EffectWriter& out) {
  if (!is_closed_by_abort(key)) return;
  operations_.start(operation::SweepAttempt{key}, out,
                    [key](TimeNs, Result<uint64_t> result, EffectWriter& then_out) {
                      const Code code = result.status().code();
                      if (result.ok() || code == Code::refused || code == Code::not_found) return;
                      then_out.warning("cannot sweep " + to_string(key) + ": " + result.status().to_string());
                    });
}

void ShardWriter::abort_unopened(const AttemptKey& key, Rank rank, ClientId client, const Status& why,
                                 EffectWriter& out) {
  const std::string cause = cause_of(rank, why);
  operations_.start(abort_of(key, give_up_after(why), cause.substr(0, storage::kMaxCauseBytes)), out,
                    [this, key, client, why](TimeNs, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      if (!decision.ok()) {
                        then_out.warning(to_string(key) + ": " + decision.status().to_string());
                        return notify_outcome(client, key, not_decided(why), then_out);
                      }
                      notify_as_read(key, {client}, Outcome{NodeSaveState::unknown, why}, decision, then_out);
                    });
}

// --- hosts that are lost ---

void ShardWriter::on_ranks_lost(TimeNs now, const event::RanksLost& received, EffectWriter& out) {
  ranks_lost_ = received;
  std::vector<AttemptKey> keys;
  for (const auto& [key, save] : saves_) keys.push_back(key);
  for (const AttemptKey& key : keys) look_for_lost(now, key, out);
}

bool ShardWriter::has_missed_coordinator(TimeNs now, const NodeSave& save) const {
  const TimeNs since = std::max(coordinator_lost_at_, save.begun);
  return coordinator_lost_ && since + config_.timeouts.host_lost_ms * kMillisecond <= now;
}

void ShardWriter::look_for_lost(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  const bool is_without_coordinator = has_missed_coordinator(now, save) && !coordinators_.here.empty();
  if (!rank_local_ || save.set.is_listing_lost || save.is_deciding()) return;
  if (ranks_lost_.is_empty() && coordinators_.ranks.empty() && !is_without_coordinator) return;
  save.set.is_listing_lost = true;
  operations_.start(
      operation::ListMissingManifests{key, world_size()}, out,
      [this, key](TimeNs then_now, Result<std::vector<uint64_t>> missing, EffectWriter& then_out) {
        auto found = saves_.find(key);
        if (found == saves_.end()) return;
        found->second.set.is_listing_lost = false;
        if (!missing.ok()) return;  // the next look at the set tries again
        if (auto cause = why_ended(key, *missing)) {
          base::rare_path<"rank-local: aborts a save because a rank has ended">();
          return give_up(key, GiveUp::rank_ended, *cause, then_out);
        }
        auto cause = why_hopeless(*missing, has_missed_coordinator(then_now, found->second));
        if (!cause) return;
        base::rare_path<"rank-local: aborts a save because a host is lost">();
        give_up(key, GiveUp::host_lost, *cause, then_out);
      });
}

// The node of a rank that has ended decides the saves that the rank had staged. It does not know the others.
std::optional<std::string> ShardWriter::why_ended(const AttemptKey& key,
                                                  const std::vector<uint64_t>& missing) const {
  for (const event::RanksLost::Ended& ended : ranks_lost_.ended) {
    const bool is_missing = std::ranges::binary_search(missing, uint64_t{ended.rank});
    if (is_missing && !ended.staged.contains(key)) return ended.cause;
  }
  for (const wire::EndedRank& ended : coordinators_.ranks) {
    const bool is_missing = std::ranges::binary_search(missing, uint64_t{ended.rank});
    if (!is_missing || std::ranges::binary_search(coordinators_.staged, key)) continue;
    return "rank " + std::to_string(ended.rank) + " (host " + coordinators_.host +
           "): its trainer ended before it staged this save: " + ended.end;
  }
  return std::nullopt;
}

std::optional<std::string> ShardWriter::why_hopeless(const std::vector<uint64_t>& missing,
                                                     bool is_without_coordinator) {
  const auto is_among = [](const std::vector<Rank>& ranks) {
    return [&ranks](uint64_t rank) { return std::binary_search(ranks.begin(), ranks.end(), rank); };
  };
  if (std::any_of(missing.begin(), missing.end(), is_among(ranks_lost_.ranks))) return ranks_lost_.cause;
  // This node cannot tell whether the host is dead or only unreachable. If manifests of other hosts are
  // missing too, the save may just be slow.
  if (!is_without_coordinator || missing.empty() || coordinators_.here.empty() ||
      !std::all_of(missing.begin(), missing.end(), is_among(coordinators_.here))) {
    return std::nullopt;
  }
  base::rare_path<"rank-local: the coordinator's host is lost">();
  return "the coordinator's host " + coordinators_.host + " (" + base::name_ranks(coordinators_.here) +
         ") is lost (" + why_coordinator_lost_ + "): neither its node nor its trainers came back within " +
         human_seconds(config_.timeouts.host_lost_ms / 1e3);
}

// The node of rank 0 looks once more, because the set may have become complete since its last look. So does a
// node that the coordinator has asked to merge the set: that of rank 0 may have ended.
void ShardWriter::leave_after_last_look(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  if (!save.ranks.contains(0) && !save.set.is_complete) return leave_rank_local(key, out);
  if (std::exchange(save.set.is_last, true)) return;
  base::rare_path<"rank-local: looks at a set for the last time before its node stops">();
  look_at_set_now(now, key, save, out);
}

void ShardWriter::leave_rank_local(const AttemptKey& key, EffectWriter& out) {
  const std::string& missing = saves_.at(key).set.missing;
  const Status why(Code::unavailable, "its node was stopped before the save was complete" +
                                          (missing.empty() ? "" : ": " + missing));
  close_unknown(key, why, out);
}

}  // namespace shoal::actors
