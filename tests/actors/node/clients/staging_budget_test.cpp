// Which ranks of a host may use how much memory for slabs, and when.
#include "actors/node/clients/staging_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGiB = uint64_t{1} << 30;

class Staging : public ::testing::Test {
 protected:
  void set_up(uint32_t ranks, uint64_t free_bytes, uint64_t bytes_max = 0) {
    StagingLimits limits;
    limits.ranks = ranks;
    limits.bytes_max = bytes_max;
    budget_.emplace(limits);
    memory_ = {free_bytes, "the machine has little"};
    for (ClientId client = 0; client < ranks; ++client) attach(client);
  }
  void attach(ClientId client, uint32_t ranks_on_host = 0) {
    local::Attach received;
    received.rank = static_cast<Rank>(client);
    received.ranks_on_host = ranks_on_host;
    budget_->attach(client, received);
  }
  void want(ClientId client, uint64_t bytes, uint32_t slabs = 2) {
    budget_->want(now_, client, {bytes, slabs, UINT64_MAX, "", ++requests_});
    decide();
  }
  void decide() {
    parts_granted_ = refused_ = 0;
    for (StagingBudget::Decision& decision : budget_->decide(now_, memory_)) {
      if (decision.granted) {
        parts_granted_ += decision.granted->in_parts;
        refused_ += !decision.granted->outcome.ok();
      }
      if (!decision.news.empty()) news_.push_back(decision.news);
      if (decision.granted) {
        granted_[decision.client] = *decision.granted;
      } else {
        asked_back_.push_back(decision.client);
      }
    }
  }
  // The rank's memory is there from now on, and the host has so much less.
  void make(ClientId client, uint32_t slab, uint64_t bytes) {
    memory_.free_bytes -= bytes;
    budget_->add_slab(client, {slab, bytes});
    decide();
  }
  void keep_none(ClientId client, uint64_t freed) {
    memory_.free_bytes += freed;
    budget_->keep(client, {0, {}, 2});
    decide();
  }
  void pass(TimeNs time) {
    now_ += time;
    decide();
  }
  local::StagingGranted take(ClientId client) {
    auto found = granted_.find(client);
    if (found == granted_.end()) {
      ADD_FAILURE() << "client " << client << " was granted nothing";
      return {};
    }
    local::StagingGranted granted = std::move(found->second);
    granted_.erase(found);
    return granted;
  }

  std::optional<StagingBudget> budget_;
  HostMemory memory_;
  TimeNs now_ = kSecond;
  std::map<ClientId, local::StagingGranted> granted_;
  std::vector<ClientId> asked_back_;
  std::vector<std::string> news_;
  uint64_t requests_ = 0;
  int parts_granted_ = 0, refused_ = 0;  // by the last decision
};

TEST_F(Staging, GrantsAtOnceWhatIsNoMoreThanAnEqualShare) {
  set_up(2, 20 * kGiB);
  want(0, 5 * kGiB);
  const local::StagingGranted granted = take(0);  // rank 1 has not asked yet
  EXPECT_EQ(granted.slabs, 2u);
  EXPECT_EQ(granted.slab_bytes, 5 * kGiB);
  EXPECT_FALSE(granted.in_parts);
  EXPECT_THAT(news_, IsEmpty());
}

// Two ranks of 4.8 GiB on a machine that has 12 GiB left: each of them would find that its 9.6 GiB fit.
TEST_F(Staging, CountsNoMemoryForTwoRanks) {
  set_up(2, 12 * kGiB);
  const uint64_t save = 48 * kGiB / 10;
  want(0, save);
  EXPECT_THAT(granted_, IsEmpty()) << "the other rank's part is not known yet";
  want(1, save);
  for (ClientId client : {0, 1}) {
    const local::StagingGranted granted = take(client);
    EXPECT_TRUE(granted.outcome.ok());
    EXPECT_EQ(granted.slabs, 1u);
    EXPECT_EQ(granted.slab_bytes, save);
    EXPECT_FALSE(granted.in_parts);
  }
  EXPECT_EQ(news_.size(), 2u);
  EXPECT_THAT(news_.front(), HasSubstr("1 save(s) of 4.80 GiB in flight instead of 2"));
}

TEST_F(Staging, CountsWhatWasGrantedAndIsNotInMemoryYet) {
  set_up(2, 10 * kGiB);
  want(0, 2 * kGiB);
  EXPECT_EQ(take(0).slabs, 2u);
  want(1, 4 * kGiB);
  EXPECT_EQ(take(1).slabs, 1u) << "6 GiB are left, though the host has 10";
  make(0, 0, 2 * kGiB);
  make(0, 1, 2 * kGiB);
  make(1, 0, 4 * kGiB);
  EXPECT_EQ(memory_.free_bytes, 2 * kGiB);
}

TEST_F(Staging, SharesWhatThereIsWhereNotEvenOneSaveFits) {
  set_up(2, 100 * kGiB, 96 * kMiB);
  want(0, 100 * kMiB);
  want(1, 200 * kMiB);
  for (ClientId client : {0, 1}) {
    const local::StagingGranted granted = take(client);
    EXPECT_TRUE(granted.in_parts);
    EXPECT_EQ(granted.slabs, 1u);
    EXPECT_EQ(granted.slab_bytes, 48 * kMiB);
    make(client, 0, 48 * kMiB);
  }
  EXPECT_EQ(news_.size(), 2u);
  // The next save of each rank requests again, waits for no other rank, and is not logged.
  want(0, 100 * kMiB);
  EXPECT_EQ(take(0).slab_bytes, 48 * kMiB);
  want(1, 200 * kMiB);
  EXPECT_EQ(take(1).slab_bytes, 48 * kMiB);
  EXPECT_EQ(news_.size(), 2u);
  EXPECT_THAT(asked_back_, IsEmpty());
}

TEST_F(Staging, StagesOfASmallRankWholeWhereTheOthersStageInParts) {
  set_up(3, 96 * kMiB);
  want(0, kGiB);
  want(1, 4 * kMiB);
  want(2, kGiB);
  EXPECT_FALSE(take(1).in_parts);
  EXPECT_THAT(granted_, IsEmpty()) << "rank 1 is making its slab";
  make(1, 0, 4 * kMiB);
  for (ClientId client : {0, 2}) {
    const local::StagingGranted granted = take(client);
    EXPECT_TRUE(granted.in_parts);
    EXPECT_GE(granted.slab_bytes, 42 * kMiB);
  }
}

TEST_F(Staging, TakesSixtyFourMebibytesForAHostAndNotLess) {
  for (uint32_t ranks : {1u, 2u, 5u, 32u}) {
    set_up(ranks, kLeastStagingBytes);
    for (ClientId client = 0; client < ranks; ++client) want(client, kGiB);
    for (ClientId client = 0; client < ranks; ++client) {
      const local::StagingGranted granted = take(client);
      EXPECT_TRUE(granted.outcome.ok()) << ranks << ": " << granted.outcome.to_string();
      EXPECT_TRUE(granted.in_parts);
      EXPECT_GE(granted.slab_bytes, kLeastPartSlabBytes);
    }
  }
  set_up(1, kLeastStagingBytes - kMiB);
  want(0, kGiB);
  const Status refused = take(0).outcome;
  EXPECT_EQ(refused.code(), Code::no_space);
  EXPECT_THAT(refused.message(), HasSubstr("1.00 GiB of memory"));
  EXPECT_THAT(refused.message(), HasSubstr("at least 64.0 MiB to stage in parts"));
  EXPECT_THAT(refused.message(), HasSubstr("63.0 MiB are left"));
  EXPECT_THAT(refused.message(), HasSubstr("the machine has little"));
}

TEST_F(Staging, RefusesAllRanksWhereNoneHasEnough) {
  set_up(2, 62 * kMiB);
  for (ClientId client : {0, 1}) want(client, 100 * kMiB);
  for (ClientId client : {0, 1}) EXPECT_EQ(take(client).outcome.code(), Code::no_space);
}

// 50 MiB are enough for the small rank, not for a part of the other one beside it.
TEST_F(Staging, RefusesAllWhereOneCannot) {
  set_up(2, 50 * kMiB);
  budget_->want(now_, 0, {kGiB, 1, UINT64_MAX, "", 11});
  budget_->want(now_, 1, {20 * kMiB, 2, UINT64_MAX, "", 12});
  decide();
  const local::StagingGranted large = take(0), small = take(1);
  EXPECT_EQ(large.outcome.code(), Code::no_space);
  EXPECT_EQ(small.outcome.code(), Code::no_space) << "it would stage what cannot be committed";
  EXPECT_THAT(small.outcome.message(), HasSubstr("rank 0 of this host cannot stage its part of the save"));
  EXPECT_THAT(small.outcome.message(), HasSubstr("30.0 MiB are left"));
  EXPECT_EQ(large.number, 11u);
  EXPECT_EQ(small.number, 12u);
}

TEST_F(Staging, RefusesAllWhereTheLimitOfOneProcessIsTooLow) {
  set_up(2, 100 * kMiB);
  budget_->want(now_, 0, {kGiB, 1, kMiB, "memory.max of /job is 1.0 MiB"});
  budget_->want(now_, 1, {kGiB, 1, UINT64_MAX, ""});
  decide();
  EXPECT_THAT(take(0).outcome.message(), HasSubstr("memory.max of /job"));
  const Status other = take(1).outcome;
  EXPECT_THAT(other.message(), HasSubstr("rank 0 of this host"));
  EXPECT_THAT(other.message(), HasSubstr("memory.max of /job"));
}

// If trainers start the node, it does not know the number of ranks of its host, but the launcher tells the
// trainers.
TEST_F(Staging, KnowsRanksThatHaveNotAttached) {
  set_up(0, 200 * kMiB);
  attach(0, 2);
  want(0, 150 * kMiB);
  EXPECT_THAT(granted_, IsEmpty()) << "rank 1 is still to come";
  attach(1, 2);
  want(1, 150 * kMiB);
  for (ClientId client : {0, 1}) EXPECT_EQ(take(client).slab_bytes, 100 * kMiB);
  EXPECT_THAT(asked_back_, IsEmpty());
}

// Nobody knew of rank 1, and rank 0 has all there is.
TEST_F(Staging, AsksAHolderInPartsForMoreThanItsShare) {
  set_up(0, 200 * kMiB);
  attach(0);
  want(0, kGiB);
  EXPECT_EQ(take(0).slab_bytes, 200 * kMiB);
  make(0, 0, 200 * kMiB);
  attach(1);
  want(1, kGiB);
  EXPECT_EQ(asked_back_, std::vector<ClientId>{0});
  EXPECT_THAT(granted_, IsEmpty()) << "not refused: rank 0 gives its slab back when its save is written";
  keep_none(0, 200 * kMiB);
  want(0, kGiB);
  for (ClientId client : {0, 1}) {
    const local::StagingGranted granted = take(client);
    EXPECT_TRUE(granted.in_parts);
    EXPECT_EQ(granted.slab_bytes, 100 * kMiB);
  }
}

// What rank 1 takes of its share is little: the others' parts are larger than an equal share, and stay so.
TEST_F(Staging, LeavesAHolderInPartsAloneWhileTheOthersHaveParts) {
  set_up(3, 96 * kMiB);
  want(1, 4 * kMiB, 1);
  make(1, 0, 4 * kMiB);
  for (int round = 0; round < 3; ++round) {
    for (ClientId client : {0, 2}) want(client, kGiB);
    for (ClientId client : {0, 2}) {
      const uint64_t bytes = take(client).slab_bytes;
      EXPECT_EQ(bytes, 46 * kMiB) << round;
      if (round == 0) make(client, 0, bytes);
    }
  }
  EXPECT_THAT(asked_back_, IsEmpty());
}

TEST_F(Staging, TellsAShortageOnceThoughItsFiguresChange) {
  set_up(1, 96 * kMiB);
  want(0, kGiB);
  EXPECT_EQ(take(0).slab_bytes, 96 * kMiB);
  make(0, 0, 96 * kMiB);
  keep_none(0, 94 * kMiB);
  want(0, kGiB);
  EXPECT_EQ(take(0).slab_bytes, 94 * kMiB);
  EXPECT_EQ(news_.size(), 1u);
  // It has what it wants, and lacks it again.
  memory_.free_bytes = 10 * kGiB;
  want(0, kGiB);
  EXPECT_EQ(take(0).slabs, 2u);
  memory_.free_bytes = 96 * kMiB;
  want(0, kGiB);
  EXPECT_TRUE(take(0).in_parts);
  EXPECT_EQ(news_.size(), 2u);
}

TEST_F(Staging, KeepsTheShareOfARankThatNeverAsks) {
  set_up(2, 200 * kMiB);
  want(0, 150 * kMiB);
  pass(kSecond);
  EXPECT_THAT(granted_, IsEmpty());
  pass(3 * kSecond);
  EXPECT_EQ(take(0).slab_bytes, 100 * kMiB) << "in parts: half of it is rank 1's";
}

TEST_F(Staging, AsksForSlabsBackThatAnotherRankLacks) {
  set_up(0, 200 * kMiB);  // the number of ranks is unknown
  attach(0);
  want(0, 100 * kMiB, 2);
  EXPECT_EQ(take(0).slabs, 2u);
  make(0, 0, 100 * kMiB);
  attach(1);
  want(1, 60 * kMiB);
  EXPECT_EQ(asked_back_, std::vector<ClientId>{0});
  EXPECT_THAT(granted_, IsEmpty());
  keep_none(0, 100 * kMiB);
  pass(4 * kSecond);
  EXPECT_EQ(take(1).slabs, 1u);
  make(1, 0, 60 * kMiB);
  want(0, 100 * kMiB, 2);
  EXPECT_EQ(take(0).slabs, 1u) << "60 and 100 fit into 200";
}

TEST_F(Staging, WaitsForSlabsThatAreAskedBackOnlySoLong) {
  set_up(0, 200 * kMiB);
  attach(0);
  want(0, 180 * kMiB, 1);
  make(0, 0, 180 * kMiB);
  take(0);
  attach(1);
  want(1, 100 * kMiB);
  pass(30 * kSecond);
  EXPECT_THAT(granted_, IsEmpty());
  pass(31 * kSecond);
  EXPECT_EQ(take(1).outcome.code(), Code::no_space);
}

TEST_F(Staging, KeepsWithinTheLimitsOfTheProcess) {
  set_up(1, kGiB);
  budget_->want(now_, 0, {100 * kMiB, 4, 250 * kMiB, "staging_bytes_max is 250 MiB"});
  decide();
  EXPECT_EQ(take(0).slabs, 2u);
  budget_->want(now_, 0, {300 * kMiB, 4, 10 * kMiB, "staging_bytes_max is 10 MiB"});
  decide();
  EXPECT_THAT(take(0).outcome.message(), HasSubstr("staging_bytes_max is 10 MiB"));
}

TEST_F(Staging, CountsTheSlabsOfALostRankUntilTheyAreGone) {
  set_up(1, kGiB, 100 * kMiB);
  want(0, 60 * kMiB, 1);
  make(0, 0, 60 * kMiB);
  take(0);
  budget_->lose(0);
  attach(7);
  want(7, 80 * kMiB, 1);
  pass(4 * kSecond);
  EXPECT_EQ(take(7).outcome.code(), Code::no_space) << "40 MiB are left";
  budget_->forget(0);
  want(7, 80 * kMiB, 1);
  EXPECT_FALSE(take(7).in_parts);
}

TEST_F(Staging, KnowsWhatRanksHadOfAnEarlierNode) {
  set_up(2, 40 * kMiB);
  budget_->add_slab(0, {0, 60 * kMiB});
  budget_->add_slab(0, {2, 16 * kMiB});  // a window of loads
  budget_->keep(0, {90 * kMiB, {0}, 2});
  want(1, 40 * kMiB, 1);
  pass(61 * kSecond);
  EXPECT_TRUE(take(1).outcome.code() == Code::no_space) << "30 of the 40 MiB are rank 0's";
}

TEST_F(Staging, AsksIdleRanksForTheirSlabsWhereTheHostIsShort) {
  set_up(2, 10 * kGiB);
  for (ClientId client : {0, 1}) {
    want(client, kGiB);
    take(client);
    make(client, 0, kGiB);
  }
  pass(60 * kSecond);
  EXPECT_THAT(asked_back_, IsEmpty());
  memory_.free_bytes = 100 * kMiB;
  budget_->use(now_, 1);
  decide();
  EXPECT_EQ(asked_back_, std::vector<ClientId>{0}) << "rank 1 has just saved";
  decide();
  EXPECT_EQ(asked_back_.size(), 1u);
  pass(11 * kSecond);
  EXPECT_EQ(asked_back_, (std::vector<ClientId>{0, 1}));
  for (ClientId client : {0, 1}) keep_none(client, kGiB);
  want(0, kGiB);  // its next save
  pass(4 * kSecond);
  EXPECT_TRUE(take(0).outcome.ok());
}

// Whatever ranks request, allocate, lose and give back: memory held and granted never exceeds what exists,
// and each request is answered. Of requests that are answered together, all are refused or none. If all ranks
// are known and allocate their slabs together, none is refused.
TEST_F(Staging, NeverPromisesMoreThanThereIsAndAnswersEverybody) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto ranks = static_cast<uint32_t>(1 + random() % 6);
    const uint64_t total = (64 + random() % 1000) * kMiB;
    // The node, the launcher, or neither knows the number of ranks. Ranks attach before they request, or
    // early.
    const bool node_knows = random() % 2 == 0, launcher_knows = random() % 2 == 0;
    const bool makes_at_once = random() % 2 == 0;
    set_up(node_knows ? ranks : 0, total, random() % 2 == 0 ? total : 0);
    std::vector<bool> is_attached(ranks, node_knows);
    struct Rank {
      local::StagingGranted granted;
      std::map<uint32_t, uint64_t> slabs;
      bool is_waiting = false;
    };
    std::vector<Rank> all(ranks);
    granted_.clear();
    asked_back_.clear();
    auto held = [&](const Rank& rank) {
      uint64_t bytes = 0;
      for (const auto& [id, of_slab] : rank.slabs) bytes += of_slab;
      return bytes;
    };
    auto take_answers = [&] {
      if (refused_ > 0) {
        ASSERT_EQ(parts_granted_, 0) << "seed " << seed << ": all or none";
        ASSERT_FALSE((node_knows || launcher_knows) && makes_at_once) << "seed " << seed;
      }
      for (auto& [client, granted] : std::exchange(granted_, {})) {
        all[client].is_waiting = false;
        all[client].granted = granted;
      }
    };
    auto make_next = [&](ClientId client) {
      Rank& rank = all[client];
      const auto id = static_cast<uint32_t>(rank.slabs.size());
      if (rank.is_waiting || id >= rank.granted.slabs) return false;
      rank.slabs[id] = rank.granted.slab_bytes;
      make(client, id, rank.granted.slab_bytes);
      take_answers();
      return true;
    };
    auto receive = [&] {
      take_answers();
      for (bool is_more = makes_at_once; is_more;) {
        is_more = false;
        for (ClientId client = 0; client < ranks; ++client) is_more = make_next(client) || is_more;
      }
      for (ClientId client : std::exchange(asked_back_, {})) {
        const uint64_t freed = held(all[client]);
        all[client].slabs.clear();
        all[client].granted = {};
        memory_.free_bytes += freed;
        budget_->keep(client, {0, {}, 3});
        decide();
        take_answers();
      }
      uint64_t promised = 0;
      for (const Rank& rank : all) {
        promised += std::max(held(rank), rank.granted.slab_bytes * rank.granted.slabs);
      }
      ASSERT_LE(promised, total) << "seed " << seed;
    };
    for (int round = 0; round < 60; ++round) {
      const ClientId client = random() % ranks;
      Rank& rank = all[client];
      switch (random() % 4) {
        case 0:
          if (rank.is_waiting) break;
          if (!is_attached[client]) attach(client, launcher_knows ? ranks : 0);
          is_attached[client] = true;
          // What it has is of no use for another save: it goes first.
          memory_.free_bytes += held(rank);
          rank.slabs.clear();
          rank.granted = {};
          budget_->keep(client, {0, {}, 3});
          rank.is_waiting = true;
          want(client, (1 + random() % 600) * kMiB, static_cast<uint32_t>(1 + random() % 3));
          break;
        case 1:
          (void)make_next(client);
          break;
        default:
          pass(static_cast<TimeNs>(random() % 5) * kSecond);
      }
      receive();
    }
    for (int i = 0; i < 3; ++i) {
      pass(61 * kSecond);
      receive();
    }
    for (const Rank& rank : all) EXPECT_FALSE(rank.is_waiting) << "seed " << seed;
  }
}

}  // namespace
}  // namespace shoal::actors
