#include "cli/command_suggestion.h"

#include <gtest/gtest.h>

namespace shoal::cli {
namespace {

const std::vector<std::string> kCommands = {"launch", "ls", "rm", "status", "verify"};

TEST(CommandSuggestion, NamesTheNearestCommand) {
  EXPECT_EQ(unknown_command("statsu", kCommands), "unknown command 'statsu'; did you mean 'status'?");
  EXPECT_EQ(unknown_command("rn", kCommands), "unknown command 'rn'; did you mean 'rm'?");
}

TEST(CommandSuggestion, KnowsNamesThatOtherProgramsUse) {
  EXPECT_EQ(unknown_command("list", kCommands), "unknown command 'list'; did you mean 'ls'?");
  EXPECT_EQ(unknown_command("delete", kCommands), "unknown command 'delete'; did you mean 'rm'?");
}

TEST(CommandSuggestion, SuggestsNothingIfNoCommandIsSimilar) {
  EXPECT_EQ(unknown_command("/checkpoints/run7", kCommands), "unknown command '/checkpoints/run7'");
}

}  // namespace
}  // namespace shoal::cli
