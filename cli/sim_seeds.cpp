#include "cli/sim_seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "sim/replay.h"
#include "sim/reports/event_text.h"

namespace shoal {

namespace {

constexpr uint64_t kMaxSeeds = 10'000'000;

struct Tally {
  std::mutex mutex;
  uint64_t runs = 0, saves = 0, saves_aborted = 0, faults = 0, events = 0;
  std::optional<SimulationReport> violated;  // of the lowest seed
  std::optional<std::pair<uint64_t, Status>> failed;

  void take(uint64_t seed, Result<SimulationReport> report) {
    std::lock_guard lock(mutex);
    ++runs;
    if (!report.ok()) {
      if (!failed || seed < failed->first) failed = {seed, report.status()};
      return;
    }
    faults += report->scenario.failures.size();
    events += report->events;
    for (const SaveReport& save : report->saves) {
      ++saves;
      saves_aborted += save.aborted_ranks != 0 ? 1 : 0;
    }
    const bool is_first = !violated || seed < violated->scenario.seed;
    if (report->violation && is_first) violated = std::move(*report);
  }
  bool stops() {
    std::lock_guard lock(mutex);
    return violated || failed;
  }
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
                  fmt::format("--seeds {}: FIRST..LAST is expected, at most {} seeds", text, kMaxSeeds));
  }
  return seeds;
}

int record_run(const SimulationReport& report, const Profile& profile, const std::string& file) {
  std::ofstream(file) << replay_text(replay_of(report, profile, SHOAL_VERSION));
  std::ifstream written(file);
  if (!written) return report_unusable(Status(Code::io, file + ": cannot be written"));
  fmt::print(stderr, "recorded: shoal replay {}\n", file);
  return report.violation ? kExitFailed : kExitOk;
}

void report_violation(const SimulationReport& report, const Profile& profile) {
  const Violation& violation = *report.violation;
  fmt::print(stderr, "shoal: seed {}: violated at {} s: {}: {}\n", report.scenario.seed,
             seconds_text(violation.at), violation.oracle, violation.what);
  record_run(report, profile, fmt::format("violation-seed{}.toml", report.scenario.seed));
}

int run_seeds(const Scenario& base, const Profile& profile, const SeedRange& seeds, unsigned jobs) {
  const auto began = std::chrono::steady_clock::now();
  Tally tally;
  std::atomic<uint64_t> next{seeds.first};
  auto work = [&] {
    while (!tally.stops()) {
      const uint64_t seed = next.fetch_add(1);
      if (seed > seeds.last) return;
      Scenario scenario = base;
      scenario.seed = seed;
      tally.take(seed, simulate(scenario, profile));
    }
  };
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < jobs; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  fmt::print(
      "{} seeds: {} failures, {} saves, {} of them aborted, {} events; {:.1f} s, {:.0f} seeds an hour\n",
      tally.runs, tally.faults, tally.saves, tally.saves_aborted, tally.events, took.count(),
      static_cast<double>(tally.runs) / took.count() * 3600);
  if (tally.violated) report_violation(*tally.violated, profile);
  if (tally.failed) {
    return report_unusable(tally.failed->second.with_context(fmt::format("seed {}", tally.failed->first)));
  }
  return tally.violated ? kExitFailed : kExitOk;
}

}  // namespace shoal
