// ItemModel: plans that are lists of items cost what a closed form gives, each counted once. Only a profile
// with item costs is charged.
#include "sim/models/item_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/basics/toml_tree.h"
#include "sim/simulation.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

Profile with(Profile profile, std::string_view key, int64_t value) {
  auto changed = with_number(std::move(profile), key, value);
  EXPECT_TRUE(changed.ok()) << changed.status().to_string();
  return *changed;
}

Scenario of_ranks(uint32_t ranks) {
  Scenario scenario;
  scenario.model = "llama3-8b";
  scenario.ranks = ranks;
  scenario.mesh = "dp_replicate=2";
  scenario.mode = SaveMode::collective;
  scenario.interval_ms = 1'000'000;
  return scenario;
}

double in_seconds(actors::TimeNs time) {
  return static_cast<double>(time) / 1e9;
}

// 291 parameters of four tensors each, on every rank; the two copies share the writing.
TEST(ItemModel, TakesWhatAFlatGatherOfListsTakes) {
  for (uint32_t ranks : {64, 256}) {
    const Profile profile = profile_named("pytorch-dcp");
    const auto report = simulate(of_ranks(ranks), profile);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const ItemCosts& costs = profile.items;
    const double all = 4.0 * 291 * ranks, left = all / 2;
    const double at_coordinator = all * static_cast<double>(costs.decode_ns + costs.dedupe_ns) +
                                  left * static_cast<double>(costs.plan_ns + costs.encode_ns);
    const double at_a_rank =
        4.0 * 291 * static_cast<double>(costs.local_ns + costs.encode_ns + costs.decode_ns / 2);
    for (const SaveReport& save : report->saves) {
      EXPECT_NEAR(in_seconds(save.plan_received.greatest), (at_coordinator + at_a_rank) / 1e9,
                  0.01 * at_coordinator / 1e9);
      EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
    }
    // The metadata: made once, read by each.
    const SaveReport& save = report->saves.back();
    const double committing =
        left * static_cast<double>(costs.result_decode_ns + costs.record_ns + costs.record_decode_ns) / 1e9;
    EXPECT_GT(in_seconds(save.committed.greatest - save.plan_received.greatest), committing);
    EXPECT_GT(save.costs.storage.bytes_written, static_cast<uint64_t>(left) * costs.record_bytes);
  }
}

TEST(ItemModel, LeavesOutWhatIsKept) {
  auto notified = [](int64_t kept) {
    const auto report = simulate(of_ranks(64), with(profile_named("pytorch-dcp"), "items.kept", kept));
    EXPECT_TRUE(report.ok());
    return std::pair(report->saves[0].plan_received.greatest, report->saves[1].plan_received.greatest);
  };
  const auto [first, again] = notified(0);
  const auto [first_sent, planned_again] = notified(1);
  const auto [first_kept, kept] = notified(2);
  EXPECT_EQ(first, first_sent);
  EXPECT_EQ(first, first_kept);
  EXPECT_NEAR(in_seconds(again), in_seconds(first), 0.01 * in_seconds(first));
  const ItemCosts costs = profile_named("pytorch-dcp").items;
  const double planning =
      4.0 * 291 * 64 * (static_cast<double>(costs.dedupe_ns) + static_cast<double>(costs.plan_ns) / 2);
  EXPECT_NEAR(in_seconds(planned_again - kept), planning / 1e9, 0.01 * planning / 1e9);
  EXPECT_LT(kept, first / 20);
}

TEST(ItemModel, CostsNothingInOtherModesAndProfiles) {
  Scenario scenario = of_ranks(64);
  scenario.mode = SaveMode::collective_free;
  auto costly = simulate(scenario, profile_named("pytorch-dcp"));
  auto without = simulate(scenario, with(profile_named("pytorch-dcp"), "items.local_ns", 0));
  ASSERT_TRUE(costly.ok() && without.ok());
  EXPECT_EQ(costly->saves[0].blocked.greatest, without->saves[0].blocked.greatest);
  EXPECT_FALSE(profile_named("lustre").items.is_modelled());
}

TEST(Profiles, OfItemsAreRefusedByFileLineAndReason) {
  const std::string path = std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles/pytorch-dcp.toml";
  const std::string text = *read_text(path);
  auto refusal = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    auto profile = parse_profile(changed, "p.toml");
    EXPECT_FALSE(profile.ok());
    return profile.status().message();
  };
  EXPECT_THAT(
      refusal("dedupe_ns", "dedup_ns"),
      HasSubstr("'dedup_ns' is not known here: did you mean 'dedupe_ns'? The known keys are local_ns"));
  EXPECT_THAT(refusal("kept = { value = 0", "kept = { value = 3"), HasSubstr("it must lie between 0 and 2"));
  EXPECT_THAT(refusal("item_bytes = { value = 181", "item_bytes = { value = -1"), HasSubstr("value = -1"));
  EXPECT_THAT(refusal("hosts_per_rack = { value = 384", "hosts_per_rack = { value = 999999999"),
              HasSubstr("value = 999999999: it must lie between 0 and 100000"));
  EXPECT_THAT(refusal("plan_ns = { value = 24_500, kind = \"measured\", source = \"dcp",
                      "plan_ns = { value = 24_500, kind = \"measured\", sauce = \"dcp"),
              HasSubstr("'sauce' is not known here"));
  EXPECT_THAT(with_number(profile_named("nvme"), "items.kept", 1).status().message(),
              HasSubstr("profile nvme has no table [items], so items.kept cannot be set alone"));
  EXPECT_THAT(with_number(profile_named("nvme"), "cpu.event_ns", -1).status().message(),
              HasSubstr("cpu.event_ns = -1"));
}

}  // namespace
}  // namespace shoal::sim
