// All loads of a node together stay within its memory, and all of them end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "actors/loader/sharing/chunk_exchange.h"
#include "tests/sim/support/shared_load.h"

namespace shoal::sim {
namespace {

constexpr uint64_t kTinyBytes = actors::kMinLoadMemoryBytes;

// The memory that is really in use: the written parts of windows, and chunks while a node keeps them. It is
// measured by the nodes' actions, not by their own counts. Simulated nodes pass chunks on without a copy, so
// chunks are counted once for all nodes.
class MemoryWatch {
 public:
  void received(size_t node, const actors::Operation& operation) {
    if (const auto* batch = std::get_if<actors::operation::ReadBatch>(&operation)) {
      for (const actors::operation::ReadRange& range : batch->ranges) {
        touch(node, batch->client, batch->slab_id, range.slab_offset + range.end - range.begin);
      }
    } else if (const auto* copy = std::get_if<actors::operation::CopyChunk>(&operation)) {
      chunks_[copy->chunk.get()] = copy->chunk;
      for (const auto& each : copy->copies)
        touch(node, each.client, each.slab_id, each.slab_offset + each.bytes);
    } else if (const auto* check = std::get_if<actors::operation::CheckChunk>(&operation)) {
      chunks_[check->chunk.get()] = check->chunk;
    } else if (const auto* header = std::get_if<actors::operation::CheckHeader>(&operation)) {
      chunks_[header->chunk.get()] = header->chunk;
    } else if (const auto* window = std::get_if<actors::operation::ReleaseWindow>(&operation)) {
      windows_[node].erase({window->client, window->slab_id});
      ++released;
    }
    most_of_windows = std::max(most_of_windows, bytes_of_windows(windows_[node]));
    most = std::max(most, bytes_of_all());
  }

  uint64_t most = 0;             // of all nodes at any time
  uint64_t most_of_windows = 0;  // of any node
  size_t released = 0;

 private:
  void touch(size_t node, actors::ClientId client, uint32_t slab_id, uint64_t end) {
    uint64_t& touched = windows_[node][{client, slab_id}];
    touched = std::max(touched, end);
  }
  using Windows = std::map<std::pair<actors::ClientId, uint32_t>, uint64_t>;
  static uint64_t bytes_of_windows(const Windows& windows) {
    uint64_t bytes = 0;
    for (const auto& [window, touched] : windows) bytes += touched;
    return bytes;
  }
  uint64_t bytes_of_all() {
    uint64_t bytes = 0;
    for (const auto& [node, windows] : windows_) bytes += bytes_of_windows(windows);
    std::erase_if(chunks_, [](const auto& held) { return held.second.expired(); });
    for (const auto& [address, held] : chunks_) bytes += held.lock()->size;
    return bytes;
  }

  std::map<size_t, Windows> windows_;
  std::map<const actors::Chunk*, std::weak_ptr<const actors::Chunk>> chunks_;
};

class LoadMemory : public SharedLoad {
 protected:
  void watch() {
    attack_ = [this](size_t node, const actors::Operation& operation) { watch_.received(node, operation); };
  }
  void expect_within(uint64_t bytes_of_a_node) const {
    // Between nodes a chunk may be under way that its sender has forgotten.
    const uint64_t in_progress = nodes_.size() > 1 ? actors::kChunkBytes : 0;
    EXPECT_LE(watch_.most, nodes_.size() * (bytes_of_a_node + in_progress));
    EXPECT_LE(watch_.most_of_windows, bytes_of_a_node);
  }
  MemoryWatch watch_;
};

const std::vector<Tensor> kAllWantAll = {{"a", 5 * kMiB + 123, Placement::replicate()},
                                         {"b", 4 * kMiB, Placement::replicate()},
                                         {"c", 7, Placement::replicate()},
                                         {"d", 3 * kMiB, Placement::replicate()}};

TEST_F(LoadMemory, ManyRanksOfAHostThatEachReadTakeTurns) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(1, 24, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load(LoadMethod::direct);
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  EXPECT_GE(watch_.most, kTinyBytes - 2 * kMiB) << "what is there is used";
  EXPECT_GT(watch_.released, 0u) << "24 windows of 1 MiB at least";
}

TEST_F(LoadMemory, EachRankGetsItsShareSoThatAllReadAtOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(1, 8, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load(LoadMethod::direct);
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  EXPECT_EQ(watch_.released, 0u);
}

TEST_F(LoadMemory, RanksOfAHostThatShareKeepWithinIt) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(1, 8, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  EXPECT_LE(watch_.most_of_windows, kTinyBytes - actors::least_buffer_bytes(1));
  for (auto& reader : readers_) EXPECT_TRUE(reader->done()->times.was_shared);
}

TEST_F(LoadMemory, HostsThatShareKeepWithinIt) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(3, 12, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  for (auto& reader : readers_) EXPECT_TRUE(reader->done()->times.was_shared);
}

TEST_F(LoadMemory, TooManyRanksToShareReadDirectlyInTurn) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(2, 40, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  for (auto& reader : readers_) EXPECT_FALSE(reader->done()->times.was_shared);
}

TEST_F(LoadMemory, ARankThatComesLateWaitsForThoseThatShareAndTheyNotForIt) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(2, 8, kTinyBytes);
  watch();
  for (size_t rank = 1; rank < readers_.size(); ++rank) readers_[rank]->load();
  host_.run_for((actors::Timeouts().load_gather_longest_ms + 500) * actors::kMillisecond);
  readers_[0]->load();
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
  EXPECT_FALSE(readers_[0]->done()->times.was_shared);
  EXPECT_TRUE(readers_[1]->done()->times.was_shared);
}

// The nodes of the first load hold chunks for their peers while the next one begins.
TEST_F(LoadMemory, OneLoadAfterTheOtherFindsRoom) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(3, 6, kTinyBytes);
  watch();
  for (uint32_t round = 0; round < 3; ++round) {
    for (auto& reader : readers_) reader->load(LoadMethod::two_stage, {}, round);
    run();
    expect_all_loaded();
  }
  expect_within(kTinyBytes);
}

TEST_F(LoadMemory, TheWindowOfAClientThatIsGoneGoesToOthers) {
  ASSERT_NO_FATAL_FAILURE(save(kAllWantAll));
  start(1, 24, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load(LoadMethod::direct);
  host_.run_for(500 * actors::kMillisecond);
  for (size_t rank = 0; rank < 16; ++rank) readers_[rank]->end();  // they have placed nothing
  run();
  for (size_t rank = 16; rank < readers_.size(); ++rank) EXPECT_EQ(readers_[rank]->check(1), "") << rank;
}

// Chunks for a peer that reads no bulk data count for their sender, and delay no other node for more than one
// deadline.
TEST_F(LoadMemory, APeerThatTakesNothingInKeepsItsSendersWithinIt) {
  std::vector<Tensor> large = kAllWantAll;
  large.push_back({"e", 96 * kMiB, Placement::replicate()});
  ASSERT_NO_FATAL_FAILURE(save(large));
  start(3, 3, 2 * kTinyBytes, actors::kDefaultLoadMemoryBytes);
  host_.set_takes_no_bulk(nodes_[2], true);
  uint64_t most = 0;
  attack_ = [&](size_t, const actors::Operation&) {
    for (size_t node : nodes_) most = std::max(most, host_.untaken_bytes(node));
  };
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_GT(most, kTinyBytes / 2) << "it has room for more, and asks for it";
  EXPECT_LE(most, kTinyBytes) << "half of what loads may take is for chunks";
}

TEST_F(LoadMemory, APeerThatIsLostGivesBackWhatWasForIt) {
  std::vector<Tensor> large = kAllWantAll;
  large.push_back({"e", 96 * kMiB, Placement::replicate()});
  ASSERT_NO_FATAL_FAILURE(save(large));
  start(3, 3, 2 * kTinyBytes, actors::kDefaultLoadMemoryBytes);
  host_.set_takes_no_bulk(nodes_[2], true);
  bool is_full = false;
  attack_ = [&](size_t, const actors::Operation&) {
    if (host_.untaken_bytes(nodes_[0]) > 4 * kMiB && !std::exchange(is_full, true))
      host_.kill_node(nodes_[2]);
  };
  for (auto& reader : readers_) reader->load();
  run();
  EXPECT_TRUE(is_full);
  EXPECT_EQ(readers_[0]->check(1), "");
  EXPECT_EQ(readers_[1]->check(1), "");
  attack_ = nullptr;
  for (Rank rank : {0, 1}) readers_[rank]->load(LoadMethod::two_stage, {}, 1);
  run();
  EXPECT_EQ(readers_[0]->check(1), "") << "and the next load finds room";
  EXPECT_EQ(readers_[1]->check(1), "");
}

// One rank of a host in a shared load places nothing for a while. The other ranks wait for it, so that the
// node need not keep for it all that they have received.
TEST_F(LoadMemory, ARankThatStandsStillDoesNotFillTheNode) {
  std::vector<Tensor> large = kAllWantAll;
  large.push_back({"e", 24 * kMiB, Placement::replicate()});
  ASSERT_NO_FATAL_FAILURE(save(large));
  start(1, 2, kTinyBytes);
  watch();
  for (auto& reader : readers_) reader->load();
  for (int i = 0; i < 2000; ++i) {
    host_.run_for(2 * actors::kMillisecond);
    readers_[1]->listen();
  }
  EXPECT_FALSE(readers_[1]->done());
  expect_within(kTinyBytes);
  run();
  expect_all_loaded();
  expect_within(kTinyBytes);
}

}  // namespace
}  // namespace shoal::sim
