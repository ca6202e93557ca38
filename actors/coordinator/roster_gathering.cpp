#include "actors/coordinator/roster_gathering.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/rank_names.h"
#include "plan/saving/options_difference.h"

namespace shoal::actors {

Status RosterGathering::add(const wire::JoinRanks& message) {
  if (world_size_ == 0) {
    if (message.world_size == 0 || message.world_size > kMaxWorldSize) {
      return Status(Code::refused, "host " + message.host + " has a world size of " +
                                       std::to_string(message.world_size) + ", but a job has 1 to " +
                                       std::to_string(kMaxWorldSize) + " ranks");
    }
    world_size_ = message.world_size;
    options_ = message.options;
    first_host_ = message.host;
  }
  if (message.world_size != world_size_) {
    return Status(Code::refused, "host " + message.host + " has a world size of " +
                                     std::to_string(message.world_size) + ", but host " + first_host_ +
                                     " has a world size of " + std::to_string(world_size_));
  }
  if (message.options != *options_) {
    return Status(Code::refused, "hosts " + message.host + " and " + first_host_ +
                                     " save with different options, " +
                                     plan::options_difference(message.options, *options_));
  }
  for (const wire::RankLayout& rank : message.ranks) {
    const std::string name = "rank " + std::to_string(rank.rank);
    if (rank.rank >= world_size_) {
      return Status(Code::refused, name + " on host " + message.host + " is outside a job of " +
                                       std::to_string(world_size_) + " ranks");
    }
    auto [known, fresh] = ranks_.try_emplace(rank.rank, Known{rank.layout_id, message.host});
    if (fresh) {
      has_news_ = true;
      layouts_.try_emplace(rank.layout_id);
      continue;
    }
    if (known->second.host != message.host) {
      return Status(Code::refused,
                    name + " is on host " + known->second.host + " and on host " + message.host);
    }
    if (known->second.layout_id == rank.layout_id) continue;
    has_news_ = has_changed_ = true;
    known->second.layout_id = rank.layout_id;
    layouts_.try_emplace(rank.layout_id);
    forget_unnamed_layouts();
  }
  return ok_status();
}

void RosterGathering::forget_unnamed_layouts() {
  std::set<LayoutId> named;
  for (const auto& [rank, known] : ranks_) named.insert(known.layout_id);
  std::erase_if(layouts_, [&](const auto& layout) { return !named.contains(layout.first); });
}

void RosterGathering::add_layout(LayoutPtr layout) {
  auto named = layouts_.find(layout->id());
  if (named == layouts_.end() || named->second) return;
  named->second = std::move(layout);
  has_news_ = true;
}

std::vector<LayoutId> RosterGathering::missing_layouts(const wire::JoinRanks& message) const {
  std::map<LayoutId, bool> missing;
  for (const wire::RankLayout& rank : message.ranks) {
    auto named = layouts_.find(rank.layout_id);
    if (named == layouts_.end() || !named->second) missing[rank.layout_id] = true;
  }
  std::vector<LayoutId> ids;
  for (const auto& [id, ignored] : missing) ids.push_back(id);
  return ids;
}

Missing RosterGathering::what_is_missing() const {
  if (world_size_ == 0) return {{}, "no layout came from any rank", ""};
  if (ranks_.size() >= world_size_) return {{}, "not every layout arrived", ""};
  Missing missing;
  std::vector<Rank> joined;
  for (Rank rank = 0; rank < world_size_; ++rank) {
    (ranks_.contains(rank) ? joined : missing.ranks).push_back(rank);
  }
  missing.what = "no layout came from " + base::name_ranks(missing.ranks);
  auto on_host = [](const auto& rank) {
    return "rank " + std::to_string(rank->first) + " is on host " + rank->second.host;
  };
  std::string beside;  // neighbours of the first missing rank
  const Rank first = missing.ranks.front();
  const auto next = ranks_.lower_bound(first);
  if (first != 0) beside = on_host(ranks_.find(first - 1));
  if (next != ranks_.end()) beside += (beside.empty() ? "" : ", ") + on_host(next);
  missing.detail = base::name_ranks(joined) + " sent " +
                   (joined.size() == 1 ? "its layout" : "their layouts") +
                   (beside.empty() ? "" : " (" + beside + ")") +
                   ". The trainers of the missing ranks have not called save or prepare yet, or have ended";
  return missing;
}

bool RosterGathering::complete() const {
  if (world_size_ == 0 || ranks_.size() != world_size_) return false;
  return std::all_of(layouts_.begin(), layouts_.end(),
                     [](const auto& layout) { return layout.second != nullptr; });
}

std::vector<uint32_t> RosterGathering::hosts() const {
  std::vector<uint32_t> hosts;
  std::map<std::string, uint32_t> numbers;
  for (const auto& [rank, known] : ranks_) {
    hosts.push_back(numbers.try_emplace(known.host, static_cast<uint32_t>(numbers.size())).first->second);
  }
  return hosts;
}

Result<std::shared_ptr<const World>> RosterGathering::make_world() const {
  std::vector<LayoutId> layout_ids;
  for (const auto& [rank, known] : ranks_) layout_ids.push_back(known.layout_id);
  auto world = std::make_shared<World>();
  SHOAL_ASSIGN_OR_RETURN(world->roster, Roster::make(layout_ids, hosts()));
  for (const LayoutId& id : world->roster.layout_ids()) world->layouts.push_back(layouts_.at(id));
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  SHOAL_RETURN_IF_ERROR(check_coverage(*world, *options_));
  return std::shared_ptr<const World>(std::move(world));
}

}  // namespace shoal::actors
