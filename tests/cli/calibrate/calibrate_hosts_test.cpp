// shoal calibrate --hosts: processes meet in a folder, measure alone and together, and one writes the
// profile. A host that does not come, is killed or fails ends all of them with an error that names it, and
// nothing is left in the root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CalibrateHosts : public ::testing::Test {
 protected:
  CalibrateHosts() { std::filesystem::create_directory(root_); }

  // A process that waits for `hosts` of them. Its measurements take `seconds` each.
  std::unique_ptr<Process> start(int hosts, int patience_s, const std::vector<std::string>& more = {},
                                 const std::string& seconds = "0.2") {
    std::vector<std::string> command = {SHOAL_PROGRAM, "calibrate", "--root", root_, "--bytes", "16MiB"};
    for (const auto& [option, value] : {std::pair<std::string, std::string>{"--hosts", std::to_string(hosts)},
                                        {"--patience", std::to_string(patience_s)},
                                        {"--seconds", seconds}}) {
      command.push_back(option);
      command.push_back(value);
    }
    command.insert(command.end(), more.begin(), more.end());
    return std::make_unique<Process>(command);
  }
  bool is_root_empty() const { return std::filesystem::is_empty(root_); }

  // Two hosts calibrate, and leave nothing behind.
  void expect_two_hosts_succeed() {
    const auto one = start(2, 20), other = start(2, 20);
    const ProcessEnd end = one->wait(), other_end = other->wait();
    EXPECT_EQ(end.status, 0) << end.err;
    EXPECT_EQ(other_end.status, 0) << other_end.err;
    EXPECT_TRUE(is_root_empty());
  }

  TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/root", out_ = folder_.path() + "/ours.toml";
};

TEST_F(CalibrateHosts, MeasureAloneAndTogetherAndOneWritesTheProfile) {
  std::vector<std::unique_ptr<Process>> hosts;
  for (int i = 0; i < 3; ++i) hosts.push_back(start(3, 60, {"--json", "--out", out_, "--name", "ours"}));
  std::vector<json> written, others;
  for (const auto& host : hosts) {
    const ProcessEnd end = host->wait();
    ASSERT_EQ(end.status, 0) << end.err;
    json out = json::parse(end.out);
    EXPECT_EQ(out["command"], "calibrate");
    EXPECT_NE(out["profile_by"], "");
    (out.contains("hosts") ? written : others).push_back(std::move(out));
  }
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(others.size(), 2u);
  const json& all = written[0];
  ASSERT_EQ(all["hosts"].size(), 3u);
  int64_t bytes = 0, changes = 0;
  for (const json& host : all["hosts"]) {
    for (const char* when : {"alone", "together"}) {
      for (const char* number : {"bytes_per_s", "changes_per_s", "create_p50_ns", "create_p99_ns"}) {
        EXPECT_GT(host[when][number], 0) << when << " " << number;
      }
    }
    EXPECT_GT(host["alone"]["one_by_one_p50_ns"], 0);
    bytes += host["together"]["bytes_per_s"].get<int64_t>();
    changes += host["together"]["changes_per_s"].get<int64_t>();
  }
  EXPECT_NEAR(all["total"]["bytes_per_s"].get<double>(), static_cast<double>(bytes), 3);
  EXPECT_NEAR(all["total"]["changes_per_s"].get<double>(), static_cast<double>(changes), 3);
  EXPECT_EQ(all["numbers"].size(), 22u);
  for (const json& number : all["numbers"]) {
    if (number["number"] == "storage.total_bytes_per_s") {
      EXPECT_EQ(number["value"], all["total"]["bytes_per_s"]);
      EXPECT_EQ(number["kind"], "measured");
      EXPECT_THAT(number["source"].get<std::string>(), HasSubstr("3 processes on 1 host wrote"));
    }
  }
  EXPECT_TRUE(is_root_empty());
  const ProcessEnd simulated = run_shoal({"sim", "--profile", out_, "--ranks", "16", "--model", "gpt2"});
  EXPECT_EQ(simulated.status, 0) << simulated.err;
}

TEST_F(CalibrateHosts, NameThoseThatCameIfOneDoesNot) {
  const auto one = start(3, 2), other = start(3, 2);
  for (Process* host : {one.get(), other.get()}) {
    const ProcessEnd end = host->wait();
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.err, HasSubstr(" of 3 hosts came within 2 s: "));
    EXPECT_THAT(end.err, HasSubstr("same --root and --hosts"));
  }
  EXPECT_TRUE(is_root_empty());
}

TEST_F(CalibrateHosts, EndIfOneIsKilledInTheMiddle) {
  const auto one = start(3, 10), other = start(3, 10), killed = start(3, 10);
  ASSERT_TRUE(killed->wait_for_errors("writes the profile"));
  killed->send_signal(SIGKILL);
  EXPECT_EQ(killed->wait().status, 128 + SIGKILL);
  for (Process* host : {one.get(), other.get()}) {
    const ProcessEnd end = host->wait();
    EXPECT_EQ(end.status, 2) << end.err;
    EXPECT_THAT(end.err, HasSubstr("has given no sign of life for 10 s"));
  }
  EXPECT_TRUE(is_root_empty());
}

TEST_F(CalibrateHosts, PassOverTheFilesOfARunThatWasKilledWhileItMeasured) {
  {
    const auto one = start(2, 60, {}, "100"), other = start(2, 60, {}, "100");
    ASSERT_TRUE(one->wait_for_errors("writes the profile"));
    one->send_signal(SIGKILL);
    other->send_signal(SIGKILL);
  }
  EXPECT_FALSE(is_root_empty());
  expect_two_hosts_succeed();
}

TEST_F(CalibrateHosts, PassOverTheFilesOfARunThatWasKilledWhileItWaited) {
  {
    const auto one = start(2, 60);
    ASSERT_TRUE(one->wait_for_errors("joined as host 0 of 2"));
    one->send_signal(SIGKILL);
  }
  EXPECT_FALSE(is_root_empty());
  expect_two_hosts_succeed();
}

TEST_F(CalibrateHosts, ReportTheErrorOfTheHostThatFails) {
  const auto one = start(2, 60, {"--out", "/no/such/ours.toml"});
  const auto other = start(2, 60, {"--out", "/no/such/ours.toml"});
  for (Process* host : {one.get(), other.get()}) {
    const ProcessEnd end = host->wait();
    EXPECT_EQ(end.status, 2) << end.err;
    EXPECT_THAT(end.err, HasSubstr("cannot write /no/such/ours.toml"));
  }
  EXPECT_TRUE(is_root_empty());
}

// Regression: a host that measured did not notice that another one had given up.
TEST_F(CalibrateHosts, RemoveTheirFilesAfterASignal) {
  const auto stopped = start(2, 60, {}, "100"), other = start(2, 60, {}, "100");
  ASSERT_TRUE(stopped->wait_for_errors("writes the profile"));
  stopped->send_signal(SIGTERM);
  const ProcessEnd end = stopped->wait(), other_end = other->wait();
  EXPECT_EQ(end.status, 128 + SIGTERM) << end.err;
  EXPECT_EQ(other_end.status, 2);
  EXPECT_THAT(other_end.err, HasSubstr("gave up: stopped by a signal"));
  EXPECT_TRUE(is_root_empty());
}

TEST_F(CalibrateHosts, RejectAHostWithOtherOptions) {
  const auto one = start(3, 15);
  ASSERT_TRUE(one->wait_for_errors("joined as host 0 of 3"));
  const ProcessEnd end = start(2, 60)->wait();
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("with --hosts 3 and"));
  EXPECT_THAT(end.err, HasSubstr("give all hosts the same options"));
  EXPECT_EQ(one->wait().status, 2);
  EXPECT_TRUE(is_root_empty());
}

TEST_F(CalibrateHosts, RejectOneThatIsTooMany) {
  const auto one = start(2, 60, {}, "100"), other = start(2, 60, {}, "100");
  ASSERT_TRUE(one->wait_for_errors("writes the profile"));
  const ProcessEnd end = start(2, 60)->wait();
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("wait until they have ended"));
  one->send_signal(SIGINT);
  EXPECT_EQ(one->wait().status, 128 + SIGINT);
  EXPECT_EQ(other->wait().status, 2);
  EXPECT_TRUE(is_root_empty());
}

// Regression: a signal left the folder in which it measures.
TEST_F(CalibrateHosts, OneHostRemovesItsFilesAfterASignalToo) {
  Process host({SHOAL_PROGRAM, "calibrate", "--root", root_, "--bytes", "64GiB"});
  ASSERT_TRUE(host.wait_for_errors("measuring storage"));
  host.send_signal(SIGTERM);
  EXPECT_EQ(host.wait().status, 128 + SIGTERM);
  EXPECT_TRUE(is_root_empty());
}

}  // namespace
}  // namespace shoal::cli
