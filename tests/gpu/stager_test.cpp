#include "gpu/stager.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/stream_copy.h"

namespace shoal::gpu {
namespace {

std::vector<std::byte> noise(uint64_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) one = static_cast<std::byte>(random());
  return out;
}

TEST(StreamCopy, CopiesAnyLengthFromAnywhereToAnywhereAndNothingMore) {
  constexpr uint64_t kMargin = 256;  // on both sides of a target: nothing may touch it
  constexpr std::byte kUntouched{0xA5};
  const uint64_t lengths[] = {0,
                              1,
                              63,
                              base::kStreamCopyBytesMin - 1,
                              base::kStreamCopyBytesMin,
                              base::kStreamCopyBytesMin + 1,
                              base::kStreamCopyBytesMin + 4095,
                              (uint64_t{1} << 20) - 7,
                              (uint64_t{1} << 20) + 16384 + 65};
  const std::vector<std::byte> source = noise((uint64_t{2} << 20) + kMargin);
  for (uint64_t bytes : lengths) {
    for (uint64_t from : {0, 1, 8, 63}) {
      for (uint64_t to : {0, 1, 16, 63, 64}) {
        std::vector<std::byte> target(bytes + 2 * kMargin, kUntouched);
        base::stream_copy(target.data() + kMargin + to, source.data() + from, bytes);
        for (uint64_t i = 0; i < target.size(); ++i) {
          const bool inside = i >= kMargin + to && i < kMargin + to + bytes;
          ASSERT_EQ(target[i], inside ? source[from + i - kMargin - to] : kUntouched)
              << bytes << " bytes from " << from << " to " << to << ", byte " << i;
        }
      }
    }
  }
}

TEST(HostStager, GathersRowsOfABoxToContiguousBytes) {
  const uint64_t rows = 37, row_bytes = 70'001, stride = 80'007;
  const std::vector<std::byte> source = noise(rows * stride);
  std::vector<std::byte> target(rows * row_bytes), small(100);
  auto stager = make_host_stager();
  const CopyTask tasks[] = {{source.data() + 5, target.data(), row_bytes, rows, stride},
                            {source.data(), small.data(), 10, 10, 1000}};
  ASSERT_TRUE(stager->wait(stager->submit(tasks)).ok());
  for (uint64_t i = 0; i < target.size(); ++i) {
    ASSERT_EQ(target[i], source[5 + i / row_bytes * stride + i % row_bytes]) << i;
  }
  for (uint64_t i = 0; i < small.size(); ++i) ASSERT_EQ(small[i], source[i / 10 * 1000 + i % 10]) << i;
}

}  // namespace
}  // namespace shoal::gpu
