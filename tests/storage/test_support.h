// Shared by the tests of storage/: temporary folders, and the two file systems behind one interface.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <string>
#include <string_view>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"
#include "sim/bytes/memory_file_system.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "tests/temporary_folder.h"

namespace shoal::storage {

inline ::testing::AssertionResult status_is_ok(const char* expression, const Status& status) {
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << expression << " is " << status.to_string();
}
#define ASSERT_OK(expression) ASSERT_PRED_FORMAT1(::shoal::storage::status_is_ok, expression)
#define EXPECT_OK(expression) EXPECT_PRED_FORMAT1(::shoal::storage::status_is_ok, expression)

inline Nonce nonce_of(uint64_t number) {
  Nonce nonce;
  store_le64(nonce.bytes.data(), number);
  return nonce;
}
inline Bytes bytes_of(std::string_view text) {
  ByteView view = as_view(text);
  return Bytes(view.begin(), view.end());
}
inline Bytes random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(size);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// A temporary folder in memory, where syncs are free, if the machine has such a folder.
struct MemoryFolder : TemporaryFolder {
  MemoryFolder() : TemporaryFolder(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") {}
};

// LocalStorage over a file system in memory, as most tests need it.
struct MemoryStorage {
  sim::MemoryFileSystem files;
  std::unique_ptr<LocalStorage> storage = opened(1);

  std::unique_ptr<LocalStorage> opened(uint64_t process) {
    auto result = LocalStorage::open(files, "/root", nonce_of(process << 32));
    SHOAL_CHECK(result.ok());
    return std::move(result).value();
  }
  Storage& operator*() { return *storage; }
  Storage* operator->() { return storage.get(); }
};

}  // namespace shoal::storage
