// The metrics of a node: their text, and the server that sends them to well-behaved and to misbehaving
// clients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/node/bootstrap.h"
#include "actors/node/watch/metrics_server.h"
#include "actors/node/watch/metrics_text.h"
#include "base/host_port.h"
#include "base/owned_fd.h"
#include "tests/actors/node/watch/prometheus_text.h"
#include "tests/loopback.h"
#include "transport/transport.h"

namespace shoal::actors {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

NodeMetrics sample_metrics() {
  NodeMetrics metrics;
  metrics.version = "0.1.0";
  metrics.host = "host-\"a\"\\b\nc";
  metrics.job_id = "job";
  metrics.coordinates = true;
  metrics.storage_oldest_call_ns = 7'500'000'000;
  metrics.activity.node.saves_committed = 3;
  metrics.activity.node.bytes_to_peers = 11;
  metrics.activity.node.bytes_from_peers = 12;
  metrics.activity.commit_seconds.counts[0] = 1;
  metrics.activity.commit_seconds.counts[3] = 1;
  metrics.activity.commit_seconds.counts.back() = 1;
  metrics.activity.commit_seconds.sum = 400.25;
  metrics.activity.last_commit = local::CommitStatus{{1, 70, 1}, 0, 1500, 1000, {}};
  metrics.activity.newest = NewestCheckpoint{{1, 70, 1}, 1'700'000'000'500'000'000, 1000};
  metrics.activity.blocked_seconds.add(0.002);
  metrics.activity.waited_seconds = 0.001;
  metrics.activity.aborted[static_cast<size_t>(AbortCause::host_lost)] = 2;
  metrics.activity.loads_failed[static_cast<size_t>(Code::io)] = 4;
  metrics.stats.transport.sent = {5, 1000};
  metrics.stats.transport.by_transport["posix+tcp"] = {7, 2000};
  return metrics;
}

TEST(MetricsText, IsWhatPrometheusReads) {
  auto parsed = parse_prometheus(format_metrics(sample_metrics()));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ((*parsed)["shoal_saves_committed_total"].samples[0].value, 3);
  EXPECT_EQ((*parsed)["shoal_storage_oldest_call_seconds"].samples[0].value, 7.5);
  EXPECT_EQ((*parsed)["shoal_last_commit_step"].samples[0].value, 70);
  EXPECT_EQ((*parsed)["shoal_last_commit_timestamp_seconds"].samples[0].value, 1'700'000'000.5);
  EXPECT_EQ((*parsed)["shoal_save_blocked_seconds"].type, "histogram");
  EXPECT_EQ((*parsed)["shoal_save_waited_seconds_total"].samples[0].value, 0.001);
  const MetricFamily& aborted = (*parsed)["shoal_saves_aborted_total"];
  ASSERT_EQ(aborted.samples.size(), kAbortCauses)
      << "also those that have not happened: increase() needs them";
  EXPECT_EQ(aborted.samples[0].labels.at("cause"), "host_lost");
  EXPECT_EQ(aborted.samples[0].value, 2);
  for (const MetricSample& sample : (*parsed)["shoal_loads_failed_total"].samples) {
    EXPECT_THAT(sample.labels.at("code"), ::testing::MatchesRegex("[a-z_]+"));
    EXPECT_EQ(sample.value, sample.labels.at("code") == "io_error" ? 4 : 0);
  }
  EXPECT_EQ((*parsed)["shoal_written_bytes_total"].samples[0].labels.at("tier"), "root");
  EXPECT_EQ((*parsed)["shoal_shared_bytes_total"].samples[0].value, 11);
  EXPECT_EQ((*parsed)["shoal_shared_bytes_total"].samples[1].value, 12);
  EXPECT_EQ((*parsed)["shoal_last_commit_seconds"].samples[0].value, 1.5);
  const MetricFamily& by_transport = (*parsed)["shoal_transport_bytes_by_kind_total"];
  ASSERT_EQ(by_transport.samples.size(), 1u);
  EXPECT_EQ(by_transport.samples[0].labels.at("transport"), "posix+tcp");
  EXPECT_EQ((*parsed)["shoal_node_info"].samples[0].labels.at("host"), R"(host-\"a\"\\b\nc)");
  const MetricFamily& seconds = (*parsed)["shoal_commit_seconds"];
  EXPECT_EQ(seconds.type, "histogram");
  EXPECT_EQ(seconds.samples.size(), kCommitSecondsBuckets.size() + 3);
  for (const auto& [name, family] : *parsed) {
    EXPECT_THAT(name, StartsWith("shoal_"));
    EXPECT_THAT(family.help, EndsWith("."));
  }
}

TEST(MetricsText, IsReadWithNothingCountedYet) {
  auto parsed = parse_prometheus(format_metrics(NodeMetrics{}));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_FALSE(parsed->contains("shoal_last_commit_timestamp_seconds")) << "it did not look into the root";
  EXPECT_FALSE(parsed->contains("shoal_catalog_recorded_total")) << "this node has no catalog";
}

TEST(MetricsText, OfACoordinatorThatKnowsNoCheckpointHasTheTimeZero) {
  NodeMetrics coordinator;
  coordinator.coordinates = true;
  auto parsed = parse_prometheus(format_metrics(coordinator));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ((*parsed)["shoal_last_commit_timestamp_seconds"].samples[0].value, 0);
  EXPECT_FALSE(parsed->contains("shoal_last_commit_step"));
}

TEST(MetricsText, HasTheDurationOfTheLastCommitOnlyIfThisNodeSawThatSave) {
  NodeMetrics metrics = sample_metrics();
  metrics.activity.newest->key.step = 80;
  auto parsed = parse_prometheus(format_metrics(metrics));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ((*parsed)["shoal_last_commit_step"].samples[0].value, 80);
  EXPECT_FALSE(parsed->contains("shoal_last_commit_seconds"));
}

TEST(MetricsText, NamesNoLastCommitInAJobThatOnlyReads) {
  NodeMetrics metrics = sample_metrics();
  metrics.read_only = true;
  EXPECT_THAT(format_metrics(metrics), ::testing::Not(HasSubstr("shoal_last_commit")));
}

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override { begin(kMetricsClientTimeoutMs); }
  void begin(int client_timeout_ms) {
    server_.reset();
    auto started = MetricsServer::start(
        "127.0.0.1:0", "metrics",
        {{"/metrics", kMetricsContentType, "", [] { return std::string("shoal_x 1\n"); }},
         {"/other", "text/html", "X-Other: 1\r\n", [] { return std::string("<p>"); }}},
        client_timeout_ms);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = std::move(*started);
  }
  base::OwnedFd connect_to() const {
    return connect_to_loopback(base::parse_host_port(server_->address())->port);
  }
  std::string ask(const std::string& request) const {
    base::OwnedFd fd = connect_to();
    (void)send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    return read_all(fd);
  }

  std::unique_ptr<MetricsServer> server_;
};

const std::string kGet = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(MetricsServerTest, AnswersGet) {
  std::string answer = ask(kGet);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\nshoal_x 1\n"));
  EXPECT_THAT(ask("GET /metrics?name[]=x HTTP/1.0\r\n\r\n"), HasSubstr("200 OK"));
}

TEST_F(MetricsServerTest, AnswersEachOfItsPaths) {
  const std::string answer = ask("GET /other HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/html\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Other: 1\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n<p>"));
}

// Regression: a foreign site that had its name resolved to the loopback read the status page.
TEST_F(MetricsServerTest, ServesThePageOnlyUnderANameOfThisHost) {
  const auto ask_as = [&](const std::string& path, const std::string& host) {
    return ask("GET " + path + " HTTP/1.1\r\nA: b\r\nhOsT:" + host + "\r\n\r\n");
  };
  for (const std::string& host :
       {server_->address(), std::string("10.0.0.7"), std::string(" [::1]:9180 "), std::string("LocalHost:80"),
        std::string("localhost."), own_host_name(), own_host_name() + ":9180"}) {
    EXPECT_THAT(ask_as("/other", host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host : {"evil.example", "evil.example:9180", "127.0.0.1.evil.example",
                           "[::1].evil.example", "localhost.evil.example", "[::1", "[]", "127.0.0.1:x",
                           "127.1", "", ":80", "localhost\r\nHost: evil.example"}) {
    const std::string answer = ask_as("/other?x=1", host);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 Misdirected Request\r\n")) << host;
    EXPECT_THAT(answer, ::testing::Not(HasSubstr("<p>"))) << host;
    EXPECT_THAT(ask_as("/metrics", host), StartsWith("HTTP/1.1 200 ")) << "a scraper uses any name";
  }
}

TEST(MetricsServer, WarnsOfAPageOnAllAddresses) {
  const HttpRoute metrics = {"/metrics", kMetricsContentType, "", [] { return std::string(); }};
  const HttpRoute page = {"/", "text/html", "", [] { return std::string(); }};
  const auto warning_of = [](const char* address, std::vector<HttpRoute> routes) {
    const auto server = MetricsServer::start(address, "status page", std::move(routes));
    EXPECT_TRUE(server.ok()) << server.status().to_string();
    return server.ok() ? (*server)->warning().value_or("") : "it does not serve";
  };
  EXPECT_THAT(warning_of("0.0.0.0:0", {metrics, page}), HasSubstr("the status page at 0.0.0.0:"));
  EXPECT_EQ(warning_of("0.0.0.0:0", {metrics}), "");
  EXPECT_EQ(warning_of("127.0.0.1:0", {page}), "");
}

TEST_F(MetricsServerTest, RefusesAnythingElse) {
  EXPECT_THAT(ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  for (const char* request : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n",
                              "GET /metrics HTTP/2\r\n\r\n", "\x16\x03\x01 hello\r\n\r\n"}) {
    EXPECT_THAT(ask(request), StartsWith("HTTP/1.1 400 ")) << request;
  }
  EXPECT_THAT(ask("GET /metrics HTTP/1.1\r\nA: " + std::string(2 * kMaxMetricsRequestBytes, 'a')),
              ::testing::AnyOf(StartsWith("HTTP/1.1 431 "), ""));  // it may close on what it has not read
}

TEST_F(MetricsServerTest, ReadsARequestThatComesInPieces) {
  base::OwnedFd fd = connect_to();
  for (char c : kGet) ASSERT_EQ(send(fd.get(), &c, 1, MSG_NOSIGNAL), 1);
  EXPECT_THAT(read_all(fd), HasSubstr("200 OK"));
}

TEST_F(MetricsServerTest, CutsOffAClientThatSaysNothing) {
  begin(200);
  auto start = std::chrono::steady_clock::now();
  base::OwnedFd silent = connect_to();
  EXPECT_THAT(ask(kGet), HasSubstr("200 OK")) << "others are served meanwhile";
  EXPECT_EQ(read_all(silent), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

// Regression: as many silent connections as it takes kept everybody else out for five seconds.
TEST_F(MetricsServerTest, AnswersBesideAsManySilentOnesAsItTakes) {
  begin(60'000);  // however slow the machine
  std::vector<base::OwnedFd> silent;
  for (size_t i = 0; i < kMaxMetricsConnections; ++i) silent.push_back(connect_to());
  EXPECT_THAT(ask(kGet), HasSubstr("200 OK"));
  EXPECT_EQ(read_all(silent.front()), "") << "the oldest one made room";
  ASSERT_EQ(send(silent.back().get(), kGet.data(), kGet.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(kGet.size()));
  EXPECT_THAT(read_all(silent.back()), HasSubstr("200 OK")) << "no other one did";
}

TEST_F(MetricsServerTest, EndsWhileClientsAreConnected) {
  base::OwnedFd held = connect_to();
  server_.reset();
  EXPECT_EQ(read_all(held), "");
}

TEST_F(MetricsServerTest, SaysWhyItCannotListen) {
  for (const std::string& address : {server_->address(), std::string("nowhere"),
                                     std::string("127.0.0.1:99999"), std::string("203.0.113.1:80")}) {
    auto second = MetricsServer::start(address, "metrics", {});
    ASSERT_FALSE(second.ok()) << address;
    EXPECT_THAT(second.status().message(), HasSubstr(address));
  }
}

}  // namespace
}  // namespace shoal::actors
