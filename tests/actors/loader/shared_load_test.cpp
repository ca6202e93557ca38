// Shared loads: several nodes that need the same bytes read them once and pass them on.
#include <gmock/gmock.h>

#include "tests/sim/support/shared_load.h"

namespace shoal::actors {
namespace {

using sim::SharedLoad;

const std::vector<sim::Tensor> kReplicated = {{"a", 2 * sim::kMiB + 123, Placement::replicate()},
                                              {"b", 8 * sim::kMiB, Placement::replicate()},
                                              {"c", 7, Placement::replicate()},
                                              {"d", 5 * sim::kMiB, Placement::replicate()}};

TEST_F(SharedLoad, HostsThatNeedTheSameReadItOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);  // and a note a host
  EXPECT_EQ(chunks_read_.size(), 4u) << "all of them read a part";
  EXPECT_EQ(listings_, 1u) << "the choice is made once";
  const LoadTimes& times = readers_[0]->done()->times;
  EXPECT_TRUE(times.was_shared);
  EXPECT_EQ(times.chunks_given_up, 0u);
  EXPECT_NEAR(static_cast<double>(times.bytes_received), 0.75 * static_cast<double>(tensor_bytes()),
              static_cast<double>(4 * sim::kMiB));
}

// Two ranks saved, a file each.
TEST_F(SharedLoad, OfHostsThatNeedTheSameOneReadsTheHeaderOfEachFile) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(20, 20);
  size_t passed = 0;
  host_.corrupt_messages([&](size_t, WireMessage& message) {
    const auto* received = std::get_if<wire::ChunkData>(message.body.get());
    if (received != nullptr && received->chunk->size % 4096 == 0 && received->chunk->size <= 16384) ++passed;
  });
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_THAT(headers_read_, ::testing::UnorderedElementsAre(::testing::Pair("rank-00000.safetensors", 1u),
                                                             ::testing::Pair("rank-00001.safetensors", 1u)));
  EXPECT_EQ(passed, 2 * 19u);
}

TEST_F(SharedLoad, ALoadThatIsTooSmallOrDirectAsksNobody) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(2, 2);
  readers_[0]->load(LoadMethod::direct);
  readers_[1]->load(LoadMethod::automatic);
  run();
  expect_all_loaded();
  EXPECT_GE(bytes_read_, 2 * tensor_bytes());
  for (auto& reader : readers_) EXPECT_FALSE(reader->done()->times.was_shared);
}

TEST_F(SharedLoad, RanksOfOneHostReadTheSameOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(1, 3);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
}

// Regression: a rank that came 250 ms after the others, or 50 ms after those of its host, read directly.
TEST_F(SharedLoad, RanksThatComeSecondsApartShareWhereTheyInsistOnIt) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 6);
  for (size_t rank : {0, 2, 1, 4, 5, 3}) {
    host_.run_for(1'200 * kMillisecond);
    readers_[rank]->load();
  }
  const TimeNs last_came = host_.now();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  EXPECT_LT(host_.now() - last_came, 1'000 * kMillisecond) << "nobody is waited for once all have come";
  for (auto& reader : readers_) EXPECT_TRUE(reader->done()->times.was_shared);
}

TEST_F(SharedLoad, RanksOfTheOnlyHostThatComeApartReadTheSameOnce) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(1, 3);
  for (auto& reader : readers_) {
    host_.run_for(1'000 * kMillisecond);
    reader->load();
  }
  const TimeNs last_came = host_.now();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  EXPECT_LT(host_.now() - last_came, 500 * kMillisecond);
}

TEST_F(SharedLoad, WhoSharedWithNobodySaysSo) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(2, 2);
  readers_[0]->load();
  host_.run_for(10'000 * kMillisecond);
  readers_[1]->load();
  run();
  expect_all_loaded();
  for (auto& reader : readers_) EXPECT_FALSE(reader->done()->times.was_shared);
}

TEST_F(SharedLoad, WhatOnlyOneNeedsIsReadStraight) {
  ASSERT_NO_FATAL_FAILURE(save(
      {{"sharded", 16 * sim::kMiB, Placement::shard(0)}, {"norm", 2 * sim::kMiB, Placement::replicate()}}));
  start(4, 4);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  EXPECT_LE(chunks_read_.size(), 2u);  // of the norm alone
}

TEST_F(SharedLoad, ALargeGroupPassesChunksOnAlongTrees) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(20, 20);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() + 20 * 256);
}

TEST_F(SharedLoad, ASmallBufferIsEnough) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 6, kMinLoadMemoryBytes);
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_LT(bytes_read_, tensor_bytes() * 3 / 2);
}

struct Death {
  size_t host = 0;
  bool while_reading = false;  // else while it checks what came
};
class ADeath : public sim::SharedLoad, public ::testing::WithParamInterface<Death> {};

TEST_P(ADeath, IsMadeUpForByTheOthers) {
  const Death death = GetParam();
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  attack_ = [&](size_t node, const Operation& operation) {
    const bool is_time = death.while_reading ? std::holds_alternative<operation::ReadChunk>(operation)
                                             : std::holds_alternative<operation::CheckChunk>(operation);
    if (node == nodes_[death.host] && is_time) host_.kill_node(node);
  };
  for (auto& reader : readers_) reader->load();
  const TimeNs began = host_.now();
  run();
  ASSERT_FALSE(host_.alive(nodes_[death.host]));
  EXPECT_LT(host_.now() - began, 2 * Timeouts().chunk_deadline_ms * kMillisecond);
  for (size_t rank = 0; rank < 4; ++rank) {
    if (rank != death.host) {
      EXPECT_EQ(readers_[rank]->check(1), "") << rank;
    }
  }
  EXPECT_LT(bytes_read_, 2 * tensor_bytes());
}

// The first host coordinates as well.
INSTANTIATE_TEST_SUITE_P(SharedLoad, ADeath,
                         ::testing::Values(Death{0, true}, Death{0, false}, Death{1, true}, Death{1, false},
                                           Death{3, true}, Death{3, false}));

TEST_F(SharedLoad, ATrainerThatDiesHindersNobody) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  attack_ = [&](size_t node, const Operation& operation) {
    if (node == nodes_[1] && std::holds_alternative<operation::ReadChunk>(operation) &&
        chunks_read_[node] == 1) {
      readers_[1]->end();
    }
  };
  for (auto& reader : readers_) reader->load();
  run();
  EXPECT_EQ(readers_[0]->check(1), "");
  EXPECT_EQ(readers_[2]->check(1), "");
}

// One bit, in the sender's memory: what it says of its bytes is no proof of them.
TEST_F(SharedLoad, AChunkThatItsSenderHoldsWronglyIsReadFromStorage) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  size_t passed = 0;
  host_.corrupt_messages([&](size_t from, WireMessage& message) {
    const auto* received = std::get_if<wire::ChunkData>(message.body.get());
    if (from != nodes_[1] || received == nullptr) return;
    ++passed;
    auto wrong = std::make_shared<Chunk>(*received->chunk);
    wrong->bytes[wrong->size / 2] ^= std::byte{4};
    message.body =
        std::make_shared<const WireBody>(wire::ChunkData{received->id, received->number, std::move(wrong)});
  });
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_GT(passed, 0u);
  uint64_t given_up = 0;
  for (auto& reader : readers_) given_up += reader->done()->times.chunks_given_up;
  EXPECT_EQ(given_up, passed);
}

// A header that states other digests, made as carefully as one likes: the manifest vouches for another.
TEST_F(SharedLoad, AForgedHeaderIsReadFromStorage) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  size_t forged = 0;
  host_.corrupt_messages([&](size_t, WireMessage& message) {
    const auto* received = std::get_if<wire::ChunkData>(message.body.get());
    if (received == nullptr) return;
    const std::string_view text = as_text(received->chunk->bytes);
    const size_t at = text.substr(0, 4096).find("shoal_digests");
    if (at == std::string_view::npos) return;
    ++forged;
    auto wrong = std::make_shared<Chunk>(*received->chunk);
    std::byte& digit = wrong->bytes[at + std::string_view(R"(shoal_digests":")").size()];
    digit = digit == std::byte{'0'} ? std::byte{'1'} : std::byte{'0'};
    message.body =
        std::make_shared<const WireBody>(wire::ChunkData{received->id, received->number, std::move(wrong)});
  });
  for (auto& reader : readers_) reader->load();
  run();
  expect_all_loaded();
  EXPECT_EQ(forged, 2 * 2u) << "of two files, to two hosts";
  size_t read = 0;
  for (const auto& [file, times] : headers_read_) read += times;
  EXPECT_EQ(read, 2 + forged);
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
}

TEST_F(SharedLoad, WhoComesLateReadsDirectly) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  readers_[0]->load();
  readers_[1]->load();
  run();
  EXPECT_LT(bytes_read_, tensor_bytes() + 4096);
  readers_[2]->load();
  run();
  expect_all_loaded();
  EXPECT_EQ(listings_, 1u);
}

TEST_F(SharedLoad, WithoutACoordinatorEachLoadsByItself) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(3, 3);
  host_.kill_node(nodes_[0]);
  readers_[1]->load();
  readers_[2]->load();
  run();
  EXPECT_EQ(readers_[1]->check(1), "");
  EXPECT_EQ(readers_[2]->check(1), "");
}

TEST_F(SharedLoad, OnlyTheGroupThatIsNamedShares) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(4, 4);
  for (Rank rank = 0; rank < 4; ++rank) {
    readers_[rank]->load(LoadMethod::two_stage, rank < 2 ? std::vector<Rank>{0, 1} : std::vector<Rank>{2, 3});
  }
  run();
  expect_all_loaded();
  EXPECT_NEAR(static_cast<double>(bytes_read_), 2.0 * static_cast<double>(tensor_bytes()), 4096);
}

TEST_F(SharedLoad, AnotherLoadOfTheSameRanksIsSharedAgain) {
  ASSERT_NO_FATAL_FAILURE(save(kReplicated));
  start(2, 2);
  for (uint32_t round = 0; round < 2; ++round) {
    for (auto& reader : readers_) reader->load(LoadMethod::two_stage, {}, round);
    run();
    expect_all_loaded();
  }
  EXPECT_LT(bytes_read_, 2 * tensor_bytes() + 4096);
}

}  // namespace
}  // namespace shoal::actors
