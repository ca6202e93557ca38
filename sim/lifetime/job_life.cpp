#include "sim/lifetime/job_life.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>

#include "sim/basics/integer_math.h"
#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

using actors::TimeNs;

constexpr TimeNs kNeverReached = std::numeric_limits<TimeNs>::max();

// Training so far: how long it took, and how long it would have taken on all hosts.
struct Trained {
  TimeNs wall = 0, full = 0;
};

// The hosts of the job and its spares.
class HostPool {
 public:
  explicit HostPool(const JobPlan& plan) : plan_(plan), active_(plan.hosts), idle_(plan.spares) {}

  uint32_t active() const { return active_; }
  void lose(uint32_t hosts, TimeNs now) {
    hosts = std::min(hosts, active_);
    active_ -= hosts;
    for (uint32_t i = 0; i < hosts; ++i) repaired_at_.push(now + plan_.repair);
  }
  // Replaces what is missing, as far as spares go.
  void fill(TimeNs now) {
    collect(now);
    const uint32_t taken = std::min(plan_.hosts - active_, idle_);
    active_ += taken;
    idle_ -= taken;
  }
  bool suffices() const { return active_ >= (plan_.hosts_min == 0 ? plan_.hosts : plan_.hosts_min); }
  bool can_grow(TimeNs now) {
    if (active_ == plan_.hosts) return false;
    collect(now);
    return active_ + idle_ >= plan_.hosts;
  }
  TimeNs next_repair() const { return repaired_at_.empty() ? kNeverReached : repaired_at_.top(); }

 private:
  void collect(TimeNs now) {
    for (; !repaired_at_.empty() && repaired_at_.top() <= now; repaired_at_.pop()) ++idle_;
  }

  const JobPlan& plan_;
  uint32_t active_, idle_;
  std::priority_queue<TimeNs, std::vector<TimeNs>, std::greater<>> repaired_at_;
};

class Living {
 public:
  Living(const JobPlan& plan, const JobCosts& costs, TimeNs interval, const DrawnFailures& failures,
         uint64_t seed)
      : plan_(plan),
        costs_(costs),
        interval_(whole_steps(interval, plan.step)),
        failures_(failures),
        pool_(plan),
        random_(stream_seed(seed, Stream::life_costs)) {}

  Life run() {
    while (now_ < plan_.lasts) {
      if (trains() == End::over) break;
      recover();
    }
    life_.parts.training = trained_.full;
    life_.parts.fewer_hosts = trained_.wall - trained_.full;
    take_commits(plan_.lasts);
    life_.unfinished = life_.saves - life_.commits;
    return life_;
  }

 private:
  enum class End : uint8_t { reached, failed, over };
  struct InFlight {
    TimeNs commits_at = 0;
    Trained state;
  };

  TimeNs next_failure() const {
    return next_ < failures_.ends.size() ? failures_.ends[next_].at : kNeverReached;
  }
  // Time passes until `until`, the next failure or the end of the life.
  End pass_to(TimeNs until, TimeNs* part) {
    const TimeNs failure = next_failure();
    const TimeNs end = std::min({until, failure, plan_.lasts});
    *part += end - now_;
    now_ = end;
    if (now_ == plan_.lasts) return End::over;
    return failure <= until ? End::failed : End::reached;
  }
  // The failure that is now takes its hosts.
  void take_failure() {
    const FailureTime failure = failures_.ends[next_++];
    ++life_.failures;
    take_commits(now_);
    leaves_a_save_ = leaves_a_save_ || is_in_stall_;
    is_in_stall_ = false;
    // Nodes store what is staged while the trainers start again, unless a host is gone.
    if (!costs_.outlives_trainers || failure.kind != FailureTime::Kind::process) drop_saves();
    if (failure.kind == FailureTime::Kind::host) pool_.lose(1, now_);
    if (failure.kind == FailureTime::Kind::rack) pool_.lose(plan_.failures.rack_hosts, now_);
  }

  // --- while the job runs ---

  // Trains and saves until a failure, which is then the next one, or the end of the life; also until the job
  // ends itself to start on more hosts.
  End trains() {
    for (;;) {
      if (const End end = train_interval(); end != End::reached) return end;
      if (const End end = save(); end != End::reached) return end;
      if (!pool_.can_grow(now_)) continue;
      if (const End end = commit_all(); end != End::reached) return end;
      if (committed_.wall != trained_.wall) continue;  // an outage has prevented the commit
      is_planned_ = true;
      return End::failed;
    }
  }
  End train_interval() {
    const uint32_t active = pool_.active();
    const TimeNs wall = active == plan_.hosts ? interval_ : slower(interval_);
    TimeNs took = 0;
    const End end = pass_to(now_ + wall, &took);
    trained_.wall += took;
    trained_.full += end == End::reached ? interval_ : faster(took);
    return end;
  }
  TimeNs slower(TimeNs full) const { return scaled(full, plan_.hosts, pool_.active()); }
  TimeNs faster(TimeNs wall) const { return scaled(wall, pool_.active(), plan_.hosts); }
  // At most kMaxLife, which is as good as never: no life lasts longer.
  static TimeNs scaled(TimeNs time, uint64_t by, uint64_t of) {
    const Wide whole = Wide{static_cast<uint64_t>(time)} * by / of;
    return static_cast<TimeNs>(std::min<Wide>(whole, static_cast<uint64_t>(kMaxLife)));
  }

  End save() {
    take_commits(now_);
    while (in_flight_.size() >= costs_.saves_in_flight) {
      if (const End end = pass_to(in_flight_.front().commits_at, &life_.parts.stall); end != End::reached) {
        return end;
      }
      take_commits(now_);
    }
    const SaveCost& cost = costs_.saves[random_.below(costs_.saves.size())];
    ++life_.saves;
    const TimeNs began = now_, stored = now_ + cost.commit;
    is_in_stall_ = true;
    if (const End end = pass_to(now_ + cost.stall, &life_.parts.stall); end != End::reached) return end;
    is_in_stall_ = false;
    if (meets_outage(began, stored)) return End::reached;
    const TimeNs earliest = in_flight_.empty() ? stored : in_flight_.back().commits_at;
    in_flight_.push_back({std::max(stored, earliest), trained_});
    take_commits(now_);
    return End::reached;
  }
  // The saves that are committed by now.
  void take_commits(TimeNs now) {
    for (; !in_flight_.empty() && in_flight_.front().commits_at <= now; in_flight_.pop_front()) {
      committed_ = in_flight_.front().state;
      has_checkpoint_ = true;
      ++life_.commits;
    }
  }
  End commit_all() {
    // A save that meets an outage returns without the commits of its stall. Time must not go back to them.
    take_commits(now_);
    while (!in_flight_.empty()) {
      if (const End end = pass_to(in_flight_.front().commits_at, &life_.parts.stall); end != End::reached) {
        return end;
      }
      take_commits(now_);
    }
    return End::reached;
  }

  // The first outage that ends after this time. Times never go back.
  const Outage* outage_after(TimeNs time) {
    while (outage_ < failures_.outages.size() && failures_.outages[outage_].end <= time) ++outage_;
    return outage_ < failures_.outages.size() ? &failures_.outages[outage_] : nullptr;
  }
  bool meets_outage(TimeNs begin, TimeNs end) {
    const Outage* outage = outage_after(begin);
    return outage != nullptr && outage->begin < end;
  }

  // --- while it does not ---

  void recover() {
    if (is_planned_) {
      is_planned_ = false;
      if (start() != End::failed) return lose_steps();
    }
    do {
      take_failure();
      if (outlive(plan_.detection, &life_.parts.detection) == End::over) break;
      if (wait_for_hosts() == End::over) break;
    } while (start() == End::failed);
    lose_steps();
  }
  void lose_steps() {
    const TimeNs lost = trained_.wall - committed_.wall;
    life_.parts.lost_steps += lost;
    life_.longest_loss = std::max(life_.longest_loss, static_cast<uint64_t>(lost));
    trained_ = committed_;
  }
  // Failures meanwhile take hosts, and change nothing else.
  End outlive(TimeNs duration, TimeNs* part) {
    const TimeNs until = now_ + duration;
    for (;;) {
      const End end = pass_to(until, part);
      if (end != End::failed) return end;
      take_failure();
    }
  }
  End wait_for_hosts() {
    for (;;) {
      pool_.fill(now_);
      if (pool_.suffices()) return End::reached;
      const TimeNs until = pool_.next_repair();
      const End end = pass_to(until, &life_.parts.waiting);
      if (end == End::over) return end;
      if (end == End::failed) take_failure();
    }
  }
  // A failure ends a start, and the job must start again.
  End start() {
    pool_.fill(now_);
    ++life_.restarts;
    if (const End end = pass_to(now_ + plan_.restart, &life_.parts.restart); end != End::reached) return end;
    take_commits(now_);  // what exists by now is loaded
    drop_saves();
    const bool decides_first = leaves_a_save_ && !costs_.loads_after_save.empty();
    const std::vector<TimeNs>& loads = decides_first ? costs_.loads_after_save : costs_.loads;
    if (!has_checkpoint_ || loads.empty()) return End::reached;
    const TimeNs takes = loads[random_.below(loads.size())];
    while (meets_outage(now_, now_ + takes)) {
      if (const End end = pass_to(outage_after(now_)->end, &life_.parts.load); end != End::reached)
        return end;
    }
    const End end = pass_to(now_ + takes, &life_.parts.load);
    if (end == End::reached) leaves_a_save_ = false;
    return end;
  }
  void drop_saves() {
    leaves_a_save_ = leaves_a_save_ || !in_flight_.empty();
    in_flight_.clear();
  }

  const JobPlan& plan_;
  const JobCosts& costs_;
  const TimeNs interval_;
  const DrawnFailures& failures_;
  HostPool pool_;
  Random random_;
  TimeNs now_ = 0;
  size_t next_ = 0, outage_ = 0;
  Trained trained_, committed_;
  std::deque<InFlight> in_flight_;
  bool has_checkpoint_ = false, is_planned_ = false;
  bool is_in_stall_ = false, leaves_a_save_ = false;
  Life life_;
};

double part_of(TimeNs part, TimeNs whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Status bad_job(const char* what) {
  return Status(Code::invalid_argument, what);
}

}  // namespace

double Life::ettr() const {
  return part_of(parts.training + parts.fewer_hosts, parts.sum());
}
double Life::goodput() const {
  return part_of(parts.training, parts.sum());
}

TimeNs whole_steps(TimeNs interval, TimeNs step) {
  interval = std::min(interval, kMaxLife);
  return std::max<TimeNs>(1, (interval + step / 2) / step) * step;
}

Status check_job(const JobPlan& plan, const JobCosts& costs) {
  if (plan.hosts == 0) return bad_job("a job needs at least one host");
  if (plan.hosts_min > plan.hosts) return bad_job("the least number of hosts exceeds that of the job");
  if (plan.spares > kMaxSpares) return bad_job("too many spare hosts");
  if (plan.step <= 0) return bad_job("a step must take longer than nothing");
  if (plan.lasts <= 0 || plan.lasts > kMaxLife)
    return bad_job("a job must last from an instant to ten years");
  for (const TimeNs time : {plan.repair, plan.step, plan.detection, plan.restart}) {
    if (time < 0 || time > kMaxLife) return bad_job("a time of the job is negative or exceeds ten years");
  }
  if (costs.saves.empty() || costs.saves_in_flight == 0) return bad_job("a job needs the cost of a save");
  for (const SaveCost& save : costs.saves) {
    if (save.stall < 0 || save.commit < save.stall || save.commit > kMaxLife) {
      return bad_job("a save must be committed when it has stalled the job, or later");
    }
  }
  for (const std::vector<TimeNs>* loads : {&costs.loads, &costs.loads_after_save}) {
    for (const TimeNs load : *loads) {
      if (load < 0 || load > kMaxLife) return bad_job("the time of a load is negative or exceeds ten years");
    }
  }
  return ok_status();
}

Life live(const JobPlan& plan, const JobCosts& costs, TimeNs interval, const DrawnFailures& failures,
          uint64_t seed) {
  return Living(plan, costs, interval, failures, seed).run();
}

}  // namespace shoal::sim
