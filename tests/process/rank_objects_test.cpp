// Per-rank objects through clients, nodes and files: one layout for all ranks; any rank may load any object
// by its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

TEST(RankObjects, OfOneLayoutAreLoadedByTheirNamesOnOtherRanks) {
  Scratch scratch;
  {
    NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=4"});
    ASSERT_NE(node.address(), "");
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (Rank rank = 0; rank < 4; ++rank)
      trainers.push_back(std::make_unique<Trainer>(scratch, "a", rank, 4));
    std::vector<SaveHandle> saves;
    for (auto& trainer : trainers) saves.push_back(trainer->save(5).value());
    for (SaveHandle& save : saves)
      ASSERT_TRUE(save.wait_committed(kPatience).ok()) << save.error().to_string();
    auto decision = decision_of(scratch.root(), saves[0].key());
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->manifest().world->layouts.size(), 1u);
    std::vector<std::string> names;
    const Metadata metadata = saves[0].wait_committed(kPatience).value();
    for (const auto& value : metadata.state_dict_metadata) names.push_back(value.fqn);
    EXPECT_THAT(names, ::testing::ElementsAre("b", "rng@rank0", "rng@rank1", "rng@rank2", "rng@rank3", "w"));
  }
  NodeChild node(scratch.host("b"), {"root=" + scratch.root(), "job=job-2", "world=2"});
  ASSERT_NE(node.address(), "");
  Trainer first(scratch, "b", 0, 2, "job-2"), second(scratch, "b", 1, 2, "job-2");
  ASSERT_TRUE(first.opened.ok() && second.opened.ok());
  std::string third, absent = "untouched";
  StateDict both = second.state, missing = second.state;
  both.add_object("rng@rank3", &third, Mesh::single(1));
  missing.add_object("rng@rank4", &absent, Mesh::single(1));
  auto mine = first.checkpointer().load(first.state), more = second.checkpointer().load(both);
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  ASSERT_TRUE(more.ok()) << more.status().to_string();
  EXPECT_TRUE(first.holds(5) && second.holds(5));
  EXPECT_EQ(third, "rng of 3 at 5");
  Status lacks = second.checkpointer().load(missing, {.step = 5}).status();
  EXPECT_THAT(lacks.message(), ::testing::HasSubstr("missing 'rng@rank4'"));
  EXPECT_THAT(second.checkpointer().load_report().missing, ::testing::ElementsAre("rng@rank4"));
  auto partly = second.checkpointer().load(
      missing, {.step = 5, .policies = {KeyPolicy::strict, {{"rng", KeyPolicy::allow_missing}}}});
  ASSERT_TRUE(partly.ok()) << partly.status().to_string();
  EXPECT_THAT(partly->report.missing, ::testing::ElementsAre("rng@rank4"));
  EXPECT_THAT(partly->report.unexpected, ::testing::IsEmpty());  // not those of ranks 0, 2 and 3
  EXPECT_EQ(absent, "untouched");
}

}  // namespace
}  // namespace shoal::testing
