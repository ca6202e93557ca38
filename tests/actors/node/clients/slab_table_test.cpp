// The memory of clients as a node maps it.
#include "actors/node/clients/slab_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/owned_fd.h"
#include "tests/actors/test_ids.h"
#include "tests/actors/units.h"

namespace shoal::actors {
namespace {

class ASlab : public ::testing::Test {
 protected:
  static constexpr uint64_t kSlabBytes = 4 * kMiB;

  ASlab() : fd_(::memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    SHOAL_CHECK(::ftruncate(fd_.get(), static_cast<off_t>(kSlabBytes)) == 0);
    SHOAL_CHECK(::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  }
  Status add() { return table_.add(kClient, local::Slab{1, kSlabBytes}, base::OwnedFd(::dup(fd_.get()))); }
  uint64_t bytes_in_memory() const {
    struct stat stat {};
    SHOAL_CHECK(::fstat(fd_.get(), &stat) == 0);
    return static_cast<uint64_t>(stat.st_blocks) * 512;
  }

  base::OwnedFd fd_;
  SlabTable table_;
};

TEST_F(ASlab, GetsNoPageByBeingMapped) {
  ASSERT_TRUE(add().ok());
  EXPECT_EQ(bytes_in_memory(), 0u);
  table_.find(kClient, 1)->bytes[0] = std::byte{1};
  EXPECT_GT(bytes_in_memory(), 0u);
  EXPECT_LT(bytes_in_memory(), kSlabBytes);
}

TEST_F(ASlab, GivesItsPagesBackWhenItIsReleased) {
  ASSERT_TRUE(add().ok());
  const auto view = table_.find(kClient, 1);
  std::fill(view->bytes.begin(), view->bytes.end(), std::byte{1});
  ASSERT_EQ(bytes_in_memory(), kSlabBytes);
  const Status released = table_.release(kClient, 1);
  ASSERT_TRUE(released.ok()) << released.to_string();
  EXPECT_EQ(bytes_in_memory(), 0u);
  EXPECT_EQ(view->bytes[kSlabBytes - 1], std::byte{0});
  view->bytes[5] = std::byte{2};  // it is used again
  EXPECT_EQ(table_.find(kClient, 1)->bytes[5], std::byte{2});
}

TEST_F(ASlab, ThatIsNotThereCannotBeReleased) {
  EXPECT_EQ(table_.release(kClient, 1).code(), Code::not_found);
}

}  // namespace
}  // namespace shoal::actors
