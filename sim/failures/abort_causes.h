// AbortCauses: whether the failures of a run explain why a save failed. The text that a trainer receives
// names a cause, and often hosts and ranks. Each cause needs a failure that gives it, there, and at a time at
// which it could still reach the save. The texts are those that users see; a text without a rule is a
// violation, so that a new cause gets its rule.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

class AbortCauses {
 public:
  struct Facts {
    std::vector<Failure> failures;
    actors::TimeNs run_began = 0;  // trainers that ended before do not belong to this run
    actors::TimeNs host_lost = 0;  // host_lost_ms
    std::function<size_t(Rank)> host_of;
    std::function<bool(Rank, uint32_t save)> has_staged;
    bool nodes_end = false;  // as soon as their trainers have closed: other nodes lose them without a failure
  };
  explicit AbortCauses(Facts facts) : facts_(std::move(facts)) {}

  // The node of this host is the coordinator from now on. What happens to it reaches all hosts.
  void coordinates(size_t host);
  struct Aborted {
    uint32_t save = 0;
    actors::TimeNs began = 0, now = 0;
    std::string cause;
  };
  // Empty if the failures explain the cause; else what is wrong.
  std::string doubt(const Aborted& aborted) const;

 private:
  bool reaches_host(const Failure& failure, size_t host) const;
  bool reaches_rank(const Failure& failure, Rank rank) const;
  bool is_in_time(const Failure& failure, const Aborted& aborted, actors::TimeNs lookback) const;
  bool is_away(const Aborted& aborted, size_t host) const;
  bool fails_disk(const Aborted& aborted, size_t host, bool is_full) const;
  bool is_disturbed(const Aborted& aborted) const;
  bool has_left(const Aborted& aborted, Rank rank) const;
  bool loses_connection(const Aborted& aborted, Rank rank) const;
  bool happened(const Aborted& aborted, Failure::Kind kind) const;

  const Facts facts_;
  std::vector<size_t> coordinators_ = {0};
};

}  // namespace shoal::sim
