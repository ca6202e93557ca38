// ShardWriter: the deadline of a save, and progress that moves it.
//
// The deadline ends a save that hangs, however large it is. So it counts from the last progress: bytes that
// this node has written, progress that the coordinator reports of other hosts, or, in mode rank-local, also a
// further manifest in the root (docs/decisions/013-deadline-follows-the-last-news.md).
#include <algorithm>

#include "actors/shard_writer/shard_writer.h"

namespace shoal::actors {

namespace {

// Looks between one progress and the deadline that follows from it. Two may be lost.
constexpr TimeNs kLooks = 3;

}  // namespace

TimeNs ShardWriter::deadline_of(const NodeSave& save) const {
  return save.last_progress + config_.timeouts.node_deadline_ms * kMillisecond;
}

void ShardWriter::await_progress(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  // Often enough for the coordinator's deadline too.
  const uint32_t shorter = std::min(config_.timeouts.node_deadline_ms, config_.timeouts.attempt_deadline_ms);
  const TimeNs look = now + std::max<TimeNs>(kMillisecond, shorter * kMillisecond / kLooks);
  save.deadline = timers_.set(std::min(look, deadline_of(save)), out,
                              [this, key](TimeNs then_now, EffectWriter& then_out) {
                                auto open = saves_.find(key);
                                if (open == saves_.end()) return;
                                open->second.deadline = 0;
                                look_for_progress(then_now, key, then_out);
                              });
}

void ShardWriter::look_for_progress(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  if (save.is_deciding()) return;
  if (deadline_of(save) <= now) return give_up(key, GiveUp::deadline, no_decision(save), out);
  measure_writes(now, key, save, out);
  await_progress(now, key, save, out);
}

// Writes of one node queue behind those of its earlier saves, whose progress therefore counts too. Progress
// of later saves does not: it says nothing about a write that hangs.
void ShardWriter::measure_writes(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  if (!save.is_writing() || save.has_failed() || save.is_measuring) return;
  operation::MeasureWrites measure;
  for (const auto& [other, each] : saves_) {
    if (each.begun <= save.begun) measure.keys.push_back(other);
  }
  for (const auto& [late, rank_save] : late_) {
    if (measure.keys.empty() || measure.keys.back() != late.first) measure.keys.push_back(late.first);
  }
  save.is_measuring = true;
  // The bytes may have been written just after the last look.
  const TimeNs looked_before = std::exchange(save.last_look, now);
  operations_.start(std::move(measure), out,
                    [this, key, looked_before](TimeNs, Result<uint64_t> bytes, EffectWriter& then_out) {
                      auto open = saves_.find(key);
                      if (open == saves_.end()) return;
                      open->second.is_measuring = false;
                      if (bytes.ok()) measured(key, *bytes, looked_before, then_out);
                    });
}

void ShardWriter::measured(const AttemptKey& key, uint64_t bytes, TimeNs looked_before, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  if (std::exchange(save.measured, bytes) == bytes) return;
  if (save.has_failed() || save.is_deciding()) return;
  ++save.times_moved;
  out.send(kCoordinatorNode, RoleKind::coordinator, wire::SaveProgress{key, save.times_moved, rank_local_});
  extend(key, save, looked_before, out);
}

void ShardWriter::on_progress_elsewhere(TimeNs now, const wire::SaveProgress& progress, EffectWriter& out) {
  auto found = saves_.find(progress.key);
  if (found == saves_.end() || found->second.is_deciding()) return;
  NodeSave& save = found->second;
  // A new coordinator counts from 0.
  if (std::exchange(save.news_elsewhere, progress.amount) == progress.amount) return;
  extend(progress.key, save, now, out);
}

void ShardWriter::extend(const AttemptKey& key, NodeSave& save, TimeNs since, EffectWriter& out) {
  if (since <= save.last_progress) return;
  save.last_progress = since;
  for (const auto& [rank, rank_save] : save.ranks) {
    if (clients_.contains(rank_save.listener)) {
      out.to_client(rank_save.listener, local::StillWriting{key.step, key.attempt});
    }
  }
}

std::string ShardWriter::no_decision(const NodeSave& save) const {
  std::string cause = "host " + config_.host + " received no decision within " +
                      human_seconds(config_.timeouts.node_deadline_ms / 1e3);
  for (const auto& [rank, rank_save] : save.ranks) {
    if (rank_save.files_writing == 0) continue;
    cause += ": rank " + std::to_string(rank) + " is still writing, and makes no progress";
    break;
  }
  if (!save.set.missing.empty()) cause += ": " + save.set.missing;
  if (coordinator_lost_) cause += ": it lost the coordinator (" + why_coordinator_lost_ + ")";
  return cause;
}

}  // namespace shoal::actors
