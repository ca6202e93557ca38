#include "cli/network_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace shoal {
namespace {

NetworkOptions parse(std::vector<std::string> arguments) {
  NetworkOptions out;
  CLI::App app;
  add_network_options(app, &out);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  return out;
}

// `shoal launch` passes them on to its node.
TEST(NetworkFlags, MeanTheSameToANodeThatTheyArePassedOnTo) {
  const NetworkOptions given = parse({"--transport", "tcp", "--interface", "eth0", "--ports", "7100-7199"});
  EXPECT_EQ(given.transport, TransportKind::tcp);
  EXPECT_EQ(given.interface, "eth0");
  EXPECT_EQ(to_string(given.ports), "7100-7199");
  const NetworkOptions passed = parse(network_arguments(given));
  EXPECT_EQ(passed.transport, given.transport);
  EXPECT_EQ(passed.interface, given.interface);
  EXPECT_EQ(to_string(passed.ports), to_string(given.ports));
}

TEST(NetworkFlags, ThatAreNotGivenAreNotPassedOn) {
  EXPECT_THAT(network_arguments(parse({})), testing::IsEmpty());
}

TEST(NetworkFlags, RefuseWhatTheyCannotMean) {
  EXPECT_THROW(parse({"--ports", "7100"}), CLI::ValidationError);
  EXPECT_THROW(parse({"--transport", "udp"}), CLI::ValidationError);
}

}  // namespace
}  // namespace shoal
