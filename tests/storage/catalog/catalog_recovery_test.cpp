// A catalog that is damaged in any way, or missing, is built again from the root. No other file is ever
// replaced.
#include "storage/catalog/catalog_recovery.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "tests/storage/decisions/decision_samples.h"

namespace shoal::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Before = CatalogRebuild::Before;

const RootId kRun = nonce_of(77);
const AttemptKey kAborted = {1, 20, 1};
const std::vector<AttemptKey> kDecided = {{1, 10, 1}, kAborted, {1, 30, 1}, {2, 30, 1}};

std::vector<AttemptKey> keys_of(const std::vector<CatalogEntry>& entries) {
  std::vector<AttemptKey> keys;
  for (const CatalogEntry& entry : entries) keys.push_back(entry.key);
  return keys;
}

class CatalogRecovery : public ::testing::Test {
 protected:
  CatalogRecovery() {
    for (const AttemptKey& key : kDecided) {
      EXPECT_OK(
          publish_decision(*root_, key == kAborted ? sample_tombstone(key) : sample_manifest(key)).status());
    }
    EXPECT_OK(root_->create_exclusive("step-00000040/g2a1/x", as_view("undecided")).status());
  }
  Result<std::unique_ptr<Catalog>> open(const std::string& path, bool may_replace_others = false) {
    return open_sound_catalog(path, may_replace_others, kRun, *root_,
                              [this](const std::string& line) { warnings_.push_back(line); });
  }
  void expect_whole(Catalog& catalog) {
    auto listed = catalog.list();
    ASSERT_OK(listed.status());
    EXPECT_EQ(keys_of(*listed), kDecided);
    for (const AttemptKey& key : kDecided) {
      auto files = catalog.files(key);
      ASSERT_OK(files.status());
      EXPECT_EQ(files->size(), key == kAborted ? 0u : 4u);
    }
  }

  MemoryStorage root_;
  MemoryFolder folder_;
  const std::string path_ = folder_.path() + "/catalog";
  std::vector<std::string> warnings_;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct Harm {
  std::string name;
  std::function<void(const std::string& path)> inflict;
};

std::vector<Harm> harms_of(const std::string& path) {
  uint64_t bytes = fs::file_size(path);
  std::vector<Harm> harms = {{"removed", [](const std::string& file) { fs::remove(file); }},
                             {"emptied", [](const std::string& file) { fs::resize_file(file, 0); }}};
  if (bytes == 0) return harms;
  harms.push_back({"cut in half", [=](const std::string& file) { fs::resize_file(file, bytes / 2); }});
  harms.push_back({"cut by a byte", [=](const std::string& file) { fs::resize_file(file, bytes - 1); }});
  for (uint64_t eighth = 0; eighth < 8; ++eighth) {
    uint64_t at = (bytes - 1) * eighth / 7;
    harms.push_back({"bit flipped at " + std::to_string(at), [=](const std::string& file) {
                       std::string content = content_of(file);
                       content[at] = static_cast<char>(content[at] ^ 0x10);
                       write_file(file, content);
                     }});
  }
  return harms;
}

TEST_F(CatalogRecovery, GoesOnWithAnyFileOfTheCatalogRemovedCutOrFlipped) {
  const std::string sound = folder_.path() + "/sound";
  // Closing flushes to tables; what the second opening adds is copied from its log: both hold entries.
  ASSERT_OK((*open_rocksdb_catalog(sound, kRun))->record(sample_manifest(kDecided[0])));
  auto catalog = open(sound);
  ASSERT_OK(catalog.status());
  fs::copy(sound, path_ + ".model", fs::copy_options::recursive);
  (*catalog).reset();
  size_t tried = 0, warned = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(path_ + ".model")) {
    for (const Harm& harm : harms_of(file.path())) {
      SCOPED_TRACE(file.path().filename().string() + " " + harm.name);
      fs::remove_all(path_);
      fs::copy(path_ + ".model", path_, fs::copy_options::recursive);
      harm.inflict(path_ + "/" + file.path().filename().string());
      warnings_.clear();
      auto opened = open(path_);
      ASSERT_OK(opened.status());
      expect_whole(**opened);
      EXPECT_OK((*opened)->record(sample_manifest({3, 50, 1})));
      EXPECT_EQ((*opened)->files({3, 50, 1})->size(), 4u);
      EXPECT_LE(warnings_.size(), 1u);
      for (const std::string& line : warnings_) EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 0);
      ++tried;
      warned += warnings_.size();
    }
  }
  EXPECT_GT(tried, 60u);
  EXPECT_GT(warned, 10u);
}

TEST_F(CatalogRecovery, GoesOnWithoutAnyCatalog) {
  { ASSERT_OK(open(path_).status()); }
  fs::remove_all(path_);
  auto opened = open(path_);
  ASSERT_OK(opened.status());
  expect_whole(**opened);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CatalogRecovery, BelievesTheRootWhereTheCatalogSaysOtherwise) {
  {
    auto catalog = open_rocksdb_catalog(path_, kRun);
    ASSERT_OK(catalog.status());
    ASSERT_OK((*catalog)->record(sample_tombstone({1, 10, 1})));
  }
  auto opened = open(path_);
  ASSERT_OK(opened.status());
  expect_whole(**opened);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("another decision of"));
  EXPECT_TRUE(fs::exists(path_ + ".aside"));
}

// The root of a job that went on after a backup, and was then put back from it.
TEST_F(CatalogRecovery, NoticesARootPutBackFromAnOlderCopyAtTheFirstStart) {
  const AttemptKey later = {2, 31, 1};
  {
    auto catalog = open(path_);
    ASSERT_OK(catalog.status());
    ASSERT_OK((*catalog)->record(sample_tombstone({2, 50, 1})));
    ASSERT_OK((*catalog)->record(sample_manifest(later)));
  }
  {
    auto opened = open(path_);
    ASSERT_OK(opened.status());
    expect_whole(**opened);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr("restored from an older copy"));
    ASSERT_OK((*opened)->record(sample_tombstone(later))) << "the same key, another decision of this time";
    ASSERT_OK(publish_decision(*root_, sample_tombstone(later)).status());
  }
  auto again = open(path_);
  ASSERT_OK(again.status());
  EXPECT_EQ((*(*again)->find(later))->state, AttemptInfo::State::aborted);
  EXPECT_EQ(warnings_.size(), 1u) << "said once; now also: " << warnings_.back();
}

TEST_F(CatalogRecovery, KeepsOneDamagedCatalogAside) {
  for (int i = 0; i < 3; ++i) {
    { ASSERT_OK(open(path_).status()); }
    write_file(path_ + "/CURRENT", "nonsense");
  }
  ASSERT_OK(open(path_).status());
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_.path())) ++entries;
  EXPECT_EQ(entries, 2u) << "the catalog, and the last damaged one";
}

TEST_F(CatalogRecovery, TheJobGoesOnWhereNoCatalogCanBeMade) {
  auto opened = open("/proc/nothing/catalog");
  ASSERT_OK(opened.status());
  EXPECT_EQ(*opened, nullptr);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0],
              HasSubstr("the job continues without a catalog: catalog /proc/nothing/catalog: "));
}

// While it lives, no file grows beyond so many bytes: every write of RocksDB's own fails, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &limit_), 0);
    rlimit lower = {bytes, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &lower), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit_), 0);
    signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

// Regression: RocksDB wrote its log on after a failed write, and ended the node by an assertion.
TEST_F(CatalogRecovery, TheJobGoesOnWhereTheDiskOfTheCatalogIsFull) {
  for (bool is_there : {false, true}) {
    for (rlim_t bytes : {rlim_t{0}, rlim_t{16}}) {
      SCOPED_TRACE(std::to_string(bytes) + (is_there ? " bytes for a catalog that is there" : " bytes"));
      fs::remove_all(path_);
      fs::remove_all(path_ + ".aside");
      if (is_there) {
        ASSERT_OK(open(path_).status());
      }
      warnings_.clear();
      {
        FullDisk full(bytes);
        auto opened = open(path_);
        ASSERT_OK(opened.status());
        EXPECT_EQ(*opened, nullptr);
        EXPECT_FALSE(rebuild_catalog(path_, true, kRun, *root_).ok());
      }
      ASSERT_EQ(warnings_.size(), 1u);
      EXPECT_THAT(warnings_[0], HasSubstr("the job continues without a catalog: "));
      auto later = open(path_);
      ASSERT_OK(later.status());
      expect_whole(**later);
    }
  }
}

TEST_F(CatalogRecovery, NeverMovesWhatIsNoCatalog) {
  fs::create_directory(path_);
  write_file(path_ + "/CURRENT", "my notes on current affairs");
  write_file(path_ + "/thesis.txt", "the only copy");
  EXPECT_EQ(open(path_).status().code(), Code::refused);
  auto rebuilt = rebuild_catalog(path_, true, kRun, *root_);
  EXPECT_EQ(rebuilt.status().code(), Code::refused);
  EXPECT_THAT(rebuilt.status().message(), HasSubstr("thesis.txt"));
  EXPECT_EQ(content_of(path_ + "/thesis.txt"), "the only copy");

  const std::string file = folder_.path() + "/file";
  write_file(file, "a file");
  EXPECT_FALSE(open(file).ok());
  EXPECT_EQ(rebuild_catalog(file, true, kRun, *root_).status().code(), Code::refused);
  EXPECT_EQ(content_of(file), "a file");
}

TEST_F(CatalogRecovery, RebuildSaysWhatTheRootHolds) {
  ASSERT_OK(publish_decision(*root_, sample_manifest({2, 60, 1})).status());
  root_.files.flip_bit(decision_path({2, 60, 1}), 1000);
  auto report = rebuild_catalog(path_ + "/", false, kRun, *root_);
  ASSERT_OK(report.status());
  EXPECT_TRUE(report->before == Before::absent);
  EXPECT_EQ(keys_of(report->decided), kDecided);
  ASSERT_EQ(report->undecided.size(), 1u);
  EXPECT_EQ(report->undecided[0].key, (AttemptKey{2, 40, 1}));
  ASSERT_EQ(report->damaged.size(), 1u);
  EXPECT_EQ(report->damaged[0].first, (AttemptKey{2, 60, 1}));
  EXPECT_EQ(report->file_bytes, 3 * (4096u + 4106 + 4116 + 5000));
  auto catalog = open_rocksdb_catalog(path_, kRun);
  ASSERT_OK(catalog.status());
  expect_whole(**catalog);
}

TEST_F(CatalogRecovery, RebuildReplacesASoundADamagedAndAHalfRebuiltOne) {
  {
    auto catalog = open_rocksdb_catalog(path_, kRun);
    ASSERT_OK((*catalog)->record(sample_manifest({9, 9, 9})));
  }
  auto report = rebuild_catalog(path_, false, kRun, *root_);
  ASSERT_OK(report.status());
  EXPECT_TRUE(report->before == Before::sound);
  write_file(path_ + "/CURRENT", "nonsense");
  { ASSERT_OK(open_rocksdb_catalog(path_ + ".rebuild", nonce_of(5)).status()) << "a rebuild that died"; }
  report = rebuild_catalog(path_, false, kRun, *root_);
  ASSERT_OK(report.status());
  EXPECT_TRUE(report->before == Before::damaged);
  auto catalog = open_rocksdb_catalog(path_, kRun);
  ASSERT_OK(catalog.status());
  expect_whole(**catalog);
  EXPECT_FALSE(fs::exists(path_ + ".rebuild"));
  EXPECT_FALSE(fs::exists(path_ + ".replaced"));
}

TEST_F(CatalogRecovery, RebuildLeavesTheCatalogOfARunningNodeAlone) {
  auto catalog = open(path_);
  ASSERT_OK(catalog.status());
  auto report = rebuild_catalog(path_, true, kRun, *root_);
  EXPECT_EQ(report.status().code(), Code::busy) << report.status().to_string();
  expect_whole(**catalog);
}

TEST_F(CatalogRecovery, RebuildRefusesAnotherRunsCatalogUnlessItMay) {
  { ASSERT_OK(open_rocksdb_catalog(path_, nonce_of(78)).status()); }
  EXPECT_EQ(rebuild_catalog(path_, false, kRun, *root_).status().code(), Code::refused);
  EXPECT_EQ(open(path_).status().code(), Code::refused);
  auto report = rebuild_catalog(path_, true, kRun, *root_);
  ASSERT_OK(report.status());
  EXPECT_TRUE(report->before == Before::of_another_run);
  EXPECT_OK(open(path_).status());
}

}  // namespace
}  // namespace shoal::storage
