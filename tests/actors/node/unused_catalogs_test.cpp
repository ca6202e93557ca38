#include "actors/node/unused_catalogs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "actors/node/lock.h"
#include "tests/temporary_folder.h"

namespace shoal::actors {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class UnusedCatalogs : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void make(const std::string& name) {
    fs::create_directory(path(name));
    std::ofstream(path(name) + "/CURRENT") << "MANIFEST";
  }
  // Removes as a node of the root "own" does, `later` after now.
  std::vector<std::string> removed(std::chrono::hours later) {
    std::vector<std::string> out;
    const Status status = remove_unused_catalogs(folder_.path(), path("own.catalog"),
                                                 std::chrono::system_clock::now() + later, &out);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return out;
  }

  TemporaryFolder folder_;
};

TEST_F(UnusedCatalogs, OfOtherRootsGoAWeekAfterTheirLastChange) {
  for (const char* name : {"a.catalog", "a.catalog.aside", "b.catalog", "own.catalog", "own.catalog.aside"}) {
    make(name);
  }
  EXPECT_THAT(removed(kUnusedCatalogAge - std::chrono::hours(1)), IsEmpty());
  const auto later = kUnusedCatalogAge + std::chrono::hours(1);
  EXPECT_THAT(removed(later),
              UnorderedElementsAre(path("a.catalog"), path("a.catalog.aside"), path("b.catalog")));
  for (const char* name : {"a.catalog", "a.catalog.aside", "b.catalog", "a.catalog.unused"}) {
    EXPECT_FALSE(fs::exists(path(name))) << name;
  }
  EXPECT_TRUE(fs::exists(path("own.catalog/CURRENT")));
  EXPECT_TRUE(fs::exists(path("own.catalog.aside/CURRENT")));
  EXPECT_THAT(removed(later), IsEmpty());
}

TEST_F(UnusedCatalogs, WhoseFilesWereChangedLaterStay) {
  make("a.catalog");
  const auto later = kUnusedCatalogAge + std::chrono::hours(1);
  fs::last_write_time(path("a.catalog/CURRENT"), std::chrono::file_clock::now() + later);
  EXPECT_THAT(removed(later), IsEmpty());
}

TEST_F(UnusedCatalogs, OfARunningNodeStay) {
  make("a.catalog");
  {
    const auto lock = NodeLock::take(path("a.lock"), "/root");
    ASSERT_TRUE(lock.ok());
    EXPECT_THAT(removed(2 * kUnusedCatalogAge), IsEmpty());
    EXPECT_TRUE(fs::exists(path("a.catalog/CURRENT")));
  }
  EXPECT_THAT(removed(2 * kUnusedCatalogAge), UnorderedElementsAre(path("a.catalog")));
  EXPECT_TRUE(fs::exists(path("a.lock"))) << "a lock file is never removed";
}

TEST_F(UnusedCatalogs, ThatAKilledNodeHadTakenAwayGo) {
  make("a.catalog.unused");
  make("a.catalog");
  EXPECT_THAT(removed(2 * kUnusedCatalogAge), ::testing::Contains(path("a.catalog")));
  EXPECT_FALSE(fs::exists(path("a.catalog.unused")));
}

// The runtime folder also has sockets, logs, and whatever a user puts there.
TEST_F(UnusedCatalogs, AreFoldersAndNothingElseGoes) {
  make("notes");
  make(".catalog");
  std::ofstream(path("a.catalog")) << "a file";
  fs::create_directory_symlink(path("notes"), path("b.catalog"));
  EXPECT_THAT(removed(2 * kUnusedCatalogAge), IsEmpty());
  EXPECT_TRUE(fs::exists(path("notes/CURRENT")));
}

}  // namespace
}  // namespace shoal::actors
