#include "actors/shard_writer/node_save.h"

#include <algorithm>

namespace shoal::actors {

bool NodeSave::fail(std::optional<Rank> rank, Status why) {
  if (has_failed()) return false;
  failure_ = std::move(why);
  failed_rank_ = rank;
  // While this node decides, the failure is only the cause that clients receive.
  if (state_.may(NodeSaveTrigger::rank_failed)) on(NodeSaveTrigger::rank_failed);
  return true;
}

bool NodeSave::began_here() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const auto& each) { return each.second.has_staged() && !each.second.offered_again; });
}

bool NodeSave::is_writing() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const auto& each) { return each.second.files_writing != 0; });
}

bool NodeSave::has_unpublished() const {
  return !has_failed() && std::any_of(ranks.begin(), ranks.end(), [](const auto& each) {
    return each.second.is(RankSaveState::written);
  });
}

bool NodeSave::all_published() const {
  return !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [](const auto& each) {
    return each.second.is(RankSaveState::published);
  });
}

bool NodeSave::has_folder() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& each) {
    const RankSave& rank_save = each.second;
    return rank_save.is(RankSaveState::published) ||
           (rank_save.is(RankSaveState::written) && !rank_save.files.empty());
  });
}

Status NodeSave::check_user(Rank rank) const {
  const UserMetadataPtr& user = ranks.at(rank).user;
  for (const auto& [other, part] : ranks) {
    if (other == rank || !part.has_staged() || part.user == user) continue;
    return check_same_user_metadata(other, or_none(part.user), rank, or_none(user));
  }
  return ok_status();
}

Status NodeSave::check_planners(Rank rank, bool follows_planner) const {
  for (const auto& [other, part] : ranks) {
    const bool has_asked =
        part.is(RankSaveState::gathering) || part.is(RankSaveState::awaiting_plan) || part.plan;
    if (other == rank || !has_asked || part.follows_planner == follows_planner) continue;
    return Status(Code::invalid_argument, "the planner of rank " +
                                              std::to_string(follows_planner ? rank : other) +
                                              " makes a global plan, but that of rank " +
                                              std::to_string(follows_planner ? other : rank) + " makes none");
  }
  return ok_status();
}

LocalGather& NodeSave::begin_gather(Rank coordinator_rank, const SaveOptions& options) {
  if (!gather) gather = LocalGather{.coordinator_rank = coordinator_rank, .options = options};
  return *gather;
}

NodeSave::Ready NodeSave::ready() const {
  Ready ready{0, 0};
  for (const auto& [rank, part] : ranks) {
    if (part.is_written()) ++ready.first;
    if (part.awaits_coordinator()) ++ready.second;
  }
  return ready;
}

}  // namespace shoal::actors
