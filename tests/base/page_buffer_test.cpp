#include "shoal/page_buffer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace shoal::base {
namespace {

// Of its pages, how many have memory.
size_t pages_there(const PageBuffer& buffer) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> is_there(buffer.size() / page);
  EXPECT_EQ(::mincore(buffer.data(), buffer.size(), is_there.data()), 0);
  return static_cast<size_t>(
      std::count_if(is_there.begin(), is_there.end(), [](unsigned char each) { return (each & 1) != 0; }));
}

TEST(PageBuffer, ReadsAsZerosWhateverItsSize) {
  for (size_t bytes : {size_t{0}, size_t{1}, kPagesFromBytes - 1, kPagesFromBytes, kPagesFromBytes + 1}) {
    const PageBuffer buffer(bytes);
    ASSERT_EQ(buffer.bytes().size(), bytes);
    for (const std::byte each : buffer.bytes()) ASSERT_EQ(each, std::byte{0});
  }
}

TEST(PageBuffer, TakesMemoryForWhatIsTouchedAlone) {
  const size_t bytes = size_t{64} << 20;
  const PageBuffer buffer(bytes);
  EXPECT_EQ(pages_there(buffer), 0u);
  buffer.data()[bytes / 2] = std::byte{1};
  EXPECT_GE(pages_there(buffer), 1u);
  EXPECT_LE(pages_there(buffer), bytes / 4 / 4096);  // a large page at most
}

TEST(PageBuffer, GivesItsMemoryBackWhenItEnds) {
  PageBuffer buffer(kPagesFromBytes);
  std::byte* const memory = buffer.data();
  memory[0] = std::byte{1};
  buffer = PageBuffer();
  EXPECT_EQ(buffer.size(), 0u);
  unsigned char there = 0;
  EXPECT_EQ(::mincore(memory, 1, &there), -1);
}

TEST(PageBuffer, IsMovedWithWhatItHolds) {
  PageBuffer first(kPagesFromBytes);
  first.data()[7] = std::byte{42};
  PageBuffer second = std::move(first);
  EXPECT_EQ(second.bytes()[7], std::byte{42});
  first = std::move(second);
  EXPECT_EQ(first.bytes()[7], std::byte{42});
}

TEST(PagedVector, KeepsWhatItHoldsAsItGrowsAndGivesItsMemoryBack) {
  std::vector<uint64_t*> grown;  // where it lay, once it was large
  {
    PagedVector<uint64_t> numbers;
    for (uint64_t i = 0; i < kPagesFromBytes; ++i) {
      numbers.push_back(i);
      const bool is_large = numbers.capacity() * sizeof(uint64_t) >= kPagesFromBytes;
      if (is_large && (grown.empty() || grown.back() != numbers.data())) grown.push_back(numbers.data());
    }
    for (uint64_t i = 0; i < kPagesFromBytes; ++i) ASSERT_EQ(numbers[i], i);
    const PagedVector<uint64_t> copy = numbers;
    EXPECT_EQ(copy, numbers);
  }
  ASSERT_GE(grown.size(), 2u);
  unsigned char there = 0;
  for (uint64_t* memory : grown) EXPECT_EQ(::mincore(memory, 1, &there), -1);
}

}  // namespace
}  // namespace shoal::base
