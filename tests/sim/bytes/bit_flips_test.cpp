// A bit is flipped anywhere in a root. Then production roles and operations load. They report the damage,
// read around it, or do not need the damaged bytes. No wrong byte is loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "shoal/bytes.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/retention/marks.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A job of four ranks on two nodes that has saved steps 1 and 2; three others load, each all that it wants.
class BitFlips : public ::testing::TestWithParam<SaveMode> {
 protected:
  static constexpr uint64_t kStep = 2;
  static constexpr uint32_t kRanks = 4, kReaders = 3;
  static constexpr AttemptKey kKey{1, kStep, 1};

  void SetUp() override {
    VirtualJob job = VirtualJob::start(host_, facts_of(1), 2, kRanks, pipeline_job(kRanks, 1, 2));
    SaveOptions options = in_mode(GetParam());
    options.unit_bytes = 4096;
    for (auto& trainer : job.trainers) trainer->declare(options);
    for (uint64_t step : {uint64_t{1}, kStep}) {
      for (auto& trainer : job.trainers) trainer->save(step);
      job.run(kPatience);
    }
    for (size_t node = 0; node < 2; ++node) host_.kill_node(node);
    const Result<storage::Decision> decision = storage::read_decision(host_.storage(), kKey);
    ASSERT_TRUE(decision.ok() && decision->committed()) << decision.status().to_string();
    manifest_ = decision->manifest();
    readers_ = flat_job_of(storage::metadata_of(*decision).state_dict_metadata, kReaders);
  }

  struct Outcome {
    std::vector<std::string> errors;  // of all ranks whose load failed
    std::vector<ReadDamage> damaged;
    bool named(const std::string& what) const {
      if (errors.empty() && damaged.empty()) return false;
      for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr(what));
      for (const ReadDamage& damage : damaged) EXPECT_THAT(to_string(damage), HasSubstr(what));
      return true;
    }
  };
  // All ranks end, with an error or with every element right, and not one that arrived is wrong.
  Outcome load(std::optional<uint64_t> step, uint32_t ordinal = 1, uint64_t expected_step = kStep) {
    VirtualJob next = VirtualJob::start(host_, facts_of(2), 1, kReaders, readers_);
    for (auto& trainer : next.trainers) trainer->load(step, ordinal);
    next.run(kPatience);
    Outcome outcome;
    for (auto& trainer : next.trainers) {
      EXPECT_EQ(trainer->check_arrived(expected_step), "");
      if (!trainer->found()) {
        ADD_FAILURE() << "a load never ended";
      } else if (!trainer->found()->outcome.ok()) {
        outcome.errors.push_back(trainer->found()->outcome.message());
      } else if (!trainer->load_done()) {
        ADD_FAILURE() << "a load never ended";
      } else if (!trainer->load_done()->outcome.ok()) {
        outcome.errors.push_back(trainer->load_done()->outcome.message());
      } else {
        EXPECT_EQ(trainer->check_loaded(expected_step), "");
        const auto& damaged = trainer->load_done()->damaged.named;
        outcome.damaged.insert(outcome.damaged.end(), damaged.begin(), damaged.end());
      }
    }
    host_.kill_node(nodes_++);
    return outcome;
  }
  Outcome load_with_flip(const std::string& path, uint64_t bit, std::optional<uint64_t> step = kStep,
                         uint32_t ordinal = 1) {
    host_.file_system().flip_bit(path, bit);
    Outcome outcome = load(step, ordinal);
    host_.file_system().flip_bit(path, bit);
    return outcome;
  }
  uint64_t size_of(const std::string& path) {
    return host_.storage().read(path, uint64_t{1} << 30).value().size();
  }
  // Of which files of shards a load reads anything.
  std::set<std::string> files_read() {
    std::set<std::string> names;
    const auto add = [&](const std::vector<actors::operation::ReadRange>& ranges) {
      for (const actors::operation::ReadRange& range : ranges) names.insert(range.piece->file_name);
    };
    host_.on_operation([&](size_t, const actors::Operation& operation) {
      if (const auto* batch = std::get_if<actors::operation::ReadBatch>(&operation)) add(batch->ranges);
      if (const auto* chunk = std::get_if<actors::operation::ReadChunk>(&operation)) add(chunk->ranges);
    });
    expect_whole();
    host_.on_operation(nullptr);
    return names;
  }
  void expect_whole() {
    const Outcome outcome = load(kStep);
    EXPECT_TRUE(outcome.errors.empty() && outcome.damaged.empty()) << "the test left damage behind";
  }

  VirtualHost host_;
  storage::Manifest manifest_;
  std::vector<LayoutPtr> readers_;
  size_t nodes_ = 2;  // so far
  std::mt19937_64 random_{7};
};

INSTANTIATE_TEST_SUITE_P(Modes, BitFlips,
                         ::testing::Values(SaveMode::collective_free, SaveMode::rank_local,
                                           SaveMode::collective),
                         [](const auto& mode) {
                           std::string name(mode_name(mode.param));
                           std::erase(name, '-');
                           return name;
                         });

struct Region {
  std::string name;
  uint64_t begin = 0, end = 0;  // bytes of the file
};
// Of the header alone.
std::vector<Region> header_regions(const std::string& text) {
  const size_t digests = text.find("shoal_digests"), json_end = text.find_last_not_of(' ');
  SHOAL_CHECK(digests != std::string::npos);
  return {{"length", 0, 8},
          {"metadata", 8, digests},
          {"digests", digests + 16, text.find('"', digests + 16)},
          {"pieces", text.find("\"dtype\""), json_end},
          {"padding", json_end + 1, text.size()}};
}

TEST_P(BitFlips, InTheHeaderOfAShardNameTheFile) {
  // If each rank writes all that it holds, no load reads some of the copies.
  const std::set<std::string> read = files_read();
  if (GetParam() != SaveMode::rank_local) {
    EXPECT_EQ(read.size(), manifest_.files.size());
  }
  EXPECT_GE(read.size(), 2u);
  size_t flips = 0;
  for (const storage::FileEntry& file : manifest_.files) {
    const std::string path = storage::shard_path(kKey, file.rank, std::get<uint32_t>(file.contents));
    auto shard = storage::ShardReader::open(host_.storage(), path, nullptr, nullptr);
    ASSERT_TRUE(shard.ok());
    const Bytes bytes = *host_.storage().read(path, uint64_t{1} << 30);
    const std::string header(as_text(bytes).substr(0, (*shard)->file_offset(0)));
    for (const Region& region : header_regions(header)) {
      SCOPED_TRACE(path + ": " + region.name);
      if (region.begin >= region.end) continue;
      const uint64_t bit = 8 * region.begin + random_() % (8 * (region.end - region.begin));
      EXPECT_EQ(load_with_flip(path, bit).named(file.name), read.contains(file.name));
      ++flips;
      if (HasFailure()) return;
    }
  }
  EXPECT_GE(flips, 4 * kRanks);
  expect_whole();
}

// The first, a middle and the last byte of every piece of every file.
TEST_P(BitFlips, InTheBytesOfAPieceNameTensorBoxRankAndPlaceOrAreReadAround) {
  size_t caught = 0, around = 0, harmless = 0;
  for (const storage::FileEntry& file : manifest_.files) {
    const std::string path = storage::shard_path(kKey, file.rank, std::get<uint32_t>(file.contents));
    auto shard = storage::ShardReader::open(host_.storage(), path, nullptr, nullptr);
    ASSERT_TRUE(shard.ok());
    for (size_t p = 0; p < (*shard)->pieces().size(); ++p) {
      const storage::ShardPiece& piece = (*shard)->pieces()[p];
      if (piece.bytes == 0) continue;
      SCOPED_TRACE(path + ": " + piece.key);
      const uint64_t first = (*shard)->file_offset(p);
      const uint64_t at[] = {0, random_() % piece.bytes, piece.bytes - 1};
      const Outcome outcome = load_with_flip(path, 8 * (first + at[random_() % 3]) + random_() % 8);
      const std::string place =
          "bytes " + std::to_string(first) + " to " + std::to_string(first + piece.bytes);
      for (const std::string& error : outcome.errors) {
        std::string name = "'" + piece.fqn + "'";
        if (!piece.is_object) name += " " + to_string(piece.box);
        EXPECT_THAT(error, AllOf(HasSubstr(name), HasSubstr("written by rank " + std::to_string(file.rank)),
                                 HasSubstr(place), HasSubstr(path), HasSubstr("differs from its digest")));
      }
      for (const ReadDamage& damage : outcome.damaged) {
        EXPECT_EQ(damage.fqn, piece.fqn);
        EXPECT_EQ(damage.box, piece.box);
        EXPECT_EQ(damage.rank, file.rank);
        EXPECT_EQ(damage.file, path);
        EXPECT_EQ(damage.begin, first);
        EXPECT_EQ(damage.end, first + piece.bytes);
        EXPECT_NE(damage.read_instead, path);
      }
      EXPECT_TRUE(outcome.errors.empty() || outcome.damaged.empty()) << "it has a copy, or it has none";
      if (HasFailure()) return;
      ++(!outcome.errors.empty() ? caught : !outcome.damaged.empty() ? around : harmless);
    }
  }
  EXPECT_GT(caught, 0u);
  EXPECT_EQ(around > 0, GetParam() == SaveMode::rank_local) << "where each rank writes all that it holds";
  EXPECT_EQ(harmless > 0, GetParam() == SaveMode::rank_local) << "copies that nobody reads";
  expect_whole();
}

TEST_P(BitFlips, InAManifestNameItAndDoNotStepBack) {
  const std::string path = storage::decision_path(kKey);
  const uint64_t bits = 8 * size_of(path);
  for (uint32_t i = 0; i < 24; ++i) {
    const uint64_t bit = i < 8 ? i * 32 + random_() % 32 : random_() % bits;  // the head, then anywhere
    SCOPED_TRACE("bit " + std::to_string(bit));
    const bool is_latest = i % 2 == 1;
    const Outcome outcome =
        load_with_flip(path, bit, is_latest ? std::nullopt : std::optional(kStep), 100 + i);
    EXPECT_EQ(outcome.errors.size(), kReaders);
    EXPECT_TRUE(outcome.named("step-00000002/g1a1/manifest.shoal"));
    if (HasFailure()) return;
  }
  expect_whole();
}

TEST_P(BitFlips, InTheChoiceOfALatestNeedNobodyAndTwoNameItAndAnotherChoiceIsFree) {
  EXPECT_TRUE(load(std::nullopt, 7).errors.empty());
  const std::string path = "generations/2.load-7";
  const uint64_t bits = 8 * size_of(path);
  EXPECT_TRUE(load_with_flip(path, random_() % bits, std::nullopt, 7).errors.empty());
  host_.file_system().flip_bit(path, bits - 1);
  for (uint32_t i = 0; i < 4; ++i) {
    const Outcome outcome = load_with_flip(path, random_() % (bits - 1), std::nullopt, 7);
    EXPECT_EQ(outcome.errors.size(), kReaders);
    EXPECT_TRUE(outcome.named(path));
    if (HasFailure()) return;
  }
  host_.file_system().flip_bit(path, 300);
  EXPECT_TRUE(load(std::nullopt, 8).errors.empty());
  EXPECT_TRUE(load(kStep).errors.empty());
}

// What no load reads: not a rank's load may fail over it.
TEST_P(BitFlips, InRostersAreNoConcernOfALoad) {
  size_t rosters = 0;
  auto listed = host_.storage().list("generations");
  if (!listed.ok()) listed = std::vector<storage::ObjectInfo>();
  for (const storage::ObjectInfo& object : *listed) {
    if (object.name.find(".roster") == std::string::npos) continue;
    ++rosters;
    for (int i = 0; i < 4; ++i) {
      const Outcome outcome = load_with_flip("generations/" + object.name, random_() % (8 * object.size));
      EXPECT_TRUE(outcome.errors.empty());
    }
  }
  EXPECT_EQ(rosters > 0, GetParam() != SaveMode::rank_local);
}

// Records beside the checkpoints: no load depends on them, and their damage stops no load.
TEST_P(BitFlips, InPinsTagsAndVerifiedMarksAreNoConcernOfALoad) {
  storage::Mark pin, tag, verified;
  Nonce id;
  id.bytes[0] = std::byte{7};
  pin.name = storage::pin_name(id);
  pin.is_lease = true;  // as of a load that died
  tag.name = "best";
  verified.name = storage::verified_name(kKey);
  const std::vector<std::tuple<storage::MarkKind, storage::Mark, std::string>> marks = {
      {storage::MarkKind::pin, pin, "pins/"},
      {storage::MarkKind::tag, tag, "tags/"},
      {storage::MarkKind::verified, verified, "verified/"}};
  uint32_t ordinal = 200;
  for (auto [kind, mark, folder] : marks) {
    mark.key = kKey;
    mark.nonce = id;
    ASSERT_TRUE(storage::create_mark(host_.storage(), kind, mark).ok());
    const std::string path = folder + mark.name;
    const uint64_t bits = 8 * size_of(path);
    for (uint32_t i = 0; i < 12; ++i) {
      const uint64_t bit = i < 6 ? i * 32 + random_() % 32 : random_() % bits;
      SCOPED_TRACE(path + ", bit " + std::to_string(bit));
      const bool is_latest = i % 2 == 1;
      EXPECT_TRUE(load_with_flip(path, bit, is_latest ? std::nullopt : std::optional(kStep), ++ordinal)
                      .errors.empty());
      host_.file_system().flip_bit(path, bit);
      const Result<storage::MarkList> listed = storage::list_marks(host_.storage(), kind);
      ASSERT_TRUE(listed.ok());
      EXPECT_EQ(listed->damaged.size(), 1u) << "who goes by it hears which one it is";
      for (const auto& [name, why] : listed->damaged) EXPECT_EQ(name, mark.name);
      host_.file_system().flip_bit(path, bit);
      if (HasFailure()) return;
    }
  }
  expect_whole();
}

class RankLocalBitFlips : public BitFlips {};
INSTANTIATE_TEST_SUITE_P(Mode, RankLocalBitFlips, ::testing::Values(SaveMode::rank_local));

TEST_P(RankLocalBitFlips, InARankManifestOfASetThatNobodyMergedNameIt) {
  ASSERT_TRUE(host_.storage().remove(storage::decision_path(kKey)).ok());
  const std::string path = storage::rank_manifest_path(kKey, {2, kRanks});
  const uint64_t bits = 8 * size_of(path);
  for (uint32_t i = 0; i < 24; ++i) {
    const uint64_t bit = i < 8 ? i * 32 + random_() % 32 : random_() % bits;  // the head, then anywhere
    SCOPED_TRACE("bit " + std::to_string(bit));
    const Outcome outcome = load_with_flip(path, bit);
    EXPECT_EQ(outcome.errors.size(), kReaders);
    EXPECT_TRUE(outcome.named(path));
    if (HasFailure()) return;
  }
  expect_whole();  // and merges it
}

TEST_P(RankLocalBitFlips, InARankManifestOfAMergedSetAreOfNoMeaning) {
  ASSERT_TRUE(host_.storage().remove(storage::decision_path(kKey)).ok());
  expect_whole();  // and merges it
  const std::string path = storage::rank_manifest_path(kKey, {1, kRanks});
  EXPECT_TRUE(load_with_flip(path, random_() % (8 * size_of(path))).errors.empty());
}

class AbortedBitFlips : public BitFlips {};
INSTANTIATE_TEST_SUITE_P(Mode, AbortedBitFlips, ::testing::Values(SaveMode::collective_free));

TEST_P(AbortedBitFlips, InTheTombstoneOfALaterStepNeedNobodyAndTwoNameItWhereTheLatestIsAsked) {
  const AttemptKey later{1, 3, 1};
  storage::Decision tombstone = *storage::read_decision(host_.storage(), kKey);
  tombstone.key = later;
  tombstone.body =
      storage::Tombstone{storage::Tombstone::Reason::aborted, "rank 2: host-2 was not heard for 60 s"};
  ASSERT_TRUE(storage::publish_decision(host_.storage(), tombstone).ok());
  EXPECT_TRUE(load(std::nullopt, 7).errors.empty());
  const std::string path = storage::decision_path(later);
  const uint64_t bits = 8 * size_of(path);
  size_t caught = 0;
  EXPECT_TRUE(load_with_flip(path, random_() % 256, std::nullopt, 90).errors.empty());
  EXPECT_TRUE(load_with_flip(path, 256 + random_() % (bits - 256), std::nullopt, 91).errors.empty());
  host_.file_system().flip_bit(path, bits - 1);
  for (uint32_t i = 0; i < 12; ++i) {
    const uint64_t bit = i < 8 ? i * 32 + random_() % 32 : random_() % (bits - 1);
    SCOPED_TRACE("bit " + std::to_string(bit));
    caught += load_with_flip(path, bit, std::nullopt, 100 + i).named("step-00000003/g1a1/manifest.shoal");
    EXPECT_TRUE(load_with_flip(path, bit, kStep).errors.empty());
    if (HasFailure()) return;
  }
  EXPECT_GE(caught, 8u) << "the head of a tombstone says what it is";
}

}  // namespace
}  // namespace shoal::sim
