// Each oracle reports a violation: for a root that returns wrong results, and for trainers that receive wrong
// decisions.
#include "sim/failures/oracles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "sim/cluster/counted_trainers.h"
#include "sim/failures/load_oracles.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

constexpr actors::TimeNs kDeadline = 1000 * actors::kMillisecond;

struct FakeRoot final : RootView {
  std::map<AttemptKey, std::shared_ptr<const storage::Decision>> decisions;
  std::map<std::pair<Rank, uint32_t>, uint64_t> files;
  std::set<AttemptKey> deleted;
  std::optional<AttemptKey> wrong;
  std::optional<AttemptKey> names_latest;
  bool roster = true;
  std::vector<AttemptKey> open;
  std::optional<actors::TimeNs> complete_for;

  std::shared_ptr<const storage::Decision> decision(const AttemptKey& key) const override {
    auto found = decisions.find(key);
    return found == decisions.end() ? nullptr : found->second;
  }
  std::optional<uint64_t> file_bytes(const AttemptKey&, Rank rank, uint32_t file) const override {
    auto found = files.find({rank, file});
    if (found == files.end()) return std::nullopt;
    return found->second;
  }
  std::optional<AttemptKey> latest() const override { return names_latest; }
  bool has_roster() const override { return roster; }
  std::vector<AttemptKey> committed() const override {
    std::vector<AttemptKey> keys;
    for (const auto& [key, decision] : decisions) {
      if (decision->committed()) keys.push_back(key);
    }
    return keys;
  }
  std::vector<AttemptKey> undecided() const override { return open; }
  bool was_deleted(const AttemptKey& key) const override { return deleted.contains(key); }
  std::optional<actors::TimeNs> deleted_at(const AttemptKey& key) const override {
    return deleted.contains(key) ? std::optional(actors::TimeNs{0}) : std::nullopt;
  }
  std::optional<actors::TimeNs> damaged_at(const AttemptKey& key) const override {
    const auto found = damaged.find(key);
    return found == damaged.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<AttemptKey> wrongly_deleted() const override { return wrong; }
  std::map<AttemptKey, actors::TimeNs> damaged;
  std::optional<actors::TimeNs> complete_when_aborted(const AttemptKey&) const override {
    return complete_for;
  }
};

AttemptKey step(uint64_t number) {
  return {1, number, 1};
}

class AnOracle : public ::testing::Test {
 protected:
  static constexpr uint32_t kRanks = 4;

  AnOracle() {
    const std::vector<LayoutPtr> layouts = pipeline_job(kRanks, 1, 2);
    std::vector<LayoutId> ids;
    auto made = std::make_shared<World>();
    for (const LayoutPtr& layout : layouts) {
      ids.push_back(layout->id());
      const bool is_new = std::none_of(made->layouts.begin(), made->layouts.end(),
                                       [&](const LayoutPtr& each) { return each->id() == layout->id(); });
      if (is_new) made->layouts.push_back(layout);
    }
    made->roster = Roster::make(ids, std::vector<uint32_t>(kRanks, 0)).value();
    world_ = made;
  }

  Oracles oracles(std::function<actors::TimeNs(uint32_t)> notified_at = nullptr) {
    Oracles::Facts facts;
    facts.ranks = kRanks;
    facts.save_deadline = kDeadline;
    facts.first_deadline = 2 * kDeadline;
    facts.notified_at = std::move(notified_at);
    facts.lives = [this](Rank rank) { return !dead_.contains(rank); };
    facts.assigned_bytes = [](const storage::Manifest&, Rank) { return uint64_t{100}; };
    return Oracles(std::move(facts), root_);
  }
  // What a sound root holds of a committed attempt.
  void commit(const AttemptKey& key) {
    storage::Manifest manifest;
    manifest.world = world_;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      manifest.files.push_back({"rank-" + std::to_string(rank), 164, {}, rank, uint32_t{0}});
      manifest.payload_bytes += 100;
      root_.files[{rank, 0}] = 164;
    }
    root_.decisions[key] =
        std::make_shared<const storage::Decision>(storage::Decision{key, {}, {}, 0, std::move(manifest)});
    root_.names_latest = key;
  }
  void abort(const AttemptKey& key, const std::string& cause) {
    storage::Tombstone tombstone{storage::Tombstone::Reason::aborted, cause};
    root_.decisions[key] =
        std::make_shared<const storage::Decision>(storage::Decision{key, {}, {}, 0, tombstone});
  }
  template <class AnyOracles>
  static void expect(const AnyOracles& oracles, const std::string& oracle, const std::string& what) {
    ASSERT_TRUE(oracles.violation().has_value()) << oracle;
    EXPECT_EQ(oracles.violation()->oracle, oracle);
    EXPECT_THAT(oracles.violation()->what, HasSubstr(what));
  }

  FakeRoot root_;
  std::set<Rank> dead_;
  std::shared_ptr<const World> world_;
};

TEST_F(AnOracle, IsSilentWhereAllIsWell) {
  Oracles all = oracles();
  all.save_begins(0, 1);
  all.save_begins(5, 2);
  commit(step(1));
  abort(step(2), "rank 3 is unwell");
  for (uint64_t save : {1, 2}) all.answered(10, root_.decision(step(save)));
  dead_ = {3};
  for (Rank rank : {0u, 1u, 2u}) {
    all.notified(20, rank, step(1), ok_status());
    all.notified(20, rank, step(2), Status(Code::aborted, "rank 3 is unwell"));
  }
  all.sent(20, 1, 0, 400);
  all.slabs(20, 0, 1);
  EXPECT_FALSE(all.stops(20));
  EXPECT_FALSE(all.stops(2 * kDeadline));
  all.finish(3 * kDeadline);
  EXPECT_FALSE(all.violation().has_value()) << all.violation()->what;
}

TEST_F(AnOracle, SeesASecondDecisionOfAnAttempt) {
  Oracles all = oracles();
  commit(step(1));
  all.answered(10, root_.decision(step(1)));
  abort(step(1), "too late");
  all.answered(30, root_.decision(step(1)));
  expect(all, "one-decision", "'tombstone: too late'");
  EXPECT_EQ(all.violation()->at, 30);
}

TEST_F(AnOracle, SeesAnAnswerThatTheRootDoesNotHold) {
  Oracles all = oracles();
  commit(step(1));
  const auto answered = root_.decision(step(1));
  root_.decisions.clear();
  all.answered(10, answered);
  expect(all, "one-decision", "but the root has no decision");
}

TEST_F(AnOracle, SeesWhatIsToldAndDoesNotStand) {
  Oracles committed = oracles();
  abort(step(1), "no");
  committed.notified(10, 2, step(1), ok_status());
  expect(committed, "notified-of-what-exists", "rank 2 was notified that step 1 (g1a1) is committed");
  Oracles aborted = oracles();
  aborted.notified(10, 2, step(2), Status(Code::aborted, "no"));
  expect(aborted, "notified-of-what-exists", "but no tombstone exists");
}

TEST_F(AnOracle, SeesAnAbortThatNothingMadeNecessary) {
  Oracles::Facts facts;
  facts.ranks = kRanks;
  facts.needs_no_abort = true;
  Oracles all(std::move(facts), root_);
  abort(step(1), "host host3 is lost");
  all.notified(10, 2, step(1), Status(Code::aborted, "host host3 is lost"));
  expect(all, "needless-abort", "rank 2 was notified that step 1 (g1a1) failed: aborted: host host3 is lost");
}

TEST_F(AnOracle, SeesAnAbortOfWhatHasLongBeenComplete) {
  Oracles oracles = this->oracles();
  abort(step(1), "too late");
  root_.complete_for = 500 * actors::kMillisecond;
  oracles.answered(1, root_.decisions.at(step(1)));
  EXPECT_FALSE(oracles.violation()) << "its last file came while the root was looked at";
  abort(step(2), "too late");
  root_.complete_for = 5000 * actors::kMillisecond;
  oracles.answered(2, root_.decisions.at(step(2)));
  ASSERT_TRUE(oracles.violation());
  EXPECT_EQ(oracles.violation()->oracle, "complete-is-committed");
  EXPECT_THAT(oracles.violation()->what, HasSubstr("complete for 5000 ms"));
}

TEST_F(AnOracle, SeesAJobThatDoesNotCommitAgainOnceAllFailuresAreOver) {
  const auto after = [&](actors::TimeNs began) {
    Oracles::Facts facts;
    facts.ranks = kRanks;
    facts.failures_end = 50;
    facts.recovered = 100;
    facts.save_deadline = kDeadline;
    facts.lives = [this](Rank rank) { return !dead_.contains(rank); };
    Oracles all(std::move(facts), root_);
    all.save_begins(began, 1);
    abort(step(1), "no layouts");
    all.notified(began + 10, 2, step(1), Status(Code::aborted, "no layouts"));
    return all;
  };
  expect(after(100), "commits-again", "step 1 (g1a1) began at 0 ms");
  EXPECT_FALSE(after(99).violation().has_value()) << "it may have met the failures";
  dead_ = {3};
  EXPECT_FALSE(after(100).violation().has_value()) << "rank 3 never stages anything";
}

TEST_F(AnOracle, SeesFilesThatAreNotThereOrNotWhole) {
  commit(step(1));
  Oracles missing = oracles();
  root_.files.erase({2, 0});
  missing.notified(10, 0, step(1), ok_status());
  expect(missing, "committed-durable", "rank-2 has no bytes, not 164");
  Oracles shorter = oracles();
  root_.files[{2, 0}] = 163;
  shorter.notified(10, 0, step(1), ok_status());
  expect(shorter, "committed-durable", "rank-2 has 163 bytes, not 164");
  root_.files[{2, 0}] = 164;
  Oracles swept = oracles();
  swept.notified(10, 0, step(1), ok_status());
  root_.files.erase({1, 0});
  swept.finish(20);
  expect(swept, "committed-durable", "rank-1 has no bytes");
}

TEST_F(AnOracle, SeesAManifestWithoutARanksAssignment) {
  commit(step(1));
  storage::Manifest lacks = root_.decision(step(1))->manifest();
  lacks.files.pop_back();
  root_.decisions[step(1)] =
      std::make_shared<const storage::Decision>(storage::Decision{step(1), {}, {}, 0, lacks});
  Oracles all = oracles();
  all.notified(10, 0, step(1), ok_status());
  expect(all, "committed-durable", "has no file of rank 3");
}

TEST_F(AnOracle, SeesLatestNameWhatIsNotCommittedOrGoBack) {
  Oracles uncommitted = oracles();
  commit(step(1));
  root_.names_latest = step(2);
  uncommitted.answered(10, root_.decision(step(1)));
  expect(uncommitted, "latest-is-committed",
         "the latest checkpoint is step 2 (g1a1), which is not committed");
  Oracles backwards = oracles();
  commit(step(3));
  backwards.answered(10, root_.decision(step(3)));
  root_.names_latest = step(1);
  backwards.finish(20);
  expect(backwards, "latest-goes-forward",
         "the latest checkpoint was step 3 (g1a1), but now it is step 1 (g1a1)");
}

// A read of the file of a rank, as a committed attempt has it.
actors::operation::ReadBatch read_of(const AttemptKey& key, Rank rank, uint64_t file_size = 164) {
  auto piece = std::make_shared<actors::operation::PieceRef>();
  piece->key = key;
  piece->file_name = "rank-" + std::to_string(rank);
  piece->file_size = file_size;
  return {1, 2, {{piece, 0, 64, 0}}};
}

actors::OperationResult chosen(std::optional<AttemptKey> key) {
  return storage::LoadChoice{key.has_value(), key.value_or(AttemptKey{}), {}};
}

TEST_F(AnOracle, OfALoadIsSilentWhereAllIsWell) {
  commit(step(1));
  commit(step(2));
  LoadOracles all(0, root_, step(1));
  all.answered(10, chosen(step(2)));
  for (Rank rank : {0u, 3u, 0u}) all.asked(20, read_of(step(2), rank));
  all.asked(30, actors::operation::ListNewestAttempts{});
  EXPECT_FALSE(all.violation().has_value()) << all.violation()->what;
}

TEST_F(AnOracle, OfALoadSeesWhatIsReadThatIsNotCommitted) {
  commit(step(1));
  abort(step(2), "no");
  for (uint64_t other : {2, 3}) {
    LoadOracles chooses(0, root_, std::nullopt);
    chooses.answered(10, chosen(step(other)));
    expect(chooses, "load-is-committed", "which is not committed");
    LoadOracles reads(0, root_, std::nullopt);
    reads.asked(20, read_of(step(other), 0));
    expect(reads, "load-is-committed", "rank-0 of " + to_string(step(other)) + ", which is not");
    EXPECT_EQ(reads.violation()->at, 20);
    LoadOracles shares(0, root_, std::nullopt);
    shares.asked(20, actors::operation::ReadChunk{read_of(step(other), 0).ranges});
    expect(shares, "load-is-committed", "rank-0 of " + to_string(step(other)) + ", which is not");
  }
}

TEST_F(AnOracle, OfALoadSeesFilesThatAreNotThoseOfTheCheckpoint) {
  commit(step(1));
  LoadOracles stranger(0, root_, std::nullopt);
  stranger.asked(20, read_of(step(1), kRanks));
  expect(stranger, "load-is-committed", "rank-4, which step 1 (g1a1) does not list");
  root_.files[{2, 0}] = 163;
  LoadOracles cut(0, root_, std::nullopt);
  cut.asked(20, read_of(step(1), 2));
  expect(cut, "load-is-committed", "rank-2 as 164 bytes, but it has 163");
}

TEST_F(AnOracle, OfALoadSeesLatestGoBack) {
  commit(step(2));
  commit(step(1));
  LoadOracles names(0, root_, step(2));
  expect(names, "latest-goes-forward",
         "the latest checkpoint was step 2 (g1a1), but now it is step 1 (g1a1)");
  root_.names_latest = step(2);
  for (const auto& older : {std::optional(step(1)), std::optional<AttemptKey>()}) {
    LoadOracles chooses(0, root_, step(2));
    chooses.answered(10, chosen(older));
    expect(chooses, "load-is-newest", "but step 2 (g1a1) is the newest");
  }
}

TEST_F(AnOracle, OfALoadThatFallsBackSeesAChoiceThatIsDamagedOrTooOld) {
  for (const uint64_t number : {1, 2, 3, 4}) commit(step(number));
  root_.damaged = {{step(4), 5}, {step(2), 5}};
  const auto violation_of = [&](uint64_t number) {
    LoadOracles load(10, root_, std::nullopt, true);
    load.answered(20, chosen(step(number)));
    return load.violation() ? load.violation()->oracle : "";
  };
  EXPECT_EQ(violation_of(4), "load-is-sound");
  EXPECT_EQ(violation_of(3), "");
  EXPECT_EQ(violation_of(2), "load-is-sound");
  EXPECT_EQ(violation_of(1), "load-is-newest");
  LoadOracles none(10, root_, std::nullopt, true);
  none.answered(20, chosen(std::nullopt));
  expect(none, "load-is-newest", "a load chose nothing, but step 3 (g1a1) is the newest");
  LoadOracles falls_back(10, root_, std::nullopt, true);
  falls_back.answered(20, chosen(step(3)));
  falls_back.finish(30, 2, false);
  EXPECT_FALSE(falls_back.violation()) << "step 4 is passed over, not committed later";
  root_.damaged[step(3)] = 15;  // after the load has begun, and perhaps after it was verified
  EXPECT_EQ(violation_of(3), "");
}

TEST_F(AnOracle, OfALoadSeesRanksThatReadDifferentCheckpoints) {
  commit(step(1));
  commit(step(2));
  LoadOracles all(0, root_, std::nullopt);
  all.asked(20, read_of(step(2), 0));
  all.asked(20, read_of(step(1), 1));
  expect(all, "load-is-one", "one rank reads step 2 (g1a1), but another reads step 1 (g1a1)");
}

TEST_F(AnOracle, SeesACheckpointDeletedThatTheRuleKeeps) {
  commit(step(1));
  Oracles all = oracles();
  EXPECT_FALSE(all.stops(10));
  root_.wrong = step(1);
  EXPECT_TRUE(all.stops(20));
  expect(all, "kept-by-rule", "step 1 (g1a1) was deleted, but the rule keeps it");
}

TEST_F(AnOracle, AsksNoNodeToKnowOfACheckpointThatRetentionHasDeleted) {
  Oracles all = oracles();
  all.save_begins(100, 1);
  root_.deleted = {step(1)};
  all.notified(120, 0, step(1), Status(Code::unavailable, "the folder is missing"));
  EXPECT_FALSE(all.violation().has_value()) << all.violation()->what;
  all.notified(130, 1, step(1), Status(Code::aborted, "no"));
  expect(all, "notified-of-what-exists", "rank 1 was notified that step 1 (g1a1) is aborted");
}

TEST_F(AnOracle, SeesBoundsThatAreNotHeld) {
  Oracles messages = oracles();
  messages.sent(10, 3, 0, transport::kMaxMessageBytes + 1);
  expect(messages, "bounds", "from node 3 to node 0");
  Oracles slabs = oracles();
  slabs.slabs(10, 3, static_cast<uint32_t>(-1));  // freed twice
  expect(slabs, "bounds", "rank 3 uses -1 slabs of 2");
}

TEST_F(AnOracle, CountsFromWhenANodeHearsOfASave) {
  actors::TimeNs notified_at = -1;
  Oracles all = oracles([&notified_at](uint32_t) { return notified_at; });
  all.save_begins(100, 1);
  EXPECT_FALSE(all.stops(100 + 5 * kDeadline));  // its ranks still copy
  notified_at = 100 + 5 * kDeadline;
  EXPECT_FALSE(all.stops(99 + 6 * kDeadline));
  EXPECT_TRUE(all.stops(100 + 6 * kDeadline));
  expect(all, "ends-in-time", "ranks 0, 1, 2, 3 are not notified");
}

TEST_F(AnOracle, GivesASaveLongerWhileNoCoordinatorCanKnowItsRanks) {
  root_.roster = false;
  Oracles all = oracles();
  all.save_begins(100, 1);
  EXPECT_FALSE(all.stops(99 + 2 * kDeadline));
  EXPECT_TRUE(all.stops(100 + 2 * kDeadline));
}

TEST_F(AnOracle, SeesASaveOfWhichALivingRankIsNotTold) {
  Oracles all = oracles();
  all.save_begins(100, 1);
  dead_ = {2};
  for (Rank rank : {0u, 1u}) all.notified(200, rank, step(1), Status(Code::io, "not decided"));
  EXPECT_FALSE(all.stops(99 + kDeadline));
  EXPECT_TRUE(all.stops(100 + kDeadline));
  expect(all, "ends-in-time", "rank 3 is not notified");
}

}  // namespace
}  // namespace shoal::sim
