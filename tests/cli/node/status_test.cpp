// shoal status and top beside jobs that run, have ended, or are killed; and the metrics that a node serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

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

std::string http_get(const std::string& address) {
  const base::OwnedFd fd = connect_to_loopback(base::parse_host_port(address)->port);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return read_all(fd);
}

TEST_F(StatusTest, MetricsAreServedWhereAskedForAndParse) {
  RunningJob running(job({"--metrics", "127.0.0.1:0"}), options());
  ASSERT_TRUE(running.wait_for_output("up"));
  std::string message = running.errors();
  const std::string before = "metrics at http://";
  size_t at = message.find(before);
  ASSERT_NE(at, std::string::npos) << message;
  std::string address =
      message.substr(at + before.size(), message.find('/', at + before.size()) - at - before.size());
  std::string answer = http_get(address);
  auto parsed = actors::parse_prometheus(answer.substr(answer.find("\r\n\r\n") + 4));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ((*parsed)["shoal_saves_committed_total"].samples[0].value, 1);
  EXPECT_EQ((*parsed)["shoal_saves_in_flight"].samples[0].value, 0);
  EXPECT_GT((*parsed)["shoal_written_bytes_total"].samples[0].value, 0);
  EXPECT_EQ((*parsed)["shoal_catalog_recorded_total"].samples[0].value, 1);
  EXPECT_EQ((*parsed)["shoal_last_commit_step"].samples[0].value, 1);
}

TEST_F(StatusTest, AMetricsAddressThatCannotBeHadIsAnErrorAtTheStart) {
  ProcessEnd end = run_process(job({"--metrics", "203.0.113.1:1"}), options());
  EXPECT_NE(end.status, 0);
  EXPECT_THAT(end.err, HasSubstr("metrics address 203.0.113.1:1"));
}

}  // namespace
}  // namespace shoal::cli
