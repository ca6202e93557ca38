// What a crash or a failed call leaves of the RocksDB catalog: tried at every write call to the file system,
// on a new catalog and on an existing one.
#include <gmock/gmock.h>
#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>

#include "storage/catalog/rocksdb_catalog_internal.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::storage {
namespace {

using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Which writing calls fail, and do nothing.
struct Fault {
  uint64_t at = 0;
  bool is_death = true;  // that call and all later ones; else that one alone
  bool is_full_disk = false;
};

// Fault model: writing calls fail as the Fault says; then the power fails: bytes not synced are cut off,
// files whose folder was not synced since they were made are gone. Or all of that is kept; or each thing by
// itself is kept or lost. Removals are taken as durable at once.
class CrashFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  enum class Unsynced { lost, kept, mixed };

  explicit CrashFileSystem(const Fault& fault)
      : rocksdb::FileSystemWrapper(rocksdb::FileSystem::Default()), fault_(fault) {}
  const char* Name() const override { return "CrashFileSystem"; }

  uint64_t calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  void crash(Unsynced unsynced, uint64_t seed = 0) {
    std::lock_guard lock(mutex_);
    std::mt19937_64 random(seed);
    auto loses = [&] { return unsynced == Unsynced::lost || (unsynced == Unsynced::mixed && random() % 2); };
    for (const auto& [path, bytes] : synced_bytes_) {
      std::error_code error;
      const uint64_t written = std::filesystem::file_size(path, error);
      if (error || written <= bytes || !loses()) continue;
      const bool in_half = unsynced == Unsynced::mixed && random() % 2;
      std::filesystem::resize_file(path, in_half ? bytes + (written - bytes) / 2 : bytes);
    }
    for (const std::string& path : not_in_folder_) {
      if (loses()) std::filesystem::remove(path);
    }
    for (const auto& [path, content] : replaced_) {
      if (loses()) std::ofstream(path, std::ios::binary) << content;
    }
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
    const uint64_t call = calls_++;
    if (fault_.is_death ? call < fault_.at : call != fault_.at) return IOStatus::OK();
    return fault_.is_full_disk ? IOStatus::NoSpace("no space left") : IOStatus::IOError("the disk fails");
  }

  std::mutex mutex_;
  const Fault fault_;
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

using Unsynced = CrashFileSystem::Unsynced;

constexpr AttemptKey kFirstKey = {1, 10, 1}, kSecondKey = {1, 20, 1};

struct Recorded {
  bool first = false, second = false, deleted = false;
};

// Opens, records, and closes, as far as it gets.
Recorded record_all(rocksdb::Env* env, const std::string& path) {
  Recorded recorded;
  auto catalog = open_rocksdb_catalog_in(env, path, nonce_of(77));
  if (!catalog.ok()) return recorded;
  recorded.first = (*catalog)->record(sample_manifest(kFirstKey)).ok();
  recorded.second = (*catalog)->record(sample_manifest(kSecondKey)).ok();
  EXPECT_TRUE(recorded.first || !recorded.second) << "after an error the catalog is closed";
  recorded.deleted = (*catalog)->record(sample_tombstone(kFirstKey, 1, Tombstone::Reason::deleted)).ok();
  return recorded;
}

void expect_whole(Catalog& catalog, const AttemptKey& key, bool recorded) {
  auto entry = catalog.find(key);
  ASSERT_OK(entry.status());
  EXPECT_TRUE(!recorded || entry->has_value());
  bool has_files = entry->has_value() && (*entry)->state == AttemptInfo::State::committed;
  EXPECT_EQ(catalog.files(key)->size(), has_files ? 4u : 0u)
      << "a decision is there with its files, or not at all";
}

// What one fault leaves. `begun`: the catalog has been there before, with the first decision.
class Remains {
 public:
  Remains(const std::string& path, const Fault& fault, bool begun) : path_(path) {
    std::filesystem::create_directory(path_);
    if (begun) {
      auto catalog = open_rocksdb_catalog(path_, nonce_of(77));
      EXPECT_OK(catalog.status());
      EXPECT_OK((*catalog)->record(sample_manifest(kFirstKey)));
    }
    files_ = std::make_shared<CrashFileSystem>(fault);
    CrashEnv env(files_);
    told_ = record_all(&env, path_);
    told_.first = told_.first || begun;
  }
  ~Remains() { std::filesystem::remove_all(path_); }
  Remains(const Remains&) = delete;

  const Recorded& recorded() const { return told_; }
  uint64_t calls() const { return files_->calls(); }
  // The power fails. Whether the catalog opens again; then it holds all that was told, and goes on. Where it
  // does not, the error is one over which a node begins a new one.
  bool expect_sound(Unsynced unsynced, uint64_t seed = 0) {
    files_->crash(unsynced, seed);
    auto catalog = open_rocksdb_catalog(path_, nonce_of(77));
    if (!catalog.ok()) {
      EXPECT_THAT(catalog.status().code(), ::testing::AnyOf(Code::corrupt, Code::io));
      return false;
    }
    expect_whole(**catalog, kFirstKey, told_.first);
    expect_whole(**catalog, kSecondKey, told_.second);
    EXPECT_TRUE(!told_.deleted || (*(*catalog)->find(kFirstKey))->state == AttemptInfo::State::deleted);
    EXPECT_OK((*catalog)->record(sample_manifest(kSecondKey))) << "and goes on";
    return true;
  }

 private:
  const std::string path_;
  std::shared_ptr<CrashFileSystem> files_;
  Recorded told_;
};

// How many writing calls a run makes that meets no fault.
uint64_t calls_of(bool begun) {
  MemoryFolder folder;
  Remains whole(folder.path() + "/whole", Fault{UINT64_MAX}, begun);
  EXPECT_TRUE(whole.recorded().deleted);
  return whole.calls();
}

class CrashOfTheCatalog : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Begun, CrashOfTheCatalog, ::testing::Bool(),
                         [](const auto& begun) { return begun.param ? "ThatWasThere" : "ThatIsNew"; });

TEST_P(CrashOfTheCatalog, LosesNothingThatWasRecordedAndLeavesNothingHalf) {
  MemoryFolder folder;
  const uint64_t calls = calls_of(GetParam());
  EXPECT_GT(calls, 30u);
  for (uint64_t call = 0; call <= calls; ++call) {
    for (Unsynced unsynced : {Unsynced::lost, Unsynced::kept}) {
      SCOPED_TRACE("death at call " + std::to_string(call) + " of " + std::to_string(calls));
      Remains remains(folder.path() + "/catalog", Fault{call}, GetParam());
      EXPECT_TRUE(remains.expect_sound(unsynced));
      if (HasFailure()) return;
    }
  }
}

// If each file and name is kept or lost independently, a catalog may be unusable, and is then made again from
// the root. An incomplete catalog is never taken for a complete one.
TEST_P(CrashOfTheCatalog, IsNeverTakenForWholeWhereEachThingIsKeptOrLostByItself) {
  MemoryFolder folder;
  const uint64_t calls = calls_of(GetParam());
  size_t opened = 0, tried = 0;
  for (uint64_t call = 0; call <= calls; ++call) {
    SCOPED_TRACE("death at call " + std::to_string(call) + " of " + std::to_string(calls));
    Remains remains(folder.path() + "/catalog", Fault{call}, GetParam());
    opened += remains.expect_sound(Unsynced::mixed, call + 1);
    ++tried;
    if (HasFailure()) return;
  }
  EXPECT_GT(opened, tried / 2);
}

TEST_P(CrashOfTheCatalog, AfterOneFailingCallHoldsWhatWasTold) {
  MemoryFolder folder;
  const uint64_t calls = calls_of(GetParam());
  for (uint64_t call = 0; call < calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + " of " + std::to_string(calls) + " fails");
    Remains remains(folder.path() + "/catalog", Fault{call, false, call % 2 == 0}, GetParam());
    EXPECT_TRUE(remains.expect_sound(Unsynced::lost));
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace shoal::storage
