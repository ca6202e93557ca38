// Attempts without a decision. If rosters and shard headers prove an attempt complete, it is committed by the
// same manifest that the coordinator would have published. Any other attempt stays unchanged.
#include "storage/decisions/completion.h"

#include <gmock/gmock.h>

#include "storage/decisions/staged_record.h"
#include "storage/root/run_root.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/shards/planned_shards.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLaterGeneration = 4;
const DecisionStamp kStamp{nonce_of(5), nonce_of(77), 9};

LayoutBuilder sharded_builder() {
  const Mesh mesh = Mesh::contiguous({4});
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {8, 3}, mesh, {Placement::shard(0)});
  builder.add_tensor("bias", DType::bf16, {8}, mesh, {Placement::replicate()});
  builder.add_tensor("empty", DType::f16, {0, 4}, mesh, {Placement::shard(1)});
  builder.add_object("loader", mesh, true);
  return builder;
}
LayoutPtr built(LayoutBuilder builder) {
  return std::move(builder).build().value();
}
LayoutPtr sharded() {
  return built(sharded_builder());
}
// Small replicated tensors alone: one rank writes them all.
LayoutPtr replicated(const std::string& name = "bias") {
  LayoutBuilder builder;
  builder.add_tensor(name, DType::bf16, {8}, Mesh::contiguous({4}), {Placement::replicate()});
  return built(std::move(builder));
}

std::shared_ptr<const World> world_of(const std::vector<LayoutPtr>& layouts) {
  std::vector<LayoutId> ids;
  for (const LayoutPtr& layout : layouts) ids.push_back(layout->id());
  auto world =
      std::make_shared<World>(World{Roster::make(ids, std::vector<uint32_t>{7, 7, 9, 9}).value(), {}});
  for (const LayoutId& id : world->roster.layout_ids()) {
    world->layouts.push_back(*std::find_if(layouts.begin(), layouts.end(),
                                           [&](const LayoutPtr& layout) { return layout->id() == id; }));
  }
  return world;
}
std::shared_ptr<const World> world_of(const LayoutPtr& layout) {
  return world_of(std::vector<LayoutPtr>(4, layout));
}

class Completion : public ::testing::Test {
 protected:
  Completion() { claim(3); }
  void claim(uint32_t generation) {
    while (true) {
      auto claimed = claim_generation(*memory_, "job", nonce_of(900 + ++nonces_));
      ASSERT_OK(claimed.status());
      if (claimed->generation >= generation) return;
    }
  }
  void publish(const std::shared_ptr<const World>& world, const SaveOptions& options = {}) {
    const bool is_first = read_roster(*memory_, 3).status().code() == Code::not_found;
    const RosterRecord record{world, options};
    auto existing = is_first ? publish_roster(*memory_, 3, record, nonce_of(1))
                             : publish_later_roster(*memory_, 3, record, nonce_of(1));
    ASSERT_OK(existing.status());
  }
  // The shards of one rank, as its node writes them; and what it reports of them.
  void write(const World& world, Rank rank, const SaveOptions& options = {}) {
    for (FileEntry& file :
         write_planned(*memory_, kKey, world, rank, options, nonces_, &payload_bytes_, user_)) {
      ++nonces_;
      reported_.push_back(std::move(file));
    }
  }
  // That this rank has staged by this world, which gives it nothing to write.
  Status record(const World& world, Rank rank, const SaveOptions& options = {}) {
    const SavePlan plan = plan_save(world, rank, options).value();
    EXPECT_EQ(plan.files, 0u);
    return write_staged_record(*memory_,
                               {kKey, rank, plan.layout_id, assignment_id_of(plan), or_none(user_)});
  }
  void write_all(const World& world, const SaveOptions& options = {}) {
    for (Rank rank = 0; rank < 4; ++rank) write(world, rank, options);
  }
  // What the coordinator would have published.
  Bytes manifest_of(const std::shared_ptr<const World>& world, const SaveOptions& options = {}) {
    Manifest manifest;
    manifest.world = world;
    manifest.options = options;
    manifest.files = reported_;
    manifest.payload_bytes = payload_bytes_;
    manifest.user = or_none(user_);
    return encode_decision({kKey, kStamp.nonce, kStamp.root_id, kStamp.unix_time_ns, manifest}).value();
  }
  void expect_unproven(Code code, const std::string& what) {
    const Status status = complete_attempt(*memory_, kKey, kStamp).status();
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_TRUE(is_unproven(status));
    EXPECT_EQ(read_decision(*memory_, kKey).status().code(), Code::not_found) << "nothing was published";
  }

  MemoryStorage memory_;
  std::vector<FileEntry> reported_;
  uint64_t payload_bytes_ = 0;
  uint64_t nonces_ = 0;
  UserMetadataPtr user_;
};

TEST_F(Completion, PublishesByteForByteWhatTheCoordinatorWouldHave) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  auto decision = complete_attempt(*memory_, kKey, kStamp);
  ASSERT_OK(decision.status());
  EXPECT_TRUE(decision->committed());
  EXPECT_EQ(memory_->read(decision_path(kKey), 1 << 20).value(), manifest_of(world));
}

TEST_F(Completion, KeepsTheMetadataOfTheSave) {
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}, {"note", "line 1\nline 2"}});
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  auto decision = complete_attempt(*memory_, kKey, kStamp);
  ASSERT_OK(decision.status());
  EXPECT_EQ(decision->manifest().user, *user_);
  EXPECT_EQ(memory_->read(decision_path(kKey), 1 << 20).value(), manifest_of(world));
}

TEST_F(Completion, TakesNoShardsOfDifferentMetadata) {
  const auto world = world_of(sharded());
  publish(world);
  for (Rank rank = 0; rank < 4; ++rank) {
    if (rank == 2) user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}});
    write(*world, rank);
  }
  expect_unproven(Code::corrupt, "'run' is missing on rank 0 and 'a' on rank 2");
}

class CompletionOf : public Completion, public testing::WithParamInterface<Dedupe> {};

TEST_P(CompletionOf, HoldsInEveryWayOfDividingTheWork) {
  SaveOptions options;
  options.dedupe = GetParam();
  options.mode = GetParam() == Dedupe::none ? SaveMode::collective : SaveMode::collective_free;
  const auto world = world_of(sharded());
  publish(world, options);
  write_all(*world, options);
  ASSERT_OK(complete_attempt(*memory_, kKey, kStamp).status());
  EXPECT_EQ(memory_->read(decision_path(kKey), 1 << 20).value(), manifest_of(world, options));
}

INSTANTIATE_TEST_SUITE_P(EachDedupe, CompletionOf,
                         ::testing::Values(Dedupe::balanced, Dedupe::lowest_rank, Dedupe::none));

TEST_F(Completion, AnswersWithTheDecisionThatStands) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  ASSERT_OK(publish_decision(*memory_, sample_tombstone(kKey)).status());
  auto decision = complete_attempt(*memory_, kKey, kStamp);
  ASSERT_OK(decision.status());
  EXPECT_FALSE(decision->committed());
}

TEST_F(Completion, NeedsEveryShard) {
  const auto world = world_of(sharded());
  publish(world);
  for (Rank rank : {0u, 1u, 3u}) write(*world, rank);
  expect_unproven(Code::not_found, "there is no shard of rank 2");
  claim(kLaterGeneration);
  expect_unproven(Code::not_found, "there is no shard of rank 2");
  write(*world, 2);
  EXPECT_OK(complete_attempt(*memory_, kKey, kStamp).status());
}

TEST_F(Completion, NeedsEveryByteOfAShardUnderItsName) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  const std::string path = shard_path(kKey, 1, 0);
  const Bytes bytes = memory_->read(path, 1 << 20).value();
  for (size_t cut : {size_t{0}, size_t{7}, size_t{4095}, size_t{4096}, bytes.size() - 1}) {
    ASSERT_OK(memory_->replace(path, ByteView(bytes).first(cut)));
    expect_unproven(Code::corrupt, "rank-00001.safetensors");
  }
}

TEST_F(Completion, TakesNoShardOfAnotherPlan) {
  const auto world = world_of(sharded());
  publish(world);
  LayoutBuilder other = sharded_builder();
  other.add_tensor("later", DType::f32, {8}, Mesh::contiguous({4}), {Placement::shard(0)});
  const auto changed = world_of(built(std::move(other)));
  for (Rank rank : {0u, 2u, 3u}) write(*world, rank);
  write(*changed, 1);
  expect_unproven(Code::corrupt, "rank-00001.safetensors");
}

TEST_F(Completion, TakesNoShardBeyondThePlan) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  const Bytes bytes = memory_->read(shard_path(kKey, 1, 0), 1 << 20).value();
  ASSERT_TRUE(*memory_->create_exclusive(shard_path(kKey, 1, 1), bytes));
  expect_unproven(Code::not_found, "rank-00001-1.safetensors");
  ASSERT_OK(memory_->remove(shard_path(kKey, 1, 1)));
  ASSERT_TRUE(*memory_->create_exclusive(shard_path(kKey, 4, 0), bytes));
  expect_unproven(Code::not_found, "rank-00004.safetensors");
}

TEST_F(Completion, FindsTheRosterOfTheAttemptAmongThoseOfItsGeneration) {
  const auto first = world_of(replicated("other"));
  publish(first);
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  ASSERT_OK(complete_attempt(*memory_, kKey, kStamp).status());
  EXPECT_EQ(memory_->read(decision_path(kKey), 1 << 20).value(), manifest_of(world));
}

TEST_F(Completion, NeedsARosterThatReadsBack) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  Bytes roster = memory_->read("generations/3.roster", 1 << 20).value();
  for (size_t at : {size_t{70}, size_t{80}, size_t{90}}) roster[at] ^= std::byte{0x5a};
  ASSERT_OK(memory_->replace("generations/3.roster", roster));
  expect_unproven(Code::not_found, "holds no readable roster of generation 3");
}

// Regression: a rank without a shard may have staged more than the roster says. It then waits for a roster
// that was never published, since the job died before, or that is damaged. Nothing on disk differs from a
// rank that had nothing to write; the attempt was committed without what that rank had staged.
TEST_F(Completion, NeedsAShardOfEveryRankAlsoOfThoseToWhichTheRosterGivesNone) {
  const LayoutPtr same = replicated();
  const auto world = world_of(same);
  publish(world);
  write_all(*world);
  ASSERT_EQ(reported_.size(), 1u) << "one rank writes all";
  expect_unproven(Code::not_found, "there is no shard of ranks");
  claim(kLaterGeneration);
  expect_unproven(Code::not_found, "there is no shard of ranks");

  LayoutBuilder with_own;
  with_own.add_tensor("bias", DType::bf16, {8}, Mesh::contiguous({4}), {Placement::replicate()});
  with_own.add_object("own", Mesh::contiguous({1}, 3), true);
  const auto changed = world_of({same, same, same, built(std::move(with_own))});
  publish(changed);
  expect_unproven(Code::not_found, "there is no shard of ranks");
  const std::string later = "generations/3.roster-" + changed->roster.id().to_hex();
  Bytes roster = memory_->read(later, 1 << 20).value();
  for (size_t at : {size_t{70}, size_t{80}, size_t{90}}) roster[at] ^= std::byte{0x5a};
  ASSERT_OK(memory_->replace(later, roster));
  expect_unproven(Code::not_found, "there is no shard of ranks");
}

// Of four ranks that hold the same small tensor, which one of them writes.
class CompletionOfASmallModel : public Completion {
 protected:
  CompletionOfASmallModel() {
    publish(world_);
    for (Rank rank = 0; rank < 4; ++rank) {
      if (plan_save(*world_, rank, {}).value().files == 0) without_.push_back(rank);
    }
    EXPECT_EQ(without_.size(), 3u);
    write_all(*world_);
  }
  void record_all() {
    for (Rank rank : without_) ASSERT_OK(record(*world_, rank));
  }
  // The record of the first rank without a shard, with these bytes at this place.
  void damage(const std::vector<size_t>& at) {
    const std::string path = staged_record_path(kKey, without_[0]);
    Bytes bytes = memory_->read(path, 1 << 20).value();
    for (size_t each : at) bytes[each] ^= std::byte{0x40};
    ASSERT_OK(memory_->replace(path, bytes));
  }

  const std::shared_ptr<const World> world_ = world_of(replicated());
  std::vector<Rank> without_;
};

// Regression: a rank that was offered again failed, and the save was aborted although it was complete.
TEST_F(CompletionOfASmallModel, KeepsARecordThatIsWrittenAgainOnAFullDisk) {
  record_all();
  memory_.files.set_capacity(1);
  EXPECT_OK(record(*world_, without_[0]));
}

// Regression: such an attempt was never proven complete, and its finder aborted it.
TEST_F(CompletionOfASmallModel, TakesTheRecordsOfRanksThatWriteNothing) {
  for (Rank rank : without_) {
    expect_unproven(Code::not_found, "there is no shard of rank");
    ASSERT_OK(record(*world_, rank));
  }
  ASSERT_OK(complete_attempt(*memory_, kKey, kStamp).status());
  EXPECT_EQ(memory_->read(decision_path(kKey), 1 << 20).value(), manifest_of(world_));
}

TEST_F(CompletionOfASmallModel, TakesNoRecordOfAnotherLayout) {
  record_all();
  const std::string path = staged_record_path(kKey, without_[0]);
  const StagedRecord right = read_staged_record(*memory_, kKey, without_[0]).value();
  StagedRecord layout = right, assignment = right;
  layout.layout_id = nonce_of(9);
  assignment.assignment_id = nonce_of(9);
  for (const StagedRecord& wrong : {layout, assignment}) {
    ASSERT_OK(memory_->remove(path));
    ASSERT_OK(write_staged_record(*memory_, wrong));
    expect_unproven(Code::not_found, staged_record_name(without_[0]) + " is of layout");
  }
}

// The coordinator takes such a report, since the rank stages and writes the very same under both.
TEST_F(CompletionOfASmallModel, TakesARecordOfTheSameAssignmentUnderAnotherRoster) {
  const auto other_hosts = std::make_shared<World>(World{
      Roster::make(std::vector<LayoutId>(4, world_->layouts[0]->id()), std::vector<uint32_t>{1, 2, 3, 4})
          .value(),
      world_->layouts});
  for (Rank rank : without_) {
    if (plan_save(*other_hosts, rank, {}).value().files != 0) continue;
    ASSERT_OK(record(*other_hosts, rank));
    EXPECT_OK(record(*world_, rank)) << "it says the same";
  }
  record_all();
  EXPECT_OK(complete_attempt(*memory_, kKey, kStamp).status());
}

TEST_F(CompletionOfASmallModel, TakesNoRecordOfARankThatHasAShard) {
  record_all();
  Rank writer = 0;
  while (std::find(without_.begin(), without_.end(), writer) != without_.end()) ++writer;
  StagedRecord both = read_staged_record(*memory_, kKey, without_[0]).value();
  both.rank = writer;
  ASSERT_OK(write_staged_record(*memory_, both));
  expect_unproven(Code::not_found, "but so does a shard of that rank");
  ASSERT_OK(memory_->remove(staged_record_path(kKey, writer)));
  both.rank = 4;
  ASSERT_OK(write_staged_record(*memory_, both));
  expect_unproven(Code::not_found, "rank-00004.staged exists, but the roster has only 4 ranks");
}

TEST_F(CompletionOfASmallModel, NeedsTheSameMetadataOfRanksThatWriteNothing) {
  record_all();
  ASSERT_OK(memory_->remove(staged_record_path(kKey, without_[2])));
  user_ = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}});
  ASSERT_OK(record(*world_, without_[2]));
  expect_unproven(Code::corrupt, "'run' is missing on rank");
}

TEST_F(CompletionOfASmallModel, ReadsARecordWithOneFlippedBitAndNoMore) {
  record_all();
  damage({60});
  EXPECT_OK(prove_complete(*memory_, kKey).status());
  damage({70, 80});
  expect_unproven(Code::corrupt, staged_record_name(without_[0]));
}

TEST_F(CompletionOfASmallModel, WhoseRecordIsOfANewerProgramIsNotKnownToFail) {
  record_all();
  const std::string path = staged_record_path(kKey, without_[0]);
  Bytes bytes = memory_->read(path, 1 << 20).value();
  store_le32(bytes.data() + 8, 2);
  store_le64(bytes.data() + 24, xxh3_64(ByteView(bytes).first(24)));
  ASSERT_OK(memory_->replace(path, bytes));
  const Status status = complete_attempt(*memory_, kKey, kStamp).status();
  EXPECT_EQ(status.code(), Code::version) << status.to_string();
  EXPECT_FALSE(is_unproven(status));
}

TEST_F(CompletionOfASmallModel, ThatCannotReadARecordKnowsNothing) {
  record_all();
  const uint64_t begin = memory_.files.operations();
  ASSERT_OK(prove_complete(*memory_, kKey).status());
  const uint64_t calls = memory_.files.operations() - begin;
  for (uint64_t call = 0; call < calls; ++call) {
    memory_.files.fail_at(memory_.files.operations() + call, EIO);
    auto manifest = prove_complete(*memory_, kKey);
    EXPECT_TRUE(manifest.ok() || !is_unproven(manifest.status())) << manifest.status().to_string();
  }
}

TEST_F(CompletionOfASmallModel, KeepsTheFirstRecordOfARank) {
  const Rank rank = without_[0];
  ASSERT_OK(record(*world_, rank));
  EXPECT_OK(record(*world_, rank));
  StagedRecord other = read_staged_record(*memory_, kKey, rank).value();
  other.layout_id = nonce_of(9);
  const Status taken = write_staged_record(*memory_, other);
  EXPECT_EQ(taken.code(), Code::already_exists);
  EXPECT_THAT(taken.message(), HasSubstr("another process of this rank"));
}

// Regression: an older program took the records of a newer one for missing, and swept an intact attempt.
TEST_F(Completion, OfAnAttemptOfANewerProgramIsNotKnownToFail) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  const std::string path = "generations/3.roster";
  Bytes roster = memory_->read(path, 1 << 20).value();
  store_le32(roster.data() + 8, 2);
  store_le64(roster.data() + 24, xxh3_64(ByteView(roster).first(24)));
  ASSERT_OK(memory_->replace(path, roster));
  const Status status = complete_attempt(*memory_, kKey, kStamp).status();
  EXPECT_EQ(status.code(), Code::version) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_FALSE(is_unproven(status));
}

TEST_F(Completion, IsRefusedByWhoeverMayNotCommit) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  auto refuse = [] { return Status(Code::corrupt, "ROOT_ID is another's"); };
  const Status status = complete_attempt(*memory_, kKey, kStamp, refuse).status();
  EXPECT_EQ(status, Status(Code::refused, "ROOT_ID is another's"));
  EXPECT_FALSE(is_unproven(status));
  EXPECT_EQ(read_decision(*memory_, kKey).status().code(), Code::not_found);
}

TEST_F(Completion, OfAnAttemptWhoseFolderHasGoneIsADeletion) {
  auto decision = complete_attempt(*memory_, kKey, kStamp);
  ASSERT_OK(decision.status());
  EXPECT_TRUE(!decision->committed() && decision->was_committed());
}

TEST_F(Completion, ThatCannotReadTheRootKnowsNothing) {
  const auto world = world_of(sharded());
  publish(world);
  write_all(*world);
  const uint64_t begin = memory_.files.operations();
  ASSERT_OK(prove_complete(*memory_, kKey).status());
  const uint64_t calls = memory_.files.operations() - begin;
  ASSERT_GT(calls, 10u);
  for (uint64_t call = 0; call < calls; ++call) {
    memory_.files.fail_at(memory_.files.operations() + call, EIO);
    auto manifest = prove_complete(*memory_, kKey);
    EXPECT_TRUE(manifest.ok() || !is_unproven(manifest.status()))
        << "call " << call << ": " << manifest.status().to_string();
  }
}

}  // namespace
}  // namespace shoal::storage
