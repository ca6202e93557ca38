// Figures of a campaign: how often its saves are aborted, how long ranks wait for a decision, and what a save
// costs, for each mode and each kind of failure. `shoal fuzz` compares them with recorded ones. So it finds
// bugs that violate no oracle in any single run, such as a lost report that is sent again late.
#pragma once

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

// Of each figure, more is worse. Times and counts enter as logarithms, because a mean of them would be that
// of a few runs.
enum class Figure : uint8_t {
  aborted,       // share of the saves of a run that were aborted
  undecided,     // share of the saves of a run of which no rank was notified
  commit_delay,  // ln(us) from the last durable byte until the last rank is notified of a commit
  abort_delay,   // ln(us) from the begin of a save until the last rank is notified of its abort
  messages,      // ln of the coordinator's messages until the next save
  requests,      // ln of the requests to storage until the next save, without reads
  load_delay,    // ln(us) until the last rank knows what to read, after the last save
};
inline constexpr size_t kFigures = 7;
std::string_view figure_name(Figure figure);

struct FigureKey {
  SaveMode mode = SaveMode::collective_free;
  // The name of a kind of failure: of runs that have such a failure. "none": of runs without failures. "any":
  // of all runs.
  std::string failures;
  Figure figure = Figure::aborted;
  auto operator<=>(const FigureKey&) const = default;
};
// Mean and variance over runs, by Welford's method (Technometrics 4:3, 1962).
struct Estimate {
  uint64_t runs = 0;
  double mean = 0;
  double squares = 0;  // sum of the squared distances from the mean

  void add(double value);
  double variance() const { return runs < 2 ? 0 : squares / static_cast<double>(runs - 1); }
};

// Most of the differences between runs are those between storage profiles. So each profile has estimates of
// its own, by name.
using Strata = std::map<std::string, Estimate>;

class CampaignFigures {
 public:
  void take(const SimulationReport& report);
  const std::map<FigureKey, Strata>& all() const { return estimates_; }

  // A line of comma-separated values for each figure, after a line with the names of the columns.
  std::string csv() const;
  // Code::corrupt names the line.
  static Result<CampaignFigures> parse(std::string_view csv);

 private:
  std::map<FigureKey, Strata> estimates_;
};

// A figure that is worse than it was recorded, beyond what chance explains.
struct Rise {
  FigureKey key;
  double recorded = 0, seen = 0;  // means of all profiles, each weighted by its runs
  double standard_errors = 0;     // between the two: Welch's t, stratified by profile

  // "rank-local, failures 'restarts': aborted 0.31, recorded 0.22 (9.1 standard errors)"
  std::string text() const;
};
// Of one profile; fewer give no reliable variance, and the profile is left out.
inline constexpr uint64_t kLeastComparedRuns = 15;
// By chance alone, fewer than one of a million campaigns has a figure above this.
inline constexpr double kMostStandardErrors = 6;
// The worst first. Compares the figures that both have.
std::vector<Rise> find_rises(const CampaignFigures& recorded, const CampaignFigures& seen);

}  // namespace shoal::sim
