#include "sim/models/item_model.h"

#include <algorithm>

namespace shoal::sim {

namespace {

actors::TimeNs times(uint64_t count, actors::TimeNs each) {
  return static_cast<actors::TimeNs>(count) * each;
}

}  // namespace

void ItemModel::set_items(std::vector<uint32_t> of_rank) {
  if (!costs_.is_modelled()) return;
  items_ = std::move(of_rank);
  written_.assign(items_.size(), 0);
}

ItemModel::Extra ItemModel::to_send(const actors::WireMessage& message) {
  if (items_.empty()) return {};
  if (const auto* received = std::get_if<actors::wire::LocalPlans>(message.body.get()))
    return local_plans(*received);
  if (const auto* received = std::get_if<actors::wire::GlobalPlan>(message.body.get()))
    return global_plan(*received);
  if (const auto* received = std::get_if<actors::wire::ShardsWritten>(message.body.get()))
    return results(*received);
  return {};
}

// Each rank makes its plan. If plans are kept, the rank finds its plan unchanged and does not send it.
ItemModel::Extra ItemModel::local_plans(const actors::wire::LocalPlans& received) {
  Extra extra;
  for (const actors::wire::RankLayout& each : received.ranks) {
    if (!is_new(offered_, received.key.step, each.rank)) continue;
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

ItemModel::Extra ItemModel::global_plan(const actors::wire::GlobalPlan& received) {
  Extra extra;
  for (const actors::wire::RankPart& part : received.parts) {
    if (part.plan) {
      all_written_ += part.plan->items.size() - written_[part.rank];
      written_[part.rank] = static_cast<uint32_t>(part.plan->items.size());
    }
    if (!is_new(planned_for_, received.key.step, part.rank)) continue;
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

ItemModel::Extra ItemModel::results(const actors::wire::ShardsWritten& received) {
  Extra extra;
  for (const actors::wire::RankPlan& each : received.plans) {
    if (!is_new(reported_, received.key.step, each.rank)) continue;
    extra.bytes += written_[each.rank] * costs_.result_bytes;
    extra.takes = std::max(extra.takes, times(written_[each.rank], costs_.result_encode_ns));
  }
  return extra;
}

actors::TimeNs ItemModel::to_take(size_t node, const actors::WireMessage& message) {
  if (items_.empty()) return 0;
  actors::TimeNs takes = 0;
  if (const auto* plans = std::get_if<actors::wire::LocalPlans>(message.body.get())) {
    for (const actors::wire::RankLayout& each : plans->ranks) {
      if (!is_new(gathered_, plans->key.step, each.rank) || is_kept(each.rank)) continue;
      takes += times(items_[each.rank], costs_.decode_ns);
    }
  } else if (const auto* plan = std::get_if<actors::wire::GlobalPlan>(message.body.get())) {
    for (const actors::wire::RankPart& part : plan->parts) {
      if (costs_.kept != 0 && !part.plan) continue;
      if (!is_new(notified_, plan->key.step, part.rank)) continue;
      takes = std::max(takes, times(written_[part.rank], costs_.decode_ns));
    }
  } else if (const auto* written = std::get_if<actors::wire::ShardsWritten>(message.body.get())) {
    for (const actors::wire::RankPlan& each : written->plans) {
      if (!is_new(received_, written->key.step, each.rank)) continue;
      takes += times(written_[each.rank], costs_.result_decode_ns);
    }
  } else if (const auto* decided = std::get_if<actors::wire::Decided>(message.body.get())) {
    if (decided->committed && is_new(decided_, decided->key.step, node)) {
      takes = times(all_written_, costs_.record_decode_ns);
    }
  }
  return takes;
}

ItemModel::Extra ItemModel::to_commit(const actors::operation::PublishDecision& publish) const {
  if (items_.empty() || !std::holds_alternative<storage::Manifest>(*publish.body)) return {};
  return {all_written_ * costs_.record_bytes, times(all_written_, costs_.record_ns)};
}

}  // namespace shoal::sim
