#include "sim/reports/event_text.h"

#include <fmt/format.h>

#include <variant>

#include "base/visit.h"

namespace shoal::sim {

namespace {

std::string result_text(const Result<actors::OperationResult>& result) {
  if (!result.ok()) return result.status().to_string();
  return std::visit(
      base::Overloaded{
          [](const actors::operation::Done&) -> std::string { return "done"; },
          [](const storage::WrittenShard& shard) { return fmt::format("a shard of {} bytes", shard.size); },
          [](const std::shared_ptr<const storage::Decision>& decision) {
            return fmt::format(
                "{} is {}", to_string(decision->key),
                decision->committed() ? "committed" : "aborted: " + decision->tombstone().cause);
          },
          [](const storage::RosterRecord&) -> std::string { return "a roster"; },
          [](const storage::AttemptList& list) { return fmt::format("{} attempts", list.attempts.size()); },
          [](const base::OneOf<storage::AttemptInfo, uint64_t, storage::LoadChoice, std::vector<uint64_t>,
                               std::shared_ptr<const storage::Mark>,
                               std::shared_ptr<const storage::RetentionPlan>, storage::DeletionResult,
                               std::shared_ptr<const storage::EpochRecord>, std::string, actors::ChunkPtr,
                               DamageList, actors::LocatedRangesPtr,
                               std::shared_ptr<const CheckpointList>> auto&) -> std::string {
            return "done";
          }},
      *result);
}

std::string event_text(const actors::Event& event, size_t node, size_t from) {
  return std::visit(
      base::Overloaded{
          [](const actors::event::Started&) -> std::string { return "Started"; },
          [&](const actors::event::Received& e) {
            const std::string sender = from == node ? "here" : fmt::format("node{}", from);
            return fmt::format("Received from {}: {}", sender, actors::describe(*e.message.body));
          },
          [](const actors::event::FromClient& e) {
            return fmt::format("FromClient {}: {}", e.client, local_message_name(*e.message));
          },
          [](const actors::event::ClientLost& e) { return fmt::format("ClientLost {}", e.client); },
          [](const actors::event::WorldKnown&) -> std::string { return "WorldKnown"; },
          [](const actors::event::RanksLost& e) {
            return fmt::format("RanksLost: {} ranks: {}; {} ended", e.ranks.size(), e.cause, e.ended.size());
          },
          [](const actors::event::PlanningFailed& e) {
            return fmt::format("PlanningFailed: {}", e.why.to_string());
          },
          [](const actors::event::TimerFired& e) { return fmt::format("TimerFired {}", e.timer); },
          [](const actors::event::OperationDone& e) {
            return fmt::format("OperationDone {}: {}", e.operation, result_text(e.result));
          },
          [](const actors::event::PeerUp&) -> std::string { return "PeerUp"; },
          [](const actors::event::CoordinatorSuperseded& e) {
            return fmt::format("CoordinatorSuperseded: {}", e.why.to_string());
          },
          [](const actors::event::PeerLost& e) {
            const std::string peer =
                e.node == actors::kCoordinatorNode ? "the coordinator" : fmt::format("session {}", e.node);
            return fmt::format("PeerLost {}: {}", peer, e.why.to_string());
          },
          [](const actors::event::TrainerEnded& e) {
            return fmt::format("TrainerEnded rank {}: {}", e.rank, e.how);
          },
          [](const actors::event::NextRunStarts&) -> std::string { return "NextRunStarts"; },
          [](const actors::event::Stopping&) -> std::string { return "Stopping"; },
          [](const actors::event::Drain&) -> std::string { return "Drain"; },
          [](const actors::event::SendDone& e) { return fmt::format("SendDone {}", e.send); }},
      event);
}

}  // namespace

std::string local_message_name(const local::LocalMessage& message) {
  static constexpr const char* kNames[] = {
      "Attach",         "Attached",      "Failed",       "LayoutUpdate", "RosterUpdate",
      "Slab",           "Staged",        "SlabFree",     "Decided",      "Latest",
      "Load",           "Found",         "Loaded",       "Placed",       "LoadDone",
      "Refused",        "Detach",        "Written",      "NotStaged",    "Ping",
      "Pong",           "StatusRequest", "StatusReport", "PlanRequest",  "PlanUpdate",
      "PlanGathering",  "Close",         "FilesToRead",  "FilesRead",    "StagingRequest",
      "StagingGranted", "StagingKept",   "GiveBack",     "PartRequest",  "PartStaged",
      "List",           "Listing",       "StillWriting", "SaveReturned", "JobStatusRequest",
      "JobStatusReport"};
  static_assert(std::size(kNames) == std::variant_size_v<local::LocalMessage>);
  return fmt::format("local::{}", kNames[message.index()]);
}

std::string seconds_text(actors::TimeNs at) {
  return fmt::format("{}.{:09}", at / (1000 * actors::kMillisecond), at % (1000 * actors::kMillisecond));
}

std::string event_name(const actors::Event& event) {
  if (const auto* received = std::get_if<actors::event::Received>(&event)) {
    const std::string text = actors::describe(*received->message.body);
    return "Received " + text.substr(0, text.find_first_of(" :"));
  }
  if (const auto* from_client = std::get_if<actors::event::FromClient>(&event)) {
    return "FromClient " + local_message_name(*from_client->message);
  }
  const std::string text = event_text(event, 0, 0);
  return text.substr(0, text.find_first_of(" :"));
}

std::string event_line(actors::TimeNs at, size_t node, actors::RoleKind role, const actors::Event& event,
                       size_t from) {
  return fmt::format("{} node{}.{}: {}", seconds_text(at), node, actors::role_name(role),
                     event_text(event, node, from));
}

std::string failure_line(actors::TimeNs at, const Failure& failure) {
  return fmt::format("{} failure: {}", seconds_text(at), to_string(failure));
}

std::string notified_line(actors::TimeNs at, Rank rank, const local::Decided& decided) {
  return fmt::format("{} rank {} is notified of step {}: {}", seconds_text(at), rank, decided.step,
                     decided.outcome.ok() ? "committed" : decided.outcome.to_string());
}

}  // namespace shoal::sim
