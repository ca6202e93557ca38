#include "sim/simulation.h"

#include <algorithm>
#include <utility>

#include "sim/fault_injector.h"
#include "sim/integer_math.h"

namespace shoal {

namespace {

constexpr TimeNs kLongestSave = TimeNs{24} * 3600 * 1000 * kMillisecond;

// What counters have gained since they were last asked.
class PhaseMeter {
 public:
  explicit PhaseMeter(VirtualCluster& cluster) : cluster_(cluster) {}

  PhaseCosts take() {
    const HubCounts hub = cluster_.hub();
    const StorageCounts storage = cluster_.storage();
    PhaseCosts gained;
    gained.hub = {hub.messages_in - hub_.messages_in,
                  hub.messages_out - hub_.messages_out,
                  hub.bytes_in - hub_.bytes_in,
                  hub.bytes_out - hub_.bytes_out,
                  hub.longest_queue,
                  hub.busy_ns - hub_.busy_ns};
    gained.storage = {storage.changes - storage_.changes,
                      storage.looks - storage_.looks,
                      storage.listed - storage_.listed,
                      storage.syncs - storage_.syncs,
                      storage.bytes_written - storage_.bytes_written,
                      storage.bytes_read - storage_.bytes_read};
    gained.record_bytes = cluster_.record_bytes() - record_bytes_;
    hub_ = hub;
    storage_ = storage;
    record_bytes_ = cluster_.record_bytes();
    cluster_.forget_longest_queue();
    return gained;
  }

 private:
  VirtualCluster& cluster_;
  HubCounts hub_;
  StorageCounts storage_;
  uint64_t record_bytes_ = 0;
};

SaveReport report_of(const TrainerTimes& times) {
  SaveReport report;
  report.told = spread_of(times.told);
  report.blocked = spread_of(times.blocked);
  report.written = spread_of(times.written);
  report.committed = spread_of(times.committed);
  report.bytes_staged = times.bytes_staged;
  report.aborted_ranks = times.aborted_ranks;
  report.cause = times.cause;
  return report;
}

std::vector<std::vector<Rank>> place_ranks(const Scenario& scenario) {
  std::vector<std::vector<Rank>> nodes((scenario.ranks + scenario.ranks_per_host - 1) /
                                       scenario.ranks_per_host);
  for (Rank rank = 0; rank < scenario.ranks; ++rank) nodes[rank / scenario.ranks_per_host].push_back(rank);
  return nodes;
}

}  // namespace

Spread spread_of(std::vector<TimeNs> times) {
  std::erase_if(times, [](TimeNs time) { return time < 0; });
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  auto at = [&](size_t percent) { return times[(times.size() - 1) * percent / 100]; };
  return {times.front(), at(50), at(99), times.back()};
}

Result<SimulationReport> simulate(const Scenario& scenario, const Profile& profile) {
  SHOAL_RETURN_IF_ERROR(validate_scenario(scenario));
  SimulationReport report;
  report.scenario = scenario;
  SHOAL_ASSIGN_OR_RETURN(Model model, find_model(scenario.model));
  SHOAL_ASSIGN_OR_RETURN(report.mesh, resolve_mesh(scenario, model));

  CountedTrainers::Job job;
  SHOAL_ASSIGN_OR_RETURN(job.layouts, layouts_of_stages(model, report.mesh));
  job.ranks = scenario.ranks;
  job.ranks_per_host = scenario.ranks_per_host;
  job.options.mode = scenario.mode;
  if (scenario.mode == SaveMode::rank_local) job.options.dedupe = Dedupe::none;
  job.saves = scenario.saves;
  job.interval_ns = static_cast<TimeNs>(scenario.interval_ms) * kMillisecond;
  job.skew_ns = static_cast<TimeNs>(scenario.arrival_skew_ms) * kMillisecond;
  job.seed = scenario.seed;
  job.keeps_offers = !scenario.failures.empty();
  report.layouts = static_cast<uint32_t>(job.layouts.size());
  report.parameters = model.parameters();

  const auto hosts = (scenario.ranks + scenario.ranks_per_host - 1) / scenario.ranks_per_host;
  const std::vector<uint32_t> slow = draw_stragglers(scenario.stragglers, hosts, mix64(scenario.seed + 3));
  if (!slow.empty()) job.copy_permille.assign(hosts, 1000);
  for (uint32_t host : slow) job.copy_permille[host] = scenario.stragglers.copy_permille;

  EventHeap events;
  const auto ranks_of_node = place_ranks(scenario);
  report.nodes = static_cast<uint32_t>(ranks_of_node.size());
  VirtualCluster cluster(events, profile, scenario.seed, scenario.mode, ranks_of_node, scenario.ranks,
                         scenario.max_direct_nodes);
  for (uint32_t host : slow) {
    cluster.slow_down(host, scenario.stragglers.network_permille, scenario.stragglers.storage_permille);
  }
  PhaseMeter meter(cluster);
  std::vector<PhaseCosts> phases;
  CountedTrainers trainers(events, cluster, profile, std::move(job),
                           [&](uint32_t) { phases.push_back(meter.take()); });
  inject_faults(scenario.failures, events, cluster, trainers);
  trainers.start();
  auto goes_on = [&] { return events.now() - trainers.newest_save_began() < kLongestSave; };
  while (!trainers.done() && trainers.failure().ok() && !events.empty() && goes_on()) {
    events.run_next();
  }
  phases.push_back(meter.take());
  SHOAL_RETURN_IF_ERROR(trainers.failure());
  if (!trainers.done()) {
    return Status(Code::deadline_exceeded, "not every rank has heard of a save within a virtual day");
  }
  report.joining = phases.front();
  for (size_t save = 0; save < trainers.times().size(); ++save) {
    report.saves.push_back(report_of(trainers.times()[save]));
    report.saves.back().costs = phases[save + 1];
  }
  report.relays = static_cast<uint32_t>(cluster.relays());
  report.ended = events.now();
  report.events = cluster.events();
  report.steps = events.executed();
  report.trace_hash = cluster.trace_hash();
  report.warnings = cluster.warnings();
  return report;
}

}  // namespace shoal
