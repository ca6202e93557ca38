// ShardWriter: reports to the coordinator.
#include <algorithm>

#include "actors/shard_writer/shard_writer.h"
#include "base/rare_path.h"

namespace shoal::actors {

bool ShardWriter::all_here_ready(const NodeSave& save) const {
  for (const auto& [rank, rank_save] : save.ranks) {
    if (!rank_save.is_written() && !rank_save.awaits_coordinator()) return false;
  }
  for (Rank rank : config_.expected_ranks) {
    if (!save.ranks.contains(rank)) return false;
  }
  return !awaits_attached(save);
}

bool ShardWriter::all_here_staged(const NodeSave& save) const {
  for (Rank rank : config_.expected_ranks) {
    if (!save.has_staged(rank)) return false;
  }
  return std::ranges::all_of(attached_, [&](const auto& each) {
    return save.has_staged(each.first) || saves_elsewhere(each.first);
  });
}

// Reports when all ranks here are ready; else after a while without the others.
void ShardWriter::report_soon(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  if (!rank_local_ && save.partial == 0 && !save.partial_due) await_others(now, key, save, out);
  consider_report(now, key, out);
}

// A report without the others tells the coordinator which ranks do not come. While all ranks here have staged
// and one after the other is written, it would say nothing that the report of all of them does not.
void ShardWriter::await_others(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  save.ready_before = save.ready();
  save.partial =
      timers_.set(now + save.partials.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
        auto open = saves_.find(key);
        if (open == saves_.end()) return;
        NodeSave& waiting = open->second;
        waiting.partial = 0;
        const bool goes_on = waiting.ready() != waiting.ready_before;
        if (goes_on && all_here_staged(waiting)) return await_others(then_now, key, waiting, then_out);
        waiting.partial_due = true;
        base::rare_path<"shard writer: reports without the slower ranks of its host">();
        consider_report(then_now, key, then_out);
      });
}

void ShardWriter::announce(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  NodeSave& save = saves_.at(key);
  if (save.has_failed() || save.announce != 0) return;
  if (save.is_announced) return send_report(now, key, save, out);
  save.announce = timers_.set(now + config_.timeouts.resend_first_ms * kMillisecond, out,
                              [this, key](TimeNs then_now, EffectWriter& then_out) {
                                auto open = saves_.find(key);
                                if (open == saves_.end()) return;
                                open->second.announce = 0;
                                if (rank_local_ || !worlds_.empty() || open->second.has_failed()) return;
                                open->second.is_announced = true;
                                send_report(then_now, key, open->second, then_out);
                              });
}

void ShardWriter::consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  auto found = saves_.find(key);
  if (rank_local_ || found == saves_.end() || found->second.has_failed()) return;
  NodeSave& save = found->second;
  if (!save.partial_due && save.ranks.size() < attached_.size() && awaits_attached(save)) return;
  const NodeSave::Ready ready = save.ready();
  if (ready == NodeSave::Ready{0, 0} || ready == save.reported) return;
  if (!save.partial_due && (ready.first + ready.second < save.ranks.size() || !all_here_ready(save))) return;
  save.reported = ready;
  save.partial_due = false;
  save.backoff.reset();
  send_report(now, key, save, out);
}

void ShardWriter::send_report(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  if (save.is_deciding()) return;
  if (rank_local_) {  // there is no coordinator to report to: this node decides
    if (save.has_failed()) give_up(key, give_up_after(save.failure()), save.failure().message(), out);
    return;
  }
  const bool has_no_roster = save.is_announced && worlds_.empty();
  if (save.has_failed()) {
    out.send(kCoordinatorNode, RoleKind::coordinator,
             wire::SaveFailed{key, save.failed_rank(), save.failure(), config_.host});
  } else if (has_no_roster || save.reported != NodeSave::Ready{0, 0}) {
    send_shards_and_layouts(key, save, out);
    send_local_plans(key, save, out);
    send_gather(now, key, save, out);
    if (save.has_failed()) return;  // send_gather has failed the save: its plans fit into no message
  } else {
    return;
  }
  if (coordinator_lost_) {
    base::rare_path<"shard writer: looks at the root without a coordinator">();
    ask_root(key, save, out);
  }
  resend_later(now, key, save, out);
}

void ShardWriter::send_shards_and_layouts(const AttemptKey& key, const NodeSave& save, EffectWriter& out) {
  const bool has_no_roster = save.is_announced && worlds_.empty();
  std::map<RosterId, wire::ShardsWritten> reports;  // one, unless a layout has changed
  wire::LayoutsStaged staged{key, {}};
  size_t digest_bytes = 0;
  for (const auto& [rank, rank_save] : save.ranks) {
    if (rank_save.is(RankSaveState::awaiting_roster)) staged.ranks.push_back({rank, rank_save.layout_id});
    const auto* whole = has_no_roster ? std::get_if<local::Staged>(rank_save.message.get()) : nullptr;
    if (whole != nullptr) staged.ranks.push_back({rank, whole->layout_id});
    if (!rank_save.is_written()) continue;
    wire::ShardsWritten& report = reports[rank_save.roster_id];
    report.key = key;
    report.roster_id = rank_save.roster_id;
    report.plans.push_back({rank, rank_save.plan_id, rank_save.replicas});
    if (rank_save.replicas) digest_bytes += rank_save.replicas->digests.size() * sizeof(uint64_t);
    // A report must fit into one message even without the digests of the last ranks.
    if (digest_bytes > config_.message_bytes_max / 2) report.plans.back().replicas = nullptr;
    report.files.insert(report.files.end(), rank_save.files.begin(), rank_save.files.end());
    report.user = rank_save.user;
  }
  for (auto& [roster, report] : reports) {
    out.send(kCoordinatorNode, RoleKind::coordinator, std::move(report));
  }
  if (!staged.ranks.empty()) out.send(kCoordinatorNode, RoleKind::coordinator, std::move(staged));
}

void ShardWriter::resend_later(TimeNs now, const AttemptKey& key, NodeSave& save, EffectWriter& out) {
  timers_.cancel(&save.resend, out);
  save.resend =
      timers_.set(now + save.backoff.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
        auto open = saves_.find(key);
        if (open == saves_.end()) return;
        open->second.resend = 0;
        base::rare_path<"shard writer: sends a report again">();
        if (open->second.gather) open->second.gather->resends = true;
        send_report(then_now, key, open->second, then_out);
      });
}

void ShardWriter::resend_all(TimeNs now, EffectWriter& out) {
  for (auto& [key, save] : saves_) {
    base::rare_path<"shard writer: sends a report to a new session">();
    save.backoff.reset();
    if (save.gather) save.gather->resends = true;
    send_report(now, key, save, out);
  }
}

void ShardWriter::fail(TimeNs now, const AttemptKey& key, std::optional<Rank> rank, Status why,
                       EffectWriter& out) {
  auto found = saves_.find(key);
  if (found == saves_.end()) return;
  NodeSave& save = found->second;
  if (!save.fail(rank, std::move(why))) return;
  save.backoff.reset();
  out.warning(to_string(key) + ": " +
              (rank ? "rank " + std::to_string(*rank) + ": " + save.failure().to_string()
                    : host_failure_text(config_.host, save.failure())));
  send_report(now, key, save, out);
}

}  // namespace shoal::actors
