#include "actors/coordinator/rank_presence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rank_names.h"
#include "base/rare_path.h"

namespace shoal::actors {

namespace {

std::string name_hosts(const std::set<std::string>& hosts) {
  const size_t named = std::min(hosts.size(), base::kRanksNamed);
  std::string out = fmt::format("host{} {}", hosts.size() == 1 ? "" : "s",
                                fmt::join(hosts.begin(), std::next(hosts.begin(), named), ", "));
  if (hosts.size() > named) out += fmt::format(" and {} more", hosts.size() - named);
  return out;
}

using RanksByNode = base::PagedMap<NodeId, std::vector<Rank>>;

std::vector<Rank> take_out(RanksByNode& ranks_of, NodeId node) {
  const auto found = ranks_of.find(node);
  if (found == ranks_of.end()) return {};
  std::vector<Rank> ranks = std::move(found->second);
  ranks_of.erase(found);
  return ranks;
}

bool has_rank(const RanksByNode& ranks_of, Rank rank) {
  return std::any_of(ranks_of.begin(), ranks_of.end(), [rank](const auto& each) {
    return std::binary_search(each.second.begin(), each.second.end(), rank);
  });
}

}  // namespace

// --- which node reports which ranks ---

void RankPresence::add_report(Rank rank, NodeId node) {
  const auto [first, is_new] = node_of_.try_emplace(rank, node);
  if (!is_new && first->second != node) also_at_[rank].insert(node);
}

void RankPresence::remove_report(Rank rank, NodeId node) {
  const auto first = node_of_.find(rank);
  const auto also = also_at_.find(rank);
  if (also == also_at_.end()) {
    if (first != node_of_.end() && first->second == node) node_of_.erase(first);
    return;
  }
  if (first->second == node) {
    first->second = *also->second.begin();
    also->second.erase(also->second.begin());
  } else {
    also->second.erase(node);
  }
  if (also->second.empty()) also_at_.erase(also);
}

void RankPresence::withdraw(Rank rank, NodeId node) {
  const auto known = ranks_of_.find(node);
  if (known == ranks_of_.end() || std::erase(known->second, rank) == 0) return;
  --ranks_reported_;
  remove_report(rank, node);
}

bool RankPresence::is_reported_by_another(Rank rank, NodeId node) const {
  const auto first = node_of_.find(rank);
  if (first == node_of_.end()) return false;
  return first->second != node || also_at_.contains(rank);
}

void RankPresence::reported(NodeId node, const std::vector<Rank>& ranks, const std::string& host) {
  if (!host.empty()) host_of_[node] = host;
  std::vector<Rank>& known = ranks_of_[node];
  for (Rank rank : ranks) {
    lost_.erase(rank);
    const auto place = std::lower_bound(known.begin(), known.end(), rank);
    if (place == known.end() || *place != rank) {
      known.insert(place, rank);
      ++ranks_reported_;
      add_report(rank, node);
    }
    if (const auto gone = gone_.find(rank); gone != gone_.end() && gone->second.node != node) {
      withdraw(rank, gone->second.node);
      gone_.erase(gone);
    }
  }
  if (auto awaited = expected_by_.find(node); awaited != expected_by_.end()) {
    std::erase_if(awaited->second,
                  [&](Rank rank) { return std::binary_search(known.begin(), known.end(), rank); });
    if (awaited->second.empty()) expected_by_.erase(awaited);
  }
}

void RankPresence::expected(NodeId node, const std::vector<Rank>& ranks, const std::string& host) {
  if (!host.empty()) host_of_[node] = host;
  expected_by_.erase(node);
  if (!ranks.empty()) expected_by_[node] = ranks;
  for (Rank rank : ranks) {
    const auto lost = lost_.find(rank);
    if (lost != lost_.end() && lost->second.never_came) lost_.erase(lost);
  }
}

std::vector<Rank> RankPresence::ranks_to_lose(NodeId node) const {
  const std::vector<Rank>* known = ranks_of(node);
  if (known != nullptr && !known->empty()) return *known;
  const auto expected = expected_by_.find(node);
  return expected == expected_by_.end() ? std::vector<Rank>() : expected->second;
}

const std::vector<Rank>* RankPresence::ranks_of(NodeId node) const {
  auto known = ranks_of_.find(node);
  return known == ranks_of_.end() ? nullptr : &known->second;
}

std::string RankPresence::host_of_rank(Rank rank) const {
  if (const auto node = node_of_.find(rank); node != node_of_.end()) {
    const auto host = host_of_.find(node->second);
    if (host != host_of_.end()) return host->second;
  }
  if (const auto gone = gone_.find(rank); gone != gone_.end()) {
    const auto host = host_of_.find(gone->second.node);
    if (host != host_of_.end()) return host->second;
  }
  const auto lost = lost_.find(rank);
  return lost == lost_.end() ? "" : lost->second.host;
}

std::string RankPresence::name_ranks(const std::vector<Rank>& ranks) const {
  const size_t named = std::min(ranks.size(), base::kRanksNamed);
  std::vector<std::string> hosts;  // in the order of their first ranks
  for (size_t i = 0; i < named; ++i) {
    std::string host = host_of_rank(ranks[i]);
    if (host.empty()) return base::name_ranks(ranks);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return base::name_ranks(ranks);
  return fmt::format("{} (host{} {})", base::name_ranks(ranks), hosts.size() == 1 ? "" : "s",
                     fmt::join(hosts, ", "));
}

std::string RankPresence::name_hosts_with_ranks() const {
  std::vector<std::string> named;
  size_t left_out = 0;
  for (const auto& [node, ranks] : ranks_of_) {
    const auto host = host_of_.find(node);
    if (host == host_of_.end() || ranks.empty()) continue;
    if (named.size() == base::kRanksNamed) {
      ++left_out;
    } else {
      named.push_back(fmt::format("{} ({})", host->second, base::name_ranks(ranks)));
    }
  }
  std::string out = fmt::format("{}", fmt::join(named, ", "));
  if (left_out != 0) out += fmt::format(" and {} more", left_out);
  return out;
}

// --- ranks that are lost ---

void RankPresence::lose_node(TimeNs now, NodeId node, const std::string& why) {
  std::string host;
  if (auto named = host_of_.find(node); named != host_of_.end()) {
    host = std::move(named->second);
    host_of_.erase(named);
  }
  const std::vector<Rank> reported = take_out(ranks_of_, node), expected = take_out(expected_by_, node);
  ranks_reported_ -= reported.size();
  for (Rank rank : reported) {
    remove_report(rank, node);
    if (!node_of_.contains(rank)) lost_.try_emplace(rank, Lost{now, host, why});
  }
  for (Rank rank : expected) {
    if (!node_of_.contains(rank) && !has_rank(expected_by_, rank)) {
      lost_.try_emplace(rank, Lost{now, host, why, true});
    }
  }
}

void RankPresence::lose_unreported(TimeNs since, uint32_t world_size) {
  for (Rank rank = 0; rank < world_size; ++rank) {
    if (!node_of_.contains(rank)) lost_.try_emplace(rank, Lost{since, "", ""});
  }
}

std::vector<Rank> RankPresence::lost_by(TimeNs by, uint32_t world_size) const {
  std::vector<Rank> ranks;
  for (const auto& [rank, lost] : lost_) {
    if (world_size != 0 && rank >= world_size) break;
    if (lost.since + host_lost_ <= by) ranks.push_back(rank);
  }
  return ranks;
}

std::optional<TimeNs> RankPresence::next_loss(TimeNs now) const {
  std::optional<TimeNs> first;
  for (const auto& [rank, lost] : lost_) {
    const TimeNs until = lost.since + host_lost_;
    if (until > now && (!first || until < *first)) first = until;
  }
  return first;
}

std::string RankPresence::why_lost(const std::vector<Rank>& ranks, const Roster* roster) const {
  std::set<std::string> hosts, back;  // `back`: a new node of the host is here, without the rank
  std::vector<Rank> of_hosts, of_back, unnamed;
  std::string how;
  std::map<uint32_t, std::vector<Rank>> of_others;  // by the number of their host in the roster
  for (Rank rank : ranks) {
    const std::string& host = lost_.at(rank).host;
    const bool is_back = !host.empty() && std::any_of(host_of_.begin(), host_of_.end(),
                                                      [&](const auto& node) { return node.second == host; });
    if (is_back) {
      back.insert(host);
      of_back.push_back(rank);
    } else if (!host.empty()) {
      hosts.insert(host);
      of_hosts.push_back(rank);
      how = lost_.at(rank).why;
    } else if (roster != nullptr) {
      of_others[roster->host_of(rank)].push_back(rank);
    } else {
      unnamed.push_back(rank);
    }
  }
  if (!unnamed.empty()) of_others[0] = std::move(unnamed);
  const std::string span = human_seconds(static_cast<double>(host_lost_ / kMillisecond) / 1e3);
  std::vector<std::string> causes;
  if (!hosts.empty()) {
    const bool is_one = hosts.size() == 1;
    causes.push_back(fmt::format(
        "{} ({}) {} lost{}: neither {} came back within {}", name_hosts(hosts), base::name_ranks(of_hosts),
        is_one ? "is" : "are", how.empty() || !is_one ? "" : fmt::format(" ({})", how),
        is_one ? "its node nor its trainers" : "their nodes nor their trainers", span));
  }
  if (!back.empty()) {
    causes.push_back(fmt::format(
        "{} of {} did not attach to the new node of {} within {} after the earlier node "
        "was lost: {} stopped, hangs or has ended",
        base::name_ranks(of_back), name_hosts(back), back.size() == 1 ? "its host" : "their hosts", span,
        of_back.size() == 1 ? "its trainer is" : "a trainer is"));
  }
  if (!of_others.empty()) {
    std::vector<std::string> named;
    for (const auto& [number, theirs] : of_others) {
      if (named.size() == base::kRanksNamed) break;
      named.push_back("the host of " + base::name_ranks(theirs));
    }
    const size_t left_out = of_others.size() - named.size();
    if (left_out != 0) named.push_back(fmt::format("{} more hosts", left_out));
    causes.push_back(fmt::format("{} {} lost: no node has joined for {} within {}", fmt::join(named, ", "),
                                 of_others.size() == 1 ? "is" : "are", of_others.size() == 1 ? "it" : "them",
                                 span));
  }
  return fmt::format("{}", fmt::join(causes, "; "));
}

// --- ranks that are gone ---

void RankPresence::take(TimeNs now, NodeId from, const wire::RanksEnded& message) {
  const auto staged =
      std::make_shared<const std::set<AttemptKey>>(message.staged.begin(), message.staged.end());
  std::map<Rank, TimeNs> since;
  for (auto gone = gone_.begin(); gone != gone_.end();) {
    const bool is_theirs = gone->second.node == from;
    if (is_theirs) since[gone->first] = gone->second.since;
    gone = is_theirs ? gone_.erase(gone) : std::next(gone);
  }
  for (const wire::EndedRank& rank : message.ranks) {
    if (is_reported_by_another(rank.rank, from)) {
      base::rare_path<"coordinator: a rank that has ended on one host is on another one">();
      withdraw(rank.rank, from);
      continue;
    }
    const auto before = since.find(rank.rank);
    const TimeNs first = before == since.end() ? now : before->second;
    gone_.insert_or_assign(rank.rank, Gone{from, rank.end, first, message.may_return, staged});
  }
}

}  // namespace shoal::actors
