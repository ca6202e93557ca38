// The tables of states of the Loader and the Planner.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "actors/loader/load.h"
#include "actors/loader/round.h"
#include "actors/loader/sharing/chunk_state.h"
#include "actors/planner/joining.h"
#include "tests/base/state_tables.h"

namespace shoal::actors {
namespace {

TEST(TheTablesOfTheLoader, ReachEveryState) {
  EXPECT_TRUE(base::reaches_all(kLoadTransitions, std::vector{LoadState::opening}));
  EXPECT_TRUE(base::reaches_all(kRoundTransitions, std::vector{RoundState::gathering}));
  EXPECT_TRUE(base::reaches_all(kJoiningTransitions, std::vector{JoiningState::idle}));
  EXPECT_TRUE(base::reaches_all(kChunkTransitions, std::vector{ChunkState::waiting}));
  EXPECT_TRUE(base::reaches_all(kTrialTransitions, std::vector{TrialState::trying}));
}

// Otherwise its users and peers would wait for ever.
TEST(AChunk, EndsOnlyInTheStateInWhichNobodyWaitsForIt) {
  for (const auto& row : kChunkTransitions)
    EXPECT_NE(row.from, ChunkState::gone) << base::name_of_enumerator(row.on);
  for (const auto& row : kChunkTransitions) {
    if (row.to == ChunkState::gone) continue;
    EXPECT_TRUE(std::any_of(kChunkTransitions.begin(), kChunkTransitions.end(), [&](const auto& next) {
      return next.from == row.to;
    })) << base::name_of_enumerator(row.to);
  }
}

TEST(AStorageTrial, MayBeGivenUpAtAnyTime) {
  for (const auto& row : kTrialTransitions) {
    EXPECT_TRUE(TrialMachine(row.from).may(TrialTrigger::given_up)) << base::name_of_enumerator(row.from);
  }
}

TEST(ALoad, MayFailInEveryStateBeforeItsEnd) {
  for (const auto& row : kLoadTransitions) {
    if (row.from == LoadState::failing) continue;
    EXPECT_TRUE(LoadMachine(row.from).may(LoadTrigger::failed)) << base::name_of_enumerator(row.from);
  }
}

// opening and planning last for no event.
TEST(ALoad, LosesItsClientInEveryStateThatLasts) {
  for (const auto& row : kLoadTransitions) {
    if (row.from == LoadState::opening || row.from == LoadState::planning) continue;
    EXPECT_TRUE(LoadMachine(row.from).may(LoadTrigger::client_left)) << base::name_of_enumerator(row.from);
  }
}

TEST(ALoad, EndsInNoStateThatGoesOn) {
  for (LoadState end : {LoadState::done, LoadState::failed, LoadState::left}) {
    for (const auto& row : kLoadTransitions) EXPECT_NE(row.from, end) << base::name_of_enumerator(row.on);
  }
}

// The client receives Found with its checkpoint, or with the error, and LoadDone only after it.
TEST(ALoad, IsFoundOnceItsManifestIsRead) {
  LoadMachine::Counts counts;
  for (const auto& row : kLoadTransitions) {
    if (row.on != LoadTrigger::manifest_encoded && row.on != LoadTrigger::manifest_known) continue;
    Load load(1, {}, 0, counts);
    load.on(LoadTrigger::chooses);
    load.on(LoadTrigger::chosen);
    load.on(LoadTrigger::pinned);
    EXPECT_FALSE(load.is_found());
    if (row.from == LoadState::decoding) load.on(LoadTrigger::manifest_encoded);
    load.on(row.on);
    EXPECT_TRUE(load.is_found());
  }
}

}  // namespace
}  // namespace shoal::actors
