#include "actors/operation_traits.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace shoal::actors {
namespace {

template <size_t... I>
std::vector<Operation> one_of_each(std::index_sequence<I...>) {
  return {Operation(std::in_place_index<I>)...};
}
std::vector<Operation> one_of_each() {
  return one_of_each(std::make_index_sequence<std::variant_size_v<Operation>>());
}

TEST(OperationTraits, GiveEachOperationANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const Operation& each : one_of_each()) names.insert(traits_of(each).name);
  EXPECT_EQ(names.size(), std::variant_size_v<Operation>);
  EXPECT_FALSE(names.contains(""));
  EXPECT_EQ(traits_of(operation::ListAttempts{}).name, "ListAttempts");
}

TEST(OperationTraits, OfWhatCreatesOrCommitsNameAWriter) {
  for (const Operation& each : one_of_each()) {
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
