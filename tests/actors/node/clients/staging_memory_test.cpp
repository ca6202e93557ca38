// How a node answers its clients' requests for memory, with host figures that the test provides.
#include "actors/node/clients/staging_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StagingOfANode : public ::testing::Test {
 protected:
  static StagingLimits two_ranks() {
    StagingLimits limits;
    limits.ranks = 2;
    return limits;
  }
  void receive(ClientId client, local::LocalMessage message) { memory_.from_client(now_, client, message); }
  void attach_both() {
    receive(0, local::Attach{});
    receive(1, local::Attach{});
  }
  static local::StagingRequest wanted(uint64_t bytes) { return {bytes, 1, UINT64_MAX, ""}; }
  void make(ClientId client, uint64_t bytes) {
    free_bytes_ -= bytes;
    receive(client, local::Slab{0, bytes});
  }

  TimeNs now_ = kSecond;
  uint64_t free_bytes_ = 1000 * kMiB;
  int reads_ = 0;
  std::vector<std::pair<ClientId, std::shared_ptr<const local::LocalMessage>>> sent_;
  std::vector<std::string> lines_;
  StagingMemory memory_{two_ranks(),
                        {[this] {
                           ++reads_;
                           return HostMemory{free_bytes_, "the test says so"};
                         },
                         [this](ClientId client, std::shared_ptr<const local::LocalMessage> message) {
                           sent_.emplace_back(client, std::move(message));
                         },
                         [this](const std::string& line) { lines_.push_back(line); }}};
};

TEST_F(StagingOfANode, AnswersWhoAsksAndReadsTheHostsMemoryForNobodyElse) {
  attach_both();
  receive(0, local::Staged{});
  receive(0, local::Detach{});
  memory_.tick(now_ += 10 * kSecond);
  EXPECT_EQ(reads_, 0);
  receive(0, wanted(100 * kMiB));
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_EQ(std::get<local::StagingGranted>(*sent_[0].second).slab_bytes, 100 * kMiB);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(StagingOfANode, AnswersWhenTheTimeForTheOthersIsOver) {
  attach_both();
  receive(0, wanted(800 * kMiB));
  memory_.tick(now_ += kSecond);
  EXPECT_THAT(sent_, IsEmpty());
  memory_.tick(now_ += 3 * kSecond);
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_TRUE(std::get<local::StagingGranted>(*sent_[0].second).in_parts);
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("staged in parts"));
  EXPECT_THAT(lines_[0], HasSubstr("the test says so"));
}

TEST_F(StagingOfANode, AnswersTheOthersWhereOneGoes) {
  attach_both();
  receive(0, wanted(600 * kMiB));
  make(0, 0);
  receive(1, wanted(600 * kMiB));
  ASSERT_THAT(sent_, SizeIs(2)) << "500 MiB each, in parts";
  sent_.clear();
  make(0, 256 * kMiB);
  make(1, 256 * kMiB);
  receive(1, wanted(600 * kMiB));
  EXPECT_THAT(sent_, SizeIs(1));
  memory_.client_lost(now_, 0);
  memory_.forget_client(0);
  free_bytes_ += 256 * kMiB;
  sent_.clear();
  receive(1, wanted(200 * kMiB));
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_FALSE(std::get<local::StagingGranted>(*sent_[0].second).in_parts);
}

TEST_F(StagingOfANode, AsksForIdleSlabsWhereTheHostIsShort) {
  attach_both();
  receive(0, wanted(100 * kMiB));
  make(0, 100 * kMiB);
  sent_.clear();
  memory_.tick(now_ += 20 * kSecond);
  EXPECT_THAT(sent_, IsEmpty());
  free_bytes_ = 10 * kMiB;
  memory_.to_client(now_, 0, local::SlabFree{});
  memory_.tick(now_ += 5 * kSecond);
  EXPECT_THAT(sent_, IsEmpty()) << "it saved 5 s ago";
  memory_.tick(now_ += 6 * kSecond);
  ASSERT_THAT(sent_, SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<local::GiveBack>(*sent_[0].second));
  const int reads = reads_;
  receive(0, local::StagingKept{0, {}, 2});
  memory_.tick(now_ += 20 * kSecond);
  EXPECT_THAT(sent_, SizeIs(1));
  EXPECT_EQ(reads_, reads) << "nobody holds anything";
}

TEST(MemoryOfThisHost, KeepsAReserveButNotOfTheLastSixtyFourMebibytes) {
  const std::string path = ::testing::TempDir() + "/meminfo-" + std::to_string(::getpid());
  const auto left = [&](uint64_t available) {
    std::ofstream(path) << "MemAvailable: " << available / 1024 << " kB\n";
    return memory_of_this_host(0, base::MemoryFiles{"/nonexistent", "/nonexistent", path}).free_bytes;
  };
  EXPECT_EQ(left(3200 * kMiB), 3100 * kMiB);
  EXPECT_EQ(left(65 * kMiB), 64 * kMiB);
  EXPECT_EQ(left(64 * kMiB), 64 * kMiB);
  EXPECT_EQ(left(10 * kMiB), 10 * kMiB);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace shoal::actors
