#include "sim/models/cpu_model.h"

#include <span>

#include "base/visit.h"
#include "shoal/bytes.h"

#include "sim/basics/integer_math.h"

namespace shoal::sim {

actors::TimeNs CpuModel::on(bool coordinates, actors::TimeNs work) const {
  if (!coordinates || costs_.coordinator_speed_permille == 1000) return work;
  return static_cast<actors::TimeNs>(
      multiply_divide(static_cast<uint64_t>(work), 1000, costs_.coordinator_speed_permille));
}

actors::TimeNs CpuModel::to_copy(uint64_t chunk_bytes) const {
  return chunk_bytes == 0 ? 0 : transfer_ns(chunk_bytes, copy_bytes_per_s_);
}

uint64_t chunk_bytes_of(const actors::WireMessage& message) {
  const auto* chunk = std::get_if<actors::wire::ChunkData>(message.body.get());
  return chunk == nullptr ? 0 : chunk->chunk->size;
}

actors::TimeNs CpuModel::to_take(const actors::Event& event, uint64_t wire_bytes) const {
  if (wire_bytes != 0) {
    const auto* received = std::get_if<actors::event::Received>(&event);
    const uint64_t chunk_bytes = received != nullptr ? chunk_bytes_of(received->message) : 0;
    return costs_.message_ns + transfer_ns(wire_bytes - chunk_bytes, costs_.codec_bytes_per_s) +
           to_copy(chunk_bytes);
  }
  const auto* from_client = std::get_if<actors::event::FromClient>(&event);
  if (const auto* load = from_client ? std::get_if<local::Load>(from_client->message.get()) : nullptr) {
    // Computes what to read of each target.
    return costs_.event_ns + times(load->targets.size(), costs_.plan_item_ns);
  }
  const auto* staged = from_client ? std::get_if<local::Staged>(from_client->message.get()) : nullptr;
  if (staged == nullptr) return costs_.event_ns;
  return costs_.event_ns +
         transfer_ns(staged->pieces.size() * sizeof(local::StagedPiece), costs_.codec_bytes_per_s);
}

void CpuModel::forget(size_t node, const std::vector<Rank>& its_ranks) {
  std::erase_if(planned_by_coordinator_, [node](const auto& each) { return each.first.first == node; });
  for (Rank rank : its_ranks) {
    if (rank < planned_by_writer_.size()) planned_by_writer_[rank] = false;
  }
}

actors::TimeNs CpuModel::to_plan(std::vector<bool>& planned, Rank rank, actors::TimeNs item_ns) {
  planned.resize(items_.size());
  if (rank >= items_.size() || planned[rank]) return 0;
  planned[rank] = true;
  return times(items_[rank], item_ns);
}

actors::TimeNs CpuModel::to_answer(size_t node, actors::RoleKind role, const actors::Event& event,
                                   std::span<const actors::Effect> effects,
                                   const std::vector<uint64_t>& sizes) {
  const actors::TimeNs check_ns = costs_.check_item_ns != 0 ? costs_.check_item_ns : costs_.plan_item_ns;
  actors::TimeNs sum = 0;
  for (uint64_t bytes : sizes) sum += costs_.message_ns + transfer_ns(bytes, costs_.codec_bytes_per_s);
  const auto* received = std::get_if<actors::event::Received>(&event);
  if (received != nullptr && role == actors::RoleKind::coordinator) {
    if (const auto* report = std::get_if<actors::wire::ShardsWritten>(received->message.body.get())) {
      std::vector<bool>& planned = planned_by_coordinator_[{node, report->roster_id}];
      for (const actors::wire::RankPlan& plan : report->plans) sum += to_plan(planned, plan.rank, check_ns);
    }
  }
  for (const actors::Effect& effect : effects) sum += to_begin(node, effect);
  return sum;
}

actors::TimeNs CpuModel::to_begin(size_t node, const actors::Effect& any) {
  const actors::TimeNs check_ns = costs_.check_item_ns != 0 ? costs_.check_item_ns : costs_.plan_item_ns;
  return std::visit(
      base::Overloaded{
          [&](const actors::effect::Send& send) {
            actors::TimeNs sum = 0;
            const auto* global = std::get_if<actors::wire::GlobalPlan>(send.message.body.get());
            if (global == nullptr) return sum;
            std::vector<bool>& planned = planned_by_coordinator_[{node, global->roster_id}];
            for (const actors::wire::RankPart& part : global->parts) {
              if (part.plan) sum += to_plan(planned, part.rank, check_ns);
            }
            return sum;
          },
          [&](const actors::effect::Start& start) {
            const auto* write = std::get_if<actors::operation::WriteShard>(&start.operation);
            if (write == nullptr) return actors::TimeNs{0};
            const actors::TimeNs sum = times(write->pieces.size(), costs_.write_item_ns);
            if (!writers_plan_) return sum;
            return sum + to_plan(planned_by_writer_, write->rank, costs_.plan_item_ns);
          },
          [&](const base::OneOf<actors::effect::ToClient, actors::effect::ToRole> auto&) {
            return costs_.event_ns;
          },
          // `sizes` of to_answer has the messages that leave.
          [](const base::OneOf<actors::effect::SendTo, actors::effect::ForgetClient, actors::effect::SetTimer,
                               actors::effect::CancelTimer, actors::effect::Redirect, actors::effect::Retire,
                               actors::effect::Drained, actors::effect::Log,
                               actors::effect::EndSession> auto&) { return actors::TimeNs{0}; }},
      any);
}

// Many messages agree in all values that their length depends on. Each such kind is encoded once.
uint64_t MessageSizes::of(const actors::WireMessage& message) {
  using namespace actors::wire;
  lengths_.assign({message.body->index()});
  auto add = [this](uint64_t number) { lengths_.push_back(number); };
  auto add_hash = [this](const Hash128& hash) {
    for (size_t i = 0; i < 16; i += 8) lengths_.push_back(load_le64(hash.bytes.data() + i));
  };
  const bool is_known = std::visit(
      base::Overloaded{
          [&](const RosterUpdate& report) { return add_hash(report.world->roster.id()), true; },
          [&](const JoinRanks& report) { return add(report.host.size()), add(report.ranks.size()), true; },
          [&](const LayoutRequest& report) { return add(report.ids.size()), true; },
          [&](const Layouts& report) {
            for (const LayoutPtr& layout : report.layouts) add_hash(layout->id());
            return true;
          },
          [&](const ShardsWritten& report) {
            for (const RankPlan& plan : report.plans) add(plan.replicas ? plan.replicas->digests.size() : 0);
            return add(report.files.size()), true;
          },
          [&](const base::OneOf<Pending, SaveProgress, ManifestsPublished> auto&) { return true; },
          [&](const Decided& report) { return report.cause.empty(); },
          [&](const LocalPlans& report) {
            add(report.host.size());
            for (const PlanId& known : report.known) add(known.is_zero() ? 0 : 1);
            return true;
          },
          [&](const GlobalPlan& report) {
            // A plan's length depends on its items, which plans of one class share. They are kept alive, so
            // that no others get the same addresses.
            for (const RankPart& part : report.parts) {
              const WriteItem* items = part.plan ? part.plan->items.data() : nullptr;
              if (items != nullptr) kept_.try_emplace(items, part.plan->items);
              add(reinterpret_cast<uintptr_t>(items));
            }
            return true;
          },
          [&](const JoinLoad& report) { return add(report.address.size()), add(report.ranks.size()), true; },
          [&](const LoadRoster& report) {
            add(report.groups.size());
            add(report.members.size());
            for (const std::string& address : report.addresses) add(address.size());
            return report.outcome.ok() && report.passed_over == nullptr;
          },
          [&](const ChunkRequest& report) { return add(report.chunks.size()), true; },
          [&](const ChunksUnavailable& report) { return add(report.chunks.size()), true; },
          [&](const ChunksCancelled& report) { return add(report.chunks.size()), true; },
          [&](const ChunksPending& report) { return add(report.chunks.size()), true; },
          [](const ChunkData&) { return true; },
          // These are rare, or differ in texts: each is encoded.
          [](const base::OneOf<JoinRejected, SaveFailed, Superseded, Undecided, LayoutsStaged, AttemptRoster,
                               RanksEnded, PlanGathering> auto&) { return false; }},
      *message.body);
  if (!is_known) return actors::encode_wire(message).size();
  uint64_t& bytes = known_[xxh3_128(std::as_bytes(std::span(lengths_)))];
  const auto* chunk = std::get_if<ChunkData>(message.body.get());
  if (bytes == 0 && chunk != nullptr) {  // only full payloads have the bytes of the chunk
    ChunkData without = *chunk;
    without.chunk = std::make_shared<const actors::Chunk>(actors::Chunk{chunk->chunk->size, {}, {}});
    bytes = actors::encode_wire(
                {message.from, message.to, std::make_shared<const actors::WireBody>(std::move(without))})
                .size();
  }
  if (bytes == 0) bytes = actors::encode_wire(message).size();
  if (chunk == nullptr) return bytes;
  return bytes + (chunk->chunk->size + 7) / 8 * 8;
}

}  // namespace shoal::sim
