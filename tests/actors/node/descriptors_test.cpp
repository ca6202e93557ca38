#include "actors/node/descriptors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Descriptors, GrowByWhatEachPeerAndEachTrainerCosts) {
  DescriptorDemand demand{.listens = true, .peers = 0, .trainers = 8};
  uint64_t rank_local = descriptors_needed(demand);
  demand.peers = 1000;
  EXPECT_EQ(descriptors_needed(demand), rank_local + 1000 * transport::kDescriptorsPerPeer);
  demand = {.listens = true, .peers = 0, .trainers = 9};
  EXPECT_EQ(descriptors_needed(demand), rank_local + kDescriptorsPerTrainer);
  demand = {.listens = false, .peers = 0, .trainers = 8};
  EXPECT_EQ(descriptors_needed(demand), rank_local - kDescriptorsOfListener);
}

TEST(Descriptors, AreForAllOtherHostsAtTheCoordinatorAndForOneElsewhere) {
  const NodeDescriptors coordinator = descriptors_of_node(true, 8, 100, 2048);
  EXPECT_EQ(coordinator.demand.peers, 99u);
  EXPECT_TRUE(coordinator.demand.listens);
  EXPECT_EQ(coordinator.demand.trainers, 8u);
  EXPECT_EQ(coordinator.peers_max, 2048 + kNodesInPassing);
  EXPECT_EQ(descriptors_of_node(true, 8, 100'000, 2048).demand.peers, 2048 + kNodesInPassing);
  const NodeDescriptors other = descriptors_of_node(false, 8, 100, 2048);
  EXPECT_EQ(other.demand.peers, 1u);
  EXPECT_FALSE(other.demand.listens);
}

// Runs in a child process with these limits; returns its output.
std::string stated_with_limits(rlim_t soft, rlim_t hard, const DescriptorDemand& demand, uint64_t peers_max) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    rlimit limit{soft, hard};
    setrlimit(RLIMIT_NOFILE, &limit);
    auto peers = ensure_descriptors(demand, peers_max);
    getrlimit(RLIMIT_NOFILE, &limit);
    std::string message = peers.ok() ? "peers " + std::to_string(*peers) : peers.status().to_string();
    message += "; soft limit " + std::to_string(limit.rlim_cur);
    if (write(ends[1], message.data(), message.size()) < 0) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  char text[1024];
  ssize_t bytes = read(ends[0], text, sizeof text);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return std::string(text, static_cast<size_t>(bytes > 0 ? bytes : 0));
}

TEST(Descriptors, TheSoftLimitIsRaisedToWhatIsNeededAndNoFurther) {
  DescriptorDemand demand{.listens = true, .peers = 10, .trainers = 4};
  std::string needed = std::to_string(descriptors_needed(demand));
  EXPECT_EQ(stated_with_limits(64, 5'000, demand, 10), "peers 10; soft limit " + needed);
  EXPECT_EQ(stated_with_limits(2000, 5'000, demand, 10), "peers 10; soft limit 2000") << "never lowered";
}

TEST(Descriptors, SayHowManyPeersTheHardLimitAllows) {
  DescriptorDemand demand{.listens = true, .peers = 10, .trainers = 4};
  uint64_t hard = descriptors_needed(demand) + 90 * transport::kDescriptorsPerPeer + 1;
  EXPECT_EQ(stated_with_limits(64, hard, demand, 5000), "peers 100; soft limit " + std::to_string(hard));
}

TEST(Descriptors, ThatCannotBeHadAreRefusedWithBothFiguresAndTheRemedy) {
  DescriptorDemand demand{.listens = true, .peers = 1000, .trainers = 8};
  std::string message = stated_with_limits(64, 900, demand, 16384);
  EXPECT_THAT(message,
              HasSubstr("needs " + std::to_string(descriptors_needed(demand)) + " file descriptors"));
  EXPECT_THAT(message, HasSubstr("may have only 900; ulimit -n, or LimitNOFILE="));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(HostCount, TakesHostsToBeAlikeWhereThisOneIsKnown) {
  EXPECT_EQ(HostCount(64, 8).hosts(), 8u);
  EXPECT_EQ(HostCount(65, 8).hosts(), 9u);
  EXPECT_EQ(HostCount(8, 8).hosts(), 1u);
  EXPECT_EQ(HostCount(0, 0).hosts(), 1u);
}

TEST(HostCount, AssumesFewHostsUntilTheyHaveJoined) {
  HostCount count(0, 0);
  EXPECT_TRUE(count.joined("b", 8, 800));
  EXPECT_EQ(count.hosts(), 2u + 3u) << "536 more ranks on hosts of 256, and 256 here";
  for (int i = 0; i < 50; ++i) count.joined("host-" + std::to_string(i), 8, 800);
  EXPECT_EQ(count.hosts(), 52u + 1u);
  EXPECT_FALSE(count.joined("b", 8, 800));
  EXPECT_EQ(count.hosts(), 52u + 1u);
}

TEST(HostCount, LearnsThatOthersAreLarger) {
  HostCount count(101, 1);
  EXPECT_EQ(count.hosts(), 101u);
  count.joined("b", 50, 101);
  EXPECT_EQ(count.hosts(), 3u);
}

}  // namespace
}  // namespace shoal::actors
