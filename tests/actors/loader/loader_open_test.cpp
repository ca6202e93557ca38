// Checkpoints that clients keep open: pinned once and read once, as long as some client keeps them open.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/loader/open_checkpoints.h"
#include "actors/operation_traits.h"
#include "tests/actors/loader/loader_by_itself.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

class LoaderOpen : public ::testing::Test {
 protected:
  void load(ClientId client, uint32_t id, uint32_t of = 0, bool keeps_open = true) {
    local::Load load;
    load.request_id = id;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.of = of;
    load.keeps_open = keeps_open;
    load.wants_layouts = of == 0;
    loader_.from_client(client, load);
  }
  // Carries out all operations; their names.
  std::vector<std::string> carry_out() {
    std::vector<std::string> names;
    while (!loader_.starts.empty()) {
      const Operation operation = loader_.starts.front().operation;
      names.emplace_back(traits_of(operation).name);
      loader_.finish(answer(operation));
    }
    return names;
  }
  Result<OperationResult> answer(const Operation& operation) const {
    if (std::get_if<operation::ListAttemptsOfStep>(&operation)) {
      storage::AttemptList list;
      list.attempts.emplace_back();
      list.attempts.back().key = kLoadedKey;
      list.attempts.back().state = storage::AttemptInfo::State::committed;
      return OperationResult(list);
    }
    if (const auto* pin = std::get_if<operation::PinAttempt>(&operation)) {
      if (!pinning_fails.ok()) return pinning_fails;
      return OperationResult(
          std::make_shared<const storage::Mark>(storage::Mark{"a pin", pin->key, true, 0, "", 0, {}}));
    }
    if (const auto* read = std::get_if<operation::ReadDecision>(&operation)) {
      const Bytes file = storage::encode_decision(storage::sample_manifest(kLoadedKey)).value();
      return decision_of(read->leaves_encoded ? storage::open_decision(file, "m")
                                              : storage::decode_decision(file, "m"));
    }
    if (const auto* decode = std::get_if<operation::DecodeDecision>(&operation)) {
      if (!decoding_fails.ok()) return decoding_fails;
      return decision_of(storage::decode_rest(*decode->encoded));
    }
    if (std::get_if<operation::RenewPin>(&operation)) return Status(Code::not_found, "somebody ended it");
    if (std::get_if<operation::ReadBatch>(&operation)) return OperationResult(DamageList{});
    return OperationResult(operation::Done{});
  }
  static Result<OperationResult> decision_of(Result<storage::Decision> decision) {
    SHOAL_ASSIGN_OR_RETURN(storage::Decision made, std::move(decision));
    return OperationResult(std::make_shared<const storage::Decision>(std::move(made)));
  }
  // The two answers to a load of no targets.
  std::pair<local::Found, local::LoadDone> answers() {
    auto received = std::exchange(loader_.received, {});
    if (received.size() != 2) {
      ADD_FAILURE() << received.size() << " answers";
      return {};
    }
    return {std::get<local::Found>(received[0].second), std::get<local::LoadDone>(received[1].second)};
  }

  LoaderByItself loader_;
  Status decoding_fails, pinning_fails;
};

using Names = std::vector<std::string>;

// Regression: on a full disk nothing could be loaded.
TEST_F(LoaderOpen, OneThatThereIsNoRoomToPinIsReadAllTheSame) {
  pinning_fails = Status(Code::no_space, "the disk is full");
  load(7, 1);
  EXPECT_EQ(carry_out(), (Names{"ListAttemptsOfStep", "PinAttempt", "ReadDecision", "DecodeDecision"}));
  auto [found, done] = answers();
  EXPECT_EQ(found.checkpoint.key, kLoadedKey);
  EXPECT_OK(done.outcome);
  loader_.from_client(7, local::Close{1});
  EXPECT_EQ(carry_out(), Names{"RemovePin"});  // closes its shards
}

TEST_F(LoaderOpen, OneWhoseClientLeftWhileItWasPinnedIsPinnedNoLonger) {
  load(7, 1);
  loader_.finish(answer(loader_.starts.front().operation));  // the listing
  loader_.handle(event::ClientLost{7});
  EXPECT_EQ(carry_out(), (Names{"PinAttempt", "RemovePin"}));
}

TEST_F(LoaderOpen, OneThatIsKeptIsReadWithoutLookingAtTheRootAgain) {
  load(7, 1);
  EXPECT_EQ(carry_out(), (Names{"ListAttemptsOfStep", "PinAttempt", "ReadDecision", "DecodeDecision"}));
  auto [found, done] = answers();
  EXPECT_EQ(found.checkpoint.key, kLoadedKey);
  EXPECT_TRUE(found.checkpoint.state_dict_metadata.empty());  // they follow from the layouts
  ASSERT_TRUE(found.layouts);
  ASSERT_TRUE(found.layouts->encoded);  // as they stand in the manifest
  EXPECT_EQ(plan::decode_world(*found.layouts->encoded).value()->roster.id(),
            storage::sample_world()->roster.id());
  EXPECT_TRUE(done.outcome.ok());
  for (uint32_t id : {2, 3}) {
    load(7, id, 1, false);
    EXPECT_EQ(carry_out(), Names());
    std::tie(found, done) = answers();
    EXPECT_EQ(found.checkpoint.key, kLoadedKey);
    EXPECT_FALSE(found.layouts);
    EXPECT_EQ(done.request_id, id);
  }
  loader_.from_client(7, local::Close{2});  // kept nothing
  loader_.from_client(8, local::Close{1});  // another client's
  EXPECT_EQ(carry_out(), Names());
  loader_.from_client(7, local::Close{1});
  EXPECT_EQ(carry_out(), Names{"RemovePin"});
  load(7, 4, 1, false);
  ASSERT_EQ(loader_.received.size(), 1u);
  EXPECT_EQ(std::get<local::Found>(loader_.received[0].second).outcome.code(), Code::unavailable);
}

TEST_F(LoaderOpen, OneThatIsClosedBeforeItIsOpenIsNotKept) {
  load(7, 1);
  loader_.from_client(7, local::Close{1});
  EXPECT_EQ(carry_out(),
            (Names{"ListAttemptsOfStep", "PinAttempt", "ReadDecision", "DecodeDecision", "RemovePin"}));
  answers();
  load(7, 2, 1);
  ASSERT_EQ(loader_.received.size(), 1u);
  EXPECT_EQ(std::get<local::Found>(loader_.received[0].second).outcome.code(), Code::unavailable);
}

TEST_F(LoaderOpen, ClientsOfOneNodeShareWhatItKnowsAndOnePin) {
  load(7, 1);
  EXPECT_EQ(carry_out().size(), 4u);
  load(8, 1);
  EXPECT_EQ(carry_out(), Names{"ListAttemptsOfStep"});
  loader_.handle(event::ClientLost{7});
  EXPECT_EQ(carry_out(), Names());
  load(8, 2, 1);
  EXPECT_EQ(carry_out(), Names());
  loader_.handle(event::ClientLost{8});  // kept it twice
  EXPECT_EQ(carry_out(), Names{"RemovePin"});
  load(9, 1);
  EXPECT_EQ(carry_out().size(), 4u);
}

TEST_F(LoaderOpen, LayoutsAreToldBeforeTheNodeDecodesThem) {
  load(7, 1);
  while (traits_of(loader_.starts.front().operation).name != "DecodeDecision") {
    loader_.finish(answer(loader_.starts.front().operation));
  }
  ASSERT_EQ(loader_.received.size(), 1u);
  const auto found = std::get<local::Found>(loader_.received[0].second);
  EXPECT_TRUE(found.layouts && found.layouts->encoded);
  EXPECT_EQ(found.checkpoint.world_size, 4u);
  EXPECT_EQ(carry_out(), Names{"DecodeDecision"});
  EXPECT_TRUE(answers().second.outcome.ok());
}

TEST_F(LoaderOpen, OneWhoseLayoutsAreDamagedIsNotKept) {
  decoding_fails = Status(Code::corrupt, "layouts of nobody");
  load(7, 1);
  carry_out();
  EXPECT_EQ(answers().second.outcome.code(), Code::corrupt);
  loader_.received.clear();
  load(7, 2, 1);
  ASSERT_EQ(loader_.received.size(), 1u);
  EXPECT_EQ(std::get<local::Found>(loader_.received[0].second).outcome.code(), Code::unavailable);
}

TEST_F(LoaderOpen, WhoGoesWhileItIsDecodedLeavesNoPin) {
  load(7, 1);
  while (traits_of(loader_.starts.front().operation).name != "DecodeDecision") {
    loader_.finish(answer(loader_.starts.front().operation));
  }
  loader_.handle(event::ClientLost{7});
  EXPECT_EQ(carry_out(), (Names{"DecodeDecision", "RemovePin"}));
}

TEST_F(LoaderOpen, IsForgottenWithItsPin) {
  load(7, 1);
  carry_out();
  loader_.pass(TimeNs{Timeouts().lease_renew_ms} * kMillisecond);
  EXPECT_EQ(carry_out(), Names{"RenewPin"});  // the renewal fails
  loader_.received.clear();
  load(7, 2, 1);
  ASSERT_EQ(loader_.received.size(), 1u);
  EXPECT_THAT(std::get<local::Found>(loader_.received[0].second).outcome.message(),
              HasSubstr("no such checkpoint open"));
  load(7, 3);
  EXPECT_EQ(carry_out(), (Names{"ListAttemptsOfStep", "PinAttempt", "ReadDecision", "DecodeDecision"}));
}

TEST_F(LoaderOpen, SoManyAreKeptForAClientAndNoMore) {
  for (uint32_t id = 1; id <= kMaxOpenCheckpoints; ++id) load(7, id);
  carry_out();
  loader_.received.clear();
  load(7, 1000);
  ASSERT_EQ(loader_.received.size(), 1u);
  EXPECT_EQ(std::get<local::Found>(loader_.received[0].second).outcome.code(), Code::busy);
  loader_.from_client(7, local::Close{1});
  load(7, 1001);
  EXPECT_EQ(carry_out(), Names{"ListAttemptsOfStep"});
}

}  // namespace
}  // namespace shoal::actors
