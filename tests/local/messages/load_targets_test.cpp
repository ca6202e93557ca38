#include "local/messages/load_targets.h"

#include <gtest/gtest.h>

namespace shoal::local {
namespace {

std::vector<LoadTarget> some_targets() {
  using Kind = LayoutEntry::Kind;
  return {{"layers.0.attention.weight", Kind::tensor, DType::bf16, {8, 6}, {Box{{0, 0}, {8, 6}}}},
          {"parts", Kind::tensor, DType::f32, {8, 6}, {Box{{0, 0}, {2, 6}}, Box{{4, 1}, {2, 3}}}},
          {"nothing", Kind::tensor, DType::f32, {8, 6}, {}},
          {"scalar", Kind::tensor, DType::i64, {}, {Box{}}},
          {"o", Kind::object, DType::u8, {}, {}}};
}

TEST(LoadTargets, AreReadAsTheyWereAdded) {
  LoadTargets targets;
  EXPECT_TRUE(targets.empty());
  for (const LoadTarget& target : some_targets()) targets.push_back(target);
  ASSERT_EQ(targets.size(), some_targets().size());
  LoadTarget read;  // what the one before left there is overwritten
  for (size_t i = 0; i < targets.size(); ++i) {
    targets.read(i, read);
    EXPECT_EQ(read, some_targets()[i]);
    EXPECT_EQ(targets[i], read);
    EXPECT_EQ(targets.fqn(i), read.fqn);
    EXPECT_EQ(targets.kind(i), read.kind);
  }
}

TEST(LoadTargets, AreSharedByCopiesUntilOneOfThemChanges) {
  LoadTargets targets;
  targets.push_back(some_targets()[0]);
  LoadTargets copy = targets;
  EXPECT_EQ(copy.identity(), targets.identity());
  copy.push_back(some_targets()[1]);
  EXPECT_NE(copy.identity(), targets.identity());
  EXPECT_EQ(targets.size(), 1u);
  ASSERT_EQ(copy.size(), 2u);
  EXPECT_EQ(copy[0], some_targets()[0]);
}

}  // namespace
}  // namespace shoal::local
