#include "actors/operation_traits.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "tests/actors/one_of_each.h"

namespace shoal::actors {
namespace {

TEST(OperationTraits, GiveEachOperationANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Operation& each : one_of_each<Operation>()) names.insert(traits_of(each).name);
  EXPECT_EQ(names.size(), std::variant_size_v<Operation>);
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(traits_of(operation::ListAttempts{}).name, "ListAttempts");
}

TEST(OperationTraits, OfWhatCreatesOrCommitsNameAWriter) {
  for (const Operation& each : one_of_each<Operation>()) {
    const OperationTraits traits = traits_of(each);
    EXPECT_FALSE(traits.creates_files && traits.root_use == RootUse::reads) << traits.name;
    if (!traits.may_commit) continue;
    EXPECT_TRUE(traits.creates_files) << traits.name;
    EXPECT_EQ(traits.root_use, RootUse::writes) << traits.name;
    EXPECT_EQ(traits.threads, ThreadClass::duty) << traits.name << ": no decision waits for a shard";
  }
}

TEST(OperationTraits, LetAJobThatOnlyReadsKeepItsOwnLoadChoices) {
  operation::PublishLoadChoice publish;
  EXPECT_EQ(traits_of(publish).root_use, RootUse::writes);
  publish.of = storage::ChoiceOf::reader;
  EXPECT_EQ(traits_of(publish).root_use, RootUse::keeps_what_is_read);
}

}  // namespace
}  // namespace shoal::actors
