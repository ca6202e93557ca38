#include "sim/reports/sensitivity.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "base/helper_threads.h"
#include "sim/basics/integer_math.h"

namespace shoal::sim {

namespace {

uint64_t permille_of(actors::TimeNs change, actors::TimeNs whole) {
  if (whole <= 0) return change == 0 ? 0 : 1'000'000;
  return multiply_divide(static_cast<uint64_t>(std::abs(change)), 1000, static_cast<uint64_t>(whole));
}

// One run: the job with another value of one number, or the job itself.
struct Task {
  size_t number = 0;
  SensitivityRun Sensitivity::*run = nullptr;
  Profile profile;
  std::optional<Result<SimulationReport>> report;
};

// A task that was stopped early has no report.
void run_tasks(const Scenario& scenario, std::vector<Task>& tasks, unsigned jobs, SensitivityWatch& watch) {
  watch.runs.store(tasks.size(), std::memory_order_relaxed);
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < tasks.size();) {
      SimulationWatch run;
      run.stop = watch.stop;
      auto report = simulate(scenario, tasks[i].profile, {}, &run);
      if (report.ok() && report->stopped_early) return;
      tasks[i].report = std::move(report);
      watch.ended.fetch_add(1, std::memory_order_relaxed);
    }
  };
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads = std::min<size_t>(jobs, tasks.size());
  base::for_each_by_threads(threads, threads, [&](size_t) { work(); });
}

// Leaves out the numbers that were not tried, and counts them.
void leave_out(const std::vector<bool>& is_missing, SensitivityReport* found) {
  std::vector<Sensitivity> whole;
  for (size_t i = 0; i < found->numbers.size(); ++i) {
    if (is_missing[i]) {
      ++found->missing;
    } else {
      whole.push_back(std::move(found->numbers[i]));
    }
  }
  found->numbers = std::move(whole);
}

void sort_by_effect(std::vector<Sensitivity>* numbers) {
  auto rank = [](const Sensitivity& each) {
    const uint64_t greater = std::max(each.blocked_permille, each.committed_permille);
    return std::tuple(~greater, ~each.committed_permille, std::string_view(each.number.key));
  };
  std::sort(numbers->begin(), numbers->end(),
            [&](const Sensitivity& a, const Sensitivity& b) { return rank(a) < rank(b); });
}

}  // namespace

Result<SensitivityReport> find_sensitivity(const Scenario& asked, const Profile& named, unsigned jobs,
                                           SensitivityWatch* watch) {
  SHOAL_ASSIGN_OR_RETURN(const Profile profile, with_numbers(named, asked.profile_numbers));
  Scenario scenario = asked;
  scenario.profile_numbers.clear();
  SensitivityReport found;
  std::vector<Task> tasks(1);
  tasks[0].profile = profile;
  for (const Profile::Number& number : profile.numbers) {
    if (number.kind != "assumed") continue;
    int64_t value = 0;
    std::from_chars(number.value.data(), number.value.data() + number.value.size(), value);
    if (value == 0) {
      ++found.zeros;
      continue;
    }
    Sensitivity each;
    each.number = number;
    for (auto [run, other] :
         {std::pair(&Sensitivity::halved, value / 2), {&Sensitivity::doubled, value * 2}}) {
      (each.*run).value = other;
      auto changed = with_number(profile, number.key, other);
      if (changed.ok()) tasks.push_back({found.numbers.size(), run, *std::move(changed), std::nullopt});
    }
    found.numbers.push_back(std::move(each));
  }
  SensitivityWatch unseen;
  run_tasks(scenario, tasks, jobs, watch == nullptr ? unseen : *watch);
  std::vector<bool> is_missing(found.numbers.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].report) {
      SHOAL_RETURN_IF_ERROR(tasks[i].report->status());
    } else if (i == 0) {
      return Status(Code::aborted, "it was stopped before the job itself had run");
    } else {
      is_missing[tasks[i].number] = true;
    }
  }
  found.job = *std::move(*tasks[0].report);
  found.job.scenario.profile_numbers = asked.profile_numbers;
  const SaveReport& job = found.job.saves.back();
  for (Sensitivity& each : found.numbers) {
    for (SensitivityRun* run : {&each.halved, &each.doubled}) {
      run->blocked = job.blocked.greatest;
      run->committed = job.committed.greatest;
    }
  }
  for (size_t i = 1; i < tasks.size(); ++i) {
    if (is_missing[tasks[i].number]) continue;
    Sensitivity& number = found.numbers[tasks[i].number];
    SensitivityRun& run = number.*tasks[i].run;
    const SaveReport& save = (*tasks[i].report)->saves.back();
    run = {run.value, true, save.blocked.greatest, save.committed.greatest, save.cause};
    number.blocked_permille = std::max(number.blocked_permille,
                                       permille_of(run.blocked - job.blocked.greatest, job.blocked.greatest));
    number.committed_permille =
        std::max(number.committed_permille,
                 permille_of(run.committed - job.committed.greatest, job.committed.greatest));
  }
  leave_out(is_missing, &found);
  sort_by_effect(&found.numbers);
  return found;
}

}  // namespace shoal::sim
