#include "sim/campaign/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "sim/campaign/csv.h"

namespace shoal::sim {

namespace {

constexpr std::array<std::string_view, kFigures> kNames = {
    "aborted", "undecided", "commit_delay", "abort_delay", "messages", "requests", "load_delay"};
constexpr std::string_view kColumns = "mode,failures,figure,profile,runs,mean,variance";
constexpr std::string_view kAny = "any", kNone = "none";

double logarithm_of_us(actors::TimeNs time) {
  return std::log(1 + static_cast<double>(std::max<actors::TimeNs>(time, 0)) / 1000);
}

// The mean of one figure over the saves of a run; none: no save has it.
class MeanOfRun {
 public:
  void add(double value) { sum_ += value, ++count_; }
  std::optional<double> mean() const {
    return count_ == 0 ? std::nullopt : std::optional(sum_ / static_cast<double>(count_));
  }

 private:
  double sum_ = 0;
  uint64_t count_ = 0;
};

std::array<MeanOfRun, kFigures> means_of(const SimulationReport& report) {
  std::array<MeanOfRun, kFigures> means;
  const auto of = [&](Figure figure) -> MeanOfRun& { return means[static_cast<size_t>(figure)]; };
  for (const SaveReport& save : report.saves) {
    of(Figure::undecided).add(save.notified_ranks == 0);
    of(Figure::messages)
        .add(std::log(1 + static_cast<double>(save.costs.coordinator.messages_in +
                                              save.costs.coordinator.messages_out)));
    of(Figure::requests)
        .add(std::log(1 + static_cast<double>(save.costs.storage.changes + save.costs.storage.looks)));
    if (save.notified_ranks == 0) continue;
    of(Figure::aborted).add(!save.is_committed());
    if (save.is_committed()) {
      of(Figure::commit_delay).add(logarithm_of_us(save.committed.greatest - save.written.greatest));
    } else {
      of(Figure::abort_delay).add(logarithm_of_us(save.committed.greatest));
    }
  }
  for (const LoadReport& load : report.loads)
    of(Figure::load_delay).add(logarithm_of_us(load.found.greatest));
  return means;
}

std::set<std::string> kinds_in(const Scenario& scenario) {
  std::set<std::string> kinds = {std::string(kAny)};
  if (scenario.failures.empty()) kinds.emplace(kNone);
  for (const Failure& failure : scenario.failures) kinds.emplace(failure_kind_name(failure.kind));
  return kinds;
}

}  // namespace

std::string_view figure_name(Figure figure) {
  return kNames[static_cast<size_t>(figure)];
}

void Estimate::add(double value) {
  ++runs;
  const double distance = value - mean;
  mean += distance / static_cast<double>(runs);
  squares += distance * (value - mean);
}

void CampaignFigures::take(const SimulationReport& report) {
  const auto means = means_of(report);
  for (const std::string& kind : kinds_in(report.scenario)) {
    for (size_t figure = 0; figure < kFigures; ++figure) {
      const auto mean = means[figure].mean();
      if (!mean) continue;
      const FigureKey key{report.scenario.mode, kind, static_cast<Figure>(figure)};
      estimates_[key][report.scenario.profile].add(*mean);
    }
  }
}

std::string CampaignFigures::csv() const {
  std::string out = fmt::format("{}\n", kColumns);
  for (const auto& [key, strata] : estimates_) {
    for (const auto& [profile, estimate] : strata) {
      out += fmt::format("{},{},{},{},{},{:.5g},{:.5g}\n", mode_name(key.mode), key.failures,
                         figure_name(key.figure), profile, estimate.runs, estimate.mean, estimate.variance());
    }
  }
  return out;
}

Result<CampaignFigures> CampaignFigures::parse(std::string_view csv) {
  CampaignFigures figures;
  const auto take_line = [&](const std::vector<std::string_view>& parts) {
    if (parts.size() != 7) return false;
    const auto mode = mode_of_name(parts[0]);
    const auto name = std::ranges::find(kNames, parts[2]);
    Estimate estimate;
    double variance = 0;
    const bool is_parsed = parse_number(parts[4], &estimate.runs) && parse_number(parts[5], &estimate.mean) &&
                           parse_number(parts[6], &variance);
    if (!mode || name == kNames.end() || !is_parsed || estimate.runs == 0) return false;
    estimate.squares = variance * static_cast<double>(estimate.runs - 1);
    const FigureKey key{*mode, std::string(parts[1]), static_cast<Figure>(name - kNames.begin())};
    figures.estimates_[key][std::string(parts[3])] = estimate;
    return true;
  };
  SHOAL_RETURN_IF_ERROR(parse_csv(csv, kColumns, take_line));
  return figures;
}

std::string Rise::text() const {
  const bool is_share = key.figure == Figure::aborted || key.figure == Figure::undecided;
  const bool is_time = key.figure == Figure::commit_delay || key.figure == Figure::abort_delay ||
                       key.figure == Figure::load_delay;
  const auto shown = [&](double mean) {
    return is_share ? fmt::format("{:.2f}", mean)
                    : fmt::format("{:.3g}{}", std::exp(mean), is_time ? " us" : "");
  };
  return fmt::format("{}, failures '{}': {} {}, recorded {} ({:.1f} standard errors)", mode_name(key.mode),
                     key.failures, figure_name(key.figure), shown(seen), shown(recorded), standard_errors);
}

namespace {

// How much worse the strata of one figure are; none: too few runs, or not worse than by chance.
std::optional<Rise> rise_of(const FigureKey& key, const Strata& recorded, const Strata& seen) {
  Rise rise{key, 0, 0, 0};
  double weights = 0, squared_error = 0;
  for (const auto& [profile, estimate] : seen) {
    const auto found = recorded.find(profile);
    if (found == recorded.end()) continue;
    const Estimate& before = found->second;
    if (std::min(estimate.runs, before.runs) < kLeastComparedRuns) continue;
    const auto runs = static_cast<double>(estimate.runs);
    weights += runs;
    rise.seen += runs * estimate.mean;
    rise.recorded += runs * before.mean;
    squared_error +=
        runs * runs * (estimate.variance() / runs + before.variance() / static_cast<double>(before.runs));
  }
  if (weights == 0) return std::nullopt;
  rise.seen /= weights;
  rise.recorded /= weights;
  const double difference = rise.seen - rise.recorded, error = std::sqrt(squared_error) / weights;
  // Recorded means are rounded to five digits.
  if (difference <= 1e-4 * std::abs(rise.recorded) || difference <= kMostStandardErrors * error) {
    return std::nullopt;
  }
  rise.standard_errors = error == 0 ? std::numeric_limits<double>::infinity() : difference / error;
  return rise;
}

}  // namespace

std::vector<Rise> find_rises(const CampaignFigures& recorded, const CampaignFigures& seen) {
  std::vector<Rise> rises;
  for (const auto& [key, strata] : seen.all()) {
    const auto before = recorded.all().find(key);
    if (before == recorded.all().end()) continue;
    if (auto rise = rise_of(key, before->second, strata)) rises.push_back(*rise);
  }
  std::ranges::sort(rises, std::greater(), &Rise::standard_errors);
  return rises;
}

}  // namespace shoal::sim
