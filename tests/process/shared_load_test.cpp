// Hosts that hold the same tensors load them together: each byte is read from storage about once and passed
// on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <future>

#include "local/socket/socket.h"
#include "local/status/node_query.h"
#include "tests/process/listening_places.h"
#include "tests/process/node_child.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::StartsWith;

constexpr uint32_t kHosts = 4;
constexpr uint64_t kTensors = 6, kRowsEach = 1536, kColumnsEach = 1024;  // 6 MiB each
constexpr uint64_t kPayload = kTensors * kRowsEach * kColumnsEach * sizeof(uint32_t);

uint32_t element(uint64_t i) {
  return static_cast<uint32_t>((i * 0x9E3779B97F4A7C15u) >> 32);
}

// Holds all tensors whole, as every other replica does.
struct Replica {
  Replica(const Scratch& scratch, const std::string& host, Rank rank) {
    setenv("SHOAL_RUNTIME_DIR", scratch.host(host).c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch.root();
    options.rank = rank;
    options.world_size = kHosts;
    options.job_id = "job-1";
    options.start_node = false;
    options.attach_timeout = std::chrono::seconds(10);
    opened = Checkpointer::open(options);
    memory.resize(kPayload / sizeof(uint32_t));
    const Mesh mesh = Mesh::contiguous({kHosts});
    for (uint64_t i = 0; i < kTensors; ++i) {
      state.add_tensor(fmt::format("layers.{}", i), DType::i32, {kRowsEach, kColumnsEach}, mesh,
                       {Placement::replicate()}, memory.data() + i * kRowsEach * kColumnsEach);
    }
  }
  void fill() {
    for (uint64_t i = 0; i < memory.size(); ++i) memory[i] = element(i);
  }
  void forget() { std::fill(memory.begin(), memory.end(), 0); }
  bool holds() const {
    for (uint64_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != element(i)) return false;
    }
    return true;
  }
  Result<LoadResult> load(LoadMethod method) {
    LoadOptions how;
    how.method = method;
    return (*opened)->load(state, how);
  }

  std::vector<uint32_t> memory;
  StateDict state;
  Result<std::unique_ptr<Checkpointer>> opened = Status(Code::internal, "not opened");
};

class SharedLoads : public ::testing::Test {
 protected:
  static std::string host(uint32_t i) { return fmt::format("host-{}", i); }
  void start(uint32_t i, const std::string& more = "") {
    std::vector<std::string> words = {"root=" + scratch_.root(), "job=job-1", fmt::format("world={}", kHosts),
                                      "name=" + host(i), "stats=" + scratch_.file("stats-" + host(i))};
    if (i > 0) words.push_back("coordinator=" + nodes_[0]->address());
    if (!more.empty()) words.push_back(more);
    nodes_[i] = std::make_unique<NodeChild>(scratch_.host(host(i)), words);
    ASSERT_THAT(nodes_[i]->first_line(), StartsWith("ready"));
  }
  void save_and_forget() {
    for (Rank rank = 0; rank < kHosts; ++rank) {
      replicas_.push_back(std::make_unique<Replica>(scratch_, host(rank), rank));
      ASSERT_TRUE(replicas_[rank]->opened.ok()) << replicas_[rank]->opened.status().to_string();
    }
    for (auto& saved : together(replicas_, [](Replica& replica) {
           replica.fill();
           return (*replica.opened)->save(1, replica.state);
         })) {
      ASSERT_TRUE(saved.ok()) << saved.status().to_string();
      auto committed = saved->wait_committed(kPatience);
      ASSERT_TRUE(committed.ok()) << committed.status().to_string();
    }
    for (auto& replica : replicas_) replica->forget();
  }
  std::vector<Result<LoadResult>> load(LoadMethod method) {
    return together(replicas_, [method](Replica& replica) { return replica.load(method); });
  }
  local::NodeCounts counts(uint32_t i) const {
    setenv("SHOAL_RUNTIME_DIR", scratch_.host(host(i)).c_str(), 1);
    auto paths = local::node_paths(scratch_.root());
    if (!paths.ok()) return {};
    auto status = local::ask_node(paths->socket_file);
    EXPECT_TRUE(status.ok()) << status.status().to_string();
    return status.ok() ? status->counts : local::NodeCounts();
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> nodes_[kHosts];
  std::vector<std::unique_ptr<Replica>> replicas_;
};

TEST_F(SharedLoads, EachByteIsReadAboutOnceByAllHostsTogether) {
  for (uint32_t i = 0; i < kHosts; ++i) start(i);
  save_and_forget();
  for (auto& loaded : load(LoadMethod::two_stage)) {
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_EQ(loaded->bytes_loaded, kPayload);
  }
  uint64_t read = 0, sent = 0, received = 0;
  for (uint32_t i = 0; i < kHosts; ++i) {
    EXPECT_TRUE(replicas_[i]->holds()) << "replica " << i;
    const local::NodeCounts now = counts(i);
    EXPECT_GT(now.bytes_read, 0u) << "everybody reads a part";
    read += now.bytes_read;
    sent += now.bytes_to_peers;
    received += now.bytes_from_peers;
  }
  EXPECT_GE(read, kPayload);
  EXPECT_LE(read, kPayload * 12 / 10);
  EXPECT_EQ(sent, received);
  EXPECT_GE(received, kPayload * (kHosts - 1) * 8 / 10);

  for (auto& replica : replicas_) replica->forget();
  for (auto& loaded : load(LoadMethod::direct)) ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  uint64_t read_direct = 0;
  for (uint32_t i = 0; i < kHosts; ++i) {
    EXPECT_TRUE(replicas_[i]->holds()) << "replica " << i;
    read_direct += counts(i).bytes_read;
  }
  EXPECT_GE(read_direct - read, kPayload * kHosts) << "direct, each reads all";
}

// Regression: where SHOAL_INTERFACE was set, a job on one host opened a port there as soon as it loaded.
TEST_F(SharedLoads, OnOneHostOpenNothingBeyondTheLoopbackWhateverTheInterface) {
  for (uint32_t i = 0; i < kHosts; ++i) start(i, "interface=no-such-0");
  save_and_forget();
  for (auto& loaded : load(LoadMethod::two_stage)) ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  for (uint32_t i = 0; i < kHosts; ++i) {
    EXPECT_GT(counts(i).bytes_to_peers, 0u) << "they share";
    const auto places = listening_places(nodes_[i]->pid());
    EXPECT_FALSE(places.empty());
    for (const std::string& place : places) EXPECT_THAT(place, StartsWith(kLoopbackPlace));
  }
}

// A host that dies, or stops, with a part of the reading begun: the others read what it owed them.
class SharedLoadsLoseAHost : public SharedLoads, public ::testing::WithParamInterface<int> {};

TEST_P(SharedLoadsLoseAHost, AndTheOthersLoadAllTheSame) {
  for (uint32_t i = 0; i + 1 < kHosts; ++i) start(i);
  start(kHosts - 1, fmt::format("{}=ReadChunk:after:2", GetParam() == SIGKILL ? "die_at" : "stop_at"));
  save_and_forget();
  // Its own replica has no node to load from. The test waits for it only after the others.
  std::future<Result<LoadResult>> last =
      std::async(std::launch::async, [&] { return replicas_[kHosts - 1]->load(LoadMethod::two_stage); });
  std::vector<std::future<Result<LoadResult>>> others;
  for (uint32_t i = 0; i + 1 < kHosts; ++i) {
    others.push_back(
        std::async(std::launch::async, [&, i] { return replicas_[i]->load(LoadMethod::two_stage); }));
  }
  for (uint32_t i = 0; i + 1 < kHosts; ++i) {
    auto loaded = others[i].get();
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(replicas_[i]->holds()) << "replica " << i;
  }
  uint64_t read = 0;
  for (uint32_t i = 0; i + 1 < kHosts; ++i) read += counts(i).bytes_read;
  EXPECT_LE(read, kPayload * 2) << "what it owed them, once more at most";
  nodes_[kHosts - 1].reset();  // a stopped one ends too
  auto lost = last.get();
  EXPECT_TRUE(!lost.ok() || replicas_[kHosts - 1]->holds());
}

INSTANTIATE_TEST_SUITE_P(KilledOrStopped, SharedLoadsLoseAHost, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& how) { return how.param == SIGKILL ? "Killed" : "Stopped"; });

}  // namespace
}  // namespace shoal::testing
