#include "sim/cpu_model.h"

#include "sim/integer_math.h"

namespace shoal {

namespace {

TimeNs times(uint64_t count, TimeNs each) {
  return static_cast<TimeNs>(count) * each;
}

}  // namespace

TimeNs CpuModel::on(bool coordinates, TimeNs work) const {
  if (!coordinates || costs_.hub_speed_permille == 1000) return work;
  return static_cast<TimeNs>(multiply_divide(static_cast<uint64_t>(work), 1000, costs_.hub_speed_permille));
}

TimeNs CpuModel::to_take(const Event& event, uint64_t wire_bytes) const {
  if (wire_bytes != 0) return costs_.message_ns + transfer_ns(wire_bytes, costs_.codec_bytes_per_s);
  const auto* from_client = std::get_if<event::FromClient>(&event);
  if (const auto* load = from_client ? std::get_if<local::Load>(from_client->message.get()) : nullptr) {
    return costs_.event_ns + times(load->targets.size(), costs_.plan_item_ns);  // what to read of each
  }
  const auto* staged = from_client ? std::get_if<local::Staged>(from_client->message.get()) : nullptr;
  if (staged == nullptr) return costs_.event_ns;
  return costs_.event_ns +
         transfer_ns(staged->pieces.size() * sizeof(local::StagedPiece), costs_.codec_bytes_per_s);
}

TimeNs CpuModel::to_plan(size_t node, RoleKind role, const RosterId& roster, Rank rank) {
  if (rank >= items_.size() || !planned_[node][{role, roster}].insert(rank).second) return 0;
  return times(items_[rank], costs_.plan_item_ns);
}

TimeNs CpuModel::to_answer(size_t node, RoleKind role, const Event& event, const Effects& effects,
                           const std::vector<uint64_t>& sizes) {
  TimeNs sum = 0;
  for (uint64_t bytes : sizes) sum += costs_.message_ns + transfer_ns(bytes, costs_.codec_bytes_per_s);
  const auto* received = std::get_if<event::Received>(&event);
  if (received != nullptr && role == RoleKind::coordinator) {
    if (const auto* report = std::get_if<wire::ShardsWritten>(received->message.body.get())) {
      for (const wire::RankPlan& plan : report->plans) {
        sum += to_plan(node, role, report->roster_id, plan.rank);
      }
    }
  }
  for (const Effect& effect : effects) {
    if (const auto* send = std::get_if<effect::Send>(&effect)) {
      const auto* global = std::get_if<wire::GlobalPlan>(send->message.body.get());
      if (global == nullptr) continue;
      for (const wire::RankPart& part : global->parts) {
        if (part.plan) sum += to_plan(node, role, global->roster_id, part.rank);
      }
    } else if (const auto* start = std::get_if<effect::Start>(&effect)) {
      const auto* write = std::get_if<operation::WriteShard>(&start->operation);
      if (write == nullptr) continue;
      sum += times(write->pieces.size(), costs_.write_item_ns);
      if (writers_plan_) sum += to_plan(node, role, RosterId{}, write->rank);
    } else if (std::holds_alternative<effect::ToClient>(effect) ||
               std::holds_alternative<effect::Tell>(effect)) {
      sum += costs_.event_ns;
    }
  }
  return sum;
}

uint64_t MessageSizes::of(const WireMessage& message) {
  if (const auto* roster = std::get_if<wire::RosterIs>(message.body.get())) {
    uint64_t& bytes = rosters_[roster->world->roster.id()];
    if (bytes == 0) bytes = encode_wire(message).size();
    return bytes;
  }
  return encode_wire(message).size();
}

}  // namespace shoal
