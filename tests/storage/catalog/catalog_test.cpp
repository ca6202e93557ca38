#include "storage/catalog/catalog.h"

#include <gmock/gmock.h>
#include <rocksdb/db.h>

#include "tests/storage/decisions/decision_samples.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

// Every test of the contract runs on RocksDB and on its stand-in.
class CatalogContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    if (GetParam() == std::string("memory")) {
      if (catalog_ == nullptr) catalog_ = make_memory_catalog();
      return;
    }
    catalog_.reset();
    auto opened = open_rocksdb_catalog(folder_.path() + "/made/catalog", nonce_of(77));
    ASSERT_OK(opened.status());
    catalog_ = std::move(opened).value();
  }
  Catalog& catalog() { return *catalog_; }
  MemoryFolder folder_;
  std::unique_ptr<Catalog> catalog_;
};
INSTANTIATE_TEST_SUITE_P(On, CatalogContract, ::testing::Values("rocksdb", "memory"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST_P(CatalogContract, RemembersCheckpointsAcrossAReopening) {
  ASSERT_OK(catalog().record(sample_manifest({3, 1000, 1})));
  reopen();
  auto entry = catalog().find({3, 1000, 1});
  ASSERT_OK(entry.status());
  ASSERT_TRUE(entry->has_value());
  EXPECT_EQ((*entry)->key, (AttemptKey{3, 1000, 1}));
  EXPECT_EQ((*entry)->state, AttemptInfo::State::committed);
  EXPECT_EQ((*entry)->payload_bytes, 1234u);
  EXPECT_EQ((*entry)->files, 4u);
  EXPECT_EQ((*entry)->world_size, 4u);
  EXPECT_EQ((*entry)->unix_time_ns, 1'700'000'000'000'000'000);
  auto files = catalog().files({3, 1000, 1});
  ASSERT_OK(files.status());
  ASSERT_EQ(files->size(), 4u);
  EXPECT_EQ((*files)[1].name, "rank-00001.safetensors");
  EXPECT_EQ((*files)[1].header_digest, nonce_of(101));
  EXPECT_EQ(std::get<1>((*files)[3].contents)[0].box, (Box{{6, 0}, {2, 3}}));
}

TEST_P(CatalogContract, KnowsNothingOfOtherAttempts) {
  ASSERT_OK(catalog().record(sample_manifest({3, 1000, 1})));
  EXPECT_FALSE(catalog().find({3, 1000, 2})->has_value());
  EXPECT_TRUE(catalog().files({3, 1000, 2})->empty());
}

TEST_P(CatalogContract, ListsByGenerationThenAttemptThenStep) {
  std::vector<AttemptKey> keys = {{1, 300, 1}, {2, 5, 1}, {2, 256, 1}, {2, 5, 2}, {256, 1, 1}};
  for (size_t i : {3, 0, 4, 2, 1}) ASSERT_OK(catalog().record(sample_tombstone(keys[i])));
  auto listed = catalog().list();
  ASSERT_OK(listed.status());
  std::vector<AttemptKey> seen;
  for (const CatalogEntry& entry : *listed) seen.push_back(entry.key);
  EXPECT_EQ(seen, keys);
  EXPECT_EQ(listed->front().cause, "rank 2: the disk is full");
  EXPECT_EQ(listed->front().state, AttemptInfo::State::aborted);
}

TEST_P(CatalogContract, RecordsTheSameDecisionAgainWithoutChange) {
  ASSERT_OK(catalog().record(sample_manifest()));
  ASSERT_OK(catalog().record(sample_manifest()));
  EXPECT_EQ(catalog().list()->size(), 1u);
  EXPECT_EQ(catalog().files({3, 1000, 1})->size(), 4u);
}

TEST_P(CatalogContract, ForgetsTheFilesOfWhatWasDeleted) {
  ASSERT_OK(catalog().record(sample_manifest({3, 1000, 1})));
  ASSERT_OK(catalog().record(sample_manifest({3, 1000, 2})));
  ASSERT_OK(catalog().record(sample_tombstone({3, 1000, 1}, 1, Tombstone::Reason::deleted)));
  EXPECT_EQ((*catalog().find({3, 1000, 1}))->state, AttemptInfo::State::deleted);
  EXPECT_TRUE(catalog().files({3, 1000, 1})->empty());
  EXPECT_EQ(catalog().files({3, 1000, 2})->size(), 4u);
}

TEST_P(CatalogContract, ForgetsAnAttemptAndItsFilesAndNothingElse) {
  for (uint32_t attempt : {1, 2, 3}) ASSERT_OK(catalog().record(sample_manifest({3, 1000, attempt})));
  ASSERT_OK(catalog().forget({3, 1000, 2}));
  ASSERT_OK(catalog().forget({3, 999, 1})) << "it does not know this one";
  EXPECT_EQ(*catalog().find({3, 1000, 2}), std::nullopt);
  EXPECT_TRUE(catalog().files({3, 1000, 2})->empty());
  EXPECT_EQ(catalog().list()->size(), 2u);
  for (uint32_t attempt : {1, 3}) EXPECT_EQ(catalog().files({3, 1000, attempt})->size(), 4u);
  ASSERT_OK(catalog().record(sample_tombstone({3, 1000, 2})));
  EXPECT_EQ((*catalog().find({3, 1000, 2}))->state, AttemptInfo::State::aborted) << "as if it were new";
}

TEST_P(CatalogContract, RefusesToUnmakeADecision) {
  ASSERT_OK(catalog().record(sample_manifest()));
  Status status = catalog().record(sample_tombstone());
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_EQ(status.message(), "the catalog already holds another decision of step 1000 (g3a1)");
  EXPECT_TRUE((*catalog().find({3, 1000, 1}))->state == AttemptInfo::State::committed) << "and goes on";
}

TEST_P(CatalogContract, CatchesUpWithTheRoot) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest({1, 10, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_tombstone({1, 20, 1})).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({1, 30, 1})).status());
  ASSERT_OK(memory->create_exclusive("step-00000040/g1a1/x", as_view("undecided")).status());
  ASSERT_OK(publish_decision(*memory, sample_manifest({1, 50, 1})).status());
  memory.files.flip_bit(decision_path({1, 50, 1}), 1000);
  ASSERT_OK(catalog().record(sample_manifest({1, 10, 1})));
  auto recorded = catch_up(catalog(), *memory);
  ASSERT_OK(recorded.status());
  EXPECT_EQ(*recorded, 2u);
  EXPECT_EQ(catalog().list()->size(), 3u);
  EXPECT_EQ(*catch_up(catalog(), *memory), 0u);
}

TEST(RocksDbCatalog, BelongsToOneRun) {
  MemoryFolder folder;
  ASSERT_OK(open_rocksdb_catalog(folder.path(), nonce_of(77)).status());
  Status status = open_rocksdb_catalog(folder.path(), nonce_of(78)).status();
  EXPECT_EQ(status.code(), Code::refused);
  EXPECT_THAT(status.message(),
              HasSubstr(folder.path() + ": it belongs to the run " + nonce_of(77).to_hex()));
  EXPECT_OK(open_rocksdb_catalog(folder.path(), nonce_of(77)).status());
}

TEST(RocksDbCatalog, OfANewerFormatIsRefusedNamingBothVersions) {
  MemoryFolder folder;
  ASSERT_OK(open_rocksdb_catalog(folder.path(), nonce_of(77)).status());
  std::vector<std::string> names;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, folder.path(), &names).ok());
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) families.emplace_back(name, rocksdb::ColumnFamilyOptions());
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, folder.path(), families, &handles, &opened).ok());
  const std::unique_ptr<rocksdb::DB> db(opened);
  ASSERT_TRUE(db->Put({}, handles[0], "format", rocksdb::Slice("\0\0\0\2", 4)).ok());
  for (rocksdb::ColumnFamilyHandle* handle : handles) ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  ASSERT_TRUE(db->Close().ok());
  const Status status = open_rocksdb_catalog(folder.path(), nonce_of(77)).status();
  EXPECT_EQ(status.code(), Code::version);
  EXPECT_THAT(status.message(), HasSubstr("it has format 2, but this program reads only formats up to 1"));
}

TEST(RocksDbCatalog, IsOpenInOneProcessOnly) {
  MemoryFolder folder;
  auto first = open_rocksdb_catalog(folder.path(), nonce_of(77));
  ASSERT_OK(first.status());
  Status status = open_rocksdb_catalog(folder.path(), nonce_of(77)).status();
  EXPECT_EQ(status.code(), Code::busy) << status.to_string();
}

TEST(RocksDbCatalog, SaysThatItsFolderCannotBeMade) {
  Status status = open_rocksdb_catalog("/proc/nothing/catalog", nonce_of(77)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("catalog /proc/nothing/catalog: cannot make the folder"));
}

TEST(CatchUp, ForgetsWhatWasDeletedBehindItsBack) {
  MemoryStorage memory;
  auto catalog = make_memory_catalog();
  for (uint64_t step : {10u, 20u})
    ASSERT_OK(publish_decision(*memory, sample_manifest({1, step, 1})).status());
  EXPECT_EQ(*catch_up(*catalog, *memory), 2u);
  ASSERT_OK(memory->remove(decision_path({1, 10, 1})));
  ASSERT_OK(memory->remove_folder(attempt_folder({1, 10, 1})));
  EXPECT_EQ(*catch_up(*catalog, *memory), 1u);
  EXPECT_EQ(*catalog->find({1, 10, 1}), std::nullopt);
  EXPECT_EQ((*catalog->find({1, 20, 1}))->state, AttemptInfo::State::committed);
  EXPECT_EQ(*catch_up(*catalog, *memory), 0u);
}

// Regression: an entry for each deleted checkpoint stayed, so that the catalog grew for as long as a run.
TEST(CatchUp, ForgetsDeletedAttemptsOfWhichNothingIsLeft) {
  MemoryStorage memory;
  auto catalog = make_memory_catalog();
  for (uint64_t step : {10u, 20u}) {
    const auto deleted = sample_tombstone({1, step, 1}, 1, Tombstone::Reason::deleted);
    ASSERT_OK(catalog->record(deleted));
    if (step == 20) {
      ASSERT_OK(publish_decision(*memory, deleted).status());
    }
  }
  EXPECT_EQ(*catch_up(*catalog, *memory), 1u);
  ASSERT_EQ(catalog->list()->size(), 1u);
  EXPECT_EQ(catalog->list()->front().key, (AttemptKey{1, 20, 1}));
}

}  // namespace
}  // namespace shoal::storage
