// What load(latest) rests its choice on, by the operations that the Loader asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/actors/loader_by_itself.h"
#include "tests/storage/decision_samples.h"

namespace shoal {
namespace {

constexpr ClientId kClient = 7;
constexpr AttemptKey kCommitted = {1, 10, 1}, kAborted = {1, 20, 1};
using State = AttemptInfo::State;
using testing::HasSubstr;

class LoaderChoice : public testing::Test {
 protected:
  explicit LoaderChoice(bool read_only = false) : loader_(read_only) {
    loader_.from_client(kClient, local::Slab{0, uint64_t{64} << 20});
    local::Load load;
    load.request_id = 1;
    load.latest = true;
    loader_.from_client(kClient, load);
  }

  // The oldest operation that is under way, which must be of this kind.
  template <class T>
  T expect() {
    const Operation* oldest = loader_.starts.empty() ? nullptr : &loader_.starts.front().operation;
    if (oldest == nullptr || !std::holds_alternative<T>(*oldest)) {
      ADD_FAILURE() << "started: " << (oldest == nullptr ? "nothing" : operation_name(*oldest));
      return {};
    }
    return std::get<T>(*oldest);
  }
  void finish(Result<OperationResult> result) { loader_.finish(std::move(result)); }
  void finish_listing(std::vector<std::pair<AttemptKey, State>> attempts) {
    expect<operation::ListNewestAttempts>();
    AttemptList list;
    for (const auto& [key, state] : attempts) {
      list.attempts.emplace_back();
      list.attempts.back().key = key;
      list.attempts.back().state = state;
    }
    finish(OperationResult(list));
  }
  static Result<OperationResult> tombstone(const AttemptKey& key,
                                           Tombstone::Reason reason = Tombstone::Reason::aborted) {
    auto decision = std::make_shared<Decision>();
    decision->key = key;
    decision->body = Tombstone{reason, "too late"};
    return OperationResult(std::shared_ptr<const Decision>(decision));
  }
  static Result<OperationResult> manifest(const AttemptKey& key) {
    auto decision = std::make_shared<Decision>();
    decision->key = key;
    decision->body = Manifest{};
    return OperationResult(std::shared_ptr<const Decision>(decision));
  }

  // What the client is told of a load whose chosen checkpoint is, by then, what `decision` says.
  Status told_of(Result<OperationResult> decision) {
    LoadChoice choice;
    choice.found = true;
    choice.key = kCommitted;
    expect<operation::ReadLoadChoice>();
    finish(OperationResult(choice));
    expect<operation::PinAttempt>();
    finish(OperationResult(std::make_shared<const Mark>()));
    expect<operation::ReadDecision>();
    finish(std::move(decision));
    return told();
  }
  Status told() const {
    const auto found = loader_.told<local::Found>(kClient);
    return found.size() == 1 ? found[0].outcome : Status(Code::internal, "it was not answered once");
  }

  LoaderByItself loader_;
};

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
  const LoadChoice choice = expect<operation::PublishLoadChoice>().choice;
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

// Regression: each of these was not_found, which a job that starts afresh takes for an empty root.
TEST_F(LoaderChoice, OfACheckpointThatWasDeletedSinceIsToBeMadeAgain) {
  const Status told = told_of(tombstone(kCommitted, Tombstone::Reason::deleted));
  EXPECT_EQ(told.code(), Code::unavailable);
  EXPECT_THAT(told.message(), HasSubstr("step 10 (g1a1) was deleted since it was chosen: too late"));
}

TEST_F(LoaderChoice, OfACheckpointThatWasAbortedSinceSaysSo) {
  const Status told = told_of(tombstone(kCommitted));
  EXPECT_EQ(told.code(), Code::aborted);
  EXPECT_THAT(told.message(), HasSubstr("it was aborted: too late"));
}

TEST_F(LoaderChoice, OfACheckpointWhoseDecisionIsMissingNamesThatFile) {
  const Status told = told_of(Status(Code::not_found, "no such file"));
  EXPECT_EQ(told.code(), Code::corrupt);
  EXPECT_THAT(told.message(), HasSubstr("step-00000010/g1a1/manifest.shoal is missing now (no such file)"));
}

TEST_F(LoaderChoice, OfARootThatIsMissingIsNotThatThereIsNone) {
  finish(Status(Code::not_found, "no choice"));
  expect<operation::ListNewestAttempts>();
  finish(Status(Code::not_found, "/ckpt/run7: no such folder"));
  EXPECT_EQ(told(), Status(Code::corrupt, "/ckpt/run7: no such folder"));
}

TEST_F(LoaderChoice, WithoutAnyCheckpointSaysThatThereIsNone) {
  finish(Status(Code::not_found, "no choice"));
  finish_listing({});
  expect<operation::PublishLoadChoice>();
  finish(OperationResult(LoadChoice{}));
  EXPECT_EQ(told(), Status(Code::not_found, "there is no committed checkpoint in this root"));
}

TEST_F(LoaderChoice, OfWhatIsTheLatestIsNotThatThereIsNoneWhenADecisionVanishes) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::Latest{2});
  finish_listing({{kCommitted, State::committed}});
  expect<operation::ReadDecision>();
  finish(Status(Code::not_found, "no such file"));
  EXPECT_EQ(told().code(), Code::corrupt);
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
  const auto told = loader_.told<local::Listing>(kClient);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].request_id, 5u);
  EXPECT_EQ(told[0].list->attempts.at(0).key, kCommitted);
  EXPECT_EQ(told[1].outcome.code(), Code::io);
}

TEST_F(ReaderChoice, OfACheckpointThatWasDeletedSinceIsFollowedByAnother) {
  const Status told = told_of(tombstone(kCommitted, Tombstone::Reason::deleted));
  EXPECT_EQ(told.code(), Code::aborted) << "a client that hears unavailable asks for the same choice again";
  EXPECT_THAT(told.message(), testing::HasSubstr("load again, which chooses what is the newest then"));
}

// Another job may be writing it: a reader that waited for its decision would publish one in the end.
TEST_F(ReaderChoice, TakesTheNewestCheckpointAndLeavesWhatIsUndecidedAlone) {
  EXPECT_EQ(expect<operation::ReadLoadChoice>().of, ChoiceOf::reader);
  finish(Status(Code::not_found, "no choice"));
  finish_listing({{kCommitted, State::committed}, {kAborted, State::undecided}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
  finish(manifest(kCommitted));
  const auto publish = expect<operation::PublishLoadChoice>();
  EXPECT_EQ(publish.of, ChoiceOf::reader);
  EXPECT_EQ(publish.choice.key, kCommitted);
  EXPECT_FALSE(loader_.has_timers()) << "it waits for nobody";
  EXPECT_THAT(loader_.log, testing::Contains(testing::HasSubstr("1 newer attempts are not decided yet")));
}

TEST_F(ReaderChoice, OfAStepCompletesNothing) {
  local::Load load;
  load.request_id = 2;
  load.latest = false;
  load.step = 20;
  loader_.starts.clear();
  loader_.from_client(kClient, load);
  expect<operation::ListAttemptsOfStep>();
  AttemptList list;
  list.attempts.emplace_back();
  list.attempts.back().key = kAborted;
  list.attempts.back().rank_manifests = list.attempts.back().rank_world = 2;
  finish(OperationResult(list));
  EXPECT_TRUE(loader_.starts.empty());
  EXPECT_EQ(loader_.told<local::Found>(kClient).at(0).outcome.code(), Code::not_found);
}

TEST_F(ReaderChoice, AskedForTheLatestCompletesNothing) {
  loader_.starts.clear();
  loader_.from_client(kClient, local::Latest{3});
  finish_listing({{kCommitted, State::committed}, {kAborted, State::undecided}});
  EXPECT_EQ(expect<operation::ReadDecision>().key, kCommitted);
}

}  // namespace
}  // namespace shoal
