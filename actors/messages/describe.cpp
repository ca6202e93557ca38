// role_name and describe: messages as text for logs and transcripts.
#include <fmt/format.h>

#include <algorithm>

#include "actors/messages/messages.h"

namespace shoal::actors {

namespace {

std::string counted(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

struct Describer {
  std::string operator()(const wire::JoinRanks& body) const {
    return fmt::format("JoinRanks {}: {} of {}", body.host, counted(body.ranks.size(), "rank"),
                       body.world_size);
  }
  std::string operator()(const wire::LayoutRequest& body) const {
    return fmt::format("LayoutRequest: {}", counted(body.ids.size(), "layout"));
  }
  std::string operator()(const wire::Layouts& body) const {
    return fmt::format("Layouts: {}", counted(body.layouts.size(), "layout"));
  }
  std::string operator()(const wire::RosterUpdate& body) const {
    return fmt::format("RosterUpdate: {}, {}", counted(body.world->roster.world_size(), "rank"),
                       counted(body.world->layouts.size(), "layout"));
  }
  std::string operator()(const wire::JoinRejected& body) const {
    return fmt::format("JoinRejected: {}", body.cause);
  }
  std::string operator()(const wire::ShardsWritten& body) const {
    return fmt::format("ShardsWritten {}: {}, {}", to_string(body.key), counted(body.plans.size(), "rank"),
                       counted(body.files.size(), "file"));
  }
  std::string operator()(const wire::SaveFailed& body) const {
    const std::string who = body.rank ? fmt::format("rank {}", *body.rank) : "all ranks of the host";
    return fmt::format("SaveFailed {}: {}: {}", to_string(body.key), who, body.why.to_string());
  }
  std::string operator()(const wire::Pending& body) const {
    return fmt::format("Pending {}", to_string(body.key));
  }
  std::string operator()(const wire::SaveProgress& body) const {
    return fmt::format("SaveProgress {}: {}{}", to_string(body.key), body.amount,
                       body.rank_local ? ", rank-local" : "");
  }
  std::string operator()(const wire::ManifestsPublished& body) const {
    return fmt::format("ManifestsPublished {}: {} of {}", to_string(body.key), body.ranks,
                       counted(body.world_size, "rank"));
  }
  std::string operator()(const wire::Decided& body) const {
    return fmt::format("Decided {}: {}", to_string(body.key),
                       !body.committed      ? "aborted: " + body.cause
                       : body.cause.empty() ? std::string("committed")
                                            : "committed, but " + body.cause);
  }
  std::string operator()(const wire::Superseded& body) const {
    return fmt::format("Superseded: epoch {}", body.epoch);  // an address differs from run to run
  }
  std::string operator()(const wire::Undecided& body) const {
    return fmt::format("Undecided {}: {}", to_string(body.key), body.why.to_string());
  }
  std::string operator()(const wire::LayoutsStaged& body) const {
    return fmt::format("LayoutsStaged {}: {}", to_string(body.key), counted(body.ranks.size(), "rank"));
  }
  std::string operator()(const wire::AttemptRoster& body) const {
    return fmt::format("AttemptRoster {}", to_string(body.key));
  }
  std::string operator()(const wire::RanksEnded& body) const {
    return fmt::format("RanksEnded: {}, {} staged{}{}", counted(body.ranks.size(), "rank"),
                       counted(body.staged.size(), "save"),
                       body.here.empty() ? "" : ", " + counted(body.here.size(), "rank") + " here",
                       body.expected.empty() ? "" : fmt::format(", {} expected", body.expected.size()));
  }
  std::string operator()(const wire::LocalPlans& body) const {
    const auto unknown = std::count(body.known.begin(), body.known.end(), PlanId{});
    return fmt::format("LocalPlans {}: {} of {}, {} known", to_string(body.key),
                       counted(body.ranks.size(), "rank"), body.world_size,
                       counted(body.known.size() - static_cast<size_t>(unknown), "plan"));
  }
  std::string operator()(const wire::GlobalPlan& body) const {
    const auto whole = std::count_if(body.parts.begin(), body.parts.end(),
                                     [](const wire::RankPart& part) { return part.plan != nullptr; });
    return fmt::format("GlobalPlan {}: {}, {} of them as before", to_string(body.key),
                       counted(body.parts.size(), "rank"), body.parts.size() - static_cast<size_t>(whole));
  }
  std::string operator()(const wire::PlanGathering& body) const {
    static constexpr std::string_view kStages[plan::kGatherStages] = {"offered", "gathered", "made",
                                                                      "delivered"};
    return fmt::format("PlanGathering {}: {} {}", to_string(body.key), counted(body.plans.size(), "plan"),
                       kStages[static_cast<size_t>(body.stage)]);
  }
  std::string operator()(const wire::JoinLoad& body) const {
    return fmt::format("JoinLoad {}: {} of {}{}", named(body.id), counted(body.ranks.size(), "rank"),
                       body.world_size,
                       body.address.empty() ? "" : fmt::format(", shares, waits {} ms", body.quiet_ms));
  }
  std::string operator()(const wire::LoadRoster& body) const {
    if (!body.outcome.ok()) return fmt::format("LoadRoster {}: {}", named(body.id), body.outcome.to_string());
    return fmt::format("LoadRoster {}: {}, {}", named(body.id), to_string(body.key),
                       counted(body.addresses.size(), "host"));
  }
  std::string operator()(const wire::ChunkRequest& body) const {
    return fmt::format("ChunkRequest {}: {}", named(body.id), counted(body.chunks.size(), "chunk"));
  }
  std::string operator()(const wire::ChunkData& body) const {
    return fmt::format("ChunkData {}: {}", named(body.id), counted(body.chunk->size, "byte"));
  }
  std::string operator()(const wire::ChunksUnavailable& body) const {
    return fmt::format("ChunksUnavailable {}: {}", named(body.id), counted(body.chunks.size(), "chunk"));
  }
  std::string operator()(const wire::ChunksCancelled& body) const {
    return fmt::format("ChunksCancelled {}: {}", named(body.id), counted(body.chunks.size(), "chunk"));
  }
  std::string operator()(const wire::ChunksPending& body) const {
    return fmt::format("ChunksPending {}: {}", named(body.id), counted(body.chunks.size(), "chunk"));
  }

 private:
  static std::string named(const wire::LoadId& id) {
    if (id.latest && may_fall_back(id.ordinal)) {
      return fmt::format("latest-or-previous-{}.{}", id.ordinal & ~kFallbackOrdinal, id.round);
    }
    return id.latest ? fmt::format("latest-{}.{}", id.ordinal, id.round)
                     : fmt::format("step {}.{}", id.step, id.round);
  }
};

}  // namespace

std::string_view role_name(RoleKind role) {
  switch (role) {
    case RoleKind::coordinator:
      return "coordinator";
    case RoleKind::planner:
      return "planner";
    case RoleKind::shard_writer:
      return "shard_writer";
    case RoleKind::loader:
      return "loader";
  }
  return "unknown role";
}

std::string describe(const WireBody& body) {
  return std::visit(Describer{}, body);
}

}  // namespace shoal::actors
