#include "actors/coordinator/load_gathering.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace shoal::actors {

namespace {

// The roster is sent after this many quiet times, even if nodes still join.
constexpr int64_t kMostQuietTimes = 15;

}  // namespace

void LoadGathering::join(TimeNs now, NodeId from, const wire::JoinLoad& message, EffectWriter& out) {
  auto [found, fresh] = loads_.try_emplace(message.id);
  Load& load = found->second;
  if (fresh) {
    load.number = ++begun_;
    load.first = now;
    forget_oldest(out);
  }
  if (load.state.is(GatheringState::answered)) {  // a repetition, or too late
    auto known = load.answers.find(from);
    return out.send(from, RoleKind::loader,
                    known != load.answers.end()
                        ? known->second
                        : std::make_shared<const WireBody>(bare(message.id, *load.choice)));
  }
  const auto before = load.members.find(from);
  const bool is_news = before == load.members.end() || before->second.ranks.size() < message.ranks.size();
  const bool was_shared = load.sharing > 0;
  if (before == load.members.end()) {
    load.members.emplace(from, message);
    count_member(load, message);
  } else {
    const wire::JoinLoad old = std::exchange(before->second, message);
    const bool is_same = old.address.empty() == message.address.empty() &&
                         old.ranks.size() == message.ranks.size() && old.quiet_ms == message.quiet_ms;
    if (!is_same) count_members(load);
  }
  if (!was_shared) load.first = now;
  const bool shares = !message.address.empty();
  if (is_news && shares) load.last = now;
  if (fresh) choose(message.id, out);
  const bool needs_choice_only = !shares && load.choice;
  if (needs_choice_only) out.send(from, RoleKind::loader, bare(message.id, *load.choice));
  if (load.ranks >= message.world_size) {
    timers_.cancel(&load.timer, out);
    if (load.takes_members()) on(GatheringTrigger::all_joined, message.id, load, out);
  } else if (!needs_choice_only && load.takes_members() && load.timer == 0) {
    wait(now, message.id, out);
  }
}

void LoadGathering::forget(NodeId node) {
  for (auto& [id, load] : loads_) {
    if (!load.takes_members() || load.members.erase(node) == 0) continue;
    count_members(load);
  }
}

void LoadGathering::count_members(Load& load) const {
  load.ranks = load.sharing = 0;
  load.quiet_ms = 0;
  for (const auto& [node, member] : load.members) count_member(load, member);
}

void LoadGathering::count_member(Load& load, const wire::JoinLoad& member) const {
  load.ranks += member.ranks.size();
  if (member.address.empty()) return;
  load.sharing += member.ranks.size();
  load.quiet_ms = std::max(load.quiet_ms, std::min(member.quiet_ms, config_.timeouts.load_gather_longest_ms));
}

void LoadGathering::choose(const wire::LoadId& id, EffectWriter& out) {
  auto chosen = [this, id](TimeNs, Result<LoadChooser::Chosen> choice, EffectWriter& then_out) {
    auto found = loads_.find(id);
    if (found == loads_.end() || found->second.choice) return;
    Load& load = found->second;
    load.choice = std::move(choice);
    on(load.choice->ok() ? GatheringTrigger::chose : GatheringTrigger::cannot_choose, id, load, then_out);
    if (load.state.is(GatheringState::answered)) return;
    for (const auto& [node, member] : load.members) {
      if (member.address.empty()) then_out.send(node, RoleKind::loader, bare(id, *load.choice));
    }
  };
  if (id.latest) {
    chooser_.choose_latest(id.ordinal, {config_.generation, id.step, id.attempt}, out, chosen);
  } else {
    chooser_.choose_step(id.step, out, chosen);
  }
}

// Waits until no node has joined for a while.
void LoadGathering::wait(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Load& load = loads_.at(id);
  if (load.sharing == 0) return;
  const TimeNs quiet = TimeNs{load.quiet_ms} * kMillisecond;
  const TimeNs most =
      std::min(kMostQuietTimes * quiet, TimeNs{config_.timeouts.load_gather_most_ms} * kMillisecond);
  const TimeNs until = std::min(load.last + quiet, load.first + most);
  if (until <= now) return on(GatheringTrigger::all_joined, id, load, out);
  load.timer = timers_.set(until, out, [this, id](TimeNs then_now, EffectWriter& then_out) {
    auto found = loads_.find(id);
    if (found == loads_.end() || !found->second.takes_members()) return;
    found->second.timer = 0;
    wait(then_now, id, then_out);
  });
}

void LoadGathering::on(GatheringTrigger trigger, const wire::LoadId& id, Load& load, EffectWriter& out) {
  const bool was_chosen = load.state.is(GatheringState::chosen);
  load.state.on(trigger, counts_);
  if (load.state.is(GatheringState::answered)) answer(id, load, was_chosen, out);
}

wire::LoadRoster LoadGathering::bare(const wire::LoadId& id, const Result<LoadChooser::Chosen>& choice) {
  wire::LoadRoster roster{id, choice.status(), {}, {}, {}, {}};
  if (choice.ok()) roster.key = choice->key;
  if (choice.ok()) roster.passed_over = choice->passed_over;
  return roster;
}

// Each node receives the hosts that have an id in common with it. Nodes with the same ids receive the same
// message.
void LoadGathering::answer(const wire::LoadId& id, Load& load, bool was_chosen, EffectWriter& out) {
  timers_.cancel(&load.timer, out);
  const std::vector<Sharing> ranks = load.choice->ok() ? sharing_ranks(load) : std::vector<Sharing>();
  std::map<std::set<LayoutId>, std::shared_ptr<const WireBody>> made;
  for (const auto& [node, member] : load.members) {
    if (was_chosen && member.address.empty()) continue;  // it has its answer since the choice
    std::set<LayoutId> groups;
    if (!member.address.empty()) {
      for (const wire::RankLayout& rank : member.ranks) groups.insert(rank.layout_id);
    }
    std::shared_ptr<const WireBody>& body = made[groups];
    if (body == nullptr) {
      wire::LoadRoster roster = bare(id, *load.choice);
      roster.groups.assign(groups.begin(), groups.end());
      add_members(ranks, groups, &roster);
      body = std::make_shared<const WireBody>(std::move(roster));
    }
    load.answers[node] = body;
    out.send(node, RoleKind::loader, body);
  }
  load.members.clear();
}

// Ascending by rank. A rank that two hosts claim belongs to the first by address.
std::vector<LoadGathering::Sharing> LoadGathering::sharing_ranks(const Load& load) {
  std::vector<Sharing> ranks;
  for (const auto& [node, member] : load.members) {
    if (member.address.empty()) continue;
    for (const wire::RankLayout& rank : member.ranks) {
      ranks.push_back({rank.rank, rank.layout_id, &member.address});
    }
  }
  std::sort(ranks.begin(), ranks.end(), [](const Sharing& a, const Sharing& b) {
    return std::tie(a.rank, *a.address) < std::tie(b.rank, *b.address);
  });
  const auto twice = std::unique(ranks.begin(), ranks.end(),
                                 [](const Sharing& a, const Sharing& b) { return a.rank == b.rank; });
  ranks.erase(twice, ranks.end());
  return ranks;
}

void LoadGathering::add_members(const std::vector<Sharing>& ranks, const std::set<LayoutId>& groups,
                                wire::LoadRoster* roster) {
  std::map<std::string, uint32_t> hosts;
  for (const Sharing& rank : ranks) {
    const auto group = groups.find(rank.group);
    if (group == groups.end()) continue;
    const auto [host, fresh] = hosts.try_emplace(*rank.address, static_cast<uint32_t>(hosts.size()));
    if (fresh) roster->addresses.push_back(*rank.address);
    const auto number = static_cast<uint32_t>(std::distance(groups.begin(), group));
    wire::LoadMembers* last = roster->members.empty() ? nullptr : &roster->members.back();
    if (last != nullptr && last->first + last->count == rank.rank && last->host == host->second &&
        last->group == number) {
      ++last->count;
    } else {
      roster->members.push_back({rank.rank, 1, host->second, number});
    }
  }
}

void LoadGathering::forget_oldest(EffectWriter& out) {
  if (loads_.size() <= kMaxLoadsGathered) return;
  auto oldest = std::min_element(loads_.begin(), loads_.end(), [](const auto& a, const auto& b) {
    return a.second.number < b.second.number;
  });
  timers_.cancel(&oldest->second.timer, out);
  loads_.erase(oldest);
}

}  // namespace shoal::actors
