#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "sim/basics/integer_math.h"
#include "sim/basics/random.h"
#include "sim/cluster/checkpoint_reads.h"
#include "sim/cluster/job_end.h"
#include "sim/cluster/reading_job.h"
#include "sim/failures/failure_injector.h"
#include "sim/failures/load_oracles.h"
#include "sim/failures/root_audit.h"
#include "sim/jobs/model_files.h"
#include "sim/restarts.h"

namespace shoal::sim {

namespace {

constexpr actors::TimeNs kSaveMarginMs =
    60'000;  // margin of the deadline: staging, writing, messages sent again
constexpr uint64_t kStepsBetweenLooks = 1024;   // between checks of the requests of other threads
constexpr uint64_t kLooksBetweenThorough = 64;  // at least; else so many that all ranks cost little
constexpr actors::TimeNs kLongestSave =
    static_cast<actors::TimeNs>(kMaxSimulatedSaveMs) * actors::kMillisecond;

// Until a run has decided what an earlier one left undecided. The nodes of the earlier one may go on.
constexpr actors::TimeNs kLongestRelease = 10'000 * actors::kMillisecond;
// Until all slabs are free, after all saves were decided.
constexpr actors::TimeNs kLongestFree = 60'000 * actors::kMillisecond;
// Trainers that start their nodes themselves attach within this time.
constexpr actors::TimeNs kAttachSkewNs = 100 * actors::kMillisecond;
constexpr actors::TimeNs kLongestUndecided = 360'000 * actors::kMillisecond;
// Until nodes send nothing more, after all of that.
constexpr actors::TimeNs kLongestMessages = 600'000 * actors::kMillisecond;

// Until retention has deleted old checkpoints, and the files of aborted attempts are gone, if all nodes live
// and no disk fails. For the latter node_deadline_ms is added, because a node may write until then.
constexpr uint64_t kLongestSweepMs = 60'000;
bool leaves_sweeps_alone(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::ends:
    case Failure::Kind::vanishes:
    case Failure::Kind::reconnects:
    case Failure::Kind::reopens:
    case Failure::Kind::flips:
    case Failure::Kind::delays:
    case Failure::Kind::doubles:
    case Failure::Kind::reorders:
    case Failure::Kind::disk_slow:
    case Failure::Kind::disk_hangs:
    case Failure::Kind::disk_full:
    case Failure::Kind::disk_loses:
    case Failure::Kind::removes:
    case Failure::Kind::collects:
    case Failure::Kind::corrupts:
    case Failure::Kind::twins:
      return true;
    // What cannot be read is left alone.
    case Failure::Kind::rots:
      return failure.part != 2;
    // A checkpoint whose pin is removed is deleted after the next commit.
    case Failure::Kind::pins:
    case Failure::Kind::tags:
      return failure.for_ms == 0;
    default:
      return false;
  }
}

constexpr uint64_t kMaxAuditedBytes = uint64_t{1} << 30;  // of a root; the audit takes as long as reading all

// How much counters have grown since the previous call.
class PhaseMeter {
 public:
  PhaseMeter(VirtualCluster& cluster, CoordinatorSeries& series) : cluster_(cluster), series_(series) {}

  PhaseCosts take() {
    const CoordinatorCounts coordinator = cluster_.coordinator_counts();
    const StorageCounts storage = cluster_.storage();
    PhaseCosts gained;
    gained.coordinator = {coordinator.messages_in - coordinator_costs_.messages_in,
                          coordinator.messages_out - coordinator_costs_.messages_out,
                          coordinator.bytes_in - coordinator_costs_.bytes_in,
                          coordinator.bytes_out - coordinator_costs_.bytes_out,
                          coordinator.longest_queue,
                          coordinator.busy_ns - coordinator_costs_.busy_ns};
    gained.storage = {storage.changes - storage_.changes,
                      storage.looks - storage_.looks,
                      storage.listed - storage_.listed,
                      storage.syncs - storage_.syncs,
                      storage.bytes_written - storage_.bytes_written,
                      storage.bytes_read - storage_.bytes_read};
    gained.coordinator_peaks = series_.take_peaks();
    gained.record_bytes = cluster_.record_bytes() - record_bytes_;
    coordinator_costs_ = coordinator;
    storage_ = storage;
    record_bytes_ = cluster_.record_bytes();
    cluster_.forget_longest_queue();
    return gained;
  }

 private:
  VirtualCluster& cluster_;
  CoordinatorSeries& series_;
  CoordinatorCounts coordinator_costs_;
  StorageCounts storage_;
  uint64_t record_bytes_ = 0;
};

SaveReport report_of(const TrainerTimings& times) {
  SaveReport report;
  report.began = times.began;
  report.plan_received = spread_of(times.plan_received);
  report.blocked = spread_of(times.blocked);
  report.written = spread_of(times.written);
  report.committed = spread_of(times.committed);
  report.bytes_staged = times.bytes_staged;
  report.notified_ranks = static_cast<uint32_t>(
      std::ranges::count_if(times.committed, [](actors::TimeNs notified) { return notified >= 0; }));
  report.aborted_ranks = times.aborted_ranks;
  report.cause = times.cause;
  return report;
}

// Beyond the times after which lost hosts are given up: until all have reconnected.
constexpr uint64_t kRecoveryMs = 15'000;
// Until a trainer whose connection broke has attached again, and its node has noticed both.
constexpr actors::TimeNs kReconnectedMs = 5'000;
// A save that no failure delays is decided in this time, beyond writing and the skew of its ranks.
constexpr actors::TimeNs kPromptMs = 3'000;
// The same for the tiny model, of which planning takes no time. A message that is lost and sent again after
// resend_first_ms comes too late for it, except where a request to the storage takes long.
constexpr actors::TimeNs kTinyPromptMs = 200;
constexpr actors::TimeNs kPromptRoundTrips = 50;
// How often storage is looked at between the last report and the last answer, beside once a rank's files.
constexpr uint64_t kLooksOfASave = 64;
constexpr uint64_t kLooksOfARankLocalRank = 4;
// A node that merges rank manifests reads so many at a time. Its round trips may be so many times as long as
// the median: e^4σ of the profiles' tails.
constexpr uint64_t kMergedAtOnce = 8, kSlowestRoundTrip = 16;
// Added to each outage: until it is detected, and until all have looked for the next coordinator.
constexpr uint64_t kOutageMs = 8'000;

// Longest time until a trainer whose connection broke attaches again, if the failure states none.
constexpr uint64_t kReattachedMs = 2'000;

// Outages with more time between them are independent: all hosts have recovered from the first one.
constexpr uint64_t kApartMs = 20'000;

// True if no failure may end a save: no trainer and no write fails, and each outage ends before a host counts
// as lost, even if outages follow one another. Failures are sorted by time.
bool needs_no_abort(const Scenario& scenario, const actors::Timeouts& timeouts) {
  uint64_t away_ms = 0, ended_ms = 0;
  for (const Failure& failure : scenario.failures) {
    if (excuses_nothing(failure.kind)) continue;
    // Only replica_check sees a flipped bit.
    if (failure.kind == Failure::Kind::flips) {
      if (scenario.replica_check == ReplicaCheck::abort) return false;
      continue;
    }
    if (failure.at_ms >= ended_ms + kApartMs) away_ms = 0;
    ended_ms = std::max(ended_ms, failure.ends_ms() + failure.by_ms);
    switch (failure.kind) {
      case Failure::Kind::stalls:
      case Failure::Kind::restarts:
      case Failure::Kind::stops:
      case Failure::Kind::coordinates:
      case Failure::Kind::cut:
        away_ms += failure.for_ms + kOutageMs;
        break;
      case Failure::Kind::delays:
      case Failure::Kind::doubles:
      case Failure::Kind::reorders:
        away_ms += failure.by_ms;
        break;
      case Failure::Kind::reads_fail:
      case Failure::Kind::reopens:
        away_ms += failure.for_ms;
        break;
      case Failure::Kind::reconnects:
        // A save in parts needs the connection until its bytes are copied.
        if (scenario.slab_bytes != 0) return false;
        away_ms += failure.for_ms + kReattachedMs;
        break;
      case Failure::Kind::twins:
        break;
      default:
        return false;
    }
    if (away_ms >= timeouts.host_lost_ms) return false;
  }
  return true;
}

// A trainer that ends after it has staged a save loses nothing, however slowly the save is written.
bool loses_only_trainers(const Scenario& scenario) {
  return std::ranges::all_of(scenario.failures, [](const Failure& failure) {
    return failure.kind == Failure::Kind::ends || failure.kind == Failure::Kind::vanishes ||
           failure.kind == Failure::Kind::disk_slow || excuses_nothing(failure.kind);
  });
}

bool has_disturbance(const Scenario& scenario) {
  return !std::ranges::all_of(scenario.failures,
                              [](const Failure& failure) { return excuses_nothing(failure.kind); });
}

// No trainer of the newest run ends, and no part of an earlier run goes on.
bool keeps_trainers(const Failure& failure) {
  if (failure.kind == Failure::Kind::job_restarts) return failure.hosts == 0;
  return !loses_trainers(failure.kind) && failure.kind != Failure::Kind::twins;
}

constexpr uint64_t kJoinedMs = 1'000;  // by then all hosts have told the coordinator of their ranks

// True if the coordinator's host does not fail, and the nodes of other hosts reach it.
bool spares_coordinator(const std::vector<Failure>& failures) {
  return std::ranges::all_of(failures, [](const Failure& failure) {
    switch (failure.kind) {
      case Failure::Kind::dies:  // nobody knows which ranks a host had that died before it joined
        return failure.host > 0 && failure.hosts != 0 && failure.at_ms > kJoinedMs;
      case Failure::Kind::stalls:
      case Failure::Kind::restarts:
      case Failure::Kind::stops:
        return failure.host > 0 && failure.hosts != 0;
      case Failure::Kind::ends:
      case Failure::Kind::vanishes:
      case Failure::Kind::reconnects:
      case Failure::Kind::reopens:
      case Failure::Kind::flips:
      case Failure::Kind::twins:
      case Failure::Kind::delays:
      case Failure::Kind::doubles:
      case Failure::Kind::reorders:
        return true;
      default:
        return excuses_nothing(failure.kind);
    }
  });
}

// A trainer may end before the coordinator has heard of its rank: if no launcher names the ranks, and another
// failure keeps its node from reporting it.
bool hides_a_rank(const Scenario& scenario) {
  if (scenario.node_start == NodeStart::launcher) return false;
  uint32_t early = 0;
  bool has_ended = false;
  for (const Failure& failure : scenario.failures) {
    if (failure.at_ms > kJoinedMs || excuses_nothing(failure.kind)) continue;
    ++early;
    has_ended = has_ended || loses_trainers(failure.kind);
  }
  return has_ended && early > 1;
}

// How long a save may take beyond staging and writing. Hosts that die delay it by host_lost_ms: once, and
// again if another coordinator begins to wait for them. The same holds for a trainer that vanishes while its
// node lives.
actors::TimeNs longest_wait_ms(const Scenario& scenario, const Profile& profile,
                               const actors::Timeouts& timeouts) {
  // Plans that are lists of items take as long as they take: until a waiting rank gives up.
  if (scenario.mode == SaveMode::collective && profile.items.is_modelled()) return timeouts.node_deadline_ms;
  // Of a rank-local save, a coordinator that starts again knows no ranks.
  bool is_known = scenario.mode != SaveMode::rank_local || spares_coordinator(scenario.failures);
  for (const Failure& failure : scenario.failures) {
    is_known = is_known && failure.kind != Failure::Kind::loses && failure.kind != Failure::Kind::disk_slow &&
               failure.kind != Failure::Kind::disk_hangs && failure.kind != Failure::Kind::disk_fails &&
               failure.kind != Failure::Kind::disk_full && failure.kind != Failure::Kind::reads_fail &&
               failure.kind != Failure::Kind::disk_loses;
  }
  is_known = is_known && !hides_a_rank(scenario);
  return is_known ? 2 * actors::TimeNs{timeouts.host_lost_ms} : actors::TimeNs{timeouts.node_deadline_ms};
}

constexpr double kUsualTail = 0.3;  // so much the factor two below allows for

// The longest time that storage may take to write `bytes`, the bytes of all hosts in one save, while other
// saves are in flight. It is twice what the rates of the profile give, because hosts do not write equally
// much.
actors::TimeNs longest_writing(const StorageCosts& storage, const Scenario& scenario, uint64_t bytes) {
  uint64_t rate = storage.client_bytes_per_s * scenario.hosts();
  if (rate == 0 || (storage.total_bytes_per_s != 0 && storage.total_bytes_per_s < rate)) {
    rate = storage.total_bytes_per_s;
  }
  // Of streams whose times differ much, as `shoal calibrate` may measure, one takes e^4σ times as long.
  const double sigma = storage.stream_tail_permille / 1e3;
  const auto tail = static_cast<uint64_t>(sigma > kUsualTail ? std::exp(4 * sigma) : 1);
  const uint64_t slowness = std::max<uint64_t>(scenario.stragglers.storage_permille, 1000) * tail;
  const auto single = static_cast<uint64_t>(transfer_ns(bytes, rate));
  return static_cast<actors::TimeNs>(
      multiply_divide(single, 2 * uint64_t{scenario.max_in_flight} * slowness, 1000));
}

// The most bytes that one of the first saves has staged.
uint64_t most_staged(const std::vector<TrainerTimings>& times, size_t saves) {
  uint64_t most = 0;
  for (size_t save = 0; save < saves; ++save) most = std::max(most, times[save].bytes_staged);
  return most;
}

actors::TimeNs failures_end(const Scenario& scenario, const actors::Timeouts& timeouts) {
  uint64_t end_ms = 0;
  for (const Failure& failure : scenario.failures) {
    if (excuses_nothing(failure.kind)) continue;
    uint64_t ends_ms = failure.ends_ms() + failure.by_ms;
    // A rank-local node that was requested to stop drains until its saves are decided.
    const bool drains = failure.kind == Failure::Kind::stops && scenario.mode == SaveMode::rank_local;
    if (drains) ends_ms += timeouts.node_deadline_ms;
    end_ms = std::max(end_ms, ends_ms);
  }
  return static_cast<actors::TimeNs>(end_ms) * actors::kMillisecond;
}

// Their hosts have one in common.
bool share_a_host(const Failure& a, const Failure& b) {
  return a.hosts == 0 || b.hosts == 0 || (a.host < b.host + b.hosts && b.host < a.host + a.hosts);
}

// A save ends in time even while a disk hangs, unless a write goes on between two hangs.
actors::TimeNs failures_that_delay_end(const Scenario& scenario, const actors::Timeouts& timeouts) {
  Scenario without_hangs = scenario;
  for (Failure& failure : without_hangs.failures) {
    if (failure.kind != Failure::Kind::disk_hangs) continue;
    const auto is_another = [&](const Failure& other) {
      return &other != &failure && other.kind == failure.kind && share_a_host(other, failure);
    };
    if (std::ranges::none_of(without_hangs.failures, is_another)) failure.for_ms = 0;
  }
  return failures_end(without_hangs, timeouts);
}

// From then on, no failure is an excuse any more.
actors::TimeNs recovered_at(const Scenario& scenario, const actors::Timeouts& timeouts) {
  const auto excuses = [](const Failure& failure) { return !excuses_nothing(failure.kind); };
  if (std::ranges::none_of(scenario.failures, excuses)) return 0;
  const bool all_reconnect = std::ranges::all_of(scenario.failures, [](const Failure& failure) {
    return failure.kind == Failure::Kind::reconnects || excuses_nothing(failure.kind);
  });
  if (all_reconnect) return failures_end(scenario, timeouts) + kReconnectedMs * actors::kMillisecond;
  return failures_end(scenario, timeouts) +
         (2 * actors::TimeNs{timeouts.host_lost_ms} + kRecoveryMs) * actors::kMillisecond;
}

bool falls_back(const Scenario& scenario) {
  return scenario.load_fallback == LoadFallback::previous;
}

// Passes the events of a run to oracles and listeners.
class RunWatch {
 public:
  RunWatch(EventHeap& events, VirtualCluster& cluster, const Scenario& scenario, const Profile& profile,
           uint32_t generation)
      : events_(events), cluster_(cluster), scenario_(scenario), profile_(profile), generation_(generation) {}

  // `loads`: this run loads the newest checkpoint before it saves.
  void begin(CountedTrainers& trainers, const SimulationListeners& listeners, bool loads) {
    const bool is_checked =
        listeners.has_oracles && (scenario_.ranks <= kRanksAlwaysChecked || !scenario_.failures.empty());
    if (is_checked) make_oracles(trainers);
    if (is_checked && loads) {
      load_oracles_.emplace(events_.now(), cluster_.root(), std::nullopt, falls_back(scenario_));
    }
    if (listeners.operation || loads) {
      cluster_.on_operation([this, hears = listeners.operation](size_t node, const actors::Operation& begun) {
        if (chosen_at_ < 0 && std::holds_alternative<actors::operation::PinAttempt>(begun)) {
          chosen_at_ = events_.now();
        }
        if (load_oracles_) load_oracles_->asked(events_.now(), begun);
        if (hears) hears(events_.now(), node, begun);
      });
    }
    if (!is_checked && !listeners.event && !listeners.decided) return;
    cluster_.on_event(
        [this, hears = listeners.event](size_t node, actors::RoleKind role, const actors::Event& event) {
          if (hears) hears(events_.now(), node, role, event, sender_of(node, event));
          const auto* done = std::get_if<actors::event::OperationDone>(&event);
          if (!oracles_ || done == nullptr || !done->result.ok()) return;
          if (load_oracles_) load_oracles_->answered(events_.now(), *done->result);
          const auto* decision = std::get_if<std::shared_ptr<const storage::Decision>>(&*done->result);
          if (decision != nullptr) oracles_->answered(events_.now(), *decision);
        });
    trainers.on_decision(
        [this, &trainers, hears = listeners.decided](Rank rank, const local::Decided& decided) {
          if (hears) hears(events_.now(), rank, decided);
          const AttemptKey key{generation_, decided.step, decided.attempt};
          if (oracles_) oracles_->notified(events_.now(), rank, key, decided.outcome);
          if (oracles_) check_replicas(trainers, key, decided);
        });
  }
  std::function<void(const Failure&)> failure_listener(const SimulationListeners& listeners) {
    if (!listeners.failure) return nullptr;
    return [this, hears = listeners.failure](const Failure& failure) { hears(events_.now(), failure); };
  }
  Oracles* oracles() { return oracles_ ? &*oracles_ : nullptr; }
  void save_begins(uint32_t save) {
    if (!oracles_) return;
    changes_before_.resize(save, cluster_.storage().changes);
    oracles_->save_begins(events_.now(), save);
  }
  void loaded() {
    if (load_oracles_) load_oracles_->loaded();
  }
  actors::TimeNs chosen_at() const { return chosen_at_; }  // negative: no node has pinned a checkpoint
  bool stops() {
    return oracles_ && (oracles_->stops(events_.now()) || replicas_violation_ || has_stopped_late() ||
                        (load_oracles_ && load_oracles_->violation()));
  }
  // `is_done`: the run has ended.
  std::optional<Violation> finish(bool is_done) {
    if (!oracles_) return std::nullopt;
    if (is_done) oracles_->finish(events_.now());
    if (is_done && load_oracles_) {
      load_oracles_->finish(events_.now(), generation_, scenario_.mode == SaveMode::rank_local);
    }
    if (load_oracles_ && load_oracles_->violation()) return load_oracles_->violation();
    if (replicas_violation_) return replicas_violation_;
    if (has_stopped_late()) return stop_violation_;
    return oracles_->violation();
  }

 private:
  // stops-in-time: a node that is to end has drained before node_deadline_ms ends it, if its saves are
  // decided earlier.
  bool has_stopped_late() {
    const auto& undrained = cluster_.undrained();
    if (!undrained || stop_violation_) return stop_violation_.has_value();
    const actors::Timeouts timeouts = cluster_.timeouts();
    const uint64_t most_ms = longest_wait_ms(scenario_, profile_, timeouts) + timeouts.host_lost_ms +
                             2 * uint64_t{timeouts.drain_patience_ms} + kSaveMarginMs;
    const actors::TimeNs due = std::max(undrained->asked, failures_end(scenario_, timeouts)) +
                               static_cast<actors::TimeNs>(most_ms) * actors::kMillisecond;
    const actors::TimeNs ended = undrained->asked + timeouts.node_deadline_ms * actors::kMillisecond;
    if (has_disturbance(scenario_) && ended < due) return false;
    stop_violation_ = {"stops-in-time", events_.now(),
                       fmt::format("node {} was to end at {} ms, and has not drained", undrained->node,
                                   undrained->asked / actors::kMillisecond)};
    return true;
  }
  // replicas-are-named: a save says that replicas differ if and only if a flipped bit was digested, and names
  // the tensor. Failures of other kinds may lose what was digested.
  void check_replicas(const CountedTrainers& trainers, const AttemptKey& key, const local::Decided& decided) {
    const std::string& said = decided.outcome.ok() ? decided.warning : decided.outcome.message();
    const bool says_so = said.find("replicas differ") != std::string::npos;
    const auto& differing = trainers.times()[decided.step - 1].differing;
    bool names_one = false;
    for (const auto& [rank, tensors] : differing) {
      for (const std::string& tensor : tensors) {
        names_one = names_one || said.find("'" + tensor + "'") != std::string::npos;
      }
    }
    const bool is_only_flipped = std::ranges::all_of(
        scenario_.failures, [](const Failure& failure) { return failure.kind == Failure::Kind::flips; });
    const bool is_wrong = says_so ? !names_one : !differing.empty() && is_only_flipped;
    const bool is_wrong_policy =
        says_so && decided.outcome.ok() == (scenario_.replica_check == ReplicaCheck::abort);
    if ((!is_wrong && !is_wrong_policy) || replicas_violation_) return;
    replicas_violation_ = Violation{
        "replicas-are-named", events_.now(),
        to_string(key) +
            (differing.empty()
                 ? ": no bit has flipped in what was digested"
                 : ": a bit has flipped in what " + std::to_string(differing.size()) + " ranks digested") +
            ", and trainers received: '" + said + "'"};
  }
  void make_oracles(CountedTrainers& trainers) {
    Oracles::Facts facts;
    facts.generation = generation_;
    facts.ranks = scenario_.ranks;
    const actors::Timeouts timeouts = cluster_.timeouts();
    facts.failures_end = failures_that_delay_end(scenario_, timeouts);
    // Plans that are lists of items take as long as they take, and so does a job with any number of its own.
    // The nodes of a large job that start again occupy the storage for longer than they load.
    const bool is_storm = scenario_.max_restarts != 0 && scenario_.ranks > kRanksAlwaysChecked;
    const bool is_prompt = profile_.items.plan_ns == 0 && scenario_.profile_numbers.empty() && !is_storm;
    if (is_prompt) facts.recovered = recovered_at(scenario_, timeouts);
    const actors::TimeNs skew_ms =
        static_cast<actors::TimeNs>(scenario_.arrival_skew_ms + (scenario_.arrival_skew_us + 999) / 1000);
    const actors::TimeNs margin_ms = kSaveMarginMs + skew_ms;
    // One after the other. A rank-local rank reads its manifest and the headers of its files back.
    const uint64_t looks_of_a_rank = scenario_.mode == SaveMode::rank_local ? kLooksOfARankLocalRank : 1;
    const uint64_t looks = kLooksOfASave + looks_of_a_rank * scenario_.ranks;
    facts.prompt_deadline =
        prompt_ns() + skew_ms * actors::kMillisecond + times(looks, profile_.storage.look_ns) + merging();
    facts.save_deadline = (longest_wait_ms(scenario_, profile_, timeouts) + margin_ms) * actors::kMillisecond;
    facts.first_deadline = (timeouts.attempt_deadline_ms + margin_ms) * actors::kMillisecond;
    facts.max_in_flight = scenario_.max_in_flight;
    facts.needs_no_abort = needs_no_abort(scenario_, timeouts);
    facts.loses_only_trainers = loses_only_trainers(scenario_);
    facts.all_staged = [this, &trainers](uint32_t save) {
      return trainers.times()[save - 1].ranks_staged == scenario_.ranks;
    };
    facts.notified_at = [&trainers](uint32_t save) { return trainers.times()[save - 1].notified_at; };
    facts.writing = [this, &trainers](uint32_t save) {
      // The writes of earlier saves may be in its way.
      return longest_writing(profile_.storage, scenario_, most_staged(trainers.times(), save)) +
             creating(save) + syncing();
    };
    // A node that ends because its trainers have closed leaves what others must still decide.
    const bool leaves = scenario_.close_when == CloseWhen::written && has_disturbance(scenario_);
    facts.lives = [&trainers, leaves](Rank rank) {
      return trainers.alive(rank) && !(leaves && trainers.has_closed(rank));
    };
    if (scenario_.max_restarts == 0) {
      facts.coordinator = [this] { return cluster_.coordinator(); };
      facts.causes = std::make_shared<AbortCauses>(AbortCauses::Facts{
          scenario_.failures, events_.now(),
          static_cast<actors::TimeNs>(timeouts.host_lost_ms) * actors::kMillisecond,
          [this](Rank rank) -> size_t { return rank / scenario_.ranks_per_host; },
          [&trainers](Rank rank, uint32_t save) { return trainers.times()[save - 1].blocked[rank] >= 0; },
          scenario_.close_when == CloseWhen::written});
    }
    facts.waits_for_disk = [&trainers, until = failures_end(scenario_, timeouts)](actors::TimeNs now,
                                                                                  Rank rank) {
      const actors::TimeNs recovers = until + kSaveMarginMs * actors::kMillisecond;
      return now < recovers && (now >= until || trainers.waits_for_slab(rank));
    };
    facts.assigned_bytes = [this](const storage::Manifest& manifest, Rank rank) {
      auto plan = cluster_.plans().plan(*manifest.world, rank, manifest.options);
      return plan.ok() ? (*plan)->tensor_bytes : 0;
    };
    oracles_.emplace(std::move(facts), cluster_.root());
    cluster_.on_message([this](size_t from, size_t to, const actors::WireMessage&, uint64_t bytes) {
      oracles_->sent(events_.now(), from, to, bytes);
    });
    trainers.on_slab([this](Rank rank, uint32_t in_use) { oracles_->slabs(events_.now(), rank, in_use); });
    cluster_.on_unmapped_slab([this](size_t node, actors::ClientId client) {
      oracles_->slab_unmapped(events_.now(), node, rank_of(client));
    });
  }
  // How long the metadata server has served creations since the save began. No role polls by creating names,
  // so a save that waits for nothing gets no longer deadline.
  actors::TimeNs creating(uint32_t save) const {
    const uint64_t before = save <= changes_before_.size() ? changes_before_[save - 1] : 0;
    return times(cluster_.storage().changes - before, profile_.storage.change_ns);
  }
  // How long the syncs of the files of a host and of the manifest may take, and the catalog's.
  actors::TimeNs syncing() const {
    const uint64_t syncs = 2 + scenario_.ranks_per_host / actors::kBulkThreads;
    const uint64_t slowness = scenario_.model == "tiny" ? 1 : kSlowestRoundTrip;
    return times(syncs * slowness, profile_.storage.sync_ns) + 2 * profile_.storage.catalog_ns;
  }
  // How long it may take to merge the manifests of a rank-local save.
  actors::TimeNs merging() const {
    if (scenario_.mode != SaveMode::rank_local) return 0;
    return times(kSlowestRoundTrip * (scenario_.ranks / kMergedAtOnce), profile_.storage.round_trip_ns);
  }
  // Rank-local nodes poll the root, and more and more slowly.
  actors::TimeNs prompt_ns() const {
    if (scenario_.mode == SaveMode::rank_local || scenario_.model != "tiny") {
      return kPromptMs * actors::kMillisecond;
    }
    return kTinyPromptMs * actors::kMillisecond + kPromptRoundTrips * profile_.storage.round_trip_ns;
  }
  size_t sender_of(size_t node, const actors::Event& event) const {
    const auto* received = std::get_if<actors::event::Received>(&event);
    if (received == nullptr || received->from == actors::kThisNode) return node;
    if (received->from >= actors::kFirstSharer) return received->from - actors::kFirstSharer;
    if (received->from == actors::kCoordinatorNode) return cluster_.coordinator_of(node);
    return cluster_.node_of(received->from);
  }

  EventHeap& events_;
  VirtualCluster& cluster_;
  const Scenario& scenario_;
  const Profile& profile_;
  const uint32_t generation_;
  std::optional<Oracles> oracles_;
  std::optional<LoadOracles> load_oracles_;
  std::optional<Violation> replicas_violation_, stop_violation_;
  actors::TimeNs chosen_at_ = -1;
  std::vector<uint64_t> changes_before_;  // by save: what the storage had changed when it began
};

// True: the run must end. Publishes the progress; `thoroughly`: also the values that need a pass over all
// ranks.
bool look(SimulationWatch& watch, const EventHeap& events, const VirtualCluster& cluster,
          const CountedTrainers& trainers, bool thoroughly) {
  watch.virtual_now.store(events.now(), std::memory_order_relaxed);
  watch.events.store(cluster.events(), std::memory_order_relaxed);
  if (thoroughly) watch.saves_decided.store(trainers.saves_decided(), std::memory_order_relaxed);
  watch.milestones.store(trainers.milestones(), std::memory_order_relaxed);
  return watch.stop != nullptr && watch.stop();
}

std::vector<std::vector<Rank>> place_ranks(const Scenario& scenario) {
  std::vector<std::vector<Rank>> nodes(scenario.hosts());
  for (Rank rank = 0; rank < scenario.ranks; ++rank) nodes[rank / scenario.ranks_per_host].push_back(rank);
  return nodes;
}

storage::RetentionPolicy retention_of(const Scenario& scenario) {
  return {.keep_last = scenario.keep_last, .keep_every = scenario.keep_every};
}

VirtualCluster::Job nodes_of(const Scenario& scenario, uint32_t generation,
                             std::shared_ptr<CountedRoot> root = nullptr) {
  return {.mode = scenario.mode,
          .ranks_of_node = place_ranks(scenario),
          .has_launcher = scenario.node_start == NodeStart::launcher,
          .world_size = scenario.ranks,
          .max_direct_nodes = scenario.max_direct_nodes,
          .generation = generation,
          .retention = retention_of(scenario),
          .timeouts = timeouts_of(scenario.timeouts),
          .root = std::move(root),
          .parts_slab_bytes = scenario.parts_slab_bytes()};
}

// The job that loads, from its start until all ranks have their bytes. It has its own clock.
class RestartedJob {
 public:
  static Result<std::unique_ptr<RestartedJob>> make(const Scenario& saved, const Model& model,
                                                    const Profile& profile, uint32_t generation,
                                                    StoredPayload* payload,
                                                    const SimulationListeners& listeners) {
    const Scenario scenario = loading_job(saved);
    SHOAL_ASSIGN_OR_RETURN(MeshShape mesh, resolve_mesh(scenario, model));
    CountedLoads::Job job;
    SHOAL_ASSIGN_OR_RETURN(job.layouts, layouts_of_stages(model, mesh));
    job.ranks = scenario.ranks;
    job.ranks_per_host = scenario.ranks_per_host;
    job.method = scenario.load_method;
    job.falls_back = falls_back(scenario);
    job.payload = payload;
    std::unique_ptr<RestartedJob> made(new RestartedJob(scenario, mesh, profile, generation, std::move(job)));
    if (payload != nullptr) made->cluster_.keep_bytes(payload);
    made->cluster_.count_paths(listeners.paths);
    made->trace_ = listeners.trace;
    return made;
  }

  // Moves the contents of `root` to the root of this job, and returns that one. It lives as long as this
  // object. Oracles check the load if they checked the saves.
  CountedRoot* take_over(CountedRoot& root, bool is_checked) {
    const std::optional<AttemptKey> before = root.latest();
    cluster_.counted_root().continue_from(root);
    if (is_checked) {
      oracles_.emplace(events_.now(), cluster_.root(), before, falls_back(loaded_by_));
      cluster_.on_operation(
          [this](size_t, const actors::Operation& operation) { oracles_->asked(events_.now(), operation); });
      cluster_.on_event([this](size_t, actors::RoleKind, const actors::Event& event) {
        const auto* done = std::get_if<actors::event::OperationDone>(&event);
        if (done != nullptr && done->result.ok()) oracles_->answered(events_.now(), *done->result);
      });
    }
    return &cluster_.counted_root();
  }

  // Adds the load of this job to the report.
  Status run(SimulationWatch* watch, SimulationReport& report) {
    const uint64_t milestones = watch == nullptr ? 0 : watch->milestones.load(std::memory_order_relaxed);
    if (trace_ != nullptr) trace_->begin_run(trace_->ends());
    cluster_.record(trace_);
    loads_.start();
    for (uint64_t steps = 0;
         !loads_.done() && loads_.failure().ok() && !events_.empty() && events_.now() < kLongestSave;
         ++steps) {
      if (watch != nullptr && steps % kStepsBetweenLooks == 0) {
        watch->virtual_now.store(report.ended + events_.now(), std::memory_order_relaxed);
        watch->events.store(report.events + cluster_.events(), std::memory_order_relaxed);
        watch->milestones.store(milestones + loads_.milestones(), std::memory_order_relaxed);
        report.stopped_early = watch->stop != nullptr && watch->stop();
        if (report.stopped_early) return ok_status();
      }
      events_.run_next();
      series_.take(events_.now(), cluster_.coordinator_queue());
      if (oracles_ && oracles_->violation()) {
        report.violation = oracles_->violation();
        return ok_status();
      }
    }
    SHOAL_RETURN_IF_ERROR(loads_.failure().with_context("a load"));
    SHOAL_RETURN_IF_ERROR(loads_.incomplete());
    if (!loads_.done()) {
      return Status(Code::deadline_exceeded, "not every rank received its bytes within a virtual day");
    }
    report.loads.push_back({loaded_by_.ranks, nodes_, mesh_, spread_of(loads_.found()),
                            spread_of(loads_.loaded()), loads_.bytes_wanted(), loads_.bytes_passed(),
                            cluster_.shared_bytes(), PhaseMeter(cluster_, series_).take()});
    if (trace_ != nullptr) trace_load(report.loads.size());
    report.events += cluster_.events();
    report.steps += events_.executed();
    report.trace_hash = mix64(report.trace_hash ^ cluster_.trace_hash());
    for (const std::string& warning : cluster_.warnings()) report.warnings.push_back(warning);
    return ok_status();
  }

 private:
  RestartedJob(const Scenario& scenario, const MeshShape& mesh, const Profile& profile, uint32_t generation,
               CountedLoads::Job job)
      : loaded_by_(scenario),
        mesh_(mesh),
        nodes_(static_cast<uint32_t>(place_ranks(scenario).size())),
        cluster_(events_, profile, mix64(scenario.seed ^ generation), nodes_of(scenario, generation)),
        series_([this] { return cluster_.coordinator_load(); }),
        loads_(events_, cluster_, profile, std::move(job)) {
    cluster_.counted_root().will_be_loaded();
  }

  void trace_load(size_t load) const {
    for (Rank rank = 0; rank < loaded_by_.ranks && rank / loaded_by_.ranks_per_host < kMostTracedNodes;
         ++rank) {
      trace_->rank_states(rank / loaded_by_.ranks_per_host,
                          "load " + std::to_string(load) + ", rank " + std::to_string(rank), 0,
                          {{"finds the checkpoint", loads_.found()[rank]}, {"loads", loads_.loaded()[rank]}});
    }
  }

  Trace* trace_ = nullptr;
  const Scenario loaded_by_;
  const MeshShape mesh_;
  const uint32_t nodes_;
  EventHeap events_;
  VirtualCluster cluster_;
  CoordinatorSeries series_;
  CountedLoads loads_;
  std::optional<LoadOracles> oracles_;
};

// The work of the scenario's trainers. Precondition: `mesh` is the mesh of the scenario.
Result<CountedTrainers::Job> job_of(const Scenario& scenario, const Model& model, const MeshShape& mesh) {
  CountedTrainers::Job job;
  SHOAL_ASSIGN_OR_RETURN(job.layouts, layouts_of_stages(model, mesh));
  if (scenario.later_mesh_from != 0) {
    SHOAL_ASSIGN_OR_RETURN(const MeshShape later, resolve_mesh(with_later_mesh(scenario), model));
    SHOAL_ASSIGN_OR_RETURN(job.later_layouts, layouts_of_stages(model, later));
    job.later_from = scenario.later_mesh_from;
    job.later_stages = scenario.later_mesh_stages;
  }
  job.world = model.world;
  job.ranks = scenario.ranks;
  job.ranks_per_host = scenario.ranks_per_host;
  job.options.mode = scenario.mode;
  job.options.unit_bytes = scenario.unit_bytes;
  job.options.dedupe = scenario.mode == SaveMode::rank_local ? Dedupe::none : scenario.dedupe;
  job.saves = scenario.saves;
  job.max_in_flight = scenario.max_in_flight;
  job.slab_bytes = scenario.slab_bytes;
  job.parts_permille = scenario.parts_permille;
  job.parts_slab_bytes = scenario.parts_slab_bytes();
  job.interval_ns = static_cast<actors::TimeNs>(scenario.interval_ms) * actors::kMillisecond;
  job.skew_ns =
      static_cast<actors::TimeNs>(scenario.arrival_skew_ms * 1000 + scenario.arrival_skew_us) * 1000;
  job.seed = scenario.seed;
  job.options.replica_check = scenario.replica_check;
  if (scenario.has_planners) job.planner_rank = static_cast<Rank>(scenario.seed % scenario.ranks);
  job.keeps_offers = !scenario.failures.empty();
  job.closes_when_written = scenario.close_when == CloseWhen::written;
  job.is_disturbed = has_disturbance(scenario);
  const bool is_at_once = scenario.node_start == NodeStart::launcher || !job.keeps_offers;
  job.attach_skew_ns = is_at_once ? 0 : kAttachSkewNs;
  const std::vector<uint32_t> slow =
      draw_stragglers(scenario.stragglers, scenario.hosts(), stream_seed(scenario.seed, Stream::stragglers));
  if (!slow.empty()) job.copy_permille.assign(scenario.hosts(), 1000);
  for (uint32_t host : slow) job.copy_permille[host] = scenario.stragglers.copy_permille;
  return job;
}

// One run of the job on the root: a generation. All runs of a simulation share clock and root.
class JobRun {
 public:
  struct Made {
    Scenario scenario;
    MeshShape mesh;
    CountedTrainers::Job job;
  };
  static Result<Made> make(const Scenario& scenario, const Model& model) {
    Made made{scenario, {}, {}};
    SHOAL_ASSIGN_OR_RETURN(made.mesh, resolve_mesh(scenario, model));
    SHOAL_ASSIGN_OR_RETURN(made.job, job_of(scenario, model, made.mesh));
    return made;
  }

  // `before`: the run before this one on the same root. Null: this is the first.
  JobRun(EventHeap& events, const Profile& profile, Made made, const JobRun* before,
         const SimulationListeners& listeners)
      : events_(events),
        profile_(profile),
        scenario_(std::move(made.scenario)),
        mesh_(made.mesh),
        generation_(before == nullptr ? kSimulatedGeneration : before->generation_ + 1),
        cluster_(
            events, profile, before == nullptr ? scenario_.seed : mix64(scenario_.seed ^ generation_),
            nodes_of(scenario_, generation_, before == nullptr ? nullptr : before->cluster_.shared_root())),
        series_([this] { return cluster_.coordinator_load(); }),
        meter_(cluster_, series_),
        checks_(events, cluster_, scenario_, profile, generation_) {
    for (uint32_t host : draw_stragglers(scenario_.stragglers, scenario_.hosts(),
                                         stream_seed(scenario_.seed, Stream::stragglers))) {
      cluster_.slow_down(host, scenario_.stragglers.network_permille, scenario_.stragglers.storage_permille);
    }
    const bool is_loaded =
        scenario_.max_restarts != 0 ||
        std::any_of(scenario_.failures.begin(), scenario_.failures.end(),
                    [](const Failure& failure) { return failure.kind == Failure::Kind::job_restarts; });
    if (scenario_.loads != 0 || scenario_.reads != 0 || scenario_.readers != 0 || is_loaded)
      cluster_.counted_root().will_be_loaded();
    if (scenario_.payload == Payload::full) {
      payload_ = before == nullptr ? std::make_unique<StoredPayload>()
                                   : std::make_unique<StoredPayload>(*before->payload_);
      cluster_.keep_bytes(payload_.get());
      if (listeners.is_rehearsal) cluster_.skip_codecs();
    }
    made.job.payload = payload_.get();
    made.job.generation = generation_;
    made.job.seed = before == nullptr ? scenario_.seed : mix64(scenario_.seed ^ generation_);
    layouts_ = made.job.layouts;
    if (before != nullptr) {
      CountedLoads::Job load;
      load.layouts = made.job.layouts;
      load.ranks = scenario_.ranks;
      load.ranks_per_host = scenario_.ranks_per_host;
      load.method = scenario_.load_method;
      load.falls_back = falls_back(scenario_);
      load.payload = payload_.get();
      loads_.emplace(events, cluster_, profile, std::move(load));
      earlier_host_lives_ = !before->end_ || before->end_->coordinator_host_lives;
      found_ = RootBefore::of(cluster_.counted_root(), before->generation_,
                              before->end_ ? before->end_->saves_begun : 0);
    }
    trainers_.emplace(events, cluster_, profile, std::move(made.job), [this](uint32_t save) {
      phases_.push_back(meter_.take());
      checks_.save_begins(save);
      if (reads_) reads_->save_begins();
      begin_readers(save);
    });
    if (scenario_.reads != 0) add_reads();
    if (scenario_.close_when != CloseWhen::never) {
      job_end_.emplace(events_, cluster_, *trainers_, scenario_.ranks_per_host);
      trainers_->on_closed([this](Rank rank) { job_end_->closed(rank); });
    }
    paths_ = listeners.paths;
    draw_readers();
    cluster_.count_paths(listeners.paths);
    cluster_.record(listeners.trace);
    trace_ = listeners.trace;
    checks_.begin(*trainers_, listeners, loads_.has_value());
    injector_.emplace(events, cluster_, *trainers_);
  }

  void start() {
    began_ = roles_began_ = events_.now();
    if (!loads_ && !reads_) return trainers_->start();
    if (!loads_ || scenario_.max_restarts == 0) return start_roles();
    is_connecting_ = true;
    begin_present_hazards([](const Failure& failure) { return is_of_disk(failure.kind); });
    cluster_.open_and_connect(
        earlier_host_lives_, [this] { claimed_ = events_.now(); },
        [this] {
          connected_ = roles_began_ = events_.now();
          is_connecting_ = false;
          start_roles();
        });
  }
  // Its nodes open the root and find each other, so that no role has started.
  bool is_connecting() const { return is_connecting_; }
  void start_roles() {
    trainers_->start_with_load([this](actors::ClientId client, const local::LocalMessage& message) {
      if (loads_) loads_->hear(client, message);
      if (reads_) reads_->hear(client, message);
    });
    trainers_->on_attached([this](Rank rank) {
      if (loads_) loads_->load_again(rank);
      if (reads_) reads_->forget(rank);
    });
    if (!loads_) return trainers_->train_now();
    loads_->ask_only_if([this](Rank rank) { return trainers_->is_attached(rank); });
    loads_->load_with_retries();
    is_loading_ = true;
    begin_present_hazards([this](const Failure& failure) {
      const bool has_begun = connected_ >= 0 && is_of_disk(failure.kind);
      const bool is_of_hosts =
          failure.kind >= Failure::Kind::cut && failure.kind <= Failure::Kind::disk_loses;
      return (is_of_hosts && !has_begun) || failure.kind == Failure::Kind::corrupts;
    });
  }
  // What is wrong with the hosts' links and disks outlives the run before.
  void begin_present_hazards(const std::function<bool(const Failure&)>& is_meant) {
    for (const Failure& failure : scenario_.failures) {
      const auto at = static_cast<actors::TimeNs>(failure.at_ms) * actors::kMillisecond;
      const auto until = static_cast<actors::TimeNs>(failure.ends_ms()) * actors::kMillisecond;
      if (!is_meant(failure) || at > events_.now() || until <= events_.now()) continue;
      Failure rest = failure;
      rest.for_ms = 1 + static_cast<uint64_t>((until - events_.now()) / actors::kMillisecond);
      cluster_.begin_hazard(rest);
    }
  }
  // After each event. True: the simulation must end.
  bool step() {
    series_.take(events_.now(), cluster_.coordinator_queue());
    if (is_loading_ && has_loaded()) {
      is_loading_ = false;
      checks_.loaded();
      if (!end_) has_resumed();
      trainers_->train_now();
    }
    return checks_.stops() || (loads_ && !loads_->incomplete().ok()) ||
           ((reads_ || !readers_.empty()) && wrong_read());
  }
  // A failure has ended a trainer, which the launcher does not know yet. The others wait for that trainer.
  void fail(const Failure& failure) {
    end_ = RunEnd{failure, events_.now()};
    trainers_->stop_training();
    if (is_connecting_) cluster_.stop_connecting();
  }
  bool has_failed() const { return end_.has_value(); }
  // No process of it is left.
  bool is_over() const { return has_ended_ && scenario_.max_restarts != 0; }
  const std::optional<RunEnd>& ended() const { return end_; }
  // True: the failure ends a trainer of this run.
  bool ends_trainers(const Failure& failure) const {
    if (failure.kind == Failure::Kind::dies) return failure.host < cluster_.nodes();
    const bool is_end = failure.kind == Failure::Kind::ends || failure.kind == Failure::Kind::vanishes;
    return is_end && failure.rank < scenario_.ranks;
  }
  // Kills the processes on the hosts of this failure.
  void end(const Failure& restart) {
    has_ended_ = true;
    if (!end_) end_ = RunEnd{restart, events_.now()};
    end_->ended = events_.now();
    end_->saves_begun = trainers_->saves_begun();
    end_->coordinator_host_lives =
        cluster_.alive(cluster_.coordinator()) &&
        (end_->failure.kind != Failure::Kind::dies || end_->failure.host > cluster_.coordinator());
    is_connecting_ = false;
    injector_->end_run(restart);
    if (checks_.oracles()) checks_.oracles()->superseded();
    if (reads_) reads_->stop();
  }
  // Whether a load takes longer than it may. `failures_end`: when all failures are over.
  std::optional<Violation> overdue_load(actors::TimeNs failures_end) {
    const actors::TimeNs due = std::max(roles_began_, failures_end) + longest_load();
    if (!is_loading_ || end_ || events_.now() < due || launchers_give_up()) return std::nullopt;
    return Violation{"load-ends-in-time", events_.now(),
                     "the load of generation " + std::to_string(generation_) + " began at " +
                         std::to_string(began_ / actors::kMillisecond) + " ms, and has not ended"};
  }

  void end_job() {
    if (!job_end_) return;
    trainers_->close_all();
    job_end_->end_empty();
  }
  bool nodes_have_ended() const { return !job_end_ || job_end_->done(); }

  bool reads_are_done() {
    const auto is_done = [](const auto& reader) { return reader->done(); };
    return (!reads_ || reads_->done()) && std::ranges::all_of(readers_, is_done);
  }
  std::optional<Violation> wrong_read() {
    for (const auto& reader : readers_) {
      if (const auto& violation = reader->check()) return violation;
    }
    return reads_ ? reads_->check(events_.now()) : std::optional<Violation>();
  }

  // When the trainers of a run have attached: one that starts again, or one whose trainers this failure ends.
  actors::TimeNs attached_at(const Failure& failure) const {
    if (loads_) return roles_began_ + kAttachedNs;
    const bool is_at_once = scenario_.node_start == NodeStart::launcher || !ends_trainers(failure);
    return is_at_once ? 0 : kAttachSkewNs + kAttachedNs;
  }

  bool done() const { return trainers_->done(); }
  bool goes_on() const {
    return events_.now() - std::max(roles_began_, trainers_->newest_save_began()) < kLongestSave;
  }
  Status failure() const {
    SHOAL_RETURN_IF_ERROR(trainers_->failure());
    if (loads_) SHOAL_RETURN_IF_ERROR(loads_->incomplete());
    return ok_status();
  }
  VirtualCluster& cluster() { return cluster_; }
  CountedTrainers& trainers() { return *trainers_; }
  FailureInjector& injector() { return *injector_; }
  RunWatch& checks() { return checks_; }
  CoordinatorSeries& series() { return series_; }
  StoredPayload* payload() { return payload_.get(); }
  const MeshShape& mesh() const { return mesh_; }
  uint32_t generation() const { return generation_; }
  const std::vector<LayoutPtr>& layouts() const { return layouts_; }

  // Adds the saves of this run. `before`: how the run before it ended; none: this is the first.
  void report_to(SimulationReport& report, const std::optional<RunEnd>& before) {
    phases_.push_back(meter_.take());
    if (report.saves.empty()) report.joining = phases_.front();
    size_t saves = report.stopped_early ? trainers_->saves_decided() : trainers_->times().size();
    // Not what the launcher has killed before it began.
    if (scenario_.max_restarts != 0 && end_) saves = std::min<size_t>(saves, trainers_->saves_begun());
    for (size_t save = 0; save < saves; ++save) {
      report.saves.push_back(report_of(trainers_->times()[save]));
      report.saves.back().generation = generation_;
      report.saves.back().step = static_cast<uint32_t>(save + 1);
      if (save + 1 < phases_.size()) report.saves.back().costs = phases_[save + 1];
    }
    if (trace_ != nullptr) trace_saves(saves);
    if (loads_) report.restarts.push_back(restart_report(*before));
    report.events += cluster_.events();
    report.trace_hash = loads_ ? mix64(report.trace_hash ^ cluster_.trace_hash()) : cluster_.trace_hash();
    for (const std::string& warning : cluster_.warnings()) report.warnings.push_back(warning);
    for (const auto& reader : readers_) report.trace_hash = mix64(report.trace_hash ^ reader->trace_hash());
    if (reads_) report.reads += reads_->begun();
    if (reads_) report.failed_reads += reads_->failed();
  }

 private:
  // All ranks have loaded.
  void has_resumed() {
    resumed_ = events_.now();
    newer_ = newer_attempts(cluster_.counted_root(), found_, loaded_by_any());
  }
  // What the loads of this run chose, as far as some rank knows it.
  std::optional<AttemptKey> loaded_by_any() const {
    for (Rank rank = 0; rank < scenario_.ranks; ++rank) {
      if (const auto found = loads_->found_by(rank)) return found;
    }
    return std::nullopt;
  }
  RestartReport restart_report(const RunEnd& before) {
    RestartReport restart;
    restart.failure = before.failure;
    restart.failed = before.failed;
    restart.ended = before.ended;
    restart.began = began_;
    restart.generation = generation_;
    restart.ranks = scenario_.ranks;
    restart.nodes = static_cast<uint32_t>(cluster_.nodes());
    restart.mesh = mesh_;
    restart.claimed = claimed_;
    restart.connected = connected_;
    restart.chosen = checks_.chosen_at();
    restart.found = since_began(loads_->found());
    restart.loaded = since_began(loads_->loaded());
    restart.resumed = resumed_;
    restart.checkpoint = loaded_by_any();
    if (resumed_ < 0) newer_ = newer_attempts(cluster_.counted_root(), found_, restart.checkpoint);
    restart.newer = newer_;
    restart.bytes_wanted = loads_->bytes_wanted();
    restart.bytes_passed = loads_->bytes_passed();
    restart.bytes_between = cluster_.shared_bytes();
    restart.costs = phases_.front();
    return restart;
  }

  void trace_saves(size_t saves) const {
    for (size_t save = 0; save < saves; ++save) {
      const TrainerTimings& times = trainers_->times()[save];
      for (Rank rank = 0; rank < scenario_.ranks && rank / scenario_.ranks_per_host < kMostTracedNodes;
           ++rank) {
        trace_->rank_states(rank / scenario_.ranks_per_host,
                            "save " + std::to_string(save + 1) + ", rank " + std::to_string(rank),
                            times.called[rank],
                            {{"waits for its plan", times.plan_received[rank]},
                             {"copies", times.blocked[rank]},
                             {"is written", times.written[rank]},
                             {"waits for the decision", times.committed[rank]}});
      }
    }
  }
  // Times of a load are on the clock of the simulation.
  Spread since_began(std::vector<actors::TimeNs> times) const {
    for (actors::TimeNs& time : times) time -= began_;
    return spread_of(std::move(times));
  }
  void add_reads() {
    CheckpointReads::Job job;
    job.layouts = layouts_;
    job.ranks = scenario_.ranks;
    job.ranks_per_host = scenario_.ranks_per_host;
    job.saves = scenario_.saves;
    job.reads = scenario_.reads;
    job.interval_ns = static_cast<actors::TimeNs>(scenario_.interval_ms) * actors::kMillisecond;
    job.seed = mix64(scenario_.seed ^ generation_);
    job.payload = payload_.get();
    job.failures_end = failures_end(scenario_, cluster_.timeouts());
    job.recovered = recovered_at(scenario_, cluster_.timeouts());
    reads_.emplace(events_, cluster_, *trainers_, std::move(job));
  }

  // Each begins some time after the begin of a random save.
  void draw_readers() {
    Random random(stream_seed(mix64(scenario_.seed ^ generation_), Stream::readers));
    const uint64_t spread_ns = 2 * scenario_.interval_ms * actors::kMillisecond + kLeastSpreadNs;
    for (uint32_t i = 0; i < scenario_.readers; ++i) {
      const auto save = static_cast<uint32_t>(1 + random.below(scenario_.saves));
      readers_to_begin_.emplace(save, random.below(spread_ns));
    }
  }
  void begin_readers(uint32_t save) {
    const auto [from, to] = readers_to_begin_.equal_range(save);
    for (auto reader = from; reader != to; ++reader) {
      const auto delay = static_cast<actors::TimeNs>(reader->second);
      events_.schedule(events_.now() + delay, [this, seed = mix64(scenario_.seed ^ reader->second)] {
        if (has_ended_) return;
        ReadingJob::Job job{.layouts = layouts_,
                            .ranks = scenario_.ranks,
                            .ranks_per_host = scenario_.ranks_per_host,
                            .method = scenario_.load_method,
                            .falls_back = falls_back(scenario_),
                            .timeouts = timeouts_of(scenario_.timeouts),
                            .seed = seed};
        readers_.push_back(
            std::make_unique<ReadingJob>(events_, profile_, cluster_, *payload_, std::move(job), paths_));
      });
    }
  }

  // The longest time that a load may take while nothing fails: earlier attempts must be decided first.
  static constexpr actors::TimeNs kLongestLoad = 180'000 * actors::kMillisecond;

  // Of a large job the bytes may take longer, and so may the requests of all hosts to one prefix.
  actors::TimeNs longest_load() const {
    if (scenario_.ranks > kRanksAlwaysChecked) return kLongestSave;
    return kLongestLoad + longest_writing(profile_.storage, scenario_, loads_->bytes_wanted());
  }

  static constexpr actors::TimeNs kAttachedNs = 100'000;
  static constexpr uint64_t kLeastSpreadNs = 50'000'000;

  // Without a coordinator, a node cannot start again. Its launcher then gives up, and ends the trainers of
  // the host. True: this has happened now.
  bool launchers_give_up() {
    if (cluster_.serves(cluster_.coordinator())) return false;
    bool gives_up = false;
    for (size_t host = 0; host < cluster_.nodes(); ++host) {
      if (cluster_.serves(host) || !trainers_->has_living(host)) continue;
      trainers_->lose_host(host);
      gives_up = true;
    }
    return gives_up;
  }

  bool has_loaded() const {
    for (Rank rank = 0; rank < scenario_.ranks; ++rank) {
      if (trainers_->alive(rank) && !loads_->has_loaded(rank)) return false;
    }
    return true;
  }

  EventHeap& events_;
  const Profile& profile_;
  const Scenario scenario_;
  const MeshShape mesh_;
  const uint32_t generation_;
  VirtualCluster cluster_;
  CoordinatorSeries series_;
  PhaseMeter meter_;
  RunWatch checks_;
  std::vector<LayoutPtr> layouts_;
  std::unique_ptr<StoredPayload> payload_;
  std::vector<PhaseCosts> phases_;
  std::optional<CountedTrainers> trainers_;
  std::optional<CountedLoads> loads_;
  std::optional<CheckpointReads> reads_;
  std::multimap<uint32_t, uint64_t> readers_to_begin_;  // by save: how long after its begin
  std::vector<std::unique_ptr<ReadingJob>> readers_;
  PathCounts* paths_ = nullptr;
  bool has_ended_ = false;
  std::optional<JobEnd> job_end_;
  std::optional<FailureInjector> injector_;
  bool is_loading_ = false;
  bool is_connecting_ = false;
  actors::TimeNs began_ = 0;
  actors::TimeNs roles_began_ = 0;  // later, if its nodes connect first
  actors::TimeNs claimed_ = -1, connected_ = -1, resumed_ = -1;
  bool earlier_host_lives_ = true;  // that of the coordinator of the run before
  RootBefore found_;                // by a run that starts again
  std::vector<NewerAttempt> newer_;
  std::optional<RunEnd> end_;
  Trace* trace_ = nullptr;
};

// All runs of a job, with the failures of its scenario.
class JobRuns {
 public:
  JobRuns(const Scenario& scenario, const Model& model, const Profile& profile,
          const SimulationListeners& listeners)
      : scenario_(scenario), model_(model), profile_(profile), listeners_(listeners) {}

  Status start() {
    if (scenario_.close_when == CloseWhen::written) {
      for (const Failure& failure : scenario_.failures) {
        if (!is_for_closed_trainers(failure.kind)) {
          return Status(
              Code::invalid_argument,
              fmt::format("close_when = \"written\" rules out the failure '{}': the next process would not "
                          "hear what trainers have staged that have closed",
                          failure_kind_name(failure.kind)));
        }
      }
    }
    SHOAL_ASSIGN_OR_RETURN(JobRun::Made made, JobRun::make(scenario_, model_));
    add_run(std::move(made));
    for (const Failure& failure : scenario_.failures) {
      is_restarting_ += failure.kind == Failure::Kind::job_restarts;
      const auto ends = static_cast<actors::TimeNs>(failure.ends_ms() + failure.by_ms);
      if (!excuses_nothing(failure.kind))
        failures_end_ = std::max(failures_end_, ends * actors::kMillisecond);
      events_.schedule(static_cast<actors::TimeNs>(failure.at_ms) * actors::kMillisecond +
                           static_cast<actors::TimeNs>(failure.at_ns),
                       [this, &failure] { begin(failure); });
    }
    current().start();
    return ok_status();
  }

  // Runs events until every save is decided, an oracle is violated, or no save makes progress. Returns true
  // if the watch stopped the run.
  bool run(SimulationWatch* watch) {
    const uint64_t looks_between_thorough = std::max<uint64_t>(kLooksBetweenThorough, scenario_.ranks / 256);
    for (uint64_t steps = 0; !done() && failure().ok() && !events_.empty() && goes_on(); ++steps) {
      if (watch != nullptr && steps % kStepsBetweenLooks == 0) {
        const bool thoroughly = steps / kStepsBetweenLooks % looks_between_thorough == 0;
        if (look(*watch, events_, current().cluster(), current().trainers(), thoroughly)) return true;
      }
      events_.run_next();
      bool stops = false;
      for (const auto& run : runs_) stops = (!run->is_over() && run->step()) || stops;
      violation_ = current().overdue_load(failures_end_);
      if (stops || violation_) return false;
    }
    if (done() && failure().ok()) settle();
    return false;
  }

  bool done() { return is_restarting_ == 0 && current().done(); }
  Status failure() {
    SHOAL_RETURN_IF_ERROR(failure_);
    if (const StoredPayload* payload = current().payload()) SHOAL_RETURN_IF_ERROR(payload->disagreement());
    return current().failure();
  }
  std::optional<Violation> finish() {
    for (const auto& run : runs_) {
      const auto found = run->checks().finish(done());
      if (found && !violation_) violation_ = found;
      const auto wrong = run->wrong_read();
      if (wrong && !violation_) violation_ = wrong;
    }
    StoredPayload* payload = current().payload();
    const bool is_audited =
        payload != nullptr && !listeners_.is_rehearsal && payload->used_bytes() <= kMaxAuditedBytes;
    if (!violation_ && is_audited) {
      payload->lose_power(mix64(scenario_.seed));  // what was reported as committed must outlast it
      audit();
    }
    return violation_;
  }
  EventHeap& events() { return events_; }
  JobRun& first() { return *runs_.front(); }
  JobRun& current() { return *runs_.back(); }
  void report_to(SimulationReport& report) {
    std::optional<RunEnd> before;
    for (const auto& run : runs_) {
      run->report_to(report, before);
      before = run->ended();
    }
    add_losses(report);
    report.has_given_up = has_given_up_;
    for (const auto& run : runs_) {
      const std::vector<CoordinatorSample> samples = run->series().samples();
      if (run != runs_.front() && scenario_.max_restarts == 0) break;  // runs at the same time
      report.coordinator_over_time.insert(report.coordinator_over_time.end(), samples.begin(), samples.end());
    }
  }

 private:
  void add_run(JobRun::Made made) {
    const JobRun* before = runs_.empty() ? nullptr : runs_.back().get();
    runs_.push_back(std::make_unique<JobRun>(events_, profile_, std::move(made), before, listeners_));
  }
  void audit() {
    std::vector<AuditedRun> audited;
    for (const auto& run : runs_) audited.push_back({run->generation(), run->layouts()});
    const auto violated = [this](const std::string& what) {
      violation_ = Violation{"audit", events_.now(), what};
    };
    const auto committed =
        audit_root(current().payload()->file_system(), "/root", audited,
                   [this](const AttemptKey& key) { return current().payload()->is_damaged(key); });
    if (!committed.ok()) return violated(committed.status().message());
    for (const auto& [name, key] : current().cluster().counted_root().marks()) {
      if (committed->contains(key)) continue;
      return violated(to_string(key) + " was deleted, although an operator keeps it by the mark " + name);
    }
    for (const auto& run : runs_) {
      if (run->checks().oracles() == nullptr) continue;
      for (const AttemptKey& key : run->checks().oracles()->told_committed()) {
        if (committed->contains(key) || current().cluster().root().was_deleted(key)) continue;
        return violated(to_string(key) + " was reported as committed, but the root has no manifest of it");
      }
    }
  }
  bool goes_on() { return is_restarting_ != 0 || current().goes_on(); }

  bool coordinator_serves() {
    const VirtualCluster& cluster = current().cluster();
    return cluster.serves(cluster.coordinator());
  }

  // Attempts that the newest run found undecided, and that still are.
  std::vector<AttemptKey> still_undecided() {
    std::vector<AttemptKey> keys = current().cluster().root().undecided();
    std::erase_if(
        keys, [&](const AttemptKey& key) { return std::ranges::find(inherited_, key) == inherited_.end(); });
    return keys;
  }

  template <class Condition>
  void run_while(const Condition& holds, actors::TimeNs until) {
    while (holds() && events_.now() < until && !events_.empty()) events_.run_next();
  }
  void settle() {
    has_saved_all_ = true;
    end_reads();
    if (!violation_) free_slabs();
    if (!violation_) end_leases();
    if (!violation_) decide_inherited();
    const bool have_nodes = scenario_.close_when != CloseWhen::written;
    if (!violation_ && have_nodes) sweep_aborted();
    if (!violation_ && have_nodes) delete_old();
    if (!violation_ && have_nodes) go_quiet();
    if (!violation_) end_job();
  }

  // Runs on until the nodes have ended, whose trainers close their Checkpointers after the failures, if they
  // have not before.
  void end_job() {
    if (scenario_.close_when == CloseWhen::never || current().checks().oracles() == nullptr) return;
    run_while([] { return true; }, failures_end_ + kSaveMarginMs * actors::kMillisecond);
    current().end_job();
    const auto stops = [this] { return current().checks().stops(); };
    // A coordinator without a launcher waits for the nodes of the others.
    const actors::TimeNs most =
        2 *
        (static_cast<actors::TimeNs>(current().cluster().timeouts().node_deadline_ms) * actors::kMillisecond +
         kLongestRelease);
    run_while([&] { return !current().nodes_have_ended() && !stops(); }, events_.now() + most);
  }

  // Runs on until no trainer reads any more.
  void end_reads() {
    run_while([this] { return !current().reads_are_done() && !current().wrong_read() && failure().ok(); },
              events_.now() + kLongestSave);
    violation_ = current().wrong_read();
  }

  // Runs on until no load holds a checkpoint any more, if nothing prevents that.
  void end_leases() {
    if (has_disturbance(scenario_) || (scenario_.reads == 0 && scenario_.readers == 0)) return;
    const auto held = [this] { return current().cluster().counted_root().leases(); };
    run_while([&] { return held() != 0; }, events_.now() + kLongestRelease);
    if (held() == 0) return;
    violation_ = Violation{"leases-end", events_.now(),
                           std::to_string(held()) + " leases are still there that no load needs"};
  }

  // Runs on until retention has deleted what its rule lets go, if nothing prevents that.
  void delete_old() {
    const bool is_possible = std::ranges::all_of(scenario_.failures, [](const Failure& failure) {
      // A deletion begins with a tombstone. One that fails is tried again after the next commit.
      return leaves_sweeps_alone(failure) && failure.kind != Failure::Kind::disk_full;
    });
    // What a trainer kept open when a checkpoint was committed is deleted after the next commit.
    const storage::RetentionPolicy policy = retention_of(scenario_);
    if (!is_possible || scenario_.reads != 0 || !policy.any() || current().checks().oracles() == nullptr)
      return;
    const auto left = [&] { return current().cluster().counted_root().to_delete(policy); };
    const actors::TimeNs until = std::max(events_.now(), failures_end_) +
                                 static_cast<actors::TimeNs>(kLongestSweepMs) * actors::kMillisecond;
    run_while([&] { return left() != 0; }, until);
    if (left() == 0) return;
    violation_ = Violation{"deletes-in-time", events_.now(),
                           std::to_string(left()) + " checkpoints are still there that no rule keeps"};
  }

  // Runs on until nodes send nothing more, if no trainer has ended: its node repeats that as long as it
  // lives. A run without failures ends with its last save.
  void go_quiet() {
    const Oracles* oracles = current().checks().oracles();
    if (oracles == nullptr || scenario_.failures.empty()) return;
    if (!std::ranges::all_of(scenario_.failures, keeps_trainers)) return;
    const actors::TimeNs began = events_.now(), until = std::max(began, failures_end_) + kLongestMessages;
    const actors::TimeNs quiet =
        2 * actors::TimeNs{current().cluster().timeouts().resend_most_ms} * actors::kMillisecond;
    const auto is_quiet = [&] { return events_.now() - std::max(began, oracles->last_sent()) >= quiet; };
    run_while([&] { return !is_quiet(); }, until);
    if (is_quiet() || events_.empty()) return;
    violation_ = Violation{"goes-quiet", events_.now(), "nodes still send messages, but nothing happens"};
  }

  // Runs on until no slab is in use any more. Trainers whose node is gone keep theirs.
  void free_slabs() {
    if (current().checks().oracles() == nullptr) return;
    const auto in_use = [this] { return current().trainers().slabs_in_use(); };
    // Writes of aborted saves go on.
    const std::vector<TrainerTimings>& times = current().trainers().times();
    const actors::TimeNs writing =
        longest_writing(profile_.storage, scenario_, most_staged(times, times.size()));
    run_while([&] { return in_use() != 0; }, std::max(events_.now(), failures_end_) + kLongestFree + writing);
    if (in_use() == 0) return;
    violation_ = Violation{"slabs-come-back", events_.now(),
                           std::to_string(in_use()) + " slabs are still in use, but every save is decided"};
  }

  // Runs on until no file of an aborted attempt is left, if nothing prevents that.
  void sweep_aborted() {
    const bool is_possible = std::ranges::all_of(scenario_.failures, [](const Failure& failure) {
      // A run sweeps what an earlier one left, but a part of the earlier one that goes on may write more.
      const bool ends_whole_job = failure.kind == Failure::Kind::job_restarts && failure.hosts == 0;
      return ends_whole_job || leaves_sweeps_alone(failure);
    });
    if (!is_possible || current().checks().oracles() == nullptr) return;
    const auto leftovers = [this] {
      return current().cluster().counted_root().leftovers_of_aborted(current().generation());
    };
    const uint64_t longest_ms = kLongestSweepMs + current().cluster().timeouts().node_deadline_ms;
    const actors::TimeNs until = std::max(events_.now(), failures_end_) +
                                 static_cast<actors::TimeNs>(longest_ms) * actors::kMillisecond;
    run_while([&] { return leftovers() != 0; }, until);
    if (leftovers() == 0) return;
    violation_ = Violation{"aborted-is-swept", events_.now(),
                           std::to_string(leftovers()) + " files of aborted attempts are still there"};
  }

  // Runs on until the newest run has decided what earlier runs left undecided.
  void decide_inherited() {
    if (inherited_.empty() || current().checks().oracles() == nullptr) return;
    const actors::TimeNs until = std::max(events_.now(), failures_end_) + kLongestUndecided;
    run_while([this] { return !still_undecided().empty(); }, until);
    const std::vector<AttemptKey> left = still_undecided();
    if (left.empty() || !coordinator_serves()) return;
    violation_ = Violation{"decides-in-time", events_.now(),
                           to_string(left.front()) + " was undecided when generation " +
                               std::to_string(current().generation()) + " began, and still is"};
  }

  void begin(const Failure& failure) {
    // Trainers and nodes that end before they have attached are not modelled.
    if (const actors::TimeNs attached = current().attached_at(failure); events_.now() < attached) {
      return events_.schedule(attached, [this, &failure] { begin(failure); });
    }
    const bool ends_job = scenario_.max_restarts != 0 && !has_saved_all_ &&
                          failure.kind != Failure::Kind::job_restarts && !current().has_failed() &&
                          current().ends_trainers(failure);
    const bool waits = current().is_connecting() && !ends_job && !is_of_disk(failure.kind);
    if (waits) {
      return events_.schedule(events_.now() + kWaitToConnectNs, [this, &failure] { begin(failure); });
    }
    if (listeners_.failure) listeners_.failure(events_.now(), failure);
    if (listeners_.trace != nullptr) listeners_.trace->failed(events_.now(), failure);
    if (failure.kind != Failure::Kind::job_restarts) {
      if (ends_job) job_fails(failure);
      if (ends_job && current().is_connecting()) return;  // until the launcher notices, nothing happens
      return current().injector().begin(failure);
    }
    current().end(failure);
    if (StoredPayload* payload = current().payload(); payload != nullptr && failure.hosts == 0) {
      payload->lose_power(mix64(scenario_.seed ^ failure.at_ms));
    }
    restart_later(restarted_job(scenario_, static_cast<uint32_t>(failure.ranks)), failure.for_ms);
  }

  // The launcher notices it later, kills what is left of the job, and starts the job again if it may.
  void job_fails(const Failure& failure) {
    current().fail(failure);
    ++is_restarting_;
    events_.schedule(events_.now() + static_cast<actors::TimeNs>(scenario_.detect_ms) * actors::kMillisecond,
                     [this] {
                       Failure all;
                       all.hosts = 0;
                       current().end(all);
                       if (restarts_ < scenario_.max_restarts) {
                         return restart_later(relaunched_job(scenario_), scenario_.restart_after_ms);
                       }
                       --is_restarting_;
                       has_given_up_ = true;
                     });
  }

  void restart_later(Scenario job, uint64_t after_ms) {
    const uint64_t number = ++restarts_;
    events_.schedule(events_.now() + static_cast<actors::TimeNs>(after_ms) * actors::kMillisecond,
                     [this, number, job = std::make_shared<const Scenario>(std::move(job))] {
                       --is_restarting_;
                       if (number != restarts_) return;  // the launcher has started the job again meanwhile
                       auto made = JobRun::make(*job, model_);
                       if (!made.ok()) return void(failure_ = made.status());
                       inherited_ = current().cluster().root().undecided();
                       add_run(std::move(*made));
                       current().start();
                     });
  }

  // How often a failure that needs roles looks whether they have started.
  static constexpr actors::TimeNs kWaitToConnectNs = 100 * actors::kMillisecond;

  const Scenario& scenario_;
  const Model& model_;
  const Profile& profile_;
  const SimulationListeners& listeners_;
  EventHeap events_;
  std::vector<std::unique_ptr<JobRun>> runs_;
  std::vector<AttemptKey> inherited_;  // undecided when the newest run began
  uint64_t restarts_ = 0;
  uint32_t is_restarting_ = 0;  // restarts whose run has not begun
  bool has_given_up_ = false;
  bool has_saved_all_ = false;  // the job has ended, and its nodes finish their duties
  actors::TimeNs failures_end_ = 0;
  Status failure_;
  std::optional<Violation> violation_;
};

// Starts the job again and loads its last checkpoint, scenario.loads times.
Status run_loads(const Scenario& scenario, const Model& model, const Profile& profile, CountedRoot* root,
                 StoredPayload* payload, uint32_t generation, bool is_checked,
                 const SimulationListeners& listeners, SimulationWatch* watch, SimulationReport* into) {
  SimulationReport& report = *into;
  const bool has_checkpoint = std::any_of(report.saves.begin(), report.saves.end(),
                                          [](const SaveReport& save) { return save.is_committed(); });
  if (!has_checkpoint || report.stopped_early || report.violation) return ok_status();
  std::unique_ptr<RestartedJob> job_that_loads;
  for (uint32_t load = 0; load < scenario.loads; ++load) {
    SHOAL_ASSIGN_OR_RETURN(
        auto restarted, RestartedJob::make(scenario, model, profile, generation + load, payload, listeners));
    root = restarted->take_over(*root, is_checked);
    job_that_loads = std::move(restarted);
    const Status loaded = job_that_loads->run(watch, report);
    if (payload) {
      SHOAL_RETURN_IF_ERROR(payload->disagreement());
      report.bytes_checked = payload->bytes_checked();
    }
    SHOAL_RETURN_IF_ERROR(loaded);
    if (report.stopped_early || report.violation) break;
  }
  return ok_status();
}

}  // namespace

Spread spread_of(std::vector<actors::TimeNs> times) {
  std::erase_if(times, [](actors::TimeNs time) { return time < 0; });
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  auto at = [&](size_t permille) { return times[(times.size() - 1) * permille / 1000]; };
  Spread spread{times.front(), at(500), at(990), times.back(), {}, std::vector<uint64_t>(kHistogramBars)};
  for (uint32_t permille : kFurtherPermille) spread.further.push_back(at(permille));
  const auto width = static_cast<uint64_t>(spread.greatest - spread.least) + 1;
  for (actors::TimeNs time : times) {
    const auto above = static_cast<uint64_t>(time - spread.least);
    ++spread.histogram[multiply_divide(above, kHistogramBars, width)];
  }
  return spread;
}

uint64_t milestones_of(const Scenario& scenario) {
  return uint64_t{scenario.ranks} * scenario.saves * kMilestonesPerSave +
         uint64_t{loading_job(scenario).ranks} * scenario.loads * kMilestonesPerLoad;
}

namespace {

Result<SimulationReport> simulate_all(const Scenario& asked, const Profile& named,
                                      const SimulationListeners& listeners, SimulationWatch* watch) {
  SHOAL_RETURN_IF_ERROR(validate_scenario(asked));
  SHOAL_ASSIGN_OR_RETURN(const Profile profile, with_numbers(named, asked.profile_numbers));
  SHOAL_ASSIGN_OR_RETURN(const Scenario scenario, with_all_failures(asked));
  SimulationReport report;
  report.scenario = scenario;
  SHOAL_ASSIGN_OR_RETURN(Model model, load_model(scenario.model, scenario.optimizer));
  model.objects = scenario.objects;
  SHOAL_ASSIGN_OR_RETURN(report.mesh, resolve_mesh(scenario, model));

  report.parameters = model.parameters();
  report.layouts_are_stated = model.world != nullptr;
  JobRuns runs(scenario, model, profile, listeners);
  SHOAL_RETURN_IF_ERROR(runs.start());
  JobRun& first = runs.first();
  report.layouts = static_cast<uint32_t>(first.layouts().size());
  report.nodes = static_cast<uint32_t>(first.cluster().nodes());
  report.stopped_early = runs.run(watch);
  JobRun& last = runs.current();
  if (watch != nullptr) look(*watch, runs.events(), last.cluster(), last.trainers(), true);
  SHOAL_RETURN_IF_ERROR(runs.failure());
  report.violation = runs.finish();
  if (!runs.done() && !report.violation && !report.stopped_early) {
    return Status(Code::deadline_exceeded, "not every rank was notified of a save within a virtual day");
  }
  runs.report_to(report);
  report.relays = static_cast<uint32_t>(first.cluster().relays());
  report.ended = runs.events().now();
  report.steps = runs.events().executed();
  if (last.payload() != nullptr) report.bytes_stored = last.payload()->used_bytes();
  SHOAL_RETURN_IF_ERROR(run_loads(scenario, model, profile, &last.cluster().counted_root(), last.payload(),
                                  last.generation() + 1, last.checks().oracles() != nullptr, listeners, watch,
                                  &report));
  return report;
}

}  // namespace

Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile,
                                  const SimulationListeners& listeners, SimulationWatch* watch) {
  if (listeners.paths == nullptr) return simulate_all(scenario, profile, listeners, watch);
  const base::RarePathCounts rare;
  auto report = simulate_all(scenario, profile, listeners, watch);
  listeners.paths->took(rare);
  return report;
}

}  // namespace shoal::sim
