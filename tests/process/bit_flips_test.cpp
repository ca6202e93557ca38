// A bit is flipped in each file of a root and in the catalog. Then a real node starts on the root, and a real
// client loads. Either an error names the damage, or the load does not need it. Loaded data is always
// correct.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "storage/shards/shard_file.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

void flip_bit(const std::string& path, uint64_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const auto byte = static_cast<unsigned char>(file.get());
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ (1u << bit % 8)));
  ASSERT_TRUE(file.flush().good()) << path;
}

// The file of the greatest number in a folder of claims.
std::string highest_of(const std::string& folder) {
  uint64_t most = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos)
      most = std::max<uint64_t>(most, std::stoull(name));
  }
  return folder + "/" + std::to_string(most);
}

// One rank has saved steps 1 and 2.
class FlippedRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    NodeChild node(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-0", "world=1"});
    ASSERT_NE(node.address(), "");
    Trainer trainer(scratch_, "a", 0, 1, "job-0");
    ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
    for (uint64_t step : {1, 2}) {
      auto saved = trainer.save(step);
      ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
    }
    trainer.opened->reset();
    node.signal(SIGTERM);
    ASSERT_EQ(node.wait(), 0);
  }

  // The error of a new job's node that cannot run, or of its load. OK if step 2 is loaded, every byte of it.
  Status load() {
    const std::string job = "job-" + std::to_string(++jobs_);
    NodeChild node(scratch_.host("a"), {"root=" + scratch_.root(), "job=" + job, "world=1"});
    const std::string line = node.first_line();
    if (line.rfind("ready ", 0) != 0) return Status(Code::corrupt, line);
    Trainer trainer(scratch_, "a", 0, 1, job);
    if (!trainer.opened.ok()) return trainer.opened.status();
    trainer.forget();
    auto loaded = trainer.checkpointer().load(trainer.state);
    trainer.opened->reset();
    node.signal(SIGTERM);
    EXPECT_EQ(node.wait(), 0);
    EXPECT_TRUE(!loaded.ok() || trainer.holds(2));
    return loaded.status();
  }
  void expect_named(const std::string& path, const std::string& what, int flips = 3) {
    for (int i = 0; i < flips; ++i) {
      const uint64_t bit = random_() % (8 * fs::file_size(path));
      SCOPED_TRACE(path + ", bit " + std::to_string(bit));
      flip_bit(path, bit);
      const Status status = load();
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr(what));
      flip_bit(path, bit);
    }
  }

  Scratch scratch_;
  int jobs_ = 0;
  std::mt19937_64 random_{3};
};

TEST_F(FlippedRoot, IsNamedByItsId) {
  const std::string path = scratch_.root() + "/ROOT_ID";
  flip_bit(path, 8 * fs::file_size(path) - 1);  // and a second bit
  expect_named(path, path, 2);
  flip_bit(path, 8 * fs::file_size(path) - 1);
  EXPECT_TRUE(load().ok());
}

TEST_F(FlippedRoot, NeedsNobodyWhereOneBitOfItsIdOrHighestEpochOrGenerationFlips) {
  flip_bit(scratch_.root() + "/ROOT_ID", random_() % (8 * fs::file_size(scratch_.root() + "/ROOT_ID")));
  EXPECT_TRUE(load().ok());
  for (const char* folder : {"/epochs", "/generations"}) {
    for (int i = 0; i < 2; ++i) {
      const std::string path = highest_of(scratch_.root() + folder);
      flip_bit(path, random_() % (8 * fs::file_size(path)));
      EXPECT_TRUE(load().ok()) << path;
    }
  }
}

TEST_F(FlippedRoot, IsNamedByItsHighestEpochAndGeneration) {
  for (const char* folder : {"/epochs", "/generations"}) {
    const std::string path = highest_of(scratch_.root() + folder);
    for (int i = 0; i < 2; ++i) {
      const std::string now = highest_of(scratch_.root() + folder);
      flip_bit(now, 8 * fs::file_size(now) - 1);
      for (int flip = 0; flip < 2; ++flip) {  // a second bit
        const uint64_t bit = random_() % (8 * fs::file_size(now) - 1);
        SCOPED_TRACE(now + ", bit " + std::to_string(bit));
        flip_bit(now, bit);
        const Status status = load();
        EXPECT_FALSE(status.ok());
        EXPECT_THAT(status.message(), HasSubstr(now));
        flip_bit(now, bit);
      }
      flip_bit(now, 8 * fs::file_size(now) - 1);
    }
    // A claim that is no longer the highest has no effect.
    EXPECT_TRUE(load().ok());
    if (std::string(folder) != "/generations") continue;
    flip_bit(path, 333);
    EXPECT_TRUE(load().ok());
    flip_bit(path, 333);
  }
}

TEST_F(FlippedRoot, IsLoadedWhateverItsRosterOrCatalogSays) {
  const std::string roster = scratch_.root() + "/generations/1.roster";
  ASSERT_TRUE(fs::exists(roster));
  flip_bit(roster, 500);
  EXPECT_TRUE(load().ok());
  flip_bit(roster, 500);
  std::string catalog;
  for (const auto& entry : fs::directory_iterator(scratch_.host("a"))) {
    if (entry.path().extension() == ".catalog") catalog = entry.path();
  }
  ASSERT_NE(catalog, "") << "the node keeps it in its runtime folder";
  std::vector<std::string> kinds;  // a file of each kind: CURRENT, MANIFEST-…, OPTIONS-…, ….log, ….sst
  for (int round = 0; round < 12; ++round) {
    std::string path;
    for (const auto& entry : fs::directory_iterator(catalog)) {
      const std::string name = entry.path().filename();
      std::string kind = entry.path().has_extension() ? std::string(entry.path().extension())
                                                      : name.substr(0, name.find('-'));
      if (!entry.is_regular_file() || entry.file_size() == 0 || kind == "LOCK" || kind == "LOG") continue;
      if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
      kinds.push_back(kind);
      path = entry.path();
      break;
    }
    if (path.empty()) break;
    SCOPED_TRACE(path);
    flip_bit(path, random_() % (8 * fs::file_size(path)));  // what it is moved aside with
    const Status status = load();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  EXPECT_GE(kinds.size(), 4u) << "there is a database";
}

// --- pieces of several blocks ---

constexpr uint64_t kValues = (2 * kMiB + kMiB / 2) / 8;  // three blocks, the last one half
uint64_t large_value(uint64_t i) {
  return (i + 1) * 0x9E3779B97F4A7C15u;
}

// The first data byte of a piece in its file.
uint64_t file_offset_of(const std::string& root, const std::string& path, const std::string& key) {
  storage::PosixFileSystem file_system;
  auto storage = storage::LocalStorage::open(file_system, root, random_128());
  auto shard = storage::ShardReader::open(**storage, path, nullptr, nullptr);
  return (*shard)->file_offset((*shard)->find(key).value());
}

TEST(FlippedBlocks, OfALargePieceAreNamedAndNotAWrongByteIsPlaced) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1"});
  ASSERT_NE(node.address(), "");
  Trainer trainer(scratch, "a", 0, 1);
  ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
  std::vector<uint64_t> memory(kValues);
  for (uint64_t i = 0; i < kValues; ++i) memory[i] = large_value(i);
  StateDict state;
  state.add_tensor("large", DType::u64, {kValues / 64, 64}, Mesh::single(0), {Placement::shard(0)},
                   memory.data());
  auto saved = trainer.checkpointer().save(1, state);
  ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
  const std::string path = "step-00000001/g1a1/rank-00000.safetensors";
  const uint64_t first = file_offset_of(scratch.root(), path, "large");
  for (uint64_t block = 0; block < 3; ++block) {
    const uint64_t begin = block * kMiB, end = std::min(begin + kMiB, kValues * 8);
    for (uint64_t byte : {begin, (begin + end) / 2, end - 1}) {
      SCOPED_TRACE("byte " + std::to_string(byte));
      flip_bit(scratch.root() + "/" + path, 8 * (first + byte) + 5);
      std::fill(memory.begin(), memory.end(), 0);
      const Status status = trainer.checkpointer().load(state).status();
      EXPECT_EQ(status.code(), Code::corrupt);
      EXPECT_THAT(
          status.message(),
          AllOf(HasSubstr("rank 0, load of step 1 (g1a1): 'large' [0:5120, 0:64], written by rank 0, bytes " +
                          std::to_string(first + begin) + " to " + std::to_string(first + end)),
                HasSubstr(path), HasSubstr("block " + std::to_string(block) + " of 'large'")));
      for (uint64_t i = 0; i < kValues; ++i) {
        ASSERT_TRUE(memory[i] == 0 || memory[i] == large_value(i)) << "a wrong byte was placed";
      }
      flip_bit(scratch.root() + "/" + path, 8 * (first + byte) + 5);
    }
  }
  ASSERT_TRUE(trainer.checkpointer().load(state).ok());
  EXPECT_EQ(memory[kValues - 1], large_value(kValues - 1));
}

// Two ranks save by themselves, each all that it holds: "b" is there twice.
TEST(FlippedCopies, AreReadFromTheOtherRanksFileAndTold) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=2"});
  ASSERT_NE(node.address(), "");
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (Rank rank = 0; rank < 2; ++rank) {
    trainers.push_back(std::make_unique<Trainer>(
        scratch, "a", rank, 2, "job-1", [](auto& options) { options.save.mode = SaveMode::rank_local; }));
    ASSERT_TRUE(trainers.back()->opened.ok()) << trainers.back()->opened.status().to_string();
  }
  for (auto& saved : together(trainers, [](Trainer& trainer) {
         auto save = trainer.save(1);
         return save.ok() ? save->wait_committed(kPatience).status() : save.status();
       })) {
    ASSERT_TRUE(saved.ok()) << saved.to_string();
  }
  const std::string damaged = "step-00000001/g1a1/rank-00000.safetensors";
  const std::string copy = "step-00000001/g1a1/rank-00001.safetensors";
  const uint64_t first = file_offset_of(scratch.root(), damaged, "b");
  flip_bit(scratch.root() + "/" + damaged, 8 * first + 40);
  for (auto& trainer : trainers) {
    trainer->forget();
    auto loaded = trainer->checkpointer().load(trainer->state);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    EXPECT_TRUE(trainer->holds(1));
    ASSERT_EQ(loaded->damaged.count, 1u);
    const ReadDamage& damage = loaded->damaged.named.at(0);
    EXPECT_EQ(damage.fqn, "b");
    EXPECT_EQ(damage.file, damaged);
    EXPECT_EQ(damage.begin, first);
    EXPECT_EQ(damage.read_instead, copy);
  }
  // What rank 0 alone has written has no copy: its rows of "w".
  const uint64_t rows = file_offset_of(scratch.root(), damaged, "w");
  flip_bit(scratch.root() + "/" + damaged, 8 * rows);
  const Status status = trainers[0]->checkpointer().load(trainers[0]->state).status();
  EXPECT_THAT(status.message(),
              HasSubstr("rank 0, load of step 1 (g1a1): 'w' [0:32, 0:33], written by rank 0"));
  trainers[1]->forget();
  EXPECT_TRUE(trainers[1]->checkpointer().load(trainers[1]->state).ok());
  EXPECT_TRUE(trainers[1]->holds(1));
}

}  // namespace
}  // namespace shoal::testing
