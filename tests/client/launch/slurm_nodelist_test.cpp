#include "client/launch/slurm_nodelist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Expected lists are those of `scontrol show hostnames`.
TEST(SlurmNodelist, IsExpandedAsSlurmDoes) {
  EXPECT_THAT(*expand_nodelist("gpu7"), ElementsAre("gpu7"));
  EXPECT_THAT(*expand_nodelist("n[1-3]"), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(*expand_nodelist("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(*expand_nodelist("n[08-09,12,098-100]"),
              ElementsAre("n08", "n09", "n12", "n098", "n099", "n100"));
  EXPECT_THAT(*expand_nodelist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(*expand_nodelist("login-a,n[1,3],rack2-gpu5"),
              ElementsAre("login-a", "n1", "n3", "rack2-gpu5"));
  EXPECT_THAT(*expand_nodelist("r[1-2]n[0-1]"), ElementsAre("r1n0", "r1n1", "r2n0", "r2n1"));
  EXPECT_THAT(*expand_nodelist("r[1-2]-ib,n[5]x"), ElementsAre("r1-ib", "r2-ib", "n5x"));
}

TEST(SlurmNodelist, GivesTheFirstHostOfAListThatIsHuge) {
  EXPECT_THAT(*expand_nodelist("n[000000-999999]n[000000-999999]n[000000-999999]", 1),
              ElementsAre("n000000n000000n000000"));
  EXPECT_EQ(expand_nodelist("n[1-999999999999]", 5)->size(), 5u);
}

TEST(SlurmTasks, AreThoseOfTheHostWithThatNumber) {
  for (uint32_t node : {0u, 1u, 2u}) EXPECT_EQ(tasks_on_node("2(x3),1", node), 2u);
  EXPECT_EQ(tasks_on_node("2(x3),1", 3), 1u);
  EXPECT_EQ(tasks_on_node("8", 0), 8u);
  EXPECT_EQ(tasks_on_node("8,4,2(x2)", 2), 2u);
}

TEST(SlurmTasks, AreNotKnownByAListThatIsShortOrMalformed) {
  EXPECT_EQ(tasks_on_node("2(x3),1", 4), std::nullopt);
  for (const char* text :
       {"", ",", "2(x3", "2(x)", "2(3)", "x", "(x3)", "2(x3)1", "-1", "9999999999", "2,"}) {
    EXPECT_EQ(tasks_on_node(text, 1), std::nullopt) << "'" << text << "'";
  }
}

TEST(SlurmNodelist, ThatIsMalformedIsRefused) {
  for (const char* text : {"", ",", "n1,", ",n1", "n[1-3", "n1]", "n[]", "n[a]", "n[3-1]", "n[1-]",
                           "n[1-2-3]", "n[1,,2]", "n[-1]", "n[1]]", "n[1[2]", "n[9999999999999999999]"}) {
    auto hosts = expand_nodelist(text);
    EXPECT_EQ(hosts.status().code(), Code::invalid_argument) << "'" << text << "'";
  }
  EXPECT_THAT(expand_nodelist("n[2-1]").status().message(), HasSubstr("2-1"));
}

}  // namespace
}  // namespace shoal::client
