#include "sim/models/item_model.h"

#include <algorithm>
#include <variant>

#include "base/visit.h"
#include "sim/basics/integer_math.h"

namespace shoal::sim {

void ItemModel::set_items(std::vector<uint32_t> of_rank) {
  if (!costs_.is_modelled()) return;
  items_ = std::move(of_rank);
  written_.assign(items_.size(), 0);
}

ItemModel::Extra ItemModel::to_send(const actors::WireMessage& message) {
  if (items_.empty()) return {};
  return std::visit(
      base::Overloaded{
          [&](const actors::wire::LocalPlans& plans) { return local_plans(plans); },
          [&](const actors::wire::GlobalPlan& plans) { return global_plan(plans); },
          [&](const actors::wire::ShardsWritten& report) { return results(report); },
          // These carry no items of a profile.
          [](const base::OneOf<
              actors::wire::JoinRanks, actors::wire::LayoutRequest, actors::wire::Layouts,
              actors::wire::RosterUpdate, actors::wire::JoinRejected, actors::wire::SaveFailed,
              actors::wire::Pending, actors::wire::Decided, actors::wire::Superseded, actors::wire::Undecided,
              actors::wire::LayoutsStaged, actors::wire::AttemptRoster, actors::wire::RanksEnded,
              actors::wire::PlanGathering, actors::wire::JoinLoad, actors::wire::LoadRoster,
              actors::wire::ChunkRequest, actors::wire::ChunkData, actors::wire::ChunksUnavailable,
              actors::wire::ChunksCancelled, actors::wire::ChunksPending, actors::wire::SaveProgress,
              actors::wire::ManifestsPublished> auto&) { return Extra{}; }},
      *message.body);
}

// Each rank makes its plan. If plans are kept, the rank finds its plan unchanged and does not send it.
ItemModel::Extra ItemModel::local_plans(const actors::wire::LocalPlans& plans) {
  Extra extra;
  for (const actors::wire::RankLayout& each : plans.ranks) {
    if (!is_new(offered_, plans.key.step, each.rank)) continue;
    const uint64_t items = items_[each.rank];
    actors::TimeNs takes = times(items, costs_.local_ns);
    if (!is_kept(each.rank)) {
      extra.bytes += items * costs_.item_bytes;
      takes += times(items, costs_.encode_ns);
    }
    extra.takes = std::max(extra.takes, takes);
  }
  return extra;
}

ItemModel::Extra ItemModel::global_plan(const actors::wire::GlobalPlan& plans) {
  Extra extra;
  for (const actors::wire::RankPart& part : plans.parts) {
    if (part.plan) {
      all_written_ += part.plan->items.size() - written_[part.rank];
      written_[part.rank] = static_cast<uint32_t>(part.plan->items.size());
    }
    if (!is_new(planned_for_, plans.key.step, part.rank)) continue;
    const bool is_known = is_kept(part.rank);
    if (is_known && costs_.kept == 2) continue;
    const uint64_t written = written_[part.rank];
    extra.takes += times(items_[part.rank], costs_.dedupe_ns) + times(written, costs_.plan_ns);
    if (is_known) continue;
    planned_.insert(part.rank);
    extra.takes += times(written, costs_.encode_ns);
    extra.bytes += written * costs_.item_bytes;
  }
  return extra;
}

ItemModel::Extra ItemModel::results(const actors::wire::ShardsWritten& report) {
  Extra extra;
  for (const actors::wire::RankPlan& each : report.plans) {
    if (!is_new(reported_, report.key.step, each.rank)) continue;
    extra.bytes += written_[each.rank] * costs_.result_bytes;
    extra.takes = std::max(extra.takes, times(written_[each.rank], costs_.result_encode_ns));
  }
  return extra;
}

actors::TimeNs ItemModel::to_take(size_t node, const actors::WireMessage& message) {
  if (items_.empty()) return 0;
  actors::TimeNs takes = 0;
  std::visit(base::Overloaded{
                 [&](const actors::wire::LocalPlans& plans) {
                   for (const actors::wire::RankLayout& each : plans.ranks) {
                     if (!is_new(gathered_, plans.key.step, each.rank) || is_kept(each.rank)) continue;
                     takes += times(items_[each.rank], costs_.decode_ns);
                   }
                 },
                 [&](const actors::wire::GlobalPlan& plans) {
                   for (const actors::wire::RankPart& part : plans.parts) {
                     if (costs_.kept != 0 && !part.plan) continue;
                     if (!is_new(notified_, plans.key.step, part.rank)) continue;
                     takes = std::max(takes, times(written_[part.rank], costs_.decode_ns));
                   }
                 },
                 [&](const actors::wire::ShardsWritten& report) {
                   for (const actors::wire::RankPlan& each : report.plans) {
                     if (!is_new(received_, report.key.step, each.rank)) continue;
                     takes += times(written_[each.rank], costs_.result_decode_ns);
                   }
                 },
                 [&](const actors::wire::Decided& decided) {
                   if (decided.committed && is_new(decided_, decided.key.step, node)) {
                     takes = times(all_written_, costs_.record_decode_ns);
                   }
                 },
                 [](const base::OneOf<
                     actors::wire::JoinRanks, actors::wire::LayoutRequest, actors::wire::Layouts,
                     actors::wire::RosterUpdate, actors::wire::JoinRejected, actors::wire::SaveFailed,
                     actors::wire::Pending, actors::wire::Superseded, actors::wire::Undecided,
                     actors::wire::LayoutsStaged, actors::wire::AttemptRoster, actors::wire::RanksEnded,
                     actors::wire::PlanGathering, actors::wire::JoinLoad, actors::wire::LoadRoster,
                     actors::wire::ChunkRequest, actors::wire::ChunkData, actors::wire::ChunksUnavailable,
                     actors::wire::ChunksCancelled, actors::wire::ChunksPending, actors::wire::SaveProgress,
                     actors::wire::ManifestsPublished> auto&) {}},
             *message.body);
  return takes;
}

ItemModel::Extra ItemModel::to_commit(const actors::operation::PublishDecision& publish) const {
  if (items_.empty() || !std::holds_alternative<storage::Manifest>(*publish.body)) return {};
  return {all_written_ * costs_.record_bytes, times(all_written_, costs_.record_ns)};
}

}  // namespace shoal::sim
