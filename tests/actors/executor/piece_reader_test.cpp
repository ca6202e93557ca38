// Pieces with alternates: a damaged or missing piece is read from another copy, and reported.
#include "actors/executor/piece_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <new>

#include "actors/executor/operation_runner.h"
#include "base/digest/digest.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/test_support.h"

namespace shoal::actors {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kBytes = 3 * base::kDigestBlockBytes / 2;  // a block and a half
const Box kBox{{0, 0}, {kBytes / 1024, 256}};

// Three ranks that have written the same weight and the same object, besides something of their own, so that
// the same bytes lie elsewhere in each file.
class CopiedPieces : public ::testing::Test {
 protected:
  void SetUp() override {
    weight_ = storage::random_bytes(kBytes, 1);
    object_ = storage::random_bytes(100, 2);
    for (Rank rank = 0; rank < 3; ++rank) write(rank, weight_);
  }
  void write(Rank rank, const Bytes& weight) {
    const Bytes own(4096 * (rank + 1));
    std::vector<storage::ShardPiece> pieces = {
        {"own", "own", DType::f32, false, {own.size() / 4}, {{0}, {own.size() / 4}}, own.size()},
        {"w", "w", DType::f32, false, {4096, 256}, kBox, kBytes},
        {"o", "o", DType::u8, true, {}, {}, object_.size()}};
    auto written = storage::write_shard(*storage_, kFolder + shard_file_name(rank, 0),
                                        storage::nonce_of(rank), pieces, {own, weight, object_});
    ASSERT_OK(written.status());
    place_[rank] = {rank, shard_file_name(rank, 0), written->size, written->header_digest, ""};
    weight_at_[rank] = written->size - object_.size() - kBytes;
  }
  operation::PiecePlace place(Rank rank, const std::string& key) const {
    operation::PiecePlace place = place_[rank];
    place.piece_key = key;
    return place;
  }
  std::shared_ptr<const operation::PieceRef> weight(std::vector<Rank> copies) const {
    operation::PieceRef ref{place(0, "w"), kKey, "w", LayoutEntry::Kind::tensor, DType::f32, kBox, {}};
    for (Rank rank : copies) ref.copies.push_back(place(rank, "w"));
    return std::make_shared<const operation::PieceRef>(ref);
  }
  std::shared_ptr<const operation::PieceRef> object(std::vector<Rank> copies) const {
    operation::PieceRef ref{place(0, "o"), kKey, "o", LayoutEntry::Kind::object, DType::u8, {}, {}};
    for (Rank rank : copies) ref.copies.push_back(place(rank, "o"));
    return std::make_shared<const operation::PieceRef>(ref);
  }
  void damage_weight(Rank rank, uint64_t byte) {
    storage_.files.flip_bit(kFolder + shard_file_name(rank, 0), 8 * (weight_at_[rank] + byte) + 3);
  }
  void damage_header(Rank rank) { storage_.files.flip_bit(kFolder + shard_file_name(rank, 0), 8 * 2000); }
  // Reads all of a piece with a reader that knows nothing yet.
  Status read(const std::shared_ptr<const operation::PieceRef>& piece, uint64_t bytes) {
    got_ = Bytes(bytes + 7);
    found_ = {};
    return PieceReader(*storage_).read({piece, 0, bytes, 7}, got_, &found_);
  }
  void expect_bytes(const Bytes& expected) {
    ASSERT_EQ(got_.size(), expected.size() + 7);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got_.begin() + 7));
  }

  storage::MemoryStorage storage_;
  Bytes weight_, object_;
  operation::PiecePlace place_[3];
  uint64_t weight_at_[3] = {};
  Bytes got_;
  DamageList found_;
};

// A storage whose files cannot be opened for want of memory, as often as `fails` says.
class ShortOfMemory : public storage::Storage {
 public:
  explicit ShortOfMemory(storage::Storage& below) : below_(below) {}
  int fails = 0;
  std::function<void()> on_open = [] {};
  std::string describe() const override { return below_.describe(); }
  Result<bool> create_exclusive(const std::string& path, ByteView data) override {
    return below_.create_exclusive(path, data);
  }
  Result<bool> create_in_folder(const std::string& path, ByteView data) override {
    return below_.create_in_folder(path, data);
  }
  Status replace(const std::string& path, ByteView data) override { return below_.replace(path, data); }
  Result<Bytes> read(const std::string& path, uint64_t bytes_max) override {
    return below_.read(path, bytes_max);
  }
  Result<std::unique_ptr<storage::ReadFile>> open(const std::string& path) override {
    on_open();
    if (fails-- > 0) throw std::bad_alloc();
    return below_.open(path);
  }
  Result<std::unique_ptr<storage::WriteFile>> create(const std::string& path, const Nonce& nonce,
                                                     uint64_t bytes_expected) override {
    return below_.create(path, nonce, bytes_expected);
  }
  Result<std::vector<storage::ObjectInfo>> list(const std::string& folder) override {
    return below_.list(folder);
  }
  Status remove(const std::string& path) override { return below_.remove(path); }
  Status remove_folder(const std::string& path) override { return below_.remove_folder(path); }
  Status move_folder(const std::string& path, const std::string& name) override {
    return below_.move_folder(path, name);
  }
  Status sync_folder(const std::string& folder) override { return below_.sync_folder(folder); }

 private:
  storage::Storage& below_;
};

// Otherwise whoever reads the shard next waits for ever.
TEST_F(CopiedPieces, MayBeOpenedAgainAfterMemoryWasShort) {
  ShortOfMemory storage(*storage_);
  PieceReader reader(storage);
  Bytes into(kBytes);
  auto read_weight = [&] { return reader.read({weight({}), 0, kBytes, 0}, into, &found_); };
  storage.fails = 1;
  EXPECT_THROW((void)read_weight(), std::bad_alloc);
  auto again = std::async(std::launch::async, read_weight);
  ASSERT_EQ(again.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_OK(again.get());
}

class NoSlabs final : public Slabs {
 public:
  Result<View> find(ClientId, uint32_t) override { return Status(Code::not_found, "no slab"); }
  Status release(ClientId, uint32_t) override { return ok_status(); }
};

// Retention may delete the checkpoint then, and an open file keeps its space on disk.
TEST_F(CopiedPieces, OfALoadThatWasAbandonedMeanwhileDoNotStayOpen) {
  ShortOfMemory storage(*storage_);
  NoSlabs slabs;
  OperationRunner runner(storage, nullptr, slabs, RootId(),
                         {[] { return Nonce(); }, [] { return int64_t{0}; }});
  operation::LocateRanges locate{kClient, {}};
  for (Rank rank : {0, 1}) {
    operation::PieceRef ref{place(rank, "w"), kKey, "w", LayoutEntry::Kind::tensor, DType::f32, kBox, {}};
    locate.ranges.push_back({std::make_shared<const operation::PieceRef>(ref), 0, kBytes, 0});
  }
  int opens = 0;
  storage.on_open = [&] {
    if (++opens == 2) {
      ASSERT_OK(runner.run(operation::RemovePin{"", kKey}).status());  // the trainer of the load has ended
    }
  };
  ASSERT_OK(runner.run(locate).status());
  ASSERT_OK(runner.run(locate).status());
  EXPECT_EQ(opens, 4) << "neither file was still open";
  ASSERT_OK(runner.run(locate).status());
  EXPECT_EQ(opens, 4) << "a load that goes on keeps them open";
}

TEST_F(CopiedPieces, ThatAreWholeAreReadFromTheirOwnFiles) {
  ASSERT_OK(read(weight({1, 2}), kBytes));
  expect_bytes(weight_);
  EXPECT_EQ(found_.count, 0u);
}

TEST_F(CopiedPieces, GiveABlockThatIsDamagedFromTheFirstCopyThatHasIt) {
  damage_weight(0, base::kDigestBlockBytes + 9);
  damage_weight(1, base::kDigestBlockBytes + 9);
  ASSERT_OK(read(weight({1, 2}), kBytes));
  expect_bytes(weight_);
  ASSERT_EQ(found_.count, 1u);
  const ReadDamage& damage = found_.named.at(0);
  EXPECT_EQ(damage.fqn, "w");
  EXPECT_EQ(damage.box, kBox);
  EXPECT_EQ(damage.rank, 0u);
  EXPECT_EQ(damage.file, std::string(kFolder) + "rank-00000.safetensors");
  EXPECT_EQ(damage.begin, weight_at_[0] + base::kDigestBlockBytes);
  EXPECT_EQ(damage.end, weight_at_[0] + kBytes);
  EXPECT_THAT(damage.cause, HasSubstr("block 1 of 'w' differs from its digest"));
  EXPECT_EQ(damage.read_instead, std::string(kFolder) + "rank-00002.safetensors");
  EXPECT_THAT(to_string(damage), AllOf(HasSubstr("'w' [0:1536, 0:256] of rank 0 is damaged in"),
                                       HasSubstr("the load read step-00000003/g1a1/rank-00002.safetensors")));
}

// Regression: a record a block, so that a lost file filled the list and hid all other damage.
TEST_F(CopiedPieces, ThatLieInALostFileAreOneRecordOfIt) {
  ASSERT_OK(storage_->remove(kFolder + shard_file_name(0, 0)));
  PieceReader reader(*storage_);
  Bytes out(kBytes + 100);
  DamageList all;
  for (int again = 0; again < 2; ++again) {
    DamageList damage;
    ASSERT_OK(reader.read({weight({1}), 0, kBytes, 0}, out, &damage));
    ASSERT_OK(reader.read({object({1}), 0, 100, kBytes}, out, &damage));
    EXPECT_EQ(damage.count, 1u);
    EXPECT_EQ(all.add(std::move(damage)).size(), again == 0 ? 1u : 0u) << "it is known";
  }
  ASSERT_EQ(all.count, 1u);
  EXPECT_EQ(all.named.at(0).fqn, "w");
  EXPECT_EQ(all.named.at(0).bytes, 2 * (kBytes + 100));
  EXPECT_THAT(to_string(all.named.at(0)),
              HasSubstr("as is the rest of that file; the load needed 3.00 MiB of it"));
}

TEST_F(CopiedPieces, OfWhichBlocksThatFollowEachOtherAreDamagedAreOneRecord) {
  damage_weight(0, 5);
  damage_weight(0, base::kDigestBlockBytes + 5);
  ASSERT_OK(read(weight({1}), kBytes));
  ASSERT_EQ(found_.count, 1u);
  const ReadDamage& damage = found_.named.at(0);
  EXPECT_EQ(damage.begin, weight_at_[0]);
  EXPECT_EQ(damage.end, weight_at_[0] + kBytes);
  EXPECT_EQ(damage.bytes, kBytes);
  EXPECT_THAT(damage.cause, HasSubstr("block 0 of 'w' differs from its digest"));
}

TEST(DamageLists, JoinWhatIsOfOneCauseInAnyOrderAndNothingElse) {
  const auto block = [](uint64_t number, const std::string& why) {
    return ReadDamage{
        "x",    Box{}, 7, "file", number * 10, number * 10 + 10, "block " + std::to_string(number) + why,
        "copy", 10};
  };
  DamageList list;
  EXPECT_TRUE(list.add(block(5, " differs")));
  EXPECT_FALSE(list.add(block(4, " differs")));
  EXPECT_TRUE(list.add(block(8, " differs")));
  EXPECT_TRUE(list.add(block(6, " cannot be read")));
  ReadDamage elsewhere = block(9, " differs");
  elsewhere.file = "another";
  EXPECT_TRUE(list.add(elsewhere));
  EXPECT_EQ(list.count, 4u);
  EXPECT_EQ(list.named[0].begin, 40u);
  EXPECT_EQ(list.named[0].end, 60u);
  EXPECT_EQ(list.named[0].cause, "block 4 differs");
}

TEST_F(CopiedPieces, AreWholeTogetherWhereEachFileIsDamagedElsewhere) {
  damage_weight(0, 0);
  damage_weight(1, base::kDigestBlockBytes);
  ASSERT_OK(read(weight({1}), kBytes));
  expect_bytes(weight_);
  EXPECT_EQ(found_.count, 1u);
}

TEST_F(CopiedPieces, AreReadWhereTheFileItselfIsGoneOrItsHeaderDamaged) {
  damage_header(0);
  ASSERT_OK(read(weight({1}), kBytes));
  expect_bytes(weight_);
  EXPECT_EQ(found_.count, 1u) << "of the file";
  EXPECT_EQ(found_.named.at(0).end, 0u) << "where in the file, nobody can say";
  EXPECT_THAT(found_.named.at(0).cause, HasSubstr("the header differs from its digest"));
  ASSERT_OK(storage_->remove(kFolder + shard_file_name(0, 0)));
  ASSERT_OK(read(object({1}), object_.size()));
  expect_bytes(object_);
  EXPECT_EQ(found_.count, 1u);
  EXPECT_EQ(*PieceReader(*storage_).measure(*object({1})), object_.size());
  EXPECT_EQ(PieceReader(*storage_).measure(*object({})).status().code(), Code::not_found);
}

TEST_F(CopiedPieces, AreLocatedByTheHeadersOfTheirOwnFiles) {
  PieceReader reader(*storage_);
  const auto located = reader.locate({{weight({1}), base::kDigestBlockBytes, kBytes}, {object({1}), 0, 100}});
  EXPECT_EQ(located.files, std::vector<std::string>{std::string(kFolder) + shard_file_name(0, 0)});
  ASSERT_EQ(located.places.size(), 2u);
  EXPECT_EQ(located.places[0].file, 0u);
  EXPECT_EQ(located.places[0].offset, weight_at_[0] + base::kDigestBlockBytes);
  EXPECT_EQ(located.places[1].offset, weight_at_[0] + kBytes);
  EXPECT_EQ(located.digests,
            (std::vector<uint64_t>{base::block_digest(ByteView(weight_).subspan(base::kDigestBlockBytes)),
                                   base::block_digest(object_)}));
}

TEST_F(CopiedPieces, WithoutAHeaderOrOutOfBoundsHaveNoPlace) {
  PieceReader reader(*storage_);
  damage_header(1);
  operation::PieceRef other = *weight({0});
  static_cast<operation::PiecePlace&>(other) = place(1, "w");
  const auto damaged = std::make_shared<const operation::PieceRef>(other);
  const auto located = reader.locate({{damaged, 0, kBytes},
                                      {weight({}), 0, kBytes + 1},
                                      {weight({}), 1, kBytes},
                                      {weight({}), 0, 7},
                                      {weight({}), base::kDigestBlockBytes, 0},
                                      {weight({}), 0, kBytes}});
  for (size_t i = 0; i < 5; ++i) EXPECT_FALSE(located.places[i].file) << i;
  EXPECT_TRUE(located.places[5].file);
  EXPECT_EQ(located.digests.size(), 2u);
}

TEST_F(CopiedPieces, AreHeldAgainstAHeaderThatCameFromElsewhereWithoutTheFile) {
  const Bytes header = *PieceReader(*storage_).read_header(*weight({}), kMaxPassedHeaderBytes);
  EXPECT_EQ(xxh3_128(header), place_[0].header_digest);
  PieceReader reader(*storage_);
  ASSERT_OK(reader.take_header(*weight({}), header));
  const std::string path = kFolder + shard_file_name(0, 0);
  ASSERT_OK(storage_->remove(path));
  EXPECT_OK(reader.check({weight({}), 0, kBytes, 0}, weight_));
  EXPECT_EQ(*reader.measure(*object({})), object_.size());
  Bytes wrong = weight_;
  wrong[3] ^= std::byte{16};
  EXPECT_EQ(reader.check({weight({}), 0, kBytes, 0}, wrong).code(), Code::corrupt);
  Bytes out(kBytes);
  DamageList damage;
  EXPECT_EQ(reader.read({weight({}), 0, kBytes, 0}, out, &damage).code(), Code::not_found);
  ASSERT_OK(reader.read({weight({1}), 0, kBytes, 0}, out, &damage)) << "of a copy, as that header states it";
  EXPECT_EQ(out, weight_);
}

TEST_F(CopiedPieces, OfWhichNoFileIsThereAreNotMeasuredAndTheCopiesAreNamed) {
  for (Rank rank = 0; rank < 3; ++rank) ASSERT_OK(storage_->remove(kFolder + shard_file_name(rank, 0)));
  const Status status = PieceReader(*storage_).measure(*object({1, 2})).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr("'o', written by rank 0"), HasSubstr("rank-00000.safetensors"),
            HasSubstr("the copy of rank 1 cannot be used either: "), HasSubstr("rank-00001.safetensors"),
            HasSubstr("the copy of rank 2 cannot be used either: ")));
}

TEST_F(CopiedPieces, AreReadByAHeaderThatCameFromElsewhere) {
  const Bytes header = *PieceReader(*storage_).read_header(*weight({}), kMaxPassedHeaderBytes);
  damage_header(0);
  PieceReader reader(*storage_);
  ASSERT_OK(reader.take_header(*weight({}), header));
  Bytes out(kBytes);
  DamageList damage;
  ASSERT_OK(reader.read({weight({}), 0, kBytes, 0}, out, &damage));
  EXPECT_EQ(out, weight_);
  storage_.files.resize(kFolder + shard_file_name(0, 0), place_[0].file_size + 1);
  PieceReader other(*storage_);
  ASSERT_OK(other.take_header(*weight({}), header));
  EXPECT_THAT(other.read({weight({}), 0, kBytes, 0}, out, &damage).message(), HasSubstr("are expected"));
}

TEST_F(CopiedPieces, TakeNoHeaderThatTheManifestDoesNotVouchFor) {
  const Bytes header = *PieceReader(*storage_).read_header(*weight({}), kMaxPassedHeaderBytes);
  damage_header(0);
  PieceReader reader(*storage_);
  for (size_t byte : {size_t{0}, size_t{9}, header.size() / 2, header.size() - 1}) {
    Bytes wrong = header;
    wrong[byte] ^= std::byte{1};
    EXPECT_EQ(reader.take_header(*weight({}), wrong).code(), Code::corrupt) << byte;
  }
  EXPECT_EQ(reader.take_header(*weight({}), ByteView(header).first(7)).code(), Code::corrupt);
  EXPECT_EQ(reader.take_header(*weight({}), ByteView(header).first(header.size() - 1)).code(), Code::corrupt);
  EXPECT_EQ(reader.take_header(*weight({}), {}).code(), Code::corrupt);
  operation::PieceRef of_another_rank = *weight({});
  static_cast<operation::PiecePlace&>(of_another_rank) = place(1, "w");
  EXPECT_EQ(reader.take_header(of_another_rank, header).code(), Code::corrupt);
  EXPECT_EQ(reader.check({weight({}), 0, kBytes, 0}, weight_).code(), Code::corrupt)
      << "none of them is kept";
}

TEST_F(CopiedPieces, PassOnNoHeaderThatIsTooLong) {
  EXPECT_EQ(PieceReader(*storage_).read_header(*weight({}), 4095).status().code(), Code::too_large);
}

TEST_F(CopiedPieces, ThatComeFromElsewhereAreHeldAgainstTheHeaderOfTheirFile) {
  damage_weight(0, 5);  // which does not matter: no more than headers are read
  PieceReader reader(*storage_);
  EXPECT_OK(reader.check({weight({}), 0, kBytes, 0}, weight_));
  const ByteView second = ByteView(weight_).subspan(base::kDigestBlockBytes);
  EXPECT_OK(reader.check({weight({}), base::kDigestBlockBytes, kBytes, 0}, second));
  EXPECT_OK(reader.check({object({}), 0, object_.size(), 0}, object_));
  EXPECT_EQ(reader.check({weight({}), 0, kBytes + 1, 0}, weight_).code(), Code::corrupt);
  Bytes wrong = weight_;
  wrong[base::kDigestBlockBytes + 3] ^= std::byte{16};
  const Status status = reader.check({weight({1}), 0, kBytes, 0}, wrong);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("'w' [0:1536, 0:256], written by rank 0"),
                                      HasSubstr("differ from those of step-00000003/g1a1/rank-00000")));
}

TEST_F(CopiedPieces, ThatComeFromElsewhereAreHeldAgainstACopysHeaderWhereTheirOwnIsDamaged) {
  damage_header(0);
  PieceReader reader(*storage_);
  EXPECT_OK(reader.check({weight({1}), 0, kBytes, 0}, weight_));
  EXPECT_THAT(reader.check({weight({}), 0, kBytes, 0}, weight_).message(),
              HasSubstr("the header differs from its digest"));
  Bytes wrong = weight_;
  wrong[3] ^= std::byte{16};
  EXPECT_EQ(reader.check({weight({1, 2}), 0, kBytes, 0}, wrong).code(), Code::corrupt);
}

TEST_F(CopiedPieces, ThatAreAllDamagedAreAnErrorThatNamesEach) {
  for (Rank rank : {0, 1, 2}) damage_weight(rank, 5);
  const Status status = read(weight({1, 2}), kBytes);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("'w' [0:1536, 0:256], written by rank 0, bytes " +
                              std::to_string(weight_at_[0]) + " to "),
                    HasSubstr("rank-00000.safetensors: block 0 of 'w' differs"),
                    HasSubstr("the copy of rank 1 cannot be used either: "),
                    HasSubstr("the copy of rank 2 cannot be used either: "),
                    HasSubstr("rank-00002.safetensors: block 0 of 'w' differs"), Not(HasSubstr("\n"))));
}

// Replicas that have drifted apart: sound files, but no copies of each other.
TEST_F(CopiedPieces, ThatAreNoneThoughTheLayoutsSayItAreNotTaken) {
  ASSERT_OK(storage_->remove(kFolder + shard_file_name(1, 0)));
  Bytes other = weight_;
  other[17] ^= std::byte{1};
  write(1, other);
  damage_weight(0, 100);
  const Status status = read(weight({1}), kBytes);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(),
              HasSubstr("rank-00001.safetensors: block 0 of 'w' differs from the digest in"));
  ASSERT_OK(read(weight({1, 2}), kBytes));
  expect_bytes(weight_);
}

TEST_F(CopiedPieces, AreNotTriedWhereTheRangeIsWrong) {
  EXPECT_EQ(read(weight({1}), kBytes + 1).code(), Code::invalid_argument);
  EXPECT_EQ(found_.count, 0u);
}

}  // namespace
}  // namespace shoal::actors
