// shoal status and top beside jobs that run, have ended, or are killed; and the metrics that a node serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/host_port.h"
#include "tests/actors/node/watch/prometheus_text.h"
#include "tests/cli/process.h"
#include "tests/golden_copy.h"
#include "tests/loopback.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Stopped at the end, its node and trainers with it.
class RunningJob : public Process {
 public:
  using Process::Process;
  ~RunningJob() {
    send_signal(SIGTERM);
    wait();
  }
};

class StatusTest : public ::testing::Test {
 protected:
  std::string root() const { return folder_.path() + "/root"; }
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"}}};
  }
  // Saves step 1, then waits for the end. Its output contains `up` before it waits.
  std::vector<std::string> job(const std::vector<std::string>& more = {}) const {
    std::string script = std::string(SHOAL_TRAINER) +
                         " --save-steps 1 --layers 1 --hidden 32 --wait && echo up && exec sleep 60";
    std::vector<std::string> command = {SHOAL_PROGRAM, "launch", "--root", root(), "--create", "-n", "2"};
    command.insert(command.end(), more.begin(), more.end());
    for (const char* part : {"--", "/bin/sh", "-c"}) command.emplace_back(part);
    command.push_back(script);
    return command;
  }
  json status(std::vector<std::string> arguments = {}) const {
    std::vector<std::string> command = {"status", root(), "--json"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    ProcessEnd end = run_shoal(command, options());
    EXPECT_EQ(end.status, 0) << end.err << end.out;
    return json::parse(end.out);
  }
  TemporaryFolder folder_;
};

TEST_F(StatusTest, ShowsARunningJobAndItsLastCommit) {
  RunningJob running(job(), options());
  ASSERT_TRUE(running.wait_for_output("up"));
  json out = status();
  ASSERT_EQ(out["nodes"].size(), 1u) << out.dump(2);
  const json& node = out["nodes"][0];
  EXPECT_EQ(node["coordinates"], true);
  EXPECT_EQ(node["world_size"], 2);
  EXPECT_EQ(node["generation"], 1);
  EXPECT_EQ(node["root"], std::filesystem::canonical(root()).string());
  EXPECT_EQ(node["last_commit"]["step"], 1);
  EXPECT_GT(node["last_commit"]["payload_bytes"], 0);
  EXPECT_EQ(node["counts"]["saves_committed"], 1);
  EXPECT_GE(node["counts"]["bytes_staged"], node["counts"]["bytes_written"]);
  EXPECT_EQ(node["counts"]["bytes_written"], node["last_commit"]["payload_bytes"]);
  EXPECT_TRUE(node["saves"].empty());

  ProcessEnd text = run_shoal({"status", root()}, options());
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("last commit: step 1 (g1a1) at "));
  EXPECT_THAT(text.out, HasSubstr("no save in flight"));
  EXPECT_EQ(run_shoal({"status"}, options()).out.substr(0, 5), text.out.substr(0, 5))
      << "found without its root";
  ProcessEnd by_socket =
      run_shoal({"status", "--node", node["socket"].get<std::string>(), "--json"}, options());
  EXPECT_EQ(json::parse(by_socket.out)["nodes"][0]["pid"], node["pid"]);
}

TEST_F(StatusTest, ShowsASaveInFlightAndTheRankThatItWaitsFor) {
  // Rank 1 never stages: it sleeps instead of training.
  std::string script = "if [ $RANK = 1 ]; then echo up; exec sleep 60; fi; exec " +
                       std::string(SHOAL_TRAINER) +
                       " --save-steps 7 --sharding replicas --layers 1 --hidden 32";
  RunningJob running(
      {SHOAL_PROGRAM, "launch", "--root", root(), "--create", "-n", "2", "--", "/bin/sh", "-c", script},
      options());
  ASSERT_TRUE(running.wait_for_output("up"));
  json node;
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((node.is_null() || node["saves"].empty()) && std::chrono::steady_clock::now() < deadline) {
    ProcessEnd end = run_shoal({"status", root(), "--json"}, options());
    json out = json::parse(end.out);
    if (!out["nodes"].empty()) node = out["nodes"][0];
  }
  ASSERT_FALSE(node.is_null());
  ASSERT_EQ(node["saves"].size(), 1u) << node.dump(2);
  EXPECT_EQ(node["saves"][0]["step"], 7);
  EXPECT_EQ(node["saves"][0]["ranks_staged"], 1);
  EXPECT_GT(node["saves"][0]["bytes_staged"], 0);
  ProcessEnd text = run_shoal({"status", root()}, options());
  EXPECT_THAT(text.out, HasSubstr("WAITS FOR"));
  EXPECT_THAT(text.out, HasSubstr(" rank "));
}

TEST_F(StatusTest, NamesADamagedNewestManifestBesideTheNodeThatRuns) {
  RunningJob running(job(), options());
  ASSERT_TRUE(running.wait_for_output("up"));
  const std::string manifest = root() + "/step-00000001/g1a1/manifest.shoal";
  flip_bit_at(manifest, -1, std::ios::end);
  ProcessEnd end = run_shoal({"status", root()}, options());
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("no save in flight"));
  EXPECT_THAT(end.out, HasSubstr("damaged: " + manifest));
  EXPECT_THAT(end.err, HasSubstr(manifest));
}

TEST_F(StatusTest, EachNodeOfAJobTellsItsPart) {
  const std::string token = folder_.path() + "/token";
  std::ofstream(token) << "a token that nobody guesses";
  std::filesystem::permissions(token,
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_directory(root());
  auto node = [&](const std::string& name, const std::string& place) {
    std::string command = std::string("exec ") + SHOAL_PROGRAM + " node --root " + root() +
                          " --job-id j --name " + name + " --world-size 2 --token-file " + token + " " +
                          place + " 2>&1";
    return std::vector<std::string>{"/bin/sh", "-c", command};
  };
  auto options_of = [&](const std::string& name) {
    return ProcessOptions{.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/" + name}}};
  };
  auto status_of = [&](const std::string& name) {
    ProcessEnd end = run_shoal({"status", root(), "--json"}, options_of(name));
    EXPECT_EQ(end.status, 0) << end.err;
    return json::parse(end.out)["nodes"][0];
  };
  RunningJob first(node("a", "--coordinate --listen 127.0.0.1:0"), options_of("a"));
  ASSERT_TRUE(first.wait_for_output("ready"));
  const std::string address = status_of("a")["coordinator"];
  RunningJob second(node("b", "--coordinator " + address), options_of("b"));
  ASSERT_TRUE(second.wait_for_output("ready"));
  json follower = status_of("b");
  EXPECT_EQ(follower["coordinates"], false);
  EXPECT_EQ(follower["coordinator"], address);
  ASSERT_EQ(follower["peers"].size(), 1u);
  EXPECT_EQ(follower["peers"][0]["coordinates"], true);
  ASSERT_TRUE(first.wait_for_output("is up"));
  json coordinator = status_of("a");
  EXPECT_EQ(coordinator["coordinates"], true);
  ASSERT_EQ(coordinator["peers"].size(), 1u);
  EXPECT_THAT(coordinator["peers"][0]["name"].get<std::string>(), ::testing::StartsWith("b:"));
  EXPECT_EQ(coordinator["world_size"], 2);
}

TEST_F(StatusTest, SaysThatNoNodeRunsAndWhatTheRootTells) {
  {
    RunningJob running(job(), options());
    ASSERT_TRUE(running.wait_for_output("up"));
  }
  ProcessEnd end = run_shoal({"status", root()}, options());
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("no node answers at "));
  EXPECT_THAT(end.out, HasSubstr("another user, or one with another SHOAL_RUNTIME_DIR, has another socket"));
  EXPECT_THAT(end.out, HasSubstr("1 attempt, 1 checkpoint; the latest is step 1 (g1a1)"));
  end = run_shoal({"status", root(), "--json"}, options());
  EXPECT_EQ(end.status, 1);
  json out = json::parse(end.out);
  EXPECT_TRUE(out["nodes"].empty());
  EXPECT_EQ(out["root"]["latest"]["step"], 1);
  EXPECT_EQ(out["root"]["last_coordinator"]["epoch"], 1);

  end = run_shoal({"status", folder_.path() + "/none"}, options());
  EXPECT_EQ(end.status, 2);
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  end = run_shoal({"status"}, {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/elsewhere"}}});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("no node of this user runs on this host: " + folder_.path() +
                                 "/elsewhere has no socket (SHOAL_RUNTIME_DIR)"));
}

TEST_F(StatusTest, WatchesAsOftenAsAsked) {
  RunningJob running(job(), options());
  ASSERT_TRUE(running.wait_for_output("up"));
  ProcessEnd end =
      run_shoal({"status", root(), "--watch", "--json", "--count", "3", "--interval", "0.02"}, options());
  EXPECT_EQ(end.status, 0);
  std::istringstream lines(end.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_FALSE(json::parse(line)["nodes"].empty());
  EXPECT_EQ(count, 3);
  end = run_shoal({"top", root(), "--count", "2", "--interval", "0.02"}, options());
  EXPECT_EQ(end.status, 0);
  EXPECT_THAT(end.out, HasSubstr("now: staging 0 B/s"));
  EXPECT_THAT(end.out, Not(HasSubstr("\x1b"))) << "that is for terminals";
}

// The key waits in the terminal that `script` makes until shoal top reads it.
TEST_F(StatusTest, TopEndsOnATerminalWhenTheUserPressesQ) {
  RunningJob running(job(), options());
  ASSERT_TRUE(running.wait_for_output("up"));
  const std::string top = std::string(SHOAL_PROGRAM) + " top " + root() + " --interval-ms 3600000";
  ProcessEnd end =
      run_process({"/bin/sh", "-c", "printf q | script -qec '" + top + "' /dev/null"}, options());
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_THAT(end.out, HasSubstr("\x1b[?1049h")) << "the other screen of the terminal";
  EXPECT_THAT(end.out, HasSubstr("last commit: step 1 (g1a1)"));
  EXPECT_THAT(end.out, HasSubstr("\x1b[?1049l"));
  end = run_shoal({"top", root(), "--count", "1", "--interval", "1", "--interval-ms", "5"}, options());
  EXPECT_EQ(end.status, 2);
}

std::string http_get(const std::string& address) {
  const base::OwnedFd fd = connect_to_loopback(base::parse_host_port(address)->port);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return read_all(fd);
}

using Metrics = std::map<std::string, actors::MetricFamily>;

// What the node of a job serves that was begun with --metrics.
Metrics metrics_of(RunningJob& running) {
  const std::string before = "metrics at http://";
  EXPECT_TRUE(running.wait_for_errors(before)) << running.errors();
  EXPECT_TRUE(running.wait_for_output("up"));
  const std::string message = running.errors();
  const size_t at = message.find(before) + before.size();
  const std::string answer = http_get(message.substr(at, message.find('/', at) - at));
  auto parsed = actors::parse_prometheus(answer.substr(answer.find("\r\n\r\n") + 4));
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : Metrics();
}

double value_of(Metrics& metrics, const std::string& name, const std::string& suffix = "") {
  for (const actors::MetricSample& sample : metrics[name].samples) {
    if (sample.name == name + suffix) return sample.value;
  }
  ADD_FAILURE() << "no sample " << name << suffix;
  return -1;
}

TEST_F(StatusTest, MetricsAreServedWhereAskedForAndParse) {
  RunningJob running(job({"--metrics", "127.0.0.1:0"}), options());
  Metrics metrics = metrics_of(running);
  EXPECT_EQ(value_of(metrics, "shoal_saves_committed_total"), 1);
  EXPECT_EQ(value_of(metrics, "shoal_saves_in_flight"), 0);
  EXPECT_GT(value_of(metrics, "shoal_written_bytes_total"), 0);
  EXPECT_EQ(value_of(metrics, "shoal_catalog_recorded_total"), 1);
  EXPECT_EQ(value_of(metrics, "shoal_last_commit_step"), 1);
  EXPECT_GE(value_of(metrics, "shoal_last_commit_timestamp_seconds"),
            value_of(metrics, "shoal_node_start_time_seconds"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (value_of(metrics, "shoal_save_blocked_seconds", "_count") < 2 &&
         std::chrono::steady_clock::now() < deadline) {
    metrics = metrics_of(running);  // no save waits for what its trainer reports last
  }
  EXPECT_EQ(value_of(metrics, "shoal_save_blocked_seconds", "_count"), 2) << "both ranks have saved once";
  EXPECT_GT(value_of(metrics, "shoal_save_blocked_seconds", "_sum"), 0);
}

TEST_F(StatusTest, MetricsOfANodeBeginWithTheNewestCheckpointOfTheRoot) {
  std::vector<std::string> idle = {SHOAL_PROGRAM,
                                   "launch",
                                   "--root",
                                   root(),
                                   "--create",
                                   "-n",
                                   "1",
                                   "--metrics",
                                   "127.0.0.1:0",
                                   "--",
                                   "/bin/sh",
                                   "-c",
                                   "echo up && exec sleep 60"};
  {
    RunningJob running(idle, options());
    Metrics metrics = metrics_of(running);
    EXPECT_EQ(value_of(metrics, "shoal_last_commit_timestamp_seconds"), 0) << "the root is empty";
    EXPECT_FALSE(metrics.contains("shoal_last_commit_step"));
  }
  double committed_at = 0;
  {
    RunningJob running(job({"--metrics", "127.0.0.1:0"}), options());
    Metrics metrics = metrics_of(running);
    committed_at = value_of(metrics, "shoal_last_commit_timestamp_seconds");
  }
  RunningJob again(idle, options());
  Metrics metrics = metrics_of(again);
  EXPECT_EQ(value_of(metrics, "shoal_saves_committed_total"), 0);
  EXPECT_EQ(value_of(metrics, "shoal_last_commit_step"), 1);
  EXPECT_EQ(value_of(metrics, "shoal_last_commit_timestamp_seconds"), committed_at);
  EXPECT_GT(value_of(metrics, "shoal_last_commit_bytes"), 0);
  EXPECT_FALSE(metrics.contains("shoal_last_commit_seconds")) << "this node has not seen that save";
}

std::string text_of_page(const std::string& name) {
  std::ifstream file(SHOAL_SOURCE_FOLDER "/docs/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string expressions_of(const json& dashboard) {
  std::string all;
  for (const json& panel : dashboard["panels"]) {
    for (const json& target : panel.value("targets", json::array()))
      all += target["expr"].get<std::string>() + "\n";
  }
  return all;
}

// Names every metric of the text that the page lacks, and every label that no sample of it has.
std::vector<std::string> missing_of(const std::string& text, const Metrics& metrics) {
  std::map<std::string, std::set<std::string>> labels;
  for (const auto& [family, content] : metrics) {
    for (const actors::MetricSample& sample : content.samples) {
      for (const auto& [label, value] : sample.labels) labels[sample.name].insert(label);
      labels.try_emplace(sample.name);
    }
  }
  std::vector<std::string> missing;
  size_t named = 0;
  static const std::regex selector(R"(\b(shoal_[a-z0-9_]+)(\{[^}]*\})?)"), matcher(R"((\w+)\s*[=!])");
  for (std::sregex_iterator at(text.begin(), text.end(), selector), end; at != end; ++at, ++named) {
    const auto found = labels.find((*at)[1]);
    if (found == labels.end()) {
      missing.push_back((*at)[1]);
      continue;
    }
    const std::string matchers = (*at)[2];
    for (std::sregex_iterator label(matchers.begin(), matchers.end(), matcher); label != end; ++label) {
      if (!found->second.contains((*label)[1])) missing.push_back(at->str());
    }
  }
  EXPECT_GT(named, 10u) << text;
  return missing;
}

TEST_F(StatusTest, MetricsOfANodeHaveAllThatAlertsDashboardAndPageName) {
  RunningJob running(job({"--metrics", "127.0.0.1:0"}), options());
  const Metrics metrics = metrics_of(running);
  EXPECT_THAT(missing_of(text_of_page("monitoring/shoal-alerts.yml"), metrics), ::testing::IsEmpty());
  const json dashboard = json::parse(text_of_page("monitoring/shoal-dashboard.json"));
  EXPECT_THAT(missing_of(expressions_of(dashboard), metrics), ::testing::IsEmpty());
  const std::string page = text_of_page("reference/metrics.md");
  for (const auto& [name, family] : metrics) EXPECT_THAT(page, HasSubstr("| `" + name));
}

TEST(Dashboard, HasWhatGrafanaNeeds) {
  const json dashboard = json::parse(text_of_page("monitoring/shoal-dashboard.json"));
  for (const char* text : {"uid", "title"}) EXPECT_FALSE(dashboard.at(text).get<std::string>().empty());
  EXPECT_FALSE(dashboard.contains("id")) << "Grafana gives it";
  EXPECT_GE(dashboard.at("schemaVersion").get<int>(), 36) << "since then a panel names its datasource by uid";
  std::set<std::string> variables;
  for (const json& variable : dashboard.at("templating").at("list")) {
    variables.insert(variable.at("name").get<std::string>() + ":" + variable.at("type").get<std::string>());
  }
  EXPECT_THAT(variables, ::testing::ElementsAre("datasource:datasource", "job_id:query"));
  std::set<int> ids;
  for (const json& panel : dashboard.at("panels")) {
    SCOPED_TRACE(panel.dump());
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << "two panels have one id";
    EXPECT_FALSE(panel.at("title").get<std::string>().empty());
    const json& at = panel.at("gridPos");
    EXPECT_LE(at.at("x").get<int>() + at.at("w").get<int>(), 24) << "the width of the page";
    if (panel.at("type") == "row") continue;
    EXPECT_EQ(panel.at("datasource").at("uid"), "${datasource}");
    EXPECT_FALSE(panel.at("targets").empty());
    std::set<std::string> letters;
    for (const json& target : panel.at("targets")) {
      EXPECT_TRUE(letters.insert(target.at("refId").get<std::string>()).second);
      EXPECT_THAT(target.at("expr").get<std::string>(), HasSubstr("job_id=\"$job_id\"")) << "only of one job";
    }
  }
  EXPECT_GT(ids.size(), 10u);
}

TEST_F(StatusTest, AMetricsAddressThatCannotBeHadIsAnErrorAtTheStart) {
  ProcessEnd end = run_process(job({"--metrics", "203.0.113.1:1"}), options());
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("metrics address 203.0.113.1:1"));
}

}  // namespace
}  // namespace shoal::cli
