#include "sim/reports/event_text.h"

#include <fmt/format.h>

#include <variant>

#include "actors/effect_writer.h"

namespace shoal {

namespace {

std::string result_text(const Result<OperationResult>& result) {
  if (!result.ok()) return result.status().to_string();
  return std::visit(
      Overloaded{[](const operation::Done&) -> std::string { return "done"; },
                 [](const WrittenShard& shard) { return fmt::format("a shard of {} bytes", shard.size); },
                 [](const std::shared_ptr<const Decision>& decision) {
                   return fmt::format(
                       "{} is {}", to_string(decision->key),
                       decision->committed() ? "committed" : "aborted: " + decision->tombstone().cause);
                 },
                 [](const RosterRecord&) -> std::string { return "a roster"; },
                 [](const AttemptList& list) { return fmt::format("{} attempts", list.attempts.size()); },
                 [](const EpochRecord& record) {
                   return fmt::format("epoch {} at {}", record.epoch, record.address);
                 },
                 [](const auto&) -> std::string { return "done"; }},
      *result);
}

std::string event_text(const Event& event, size_t node, size_t from) {
  return std::visit(
      Overloaded{
          [](const event::Started&) -> std::string { return "Started"; },
          [&](const event::Received& e) {
            const std::string sender = from == node ? "here" : fmt::format("node{}", from);
            return fmt::format("Received from {}: {}", sender, describe(*e.message.body));
          },
          [](const event::FromClient& e) {
            return fmt::format("FromClient {}: {}", e.client, local_message_name(*e.message));
          },
          [](const event::ClientLost& e) { return fmt::format("ClientLost {}", e.client); },
          [](const event::WorldKnown&) -> std::string { return "WorldKnown"; },
          [](const event::CommittedAlone&) -> std::string { return "CommittedAlone"; },
          [](const event::RanksLost& e) {
            return fmt::format("RanksLost: {} ranks: {}", e.ranks.size(), e.cause);
          },
          [](const event::PlanningFailed& e) { return fmt::format("PlanningFailed: {}", e.why.to_string()); },
          [](const event::TimerFired& e) { return fmt::format("TimerFired {}", e.timer); },
          [](const event::OperationDone& e) {
            return fmt::format("OperationDone {}: {}", e.operation, result_text(e.result));
          },
          [](const event::PeerUp&) -> std::string { return "PeerUp"; },
          [](const event::CoordinatorGone& e) {
            return fmt::format("CoordinatorGone: {}", e.why.to_string());
          },
          [](const event::PeerLost& e) {
            const std::string peer =
                e.node == kCoordinatorNode ? "the coordinator" : fmt::format("session {}", e.node);
            return fmt::format("PeerLost {}: {}", peer, e.why.to_string());
          },
          [](const event::TrainerEnded& e) { return fmt::format("TrainerEnded rank {}: {}", e.rank, e.how); },
          [](const event::Stopping&) -> std::string { return "Stopping"; },
          [](const event::Drain&) -> std::string { return "Drain"; },
          [](const event::SendDone& e) { return fmt::format("SendDone {}", e.send); }},
      event);
}

}  // namespace

std::string local_message_name(const LocalMessage& message) {
  static constexpr const char* kNames[] = {
      "Attach",         "Attached",     "Failed",   "LayoutIs",     "RosterIs",   "Slab",
      "Staged",         "SlabFree",     "Decided",  "Latest",       "Load",       "Found",
      "Loaded",         "Placed",       "LoadDone", "Refused",      "Detach",     "Written",
      "NotStaged",      "Ping",         "Pong",     "StatusWanted", "StatusIs",   "PlanWanted",
      "PlanIs",         "PlanExchange", "Close",    "FilesToRead",  "FilesRead",  "StagingWanted",
      "StagingGranted", "StagingKept",  "GiveBack", "PartWanted",   "PartStaged", "List",
      "Listing"};
  static_assert(std::size(kNames) == std::variant_size_v<LocalMessage>);
  return fmt::format("local::{}", kNames[message.index()]);
}

std::string seconds_text(TimeNs at) {
  return fmt::format("{}.{:09}", at / (1000 * kMillisecond), at % (1000 * kMillisecond));
}

std::string event_line(TimeNs at, size_t node, RoleKind role, const Event& event, size_t from) {
  return fmt::format("{} node{}.{}: {}", seconds_text(at), node, role_name(role),
                     event_text(event, node, from));
}

std::string fault_line(TimeNs at, const Fault& fault) {
  return fmt::format("{} failure: {}", seconds_text(at), to_string(fault));
}

std::string told_line(TimeNs at, Rank rank, const local::Decided& decided) {
  return fmt::format("{} rank {} is told of step {}: {}", seconds_text(at), rank, decided.step,
                     decided.outcome.ok() ? "committed" : decided.outcome.to_string());
}

}  // namespace shoal
