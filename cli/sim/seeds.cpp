#include "cli/sim/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/crash_report.h"
#include "base/helper_threads.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/program_build.h"
#include "cli/progress.h"
#include "cli/text_file.h"
#include "shoal/bytes.h"
#include "sim/replay.h"
#include "sim/reports/event_text.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kMaxSeeds = 10'000'000;

struct Tally {
  uint64_t runs = 0, saves = 0, saves_aborted = 0, saves_undecided = 0, failures = 0, events = 0;

  void take(const sim::SimulationReport& report) {
    ++runs;
    failures += report.scenario.failures.size();
    events += report.events;
    for (const sim::SaveReport& save : report.saves) {
      ++saves;
      saves_aborted += save.aborted_ranks != 0 ? 1 : 0;
      saves_undecided += save.notified_ranks == 0 ? 1 : 0;
    }
  }
};

// All runs: for each point in order, all seeds.
class Campaign {
 public:
  Campaign(const std::vector<SweepPoint>& points, const SeedRange& seeds)
      : points_(points), seeds_(seeds.last - seeds.first + 1), first_(seeds.first), tallies_(points.size()) {}

  struct Run {
    uint64_t number = 0;
    const SweepPoint* point = nullptr;
    sim::Scenario scenario;
  };
  std::optional<Run> next() {
    std::lock_guard lock(mutex_);
    if (stops() || begun_ == total()) return std::nullopt;
    Run run{begun_++, nullptr, {}};
    run.point = &points_[run.number / seeds_];
    run.scenario = run.point->scenario;
    run.scenario.seed = first_ + run.number % seeds_;
    return run;
  }
  void take(const Run& run, Result<sim::SimulationReport> report) {
    std::lock_guard lock(mutex_);
    if (report.ok() && report->stopped_early) return;
    ++ended_;
    if (!report.ok()) {
      if (!failed_ || run.number < failed_->first) {
        failed_ = {run.number, report.status().with_context(named(run))};
      }
      return;
    }
    tallies_[run.number / seeds_].take(*report);
    if (report->violation && (!violated_ || run.number < violated_->first)) {
      violated_ = {run.number, std::move(*report)};
    }
  }
  // "sim: 120 of 1000 seeds, 3 saves aborted, 41/s, 21 s left"
  std::string line(double seconds) {
    std::lock_guard lock(mutex_);
    uint64_t aborted = 0;
    for (const Tally& tally : tallies_) aborted += tally.saves_aborted;
    const double rate = seconds > 0 ? static_cast<double>(ended_) / seconds : 0;
    std::string out =
        fmt::format("sim: {} of {} seeds{}, {} saves aborted, {:.1f}/s", ended_, total(),
                    points_.size() == 1 ? "" : fmt::format(" at {} points", points_.size()), aborted, rate);
    if (ended_ == 0 || ended_ == total()) return out;
    return out + fmt::format(", {} left", human_seconds(static_cast<double>(total() - ended_) / rate));
  }

  uint64_t total() const { return seeds_ * points_.size(); }
  // Call these after all runs have ended.
  uint64_t ended() const { return ended_; }
  const std::vector<Tally>& tallies() const { return tallies_; }
  const sim::SimulationReport* violated() const { return violated_ ? &violated_->second : nullptr; }
  const SweepPoint& violated_at() const { return points_[violated_->first / seeds_]; }
  Status failure() const { return failed_ ? failed_->second : ok_status(); }

 private:
  bool stops() const { return violated_ || failed_ || Interrupts::signal_number() != 0; }
  std::string named(const Run& run) const {
    const std::string seed = fmt::format("seed {}", run.scenario.seed);
    return run.point->name.empty() ? seed : fmt::format("{}, {}", run.point->name, seed);
  }

  const std::vector<SweepPoint>& points_;
  const uint64_t seeds_, first_;
  std::mutex mutex_;
  uint64_t begun_ = 0, ended_ = 0;
  std::vector<Tally> tallies_;  // by point
  std::optional<std::pair<uint64_t, sim::SimulationReport>> violated_;
  std::optional<std::pair<uint64_t, Status>> failed_;
};

}  // namespace

Result<SeedRange> parse_seeds(const std::string& text) {
  SeedRange seeds;
  const char* end = text.data() + text.size();
  auto first = std::from_chars(text.data(), end, seeds.first);
  seeds.last = seeds.first;
  bool is_good = first.ec == std::errc();
  if (is_good && first.ptr != end) {
    is_good = end - first.ptr > 2 && first.ptr[0] == '.' && first.ptr[1] == '.';
    if (is_good) {
      auto last = std::from_chars(first.ptr + 2, end, seeds.last);
      is_good = last.ec == std::errc() && last.ptr == end;
    }
  }
  if (!is_good || seeds.last < seeds.first || seeds.last - seeds.first >= kMaxSeeds) {
    return Status(Code::invalid_argument,
                  fmt::format("--seeds {}: write FIRST..LAST, with at most {} seeds", text, kMaxSeeds));
  }
  return seeds;
}

int record_run(const sim::SimulationReport& report, const sim::Profile& profile, const std::string& file) {
  const std::string text = sim::replay_text(sim::replay_of(report, profile, SHOAL_VERSION, program_build()));
  if (Status written = write_text(file, text); !written.ok()) return report_unusable(written);
  fmt::print(stderr, "recorded; run it again with: shoal replay {}\n", file);
  return report.violation ? kExitFailed : kExitOk;
}

int report_violation(const sim::SimulationReport& report, const sim::Profile& profile,
                     const std::string& name) {
  const sim::Violation& violation = *report.violation;
  fmt::print(stderr, "shoal: {}seed {}: oracle violated at {} s: {}: {}\n", name.empty() ? "" : name + ", ",
             report.scenario.seed, sim::seconds_text(violation.at), violation.oracle, violation.what);
  const std::string stem = fmt::format("violation-seed{}", report.scenario.seed);
  return record_run(report, profile, free_name(stem, ".toml"));
}

int run_seeds(const std::vector<SweepPoint>& points, const std::map<std::string, sim::Profile>& profiles,
              const SeedRange& seeds, unsigned jobs, bool always_shows) {
  const auto began = std::chrono::steady_clock::now();
  Interrupts interrupts;
  Campaign campaign(points, seeds);
  auto work = [&] {
    while (auto run = campaign.next()) {
      const uint64_t seed = run->scenario.seed;
      const std::string file = fmt::format("crash-seed{}.toml", seed);
      const base::CrashNote note(
          fmt::format("shoal: seed {}; run it again with: shoal sim --scenario {}", seed, file), file,
          sim::scenario_text(run->scenario));
      sim::SimulationWatch watch;
      watch.stop = [] { return Interrupts::signal_number() != 0; };
      campaign.take(*run, sim::simulate(run->scenario, profiles.at(run->scenario.profile), {}, &watch));
    }
  };
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  {
    ProgressLine shown([&campaign](double seconds) { return campaign.line(seconds); }, always_shows);
    const size_t threads = std::min<uint64_t>(jobs, campaign.total());
    base::for_each_by_threads(threads, threads, [&](size_t) { work(); });
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  for (size_t point = 0; point < points.size(); ++point) {
    const Tally& tally = campaign.tallies()[point];
    fmt::print("{}{} seeds: {} failures, {} saves, {} of them aborted{}, {} events\n",
               points[point].name.empty() ? "" : points[point].name + ": ", tally.runs, tally.failures,
               tally.saves, tally.saves_aborted,
               tally.saves_undecided == 0 ? "" : fmt::format(", {} undecided", tally.saves_undecided),
               tally.events);
  }
  fmt::print("{:.1f} s, {:.0f} seeds an hour\n", took.count(),
             static_cast<double>(campaign.ended()) / took.count() * 3600);
  int status = kExitOk;
  if (campaign.violated() != nullptr) {
    const SweepPoint& at = campaign.violated_at();
    status = report_violation(*campaign.violated(), profiles.at(at.scenario.profile), at.name);
  }
  if (!campaign.failure().ok()) return report_unusable(campaign.failure());
  if (const int signal = Interrupts::signal_number(); signal != 0) {
    fmt::print(stderr, "shoal: interrupted after {} of {} seeds\n", campaign.ended(), campaign.total());
    return Interrupts::kExitStatus + signal;
  }
  return status;
}

}  // namespace shoal::cli
