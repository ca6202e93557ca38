// Slow storage calls are reported while they are in progress, on virtual time.
#include "storage/files/call_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "storage/catalog/watched_catalog.h"
#include "storage/files/local_storage.h"
#include "storage/files/watched_file_system.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;

class CallWatchTest : public ::testing::Test {
 protected:
  std::vector<std::string> lines_after(int64_t seconds) {
    now_ns = seconds * kSecond;
    lines.clear();
    watch.look();
    return lines;
  }

  std::atomic<int64_t> now_ns{0};
  std::vector<std::string> lines;
  CallWatch watch{[this] { return now_ns.load(); },
                  [this](const std::string& line) { lines.push_back(line); }};
};

TEST_F(CallWatchTest, ACallThatDoesNotReturnIsToldAfterFiveSecondsAndWheneverItsTimeHasDoubled) {
  CallWatch::Call call(watch, "fsync", "/root", "step-1");
  EXPECT_THAT(lines_after(4), IsEmpty());
  EXPECT_THAT(watch.slow(8), IsEmpty());
  EXPECT_THAT(lines_after(7),
              ElementsAre("storage: fsync of /root/step-1 has taken 7 s and has not returned"));
  EXPECT_THAT(lines_after(9), IsEmpty());
  EXPECT_EQ(lines_after(10).size(), 1u);
  EXPECT_THAT(lines_after(19), IsEmpty());
  EXPECT_EQ(lines_after(20).size(), 1u);
  EXPECT_EQ(watch.oldest_ns(), 20 * kSecond);
  const auto slow = watch.slow(8);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].what, "fsync of /root/step-1");
  EXPECT_EQ(slow[0].age_ms, 20'000u);
  now_ns = 21 * kSecond;
  lines.clear();
  EXPECT_EQ(call.end(EIO), EIO);
  EXPECT_THAT(lines, ElementsAre("storage: fsync of /root/step-1 failed after 21 s: Input/output error"));
  EXPECT_THAT(lines_after(80), IsEmpty());
  EXPECT_EQ(watch.oldest_ns(), 0);
}

TEST_F(CallWatchTest, ACallThatReturnsBetweenTwoLooksIsToldOnce) {
  {
    CallWatch::Call first(watch, "read", "/root/a");
    CallWatch::Call second(watch, "stat", "/root/b");
    now_ns = 3 * kSecond;
    first.end(0);
    now_ns = 6 * kSecond;
  }
  EXPECT_THAT(lines, ElementsAre("storage: stat of /root/b took 6 s"));
}

TEST_F(CallWatchTest, OfManyCallsTheOldestAreShown) {
  CallWatch::Call first(watch, "read", "/1");
  now_ns = kSecond;
  CallWatch::Call second(watch, "read", "/2");
  CallWatch::Call third(watch, "read", "/3");
  now_ns = 9 * kSecond;
  second.end(0);
  const auto slow = watch.slow(1);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].what, "read of /1");
  EXPECT_EQ(watch.slow(8).size(), 2u);
}

// Waits in its opening until it is let go.
class HangingFileSystem final : public FileSystem {
 public:
  int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override {
    entered.set_value();
    released.get_future().wait();
    return memory.open_root(path, folder);
  }
  sim::MemoryFileSystem memory;
  std::promise<void> entered, released;
};

TEST_F(CallWatchTest, AStorageThatHangsIsToldByThePathOfTheCall) {
  HangingFileSystem hanging;
  WatchedFileSystem watched(hanging, watch);
  Status opened;
  std::thread opening([&] { opened = LocalStorage::open(watched, "/root", nonce_of(1)).status(); });
  hanging.entered.get_future().wait();
  EXPECT_THAT(lines_after(5), ElementsAre("storage: open of /root has taken 5 s and has not returned"));
  hanging.released.set_value();
  opening.join();
  EXPECT_OK(opened);
  EXPECT_EQ(watch.oldest_ns(), 0) << "no call is left in the list";
}

// Its first write waits until it is let go.
class HangingCatalog final : public Catalog {
 public:
  Status record(const Decision&) override {
    entered.set_value();
    released.get_future().wait();
    return ok_status();
  }
  Status record_unsynced(const Decision&) override { return ok_status(); }
  Status forget(const AttemptKey&) override { return ok_status(); }
  Status sync() override { return Status(Code::io, "the disk is gone"); }
  Result<std::optional<CatalogEntry>> find(const AttemptKey&) override {
    return std::optional<CatalogEntry>();
  }
  Result<std::vector<CatalogEntry>> list() override { return std::vector<CatalogEntry>(); }
  Result<std::vector<FileEntry>> files(const AttemptKey&) override { return std::vector<FileEntry>(); }
  std::promise<void> entered, released;
};

TEST_F(CallWatchTest, ACatalogThatHangsIsToldByItsPath) {
  auto made = std::make_unique<HangingCatalog>();
  HangingCatalog& hanging = *made;
  const auto catalog = make_watched_catalog(std::move(made), "/run/catalog", watch);
  Status recorded(Code::internal, "not called");
  std::thread recording([&] { recorded = catalog->record(Decision{}); });
  hanging.entered.get_future().wait();
  EXPECT_THAT(lines_after(5),
              ElementsAre("storage: catalog write of /run/catalog has taken 5 s and has not returned"));
  EXPECT_EQ(watch.slow(8).at(0).what, "catalog write of /run/catalog");
  hanging.released.set_value();
  recording.join();
  EXPECT_OK(recorded);
  EXPECT_EQ(catalog->sync().message(), "the disk is gone");
  EXPECT_EQ(watch.oldest_ns(), 0);
  EXPECT_EQ(make_watched_catalog(nullptr, "/run/catalog", watch), nullptr) << "a job without one";
}

TEST_F(CallWatchTest, AStorageThatIsWatchedDoesWhatItDidBefore) {
  sim::MemoryFileSystem memory;
  WatchedFileSystem watched(memory, watch);
  auto storage = LocalStorage::open(watched, "/root", nonce_of(1));
  ASSERT_OK(storage.status());
  EXPECT_TRUE((*storage)->create_exclusive("a/b", as_view("one")).value());
  EXPECT_FALSE((*storage)->create_exclusive("a/b", as_view("two")).value());
  EXPECT_EQ((*storage)->read("a/b", 10).value(), Bytes(as_view("one").begin(), as_view("one").end()));
  EXPECT_OK((*storage)->sync_folder("a"));
  EXPECT_OK((*storage)->remove("a/b"));
  EXPECT_EQ((*storage)->list("a")->size(), 0u);
  EXPECT_THAT(lines, IsEmpty());
}

}  // namespace
}  // namespace shoal::storage
