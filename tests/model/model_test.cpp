// The rules hold in every state that the models reach within small bounds. Each mutation violates the
// property that its rule protects, and the checker reports a trace to the violation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/model/models.h"

namespace shoal::model {
namespace {

std::vector<NamedModel> models() {
#if defined(SHOAL_MODEL_TINY)
  return all_models(Size::tiny);
#else
  return all_models(Size::small);
#endif
}

std::string as_test_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-'; }, '_');
  return name;
}

std::string notified(const Outcome& outcome) {
  std::string text;
  if (!outcome.violation) return text;
  text = "broken: " + outcome.violation->property + "\n";
  for (const std::string& line : outcome.violation->trace) text += line + "\n";
  return text;
}

class Rules : public ::testing::TestWithParam<NamedModel> {};

TEST_P(Rules, HoldInEveryReachableState) {
  const Outcome outcome = GetParam().check("");
  std::printf("%s: %llu states, %llu transitions, depth %u, %.1f s\n", GetParam().bounds.c_str(),
              static_cast<unsigned long long>(outcome.states),
              static_cast<unsigned long long>(outcome.transitions), outcome.depth, outcome.seconds);
  EXPECT_TRUE(outcome.complete);
  EXPECT_FALSE(outcome.violation) << notified(outcome);
}

INSTANTIATE_TEST_SUITE_P(Of, Rules, ::testing::ValuesIn(models()),
                         [](const auto& each) { return as_test_name(each.param.name); });

struct Case {
  NamedModel model;
  Mutation mutation;
};

// Each mutation once. The decisions models share their mutations, so only the first of them counts.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NamedModel& model : models()) {
    if (model.name.starts_with("decisions") && !all.empty() && all[0].model.name != model.name) continue;
    for (const Mutation& mutation : model.mutations) all.push_back({model, mutation});
  }
  return all;
}

class RuleSwitchedOff : public ::testing::TestWithParam<Case> {};

TEST_P(RuleSwitchedOff, IsCaughtWithATrace) {
  const auto& [model, mutation] = GetParam();
  const Outcome outcome = model.check(mutation.name);
  ASSERT_TRUE(outcome.violation) << mutation.what << ": nothing broke in " << outcome.states << " states";
  std::printf("%s:\n%s", mutation.what.c_str(), notified(outcome).c_str());
  EXPECT_EQ(outcome.violation->property, mutation.violates);
  EXPECT_FALSE(outcome.violation->trace.empty());
}

INSTANTIATE_TEST_SUITE_P(Of, RuleSwitchedOff, ::testing::ValuesIn(cases()), [](const auto& each) {
  return as_test_name(each.param.model.name + "_" + each.param.mutation.name);
});

TEST(Checker, AMutationThatNobodyKnowsChangesNothing) {
  const Outcome rules = rosters_model(3, 1).check(""), other = rosters_model(3, 1).check("no-such-mutation");
  EXPECT_EQ(rules.states, other.states);
  EXPECT_FALSE(other.violation);
}

}  // namespace
}  // namespace shoal::model
