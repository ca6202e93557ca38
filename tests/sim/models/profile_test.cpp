#include "sim/models/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

const std::string kProfiles = std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles";

TEST(FindProfile, ListsTheBuiltInProfilesIfThereIsNone) {
  EXPECT_THAT(find_profile("tape", {kProfiles}).status().message(),
              HasSubstr("no profile 'tape'; built-in profiles are lustre, nvme, "));
}

// A program that was copied away from its share/ folder.
TEST(FindProfile, NamesTheFolderInWhichNoProfileIs) {
  EXPECT_THAT(find_profile("nvme", {"/nowhere/share"}).status().message(),
              HasSubstr("the built-in profiles are not in /nowhere/share, so give the path of a .toml file"));
}

TEST(FindProfile, NamesTheOneThatWasMeant) {
  EXPECT_THAT(find_profile("nvm", {kProfiles}).status().message(), HasSubstr("did you mean 'nvme'?"));
}

TEST(AProfile, IsReadBackWithAllOfItsNumbers) {
  for (const std::string& name : list_profiles({kProfiles})) {
    const auto profile = find_profile(name, {kProfiles});
    ASSERT_TRUE(profile.ok()) << profile.status().to_string();
    const auto again = parse_profile(profile_text(*profile), "again.toml");
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(profile_text(*again), profile_text(*profile));
    EXPECT_EQ(again->numbers.size(), profile->numbers.size());
    EXPECT_EQ(again->storage.is_objects, profile->storage.is_objects);
  }
}

constexpr const char* kFastSync =
    "extends = \"nvme\"\n[storage]\nsync_ns = { value = 77, kind = \"assumed\", source = \"a guess\" }\n";

TEST(AProfile, StatesOnlyWhatDiffersFromOneThatItExtends) {
  const auto base = find_profile("nvme", {kProfiles});
  const auto profile = parse_profile(kFastSync, "fast.toml", {kProfiles});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile->name, "fast");
  EXPECT_EQ(profile->storage.sync_ns, 77);
  EXPECT_EQ(profile->storage.total_bytes_per_s, base->storage.total_bytes_per_s);
  EXPECT_EQ(profile->network.latency_ns, base->network.latency_ns);
  EXPECT_EQ(profile->numbers.size(), base->numbers.size());
  EXPECT_THAT(profile_text(*profile), HasSubstr("sync_ns = { value = 77, kind = \"assumed\", source = "));
}

TEST(AProfile, ExtendsAFileBesideIt) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/fast.toml") << kFastSync;
  std::ofstream(folder.path() + "/faster.toml") << "extends = \"fast.toml\"\nname = \"faster\"\n";
  const auto profile = find_profile(folder.path() + "/faster.toml", {kProfiles});
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  EXPECT_EQ(profile->storage.sync_ns, 77);
  std::ofstream(folder.path() + "/ring.toml") << "extends = \"ring.toml\"\n";
  EXPECT_THAT(find_profile(folder.path() + "/ring.toml", {kProfiles}).status().message(),
              HasSubstr("at most 8 profiles may extend one another"));
}

TEST(AProfile, ThatExtendsAnotherIsRefusedByLineAndReason) {
  const auto refusal = [](const std::string& text) {
    return parse_profile(text, "p.toml", {kProfiles}).status().message();
  };
  EXPECT_THAT(refusal("extends = \"nvm\"\n"), HasSubstr("p.toml:1: extends: no profile 'nvm': did you mean"));
  EXPECT_THAT(refusal("extends = \"nvme\"\n[storage]\nsink_ns = 5\n"),
              HasSubstr("p.toml:3: 'sink_ns' is not known here: did you mean 'sync_ns'?"));
  EXPECT_THAT(
      refusal("extends = \"nvme\"\n[items]\nkept = { value = 1, kind = \"assumed\", source = \"x\" }\n"),
      HasSubstr("items.local_ns is missing"));
}

TEST(AProfile, TakesOtherValuesForItsNumbers) {
  const auto base = find_profile("nvme", {kProfiles});
  const auto set = with_numbers(*base, {{"storage.sync_ns", 5}, {"storage.prefix_split_after_s", 9}});
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ(set->storage.sync_ns, 5);
  EXPECT_EQ(set->storage.prefix_split_after_s, 9u);  // which the file lacks
  EXPECT_TRUE(parse_profile(profile_text(*set), "again.toml").ok());
  EXPECT_THAT(with_numbers(*base, {{"items.kept", 1}}).status().message(), HasSubstr("no table [items]"));
  EXPECT_THAT(with_numbers(*base, {{"storage.sync_ns", -1}}).status().message(),
              HasSubstr("storage.sync_ns = -1: it must lie between 0 and"));
  EXPECT_THAT(check_number("total_byte_per_s", 1).message(),
              HasSubstr("did you mean 'storage.total_bytes_per_s'?"));
}

}  // namespace
}  // namespace shoal::sim
