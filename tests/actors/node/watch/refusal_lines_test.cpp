#include "actors/node/watch/refusal_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::actors {
namespace {

using ::testing::Optional;

const Status kWrongToken(Code::refused, "another token");
const Status kFlood(Code::busy, "connections that prove nothing: 300 were closed");

// Regression: a stranger whose handshakes were refused kept the line about the flood out of the log.
TEST(RefusalLines, TellOfAFloodWhateverElseIsRefused) {
  RefusalLines lines;
  TimeNs now = kMillisecond;
  for (uint32_t i = 0; i < kRefusalLinesAtOnce; ++i)
    ASSERT_TRUE(lines.line(now, "10.0.0.9", kWrongToken)) << i;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(lines.line(now += kMillisecond, "10.0.0.9", kWrongToken), std::nullopt) << i;
  }
  EXPECT_THAT(lines.line(now, "", kFlood),
              Optional(std::string("refused connections that prove nothing: 300 were closed")));
  now += kRefusalLineMs * kMillisecond;
  EXPECT_THAT(lines.line(now, "10.0.0.9", kWrongToken),
              Optional(std::string("refused 10.0.0.9: another token (1000 more were refused before)")));
}

TEST(RefusalLines, OfAFloodAreFewToo) {
  RefusalLines lines("the listener of the relay");
  int written = 0;
  for (TimeNs now = 1; now < 100 * TimeNs{kRefusalLineMs} * kMillisecond; now += 1000 * kMillisecond) {
    const auto line = lines.line(now, "", kFlood);
    if (!line) continue;
    EXPECT_THAT(
        *line, ::testing::StartsWith("refused at the listener of the relay: connections that prove nothing"));
    ++written;
  }
  EXPECT_LE(written, 110);
  EXPECT_GE(written, 100);
}

}  // namespace
}  // namespace shoal::actors
