#include "sim/campaign/path_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "sim/campaign/csv.h"

namespace shoal::sim {

namespace {

constexpr std::string_view kShareColumns = "mode,path,runs,taken", kSeedColumns = "mode,path,seeds";

// The part of the likelihood ratio that this cell contributes.
double term(double observed, double expected) {
  return observed == 0 ? 0 : 2 * observed * std::log(observed / expected);
}

double deviation_of(const PathChange& change) {
  const auto runs1 = static_cast<double>(change.recorded_runs), runs2 = static_cast<double>(change.seen_runs);
  const auto taken1 = static_cast<double>(change.recorded_taken),
             taken2 = static_cast<double>(change.seen_taken);
  const double share = (taken1 + taken2) / (runs1 + runs2);
  const double ratio = term(taken1, runs1 * share) + term(runs1 - taken1, runs1 * (1 - share)) +
                       term(taken2, runs2 * share) + term(runs2 - taken2, runs2 * (1 - share));
  return std::copysign(std::sqrt(std::max(ratio, 0.0)), taken2 / runs2 - taken1 / runs1);
}

}  // namespace

void PathShares::take(SaveMode mode, uint64_t seed, const PathsTaken& taken) {
  ++runs_[mode];
  for (const auto& [path, count] : taken) {
    uint64_t& runs = taken_[{mode, path}];
    if (count == 0) continue;
    ++runs;
    std::vector<uint64_t>& seeds = seeds_[{mode, path}];
    seeds.insert(std::ranges::upper_bound(seeds, seed), seed);  // parallel runs end in any order
    if (seeds.size() > kKeptSeeds) seeds.pop_back();
  }
}

uint64_t PathShares::runs(SaveMode mode) const {
  const auto found = runs_.find(mode);
  return found == runs_.end() ? 0 : found->second;
}

RareSeeds PathShares::rare_seeds() const {
  RareSeeds rare;
  for (const auto& [key, seeds] : seeds_) {
    if (taken_.at(key) * 1000 <= runs(key.mode) * kRarePermille) rare.emplace(key, seeds);
  }
  return rare;
}

std::vector<std::string> PathShares::never_taken() const {
  std::map<std::string, uint64_t> runs;
  for (const auto& [key, taken] : taken_) runs[key.path] += taken;
  std::vector<std::string> never;
  for (const auto& [path, taken] : runs) {
    if (taken == 0) never.push_back(path);
  }
  return never;
}

std::string PathShares::csv() const {
  std::string out = fmt::format("{}\n", kShareColumns);
  for (const auto& [key, taken] : taken_) {
    out += fmt::format("{},{},{},{}\n", mode_name(key.mode), key.path, runs(key.mode), taken);
  }
  return out;
}

Result<PathShares> PathShares::parse(std::string_view csv) {
  PathShares shares;
  const auto take_line = [&](const std::vector<std::string_view>& parts) {
    const auto mode = parts.size() == 4 ? mode_of_name(parts[0]) : std::nullopt;
    uint64_t runs = 0, taken = 0;
    if (!mode || !parse_number(parts[2], &runs) || !parse_number(parts[3], &taken)) return false;
    shares.runs_[*mode] = runs;
    return taken <= runs && shares.taken_.try_emplace({*mode, std::string(parts[1])}, taken).second;
  };
  SHOAL_RETURN_IF_ERROR(parse_csv(csv, kShareColumns, take_line));
  return shares;
}

std::string rare_seeds_csv(const RareSeeds& seeds) {
  std::string out = fmt::format("{}\n", kSeedColumns);
  for (const auto& [key, of_path] : seeds) {
    out += fmt::format("{},{},{}\n", mode_name(key.mode), key.path, fmt::join(of_path, " "));
  }
  return out;
}

Result<RareSeeds> parse_rare_seeds(std::string_view csv) {
  RareSeeds seeds;
  const auto take_line = [&](const std::vector<std::string_view>& parts) {
    const auto mode = parts.size() == 3 ? mode_of_name(parts[0]) : std::nullopt;
    if (!mode) return false;
    std::vector<uint64_t> of_path;
    for (const std::string_view text : split(parts[2], ' ')) {
      if (!parse_number(text, &of_path.emplace_back())) return false;
    }
    return seeds.try_emplace({*mode, std::string(parts[1])}, std::move(of_path)).second;
  };
  SHOAL_RETURN_IF_ERROR(parse_csv(csv, kSeedColumns, take_line));
  return seeds;
}

std::string PathChange::text() const {
  return fmt::format("{}: {} of {} runs took '{}', but {} of {} were recorded ({:+.1f} standard deviations)",
                     mode_name(key.mode), seen_taken, seen_runs, key.path, recorded_taken, recorded_runs,
                     deviation);
}

std::vector<PathChange> find_path_changes(const PathShares& recorded, const PathShares& seen) {
  std::set<PathKey> keys;
  for (const auto* each : {&recorded, &seen}) {
    for (const auto& [key, runs] : each->all()) keys.insert(key);
  }
  const auto taken = [](const PathShares& shares, const PathKey& key) {
    const auto found = shares.all().find(key);
    return found == shares.all().end() ? 0 : found->second;
  };
  std::vector<PathChange> changes;
  for (const PathKey& key : keys) {
    PathChange change{key, recorded.runs(key.mode), taken(recorded, key), seen.runs(key.mode),
                      taken(seen, key)};
    if (change.recorded_runs == 0 || change.seen_runs == 0) continue;
    change.deviation = deviation_of(change);
    if (std::abs(change.deviation) > kMostDeviations) changes.push_back(std::move(change));
  }
  std::ranges::sort(changes, [](const PathChange& one, const PathChange& other) {
    return std::abs(one.deviation) > std::abs(other.deviation);
  });
  return changes;
}

}  // namespace shoal::sim
