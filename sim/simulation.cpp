#include "sim/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "sim/basics/integer_math.h"
#include "sim/failures/failure_injector.h"
#include "sim/failures/load_oracles.h"
#include "sim/jobs/model_files.h"

namespace shoal::sim {

namespace {

constexpr actors::TimeNs kSaveMarginMs =
    60'000;  // margin of the deadline: staging, writing, messages sent again
constexpr uint64_t kStepsBetweenLooks = 1024;   // between checks of the requests of other threads
constexpr uint64_t kLooksBetweenThorough = 64;  // at least; else so many that all ranks cost little
constexpr actors::TimeNs kLongestSave =
    static_cast<actors::TimeNs>(kMaxSimulatedSaveMs) * actors::kMillisecond;

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
// A save that no failure delays is decided in this time, beyond writing and the skew of its ranks.
constexpr actors::TimeNs kPromptMs = 30'000;
// Added to each outage: until it is detected, and until all have looked for the next coordinator.
constexpr uint64_t kOutageMs = 8'000;

// True if no failure may end a save: no trainer and no disk fails, and each outage ends before a host counts
// as lost, even if outages follow one another.
bool needs_no_abort(const std::vector<Failure>& failures, const actors::Timeouts& timeouts) {
  uint64_t away_ms = 0;
  for (const Failure& failure : failures) {
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
      default:
        return false;
    }
  }
  return away_ms < timeouts.host_lost_ms;
}

// How long a save may take beyond staging and writing. Hosts that die delay it by host_lost_ms: once, and
// again if another coordinator begins to wait for them. The same holds for a trainer that vanishes while its
// node lives.
actors::TimeNs longest_wait_ms(const Scenario& scenario, const actors::Timeouts& timeouts) {
  bool is_known = scenario.mode != SaveMode::rank_local;  // a coordinator that starts again knows no ranks
  for (const Failure& failure : scenario.failures) {
    is_known = is_known && failure.kind != Failure::Kind::loses && failure.kind != Failure::Kind::disk_slow &&
               failure.kind != Failure::Kind::disk_fails && failure.kind != Failure::Kind::disk_full;
  }
  return is_known ? 2 * actors::TimeNs{timeouts.host_lost_ms} : actors::TimeNs{timeouts.node_deadline_ms};
}

// The longest time that storage may take to write `bytes`, the bytes of all hosts in one save, while other
// saves are in flight. It is twice what the rates of the profile give, because hosts do not write equally
// much.
actors::TimeNs longest_writing(const StorageCosts& storage, const Scenario& scenario, uint64_t bytes) {
  uint64_t rate = storage.client_bytes_per_s * scenario.hosts();
  if (rate == 0 || (storage.total_bytes_per_s != 0 && storage.total_bytes_per_s < rate)) {
    rate = storage.total_bytes_per_s;
  }
  const uint64_t slowness = std::max<uint64_t>(scenario.stragglers.storage_permille, 1000);
  const auto single = static_cast<uint64_t>(transfer_ns(bytes, rate));
  return static_cast<actors::TimeNs>(multiply_divide(single, 2 * kSimulatedSlabs * slowness, 1000));
}

// Passes the events of a run to oracles and listeners.
class RunWatch {
 public:
  RunWatch(EventHeap& events, VirtualCluster& cluster, const Scenario& scenario, const Profile& profile)
      : events_(events), cluster_(cluster), scenario_(scenario), profile_(profile) {}

  void begin(CountedTrainers& trainers, const SimulationListeners& listeners) {
    const bool is_checked = scenario_.ranks <= kRanksAlwaysChecked || !scenario_.failures.empty();
    if (is_checked) make_oracles(trainers);
    if (listeners.operation) {
      cluster_.on_operation([this, hears = listeners.operation](size_t node, const actors::Operation& begun) {
        hears(events_.now(), node, begun);
      });
    }
    if (!is_checked && !listeners.event && !listeners.decided) return;
    cluster_.on_event(
        [this, hears = listeners.event](size_t node, actors::RoleKind role, const actors::Event& event) {
          if (hears) hears(events_.now(), node, role, event, sender_of(node, event));
          const auto* done = std::get_if<actors::event::OperationDone>(&event);
          if (!oracles_ || done == nullptr || !done->result.ok()) return;
          const auto* decision = std::get_if<std::shared_ptr<const storage::Decision>>(&*done->result);
          if (decision != nullptr) oracles_->answered(events_.now(), *decision);
        });
    trainers.on_decision([this, hears = listeners.decided](Rank rank, const local::Decided& decided) {
      if (hears) hears(events_.now(), rank, decided);
      const AttemptKey key{kSimulatedGeneration, decided.step, decided.attempt};
      if (oracles_) oracles_->notified(events_.now(), rank, key, decided.outcome);
    });
  }
  std::function<void(const Failure&)> failure_listener(const SimulationListeners& listeners) {
    if (!listeners.failure) return nullptr;
    return [this, hears = listeners.failure](const Failure& failure) { hears(events_.now(), failure); };
  }
  Oracles* oracles() { return oracles_ ? &*oracles_ : nullptr; }
  bool stops() { return oracles_ && oracles_->stops(events_.now()); }
  // `is_done`: the run has ended.
  std::optional<Violation> finish(bool is_done) {
    if (!oracles_) return std::nullopt;
    if (is_done) oracles_->finish(events_.now());
    return oracles_->violation();
  }

 private:
  void make_oracles(CountedTrainers& trainers) {
    Oracles::Facts facts;
    facts.ranks = scenario_.ranks;
    const actors::Timeouts timeouts = cluster_.timeouts();
    for (const Failure& failure : scenario_.failures) {
      uint64_t ends_ms = failure.ends_ms() + failure.by_ms;
      // A rank-local node that was requested to stop drains until its saves are decided.
      const bool drains = failure.kind == Failure::Kind::stops && scenario_.mode == SaveMode::rank_local;
      if (drains) ends_ms += timeouts.node_deadline_ms;
      facts.failures_end =
          std::max(facts.failures_end, static_cast<actors::TimeNs>(ends_ms) * actors::kMillisecond);
    }
    // Plans that are lists of items take as long as they take.
    const bool is_prompt = profile_.items.plan_ns == 0;
    if (is_prompt && scenario_.failures.empty()) facts.recovered = 0;
    if (is_prompt && !scenario_.failures.empty()) {
      facts.recovered = facts.failures_end + (2 * timeouts.host_lost_ms + kRecoveryMs) * actors::kMillisecond;
    }
    const actors::TimeNs skew_ms =
        static_cast<actors::TimeNs>(scenario_.arrival_skew_ms + (scenario_.arrival_skew_us + 999) / 1000);
    const actors::TimeNs margin_ms = kSaveMarginMs + skew_ms;
    facts.prompt_deadline = (kPromptMs + skew_ms) * actors::kMillisecond;
    facts.save_deadline = (longest_wait_ms(scenario_, timeouts) + margin_ms) * actors::kMillisecond;
    facts.first_deadline = (timeouts.attempt_deadline_ms + margin_ms) * actors::kMillisecond;
    facts.needs_no_abort = needs_no_abort(scenario_.failures, timeouts);
    facts.notified_at = [&trainers](uint32_t save) { return trainers.times()[save - 1].notified_at; };
    facts.writing = [this, &trainers](uint32_t save) {
      return longest_writing(profile_.storage, scenario_, trainers.times()[save - 1].bytes_staged);
    };
    facts.lives = [&trainers](Rank rank) { return trainers.alive(rank); };
    facts.assigned_bytes = [this](const storage::Manifest& manifest, Rank rank) {
      auto plan = cluster_.plans().plan(*manifest.world, rank, manifest.options);
      return plan.ok() ? (*plan)->tensor_bytes : 0;
    };
    oracles_.emplace(std::move(facts), cluster_.root());
    cluster_.on_message([this](size_t from, size_t to, const actors::WireMessage&, uint64_t bytes) {
      oracles_->sent(events_.now(), from, to, bytes);
    });
    trainers.on_slab([this](Rank rank, uint32_t in_use) { oracles_->slabs(events_.now(), rank, in_use); });
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
  std::optional<Oracles> oracles_;
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

VirtualCluster::Job nodes_of(const Scenario& scenario, uint32_t generation) {
  return {.mode = scenario.mode,
          .ranks_of_node = place_ranks(scenario),
          .world_size = scenario.ranks,
          .max_direct_nodes = scenario.max_direct_nodes,
          .generation = generation};
}

// The job that loads, from its start until all ranks have their bytes. It has its own clock.
class RestartedJob {
 public:
  static Result<std::unique_ptr<RestartedJob>> make(const Scenario& saved, const Model& model,
                                                    const Profile& profile, uint32_t generation,
                                                    StoredPayload* payload) {
    const Scenario scenario = loading_job(saved);
    SHOAL_ASSIGN_OR_RETURN(MeshShape mesh, resolve_mesh(scenario, model));
    CountedLoads::Job job;
    SHOAL_ASSIGN_OR_RETURN(job.layouts, layouts_of_stages(model, mesh));
    job.ranks = scenario.ranks;
    job.ranks_per_host = scenario.ranks_per_host;
    job.method = scenario.load_method;
    std::unique_ptr<RestartedJob> made(new RestartedJob(scenario, mesh, profile, generation, std::move(job)));
    if (payload != nullptr) made->cluster_.keep_bytes(payload);
    return made;
  }

  // Moves the contents of `root` to the root of this job, and returns that one. It lives as long as this
  // object. Oracles check the load if they checked the saves.
  CountedRoot* take_over(CountedRoot& root, bool is_checked) {
    const std::optional<AttemptKey> before = root.latest();
    cluster_.counted_root().continue_from(root);
    if (is_checked) {
      oracles_.emplace(events_.now(), cluster_.root(), before);
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
    if (!loads_.done()) {
      return Status(Code::deadline_exceeded, "not every rank received its bytes within a virtual day");
    }
    report.loads.push_back({loaded_by_.ranks, nodes_, mesh_, spread_of(loads_.found()),
                            spread_of(loads_.loaded()), loads_.bytes_wanted(), loads_.bytes_passed(),
                            cluster_.shared_bytes(), PhaseMeter(cluster_, series_).take()});
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

  const Scenario loaded_by_;
  const MeshShape mesh_;
  const uint32_t nodes_;
  EventHeap events_;
  VirtualCluster cluster_;
  CoordinatorSeries series_;
  CountedLoads loads_;
  std::optional<LoadOracles> oracles_;
};

// Runs events until every save is decided, an oracle is violated, or no save makes progress. Returns true if
// the watch stopped the run.
bool run_events(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers, RunWatch& checks,
                CoordinatorSeries& series, const StoredPayload* payload, uint32_t ranks,
                SimulationWatch* watch) {
  auto goes_on = [&] {
    return events.now() - trainers.newest_save_began() < kLongestSave &&
           (!payload || payload->disagreement().ok());
  };
  const uint64_t looks_between_thorough = std::max<uint64_t>(kLooksBetweenThorough, ranks / 256);
  for (uint64_t steps = 0; !trainers.done() && trainers.failure().ok() && !events.empty() && goes_on();
       ++steps) {
    if (watch != nullptr && steps % kStepsBetweenLooks == 0) {
      const bool thoroughly = steps / kStepsBetweenLooks % looks_between_thorough == 0;
      if (look(*watch, events, cluster, trainers, thoroughly)) return true;
    }
    events.run_next();
    series.take(events.now(), cluster.coordinator_queue());
    if (checks.stops()) break;
  }
  return false;
}

// The work of the scenario's trainers. Precondition: `mesh` is the mesh of the scenario.
Result<CountedTrainers::Job> job_of(const Scenario& scenario, const Model& model, const MeshShape& mesh) {
  CountedTrainers::Job job;
  SHOAL_ASSIGN_OR_RETURN(job.layouts, layouts_of_stages(model, mesh));
  job.world = model.world;
  job.ranks = scenario.ranks;
  job.ranks_per_host = scenario.ranks_per_host;
  job.options.mode = scenario.mode;
  if (scenario.mode == SaveMode::rank_local) job.options.dedupe = Dedupe::none;
  job.saves = scenario.saves;
  job.interval_ns = static_cast<actors::TimeNs>(scenario.interval_ms) * actors::kMillisecond;
  job.skew_ns =
      static_cast<actors::TimeNs>(scenario.arrival_skew_ms * 1000 + scenario.arrival_skew_us) * 1000;
  job.seed = scenario.seed;
  job.keeps_offers = !scenario.failures.empty();
  return job;
}

void report_phases(const CountedTrainers& trainers, const std::vector<PhaseCosts>& phases,
                   SimulationReport* into) {
  SimulationReport& report = *into;
  report.joining = phases.front();
  const size_t saves = report.stopped_early ? trainers.saves_decided() : trainers.times().size();
  for (size_t save = 0; save < saves; ++save) {
    report.saves.push_back(report_of(trainers.times()[save]));
    if (save + 1 < phases.size()) report.saves.back().costs = phases[save + 1];
  }
}

// Starts the job again and loads its last checkpoint, scenario.loads times.
Status run_loads(const Scenario& scenario, const Model& model, const Profile& profile, CountedRoot* root,
                 StoredPayload* payload, bool is_checked, SimulationWatch* watch, SimulationReport* into) {
  SimulationReport& report = *into;
  const bool has_checkpoint = std::any_of(report.saves.begin(), report.saves.end(),
                                          [](const SaveReport& save) { return save.is_committed(); });
  if (!has_checkpoint || report.stopped_early || report.violation) return ok_status();
  std::unique_ptr<RestartedJob> job_that_loads;
  for (uint32_t load = 0; load < scenario.loads; ++load) {
    SHOAL_ASSIGN_OR_RETURN(auto restarted, RestartedJob::make(scenario, model, profile, load + 2, payload));
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

Result<SimulationReport> simulate(const Scenario& asked, const Profile& profile,
                                  const SimulationListeners& listeners, SimulationWatch* watch) {
  SHOAL_RETURN_IF_ERROR(validate_scenario(asked));
  SHOAL_ASSIGN_OR_RETURN(const Scenario scenario, with_all_failures(asked));
  SimulationReport report;
  report.scenario = scenario;
  SHOAL_ASSIGN_OR_RETURN(Model model, load_model(scenario.model, scenario.optimizer));
  SHOAL_ASSIGN_OR_RETURN(report.mesh, resolve_mesh(scenario, model));

  SHOAL_ASSIGN_OR_RETURN(CountedTrainers::Job job, job_of(scenario, model, report.mesh));
  report.layouts = static_cast<uint32_t>(job.layouts.size());
  report.layouts_are_stated = model.world != nullptr;
  report.parameters = model.parameters();

  const uint32_t hosts = scenario.hosts();
  const std::vector<uint32_t> slow =
      draw_stragglers(scenario.stragglers, hosts, stream_seed(scenario.seed, Stream::stragglers));
  if (!slow.empty()) job.copy_permille.assign(hosts, 1000);
  for (uint32_t host : slow) job.copy_permille[host] = scenario.stragglers.copy_permille;

  EventHeap events;
  VirtualCluster cluster(events, profile, scenario.seed, nodes_of(scenario, kSimulatedGeneration));
  report.nodes = static_cast<uint32_t>(cluster.nodes());
  for (uint32_t host : slow) {
    cluster.slow_down(host, scenario.stragglers.network_permille, scenario.stragglers.storage_permille);
  }
  if (scenario.loads != 0) cluster.counted_root().will_be_loaded();
  std::unique_ptr<StoredPayload> payload;
  if (scenario.payload == Payload::full) {
    payload = std::make_unique<StoredPayload>();
    cluster.keep_bytes(payload.get());
    job.payload = payload.get();
  }
  CoordinatorSeries series([&cluster] { return cluster.coordinator_load(); });
  PhaseMeter meter(cluster, series);
  RunWatch checks(events, cluster, scenario, profile);
  std::vector<PhaseCosts> phases;
  CountedTrainers trainers(events, cluster, profile, std::move(job), [&](uint32_t save) {
    phases.push_back(meter.take());
    if (checks.oracles()) checks.oracles()->save_begins(events.now(), save);
  });
  checks.begin(trainers, listeners);
  inject_failures(scenario.failures, events, cluster, trainers, checks.failure_listener(listeners));
  trainers.start();
  report.stopped_early =
      run_events(events, cluster, trainers, checks, series, payload.get(), scenario.ranks, watch);
  if (watch != nullptr) look(*watch, events, cluster, trainers, true);
  phases.push_back(meter.take());
  if (payload) SHOAL_RETURN_IF_ERROR(payload->disagreement());
  SHOAL_RETURN_IF_ERROR(trainers.failure());
  report.violation = checks.finish(trainers.done());
  if (!trainers.done() && !report.violation && !report.stopped_early) {
    return Status(Code::deadline_exceeded, "not every rank was notified of a save within a virtual day");
  }
  report_phases(trainers, phases, &report);
  report.relays = static_cast<uint32_t>(cluster.relays());
  report.coordinator_over_time = series.samples();
  report.ended = events.now();
  report.events = cluster.events();
  report.steps = events.executed();
  report.trace_hash = cluster.trace_hash();
  report.warnings = cluster.warnings();
  if (payload) report.bytes_stored = payload->used_bytes();
  SHOAL_RETURN_IF_ERROR(run_loads(scenario, model, profile, &cluster.counted_root(), payload.get(),
                                  checks.oracles() != nullptr, watch, &report));
  return report;
}

}  // namespace shoal::sim
