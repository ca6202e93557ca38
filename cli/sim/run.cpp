#include "cli/sim/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/helper_threads.h"
#include "cli/installed_files.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

std::string counted(uint64_t count) {
  if (count < 10'000) return fmt::to_string(count);
  if (count < 10'000'000) return fmt::format("{:.0f} k", static_cast<double>(count) / 1e3);
  return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
}

struct Watched {
  sim::SimulationWatch watch;
  std::atomic<bool> has_ended{false};
};

class Progress {
 public:
  Progress(const std::vector<sim::Scenario>& scenarios, const std::vector<Watched>& runs)
      : scenarios_(scenarios), runs_(runs) {
    for (const sim::Scenario& scenario : scenarios) milestones_ += sim::milestones_of(scenario);
  }

  // "sim: save 2 of 3, 121.4 s of virtual time, 3.2 M events, 1.1 M/s, 54 %, 2.3 s left". For a sweep, "3 of
  // 9 jobs done" replaces the saves and the time.
  std::string line(double seconds) const {
    uint64_t events = 0, milestones = 0;
    size_t ended = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const sim::SimulationWatch& watch = runs_[i].watch;
      events += watch.events.load(std::memory_order_relaxed);
      const bool has_ended = runs_[i].has_ended.load(std::memory_order_relaxed);
      ended += has_ended;
      const uint64_t whole = sim::milestones_of(scenarios_[i]);
      milestones += has_ended ? whole : std::min(whole, watch.milestones.load(std::memory_order_relaxed));
    }
    const double rate = seconds > 0 ? static_cast<double>(events) / seconds : 0;
    const double part =
        milestones_ == 0 ? 1 : static_cast<double>(milestones) / static_cast<double>(milestones_);
    std::string out = fmt::format("sim: {}, {} events, {}/s, {} %", how_far(ended), counted(events),
                                  counted(static_cast<uint64_t>(rate)), static_cast<int>(100 * part));
    if (part <= 0 || part >= 1 || seconds < ProgressLine::kSecondsBeforeTimeLeft) return out;
    return out + fmt::format(", {} left", human_seconds(seconds * (1 - part) / part));
  }

 private:
  std::string how_far(size_t ended) const {
    if (runs_.size() > 1) return fmt::format("{} of {} jobs done", ended, runs_.size());
    const sim::SimulationWatch& watch = runs_.front().watch;
    const uint32_t saves = scenarios_.front().saves;
    const uint32_t decided = watch.saves_decided.load(std::memory_order_relaxed);
    const auto now = static_cast<double>(watch.virtual_now.load(std::memory_order_relaxed));
    return fmt::format("save {} of {}, {} of virtual time", std::min(decided + 1, saves), saves,
                       human_seconds(now / 1e9));
  }

  const std::vector<sim::Scenario>& scenarios_;
  const std::vector<Watched>& runs_;
  uint64_t milestones_ = 0;
};

}  // namespace

// Beside bin/, where it is installed as in the build tree.
std::vector<std::string> profile_folders() {
  return {shared_folder() + "/profiles"};
}

SimulationRuns run_simulations(const std::vector<sim::Scenario>& scenarios,
                               const std::map<std::string, sim::Profile>& profiles, unsigned jobs,
                               bool always_shows, const sim::SimulationListeners& listeners) {
  SimulationRuns out;
  out.reports.resize(scenarios.size());
  std::vector<Watched> runs(scenarios.size());
  Interrupts interrupts;
  for (Watched& run : runs) run.watch.stop = [] { return Interrupts::signal_number() != 0; };
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; Interrupts::signal_number() == 0 && (i = next.fetch_add(1)) < scenarios.size();) {
      out.reports[i] =
          sim::simulate(scenarios[i], profiles.at(scenarios[i].profile), listeners, &runs[i].watch);
      runs[i].has_ended.store(Interrupts::signal_number() == 0, std::memory_order_relaxed);
    }
  };
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  const Progress progress(scenarios, runs);
  ProgressLine shown([&progress](double seconds) { return progress.line(seconds); }, always_shows);
  const size_t threads = std::min<size_t>(jobs, scenarios.size());
  base::for_each_by_threads(threads, threads, [&](size_t) { work(); });
  out.interrupted_by = Interrupts::signal_number();
  return out;
}

}  // namespace shoal::cli
