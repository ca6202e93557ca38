#include "actors/node/watch/job_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace shoal::actors {

namespace {

using local::HostState;
using local::HostStatus;
using local::HostWait;
using local::JobSave;
using local::JobStatus;
using local::NodeStatus;
using local::SavePhase;
using local::SaveStatus;
using local::WaitReason;

// How far a phase is from the commit: of several hosts, the save is in the phase that is farthest.
int order_of(SavePhase phase) {
  switch (phase) {
    case SavePhase::staging:
      return 0;
    case SavePhase::planning:
      return 1;
    case SavePhase::writing:
      return 2;
    case SavePhase::waiting:
      return 3;
    case SavePhase::committing:
      break;
  }
  return 4;
}

void add_rank(HostWait* wait, Rank rank) {
  ++wait->ranks_count;
  if (wait->ranks.size() < local::kMaxHostRanks) wait->ranks.push_back(rank);
}

const SaveStatus* save_of(const HostStatus& host, const AttemptKey& key) {
  for (const SaveStatus& save : host.saves) {
    if (save.key == key) return &save;
  }
  return nullptr;
}

// What an operator should look at: a call that hangs, a trainer that is stopped, the first error.
std::string detail_of(const HostStatus& host, const SaveStatus* save) {
  if (host.state != HostState::answered) return "";
  if (!host.slow_calls.empty()) {
    const local::SlowCallStatus& call = host.slow_calls.front();
    return fmt::format("{} has taken {} s and has not returned", call.what, call.age_ms / 1000);
  }
  if (!host.stopped_ranks.empty()) {
    return fmt::format("the trainer of rank {} is stopped", host.stopped_ranks.front());
  }
  return save == nullptr ? "" : save->trouble;
}

// What a save waits for on a host, as the host itself sees it.
std::optional<WaitReason> stated_reason(const HostStatus& host, const SaveStatus& save) {
  switch (save.phase) {
    case SavePhase::staging:
      return WaitReason::staging;
    case SavePhase::writing:
      return WaitReason::writing;
    case SavePhase::planning:  // other hosts delay the roster, unless something hangs here
      if (!host.slow_calls.empty()) return WaitReason::writing;
      if (!host.stopped_ranks.empty()) return WaitReason::staging;
      break;
    case SavePhase::waiting:
    case SavePhase::committing:
      break;
  }
  return std::nullopt;
}

bool is_planning(const HostStatus& host, const AttemptKey& key) {
  const SaveStatus* save = save_of(host, key);
  return save != nullptr && save->phase == SavePhase::planning;
}

// The order in which waits are shown: what a person has to mend comes first, what may end by itself last.
int severity_order(const HostStatus& host, WaitReason reason) {
  if (reason == WaitReason::silent) return 0;
  if (reason == WaitReason::lost) return 1;
  if (!host.slow_calls.empty()) return 2;
  if (!host.stopped_ranks.empty()) return 3;
  if (reason == WaitReason::staging) return 4;
  return reason == WaitReason::writing ? 5 : 6;
}

bool is_lost(const HostStatus& host) {
  return host.state == HostState::lost;
}

bool is_before_by_name(const HostStatus& a, const HostStatus& b) {
  return a.host < b.host;
}

class JobTable {
 public:
  JobTable(const NodeStatus& own, std::vector<HostStatus> hosts, const JobFacts& facts)
      : own_(own), facts_(facts), hosts_(std::move(hosts)) {
    std::sort(hosts_.begin(), hosts_.end(), [](const HostStatus& a, const HostStatus& b) {
      return is_lost(a) != is_lost(b) ? is_lost(b) : is_before_by_name(a, b);
    });
    place_ranks();
  }

  const std::vector<std::string>& replaced() const { return replaced_; }

  JobStatus make() && {
    JobStatus out;
    out.world_size = own_.world_size;
    out.last_commit = own_.last_commit;
    out.hosts_count = hosts_.size();
    for (const HostStatus& host : hosts_) {
      out.hosts_silent += host.state == HostState::silent;
      out.hosts_lost += is_lost(host);
    }
    const std::set<AttemptKey> keys = keys_in_flight();
    out.saves_count = keys.size();
    for (const AttemptKey& key : keys) {
      if (out.saves.size() == local::kMaxJobSaves) break;
      out.saves.push_back(describe(key));
    }
    std::sort(hosts_.begin(), hosts_.end(), is_before_by_name);
    cut_hosts();
    out.hosts = std::move(hosts_);
    return out;
  }

 private:
  // Each rank is of the host that knows best: one that has answered and states the rank, one that has
  // answered, one with a session, a lost one.
  void place_ranks() {
    const size_t live =
        static_cast<size_t>(std::find_if(hosts_.begin(), hosts_.end(), is_lost) - hosts_.begin());
    for (size_t i = 0; i < live; ++i) {
      if (hosts_[i].state != HostState::answered) continue;
      for (Rank rank : hosts_[i].ranks) host_of_.emplace(rank, i);
    }
    for (size_t i = 0; i < live; ++i) {
      if (hosts_[i].state == HostState::answered && hosts_[i].ranks.empty()) fill_ranks(i);
    }
    for (size_t i = 0; i < live; ++i) {
      if (hosts_[i].state == HostState::silent) fill_ranks(i);
    }
    leave_out_replaced(live);
    for (size_t i = live; i < hosts_.size(); ++i) fill_ranks(i);
  }

  // Ranks that the host had when it answered, and those that its node stated later. Ascending.
  std::vector<Rank> known_ranks(const HostStatus& host) const {
    std::vector<Rank> out = host.ranks;
    if (const auto known = facts_.ranks_of_hosts.find(host.host); known != facts_.ranks_of_hosts.end()) {
      out.insert(out.end(), known->second.begin(), known->second.end());
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // Leaves a host those of its ranks that no host before it has.
  void fill_ranks(size_t index) {
    HostStatus& host = hosts_[index];
    const std::vector<Rank> known = known_ranks(host);
    // Its answer counted these, and its list was too long to name them.
    host.ranks_count -= std::min<uint64_t>(host.ranks_count, known.size());
    host.ranks.clear();
    for (Rank rank : known) {
      if (!host_of_.emplace(rank, index).second) continue;
      ++host.ranks_count;
      if (host.ranks.size() < local::kMaxHostRanks) host.ranks.push_back(rank);
    }
  }

  // REQUIRES: the live hosts have their ranks, and come first.
  void leave_out_replaced(size_t live) {
    const auto kept_end =
        std::stable_partition(hosts_.begin() + static_cast<std::ptrdiff_t>(live), hosts_.end(),
                              [&](const HostStatus& host) { return !is_replaced(host); });
    for (auto host = kept_end; host != hosts_.end(); ++host) replaced_.push_back(host->host);
    hosts_.erase(kept_end, hosts_.end());
  }

  bool is_replaced(const HostStatus& lost) const {
    const std::vector<Rank> known = known_ranks(lost);
    if (known.size() < lost.ranks_count) return false;  // it had ranks that have no name here
    if (known.empty()) return facts_.ranks_of_hosts.contains(lost.host);  // others have claimed them all
    return std::all_of(known.begin(), known.end(), [&](Rank rank) {
      const auto holder = host_of_.find(rank);
      return holder != host_of_.end() && hosts_[holder->second].state == HostState::answered;
    });
  }

  std::set<AttemptKey> keys_in_flight() const {
    std::set<AttemptKey> keys;
    for (const SaveStatus& save : own_.saves) keys.insert(save.key);
    for (const HostStatus& host : hosts_) {
      for (const SaveStatus& save : host.saves) keys.insert(save.key);
    }
    return keys;
  }

  JobSave describe(const AttemptKey& key) {
    JobSave out;
    out.save.key = key;
    out.save.phase = SavePhase::committing;
    bool is_anywhere = false;
    std::map<size_t, HostWait> waits;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const SaveStatus* save = save_of(hosts_[i], key);
      if (save == nullptr) continue;
      is_anywhere = true;
      add_host(hosts_[i], *save, &out.save);
      const std::optional<WaitReason> reason = stated_reason(hosts_[i], *save);
      if (!reason) continue;
      HostWait& wait = waits[i];
      wait.reason = *reason;
      for (Rank rank : save->awaited) add_rank(&wait, rank);
      wait.ranks_count = std::max(wait.ranks_count, save->awaited_count);
    }
    if (!is_anywhere) out.save.phase = SavePhase::waiting;
    HostWait unknown;
    add_unreported(key, &out.save, &waits, &unknown);
    finish(key, std::move(waits), std::move(unknown), &out);
    return out;
  }

  static void add_host(const HostStatus& host, const SaveStatus& from, SaveStatus* to) {
    if (order_of(from.phase) < order_of(to->phase)) to->phase = from.phase;
    to->age_ms = std::max(to->age_ms, from.age_ms);
    to->ranks_here += from.ranks_here;
    to->ranks_staged += from.ranks_staged;
    to->ranks_written += from.ranks_written;
    to->bytes_staged += from.bytes_staged;
    to->bytes_to_write += from.bytes_to_write;
    to->bytes_written += from.bytes_written;
    if (to->trouble.empty() && !from.trouble.empty()) to->trouble = host.host + ": " + from.trouble;
  }

  // Ranks of which the coordinator has no report, by host.
  void add_unreported(const AttemptKey& key, SaveStatus* save, std::map<size_t, HostWait>* waits,
                      HostWait* unknown) const {
    const auto known = std::find_if(own_.saves.begin(), own_.saves.end(),
                                    [&](const SaveStatus& each) { return each.key == key; });
    if (facts_.is_rank_local) return add_hosts_behind(key, waits);
    if (!own_.coordinates || known == own_.saves.end()) return;
    save->age_ms = std::max(save->age_ms, known->age_ms);
    save->ranks_reported = known->ranks_reported;
    save->bytes_reported = known->bytes_reported;
    save->awaited_count = known->awaited_count;
    std::set<size_t> has_named;
    for (const auto& [host, wait] : *waits) has_named.insert(host);
    for (Rank rank : known->awaited) {
      if (save->awaited.size() < local::kMaxHostRanks) save->awaited.push_back(rank);
      const auto host = host_of_.find(rank);
      if (host == host_of_.end()) {
        add_rank(unknown, rank);
        continue;
      }
      // A host that plans waits for the roster, and so for other hosts.
      if (is_planning(hosts_[host->second], key)) continue;
      const auto [wait, is_new] = waits->try_emplace(host->second);
      if (is_new) wait->second.reason = reason_of(hosts_[host->second], key);
      // A host that states what it does has named its ranks itself.
      if (!has_named.contains(host->second)) add_rank(&wait->second, rank);
    }
  }

  // In mode rank-local: hosts that have not answered, and those that have neither begun nor seen the commit.
  void add_hosts_behind(const AttemptKey& key, std::map<size_t, HostWait>* waits) const {
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const HostStatus& host = hosts_[i];
      const bool is_through = host.last_commit && !(host.last_commit->key < key);
      if (is_through || host.ranks_count == 0 || save_of(host, key) != nullptr) continue;
      HostWait& wait = (*waits)[i];
      wait.reason = reason_of(host, key);
      wait.ranks = host.ranks;
      wait.ranks_count = host.ranks_count;
    }
  }

  static WaitReason reason_of(const HostStatus& host, const AttemptKey& key) {
    if (host.state == HostState::silent) return WaitReason::silent;
    if (host.state == HostState::lost) return WaitReason::lost;
    const SaveStatus* save = save_of(host, key);
    const bool is_unseen = save == nullptr && host.saves.size() == host.saves_count;
    return is_unseen ? WaitReason::staging : WaitReason::reporting;
  }

  void finish(const AttemptKey& key, std::map<size_t, HostWait> waits, HostWait unknown, JobSave* out) {
    if (unknown.ranks_count > 0) out->waits.push_back(std::move(unknown));
    out->waits_count = waits.size() + out->waits.size();
    std::vector<std::pair<int, size_t>> order;
    for (const auto& [host, wait] : waits) {
      order.emplace_back(severity_order(hosts_[host], wait.reason), host);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [severity, host] : order) {
      waited_for_.insert(hosts_[host].host);
      if (out->waits.size() == local::kMaxJobWaits) continue;
      HostWait& wait = waits[host];
      wait.host = hosts_[host].host;
      wait.detail = detail_of(hosts_[host], save_of(hosts_[host], key));
      out->waits.push_back(std::move(wait));
    }
    if (!out->waits.empty() || !own_.coordinates || out->save.phase == SavePhase::planning) return;
    HostWait decision{own_.host, WaitReason::deciding, {}, 0, ""};
    for (const HostStatus& host : hosts_) {
      if (host.coordinates) decision.detail = detail_of(host, save_of(host, key));
    }
    out->waits.push_back(std::move(decision));
    out->waits_count = 1;
  }

  // Keeps the hosts that an operator should look at, then those that a save waits for, then the first ones by
  // name.
  void cut_hosts() {
    if (hosts_.size() <= local::kMaxStatusHosts) return;
    const auto others = std::stable_partition(hosts_.begin(), hosts_.end(), [](const HostStatus& host) {
      return host.state != HostState::answered || !host.slow_calls.empty() || host.coordinates;
    });
    std::stable_partition(others, hosts_.end(),
                          [&](const HostStatus& host) { return waited_for_.contains(host.host); });
    hosts_.resize(local::kMaxStatusHosts);
  }

  const NodeStatus& own_;
  const JobFacts& facts_;
  std::vector<HostStatus> hosts_;
  std::map<Rank, size_t> host_of_;  // the index in hosts_
  std::vector<std::string> replaced_;
  std::set<std::string> waited_for_;
};

}  // namespace

JobStatus job_status_of(const NodeStatus& own, std::vector<HostStatus> hosts, const JobFacts& facts,
                        std::vector<std::string>* replaced) {
  JobTable table(own, std::move(hosts), facts);
  if (replaced != nullptr) *replaced = table.replaced();
  return std::move(table).make();
}

}  // namespace shoal::actors
