// simulator_bench: the time and memory of the simulator itself, for llama3-405b with Adam's state on the
// Lustre-like profile. It simulates one save and its commit on 131,072 ranks in each mode, and on 1,048,576
// ranks in mode collective-free, and how the cost grows from 1,024 ranks on.
//
//   simulator_bench                     every figure with its target
//   simulator_bench RANKS MODE          only that figure
//
// Each simulation runs in a new process on one core, so its peak memory is measured separately. Times are
// processor times. Rates use the user time of the program; rates in brackets include system time, which is
// mostly that of providing memory: the host of a virtual machine may take milliseconds for each new page of 2
// MiB.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "sim/simulation.h"

namespace shoal::sim {
namespace {

struct Figures {
  bool is_there = false;
  double seconds = 0;      // processor time
  double own_seconds = 0;  // the part in user mode
  double peak_gib = 0;
  uint64_t steps = 0;      // events of virtual time
  uint64_t delivered = 0;  // events that were delivered to roles
  double virtual_seconds = 0;
  uint64_t hash = 0;
};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double millions_a_second(uint64_t count, double seconds) {
  return static_cast<double>(count) / seconds / 1e6;
}

Figures simulate_here(uint32_t ranks, SaveMode mode, const Profile& profile) {
  Scenario scenario;
  scenario.ranks = ranks;
  scenario.mode = mode;
  scenario.saves = 1;
  auto report = simulate(scenario, profile);
  Figures out;
  if (!report.ok() || report->saves.front().aborted_ranks != 0) {
    fmt::print(stderr, "{} ranks, {}: {}\n", ranks, mode_name(mode),
               report.ok() ? "aborted: " + report->saves.front().cause : report.status().to_string());
    return out;
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  out.is_there = true;
  out.own_seconds = seconds_of(used.ru_utime);
  out.seconds = out.own_seconds + seconds_of(used.ru_stime);
  out.peak_gib = static_cast<double>(used.ru_maxrss) / (1 << 20);
  out.steps = report->steps;
  out.delivered = report->events;
  out.virtual_seconds = static_cast<double>(report->ended) / 1e9;
  out.hash = report->trace_hash;
  return out;
}

// Runs in a child process, whose peak memory is its own.
Figures simulated(uint32_t ranks, SaveMode mode, const Profile& profile) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    const Figures figures = simulate_here(ranks, mode, profile);
    const bool is_written = ::write(ends[1], &figures, sizeof figures) == sizeof figures;
    ::_exit(is_written && figures.is_there ? 0 : 1);
  }
  ::close(ends[1]);
  Figures figures;
  if (::read(ends[0], &figures, sizeof figures) != sizeof figures) figures = {};
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return figures;
}

std::string beside(double value, double target, bool is_at_least) {
  const bool is_met = is_at_least ? value >= target : value <= target;
  return is_met ? "met" : "missed";
}

void print_row(uint32_t ranks, SaveMode mode, const Figures& f, double seconds_target, double gib_target) {
  if (!f.is_there) {
    fmt::print("| {} | {} | did not run to its end | | |\n", ranks, mode_name(mode));
    return;
  }
  const double rate = millions_a_second(f.steps, f.own_seconds);
  fmt::print(
      "| {} | {} | {:.1f} s (< {:g} s: {}) | {:.2f} GiB (<= {:g} GiB: {}) "
      "| {:.2f} M events/s (>= 2 M: {}; {:.2f}) |\n",
      ranks, mode_name(mode), f.seconds, seconds_target, beside(f.seconds, seconds_target, false), f.peak_gib,
      gib_target, beside(f.peak_gib, gib_target, false), rate, beside(rate, 2, true),
      millions_a_second(f.steps, f.seconds));
  std::fflush(stdout);
}

int run_all(const Profile& profile) {
  // Not counted: the first run touches memory that the virtual machine does not have yet.
  simulated(131'072, SaveMode::collective, profile);
  fmt::print("| ranks | mode | time | peak memory | rate |\n|---|---|---|---|---|\n");
  for (SaveMode mode : {SaveMode::collective, SaveMode::rank_local, SaveMode::collective_free}) {
    print_row(131'072, mode, simulated(131'072, mode, profile), 5, 2);
  }
  print_row(1 << 20, SaveMode::collective_free, simulated(1 << 20, SaveMode::collective_free, profile), 60,
            8);
  fmt::print("\n| ranks | collective-free | time / (ranks × log2 ranks) |\n|---|---|---|\n");
  double first = 0;
  for (uint32_t ranks = 1024; ranks <= 1u << 20; ranks *= 4) {
    const Figures f = simulated(ranks, SaveMode::collective_free, profile);
    if (!f.is_there) {
      fmt::print("| {} | did not run to its end | |\n", ranks);
      continue;
    }
    const double each = f.seconds * 1e9 / ranks / std::log2(static_cast<double>(ranks));
    if (first == 0) first = each;
    fmt::print("| {} | {:.2f} s | {:.0f} ns, {:.2f} times that of 1,024 |\n", ranks, f.seconds, each,
               each / first);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace shoal::sim

int main(int argc, char** argv) {
  using namespace shoal;
  using namespace shoal::sim;
  base::prefer_large_pages();
  auto profile = find_profile("lustre", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  if (!profile.ok()) return fmt::print(stderr, "{}\n", profile.status().to_string()), 2;
  if (argc == 1) return run_all(*profile);
  const std::optional<SaveMode> mode = argc == 3 ? mode_of_name(argv[2]) : std::nullopt;
  const unsigned long ranks = argc == 3 ? std::strtoul(argv[1], nullptr, 10) : 0;
  if (!mode || ranks == 0 || ranks > kMaxSimulatedRanks) {
    return fmt::print(stderr, "usage: simulator_bench [RANKS MODE]\n"), 2;
  }
  const Figures f = simulate_here(static_cast<uint32_t>(ranks), *mode, *profile);
  if (!f.is_there) return 1;
  fmt::print(
      "{} ranks, {}: {:.2f} s, {:.2f} GiB, {} steps ({:.2f} M/s, {:.2f} with the system's time), {} events "
      "given to roles, {:.1f} virtual "
      "seconds, {:016x}\n",
      ranks, mode_name(*mode), f.seconds, f.peak_gib, f.steps, millions_a_second(f.steps, f.own_seconds),
      millions_a_second(f.steps, f.seconds), f.delivered, f.virtual_seconds, f.hash);
  return 0;
}
