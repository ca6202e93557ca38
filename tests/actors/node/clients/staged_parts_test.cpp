// The writers of a save in parts, and the client that copies the parts.
#include "actors/node/clients/staged_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/actors/test_ids.h"
#include "tests/storage/test_support.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

class Parts : public ::testing::Test {
 protected:
  Parts() { parts_.client_attached(kClient); }
  local::PartRequest asked(size_t index) {
    std::lock_guard lock(mutex_);
    return std::get<local::PartRequest>(*sent_.at(index).second);
  }

  std::mutex mutex_;
  std::vector<std::pair<ClientId, std::shared_ptr<const local::LocalMessage>>> sent_;
  StagedParts parts_{[this](ClientId client, std::shared_ptr<const local::LocalMessage> message) {
    std::lock_guard lock(mutex_);
    sent_.emplace_back(client, std::move(message));
  }};
};

TEST_F(Parts, AreAskedForByNumberAndAnswered) {
  auto source = parts_.open(kClient, 2, kKey).value();
  const uint64_t first = source->ask({{0, 100, 0}}), second = source->ask({{128, 64, 128}});
  EXPECT_EQ(asked(0).number, first);
  EXPECT_EQ(asked(0).slab_id, 2u);
  EXPECT_EQ(asked(0).step, 3u);
  EXPECT_EQ(asked(1).ranges[0].from, 128u);
  parts_.answered(kClient, {2, second, Status(Code::invalid_argument, "no such bytes")});
  parts_.answered(kClient, {2, first, ok_status()});
  EXPECT_OK(source->wait(first));
  EXPECT_EQ(source->wait(second).code(), Code::invalid_argument);
}

TEST_F(Parts, TakeNoAnswerOfAnotherClientOrSlab) {
  auto source = parts_.open(kClient, 2, kKey).value();
  const uint64_t number = source->ask({{0, 100, 0}});
  parts_.client_attached(kClient + 1);
  parts_.answered(kClient + 1, {2, number, ok_status()});
  parts_.answered(kClient, {3, number, ok_status()});
  parts_.answered(kClient, {2, number + 1, ok_status()});
  parts_.client_lost(kClient);
  EXPECT_THAT(source->wait(number).message(), HasSubstr("disconnected while it staged in parts"));
}

TEST_F(Parts, EndEveryWaitWhereTheClientGoes) {
  auto source = parts_.open(kClient, 2, kKey).value();
  const uint64_t number = source->ask({{0, 100, 0}});
  auto waiting = std::async(std::launch::async, [&] { return source->wait(number); });
  auto next = std::async(std::launch::async, [&] { return parts_.open(kClient, 2, kKey).status(); });
  parts_.client_lost(kClient);
  EXPECT_EQ(waiting.get().code(), Code::unavailable);
  EXPECT_EQ(next.get().code(), Code::unavailable);
  EXPECT_EQ(parts_.open(kClient, 2, kKey).status().code(), Code::unavailable);
}

TEST_F(Parts, GiveASlabToOneAfterTheOther) {
  auto first = parts_.open(kClient, 2, kKey).value();
  EXPECT_OK(parts_.open(kClient, 3, kKey).status());  // another slab
  auto next = std::async(std::launch::async, [&] { return parts_.open(kClient, 2, kKey).status(); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  first.reset();
  EXPECT_OK(next.get());
}

TEST_F(Parts, EndWhereTheNodeIsStopped) {
  auto source = parts_.open(kClient, 2, kKey).value();
  const uint64_t number = source->ask({{0, 100, 0}});
  parts_.close();
  EXPECT_THAT(source->wait(number).message(), HasSubstr("the node was stopped"));
}

TEST(PartsOfAStoppedTrainer, AreNotAwaitedForEver) {
  StagedParts parts([](ClientId, const std::shared_ptr<const local::LocalMessage>&) {},
                    std::chrono::milliseconds(1));
  parts.client_attached(kClient);
  auto source = parts.open(kClient, 2, kKey).value();
  EXPECT_EQ(source->wait(source->ask({{0, 100, 0}})).code(), Code::deadline_exceeded);
}

}  // namespace
}  // namespace shoal::actors
