#include "client/staging/source_digests.h"

#include <gtest/gtest.h>

#include <vector>

namespace shoal::client {
namespace {

class SourceDigestsTest : public ::testing::Test {
 protected:
  std::vector<std::byte> whole_ = std::vector<std::byte>(1000);
  std::vector<std::byte> matrix_ = std::vector<std::byte>(10 * 100);
  // Ten rows of 40 bytes, 100 apart.
  const std::vector<gpu::CopyTask> tasks_{{whole_.data(), nullptr, whole_.size(), 1, 0, 3},
                                          {matrix_.data() + 20, nullptr, 40, 10, 100, 7}};
};

TEST_F(SourceDigestsTest, SeesAnyByteThatIsCopied) {
  const SourceDigests digests(tasks_);
  EXPECT_EQ(digests.changed(), std::nullopt);
  for (size_t at : {0, 500, 999}) {
    whole_[at] ^= std::byte{1};
    EXPECT_EQ(digests.changed(), 3u) << at;
    whole_[at] ^= std::byte{1};
  }
  for (size_t row = 0; row < 10; ++row) {
    for (size_t column : {20, 59}) {
      matrix_[row * 100 + column] ^= std::byte{0x80};
      EXPECT_EQ(digests.changed(), 7u) << row;
      matrix_[row * 100 + column] ^= std::byte{0x80};
    }
  }
  EXPECT_EQ(digests.changed(), std::nullopt) << "undone";
}

TEST_F(SourceDigestsTest, SeesRowsThatChangePlaces) {
  for (size_t row = 0; row < 10; ++row) matrix_[row * 100 + 20] = std::byte(row);
  const SourceDigests digests(tasks_);
  std::swap(matrix_[120], matrix_[720]);
  EXPECT_EQ(digests.changed(), 7u);
}

TEST_F(SourceDigestsTest, IgnoresBytesThatAreNotCopied) {
  const SourceDigests digests(tasks_);
  for (size_t at : {0, 19, 60, 119, 999}) matrix_[at] = std::byte{9};
  EXPECT_EQ(digests.changed(), std::nullopt);
}

TEST_F(SourceDigestsTest, ComeFromEmptyTasksToo) {
  const std::vector<gpu::CopyTask> empty{{whole_.data(), nullptr, 0, 1, 0, 1}};
  EXPECT_EQ(SourceDigests(empty).changed(), std::nullopt);
  EXPECT_EQ(SourceDigests(std::span<const gpu::CopyTask>()).changed(), std::nullopt);
}

}  // namespace
}  // namespace shoal::client
