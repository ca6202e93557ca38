// How load(latest) makes its choice, checked by the operations that the Loader starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "actors/operation_traits.h"
#include "tests/actors/loader/loader_by_itself.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::actors {
namespace {

constexpr AttemptKey kCommitted = {1, 10, 1}, kAborted = {1, 20, 1};
using State = storage::AttemptInfo::State;
using ::testing::HasSubstr;

class LoaderChoice : public ::testing::Test {
 protected:
  explicit LoaderChoice(bool read_only = false, const AttemptKey& last_save = {}) : loader_(read_only) {
    loader_.from_client(kClient, local::Slab{0, uint64_t{64} << 20});
    local::Load load;
    load.request_id = 1;
    load.latest = true;
    load.step = last_save.step;
    load.attempt = last_save.attempt;
    loader_.from_client(kClient, load);
  }

  // The oldest operation that is under way, which must be of this kind.
  template <class T>
  T expect() {
    const Operation* oldest = loader_.starts.empty() ? nullptr : &loader_.starts.front().operation;
    if (oldest == nullptr || !std::holds_alternative<T>(*oldest)) {
      ADD_FAILURE() << "started: " << (oldest == nullptr ? "nothing" : traits_of(*oldest).name);
      return {};
    }
    return std::get<T>(*oldest);
  }
  void finish(Result<OperationResult> result) { loader_.finish(std::move(result)); }
  void finish_listing(std::vector<std::pair<AttemptKey, State>> attempts) {
    expect<operation::ListNewestAttempts>();
    storage::AttemptList list;
    for (const auto& [key, state] : attempts) {
      list.attempts.emplace_back();
      list.attempts.back().key = key;
      list.attempts.back().state = state;
    }
    finish(OperationResult(list));
  }
  static Result<OperationResult> tombstone(
      const AttemptKey& key, storage::Tombstone::Reason reason = storage::Tombstone::Reason::aborted) {
    auto decision = std::make_shared<storage::Decision>();
    decision->key = key;
    decision->body = storage::Tombstone{reason, "too late"};
    return OperationResult(std::shared_ptr<const storage::Decision>(decision));
  }
  static Result<OperationResult> manifest(const AttemptKey& key) {
    auto decision = std::make_shared<storage::Decision>();
    decision->key = key;
    decision->body = storage::Manifest{};
    return OperationResult(std::shared_ptr<const storage::Decision>(decision));
  }

  // The answer to the client if the decision of the chosen checkpoint is, by then, `decision`.
  // inspected: what the root says of the attempt if it lacks the decision.
  Status told_of(Result<OperationResult> decision,
                 Result<OperationResult> inspected = OperationResult(storage::AttemptInfo())) {
    storage::LoadChoice choice;
    choice.found = true;
    choice.key = kCommitted;
    expect<operation::ReadLoadChoice>();
    finish(OperationResult(choice));
    expect<operation::PinAttempt>();
    finish(OperationResult(std::make_shared<const storage::Mark>()));
    expect<operation::ReadDecision>();
    const bool is_lost = decision.status().code() == Code::not_found;
    finish(std::move(decision));
    if (!is_lost) return notified();
    expect<operation::InspectAttempt>();
    finish(std::move(inspected));
    return notified();
  }
  Status notified() const {
    const auto found = loader_.notified<local::Found>(kClient);
    return found.size() == 1 ? found[0].outcome : Status(Code::internal, "it was not answered once");
  }

  LoaderByItself loader_;
};

// A client may use a request id again. What the root answers to the earlier load must not reach the later
// one.
TEST_F(LoaderChoice, OfALaterLoadIsNotTouchedByAnOperationOfAnEarlierOneWithItsRequestId) {
  storage::LoadChoice choice;
  choice.found = true;
  choice.key = kCommitted;
  finish(OperationResult(choice));
  finish(OperationResult(std::make_shared<const storage::Mark>()));
  OperationId reading = 0;
  ASSERT_TRUE(loader_.take_start<operation::ReadDecision>(&reading).has_value());
  loader_.pass(TimeNs{Timeouts{}.lease_renew_ms} * kMillisecond);
  ASSERT_TRUE(loader_.answer<operation::RenewPin>(Status(Code::not_found, "the pin is gone")));
  EXPECT_EQ(notified().code(), Code::unavailable);
  local::Load again;
  again.request_id = 1;
  again.latest = true;
  loader_.from_client(kClient, again);
  expect<operation::ReadLoadChoice>();
  loader_.handle(event::OperationDone{reading, manifest(kCommitted)});
  EXPECT_EQ(loader_.notified<local::Found>(kClient).size(), 1u);
  EXPECT_EQ(loader_.taken("load", "choosing", "chosen"), 1u);
}

// A load by a rank of generation 2 that has called saves up to step 30.
class ChoiceAfterSaves : public LoaderChoice {
 protected:
  ChoiceAfterSaves() : LoaderChoice(false, {2, 30, 1}) { finish(Status(Code::not_found, "no choice")); }
};

// Other ranks have called the next save, which needs this rank: to wait for it would end only at its
// deadline.
TEST_F(ChoiceAfterSaves, DoesNotWaitForASaveThatThisRankHasNotCalled) {
  for (const AttemptKey& later : {AttemptKey{2, 40, 1}, AttemptKey{2, 20, 2}}) {
    SCOPED_TRACE(to_string(later));
    finish_listing({{{2, 30, 1}, State::committed}, {later, State::undecided}});
    EXPECT_EQ(expect<operation::ReadDecision>().key, (AttemptKey{2, 30, 1}));
    finish(tombstone({2, 30, 1}));  // so that it lists again
  }
  finish_listing({{{2, 30, 1}, State::committed}, {{2, 40, 1}, State::undecided}});
  finish(manifest({2, 30, 1}));
  const auto published = expect<operation::PublishLoadChoice>();
  EXPECT_EQ(published.choice.key, (AttemptKey{2, 30, 1}));
  EXPECT_EQ(published.choice.passed_over->count, 1u);
}

TEST_F(ChoiceAfterSaves, WaitsForEachSaveThatThisRankHasCalled) {
  finish_listing({{kCommitted, State::committed}, {{2, 30, 1}, State::undecided}});
  EXPECT_EQ(expect<operation::InspectAttempt>().key, (AttemptKey{2, 30, 1}));
}

TEST_F(ChoiceAfterSaves, WaitsForSavesOfAnEarlierGeneration) {
  finish_listing({{kCommitted, State::committed}, {{1, 40, 1}, State::undecided}});
  EXPECT_EQ(expect<operation::InspectAttempt>().key, (AttemptKey{1, 40, 1}));
}

// An earlier process of its ranks may have called this one.
TEST_F(LoaderChoice, OfRanksThatHaveSavedNothingWaitsForAllSaves) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}, {{2, 40, 1}, State::undecided}});
  EXPECT_EQ(expect<operation::InspectAttempt>().key, (AttemptKey{2, 40, 1}));
}

// A load that may take an older checkpoint where the newest is damaged.
class FallbackChoice : public LoaderChoice {
 protected:
  explicit FallbackChoice(bool read_only = false) : LoaderChoice(read_only) {
    loader_.starts.clear();
    ask(kClient, 2);
    EXPECT_EQ(expect<operation::ReadLoadChoice>().ordinal, kFallbackOrdinal | 3);
    finish(Status(Code::not_found, "no choice"));
  }
  void ask(ClientId client, uint32_t request_id) {
    local::Load load;
    load.request_id = request_id;
    load.ordinal = kFallbackOrdinal | 3;
    loader_.from_client(client, load);
  }
  void finish_all(std::vector<std::pair<AttemptKey, State>> attempts,
                  std::vector<std::pair<AttemptKey, Status>> damaged = {}) {
    expect<operation::ListAttempts>();
    storage::AttemptList list;
    for (const auto& [key, state] : attempts) {
      list.attempts.emplace_back();
      list.attempts.back().key = key;
      list.attempts.back().state = state;
    }
    list.damaged = std::move(damaged);
    finish(OperationResult(list));
  }
  void finish_verifying(const AttemptKey& key, const Status& outcome = ok_status()) {
    EXPECT_EQ(expect<operation::VerifyCheckpoint>().key, key);
    finish(outcome.ok() ? Result<OperationResult>(OperationResult(operation::Done{}))
                        : Result<OperationResult>(outcome));
  }
  static constexpr AttemptKey kNewest = {1, 30, 1};
  const Status damage_ = Status(Code::corrupt, "manifest.shoal: its digest differs");
};

TEST_F(FallbackChoice, VerifiesTheNewestBeforeItPublishes) {
  finish_all({{kCommitted, State::committed}, {kNewest, State::committed}});
  finish_verifying(kNewest);
  finish_all({{kCommitted, State::committed}, {kNewest, State::committed}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kNewest);
  finish(manifest(kNewest));
  const auto publish = expect<operation::PublishLoadChoice>();
  EXPECT_EQ(publish.ordinal, kFallbackOrdinal | 3);
  EXPECT_EQ(publish.choice.key, kNewest);
  EXPECT_EQ(publish.choice.passed_over, nullptr);
}

TEST_F(FallbackChoice, PassesOverADamagedManifestAndADamagedShard) {
  const AttemptKey middle{1, 25, 1};
  const std::vector<std::pair<AttemptKey, State>> all = {
      {kCommitted, State::committed}, {kAborted, State::aborted}, {middle, State::committed}};
  finish_all(all, {{kNewest, damage_}});
  finish_verifying(middle, Status(Code::corrupt, "rank-00000.safetensors: block 0 differs"));
  finish_all(all, {{kNewest, damage_}});
  finish_verifying(kCommitted);
  finish_all(all, {{kNewest, damage_}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kAborted);
  finish(tombstone(kAborted));
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
  finish(manifest(kCommitted));
  const storage::LoadChoice choice = expect<operation::PublishLoadChoice>().choice;
  EXPECT_EQ(choice.key, kCommitted);
  ASSERT_NE(choice.passed_over, nullptr);
  const PassedOver expected{{{kNewest, "damaged: manifest.shoal: its digest differs"},
                             {middle, "damaged: rank-00000.safetensors: block 0 differs"},
                             {kAborted, "aborted: too late"}},
                            3};
  EXPECT_EQ(*choice.passed_over, expected);
  EXPECT_THAT(loader_.log,
              ::testing::Contains(HasSubstr("load(latest) chooses step 10 (g1a1): it passes over the newer "
                                            "step 30 (g1a1), which is damaged: manifest.shoal")));
}

TEST_F(FallbackChoice, OfNothingButDamageIsCorruptAndPublishesNothing) {
  finish_all({{kCommitted, State::committed}}, {{kNewest, damage_}});
  finish_verifying(kCommitted, Status(Code::corrupt, "a shard is missing"));
  finish_all({{kCommitted, State::committed}}, {{kNewest, damage_}});
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(notified().code(), Code::corrupt);
  EXPECT_THAT(notified().message(),
              HasSubstr("every checkpoint of this root is damaged (2); the newest is step 30"));
}

TEST_F(FallbackChoice, TakesWhatCannotBeReadForNoDamage) {
  finish_all({{kCommitted, State::committed}, {kNewest, State::committed}});
  finish_verifying(kNewest, Status(Code::io, "the disk does not answer"));
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(notified().code(), Code::io);
  EXPECT_THAT(notified().message(),
              HasSubstr("step 30 (g1a1) could not be verified: the disk does not answer"));
}

TEST_F(FallbackChoice, TakesADecisionThatCannotBeReadForNoDamage) {
  finish_all({{kCommitted, State::committed}}, {{kNewest, Status(Code::unavailable, "stale handle")}});
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(notified().code(), Code::unavailable);
}

TEST_F(FallbackChoice, SeesDecidedWhatStandsBetweenTheDamagedAndTheSound) {
  finish_all({{kCommitted, State::committed}, {kAborted, State::undecided}}, {{kNewest, damage_}});
  EXPECT_EQ(expect<operation::InspectAttempt>().key, kAborted) << "it watches that attempt";
}

TEST_F(FallbackChoice, LooksAgainWhereWhatItVerifiedIsNoCheckpointAnyMore) {
  finish_all({{kCommitted, State::committed}, {kNewest, State::committed}});
  finish_verifying(kNewest, Status(Code::not_found, "it was deleted"));
  finish_all({{kCommitted, State::committed}, {kNewest, State::deleted}});
  finish_verifying(kCommitted);
}

TEST_F(FallbackChoice, VerifiesOnceForAllRanksOfANode) {
  loader_.from_client(kClient + 1, local::Slab{0, uint64_t{64} << 20});
  ask(kClient + 1, 9);
  finish_all({{kNewest, State::committed}});
  finish_verifying(kNewest, Status(Code::io, "the disk does not answer"));
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(notified().code(), Code::io);
  ASSERT_EQ(loader_.notified<local::Found>(kClient + 1).size(), 1u);
  EXPECT_EQ(loader_.notified<local::Found>(kClient + 1)[0].outcome.code(), Code::io);
}

TEST_F(LoaderChoice, OfADamagedNewestIsAnErrorThatNamesIt) {
  finish(Status(Code::not_found, "no choice"));
  expect<operation::ListNewestAttempts>();
  storage::AttemptList list;
  list.attempts.emplace_back();
  list.attempts.back().key = kCommitted;
  list.attempts.back().state = State::committed;
  list.damaged = {{kAborted, Status(Code::corrupt, "its digest differs")}};
  finish(OperationResult(list));
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(notified().code(), Code::corrupt);
  EXPECT_THAT(notified().message(), HasSubstr("the newest checkpoint, step 20 (g1a1), cannot be read"));
}

TEST_F(LoaderChoice, TellsTheClientWhatItPassedOver) {
  auto passed_over = std::make_shared<PassedOver>();
  passed_over->add(kAborted, "aborted: too late");
  storage::LoadChoice choice{true, kCommitted, {}, passed_over};
  expect<operation::ReadLoadChoice>();
  finish(OperationResult(choice));
  expect<operation::PinAttempt>();
  finish(OperationResult(std::make_shared<const storage::Mark>()));
  expect<operation::ReadDecision>();
  finish(OperationResult(std::make_shared<const storage::Decision>(
      storage::Decision{kCommitted, storage::nonce_of(1), storage::nonce_of(77), 0,
                        storage::sample_manifest(kCommitted).manifest()})));
  const auto found = loader_.notified<local::Found>(kClient);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_TRUE(found[0].outcome.ok()) << found[0].outcome.to_string();
  ASSERT_NE(found[0].passed_over, nullptr);
  EXPECT_EQ(*found[0].passed_over, *passed_over);
}

class ReaderChoice : public LoaderChoice {
 protected:
  ReaderChoice() : LoaderChoice(true) {}
};

TEST_F(LoaderChoice, RestsOnDecisionsThatWereSynced) {
  expect<operation::ReadLoadChoice>();
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}, {kAborted, State::aborted}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kAborted);
  finish(tombstone(kAborted));
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
  finish(manifest(kCommitted));
  const storage::LoadChoice choice = expect<operation::PublishLoadChoice>().choice;
  EXPECT_TRUE(choice.found);
  EXPECT_EQ(choice.key, kCommitted);
}

TEST_F(LoaderChoice, LooksAgainWhenADecisionThatItSawDidNotLast) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}});
  finish(Status(Code::not_found, "the storage crashed and forgot it"));
  finish_listing({});
  EXPECT_FALSE(expect<operation::PublishLoadChoice>().choice.found);
}

TEST_F(LoaderChoice, LooksAgainWhenADecisionIsAnotherThanItSaw) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}});
  finish(tombstone(kCommitted));
  finish_listing({{kCommitted, State::aborted}});
  finish(tombstone(kCommitted));
  EXPECT_FALSE(expect<operation::PublishLoadChoice>().choice.found);
}

// Regression: the load failed as corrupt when retention deleted what had been undecided when it began.
TEST_F(LoaderChoice, LooksAgainWhenWhatWasUndecidedIsGone) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}, {kAborted, State::undecided}});
  EXPECT_EQ(expect<operation::InspectAttempt>().key, kAborted);
  finish(Status(Code::not_found, "step-00000011: cannot open the folder: No such file or directory"));
  finish_listing({{kCommitted, State::committed}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
}

// Regression: each of these was not_found, which a job that starts afresh takes for an empty root.
TEST_F(LoaderChoice, OfACheckpointThatWasDeletedSinceIsToBeMadeAgain) {
  const Status notified = told_of(tombstone(kCommitted, storage::Tombstone::Reason::deleted));
  EXPECT_EQ(notified.code(), Code::unavailable);
  EXPECT_THAT(notified.message(), HasSubstr("step 10 (g1a1) was deleted after this load chose it: too late"));
}

TEST_F(LoaderChoice, OfACheckpointThatWasAbortedSinceSaysSo) {
  const Status notified = told_of(tombstone(kCommitted));
  EXPECT_EQ(notified.code(), Code::aborted);
  EXPECT_THAT(notified.message(), HasSubstr("the attempt was aborted: too late"));
}

// Regression: `shoal gc` removed the folder between choice and look, and the error was corrupt.
TEST_F(LoaderChoice, OfACheckpointWhoseFolderIsGoneSaysThatItWasDeleted) {
  const Status gone(Code::not_found, "/root/step-00000010: cannot open the folder");
  const Status notified = told_of(gone, gone);
  EXPECT_EQ(notified.code(), Code::unavailable);
  EXPECT_THAT(notified.message(),
              HasSubstr("step 10 (g1a1) was deleted after this load chose it: its folder is missing"));
}

TEST_F(LoaderChoice, OfACheckpointWhoseDecisionIsMissingNamesThatFile) {
  const Status notified = told_of(Status(Code::not_found, "no such file"));
  EXPECT_EQ(notified.code(), Code::corrupt);
  EXPECT_THAT(notified.message(),
              HasSubstr("step-00000010/g1a1/manifest.shoal is missing now (no such file)"));
}

TEST_F(LoaderChoice, OfARootThatIsMissingIsNotThatThereIsNone) {
  finish(Status(Code::not_found, "no choice"));
  expect<operation::ListNewestAttempts>();
  finish(Status(Code::not_found, "/ckpt/run7: no such folder"));
  EXPECT_EQ(notified(), Status(Code::corrupt, "/ckpt/run7: no such folder"));
}

TEST_F(LoaderChoice, WithoutAnyCheckpointSaysThatThereIsNone) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({});
  expect<operation::PublishLoadChoice>();
  finish(OperationResult(storage::LoadChoice{}));
  EXPECT_EQ(notified(), Status(Code::not_found, "this root has no committed checkpoint"));
}

TEST_F(LoaderChoice, OfWhatIsTheLatestIsNotThatThereIsNoneWhenADecisionVanishes) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::Latest{2});
  finish_listing({{kCommitted, State::committed}});
  expect<operation::ReadDecision>();
  finish(Status(Code::not_found, "no such file"));
  expect<operation::InspectAttempt>();
  finish(OperationResult(storage::AttemptInfo()));
  EXPECT_EQ(notified().code(), Code::corrupt);
}

TEST_F(LoaderChoice, OfWhatIsTheLatestIsNotCorruptIfItWasDeletedWithItsFolderMeanwhile) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::Latest{2});
  finish_listing({{kCommitted, State::committed}});
  expect<operation::ReadDecision>();
  finish(Status(Code::not_found, "no such folder"));
  expect<operation::InspectAttempt>();
  finish(Status(Code::not_found, "no such folder"));
  EXPECT_EQ(notified().code(), Code::unavailable);
  EXPECT_THAT(notified().message(), HasSubstr("was deleted after this load chose it"));
}

TEST_F(LoaderChoice, ListsCheckpointsForWhoeverAsks) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::List{5, UINT32_MAX});
  EXPECT_EQ(expect<operation::ListCheckpoints>().newest, kMaxListedCheckpoints);
  auto list = std::make_shared<CheckpointList>();
  list->attempts.emplace_back().key = kCommitted;
  finish(OperationResult(std::shared_ptr<const CheckpointList>(list)));
  loader_.from_client(kClient, local::List{6, 1});
  finish(Status(Code::io, "the root cannot be read"));
  const auto notified = loader_.notified<local::Listing>(kClient);
  ASSERT_EQ(notified.size(), 2u);
  EXPECT_EQ(notified[0].request_id, 5u);
  EXPECT_EQ(notified[0].list->attempts.at(0).key, kCommitted);
  EXPECT_EQ(notified[1].outcome.code(), Code::io);
}

TEST_F(ReaderChoice, OfACheckpointThatWasDeletedSinceIsFollowedByAnother) {
  const Status notified = told_of(tombstone(kCommitted, storage::Tombstone::Reason::deleted));
  EXPECT_EQ(notified.code(), Code::aborted)
      << "a client that hears unavailable asks for the same choice again";
  EXPECT_THAT(notified.message(),
              ::testing::HasSubstr("load again to choose what is now the newest checkpoint"));
}

// Another job may be writing it: a reader that waited for its decision would publish one in the end.
TEST_F(ReaderChoice, TakesTheNewestCheckpointAndLeavesWhatIsUndecidedAlone) {
  EXPECT_EQ(expect<operation::ReadLoadChoice>().of, storage::ChoiceOf::reader);
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}, {kAborted, State::undecided}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
  finish(manifest(kCommitted));
  const auto publish = expect<operation::PublishLoadChoice>();
  EXPECT_EQ(publish.of, storage::ChoiceOf::reader);
  EXPECT_EQ(publish.choice.key, kCommitted);
  EXPECT_FALSE(loader_.has_timers()) << "it waits for nobody";
  EXPECT_THAT(loader_.log, ::testing::Contains(::testing::HasSubstr("1 newer attempts are not decided yet")));
}

TEST_F(ReaderChoice, OfAStepCompletesNothing) {
  local::Load load;
  load.request_id = 2;
  load.latest = false;
  load.step = 20;
  loader_.starts.clear();
  loader_.from_client(kClient, load);
  expect<operation::ListAttemptsOfStep>();
  storage::AttemptList list;
  list.attempts.emplace_back();
  list.attempts.back().key = kAborted;
  list.attempts.back().rank_manifests = list.attempts.back().rank_world = 2;
  finish(OperationResult(list));
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(loader_.notified<local::Found>(kClient).at(0).outcome.code(), Code::not_found);
}

TEST_F(ReaderChoice, AskedForTheLatestCompletesNothing) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::Latest{3});
  finish_listing({{kCommitted, State::committed}, {kAborted, State::undecided}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
}

}  // namespace
}  // namespace shoal::actors
