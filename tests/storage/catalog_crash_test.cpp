// What a crash leaves of the RocksDB catalog, tried at every writing call it makes to its file system.
#include <gmock/gmock.h>
#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "storage/rocksdb_catalog_internal.h"
#include "tests/storage/decision_samples.h"

namespace shoal {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Fault model: from a chosen writing call on, every writing call fails and does nothing; then the power
// fails: bytes not synced are cut off, files whose folder was not synced since they were made are gone.
// Renames and removals are taken as durable at once.
class CrashFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit CrashFileSystem(uint64_t dies_at)
      : rocksdb::FileSystemWrapper(rocksdb::FileSystem::Default()), dies_at_(dies_at) {}
  const char* Name() const override { return "CrashFileSystem"; }

  uint64_t calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  void crash() {
    std::lock_guard lock(mutex_);
    for (const auto& [path, bytes] : synced_bytes_) {
      std::error_code error;
      if (std::filesystem::file_size(path, error) > bytes && !error)
        std::filesystem::resize_file(path, bytes);
    }
    for (const std::string& path : not_in_folder_) std::filesystem::remove(path);
    for (const auto& [path, content] : replaced_) std::ofstream(path, std::ios::binary) << content;
  }

  IOStatus NewWritableFile(const std::string& path, const FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) override {
    IOStatus status = begin();
    std::unique_ptr<rocksdb::FSWritableFile> inner;
    if (status.ok()) status = target()->NewWritableFile(path, options, &inner, debug);
    if (!status.ok()) return status;
    std::lock_guard lock(mutex_);
    synced_bytes_[path] = 0;
    not_in_folder_.insert(path);
    *file = std::make_unique<File>(*this, path, std::move(inner));
    return status;
  }
  IOStatus NewDirectory(const std::string& path, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* folder, IODebugContext* debug) override {
    std::unique_ptr<rocksdb::FSDirectory> inner;
    IOStatus status = target()->NewDirectory(path, options, &inner, debug);
    if (status.ok()) *folder = std::make_unique<Folder>(*this, std::move(inner));
    return status;
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    IOStatus status = begin();
    std::ifstream old(to, std::ios::binary);
    std::optional<std::string> replaced;
    if (old) replaced.emplace(std::istreambuf_iterator<char>(old), std::istreambuf_iterator<char>());
    if (status.ok()) status = target()->RenameFile(from, to, options, debug);
    if (!status.ok()) return status;
    std::lock_guard lock(mutex_);
    if (replaced && !not_in_folder_.contains(to)) replaced_.emplace(to, *replaced);
    if (not_in_folder_.erase(from) != 0) not_in_folder_.insert(to);
    if (auto synced = synced_bytes_.extract(from)) synced_bytes_[to] = synced.mapped();
    return status;
  }
  IOStatus DeleteFile(const std::string& path, const IOOptions& options, IODebugContext* debug) override {
    IOStatus status = begin();
    if (status.ok()) status = target()->DeleteFile(path, options, debug);
    if (!status.ok()) return status;
    std::lock_guard lock(mutex_);
    not_in_folder_.erase(path);
    synced_bytes_.erase(path);
    return status;
  }

 private:
  class File final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    File(CrashFileSystem& owner, std::string path, std::unique_ptr<rocksdb::FSWritableFile> inner)
        : FSWritableFileOwnerWrapper(std::move(inner)), owner_(owner), path_(std::move(path)) {}
    using FSWritableFileOwnerWrapper::Append;
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, IODebugContext* debug) override {
      IOStatus status = owner_.begin();
      if (status.ok()) status = target()->Append(data, options, debug);
      if (status.ok()) bytes_ += data.size();
      return status;
    }
    IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                    const rocksdb::DataVerificationInfo&, IODebugContext* debug) override {
      return Append(data, options, debug);
    }
    IOStatus Sync(const IOOptions& options, IODebugContext* debug) override { return synced(options, debug); }
    IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
      return synced(options, debug);
    }

   private:
    IOStatus synced(const IOOptions& options, IODebugContext* debug) {
      IOStatus status = owner_.begin();
      if (status.ok())
        status = target()->Flush(options, debug);  // no fsync: that it was asked for is what counts
      if (!status.ok()) return status;
      std::lock_guard lock(owner_.mutex_);
      if (owner_.synced_bytes_.contains(path_)) owner_.synced_bytes_[path_] = bytes_;
      return status;
    }
    CrashFileSystem& owner_;
    const std::string path_;
    uint64_t bytes_ = 0;
  };

  class Folder final : public rocksdb::FSDirectoryWrapper {
   public:
    Folder(CrashFileSystem& owner, std::unique_ptr<rocksdb::FSDirectory> inner)
        : FSDirectoryWrapper(std::move(inner)), owner_(owner) {}
    IOStatus Fsync(const IOOptions&, IODebugContext*) override { return synced(); }
    IOStatus FsyncWithDirOptions(const IOOptions&, IODebugContext*,
                                 const rocksdb::DirFsyncOptions&) override {
      return synced();
    }

   private:
    IOStatus synced() {
      IOStatus status = owner_.begin();
      std::lock_guard lock(owner_.mutex_);
      if (!status.ok()) return status;
      owner_.not_in_folder_.clear();  // one folder holds them all
      owner_.replaced_.clear();
      return status;
    }
    CrashFileSystem& owner_;
  };

  IOStatus begin() {
    std::lock_guard lock(mutex_);
    return calls_++ < dies_at_ ? IOStatus::OK() : IOStatus::IOError("the process has died");
  }

  std::mutex mutex_;
  const uint64_t dies_at_;
  uint64_t calls_ = 0;
  std::map<std::string, uint64_t> synced_bytes_;  // of files made here
  std::set<std::string> not_in_folder_;           // made since the folder was synced last
  std::map<std::string, std::string> replaced_;   // since then, by what was renamed over them
};

// After an error in the background RocksDB sleeps for a second: here it does not.
class SleeplessClock final : public rocksdb::SystemClockWrapper {
 public:
  SleeplessClock() : rocksdb::SystemClockWrapper(rocksdb::SystemClock::Default()) {}
  const char* Name() const override { return "SleeplessClock"; }
  void SleepForMicroseconds(int) override {}
};
class CrashEnv final : public rocksdb::EnvWrapper {
 public:
  explicit CrashEnv(std::shared_ptr<CrashFileSystem> files)
      : rocksdb::EnvWrapper(rocksdb::NewCompositeEnv(files)) {
    file_system_ = std::move(files);
    system_clock_ = std::make_shared<SleeplessClock>();
  }
};

constexpr AttemptKey kFirst = {1, 10, 1}, kSecond = {1, 20, 1};

struct Told {
  bool first = false, second = false, deleted = false;
};

// Opens, records, and closes, as far as it gets.
Told record_all(rocksdb::Env* env, const std::string& path) {
  Told told;
  auto catalog = open_rocksdb_catalog_in(env, path, nonce_of(77));
  if (!catalog.ok()) return told;
  told.first = (*catalog)->record(sample_manifest(kFirst)).ok();
  told.second = (*catalog)->record(sample_manifest(kSecond)).ok();
  EXPECT_TRUE(told.first || !told.second) << "after an error the catalog is closed";
  told.deleted = (*catalog)->record(sample_tombstone(kFirst, 1, Tombstone::Reason::deleted)).ok();
  return told;
}

void expect_whole(Catalog& catalog, const AttemptKey& key, bool told) {
  auto entry = catalog.find(key);
  ASSERT_OK(entry.status());
  EXPECT_TRUE(!told || entry->has_value());
  bool has_files = entry->has_value() && (*entry)->state == AttemptInfo::State::committed;
  EXPECT_EQ(catalog.files(key)->size(), has_files ? 4u : 0u)
      << "a decision is there with its files, or not at all";
}

TEST(CrashOfTheCatalog, LosesNothingThatWasRecordedAndLeavesNothingHalf) {
  TemporaryFolder folder;
  bool finished = false;
  uint64_t dies_at = 0;
  for (; !finished; ++dies_at) {
    SCOPED_TRACE("death at call " + std::to_string(dies_at));
    std::string path = folder.path() + "/catalog-" + std::to_string(dies_at);
    std::filesystem::create_directory(path);
    auto files = std::make_shared<CrashFileSystem>(dies_at);
    CrashEnv env(files);
    Told told = record_all(&env, path);
    finished = files->calls() < dies_at;
    EXPECT_TRUE(!finished || told.deleted);
    files->crash();

    auto catalog = open_rocksdb_catalog(path, nonce_of(77));
    ASSERT_OK(catalog.status());
    expect_whole(**catalog, kFirst, told.first);
    expect_whole(**catalog, kSecond, told.second);
    EXPECT_TRUE(!told.deleted || (*(*catalog)->find(kFirst))->state == AttemptInfo::State::deleted);
    EXPECT_OK((*catalog)->record(sample_manifest(kSecond))) << "and goes on";
    if (testing::Test::HasFailure()) return;
    catalog->reset();
    std::filesystem::remove_all(path);
  }
  EXPECT_GT(dies_at, 30u);
}

}  // namespace
}  // namespace shoal
