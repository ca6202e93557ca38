#include "base/host_port.h"

#include <gtest/gtest.h>

namespace shoal::base {

namespace {

TEST(HostPort, IsParsedAndFormatted) {
  for (std::string text : {"127.0.0.1:0", "node-17.cluster:65535", "[::1]:4711", "[fe80::1%eth0]:1"}) {
    auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(to_string(*parsed), text);
  }
}

TEST(HostPort, RejectsOtherText) {
  for (std::string text : {"", ":", "host", "host:", ":1", "host:65536", "host:-1", "host:1x", "::1:5",
                           "[host]:1", "[]:1", "ho st:1", "host\n:1", "[::1:5", "host: 1"}) {
    EXPECT_EQ(parse_host_port(text).status().code(), Code::invalid_argument) << text;
  }
  EXPECT_FALSE(parse_host_port(std::string(300, 'a') + ":1").ok());
}

}  // namespace
}  // namespace shoal::base
