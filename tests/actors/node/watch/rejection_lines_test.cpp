#include "actors/node/watch/rejection_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::actors {
namespace {

using ::testing::Optional;

const Status kWrongToken(Code::refused, "another token");
const Status kFlood(Code::busy, "connections that prove nothing: 300 were closed");

// Regression: a stranger whose handshakes were rejected kept the line about the flood out of the log.
TEST(RejectionLines, TellOfAFloodWhateverElseIsRefused) {
  RejectionLines lines;
  TimeNs now = kMillisecond;
  for (uint32_t i = 0; i < kRejectionLinesAtOnce; ++i)
    ASSERT_TRUE(lines.line(now, "10.0.0.9", kWrongToken)) << i;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(lines.line(now += kMillisecond, "10.0.0.9", kWrongToken), std::nullopt) << i;
  }
  EXPECT_THAT(lines.line(now, "", kFlood),
              Optional(std::string("rejected connections that prove nothing: 300 were closed")));
  now += kRejectionLineMs * kMillisecond;
  EXPECT_THAT(lines.line(now, "10.0.0.9", kWrongToken),
              Optional(std::string("rejected 10.0.0.9: another token (1000 more were rejected before)")));
}

TEST(RejectionLines, OfAFloodAreFewToo) {
  RejectionLines lines("the listener of the relay");
  int written = 0;
  for (TimeNs now = 1; now < 100 * TimeNs{kRejectionLineMs} * kMillisecond; now += 1000 * kMillisecond) {
    const auto line = lines.line(now, "", kFlood);
    if (!line) continue;
    EXPECT_THAT(*line, ::testing::StartsWith(
                           "rejected at the listener of the relay: connections that prove nothing"));
    ++written;
  }
  EXPECT_LE(written, 110);
  EXPECT_GE(written, 100);
}

}  // namespace
}  // namespace shoal::actors
