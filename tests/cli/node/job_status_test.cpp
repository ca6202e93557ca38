// The status of a whole job, from any of its hosts: two nodes that play two hosts, each with a trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/host_port.h"
#include "tests/cli/process.h"
#include "tests/loopback.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class TwoHosts : public ::testing::Test {
 protected:
  struct Host {
    std::unique_ptr<Process> node, trainer;
  };

  TwoHosts() {
    std::filesystem::create_directory(root());
    std::ofstream(token()) << "a token that nobody guesses";
    std::filesystem::permissions(token(),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  ~TwoHosts() override {
    for (Host* host : {&b_, &a_}) {
      for (Process* process : {host->trainer.get(), host->node.get()}) {
        if (process == nullptr) continue;
        process->send_signal(SIGCONT);
        process->send_signal(SIGTERM);
        process->wait();
      }
    }
  }

  std::string root() const { return folder_.path() + "/root"; }
  std::string token() const { return folder_.path() + "/token"; }
  ProcessOptions options_of(const std::string& host) const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/" + host}}};
  }
  void start_node(Host* host, const std::string& name, const std::string& place,
                  const std::string& before = "") {
    const std::string command = before + "exec " + SHOAL_PROGRAM + " node --root " + root() +
                                " --job-id j --name " + name + " --world-size 2 --host-lost-ms 60000" +
                                " --token-file " + token() + " " + place;
    host->node =
        std::make_unique<Process>(std::vector<std::string>{"/bin/sh", "-c", command}, options_of(name));
    ASSERT_TRUE(host->node->wait_for_errors("ready"));
  }
  // `before`: what the shell that becomes the node of host b does first.
  void start_nodes(const std::string& before = "", const std::string& more = "") {
    start_node(&a_, "a", "--coordinate --listen 127.0.0.1:0 " + more);
    address_ = status_of("a")["coordinator"];
    start_node(&b_, "b", "--coordinator " + address_, before);
  }
  void start_trainer(Host* host, const std::string& name, int rank, const std::string& mode) {
    ProcessOptions options = options_of(name);
    for (const auto& [variable, value] :
         std::vector<std::pair<std::string, std::string>>{{"RANK", std::to_string(rank)},
                                                          {"WORLD_SIZE", "2"},
                                                          {"SHOAL_ROOT", root()},
                                                          {"SHOAL_JOB_ID", "j"},
                                                          {"SHOAL_START_NODE", "0"}}) {
      options.environment.emplace_back(variable, value);
    }
    host->trainer = std::make_unique<Process>(
        std::vector<std::string>{SHOAL_TRAINER, "--save-steps", "1-100000", "--wait", "--layers", "1",
                                 "--hidden", "32", "--train-ms", "20", "--mode", mode},
        options);
  }
  void start_trainers(const std::string& mode = "collective-free") {
    start_trainer(&a_, "a", 0, mode);
    start_trainer(&b_, "b", 1, mode);
    ASSERT_TRUE(a_.trainer->wait_for_output("step 1: committed"));
    ASSERT_TRUE(b_.trainer->wait_for_output("step 1: committed"));
  }
  json status_of(const std::string& host) const {
    const ProcessEnd end = run_shoal({"status", root(), "--json"}, options_of(host));
    EXPECT_EQ(end.status, 0) << end.err;
    return json::parse(end.out)["nodes"][0];
  }
  // Asks on this host until the status of the job is as wanted.
  json job_once(const std::string& host, const std::function<bool(const json& job)>& is_wanted) const {
    json job;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      job = status_of(host)["job"];
      if (is_wanted(job)) return job;
    }
    ADD_FAILURE() << job.dump(2);
    return job;
  }
  std::string text_of(const std::string& host) const {
    return run_shoal({"status", root()}, options_of(host)).out;
  }

  TemporaryFolder folder_;
  std::string address_;
  Host a_, b_;
};

// Whether some save in flight waits for this host, for one of these reasons.
bool waits_for(const json& job, const std::string& host, const std::set<std::string>& reasons) {
  for (const json& save : job["saves"]) {
    for (const json& wait : save["waits_for"]) {
      if (wait["host"] == host && reasons.contains(wait["reason"])) return true;
    }
  }
  return false;
}

TEST_F(TwoHosts, AreBothShownOnEither) {
  start_nodes();
  start_trainers();
  for (const char* host : {"a", "b"}) {
    const json job = job_once(host, [](const json& each) {
      return each["hosts"].size() == 2 && each["hosts"][1]["ranks"] == json::array({1}) &&
             !each["hosts"][1]["last_commit"].is_null();
    });
    EXPECT_FALSE(job.contains("incomplete"));
    EXPECT_EQ(job["hosts"][0]["host"], "a");
    EXPECT_EQ(job["hosts"][0]["coordinates"], true);
    EXPECT_EQ(job["hosts"][1]["host"], "b");
    EXPECT_EQ(job["hosts"][1]["state"], "answered");
    EXPECT_GT(job["hosts"][1]["bytes_written"], 0);
    EXPECT_GE(job["last_commit"]["step"], 1);
    EXPECT_THAT(text_of(host), HasSubstr("job: 2 hosts"));
  }
  const json node = status_of("b");
  EXPECT_GT(node["bytes_free"], 0);
}

TEST_F(TwoHosts, ASaveThatIsStuckNamesTheHostWhoseNodeIsStopped) {
  start_nodes();
  start_trainers();
  b_.node->send_signal(SIGSTOP);
  const json job = job_once("a", [](const json& each) { return waits_for(each, "b", {"silent", "lost"}); });
  EXPECT_EQ(job["hosts_silent"].get<int>() + job["hosts_lost"].get<int>(), 1);
  EXPECT_EQ(job["saves"][0]["waits_for"][0]["ranks"], json::array({1}));
  EXPECT_THAT(text_of("a"), HasSubstr("waits for host b: rank 1, its node "));
}

TEST_F(TwoHosts, ASaveThatIsStuckNamesTheHostWhoseTrainerIsStopped) {
  start_nodes();
  start_trainers();
  b_.trainer->send_signal(SIGSTOP);
  for (const char* host : {"a", "b"}) {
    const json job = job_once(host, [](const json& each) { return waits_for(each, "b", {"staging"}); });
    EXPECT_EQ(job["hosts"][1]["stopped_ranks"], json::array({1}));
    EXPECT_EQ(job["saves"][0]["waits_for"][0]["detail"], "the trainer of rank 1 is stopped");
  }
}

TEST_F(TwoHosts, ASaveThatIsStuckNamesTheHostWhoseStorageHangsAndTheCall) {
#if defined(SHOAL_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer must be the first library";
#endif
  const std::string hang = folder_.path() + "/hang";
  start_nodes(std::string("export LD_PRELOAD=") + SHOAL_HANGING_FSYNC + " SHOAL_TEST_HANG=" + hang + "; ");
  start_trainers();
  std::ofstream{hang}.close();
  const json job = job_once("a", [](const json& each) {
    return waits_for(each, "b", {"writing"}) && !each["hosts"][1]["slow_calls"].empty();
  });
  EXPECT_THAT(job["hosts"][1]["slow_calls"][0]["what"].get<std::string>(), HasSubstr("sync of " + root()));
  EXPECT_GE(job["hosts"][1]["slow_calls"][0]["age_ms"], 5000);
  EXPECT_THAT(job["saves"][0]["waits_for"][0]["detail"].get<std::string>(), HasSubstr("has not returned"));
  EXPECT_THAT(text_of("a"), HasSubstr("storage of host b: "));
  std::filesystem::remove(hang);
}

TEST_F(TwoHosts, WithoutTheCoordinatorAHostShowsWhatItKnowsAndSaysSo) {
  start_nodes();
  a_.node->send_signal(SIGKILL);
  a_.node->wait();
  a_.node.reset();
  const json job = job_once("b", [](const json& each) { return each.contains("incomplete"); });
  EXPECT_THAT(job["incomplete"].get<std::string>(), HasSubstr(": this is what host b knows"));
  ASSERT_EQ(job["hosts"].size(), 1u);
  EXPECT_EQ(job["hosts"][0]["host"], "b");
  EXPECT_THAT(text_of("b"), HasSubstr("job: the coordinator is not connected: this is what host b knows\n"));
}

TEST_F(TwoHosts, InModeRankLocalAreBothShownToo) {
  start_nodes();
  start_trainers("rank-local");
  b_.node->send_signal(SIGSTOP);
  const json job = job_once("a", [](const json& each) { return waits_for(each, "b", {"silent", "lost"}); });
  EXPECT_EQ(job["hosts"][1]["ranks"], json::array({1}));
}

// The body of what the page of host a answers.
std::string page_of(const Process& node, const std::string& path) {
  const std::string before = "status page at http://", errors = node.errors();
  const size_t at = errors.find(before) + before.size();
  const std::string address = errors.substr(at, errors.find('/', at) - at);
  const base::OwnedFd fd = connect_to_loopback(base::parse_host_port(address)->port);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  const std::string answer = read_all(fd);
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

TEST_F(TwoHosts, AreShownByThePageOfTheCoordinatorsNode) {
  start_nodes("", "--status-page 127.0.0.1:0");
  start_trainers();
  EXPECT_THAT(page_of(*a_.node, "/"), ::testing::StartsWith("<!DOCTYPE html>"));
  json page;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    page = json::parse(page_of(*a_.node, "/status.json"));
  } while ((page["job"].is_null() || page["job"]["hosts"].size() < 2 || !page.contains("bytes_free")) &&
           std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(page["job_id"], "j");
  EXPECT_EQ(page["job"]["hosts"][1]["host"], "b");
  EXPECT_GT(page["checkpoints_fit"], 0);
  const json& save = page["saves"][0];
  EXPECT_EQ(save["step"], 1);
  EXPECT_EQ(save["state"], "committed");
  EXPECT_LE(save["staged_ms"], save["durable_ms"]);
  EXPECT_LE(save["durable_ms"], save["decided_ms"]);
  EXPECT_GT(save["payload_bytes"], 0);
  EXPECT_GT(save["blocked_ms"], 0);
  EXPECT_EQ(page["aborted"]["storage"], 0);
}

TEST_F(TwoHosts, CountTheNodesThatWereReplaced) {
  start_nodes();
  b_.node->send_signal(SIGKILL);
  b_.node->wait();
  b_.node.reset();
  start_node(&b_, "b", "--rejoin job --coordinator " + address_);
  const json job = job_once("a", [](const json& each) {
    return each["hosts"].size() == 2 && each["hosts"][1]["state"] == "answered";
  });
  EXPECT_EQ(job["hosts"][1]["restarts"], 1);
}

}  // namespace
}  // namespace shoal::cli
