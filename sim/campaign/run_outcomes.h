// Run outcomes: how the saves and loads of single runs ended, by seed. `shoal fuzz` compares each with the
// recorded one of the same seed. A bug that only rare schedules show changes few runs, and vanishes in a mean
// over all; but it changes nearly all of these in the same direction, which chance does not.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "sim/simulation.h"

namespace shoal::sim {

enum class Outcome : uint8_t {
  committed,     // saves
  aborted,       // saves
  messages,      // of the coordinator
  requests,      // to storage, without reads
  commit_delay,  // ms from the last durable byte until the last rank is notified of a commit, of all saves
  abort_delay,   // ms from the begin of a save until the last rank is notified of its abort, of all saves
  load_delay,    // ms until the last rank knows what to read, of all loads
  warnings,      // of all nodes, but at most as many as a run keeps
  failed_reads,  // of trainers, between their saves
};
inline constexpr size_t kOutcomes = 9;
std::string_view outcome_name(Outcome outcome);

struct RunKey {
  SaveMode mode = SaveMode::collective_free;
  uint64_t seed = 0;
  auto operator<=>(const RunKey&) const = default;
};
using RunOutcome = std::array<uint64_t, kOutcomes>;  // by Outcome
RunOutcome outcome_of(const SimulationReport& report);

class RunOutcomes {
 public:
  void take(const SimulationReport& report, uint64_t seed);
  const std::map<RunKey, RunOutcome>& all() const { return runs_; }

  // A line of comma-separated values for each run, after a line with the names of the columns.
  std::string csv() const;
  // Code::corrupt names the line.
  static Result<RunOutcomes> parse(std::string_view csv);

 private:
  std::map<RunKey, RunOutcome> runs_;
};

// An outcome that has changed in the same direction in most of the runs in which it has changed.
struct OutcomeShift {
  std::string mode;  // "any": of all modes together
  Outcome outcome = Outcome::committed;
  uint64_t runs = 0;            // that were compared
  uint64_t more = 0, less = 0;  // runs that have more of it, or less of it, than was recorded

  // Of the sign test (Dixon and Mood, J. Am. Stat. Assoc. 41, 1946): about normally distributed.
  double deviation() const;
  // "any mode: aborted is more in 34 runs and less in 2, of 3000 runs that were recorded (5.3 standard
  // deviations)"
  std::string text() const;
};
// By chance alone, one of 500 changed programs has a shift beyond this; an unchanged one has none.
inline constexpr double kMostShift = 4;
// The greatest deviation first. Compares the runs that both have. Differences below a twentieth do not count.
std::vector<OutcomeShift> find_shifts(const RunOutcomes& recorded, const RunOutcomes& seen);

}  // namespace shoal::sim
