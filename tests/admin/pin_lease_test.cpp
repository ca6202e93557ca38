#include "admin/pin_lease.h"

#include <gtest/gtest.h>

#include "shoal/hash.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "tests/temporary_folder.h"

namespace shoal::admin {
namespace {

TEST(PinLease, LastsAsLongAsTheObjectAndIsRenewed) {
  const TemporaryFolder folder;
  storage::PosixFileSystem file_system;
  auto storage = storage::LocalStorage::open(file_system, folder.path(), random_128());
  ASSERT_TRUE(storage.ok());
  const AttemptKey key{1, 7, 1};
  auto lease = PinLease::take(**storage, key, "a test", std::chrono::milliseconds(1));
  ASSERT_TRUE(lease.ok()) << lease.status().to_string();
  auto only = [&] { return storage::list_marks(**storage, storage::MarkKind::pin)->marks.at(0); };
  EXPECT_EQ(only().key, key);
  EXPECT_TRUE(only().is_lease);
  EXPECT_EQ(only().note, "a test");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (only().counter < 2) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  lease->reset();
  EXPECT_TRUE(storage::list_marks(**storage, storage::MarkKind::pin)->marks.empty());
}

}  // namespace
}  // namespace shoal::admin
