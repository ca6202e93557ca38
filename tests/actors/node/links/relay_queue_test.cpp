#include "actors/node/links/relay_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace shoal::actors {
namespace {

Bytes bytes_of(char letter, size_t count = 1) {
  return Bytes(count, static_cast<std::byte>(letter));
}
std::string drained(RelayQueue& queue) {
  std::string out;
  for (; !queue.empty(); queue.pop()) out += static_cast<char>(queue.front()[0]);
  return out;
}

TEST(RelayQueue, KeepsTheOrderOfEachChildAndTakesTurns) {
  RelayQueue queue;
  for (char letter : {'a', 'b', 'c'}) ASSERT_TRUE(queue.push(1, bytes_of(letter), false));
  for (char letter : {'x', 'y'}) ASSERT_TRUE(queue.push(2, bytes_of(letter), false));
  EXPECT_EQ(drained(queue), "axbyc");
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(RelayQueue, BoundsWhatOneChildFillsAndLeavesRoomForOthers) {
  RelayQueue queue;
  size_t taken = 0;
  while (taken < 10 * kMaxHeldPerChild && queue.push(1, bytes_of('a'), false)) ++taken;
  EXPECT_EQ(taken, kMaxHeldPerChild);
  EXPECT_TRUE(queue.push(1, bytes_of('!'), true)) << "that a child is lost is always told";
  EXPECT_TRUE(queue.push(2, bytes_of('b'), false));
  queue.pop();
  queue.pop();
  queue.pop();
  EXPECT_TRUE(queue.push(1, bytes_of('a'), false));
}

TEST(RelayQueue, BoundsItsBytes) {
  RelayQueue queue;
  EXPECT_TRUE(queue.push(1, bytes_of('a', kMaxHeldBytesPerChild + 1), false)) << "a large one goes alone";
  EXPECT_FALSE(queue.push(1, bytes_of('a'), false));
  EXPECT_TRUE(queue.push(2, bytes_of('b', kMaxHeldBytesPerChild), false));
  EXPECT_FALSE(queue.push(3, bytes_of('c', kMaxHeldBytes - kMaxHeldBytesPerChild), false));
  queue.clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.push(3, bytes_of('c', kMaxHeldBytes), false));
}

}  // namespace
}  // namespace shoal::actors
