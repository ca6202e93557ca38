#include "actors/node/unused_catalogs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "storage/catalog/catalog.h"
#include "tests/temporary_folder.h"

namespace shoal::actors {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kOwn = "0123456789abcdef", kOther = "aaaaaaaaaaaaaaaa", kThird = "00112233445566ff";
constexpr auto kMuchLater = 2 * kUnusedCatalogAge;

class UnusedCatalogs : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::unique_ptr<storage::Catalog> open(const std::string& name) {
    auto opened = storage::open_rocksdb_catalog(path(name), RootId{});
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return opened.ok() ? std::move(*opened) : nullptr;
  }
  void make(const std::string& name) { open(name).reset(); }
  // Removes as the node of the root kOwn does, `later` after now.
  std::vector<std::string> removed(std::chrono::hours later) {
    std::vector<std::string> out;
    const Status status = remove_unused_catalogs(folder_.path(), path(kOwn + ".catalog"),
                                                 std::chrono::system_clock::now() + later, &out);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return out;
  }

  TemporaryFolder folder_;
};

TEST_F(UnusedCatalogs, OfOtherRootsGoWhenNobodyChangedThemForLong) {
  for (const std::string& name : {kOther + ".catalog", kOther + ".catalog.aside", kThird + ".catalog.rebuild",
                                  kOwn + ".catalog", kOwn + ".catalog.aside"}) {
    make(name);
  }
  EXPECT_THAT(removed(kUnusedCatalogAge - std::chrono::hours(1)), IsEmpty());
  EXPECT_THAT(removed(kMuchLater),
              UnorderedElementsAre(path(kOther + ".catalog"), path(kOther + ".catalog.aside"),
                                   path(kThird + ".catalog.rebuild")));
  size_t left = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_TRUE(entry.path().filename().string().starts_with(kOwn)) << entry.path();
    ++left;
  }
  EXPECT_EQ(left, 2u);
}

TEST_F(UnusedCatalogs, WhoseFilesWereChangedLaterStay) {
  make(kOther + ".catalog");
  fs::last_write_time(path(kOther + ".catalog/CURRENT"), std::chrono::file_clock::now() + kMuchLater);
  EXPECT_THAT(removed(kMuchLater), IsEmpty());
}

// Also one that a node opened by --catalog, whose lock file has another name.
TEST_F(UnusedCatalogs, ThatAreOpenStay) {
  auto opened = open(kOther + ".catalog");
  EXPECT_THAT(removed(kMuchLater), IsEmpty());
  EXPECT_TRUE(opened->list().ok());
  opened.reset();
  EXPECT_THAT(removed(kMuchLater), UnorderedElementsAre(path(kOther + ".catalog")));
}

TEST_F(UnusedCatalogs, ThatAnInterruptedRemovalHasLeftGo) {
  make(kOther + ".catalog.unused");
  EXPECT_THAT(removed(kMuchLater), Contains(path(kOther + ".catalog.unused")));
  make(kOther + ".catalog.unused");
  make(kOther + ".catalog");
  EXPECT_THAT(removed(kMuchLater), Contains(path(kOther + ".catalog")));
  EXPECT_THAT(removed(kMuchLater), IsEmpty());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

// A runtime folder may have whatever a user puts there. Regression: a folder was removed because of the end
// of its name.
TEST_F(UnusedCatalogs, AreCatalogsAndNothingElseGoes) {
  make("products.catalog");
  make(kOther + "0.catalog");
  make(kOther + ".catalogs");
  make(kThird + ".catalog");
  std::ofstream(path(kThird + ".catalog/notes.txt")) << "mine";
  fs::create_directory_symlink(path("products.catalog"), path(kOther + ".catalog"));
  std::ofstream(path("bbbbbbbbbbbbbbbb.catalog")) << "a file";
  EXPECT_THAT(removed(kMuchLater), IsEmpty());
  EXPECT_TRUE(fs::exists(path(kThird + ".catalog/notes.txt")));
  EXPECT_TRUE(fs::exists(path("products.catalog/CURRENT")));
}

}  // namespace
}  // namespace shoal::actors
