#include "actors/loader/window_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using WindowId = WindowBudget::WindowId;

WindowBudget::Ask one(ClientId client, uint64_t wanted_mib, uint64_t least_mib = 1) {
  return {{{{client, 0}, wanted_mib * kMiB, least_mib * kMiB}}, 0, 0};
}
WindowBudget::Ask exchange(std::vector<ClientId> clients, uint64_t wanted_mib, uint64_t buffer_mib) {
  WindowBudget::Ask ask;
  for (ClientId client : clients) ask.windows.push_back({{client, 0}, wanted_mib * kMiB, kMiB});
  ask.buffer_wanted = buffer_mib * kMiB;
  ask.buffer_least = 8 * kMiB;
  return ask;
}

TEST(WindowParts, AreFourWholeBlocksEachOrAsManyAsThereAre) {
  EXPECT_EQ(window_parts(16 * kMiB).count, 4u);
  EXPECT_EQ(window_parts(16 * kMiB).bytes, 4 * kMiB);
  EXPECT_EQ(window_parts(7 * kMiB).bytes, kMiB);
  EXPECT_EQ(window_parts(3 * kMiB + 5).count, 3u);
  EXPECT_EQ(window_parts(kMiB).count, 1u);
  EXPECT_EQ(window_parts(kMiB).bytes, kMiB);
}

TEST(WindowBudget, GivesAllThatIsAskedForWhileItIsThere) {
  WindowBudget budget(32 * kMiB);
  const auto first = budget.ask(one(1, 16));
  const auto grant = budget.next();
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->ticket, first);
  EXPECT_THAT(grant->windows, ElementsAre(16 * kMiB));
  EXPECT_EQ(budget.promised(), 16 * kMiB);
  EXPECT_FALSE(budget.next());
}

TEST(WindowBudget, GivesWhatIsLeftAndLetsOthersWaitInLine) {
  WindowBudget budget(20 * kMiB);
  budget.ask(one(1, 16));
  budget.ask(one(2, 16, 4));
  budget.ask(one(3, 16, 4));
  budget.ask(one(4, 1));
  ASSERT_TRUE(budget.next());
  EXPECT_THAT(budget.next()->windows, ElementsAre(4 * kMiB)) << "less than it asked for";
  EXPECT_FALSE(budget.next());
  budget.end_window({2, 0});
  EXPECT_FALSE(budget.next()) << "its pages are there still";
  EXPECT_THAT(budget.to_release(), ElementsAre(WindowId{2, 0}));
  EXPECT_THAT(budget.to_release(), IsEmpty()) << "said once";
  EXPECT_FALSE(budget.next());
  budget.released({2, 0});
  EXPECT_THAT(budget.next()->windows, ElementsAre(4 * kMiB));
  EXPECT_FALSE(budget.next()) << "the fourth, which wants little, is not let past";
  EXPECT_EQ(budget.promised(), 20 * kMiB);
}

TEST(WindowBudget, KeepsThePagesOfAWindowForTheNextLoadOfItsClient) {
  WindowBudget budget(32 * kMiB);
  budget.ask(one(1, 16));
  budget.next();
  budget.end_window({1, 0});
  budget.ask(one(2, 16));
  ASSERT_TRUE(budget.next());
  budget.ask(one(1, 16));
  EXPECT_THAT(budget.next()->windows, ElementsAre(16 * kMiB)) << "what it has counts once";
  EXPECT_THAT(budget.to_release(), IsEmpty());
}

TEST(WindowBudget, ReleasesFirstWhatWasNotUsedForLongest) {
  WindowBudget budget(32 * kMiB);
  for (ClientId client : {1, 2}) {
    budget.ask(one(client, 16));
    budget.next();
  }
  budget.end_window({2, 0});
  budget.end_window({1, 0});
  budget.ask(one(3, 16));
  EXPECT_FALSE(budget.next());
  EXPECT_THAT(budget.to_release(), ElementsAre(WindowId{2, 0}));
  budget.ask(one(2, 16));  // its pages are on their way out
  budget.released({2, 0});
  ASSERT_TRUE(budget.next());
  EXPECT_FALSE(budget.next());
  EXPECT_THAT(budget.to_release(), ElementsAre(WindowId{1, 0}));
  budget.released({1, 0});
  EXPECT_THAT(budget.next()->windows, ElementsAre(16 * kMiB));
}

TEST(WindowBudget, GivesAnExchangeAllItsWindowsAndItsBufferOrNothing) {
  WindowBudget budget(32 * kMiB);
  budget.ask(one(9, 24));
  ASSERT_TRUE(budget.next());
  budget.ask(exchange({1, 2}, 8, 16));
  EXPECT_FALSE(budget.next()) << "8 MiB are there, 10 its least";
  budget.forget_client(9);
  const auto grant = budget.next();
  ASSERT_TRUE(grant);
  EXPECT_THAT(grant->windows, ElementsAre(8 * kMiB, 8 * kMiB));
  EXPECT_EQ(grant->buffer, 16 * kMiB);
}

TEST(WindowBudget, CutsWindowsAndBufferAlikeWhereThereIsLess) {
  WindowBudget budget(32 * kMiB);
  budget.ask(one(9, 12));
  ASSERT_TRUE(budget.next());
  budget.ask(exchange({1, 2}, 9, 24));  // 32 MiB beyond its least, of which 10 are there
  const auto grant = budget.next();
  ASSERT_TRUE(grant);
  EXPECT_THAT(grant->windows, ElementsAre(3 * kMiB, 3 * kMiB));
  EXPECT_EQ(grant->buffer, 13 * kMiB);
  EXPECT_LE(budget.promised(), 32 * kMiB);
}

TEST(WindowBudget, TakesBackOfABufferWhatItsExchangeNeedsNoMore) {
  WindowBudget budget(32 * kMiB);
  const auto ticket = budget.ask(exchange({1}, 8, 24));
  ASSERT_TRUE(budget.next());
  budget.ask(one(2, 8, 4));
  EXPECT_FALSE(budget.next());
  budget.shrink_buffer(ticket, 20 * kMiB);
  EXPECT_THAT(budget.next()->windows, ElementsAre(4 * kMiB));
  budget.shrink_buffer(ticket, 0);
  EXPECT_EQ(budget.promised(), 12 * kMiB);
}

TEST(WindowBudget, WhoWithdrawsIsPassedOver) {
  WindowBudget budget(16 * kMiB);
  budget.ask(one(1, 16));
  ASSERT_TRUE(budget.next());
  const auto second = budget.ask(one(2, 16));
  const auto third = budget.ask(one(3, 16));
  budget.withdraw(second);
  budget.forget_client(1);
  EXPECT_EQ(budget.next()->ticket, third);
  EXPECT_FALSE(budget.has_waiting());
}

TEST(WindowBudget, AnExchangeWhoseWindowsHaveKeptTooMuchGivesThatBackFirst) {
  WindowBudget budget(32 * kMiB);
  for (ClientId client : {1, 2}) {
    budget.ask(one(client, 16));
    budget.next();
    budget.end_window({client, 0});
  }
  budget.ask(exchange({1, 2}, 8, 16));
  EXPECT_FALSE(budget.next());
  for (const WindowId& id : budget.to_release()) budget.released(id);
  EXPECT_TRUE(budget.next());
  EXPECT_LE(budget.promised(), 32 * kMiB);
}

TEST(WindowBudget, KnowsWhatCanNeverBeGiven) {
  WindowBudget budget(16 * kMiB);
  EXPECT_TRUE(budget.fits(exchange({1, 2, 3, 4, 5, 6, 7, 8}, 2, 8)));
  EXPECT_FALSE(budget.fits(exchange({1, 2, 3, 4, 5, 6, 7, 8, 9}, 2, 8)));
}

// Loads and exchanges come and end in any order, for as long as one can be started by what ends.
TEST(WindowBudget, NeverPromisesMoreThanThereIsAndGivesEverybodyATurn) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t total = (16 + random() % 32) * kMiB;
    WindowBudget budget(total);
    std::vector<std::vector<ClientId>> idle;  // who loads together, or alone
    for (ClientId client = 1; client <= 24;) {
      std::vector<ClientId> group(1 + (random() % 3 == 0 ? random() % 5 : 0));
      for (ClientId& member : group) member = client++;
      idle.push_back(std::move(group));
    }
    struct Running {
      std::vector<ClientId> group;
      WindowBudget::Ticket ticket;
    };
    std::map<WindowBudget::Ticket, std::vector<ClientId>> waiting;
    std::vector<Running> running;
    std::deque<WindowId> releasing;
    size_t begun = 0;
    for (size_t i = 0; i < 2000 || !waiting.empty() || !running.empty(); ++i) {
      ASSERT_LT(i, 20'000u) << "seed " << seed << ": somebody waits for ever";
      if (i < 2000 && !idle.empty() && random() % 2 == 0) {
        std::swap(idle[random() % idle.size()], idle.back());
        const std::vector<ClientId> group = std::move(idle.back());
        idle.pop_back();
        const auto ask = group.size() == 1 ? one(group[0], 1 + random() % 16) : exchange(group, 4, 16);
        waiting[budget.ask(ask)] = group;
      } else if (!running.empty() && random() % 2 == 0) {
        std::swap(running[random() % running.size()], running.back());
        for (ClientId client : running.back().group) budget.end_window({client, 0});
        budget.shrink_buffer(running.back().ticket, 0);
        idle.push_back(running.back().group);
        running.pop_back();
      } else if (!releasing.empty()) {
        budget.released(releasing.front());
        releasing.pop_front();
      }
      while (const auto grant = budget.next()) {
        ASSERT_TRUE(waiting.contains(grant->ticket));
        for (uint64_t window : grant->windows) EXPECT_GE(window, kLeastWindowBytes);
        running.push_back({waiting.at(grant->ticket), grant->ticket});
        waiting.erase(grant->ticket);
        ++begun;
      }
      for (const WindowId& id : budget.to_release()) releasing.push_back(id);
      ASSERT_LE(budget.promised(), total) << "seed " << seed;
    }
    EXPECT_GT(begun, 100u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shoal::actors
