// The golden roots of every format version stay readable. The newest one equals what this program writes,
// byte for byte.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>

#include "storage/catalog/catalog.h"
#include "storage/decisions/record.h"
#include "storage/decisions/staged_record.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"
#include "tests/storage/golden_root.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<LocalStorage> open_golden(PosixFileSystem& files) {
  auto storage = LocalStorage::open(files, SHOAL_GOLDEN_FOLDER "/v1", random_128());
  SHOAL_CHECK(storage.ok());
  return std::move(storage).value();
}

// Every file under a folder by its path.
std::map<std::string, std::string> files_under(Storage& storage, const std::string& folder) {
  std::map<std::string, std::string> out;
  auto listed = storage.list(folder);
  SHOAL_CHECK(listed.ok());
  for (const ObjectInfo& object : *listed) {
    std::string path = folder.empty() ? object.name : folder + "/" + object.name;
    if (object.is_folder) {
      out.merge(files_under(storage, path));
    } else {
      out[path] = as_text(*storage.read(path, 1 << 24));
    }
  }
  return out;
}

TEST(GoldenV1, IsWhatThisProgramWrites) {
  PosixFileSystem posix;
  auto golden = files_under(*open_golden(posix), "");
  MemoryStorage memory;
  ASSERT_OK(write_golden_root(*memory));
  auto written = files_under(*memory, "");
  for (const auto& [path, bytes] : golden)
    EXPECT_TRUE(written.contains(path)) << path << " is no longer written";
  for (const auto& [path, bytes] : written) {
    EXPECT_TRUE(golden.contains(path)) << path << " is new";
    EXPECT_TRUE(golden[path] == bytes) << path << " has other bytes";
  }
}

TEST(GoldenV1, NamesItsRunEpochsAndGenerations) {
  PosixFileSystem posix;
  auto storage = open_golden(posix);
  EXPECT_EQ(open_root(*storage, false, {})->to_hex(), xxh3_128(as_view("root")).to_hex());
  auto epoch = highest_epoch(*storage);
  ASSERT_OK(epoch.status());
  EXPECT_EQ((*epoch)->epoch, 2u);
  EXPECT_EQ((*epoch)->address, "host-1:40002");
  auto generations = list_generations(*storage);
  ASSERT_OK(generations.status());
  ASSERT_EQ(generations->size(), 2u);
  EXPECT_EQ((*generations)[1].job_id, "job-2");
  auto roster = read_roster(*storage, 1);
  ASSERT_OK(roster.status());
  EXPECT_EQ(roster->world->roster.id(), golden_world()->roster.id());
  EXPECT_EQ(roster->options, kGoldenOptions);
  EXPECT_FALSE(read_load_choice(*storage, 1, 0)->found);
  EXPECT_EQ(read_load_choice(*storage, 2, 0)->key, (AttemptKey{1, 1, 1}));
}

TEST(GoldenV1, HasAttemptsInEveryState) {
  PosixFileSystem posix;
  auto storage = open_golden(posix);
  auto listed = list_attempts(*storage);
  ASSERT_OK(listed.status());
  EXPECT_TRUE(listed->damaged.empty());
  std::vector<std::pair<std::string, AttemptInfo::State>> seen;
  for (const AttemptInfo& info : listed->attempts) seen.emplace_back(to_string(info.key), info.state);
  using State = AttemptInfo::State;
  EXPECT_THAT(
      seen,
      ElementsAre(std::pair("step 1 (g1a1)", State::committed), std::pair("step 2 (g1a1)", State::aborted),
                  std::pair("step 3 (g1a1)", State::deleted), std::pair("step 4 (g2a1)", State::committed),
                  std::pair("step 5 (g2a2)", State::undecided)));
  auto staged = read_staged_record(*storage, {2, 5, 2}, 1);
  ASSERT_OK(staged.status());
  EXPECT_EQ(staged->layout_id, xxh3_128(as_view("layout")));
  EXPECT_EQ(staged->assignment_id, xxh3_128(as_view("share")));
  EXPECT_EQ(staged->user, (UserMetadata{{"run", "golden"}}));
  EXPECT_EQ(read_decision(*storage, {1, 2, 1})->tombstone().cause, "rank 2: host-2 was not heard for 60 s");
  auto catalog = make_memory_catalog();
  EXPECT_EQ(*catch_up(*catalog, *storage), 4u);
}

// Every piece of every file: it is where the plan says, its digests hold, and its bytes are the known ones.
TEST(GoldenV1, HoldsItsTensorsBitForBit) {
  PosixFileSystem posix;
  auto storage = open_golden(posix);
  for (AttemptKey key : {AttemptKey{1, 1, 1}, AttemptKey{2, 4, 1}}) {
    auto decision = read_decision(*storage, key);
    ASSERT_OK(decision.status());
    const Manifest& manifest = decision->manifest();
    ASSERT_OK(check_files_present(*storage, key, manifest.files));
    std::map<std::string, std::vector<Box>> boxes;
    for (const FileEntry& file : manifest.files) {
      auto reader =
          ShardReader::open(*storage, attempt_folder(key) + "/" + file.name, &file.header_digest, &file.size);
      ASSERT_OK(reader.status());
      for (size_t i = 0; i < (*reader)->pieces().size(); ++i) {
        const ShardPiece& piece = (*reader)->pieces()[i];
        Bytes bytes(piece.bytes);
        uint64_t first = 0, wrong = 0;
        ASSERT_OK((*reader)->read_verified(i, 0, piece.bytes, bytes, &first));
        uint64_t element_bytes = *dtype_bytes(piece.dtype);
        if (piece.is_object) {
          for (uint64_t k = 0; k < bytes.size(); ++k)
            wrong += bytes[k] != golden_byte(piece.fqn, piece.dtype, 0, k);
        } else {
          boxes[piece.fqn].push_back(piece.box);
          for_each_run(
              whole(piece.global_shape), piece.box, [&](uint64_t in_whole, uint64_t in_box, uint64_t count) {
                for (uint64_t b = 0; b < count * element_bytes; ++b) {
                  wrong +=
                      bytes[in_box * element_bytes + b] !=
                      golden_byte(piece.fqn, piece.dtype, in_whole + b / element_bytes, b % element_bytes);
                }
              });
        }
        EXPECT_EQ(wrong, 0u) << piece.fqn;
      }
    }
    for (const TensorMetadata& value : metadata_of(*decision).state_dict_metadata) {
      if (value.kind == LayoutEntry::Kind::object) continue;
      EXPECT_OK(check_tiling(boxes[value.fqn], value.shape)) << value.fqn;
    }
  }
}

// The same root by a program of the next format, one file at a time.
TEST(GoldenV1, AFileOfANewerFormatIsRefusedNamingBothVersions) {
  PosixFileSystem posix;
  const auto golden = files_under(*open_golden(posix), "");
  using Read = std::function<Status(Storage&)>;
  const AttemptKey key{1, 1, 1};
  const std::map<std::string, Read> readers = {
      {"ROOT_ID", [](Storage& storage) { return open_root(storage, false, {}).status(); }},
      {"epochs/2", [](Storage& storage) { return highest_epoch(storage).status(); }},
      {"generations/2",
       [](Storage& storage) { return claim_generation(storage, "job-2", nonce_of(1)).status(); }},
      {"generations/2.roster", [](Storage& storage) { return read_roster(storage, 2).status(); }},
      {"generations/2.load-0", [](Storage& storage) { return read_load_choice(storage, 2, 0).status(); }},
      {attempt_folder(key) + "/manifest.shoal",
       [&](Storage& storage) { return read_decision(storage, key).status(); }},
      {shard_path(key, 0, 0), [&](Storage& storage) {
         return ShardReader::open(storage, shard_path(key, 0, 0), nullptr, nullptr).status();
       }}};
  for (const auto& [path, read] : readers) {
    MemoryStorage storage;
    for (const auto& [name, text] : golden) {
      std::string bytes = text;
      if (name == path && path.ends_with(".safetensors")) {
        const std::string version = R"({\"version\":)";
        const size_t at = bytes.find(version);
        ASSERT_NE(at, std::string::npos);
        ASSERT_EQ(bytes[at + version.size()], '1');
        bytes[at + version.size()] = '2';
      } else if (name == path) {
        const RecordKind newer{std::string_view(text).substr(0, 8), "record", 2, uint64_t{1} << 30};
        bytes = as_text(*seal_record(newer, 1, as_view("what nobody knows yet")));
      }
      ASSERT_TRUE(*(*storage).create_exclusive(name, as_view(bytes)));
    }
    const Status status = read(*storage);
    EXPECT_EQ(status.code(), Code::version) << path;
    EXPECT_THAT(status.message(),
                ::testing::HasSubstr("this file has format 2, but this program reads only formats up to 1"))
        << path;
  }
}

}  // namespace
}  // namespace shoal::storage
