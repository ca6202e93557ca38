// Path shares: which paths the roles took in a campaign (sim/reports/path_counts.h), and in how many runs.
// `shoal fuzz` compares them with recorded ones, so it notices when roles stop doing something, or do it more
// often: a lost message that another party repeats violates no oracle. The recorded seeds of rare paths also
// say where the swarm finds jobs that are worth a further failure (sim/campaign/swarm.h).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "sim/reports/path_counts.h"

namespace shoal::sim {

struct PathKey {
  SaveMode mode = SaveMode::collective_free;
  std::string path;
  auto operator<=>(const PathKey&) const = default;
};
// Seeds of jobs that take a rare path: the first kKeptSeeds of a campaign, ascending.
using RareSeeds = std::map<PathKey, std::vector<uint64_t>>;
inline constexpr size_t kKeptSeeds = 8;
// At most so many of a thousand runs take a rare path.
inline constexpr uint64_t kRarePermille = 20;
// A line of comma-separated values for each mode and path, after a line with the names of the columns.
std::string rare_seeds_csv(const RareSeeds& seeds);
Result<RareSeeds> parse_rare_seeds(std::string_view csv);  // Code::corrupt names the line

class PathShares {
 public:
  void take(SaveMode mode, uint64_t seed, const PathsTaken& taken);
  uint64_t runs(SaveMode mode) const;  // whatever they took
  // How many runs took each path.
  const std::map<PathKey, uint64_t>& all() const { return taken_; }
  RareSeeds rare_seeds() const;  // of the runs that were taken here, not of those that were parsed
  // Transitions and rare paths that exist, but that no run took, ascending by name.
  std::vector<std::string> never_taken() const;

  // A line of comma-separated values for each mode and path, after a line with the names of the columns.
  std::string csv() const;
  // Code::corrupt names the line.
  static Result<PathShares> parse(std::string_view csv);

 private:
  std::map<SaveMode, uint64_t> runs_;
  std::map<PathKey, uint64_t> taken_;
  RareSeeds seeds_;  // of all paths
};

// A path that is taken in more or fewer runs than was recorded, beyond what chance explains.
struct PathChange {
  PathKey key;
  uint64_t recorded_runs = 0, recorded_taken = 0;
  uint64_t seen_runs = 0, seen_taken = 0;
  // The signed root of the likelihood ratio of the two shares (G-test: Sokal and Rohlf, Biometry, 1995);
  // about normally distributed. Negative: fewer runs take it.
  double deviation = 0;

  // "rank-local: 3 of 1000 runs took 'rare: ...', but 52 of 2000 were recorded (-5.4 standard deviations)"
  std::string text() const;
};
// By chance alone, one of a thousand campaigns has a path beyond this.
inline constexpr double kMostDeviations = 5;
// The greatest deviation first. Compares the modes that both have.
std::vector<PathChange> find_path_changes(const PathShares& recorded, const PathShares& seen);

}  // namespace shoal::sim
