// What load(latest) rests its choice on, by the operations that the Loader asks for.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "tests/storage/decision_samples.h"

namespace shoal {
namespace {

constexpr ClientId kClient = 7;
constexpr AttemptKey kCommitted = {1, 10, 1}, kAborted = {1, 20, 1};
using State = AttemptInfo::State;

class LoaderChoice : public testing::Test {
 protected:
  LoaderChoice() {
    NodeFacts facts;
    facts.generation = 2;
    facts.host = "a";
    loader_ = make_loader(facts);
    from_client(local::Slab{0, uint64_t{64} << 20});
    local::Load load;
    load.request_id = 1;
    load.latest = true;
    from_client(load);
  }

  template <class Message>
  void from_client(Message message) {
    handle(event::FromClient{kClient, std::make_shared<const LocalMessage>(std::move(message))});
  }
  void handle(const Event& event) {
    Effects effects;
    loader_->handle(0, event, effects);
    for (const Effect& effect : effects) {
      if (const auto* start = std::get_if<effect::Start>(&effect)) started_.push_back(*start);
    }
  }

  // The oldest operation that is under way, which must be of this kind.
  template <class T>
  T expect() {
    if (started_.empty() || !std::holds_alternative<T>(started_.front().operation)) {
      ADD_FAILURE() << "started: "
                    << (started_.empty() ? "nothing" : operation_name(started_.front().operation));
      return {};
    }
    return std::get<T>(started_.front().operation);
  }
  void finish(Result<OperationResult> result) {
    ASSERT_FALSE(started_.empty());
    const OperationId id = started_.front().id;
    started_.erase(started_.begin());
    handle(event::OperationDone{id, std::move(result)});
  }
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
  std::unique_ptr<Role> loader_;
  std::vector<effect::Start> started_;
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
