#include "transport/outgoing_queues.h"

#include <gtest/gtest.h>

namespace shoal::transport {
namespace {

TransportLimits small_limits() {
  TransportLimits limits;
  limits.queued_messages_per_peer = 3;
  limits.queued_bytes_per_peer = 100;
  return limits;
}

struct Queues : OutgoingQueues {
  Queues() : OutgoingQueues(small_limits()) { open(1); }
  Code put(PeerId peer, size_t bytes) { return push(peer, Bytes(bytes), wake).code(); }
  bool wake = false;
};

TEST(OutgoingQueues, GivesMessagesInOrderAndAsksForOneWakeUp) {
  Queues queues;
  queues.open(2);
  EXPECT_EQ(queues.put(1, 8), Code::ok);
  EXPECT_TRUE(queues.wake);
  queues.wake = false;
  EXPECT_EQ(queues.put(1, 16), Code::ok);
  EXPECT_EQ(queues.put(2, 24), Code::ok);
  EXPECT_FALSE(queues.wake);
  auto batches = queues.take();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].peer, 1u);
  ASSERT_EQ(batches[0].messages.size(), 2u);
  EXPECT_EQ(batches[0].messages[1].size(), 16u);
  EXPECT_TRUE(queues.take().empty());
  EXPECT_EQ(queues.put(2, 8), Code::ok);
  EXPECT_TRUE(queues.wake);
}

TEST(OutgoingQueues, IsBusyUntilWhatWasTakenIsSent) {
  Queues queues;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(queues.put(1, 8), Code::ok);
  EXPECT_EQ(queues.put(1, 8), Code::busy);
  queues.take();
  EXPECT_EQ(queues.put(1, 8), Code::busy);
  queues.sent(1, 8);
  EXPECT_EQ(queues.put(1, 8), Code::ok);
}

TEST(OutgoingQueues, IsBusyWhenTheBytesAreTooMany) {
  Queues queues;
  EXPECT_TRUE(queues.has_room(1, 1000)) << "an empty queue takes anything";
  EXPECT_EQ(queues.put(1, 90), Code::ok);
  EXPECT_FALSE(queues.has_room(1, 11));
  EXPECT_EQ(queues.put(1, 11), Code::busy);
  EXPECT_TRUE(queues.has_room(1, 10));
  EXPECT_EQ(queues.put(1, 10), Code::ok);
}

TEST(OutgoingQueues, RefusesWhatIsTooLargeForAnyQueue) {
  Queues queues;
  EXPECT_EQ(queues.put(1, kMaxMessageBytes + 1), Code::too_large);
}

TEST(OutgoingQueues, DoesNotKnowWhoIsClosed) {
  Queues queues;
  EXPECT_EQ(queues.put(1, 8), Code::ok);
  queues.close(1);
  EXPECT_TRUE(queues.take().empty());
  EXPECT_EQ(queues.put(1, 8), Code::unavailable);
  EXPECT_EQ(queues.put(9, 8), Code::unavailable);
  queues.sent(1, 8);
}

}  // namespace
}  // namespace shoal::transport
