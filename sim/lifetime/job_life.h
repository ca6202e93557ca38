// Job life: a renewal simulation of the months of a training job that saves, fails, starts again and loads.
// Read this header first: live() is the entry point of the room. It runs no role. What one save, one load
// and one start cost comes from short runs of the roles (sim/lifetime/measured_costs.h), as samples from
// which each save and each load of the months is drawn. docs/decisions/052-months-are-renewals.md says why.
//
//   train ... | stall | train ... | stall | train ..x  detection | waiting | restart | load | train ...
//              \______ in flight ______/^committed   ^ a failure: all training since the save that is
//                                                      committed, counted from its begin, is lost
//
// What counts after a failure is the last save that was committed, not the last one that began. All times
// are integers of nanoseconds, all draws come from the seed: a seed gives one life on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/ids.h"
#include "shoal/status.h"
#include "sim/lifetime/failure_times.h"

namespace shoal::sim {

inline constexpr actors::TimeNs kMaxLife = 3660 * 24 * kHour;
inline constexpr uint32_t kMaxSpares = 1u << 20;

// One save. Precondition: 0 <= stall <= commit.
struct SaveCost {
  actors::TimeNs stall = 0;   // until the slowest rank trains again
  actors::TimeNs commit = 0;  // until the checkpoint exists, from the begin of the save
};
struct JobCosts {
  std::vector<SaveCost> saves;        // samples; at least one
  std::vector<actors::TimeNs> loads;  // samples: from the start of the processes until all have their bytes
  // The same if the failure met a save that was not committed: the new run must decide it first. Empty: as
  // `loads`.
  std::vector<actors::TimeNs> loads_after_save;
  // A save waits in its stall while so many are not committed. At least 1.
  uint32_t saves_in_flight = 2;
  // A save that is staged is committed although the trainers end, if no host is lost.
  bool outlives_trainers = false;
};
struct JobPlan {
  uint32_t hosts = 1;
  // The job goes on with this number of hosts if there are no more; 0: it waits until it has all. With fewer
  // hosts a step takes longer in proportion. When hosts are back, the job ends after a commit to start again
  // on all of them.
  uint32_t hosts_min = 0;
  uint32_t spares = 0;           // hosts that wait to replace others
  actors::TimeNs repair = 0;     // until a host that failed is a spare
  actors::TimeNs step = 1;       // of training, on all hosts. At least 1
  actors::TimeNs detection = 0;  // from a failure until the job has ended
  actors::TimeNs restart = 0;    // until the processes of all ranks run
  actors::TimeNs lasts = 0;
  FailureModel failures;
};

// Where the time goes; together the time that the job lasted.
struct LifeParts {
  actors::TimeNs training = 0;     // that counts, as if on all hosts
  actors::TimeNs fewer_hosts = 0;  // what training that counts took longer because hosts were missing
  actors::TimeNs stall = 0;
  actors::TimeNs lost_steps = 0;  // training that was repeated, or would have to be
  actors::TimeNs detection = 0;
  actors::TimeNs waiting = 0;  // for a host
  actors::TimeNs restart = 0;
  actors::TimeNs load = 0;

  actors::TimeNs sum() const {
    return training + fewer_hosts + stall + lost_steps + detection + waiting + restart + load;
  }
};
struct Life {
  LifeParts parts;
  uint64_t failures = 0;  // that met the job, including those while it was down
  uint64_t restarts = 0;  // that were begun
  uint64_t saves = 0;     // that were begun
  uint64_t commits = 0;
  uint64_t unfinished = 0;    // saves that were begun and never committed
  uint64_t longest_loss = 0;  // of training, by one failure, in nanoseconds

  // Effective training time ratio: the part of the time in which the job trained and that counts.
  double ettr() const;
  // The same, in training on all hosts: what the job has done, of what it could have done.
  double goodput() const;
};

// Failures that a seed drew, or that a caller states. `interval`: training between two saves, which is
// rounded to whole steps, at least one.
Life live(const JobPlan& plan, const JobCosts& costs, actors::TimeNs interval, const DrawnFailures& failures,
          uint64_t seed);
// The interval that live() uses.
actors::TimeNs whole_steps(actors::TimeNs interval, actors::TimeNs step);
// Code::invalid_argument names what live() does not take.
Status check_job(const JobPlan& plan, const JobCosts& costs);

}  // namespace shoal::sim
