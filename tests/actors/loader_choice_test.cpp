// What load(latest) rests its choice on, by the operations that the Loader asks for.
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

class LoaderChoice : public testing::Test {
 protected:
  LoaderChoice() {
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
  static Result<OperationResult> tombstone(const AttemptKey& key) {
    auto decision = std::make_shared<Decision>();
    decision->key = key;
    decision->body = Tombstone{Tombstone::Reason::aborted, "too late"};
    return OperationResult(std::shared_ptr<const Decision>(decision));
  }
  static Result<OperationResult> manifest(const AttemptKey& key) {
    auto decision = std::make_shared<Decision>();
    decision->key = key;
    decision->body = Manifest{};
    return OperationResult(std::shared_ptr<const Decision>(decision));
  }

 private:
  LoaderByItself loader_;
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

}  // namespace
}  // namespace shoal
