#include "storage/root/run_root.h"

#include <gmock/gmock.h>

#include <thread>
#include <utility>

#include "storage/decisions/record.h"
#include "storage/retention/marks.h"
#include "storage/root/run_claims.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RootNames, AreFixedWidthAndReadBack) {
  AttemptKey key = {3, 1000, 1};
  EXPECT_EQ(attempt_folder(key), "step-00001000/g3a1");
  EXPECT_EQ(decision_path(key), "step-00001000/g3a1/manifest.shoal");
  EXPECT_EQ(shard_path(key, 7, 0), "step-00001000/g3a1/rank-00007.safetensors");
  EXPECT_EQ(parse_step_folder("step-00001000"), 1000u);
  EXPECT_EQ(parse_step_folder("step-00000000"), 0u);
  EXPECT_EQ(parse_step_folder("step-18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(parse_attempt_folder(1000, "g3a1"), key);
  for (const char* bad : {"", "step", "step-", "step-1", "step-0001000", "step-000001000", "step-0000100x",
                          "step-18446744073709551616", "step--0000001", "Step-00001000", "step-+0001000"}) {
    EXPECT_EQ(parse_step_folder(bad), std::nullopt) << bad;
  }
  for (const char* bad : {"", "g", "a", "ga", "g3", "g3a", "ga1", "g03a1", "g3a01", "g3a1 ", "g-3a1", "h3a1",
                          "g4294967296a1"}) {
    EXPECT_EQ(parse_attempt_folder(1000, bad), std::nullopt) << bad;
  }
  for (uint64_t step : {uint64_t{0}, uint64_t{99'999'999}, uint64_t{100'000'000}, ~uint64_t{0}}) {
    std::string folder = attempt_folder({1, step, 2});
    EXPECT_EQ(parse_step_folder(folder.substr(0, folder.find('/'))), step);
  }
}

TEST(Root, IsMadeOnceAndThenFound) {
  MemoryStorage memory;
  Status missing = open_root(*memory, false, {}).status();
  EXPECT_EQ(missing.code(), Code::not_found);
  EXPECT_EQ(missing.message(), "root /root holds no run: ROOT_ID does not exist");
  auto made = open_root(*memory, true, nonce_of(5));
  ASSERT_OK(made.status());
  EXPECT_EQ(*made, nonce_of(5));
  EXPECT_EQ(*open_root(*memory, true, nonce_of(6)), nonce_of(5));
  EXPECT_EQ(*open_root(*memory, false, nonce_of(6)), nonce_of(5));
}

TEST(Root, WithADamagedIdIsRefusedAndNotReplaced) {
  MemoryStorage memory;
  ASSERT_OK(open_root(*memory, true, nonce_of(5)).status());
  for (uint64_t bit : {400, 401}) memory.files.flip_bit("ROOT_ID", bit);
  Status status = open_root(*memory, true, nonce_of(6)).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/ROOT_ID: damaged root id"));
}

TEST(Root, OnStorageWithExclusiveCreatePassesTheProbe) {
  MemoryStorage memory;
  EXPECT_OK(probe_storage(*memory, nonce_of(5)));
  EXPECT_TRUE(memory->list("probes")->empty()) << "the probe leaves nothing";
}

// A storage on which every creation succeeds, like a mount without exclusive creation.
class LyingStorage : public Storage {
 public:
  explicit LyingStorage(Storage& honest) : honest_(honest) {}
  std::string describe() const override { return honest_.describe(); }
  Result<bool> create_exclusive(const std::string& path, ByteView data) override {
    SHOAL_RETURN_IF_ERROR(honest_.create_exclusive(path, data).status());
    return true;
  }
  Result<bool> create_in_folder(const std::string& path, ByteView data) override {
    return create_exclusive(path, data);
  }
  Status replace(const std::string& path, ByteView data) override { return honest_.replace(path, data); }
  Status move_folder(const std::string& path, const std::string& name) override {
    return honest_.move_folder(path, name);
  }
  Result<Bytes> read(const std::string& path, uint64_t bytes_max) override {
    return honest_.read(path, bytes_max);
  }
  Result<std::unique_ptr<ReadFile>> open(const std::string& path) override { return honest_.open(path); }
  Result<std::unique_ptr<WriteFile>> create(const std::string& path, const Nonce& nonce,
                                            uint64_t bytes) override {
    return honest_.create(path, nonce, bytes);
  }
  Result<std::vector<ObjectInfo>> list(const std::string& folder) override { return honest_.list(folder); }
  Status remove(const std::string& path) override { return honest_.remove(path); }
  Status remove_folder(const std::string& path) override { return honest_.remove_folder(path); }
  Status sync_folder(const std::string& folder) override { return honest_.sync_folder(folder); }

 private:
  Storage& honest_;
};

TEST(Root, OnStorageWithoutExclusiveCreateIsRefusedByName) {
  MemoryStorage memory;
  LyingStorage lying(*memory);
  Status status = probe_storage(lying, nonce_of(5));
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_EQ(status.message(), "root /root cannot hold checkpoints: it allows creating the same name twice");
}

TEST(Epochs, AreClaimedOnce) {
  MemoryStorage memory;
  EXPECT_FALSE(highest_epoch(*memory)->has_value());
  EXPECT_TRUE(*claim_epoch(*memory, {1, "host:1", "job", nonce_of(1)}));
  EXPECT_FALSE(*claim_epoch(*memory, {1, "host:2", "job", nonce_of(2)}));
  EXPECT_TRUE(*claim_epoch(*memory, {1, "host:1", "job", nonce_of(1)})) << "one's own earlier success";
  for (uint32_t epoch = 2; epoch <= 11; ++epoch) {
    EXPECT_TRUE(*claim_epoch(*memory, {epoch, "host:2", "job2", nonce_of(2)}));
  }
  auto highest = highest_epoch(*memory);
  ASSERT_OK(highest.status());
  EXPECT_EQ((*highest)->epoch, 11u) << "numbers, not names, are compared";
  EXPECT_EQ((*highest)->address, "host:2");
  EXPECT_EQ((*highest)->job_id, "job2");
  EXPECT_EQ((*highest)->nonce, nonce_of(2));
  const Status none_left = claim_epoch(*memory, {0, "host:2", "job2", nonce_of(2)}).status();
  EXPECT_EQ(none_left.code(), Code::invalid_argument);
  EXPECT_THAT(none_left.message(), HasSubstr("if epochs/4294967295 exists, move it out of the root"));
  EXPECT_EQ(claim_epoch(*memory, {12, "host\n", "job2", nonce_of(2)}).status().code(),
            Code::invalid_argument);
}

TEST(Epochs, PassOverNamesThatAreNoNumbers) {
  MemoryStorage memory;
  ASSERT_OK(claim_epoch(*memory, {2, "host:1", "job", nonce_of(1)}).status());
  for (const char* name : {"epochs/notes", "epochs/007", "epochs/99999999999", "epochs/3x"}) {
    ASSERT_OK(memory->create_exclusive(name, as_view("x")).status());
  }
  auto unfinished = memory->create("epochs/5", nonce_of(9), 0);
  EXPECT_EQ((*highest_epoch(*memory))->epoch, 2u);
}

TEST(Epochs, ThatAreDamagedAreNamed) {
  MemoryStorage memory;
  ASSERT_OK(memory->create_exclusive("epochs/4", as_view("garbage")).status());
  Status status = highest_epoch(*memory).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/epochs/4: damaged epoch: 7 bytes are too few; "));
}

TEST(Records, CatchEveryFlippedBit) {
  MemoryStorage memory;
  Mark mark;
  mark.name = "best";
  mark.key = {1, 2, 3};
  mark.nonce = nonce_of(1);
  ASSERT_TRUE(*create_mark(*memory, MarkKind::tag, mark));
  const uint64_t bits = memory->read("tags/best", 10'000)->size() * 8;
  for (uint64_t bit = 0; bit < bits; ++bit) {
    memory.files.flip_bit("tags/best", bit);
    auto tags = list_marks(*memory, MarkKind::tag);
    ASSERT_OK(tags.status());
    ASSERT_EQ(tags->damaged.size(), 1u) << bit;
    ASSERT_EQ(tags->damaged[0].second.code(), Code::corrupt) << bit;
    memory.files.flip_bit("tags/best", bit);
  }
  EXPECT_TRUE(list_marks(*memory, MarkKind::tag)->damaged.empty());
}

// Regression: a user had to restore the record that every job opens first, and the choice of a load.
TEST(Records, OfTheRootAreReadWhicheverOneBitOfThemHasFlipped) {
  MemoryStorage memory;
  ASSERT_OK(open_root(*memory, true, nonce_of(1)).status());
  ASSERT_OK(publish_load_choice(*memory, 2, 0, {true, {1, 500, 2}, nonce_of(1)}).status());
  const RosterRecord first{sample_world(), {Dedupe::none, 4096}};
  ASSERT_OK(publish_roster(*memory, 2, first, nonce_of(1)).status());
  const auto flip_each = [&](const std::string& path, uint64_t stride, auto&& check) {
    const uint64_t bits = memory->read(path, 100'000)->size() * 8;
    ASSERT_LE(bits, 8 * kMaxRepairedBytes);
    for (uint64_t bit = 0; bit < bits; bit += stride) {
      memory.files.flip_bit(path, bit);
      ASSERT_TRUE(check()) << path << ", bit " << bit;
      memory.files.flip_bit(path, bit);
    }
  };
  flip_each("ROOT_ID", 1, [&] {
    auto id = open_root(*memory, false, {});
    return id.ok() && *id == nonce_of(1);
  });
  flip_each("generations/2.load-0", 1, [&] {
    auto choice = read_load_choice(*memory, 2, 0);
    return choice.ok() && choice->key == AttemptKey{1, 500, 2};
  });
  flip_each("generations/2.roster", 131, [&] {
    auto roster = read_roster(*memory, 2);
    return roster.ok() && roster->world->roster.id() == first.world->roster.id();
  });
}

TEST(Tombstones, AreReadWhicheverOneBitOfThemHasFlippedAndManifestsAreNamed) {
  MemoryStorage memory;
  const AttemptKey aborted{1, 5, 1}, committed{1, 4, 1};
  ASSERT_OK(publish_decision(*memory, sample_tombstone(aborted)).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest(committed)).status());
  const std::string path = decision_path(aborted);
  const uint64_t bits = memory->read(path, 100'000)->size() * 8;
  for (uint64_t bit = 0; bit < bits; ++bit) {
    memory.files.flip_bit(path, bit);
    auto info = inspect_attempt(*memory, aborted);
    ASSERT_OK(info.status());
    ASSERT_EQ(info->state, AttemptInfo::State::aborted) << bit;
    auto decision = read_decision(*memory, aborted);
    ASSERT_OK(decision.status());
    ASSERT_EQ(decision->tombstone().cause, sample_tombstone().tombstone().cause) << bit;
    memory.files.flip_bit(path, bit);
  }
  memory.files.flip_bit(decision_path(committed), 70);  // says in its head what it is
  EXPECT_EQ(inspect_attempt(*memory, committed).status().code(), Code::corrupt);
  EXPECT_EQ(read_decision(*memory, committed).status().code(), Code::corrupt);
}

TEST(Epochs, AreReadWhicheverOneBitOfThemHasFlipped) {
  MemoryStorage memory;
  ASSERT_OK(claim_epoch(*memory, {1, "host:1", "job", nonce_of(1), 3}).status());
  const uint64_t bits = memory->list("epochs")->front().size * 8;
  for (uint64_t bit = 0; bit < bits; ++bit) {
    memory.files.flip_bit("epochs/1", bit);
    auto highest = highest_epoch(*memory);
    ASSERT_OK(highest.status());
    ASSERT_EQ((*highest)->address, "host:1");
    ASSERT_EQ((*highest)->nonce, nonce_of(1));
    ASSERT_EQ((*highest)->generation, 3u);
    memory.files.flip_bit("epochs/1", bit);
  }
}

TEST(Epochs, OfWhichTwoBitsHaveFlippedAreNamed) {
  MemoryStorage memory;
  ASSERT_OK(claim_epoch(*memory, {1, "host:1", "job", nonce_of(1)}).status());
  const uint64_t bits = memory->list("epochs")->front().size * 8;
  for (uint64_t bit = 1; bit < bits; bit += 31) {
    for (uint64_t other : {bit - 1, bits - bit}) {
      if (other == bit || other >= bits) continue;
      memory.files.flip_bit("epochs/1", bit);
      memory.files.flip_bit("epochs/1", other);
      Status status = highest_epoch(*memory).status();
      ASSERT_EQ(status.code(), Code::corrupt) << bit << " and " << other;
      ASSERT_THAT(status.message(), HasSubstr("/root/epochs/1: damaged epoch"));
      memory.files.flip_bit("epochs/1", bit);
      memory.files.flip_bit("epochs/1", other);
    }
  }
}

TEST(Records, UnderAnotherNumbersNameAreRefused) {
  MemoryStorage memory;
  ASSERT_OK(claim_epoch(*memory, {1, "host:1", "job", nonce_of(1)}).status());
  ASSERT_OK(memory->create_exclusive("epochs/2", *memory->read("epochs/1", 10'000)).status());
  EXPECT_THAT(highest_epoch(*memory).status().message(),
              HasSubstr("it holds number 1, which is not the number in its name"));
}

TEST(Generations, BelongToOneRunEachAlsoWhereAJobIdIsUsedAgain) {
  MemoryStorage memory;
  auto first = claim_generation(*memory, "job-a", nonce_of(1));
  ASSERT_OK(first.status());
  EXPECT_EQ(first->generation, 1u);
  EXPECT_EQ(claim_generation(*memory, "job-a", nonce_of(1))->generation, 1u) << "the answer was lost";
  EXPECT_EQ(claim_generation(*memory, "job-a", nonce_of(2))->generation, 2u);
  EXPECT_EQ(claim_generation(*memory, "job-b", nonce_of(2))->generation, 3u);
  auto listed = list_generations(*memory);
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_EQ((*listed)[2].job_id, "job-b");
}

// Regression: where the claims were lost, new ones began at 1 again, and what was saved was never the latest.
TEST(Generations, AreAboveThoseOfAllCheckpoints) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({7, 40, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({9, 10, 1})).status());
  EXPECT_EQ(claim_generation(*memory, "job-a", nonce_of(1))->generation, 10u);
  EXPECT_EQ(claim_generation(*memory, "job-b", nonce_of(2))->generation, 11u);
}

// Regression: the error named two kinds of places, and not the one that has the number.
TEST(Generations, OfWhichNoneIsLeftNameTheFileOrFolderThatHasTheHighestNumber) {
  for (const std::string name : {"generations/4294967295.damaged", "step-00000040/g4294967295a1"}) {
    MemoryStorage memory;
    ASSERT_OK(publish_decision(*memory, sample_manifest({7, 40, 1})).status());
    ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
    ASSERT_TRUE(*memory->create_exclusive(name.starts_with("step") ? name + "/file" : name, Bytes(1)));
    const Status status = claim_generation(*memory, "job-b", nonce_of(2)).status();
    EXPECT_EQ(status.code(), Code::refused);
    EXPECT_EQ(status.message(), "/root: no number is left for a generation: " + name +
                                    " has the highest one, 4294967295; move it out of the root, and start "
                                    "again");
  }
}

TEST(Generations, AreJoinedByARestartedNodeOfTheirRunUntilALaterRunBegins) {
  MemoryStorage memory;
  auto absent = rejoin_generation(*memory, 1, "job-a", nonce_of(1)).status();
  EXPECT_EQ(absent.message(), "/root: generation 1 does not belong to job job-a");
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  auto same = rejoin_generation(*memory, 1, "job-a", nonce_of(2));
  ASSERT_OK(same.status());
  EXPECT_EQ(same->nonce, nonce_of(1)) << "the claim that stands";
  EXPECT_EQ(rejoin_generation(*memory, 1, "job-b", nonce_of(2)).status().code(), Code::refused);
  EXPECT_EQ(claim_generation(*memory, "job-a", nonce_of(3))->generation, 2u);
  Status old = rejoin_generation(*memory, 1, "job-a", nonce_of(2)).status();
  EXPECT_EQ(old.code(), Code::superseded);
  EXPECT_EQ(old.message(), "/root: generation 1 of this job was superseded by generation 2 of job job-a");
}

TEST(Generations, AreJoinedByJobIdWhereThatIsAskedFor) {
  MemoryStorage memory;
  EXPECT_EQ(rejoin_generation(*memory, kGenerationOfJob, "job-a", nonce_of(1))->generation, 1u)
      << "a new one";
  EXPECT_EQ(rejoin_generation(*memory, kGenerationOfJob, "job-a", nonce_of(2))->generation, 1u);
  EXPECT_EQ(claim_generation(*memory, "job-b", nonce_of(3))->generation, 2u);
  Status old = rejoin_generation(*memory, kGenerationOfJob, "job-a", nonce_of(4)).status();
  EXPECT_EQ(old.code(), Code::superseded);
  EXPECT_EQ(old.message(), "/root: generation 1 of this job was superseded by generation 2 of job job-b");
}

// Between a listing and the folder's sync, the storage crashes and forgets the first generation.
class ForgettingStorage final : public LyingStorage {
 public:
  explicit ForgettingStorage(Storage& honest) : LyingStorage(honest), storage_(honest) {}
  Status sync_folder(const std::string& folder) override {
    if (folder == "generations" && !std::exchange(has_forgotten_, true)) {
      SHOAL_RETURN_IF_ERROR(storage_.remove("generations/1"));
    }
    return storage_.sync_folder(folder);
  }

 private:
  Storage& storage_;
  bool has_forgotten_ = false;
};

TEST(Generations, AreNotClaimedAfterOneThatDidNotLast) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job-a", nonce_of(1)).status());
  ForgettingStorage forgetting(*memory);
  auto claimed = claim_generation(forgetting, "job-b", nonce_of(2));
  ASSERT_OK(claimed.status());
  EXPECT_EQ(claimed->generation, 1u);
}

TEST(Generations, AreTheSameForAllWhoJoinByJobIdAtOnce) {
  MemoryStorage memory;
  std::vector<std::thread> threads;
  std::vector<uint32_t> claimed(8);
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      auto record = rejoin_generation(*memory, kGenerationOfJob, "job", nonce_of(i));
      claimed[i] = record.ok() ? record->generation : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(claimed, ::testing::Each(1u));
}

TEST(FirstRosters, AreThoseOfWhoeverWasFirst) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job", nonce_of(1)).status());
  EXPECT_EQ(read_roster(*memory, 1).status().code(), Code::not_found);
  RosterRecord record{sample_world(), {}, kRuleVersion};
  auto first = publish_roster(*memory, 1, record, nonce_of(1));
  ASSERT_OK(first.status());
  RosterRecord other = record;
  other.options.dedupe = Dedupe::none;
  auto second = publish_roster(*memory, 1, other, nonce_of(2));
  ASSERT_OK(second.status());
  EXPECT_EQ(second->options.dedupe, Dedupe::balanced);
  EXPECT_EQ(second->world->roster.id(), record.world->roster.id());
  EXPECT_EQ(list_generations(*memory)->size(), 1u) << "a roster is no generation";
}

TEST(LaterRosters, StandBesideTheFirstUnderTheirIds) {
  MemoryStorage memory;
  ASSERT_OK(claim_generation(*memory, "job", nonce_of(1)).status());
  const RosterRecord first{sample_world(), {}, kRuleVersion};
  ASSERT_OK(publish_roster(*memory, 1, first, nonce_of(1)).status());
  auto changed = std::make_shared<World>(*sample_world());
  const std::vector<LayoutId> ids(4, changed->layouts[0]->id());
  const std::vector<uint32_t> hosts = {0, 0, 0, 1};
  changed->roster = Roster::make(ids, hosts).value();
  const RosterRecord later{changed, {}, kRuleVersion};
  const RosterId id = changed->roster.id();
  EXPECT_EQ(read_roster_of_id(*memory, 1, id).status().code(), Code::not_found);
  ASSERT_OK(publish_later_roster(*memory, 1, later, nonce_of(1)).status());
  ASSERT_OK(publish_later_roster(*memory, 1, later, nonce_of(2)).status()) << "by another coordinator";
  EXPECT_EQ(read_roster_of_id(*memory, 1, id)->world->roster.id(), id);
  EXPECT_EQ(read_roster_of_id(*memory, 1, first.world->roster.id())->world->roster.id(),
            first.world->roster.id());
  EXPECT_EQ(read_roster(*memory, 1)->world->roster.id(), first.world->roster.id());
  EXPECT_EQ(read_roster_of_id(*memory, 2, id).status().code(), Code::not_found);
  EXPECT_EQ(list_generations(*memory)->size(), 1u) << "a roster is no generation";
}

TEST(Rosters, ThatWereRemovedAreWrittenAgainBeforeACommit) {
  MemoryStorage memory;
  const RosterRecord record{sample_world(), {Dedupe::none, 4096}};
  ASSERT_OK(publish_roster(*memory, 1, record, nonce_of(1)).status());
  std::string seen_at;
  ASSERT_OK(keep_roster(*memory, 1, record, nonce_of(2), &seen_at));
  EXPECT_EQ(seen_at, "generations/1.roster");
  const uint64_t begin = memory.files.operations();
  ASSERT_OK(keep_roster(*memory, 1, record, nonce_of(2), &seen_at));
  EXPECT_LE(memory.files.operations() - begin, 3u) << "it is only looked at";
  for (int removals = 0; removals < 2; ++removals) {
    ASSERT_OK(memory->remove(seen_at));
    ASSERT_OK(keep_roster(*memory, 1, record, nonce_of(2), &seen_at));
    auto rosters = list_rosters(*memory, 1);
    ASSERT_OK(rosters.status());
    ASSERT_EQ(rosters->size(), 1u);
    EXPECT_EQ(rosters->front().world->roster.id(), record.world->roster.id());
    EXPECT_EQ(rosters->front().options, record.options);
  }
}

TEST(LoadChoices, AreThoseOfWhoeverWasFirst) {
  MemoryStorage memory;
  EXPECT_EQ(read_load_choice(*memory, 2, 0).status().code(), Code::not_found);
  auto first = publish_load_choice(*memory, 2, 0, {true, {1, 500, 2}, nonce_of(1)});
  ASSERT_OK(first.status());
  auto second = publish_load_choice(*memory, 2, 0, {true, {1, 400, 1}, nonce_of(2)});
  ASSERT_OK(second.status());
  EXPECT_TRUE(second->found);
  EXPECT_EQ(second->key, (AttemptKey{1, 500, 2}));
  EXPECT_EQ(second->nonce, nonce_of(1));
  EXPECT_FALSE(publish_load_choice(*memory, 2, 1, {false, {}, nonce_of(1)})->found);
  EXPECT_FALSE(read_load_choice(*memory, 2, 1)->found);
}

TEST(LoadChoices, KeepWhatTheyPassedOver) {
  MemoryStorage memory;
  auto passed_over = std::make_shared<PassedOver>();
  for (uint64_t step = 20; step > 0; --step) {
    passed_over->add({1, 500 + step, 2}, "aborted:\n" + std::string(1000, 'x'));
  }
  ASSERT_EQ(passed_over->named.size(), kMaxPassedOverNamed);
  EXPECT_EQ(passed_over->named[0].cause.size(), kMaxPassedOverCauseBytes);
  ASSERT_OK(
      publish_load_choice(*memory, 2, kFallbackOrdinal | 1, {true, {1, 500, 2}, nonce_of(1), passed_over})
          .status());
  EXPECT_EQ(read_load_choice(*memory, 2, 1).status().code(), Code::not_found) << "that is another load";
  auto choice = read_load_choice(*memory, 2, kFallbackOrdinal | 1);
  ASSERT_OK(choice.status());
  ASSERT_NE(choice->passed_over, nullptr);
  EXPECT_EQ(*choice->passed_over, *passed_over);
  EXPECT_EQ(choice->passed_over->count, 20u);
  EXPECT_EQ(read_live_generation(*memory)->loaded.size(), 0u) << "no generation was claimed";
}

// Byte for byte what programs wrote that could list nothing.
TEST(LoadChoices, OfAnOlderProgramStayReadable) {
  MemoryStorage memory;
  const auto old = hex_decode(
      "53484f414c4c4f44010000000000000048000000000000005fc1fe6c9b047e0b00000000080000000000000004000100020000"
      "00"
      "000000000100000001000000010000000000000001000000000000000100000082000000b1b7a7a446a9bd61f0fdaf3aa12091"
      "7f"
      "48d4aa271cbfec0b856834e857d4c9a1");
  ASSERT_OK(old.status());
  ASSERT_OK(memory->create_exclusive("generations/2.load-0", as_view(*old)).status());
  const auto choice = read_load_choice(*memory, 2, 0);
  ASSERT_OK(choice.status());
  EXPECT_EQ(choice->key, (AttemptKey{1, 1, 1}));
  EXPECT_EQ(choice->passed_over, nullptr);
}

// Keys and states of a list, and which are damaged.
std::vector<std::string> states_of(const Result<AttemptList>& list) {
  std::vector<std::string> seen;
  if (!list.ok()) return {list.status().to_string()};
  for (const AttemptInfo& info : list->attempts) {
    seen.push_back(to_string(info.key) + " " + std::to_string(static_cast<int>(info.state)));
  }
  for (const auto& [key, why] : list->damaged) seen.push_back(to_string(key) + " " + why.to_string());
  return seen;
}

TEST(Attempts, AreListedAscendingWithTheirState) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({1, 30, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({1, 20, 1}, 1, Tombstone::Reason::deleted)).status());
  ASSERT_OK(memory->create_exclusive("step-00000030/g1a2/rank-00000.safetensors", Bytes(100)).status());
  auto partial = memory->create("step-00000030/g1a2/rank-00001.safetensors", nonce_of(1), 0);
  ASSERT_OK((*partial)->append(Bytes(300'000)));
  ASSERT_OK(memory->create_exclusive("step-00000030/notes", as_view("x")).status());
  ASSERT_OK(memory->create_exclusive("epochs/1", as_view("x")).status());
  ASSERT_OK(memory->create_exclusive("step-7/g1a1/x", as_view("not ours")).status());
  auto listed = list_attempts(*memory);
  ASSERT_OK(listed.status());
  EXPECT_TRUE(listed->damaged.empty());
  std::vector<std::string> seen;
  for (const AttemptInfo& info : listed->attempts) {
    seen.push_back(to_string(info.key) + " " + std::to_string(static_cast<int>(info.state)) + " " +
                   std::to_string(info.leftover_files));
  }
  EXPECT_THAT(seen, ElementsAre("step 20 (g1a1) 3 0", "step 30 (g1a1) 2 0", "step 30 (g1a2) 0 2",
                                "step 10 (g2a1) 1 0"));
  EXPECT_EQ(listed->attempts[2].files_bytes, 300'100u);
  EXPECT_EQ(states_of(list_attempt_states(*memory)), states_of(listed));
}

TEST(Attempts, ShowWhetherSomebodyWrites) {
  MemoryStorage memory;
  auto file = memory->create("step-00000030/g1a2/rank-00001.safetensors", nonce_of(1), 0);
  auto before = inspect_attempt(*memory, {1, 30, 2}), same = inspect_attempt(*memory, {1, 30, 2});
  EXPECT_EQ(before->fingerprint, same->fingerprint);
  ASSERT_OK((*file)->append(Bytes(300'000)));
  EXPECT_NE(inspect_attempt(*memory, {1, 30, 2})->fingerprint, before->fingerprint);
}

// Regression: a step whose folder had been moved away and replaced by a link was passed over, and an older
// one loaded.
TEST(Attempts, OfAStepThatIsNoFolderMayBeTheNewest) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_TRUE(*memory->create_exclusive("step-00000020", Bytes(1)));
  for (const auto& listed :
       {list_attempts(*memory), list_attempt_states(*memory), list_newest_attempts(*memory)}) {
    ASSERT_OK(listed.status());
    ASSERT_EQ(listed->attempts.size(), 1u);
    ASSERT_EQ(listed->damaged.size(), 1u);
    EXPECT_GT(listed->damaged[0].first, listed->attempts[0].key);
    EXPECT_EQ(to_string(listed->damaged[0].first), "step 20");
    EXPECT_THAT(listed->damaged[0].second.message(), HasSubstr("step-00000020 is not a folder"));
  }
  EXPECT_EQ(claim_generation(*memory, "job", nonce_of(1))->generation, 3u);
}

// Regression: an attempt's folder that had been moved away and replaced by a link was passed over, and an
// older checkpoint loaded.
TEST(Attempts, ThatAreNoFoldersMayBeTheNewest) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_TRUE(*memory->create_exclusive("step-00000020/g2a1", Bytes(1)));
  for (const auto& listed : {list_attempts(*memory), list_attempt_states(*memory),
                             list_newest_attempts(*memory), list_attempts_of_step(*memory, 20)}) {
    ASSERT_OK(listed.status());
    ASSERT_EQ(listed->damaged.size(), 1u);
    EXPECT_EQ(listed->damaged[0].first, (AttemptKey{2, 20, 1}));
    EXPECT_THAT(listed->damaged[0].second.message(), HasSubstr("/root/step-00000020/g2a1 is not a folder"));
  }
}

TEST(Attempts, WithADamagedDecisionAreListedApart) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 10, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({2, 20, 1})).status());
  memory.files.flip_bit(decision_path({2, 20, 1}), 13 * 8);
  auto listed = list_attempts(*memory);
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->attempts.size(), 1u);
  ASSERT_EQ(listed->damaged.size(), 1u);
  EXPECT_EQ(listed->damaged[0].first, (AttemptKey{2, 20, 1}));
  EXPECT_THAT(listed->damaged[0].second.message(),
              HasSubstr("step-00000020/g2a1/manifest.shoal: damaged decision"));
  EXPECT_EQ(states_of(list_attempt_states(*memory)), states_of(listed));
}

TEST(Sweep, RemovesOnlyWhatADecisionLeftWithoutMeaning) {
  MemoryStorage memory;
  AttemptKey key = {1, 30, 2};
  ASSERT_OK(memory->create_exclusive(shard_path(key, 0, 0), Bytes(100)).status());
  auto partial = memory->create(shard_path(key, 1, 0), nonce_of(1), 0);
  ASSERT_OK((*partial)->append(Bytes(300'000)));
  EXPECT_EQ(sweep_attempt(*memory, key).status().code(), Code::refused);
  EXPECT_EQ(inspect_attempt(*memory, key)->leftover_files, 2u);
  ASSERT_OK(publish_decision(*memory, sample_tombstone(key)).status());
  EXPECT_EQ(*sweep_attempt(*memory, key), 300'100u);
  auto info = inspect_attempt(*memory, key);
  EXPECT_EQ(info->leftover_files, 0u);
  EXPECT_EQ(info->state, AttemptInfo::State::aborted) << "the tombstone stays";

  const AttemptKey kept = {1, 40, 1};
  ASSERT_OK(memory->create_exclusive(shard_path(kept, 0, 0), Bytes(100)).status());
  auto unfinished =
      memory->create(shard_path(kept, 0, 0), nonce_of(2), 0);  // its node was killed, and wrote again
  ASSERT_OK((*unfinished)->append(Bytes(300'000)));
  Status status = sweep_attempt(*memory, kept).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(), HasSubstr("/root/step-00000040/g1a1: nothing may be removed"));
  ASSERT_OK(publish_decision(*memory, sample_manifest(kept)).status());
  EXPECT_TRUE(inspect_attempt(*memory, kept)->to_sweep());
  EXPECT_EQ(*sweep_attempt(*memory, kept), 300'000u);
  EXPECT_EQ(inspect_attempt(*memory, kept)->leftover_files, 1u) << "the shard stays";
  EXPECT_FALSE(inspect_attempt(*memory, kept)->to_sweep());
}

TEST(ReportedFiles, AreComparedWithTheFolder) {
  MemoryStorage memory;
  AttemptKey key = {3, 1000, 1};
  std::vector<FileEntry> files;
  for (Rank rank : {0u, 1u}) {
    ASSERT_OK(memory->create_exclusive(shard_path(key, rank, 0), Bytes(100 + rank)).status());
    files.push_back({shard_file_name(rank, 0), 100 + rank, {}, rank, 0u});
  }
  EXPECT_OK(check_files_present(*memory, key, files));
  files[1].size = 7;
  EXPECT_EQ(check_files_present(*memory, key, files).message(),
            "/root/step-00001000/g3a1/rank-00001.safetensors has 101 bytes, but 7 were reported");
  files[1] = {shard_file_name(2, 0), 100, {}, 2, 0u};
  EXPECT_EQ(
      check_files_present(*memory, key, files).message(),
      "/root/step-00001000/g3a1/rank-00002.safetensors does not exist: rank 2 reported 100 B there, but the "
      "folder no longer lists it; it was removed, or the listing of this host is stale");
}

}  // namespace
}  // namespace shoal::storage
