// A trace of a simulated run, read as the JSON that viewers read.
#include "sim/reports/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

nlohmann::json traced(const Scenario& scenario) {
  Trace trace;
  SimulationListeners listeners;
  listeners.trace = &trace;
  const auto report = simulate(scenario, profile_named(scenario.profile), listeners);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  return nlohmann::json::parse(trace.json());
}

Scenario traced_job() {
  Scenario scenario;
  scenario.ranks = 32;
  scenario.model = "gpt2";
  scenario.profile = "nvme";
  scenario.saves = 2;
  scenario.loads = 1;
  return scenario;
}

using Events = std::vector<nlohmann::json>;
Events of_phase(const nlohmann::json& trace, const std::string& phase) {
  Events found;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == phase) found.push_back(event);
  }
  return found;
}

TEST(ATrace, HasASliceForEachEventAndNoTwoAtATimeOnAHost) {
  std::map<int, double> ends;
  const Events slices = of_phase(traced(traced_job()), "X");
  ASSERT_GT(slices.size(), 200u);
  for (const auto& slice : slices) {
    double& end = ends[slice["pid"]];
    EXPECT_GE(slice["ts"].get<double>() + 1e-3, end) << slice;
    EXPECT_GT(slice["dur"], 0.0);
    end = slice["ts"].get<double>() + slice["dur"].get<double>();
  }
  EXPECT_EQ(ends.size(), 4u);  // hosts
}

TEST(ATrace, JoinsEachMessageToTheSliceThatSentItAndTheOneThatHandlesIt) {
  const nlohmann::json trace = traced(traced_job());
  std::map<uint64_t, nlohmann::json> sent;
  for (const auto& flow : of_phase(trace, "s")) sent[flow["id"]] = flow;
  const Events handled = of_phase(trace, "f");
  ASSERT_GT(handled.size(), 10u);
  EXPECT_EQ(handled.size(), sent.size());  // nothing fails, so no message is lost
  const Events slices = of_phase(trace, "X");
  const auto holds = [&](const nlohmann::json& flow) {
    return std::any_of(slices.begin(), slices.end(), [&](const nlohmann::json& slice) {
      const double at = flow["ts"], begin = slice["ts"];
      return slice["pid"] == flow["pid"] && begin <= at && at <= begin + slice["dur"].get<double>();
    });
  };
  for (const auto& flow : handled) {
    const auto from = sent.find(flow["id"]);
    ASSERT_NE(from, sent.end());
    EXPECT_NE(from->second["pid"], flow["pid"]);
    EXPECT_LT(from->second["ts"], flow["ts"]);
    EXPECT_TRUE(holds(from->second));
    EXPECT_TRUE(holds(flow));
  }
}

TEST(ATrace, EndsEachOperationAndEachStateOfARank) {
  const nlohmann::json trace = traced(traced_job());
  std::map<std::pair<uint64_t, std::string>, int> open;
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "b" && event["ph"] != "e") continue;
    const bool begins = event["ph"] == "b";
    names.insert(event["name"]);
    int& depth = open[{event["id"], event["name"]}];
    depth += begins ? 1 : -1;
    EXPECT_GE(depth, 0) << event;
  }
  for (const auto& [slice, depth] : open) EXPECT_EQ(depth, 0) << slice.second;
  for (const char* name : {"WriteShard", "PublishDecision", "save 1, rank 0", "save 2, rank 31", "copies",
                           "waits for the decision", "load 1, rank 31", "loads"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

// The clock of the job that loads begins at 0.
TEST(ATrace, PutsALoadBehindTheSaves) {
  double saved = 0, loads = -1;
  for (const auto& event : of_phase(traced(traced_job()), "b")) {
    const std::string name = event["name"];
    if (name == "save 2, rank 0") saved = event["ts"];
    if (name == "load 1, rank 0") loads = event["ts"];
  }
  EXPECT_GT(saved, 0.0);
  EXPECT_GT(loads, saved);
}

TEST(ATrace, IsBoundedAndSaysWhatItLeavesOut) {
  Scenario scenario = traced_job();
  scenario.ranks = 1024;
  scenario.loads = 0;
  const nlohmann::json trace = traced(scenario);
  EXPECT_EQ(trace["otherData"]["hosts"], 128);
  EXPECT_EQ(trace["otherData"]["traced_hosts"], kMostTracedNodes);
  for (const auto& event : trace["traceEvents"]) EXPECT_LE(event["pid"], kMostTracedNodes);

  Trace full;
  full.name_node(0, "rank 0");
  for (size_t i = 0; i < kMostTraced + 10; ++i) {
    full.handled(0, static_cast<actors::TimeNs>(i) * 100, static_cast<actors::TimeNs>(i) * 100 + 50,
                 actors::event::Started{});
  }
  EXPECT_EQ(full.dropped(), 10u);
  EXPECT_EQ(of_phase(nlohmann::json::parse(full.json()), "X").size(), kMostTraced);
}

TEST(ATrace, ChangesNoRun) {
  Trace trace;
  SimulationListeners listeners;
  listeners.trace = &trace;
  const Scenario scenario = traced_job();
  EXPECT_EQ(simulate(scenario, profile_named(scenario.profile), listeners)->trace_hash,
            simulated(scenario).trace_hash);
}

TEST(ATrace, ShowsFailuresWithTextOfAnyKind) {
  Trace trace;
  trace.rank_states(0, "a \"quoted\" \\ name\n", 5, {{"x", 7}, {"never", -1}});
  const nlohmann::json read = nlohmann::json::parse(trace.json());
  EXPECT_EQ(of_phase(read, "b").front()["name"], "a \"quoted\" \\ name\n");
  EXPECT_EQ(of_phase(read, "b").size(), 2u);

  Scenario scenario = traced_job();
  scenario.loads = 0;
  Failure failure;
  failure.at_ms = 60'500;
  failure.kind = Failure::Kind::stalls;
  failure.host = 1;
  failure.for_ms = 1000;
  scenario.failures = {failure};
  EXPECT_EQ(of_phase(traced(scenario), "i").size(), 1u);
}

}  // namespace
}  // namespace shoal::sim
