// The simulator: its numbers follow from its stated models, the production roles send the same messages in it
// as over the file system in memory, and equal seeds give equal traces everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "actors/node/descriptors.h"
#include "actors/node/node.h"
#include "sim/basics/toml_tree.h"
#include "sim/reports/sensitivity.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

// --- what it is made of ---

TEST(EventHeap, RunsByTimeAndThenByTheOrderOfScheduling) {
  EventHeap events;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) events.schedule(i % 7, [&order, i] { order.push_back(i); });
  while (!events.empty()) events.run_next();
  ASSERT_EQ(order.size(), 100u);
  for (size_t i = 1; i < order.size(); ++i) {
    EXPECT_LT(std::pair(order[i - 1] % 7, order[i - 1]), std::pair(order[i] % 7, order[i]));
  }
  EXPECT_EQ(events.now(), 6);
}

TEST(Random, RaisesTwoToFractions) {
  EXPECT_EQ(exp2_fixed16(0), 65536u);
  EXPECT_EQ(exp2_fixed16(65536), 131072u);
  EXPECT_EQ(exp2_fixed16(-65536), 32768u);
  EXPECT_EQ(exp2_fixed16(32768), 92681u);   // the root of 2, times 65,536: 92,681.9
  EXPECT_EQ(exp2_fixed16(-32768), 46340u);  // 46,340.95
}

TEST(Random, DrawsLognormalFactorsOfMedianOne) {
  Random random(1);
  std::vector<int64_t> draws;
  for (int i = 0; i < 10'001; ++i) draws.push_back(random.lognormal(1'000'000, 500));
  std::sort(draws.begin(), draws.end());
  EXPECT_NEAR(static_cast<double>(draws[5000]), 1e6, 2e4);
  EXPECT_NEAR(static_cast<double>(draws[8413]), 1.6487e6, 5e4);  // one sigma: e^0.5
  EXPECT_NEAR(static_cast<double>(draws[1587]), 0.6065e6, 2e4);
}

TEST(Models, HaveThePublishedNumbersOfParameters) {
  auto parameters = [](const char* name) { return find_model(name)->parameters(); };
  EXPECT_EQ(parameters("gpt2"), 124'439'808u);
  EXPECT_EQ(parameters("llama3-8b"), 8'030'261'248u);
  EXPECT_EQ(parameters("llama3-70b"), 70'553'706'496u);
  EXPECT_EQ(parameters("llama3-405b"), 405'853'388'800u);
  EXPECT_EQ(parameters("mixtral-8x22b"), 140'620'634'112u);
  EXPECT_NEAR(static_cast<double>(parameters("deepseek-v3")), 671.0e9, 0.1e9);
}

TEST(Models, AreHeldOnceByTheRanksOfAMesh) {
  constexpr uint32_t kRanks = 64;
  for (std::string_view name : model_names()) {
    const Model model = *find_model(name);
    Scenario scenario;
    scenario.model = name;
    scenario.ranks = kRanks;
    auto mesh = resolve_mesh(scenario, model);
    ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
    auto layouts = layouts_of_stages(model, *mesh);
    ASSERT_TRUE(layouts.ok()) << layouts.status().to_string();
    EXPECT_EQ(layouts->size(), mesh->pp);
    std::vector<LayoutId> ids;
    for (Rank rank = 0; rank < kRanks; ++rank) ids.push_back((*layouts)[rank * mesh->pp / kRanks]->id());
    World world{Roster::make(ids, std::vector<uint32_t>(kRanks, 0)).value(), *layouts};
    EXPECT_TRUE(validate_world(world).ok());
    EXPECT_TRUE(check_coverage(world, {}).ok()) << name;
    uint64_t bytes = 0;
    for (Rank rank = 0; rank < kRanks; ++rank) bytes += plan_save(world, rank, {})->tensor_bytes;
    EXPECT_EQ(bytes, model.parameters() * 14) << name;
  }
}

// --- bad input ---

std::string refusal_of_profile(const std::string& text) {
  auto profile = parse_profile(text, "p.toml");
  EXPECT_FALSE(profile.ok());
  return profile.status().message();
}

TEST(Profiles, AreRefusedByFileLineAndReason) {
  const std::string path = std::string(kSource) + "/sim/profiles/lustre.toml";
  const std::string text = *read_text(path);
  ASSERT_TRUE(parse_profile(text, path).ok());
  auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return refusal_of_profile(changed);
  };
  EXPECT_THAT(with("latency_ns", "latency_us"), HasSubstr("p.toml:6: 'latency_us' is not known here"));
  EXPECT_THAT(with("value = 2500", "value = -1"), HasSubstr("p.toml:6: value = -1"));
  EXPECT_THAT(with("value = 2500", "value = 2.5"), HasSubstr("an integer"));
  EXPECT_THAT(with("kind = \"published\"", "kind = \"guessed\""), HasSubstr("network.latency_ns: its kind"));
  EXPECT_THAT(with("source = \"LogGOPSim's default g\"", "source = \"\""),
              HasSubstr("p.toml:7: network.message_ns names no source"));
  EXPECT_THAT(with("source = \"LogGOPSim's default g\"", "source = \" \\t \""),
              HasSubstr("p.toml:7: network.message_ns names no source"));
  EXPECT_THAT(with("interface = \"files\"", "interface = \"tapes\""), HasSubstr("'files' or 'objects'"));
  EXPECT_THAT(with("[cpu]", "[cpu"), HasSubstr("p.toml:"));
}

TEST(Scenarios, AreRefusedByFileLineAndReason) {
  auto refusal = [](const std::string& text) { return parse_scenario(text, "s.toml").status().message(); };
  EXPECT_THAT(refusal("ranks = 8\nspeed = 3\n"), HasSubstr("s.toml:2: 'speed' is not known here"));
  EXPECT_THAT(refusal("ranks = 0\n"), HasSubstr("s.toml:1: ranks = 0: it must lie between 1 and 4194304"));
  EXPECT_THAT(refusal("ranks = 64\nmesh = \"dp=3,tp=8\"\n"),
              HasSubstr("s.toml:2: mesh dp=3,tp=8,pp=1 has 24 ranks, not 64"));
  EXPECT_THAT(refusal("ranks = 64\nmodel = \"gpt2\"\nmesh = \"pp=16\"\n"),
              HasSubstr("s.toml:3: pp=16: gpt2 has only 12 layers"));
  EXPECT_THAT(refusal("ranks = 64\nmodel = \"gpt2\"\nload_ranks = 32\nload_mesh = \"pp=32\"\n"),
              HasSubstr("s.toml:4: the job that loads: pp=32: gpt2 has only 12 layers"));
  EXPECT_THAT(refusal("mesh = \"dp=8,xp=2\"\n"), HasSubstr("'xp=2' must begin with dp="));
  EXPECT_THAT(refusal("model = \"gpt7\"\n"), HasSubstr("s.toml:1: no model 'gpt7'; known models are gpt2,"));
  EXPECT_THAT(refusal("mode = \"quantum\"\n"), HasSubstr("not 'quantum'"));
  Scenario scenario;
  scenario.failures = {{Failure::Kind::dies, 5, 64, 0}};
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("host 64 dies at 5 ms: the job has only 64 hosts"));
  scenario.failures.clear();
  EXPECT_EQ(scenario.max_direct_nodes, actors::NodeOptions().max_direct_nodes)
      << "as a coordinator that is not told";
  scenario.max_direct_nodes = 7;
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("at most 56 nodes are possible besides the coordinator's"));
  scenario = Scenario();
  scenario.mesh = "pp=128";
  EXPECT_THAT(validate_scenario(scenario).message(), HasSubstr("pp=128: llama3-405b has only 126 layers"));
  EXPECT_THAT(set_value(scenario, "ranks", "-4").message(), HasSubstr("ranks: '-4' is not a number"));
}

TEST(Scenarios, AreRefusedByFileAndLineWhereTheyDoNotFitTheirJob) {
  auto refusal = [](const std::string& text, std::string_view key = "", std::string_view value = "") {
    Result<Scenario> scenario = parse_scenario(text, "s.toml");
    if (!scenario.ok()) return scenario.status().message();
    if (!key.empty() && !set_value(*scenario, key, value).ok()) return std::string("the value");
    return validate_scenario(*scenario).message();
  };
  const std::string dies = "model = \"gpt2\"\n[[failure]]\nat_ms = 1\nkind = \"dies\"\n";
  EXPECT_EQ(refusal("ranks = 8\n" + dies + "host = 7\n"),
            "s.toml:3: host 7 dies at 1 ms: the job has only 1 hosts");
  EXPECT_EQ(refusal(dies + "host = 7\n"), "");
  EXPECT_EQ(refusal(dies + "host = 7\n", "ranks", "8"),
            "s.toml:2: host 7 dies at 1 ms: the job has only 1 hosts");
  EXPECT_EQ(refusal("ranks = 16\n" + dies + "host = 1\nhosts = 5\n"),
            "s.toml:3: hosts 1 to 5 die at 1 ms: the job has only 2 hosts");
  EXPECT_EQ(refusal("ranks = 4\n[[failure]]\nat_ms = 1\nkind = \"ends\"\nrank = 9\n"),
            "s.toml:2: rank 9 ends at 1 ms: the job has only 4 ranks");
  const std::string direct = "ranks = 320\nmax_direct_nodes = 1\n";
  const std::string why =
      "max_direct_nodes = 1: at most 2 nodes are possible besides the coordinator's, not 39";
  EXPECT_EQ(refusal(direct), "s.toml:2: " + why);
  EXPECT_EQ(refusal("ranks = 320\n", "max_direct_nodes", "1"), why);
  EXPECT_EQ(refusal(direct, "max_direct_nodes", "8"), "");
}

TEST(Scenarios, AreRefusedWhereNoSaveEndsWithinAVirtualDay) {
  auto refusal = [](const std::string& text) { return parse_scenario(text, "s.toml").status().message(); };
  EXPECT_THAT(refusal("ranks = 8\ninterval_ms = 86_400_000\n"),
              HasSubstr("s.toml:2: interval_ms = 86400000, arrival_skew_ms = 0: together they must be less "
                        "than a virtual"));
  EXPECT_THAT(refusal("interval_ms = 80_000_000\narrival_skew_ms = 86_000_000\n"), HasSubstr("s.toml:2: "));
  Scenario scenario;
  scenario.interval_ms = kMaxSimulatedSaveMs - 1;
  EXPECT_TRUE(validate_scenario(scenario).ok());
  scenario.arrival_skew_ms = 1;
  EXPECT_THAT(validate_scenario(scenario).message(), HasSubstr("a virtual day, 86400000 ms"));
}

// --- the same protocol as over real bytes ---

using Channels = std::map<std::string, std::vector<std::string>>;

constexpr actors::TimeNs kInterval = 1'000 * actors::kMillisecond;

// The messages from each node to each other node, in order.
Channels stored_channels(SaveMode mode, uint64_t* bytes) {
  VirtualHost host;
  actors::NodeConfig facts;
  facts.generation = facts.epoch = 1;
  VirtualJob job = VirtualJob::start(host, facts, 4, 16, pipeline_job(16, 2, 2));
  SaveOptions options;
  options.mode = mode;
  if (mode == SaveMode::rank_local) options.dedupe = Dedupe::none;
  for (auto& trainer : job.trainers) trainer->declare(options);
  job.run(kInterval);  // nodes report their ranks
  for (uint64_t step : {1, 2}) {
    for (auto& trainer : job.trainers) trainer->save(step);
    job.run(kInterval);
  }
  Channels channels;
  for (const std::string& line : host.transcript()) {
    if (line.find("local::") != std::string::npos) continue;
    channels[line.substr(0, line.find(": "))].push_back(line.substr(line.find(": ") + 2));
  }
  *bytes = host.wire_bytes();
  return channels;
}

Channels counted_channels(SaveMode mode, uint64_t* bytes) {
  CountedTrainers::Job job;
  job.layouts = pipeline_job(16, 2, 2);
  job.ranks = 16;
  job.ranks_per_host = 4;
  job.options.mode = mode;
  if (mode == SaveMode::rank_local) job.options.dedupe = Dedupe::none;
  job.saves = 2;
  job.interval_ns = kInterval;
  EventHeap events;
  std::vector<std::vector<Rank>> nodes(4);
  for (Rank rank = 0; rank < 16; ++rank) nodes[rank / 4].push_back(rank);
  const Profile profile = profile_named("nvme");
  VirtualCluster cluster(events, profile, 1, {.mode = mode, .ranks_of_node = nodes, .world_size = 16});
  Channels channels;
  cluster.on_message([&](size_t from, size_t to, const actors::WireMessage& message, uint64_t size) {
    *bytes += size;
    EXPECT_EQ(size, actors::encode_wire(message).size());
    auto name = [](size_t node, actors::RoleKind role) {
      return "node" + std::to_string(node) + "." + std::string(actors::role_name(role));
    };
    channels[name(from, message.from) + " -> " + name(to, message.to)].push_back(
        actors::describe(*message.body));
  });
  CountedTrainers trainers(events, cluster, profile, job, [](uint32_t) {});
  trainers.start();
  while (!trainers.done() && !events.empty()) events.run_next();
  EXPECT_TRUE(trainers.failure().ok()) << trainers.failure().to_string();
  return channels;
}

// The messages about saves. In either run, messages about sessions occur at other moments beside saves, and
// such a save may be reported in parts: then only its last report counts. Of a rank-local save only the
// reports of the nodes count: which of them comes last, and is answered, differs by microseconds.
Channels of_saves(const Channels& channels, SaveMode mode) {
  Channels out;
  for (const auto& [channel, lines] : channels) {
    std::vector<std::string>& kept = out[channel];
    for (const std::string& line : lines) {
      const bool is_session = line.starts_with("RanksEnded") || line.starts_with("Pending");
      if (is_session) continue;
      const bool is_report = line.starts_with("ManifestsPublished") && !line.ends_with("16 of 16 ranks");
      if (mode == SaveMode::rank_local && !is_report) continue;
      const std::string which = line.substr(0, line.find(':'));
      if (!kept.empty() && line.starts_with("ShardsWritten") && kept.back().starts_with(which))
        kept.pop_back();
      kept.push_back(line);
    }
    if (kept.empty()) out.erase(channel);
  }
  return out;
}

TEST(ACountedRun, SaysWhatAStoredOneSaysInAsManyBytes) {
  for (SaveMode mode : kModes) {
    SCOPED_TRACE(mode_name(mode));
    uint64_t stored_bytes = 0, counted_bytes = 0;
    const Channels stored = stored_channels(mode, &stored_bytes);
    const Channels counted = counted_channels(mode, &counted_bytes);
    EXPECT_EQ(of_saves(counted, mode), of_saves(stored, mode));
    EXPECT_FALSE(of_saves(stored, mode).empty());
    if (mode != SaveMode::collective_free) continue;
    EXPECT_EQ(counted, stored);
    EXPECT_EQ(counted_bytes, stored_bytes);
  }
}

// --- what it says of modes ---

TEST(ASimulation, HoldsRanksForTheSlowestInModeCollectiveAlone) {
  Scenario scenario;
  scenario.ranks = 64;
  scenario.model = "llama3-8b";
  scenario.arrival_skew_ms = 2000;
  for (SaveMode mode : kModes) {
    scenario.mode = mode;
    const SimulationReport report = simulated(scenario);
    const Spread blocked = report.saves.back().blocked;
    const actors::TimeNs waited = blocked.greatest - blocked.least;
    if (mode == SaveMode::collective) {
      EXPECT_GT(waited, 1500 * actors::kMillisecond);
    } else {
      EXPECT_LT(waited, 10 * actors::kMillisecond) << mode_name(mode);
    }
    EXPECT_EQ(report.saves.back().aborted_ranks, 0u);
    EXPECT_EQ(report.saves.back().bytes_staged, report.parameters * 14);
    // Each of 8 hosts reports its manifests, and the one that finds the commit reports that too.
    if (mode == SaveMode::rank_local) {
      EXPECT_LE(report.saves.back().costs.coordinator.messages_in, 9u);
    }
  }
}

TEST(ASimulation, SendsOneReportAHostInTheSteadyState) {
  Scenario scenario;
  scenario.ranks = 256;
  scenario.model = "llama3-8b";
  scenario.profile = "nvme";
  const PhaseCosts costs = simulated(scenario).saves.back().costs;
  EXPECT_EQ(costs.coordinator.messages_in, 31u);       // of 32 hosts, one is the coordinator's own
  EXPECT_EQ(costs.coordinator.messages_out, 2 * 31u);  // the answer `pending`, and the decision
}

// Only the processor time of messages and the network latency count. So the production roles gather and
// scatter at the rate of the coordinator's processor: it receives each LocalPlans, answers `pending`, and
// sends each node its GlobalPlan.
TEST(ASimulation, GathersFlatAsTheClosedFormSays) {
  constexpr actors::TimeNs kMessage = 9000, kLatency = 2500;
  Profile profile = profile_named("nvme");
  profile.network = {};
  profile.network.latency_ns = kLatency;
  profile.network.bytes_per_s = uint64_t{1} << 50;
  profile.cpu = {};
  profile.cpu.message_ns = kMessage;
  profile.cpu.codec_bytes_per_s = uint64_t{1} << 50;
  profile.storage = {};
  profile.storage.entries_per_request = 1000;
  profile.storage.client_bytes_per_s = profile.storage.total_bytes_per_s = uint64_t{1} << 50;
  for (uint32_t hosts : {64, 512}) {
    Scenario scenario;
    scenario.ranks = hosts;
    scenario.ranks_per_host = 1;
    scenario.model = "gpt2";
    scenario.mode = SaveMode::collective;
    auto report = simulate(scenario, profile);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const actors::TimeNs wanted = 2 * (kMessage + kLatency) + actors::TimeNs{hosts - 1} * 3 * kMessage;
    for (const SaveReport& save : report->saves) {
      EXPECT_NEAR(static_cast<double>(save.plan_received.greatest), static_cast<double>(wanted),
                  0.01 * static_cast<double>(wanted))
          << hosts;
    }
  }
}

TEST(ASimulation, SaysTheSameThroughRelays) {
  Scenario scenario;
  scenario.ranks = 512;
  scenario.model = "llama3-8b";
  scenario.profile = "nvme";
  const SimulationReport straight = simulated(scenario);
  scenario.max_direct_nodes = 8;
  const SimulationReport relayed = simulated(scenario);
  EXPECT_EQ(straight.relays, 0u);
  EXPECT_EQ(relayed.relays, 7u);  // 55 nodes, of which a relay takes eight here
  EXPECT_EQ(relayed.saves[1].costs.coordinator.messages_in, straight.saves[1].costs.coordinator.messages_in);
  EXPECT_EQ(relayed.saves[1].aborted_ranks, 0u);
  EXPECT_GT(relayed.saves[1].committed.greatest, straight.saves[1].committed.greatest);
}

TEST(Sensitivity, RanksAssumedNumbersByWhatTheyChange) {
  Scenario scenario;
  scenario.ranks = 16;
  scenario.model = "llama3-8b";
  const Profile profile = profile_named("lustre");
  auto found = find_sensitivity(scenario, profile, 2);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const SaveReport& save = found->job.saves.back();
  EXPECT_EQ(save.committed.greatest, simulated(scenario).saves.back().committed.greatest);
  uint64_t before = UINT64_MAX;
  bool has_copy = false;
  for (const Sensitivity& each : found->numbers) {
    EXPECT_EQ(each.number.kind, "assumed");
    const uint64_t greater = std::max(each.blocked_permille, each.committed_permille);
    EXPECT_LE(greater, before);
    before = greater;
    if (each.number.key != "trainer.copy_bytes_per_s") continue;
    has_copy = true;  // all that holds a rank: half of it takes twice as long
    EXPECT_NEAR(static_cast<double>(each.blocked_permille), 1000, 20);
    EXPECT_GT(each.halved.blocked, save.blocked.greatest);
    EXPECT_LT(each.doubled.blocked, save.blocked.greatest);
    EXPECT_EQ(each.halved.value, 10'000'000'000);
  }
  EXPECT_TRUE(has_copy);
}

// --- failures ---

TEST(ASimulation, TellsThoseThatLiveWhichRanksASaveLacks) {
  Scenario scenario = of_eight_hosts();
  scenario.failures = {{Failure::Kind::dies, 20'150, 3, 0}};  // while the second save is written
  const SimulationReport report = simulated(scenario);
  EXPECT_EQ(report.saves[0].aborted_ranks, 0u);
  EXPECT_EQ(report.saves[1].aborted_ranks, 56u);
  EXPECT_THAT(report.saves[1].cause, HasSubstr("24, 25, 26, 27, 28, 29, 30, 31"));
  EXPECT_EQ(report.trace_hash, simulated(scenario).trace_hash);
}

TEST(ASimulation, TellsEverybodyThatTheCoordinatorIsGoneOnceItHasNotComeBackInTime) {
  Scenario scenario = of_eight_hosts();
  scenario.failures = {{Failure::Kind::dies, 20'150, 0, 0}};
  const SaveReport save = simulated(scenario).saves[1];
  EXPECT_EQ(save.aborted_ranks, 56u);
  EXPECT_THAT(save.cause, HasSubstr("it lost the coordinator"));
  const actors::TimeNs patience = actors::TimeNs{actors::Timeouts{}.host_lost_ms} * actors::kMillisecond;
  EXPECT_GE(save.committed.least, patience);
  EXPECT_LT(save.committed.greatest, patience + 2 * kSilenceNs);
}

TEST(ASimulation, CommitsLaterWhereTheCoordinatorStalls) {
  Scenario scenario = of_eight_hosts();
  const actors::TimeNs before = simulated(scenario).saves[1].committed.greatest;
  scenario.failures = {{Failure::Kind::stalls, 20'200, 0, 2000}};
  const SaveReport save = simulated(scenario).saves[1];
  EXPECT_EQ(save.aborted_ranks, 0u);
  EXPECT_GT(save.committed.greatest, before + 1000 * actors::kMillisecond);
}

// --- the coordinator over time ---

TEST(CoordinatorSeries, KeepsThePeaksInABoundedNumberOfSamples) {
  uint64_t memory = 0;
  CoordinatorSeries series([&] { return CoordinatorLoad{0, ++memory, 7}; });
  for (actors::TimeNs now = 0; now < 100'000; ++now)
    series.take(now * actors::kMillisecond, now % 1000 == 0 ? 50 : 1);
  series.take(1'000'000 * actors::kMillisecond, 0);  // nothing to do: no sample
  const std::vector<CoordinatorSample> samples = series.samples();
  ASSERT_LE(samples.size(), kMaxCoordinatorSamples);
  ASSERT_GT(samples.size(), kMaxCoordinatorSamples / 4);
  EXPECT_EQ(samples.front().begin, 0);
  EXPECT_GE(samples.back().end, 99'999 * actors::kMillisecond);
  EXPECT_LT(samples.back().end, 101'000 * actors::kMillisecond);
  uint64_t most = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (i > 0) {
      EXPECT_LE(samples[i - 1].end, samples[i].begin);
    }
    most = std::max(most, samples[i].most.queue);
  }
  EXPECT_EQ(most, 50u);
  EXPECT_EQ(series.take_peaks().queue, 50u);
  EXPECT_EQ(series.take_peaks().queue, 0u) << "since the last call";
}

TEST(ASimulation, CountsWhatTheCoordinatorRemembersAndHowManyDescriptorsItTakes) {
  Scenario scenario;
  scenario.ranks = 64;
  scenario.model = "llama3-8b";
  scenario.profile = "nvme";
  const SimulationReport small = simulated(scenario);
  scenario.ranks = 1024;
  const SimulationReport large = simulated(scenario);
  actors::DescriptorDemand demand{.listens = true, .peers = 7, .trainers = 8};
  EXPECT_EQ(small.saves.back().costs.coordinator_peaks.descriptors, actors::descriptors_needed(demand));
  demand.peers = 127;
  EXPECT_EQ(large.saves.back().costs.coordinator_peaks.descriptors, actors::descriptors_needed(demand));
  const uint64_t remembered_small = small.saves.back().costs.coordinator_peaks.memory_bytes;
  const uint64_t remembered_large = large.saves.back().costs.coordinator_peaks.memory_bytes;
  EXPECT_GT(remembered_large, remembered_small + 960 * sizeof(PlanId)) << "a plan's id for each further rank";
  EXPECT_LT(remembered_large, remembered_small + 960 * 2048) << "a bounded number of bytes a rank";
  EXPECT_FALSE(large.coordinator_over_time.empty());
}

// --- loads ---

Scenario of_loads() {
  Scenario scenario;
  scenario.ranks = 32;
  scenario.model = "llama3-8b";
  scenario.mesh = "dp=16,tp=1,pp=2";  // nothing is held twice
  scenario.profile = "nvme";
  scenario.saves = 1;
  scenario.loads = 1;
  return scenario;
}

TEST(ALoad, ReadsWhatItsRanksHoldAndAsksTheCoordinatorOnceANode) {
  for (SaveMode mode : kModes) {
    SCOPED_TRACE(mode_name(mode));
    Scenario scenario = of_loads();
    scenario.mode = mode;
    const SimulationReport report = simulated(scenario);
    ASSERT_EQ(report.loads.size(), 1u);
    const LoadReport& load = report.loads.front();
    EXPECT_EQ(load.bytes_wanted, report.parameters * 14);
    EXPECT_EQ(load.bytes_passed, load.bytes_wanted) << "each rank wants whole pieces";
    EXPECT_GT(load.costs.storage.bytes_read, load.bytes_passed) << "headers and records besides";
    EXPECT_LT(load.costs.storage.bytes_read, load.bytes_passed * 101 / 100);
    EXPECT_EQ(load.costs.coordinator.messages_in, load.nodes - 1);
    EXPECT_EQ(load.costs.coordinator.messages_out, load.nodes - 1);
    EXPECT_GT(load.found.least, 0);
    EXPECT_GT(load.loaded.least, load.found.greatest) << "one node is as soon as another";
  }
}

TEST(ALoad, ReadsTheBlocksThatItsBoxesTouchWhereTheMeshIsAnother) {
  Scenario scenario = of_loads();
  const uint64_t held = find_model(scenario.model)->parameters() * 14;
  for (const auto& [ranks, mesh, copies] :
       {std::tuple{16u, "dp=16,tp=1,pp=1", 1u}, std::tuple{64u, "dp=8,tp=4,pp=2", 1u},
        std::tuple{32u, "dp_replicate=4,dp=4,tp=2,pp=1", 4u}}) {
    SCOPED_TRACE(mesh);
    scenario.load_ranks = ranks;
    scenario.load_mesh = mesh;
    const SimulationReport report = simulated(scenario);
    const LoadReport& load = report.loads.at(0);
    EXPECT_EQ(load.ranks, ranks);
    // Every rank of tp holds, and so loads, the values that tp does not shard (norms).
    EXPECT_GE(load.bytes_wanted, held * copies);
    EXPECT_LT(load.bytes_wanted, held * copies * 101 / 100);
    EXPECT_GE(load.bytes_passed, load.bytes_wanted) << "whole digest blocks";
    EXPECT_LT(load.bytes_passed, load.bytes_wanted * 3);
    EXPECT_EQ(report.trace_hash, simulated(scenario).trace_hash);
  }
}

TEST(ALoad, OfReplicasReadsTheBytesOnceWhereItIsShared) {
  Scenario scenario = of_loads();
  scenario.model = "gpt2";
  scenario.mesh = "dp_replicate=4,dp=8,tp=1,pp=1";
  std::map<LoadMethod, uint64_t> bytes_read;
  for (LoadMethod method : {LoadMethod::direct, LoadMethod::two_stage}) {
    scenario.load_method = method;
    const SimulationReport report = simulated(scenario);
    bytes_read[method] = report.loads.at(0).costs.storage.bytes_read;
    EXPECT_EQ(report.loads.at(0).bytes_passed, report.parameters * 14 * 4);
    EXPECT_EQ(report.trace_hash, simulated(scenario).trace_hash);
  }
  const uint64_t once = find_model(scenario.model)->parameters() * 14;
  EXPECT_GT(bytes_read[LoadMethod::direct], 4 * once);
  EXPECT_LT(bytes_read[LoadMethod::two_stage], once * 12 / 10);
}

TEST(ALoad, IsRefusedOnAMeshThatDoesNotMultiplyToItsRanks) {
  Scenario scenario = of_loads();
  scenario.load_ranks = 24;
  scenario.load_mesh = "dp=5,tp=2";
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("the job that loads: mesh dp=5,tp=2,pp=1 has 10 ranks, not 24"));
  EXPECT_THAT(parse_scenario("ranks = 64\nloads = 1\nload_ranks = 24\nload_mesh = \"dp=5\"\n", "s.toml")
                  .status()
                  .message(),
              HasSubstr("s.toml:4: the job that loads: mesh dp=5"));
  EXPECT_THAT(parse_scenario("loads = -1\n", "s.toml").status().message(), HasSubstr("s.toml:1: loads = -1"));
}

// --- ends early ---

TEST(ASimulation, ThatIsStoppedReportsTheSavesThatWereDecided) {
  Scenario scenario;
  scenario.ranks = 64;
  scenario.model = "gpt2";
  scenario.saves = 200;
  static int looks;
  looks = 0;
  SimulationWatch watch;
  watch.stop = [] { return ++looks == 60; };
  const auto report = simulate(scenario, profile_named("lustre"), {}, &watch);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->stopped_early);
  ASSERT_GT(report->saves.size(), 0u);
  ASSERT_LT(report->saves.size(), 200u);
  EXPECT_EQ(watch.saves_decided, report->saves.size());
  EXPECT_LT(watch.milestones, milestones_of(scenario));
  scenario.saves = static_cast<uint32_t>(report->saves.size());
  const SimulationReport whole = simulated(scenario);
  for (size_t i = 0; i < whole.saves.size(); ++i) {
    EXPECT_EQ(report->saves[i].committed.greatest, whole.saves[i].committed.greatest);
    EXPECT_EQ(report->saves[i].aborted_ranks, 0u);
  }
}

// --- seeds ---

TEST(ASeed, ChangesTheTrace) {
  Scenario scenario;
  scenario.ranks = 16;
  scenario.model = "gpt2";
  const uint64_t first = simulated(scenario).trace_hash;
  scenario.seed = 2;
  EXPECT_NE(simulated(scenario).trace_hash, first);
}

}  // namespace
}  // namespace shoal::sim
