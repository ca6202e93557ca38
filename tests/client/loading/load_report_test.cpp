#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/loading/load_report.h"

namespace shoal::client {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;

TensorMetadata tensor(std::string fqn, Dims shape = {4}, DType dtype = DType::f32) {
  return {std::move(fqn), LayoutEntry::Kind::tensor, dtype, std::move(shape)};
}
TensorMetadata object(std::string fqn) {
  return {std::move(fqn), LayoutEntry::Kind::object, DType::u8, {}};
}

std::vector<WantedKey> wanting(const std::vector<TensorMetadata>& values) {
  std::vector<WantedKey> keys;
  for (const TensorMetadata& value : values) keys.push_back({value, value.fqn});
  return keys;
}

TEST(KeyPolicies, GoByTheLongestSubtreeAtADot) {
  KeyPolicies policies;
  EXPECT_EQ(policies.of("optimizer.state"), KeyPolicy::allow_unexpected);
  policies.root = KeyPolicy::strict;
  policies.subtrees = {{"optimizer", KeyPolicy::allow_missing},
                       {"optimizer.state.lazy", KeyPolicy::lenient},
                       {"rng", KeyPolicy::skip}};
  EXPECT_EQ(policies.of("optimizer"), KeyPolicy::allow_missing);
  EXPECT_EQ(policies.of("optimizer.state"), KeyPolicy::allow_missing);
  EXPECT_EQ(policies.of("optimizer.state.lazy.exp_avg"), KeyPolicy::lenient);
  EXPECT_EQ(policies.of("optimizer.state.lazyness"), KeyPolicy::allow_missing);
  EXPECT_EQ(policies.of("optimizers"), KeyPolicy::strict);
  EXPECT_EQ(policies.of("model.optimizer"), KeyPolicy::strict);
  EXPECT_EQ(policies.of("rng@rank7"), KeyPolicy::skip);
  EXPECT_EQ(policies.of("rng@rank"), KeyPolicy::strict);  // no rank's own
}

TEST(KeyPolicies, OfNumbersThatAreNoneAndOfSubtreesThatNoKeyIsInAreRefusedByName) {
  const auto message = [](const std::string& subtree, KeyPolicy policy = KeyPolicy::skip) {
    return validate_policies({KeyPolicy::strict, {{"good", KeyPolicy::skip}, {subtree, policy}}}).message();
  };
  EXPECT_EQ(message("m"), "");
  EXPECT_EQ(message("m.layers.0"), "");
  EXPECT_EQ(message("m", static_cast<KeyPolicy>(5)), "the policy of 'm' has the unknown value 5");
  EXPECT_NE(message(""), "");
  EXPECT_NE(message("m\n"), "");
  EXPECT_EQ(message("m.."),
            "the subtree 'm..' of the policies has no keys: use 'm' for that key and all keys below it");
  EXPECT_EQ(message("rng@rank7"),
            "the subtree 'rng@rank7' of the policies has no keys: use 'rng' for a per-rank value");
  EXPECT_NE(validate_policies({static_cast<KeyPolicy>(255), {}}).message(), "");
}

TEST(CompareKeys, ListsEveryDifferenceAndNamesThoseThatAreNotAllowed) {
  const std::vector<TensorMetadata> stored = {tensor("a"), tensor("b", {5}), tensor("c", {4}, DType::bf16),
                                              object("d"), tensor("x.1"),    tensor("y")};
  KeyPolicies policies;
  policies.subtrees = {{"x", KeyPolicy::strict}, {"m.lazy", KeyPolicy::allow_missing}};
  const auto found = compare_keys(stored,
                                  wanting({tensor("m.two"), tensor("a"), tensor("b"), tensor("c", {7}),
                                           tensor("d"), tensor("m.lazy.one")}),
                                  policies, 0);
  EXPECT_EQ(found.outcome.code(), Code::key_mismatch);
  EXPECT_EQ(found.outcome.message(),
            "'b' is F32[5] in the checkpoint, and F32[4] in the state; 'c' is BF16[4] in the checkpoint, and "
            "F32[7] in the state; 'd' is an object in the checkpoint, and F32[4] in the state; missing "
            "'m.two'; unexpected 'x.1'");
  EXPECT_THAT(found.report.missing, ElementsAre("m.lazy.one", "m.two"));
  EXPECT_THAT(found.report.unexpected, ElementsAre("x.1", "y"));
  EXPECT_THAT(found.report.shape_mismatches,
              ElementsAre(LoadReport::Difference{tensor("b"), tensor("b", {5})},
                          LoadReport::Difference{tensor("c", {7}), tensor("c", {4}, DType::bf16)}));
  EXPECT_THAT(found.report.mis_typed,
              ElementsAre(LoadReport::Difference{tensor("c", {7}), tensor("c", {4}, DType::bf16)},
                          LoadReport::Difference{tensor("d"), object("d")}));
  EXPECT_THAT(found.readable, ElementsAre(1u));
}

TEST(CompareKeys, EachPolicyAllowsWhatItSays) {
  const std::vector<TensorMetadata> stored = {tensor("s.both"), tensor("s.unexpected")};
  auto outcome = [&](KeyPolicy policy) {
    KeyPolicies policies;
    policies.subtrees["s"] = policy;
    return compare_keys(stored, wanting({tensor("s.both"), tensor("s.missing")}), policies, 0);
  };
  EXPECT_EQ(outcome(KeyPolicy::strict).outcome.message(), "missing 's.missing'; unexpected 's.unexpected'");
  EXPECT_EQ(outcome(KeyPolicy::allow_missing).outcome.message(), "unexpected 's.unexpected'");
  EXPECT_EQ(outcome(KeyPolicy::allow_unexpected).outcome, Status(Code::key_mismatch, "missing 's.missing'"));
  const auto lenient = outcome(KeyPolicy::lenient);
  EXPECT_TRUE(lenient.outcome.ok());
  EXPECT_THAT(lenient.readable, ElementsAre(0u));
  EXPECT_THAT(lenient.report.missing, ElementsAre("s.missing"));
  EXPECT_THAT(lenient.report.unexpected, ElementsAre("s.unexpected"));
  const auto skipped = outcome(KeyPolicy::skip);
  EXPECT_TRUE(skipped.outcome.ok() && skipped.report.empty());
  EXPECT_THAT(skipped.readable, IsEmpty());
}

TEST(CompareKeys, WhatOtherRanksHaveOfTheirOwnIsNotUnexpected) {
  const std::vector<TensorMetadata> stored = {object("loader@rank0"), object("rng@rank0"),
                                              object("rng@rank1"), tensor("w@rank0")};
  KeyPolicies strict{KeyPolicy::strict, {}};
  const auto found = compare_keys(stored, wanting({object("rng@rank1")}), strict, 0);
  EXPECT_THAT(found.report.unexpected, ElementsAre("loader@rank0", "rng@rank0", "w@rank0"));
  EXPECT_THAT(compare_keys(stored, wanting({object("rng@rank1")}), strict, 1).report.unexpected,
              ElementsAre("w@rank0"));  // a tensor is never a per-rank object
}

TEST(CompareKeys, NamesAreBoundedInTheMessageAndNotInTheReport) {
  std::vector<TensorMetadata> wanted, stored;
  for (int i = 0; i < 100'000; ++i) wanted.push_back(tensor(fmt::format("model.layers.{:06}.weight", i)));
  for (int i = 0; i < 100'000; ++i) stored.push_back(tensor(fmt::format("model.layers.{:06}.bias", i)));
  const auto found = compare_keys(stored, wanting(wanted), {}, 0);
  EXPECT_EQ(found.report.missing.size(), 100'000u);
  EXPECT_EQ(found.report.unexpected.size(), 100'000u);
  EXPECT_EQ(found.outcome.code(), Code::key_mismatch);
  EXPECT_THAT(found.outcome.message(), EndsWith("'model.layers.000999.weight'; and 99000 more"));
  for (TensorMetadata& value : wanted) value.fqn += std::string(1000, '.');
  const auto longer = compare_keys(stored, wanting(wanted), {}, 0);
  EXPECT_LE(longer.outcome.message().size(), kMaxReportBytes + 200);
  EXPECT_THAT(longer.outcome.message(), EndsWith(" more"));
}

TEST(CompareKeys, TheCheckpointIsAskedFirstWhereAPolicyMayDropOrRefuseWhatItAloneKnows) {
  EXPECT_FALSE(needs_comparison_first({}));
  EXPECT_FALSE(needs_comparison_first({KeyPolicy::allow_unexpected, {{"a", KeyPolicy::skip}}}));
  EXPECT_TRUE(needs_comparison_first({KeyPolicy::allow_unexpected, {{"a", KeyPolicy::allow_missing}}}));
  EXPECT_TRUE(needs_comparison_first({KeyPolicy::strict, {}}));
}

// Regression: a policy for "optimiser" was silently the policy of nothing.
TEST(CompareKeys, RefusesASubtreeInWhichNeitherSideHasAKey) {
  const std::vector<TensorMetadata> stored = {tensor("model.layers.0.w"), tensor("model.layers.1.w"),
                                              tensor("model.wte"), tensor("optimizer.mu.w"),
                                              object("rng@rank3")};
  const auto message = [&](const std::string& subtree) {
    KeyPolicies policies;
    policies.subtrees = {{subtree, KeyPolicy::skip}};
    const auto found = compare_keys(stored, wanting({tensor("model.wte"), tensor("new.w")}), policies, 0,
                                    {{"dropped.w", "model.layers.0.w"}});
    const std::string text(found.outcome.message());
    if (text.starts_with("neither the state")) {
      EXPECT_EQ(found.outcome.code(), Code::invalid_argument);
    }
    return text.substr(0, text.find(';'));
  };
  const auto no_host_has = [](const std::string& subtree, const std::string& nearest) {
    return fmt::format(
        "neither the state nor the checkpoint has a key in the subtree '{}' of the policies (nearest: {})",
        subtree, nearest);
  };
  for (const char* known : {"model.wte", "model.layers", "optimizer.mu", "optimizer", "rng", "dropped"}) {
    EXPECT_EQ(message(known), "missing 'new.w'") << known;
  }
  EXPECT_EQ(message("new"), "");
  EXPECT_EQ(message("optimiser"), no_host_has("optimiser", "'optimizer'"));
  EXPECT_EQ(message("model.layer"), no_host_has("model.layer", "'model.layers'"));
  EXPECT_EQ(message("layers.1"), no_host_has("layers.1", "'model.layers.1'"));
  EXPECT_EQ(message("model.wte.weight"), no_host_has("model.wte.weight", "'model.wte'"));
}

TEST(CompareKeys, NamesEverySubtreeWithoutAKey) {
  KeyPolicies policies;
  for (int i = 0; i < 30; ++i) policies.subtrees[fmt::format("layer{}", i)] = KeyPolicy::lenient;
  const std::vector<TensorMetadata> stored = {tensor("layer7.w")};
  const auto found = compare_keys(stored, wanting({tensor("layer7.w")}), policies, 0);
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(found.outcome.message().find(fmt::format("'layer{}' of the policies", i)) != std::string::npos,
              i != 7);
  }
}

}  // namespace
}  // namespace shoal::client
