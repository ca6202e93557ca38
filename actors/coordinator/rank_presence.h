// RankPresence: which node reports which ranks, which ranks stage nothing more, and which are lost, as the
// messages and sessions of nodes show. It decides nothing and sets no timers. Part of the Coordinator.
//
// - A rank is gone if its node reported that its trainer ended, or that the node stops.
// - A rank is lost if the session of its node ended, or no node has reported it, and no node has since.
//
// Two processes of a rank may attach to the nodes of two hosts. The rank is gone or lost only when that holds
// for each node that reports it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "base/paged_map.h"

namespace shoal::actors {

// The hosts of a rack fail at the same moment. The coordinator may notice their losses this far apart.
inline constexpr TimeNs kOneLoss = 3'000 * kMillisecond;

// The ranks that the elements of a message are about. Each element has a `rank`.
template <class Elements>
std::vector<Rank> ranks_in(const Elements& elements) {
  std::vector<Rank> ranks;
  ranks.reserve(elements.size());
  for (const auto& element : elements) ranks.push_back(element.rank);
  return ranks;
}

class RankPresence {
 public:
  struct Gone {  // a rank that stages nothing more
    NodeId node = 0;
    std::string end;                                     // how its trainer ended; "": its node is stopping
    TimeNs since = 0;                                    // when a node first reported it
    bool may_return = false;                             // trainers of its host live: another node may come
    std::shared_ptr<const std::set<AttemptKey>> staged;  // but its node still reports these attempts itself
  };
  struct Lost {
    TimeNs since = 0;
    std::string host;         // "": not known
    std::string why;          // how the session ended; "": not known
    bool never_came = false;  // no trainer of this rank has attached yet
  };

  // host_lost: how long a rank may be lost until next_loss and lost_by count it (host_lost_ms).
  explicit RankPresence(TimeNs host_lost) : host_lost_(host_lost) {}

  // Records that this node reports these ranks. A rank that was gone with another node has come back. `host`:
  // the node's host, if the message names it.
  void reported(NodeId node, const std::vector<Rank>& ranks, const std::string& host = "");
  // Records that trainers of these ranks will attach to this node. If its session ends before they do, they
  // are lost, until the next node of their host expects them.
  void expected(NodeId node, const std::vector<Rank>& ranks, const std::string& host);
  const base::PagedMap<NodeId, std::vector<Rank>>& ranks_of() const { return ranks_of_; }
  // The host whose node reported the rank last, even if it is lost since; "": not known.
  std::string host_of_rank(Rank rank) const;
  // For messages: "rank 2 (host b)", "ranks 1, 2 (hosts a, b)". Names no host if that of a named rank is not
  // known.
  std::string name_ranks(const std::vector<Rank>& ranks) const;
  // For the log: "a (ranks 0, 1), b (ranks 2, 3)". Only hosts that are known; a long list is cut.
  std::string name_hosts_with_ranks() const;
  // Ascending; null: the node has reported none yet.
  const std::vector<Rank>* ranks_of(NodeId node) const;
  // The ranks that it has reported, or else those that it expects; ascending.
  std::vector<Rank> ranks_to_lose(NodeId node) const;

  // --- ranks that are lost ---
  // The session of this node has ended: ranks that no other node has reported are lost.
  void lose_node(TimeNs now, NodeId node, const std::string& why);
  // Ranks of the world that no node has reported count as lost since then.
  void lose_unreported(TimeNs since, uint32_t world_size);
  const std::map<Rank, Lost>& lost() const { return lost_; }
  // Ranks of the world that at time `by` have been lost for host_lost_ms, ascending. world_size 0: not known.
  std::vector<Rank> lost_by(TimeNs by, uint32_t world_size) const;
  // When the next lost rank has been lost for host_lost_ms.
  std::optional<TimeNs> next_loss(TimeNs now) const;
  // How the sessions of these ranks ended, and who did not come back. Precondition: they are lost. `roster`:
  // null if none is known.
  std::string why_lost(const std::vector<Rank>& ranks, const Roster* roster) const;

  // --- ranks that are gone ---
  // Replaces the ranks that this node has reported as gone. A rank that another node reports too is not gone:
  // this node only stops reporting it.
  void take(TimeNs now, NodeId from, const wire::RanksEnded& message);
  const std::map<Rank, Gone>& gone() const { return gone_; }

  const base::PagedMap<NodeId, std::vector<Rank>>& expected_by() const { return expected_by_; }
  size_t ranks_reported() const { return ranks_reported_; }
  const base::PagedMap<NodeId, std::string>& host_of() const { return host_of_; }
  const base::PagedMap<Rank, NodeId>& node_of() const { return node_of_; }

 private:
  void add_report(Rank rank, NodeId node);
  void remove_report(Rank rank, NodeId node);
  // Removes the rank from those that the node reports.
  void withdraw(Rank rank, NodeId node);
  bool is_reported_by_another(Rank rank, NodeId node) const;

  const TimeNs host_lost_;
  base::PagedMap<NodeId, std::vector<Rank>> ranks_of_;     // as nodes reported them; ascending
  size_t ranks_reported_ = 0;                              // total number of ranks in ranks_of_
  base::PagedMap<NodeId, std::vector<Rank>> expected_by_;  // without those that it has reported since
  base::PagedMap<NodeId, std::string> host_of_;            // of nodes that named their host
  base::PagedMap<Rank, NodeId> node_of_;                   // the node of ranks_of_ that reports the rank
  std::map<Rank, std::set<NodeId>> also_at_;               // further ones; no set is empty
  std::map<Rank, Gone> gone_;
  std::map<Rank, Lost> lost_;
};

}  // namespace shoal::actors
