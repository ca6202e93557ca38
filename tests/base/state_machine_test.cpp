#include <gtest/gtest.h>

#include "base/state_machine.h"

namespace shoal::base {
namespace {

enum class DoorState : uint8_t { open, shut, locked };
enum class DoorTrigger : uint8_t { pushed, pulled, key_turned };

constexpr std::array<Transition<DoorState, DoorTrigger>, 4> kDoorTransitions{{
    {DoorState::open, DoorTrigger::pushed, DoorState::shut},
    {DoorState::shut, DoorTrigger::pulled, DoorState::open},
    {DoorState::shut, DoorTrigger::key_turned, DoorState::locked},
    {DoorState::locked, DoorTrigger::key_turned, DoorState::shut},
}};
using Door = StateMachine<kDoorTransitions>;

TEST(EnumeratorNames, AreThoseOfTheDefinition) {
  static_assert(name_of_enumerator(DoorTrigger::key_turned) == "key_turned");
  static_assert(name_of_enumerator(DoorState::locked) == "locked");
  static_assert(enumerator_name<static_cast<DoorState>(3)>().empty(), "it has three enumerators");
}

TEST(StateMachine, FollowsItsTable) {
  Door::Counts counts;
  Door door(DoorState::open);
  door.on(DoorTrigger::pushed, counts);
  EXPECT_TRUE(door.is(DoorState::shut));
  door.on(DoorTrigger::key_turned, counts);
  EXPECT_TRUE(door.is_one_of(DoorState::open, DoorState::locked));
  EXPECT_FALSE(door.is_one_of(DoorState::open, DoorState::shut));
}

TEST(StateMachine, KnowsWhichTriggersItsStateAllows) {
  const Door door(DoorState::locked);
  EXPECT_TRUE(door.may(DoorTrigger::key_turned));
  EXPECT_FALSE(door.may(DoorTrigger::pulled));
}

TEST(StateMachineDeathTest, AbortsOnATriggerThatTheTableDoesNotList) {
  Door::Counts counts;
  Door door(DoorState::locked);
  EXPECT_DEATH(door.on(DoorTrigger::pulled, counts), "");
}

TEST(StateMachine, CountsTheRowsThatAllMachinesTook) {
  Door::Counts counts;
  Door one(DoorState::open), other(DoorState::open);
  one.on(DoorTrigger::pushed, counts);
  other.on(DoorTrigger::pushed, counts);
  other.on(DoorTrigger::pulled, counts);
  const auto list = counts.list();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].count, 2u);
  EXPECT_EQ(list[1].count, 1u);
  EXPECT_EQ(list[2].count, 0u);
  EXPECT_EQ(list[0].from, "open");
  EXPECT_EQ(list[0].on, "pushed");
  EXPECT_EQ(list[0].to, "shut");
}

TEST(StateMachine, FindsATableThatContradictsItself) {
  constexpr std::array<Transition<DoorState, DoorTrigger>, 2> twice{{
      {DoorState::open, DoorTrigger::pushed, DoorState::shut},
      {DoorState::open, DoorTrigger::pushed, DoorState::locked},
  }};
  EXPECT_FALSE(is_deterministic(twice));
  EXPECT_TRUE(is_deterministic(kDoorTransitions));
}

}  // namespace
}  // namespace shoal::base
