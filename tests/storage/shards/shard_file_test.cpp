#include "storage/shards/shard_file.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/digest/digest.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

constexpr char kPath[] = "step-00000001/g1a1/rank-00000.safetensors";

Result<WrittenShard> write(Storage& storage, const SampleShard& sample, uint64_t nonce = 1) {
  return write_shard(storage, kPath, nonce_of(nonce), sample.pieces, sample.views());
}

std::unique_ptr<ShardReader> open_written(Storage& storage, const WrittenShard& written) {
  auto reader = ShardReader::open(storage, kPath, &written.header_digest, &written.size);
  SHOAL_CHECK(reader.ok());
  return std::move(reader).value();
}

// Every byte of every piece, verified.
Status read_all(const ShardReader& reader) {
  for (size_t i = 0; i < reader.pieces().size(); ++i) {
    Bytes out(reader.pieces()[i].bytes);
    uint64_t first = 0;
    SHOAL_RETURN_IF_ERROR(reader.read_verified(i, 0, out.size(), out, &first));
  }
  return ok_status();
}

TEST(Shard, ReadsBackWhatWasWritten) {
  MemoryStorage memory;
  SampleShard sample = small_sample();
  auto written = write(*memory, sample);
  ASSERT_OK(written.status());
  EXPECT_EQ(written->size, *shard_file_bytes(sample.pieces));
  EXPECT_EQ(written->payload_bytes, 48u + 4 + 4 + 0 + 3 + 12);
  auto reader = open_written(*memory, *written);
  ASSERT_EQ(reader->pieces().size(), sample.pieces.size());
  for (size_t i = 0; i < sample.pieces.size(); ++i) {
    const ShardPiece &got = reader->pieces()[i], &expected = sample.pieces[i];
    expect_same_piece(got, expected);
    EXPECT_EQ(reader->find(expected.key), i);
    Bytes out(got.bytes);
    uint64_t first = 7;
    EXPECT_OK(reader->read_verified(i, 0, got.bytes, out, &first));
    EXPECT_EQ(first, 0u);
    EXPECT_EQ(out, sample.data[i]) << expected.key;
  }
  EXPECT_EQ(reader->find("nothing"), std::nullopt);
  EXPECT_EQ(reader->file_size(), written->size);
  EXPECT_EQ(reader->path(), kPath);
}

TEST(Shard, HoldsNothingBesidesItsHeader) {
  MemoryStorage memory;
  auto written = write(*memory, SampleShard());
  ASSERT_OK(written.status());
  EXPECT_EQ(written->size, kShardDataAlignment);
  EXPECT_TRUE(open_written(*memory, *written)->pieces().empty());
}

TEST(Shard, HoldsEveryDTypeThatHasWholeBytes) {
  MemoryStorage memory;
  SampleShard sample;
  for (uint64_t size : {8, 4, 2, 1}) {
    for (uint8_t number = 0; number < kDTypeCount; ++number) {
      DType dtype = *dtype_from_number(number);
      auto bytes = dtype_bytes(dtype);
      if (bytes.ok() && *bytes == size)
        sample.whole_tensor(std::string(dtype_name(dtype)), dtype, {3, 5}, number);
    }
  }
  EXPECT_EQ(sample.pieces.size(), 19u);
  auto written = write(*memory, sample);
  ASSERT_OK(written.status());
  EXPECT_OK(read_all(*open_written(*memory, *written)));
}

TEST(Shard, DependsOnNothingButPiecesAndBytes) {
  MemoryStorage one, other;
  auto a = write(*one, small_sample(), 1), b = write(*other, small_sample(), 99);
  ASSERT_OK(a.status());
  ASSERT_OK(b.status());
  EXPECT_EQ(a->header_digest, b->header_digest);
  EXPECT_EQ(*one->read(kPath, 1 << 20), *other->read(kPath, 1 << 20));
  SampleShard changed = small_sample();
  changed.data[0][5] ^= std::byte{1};
  MemoryStorage third;
  EXPECT_NE(write(*third, changed)->header_digest, a->header_digest)
      << "the header holds the digests of the data";
}

TEST(Shard, BeginsItsDataAtAMultipleOf4096) {
  MemoryStorage memory;
  for (size_t key_bytes = 3000; key_bytes < 4096; key_bytes += 1) {
    SampleShard sample;
    sample.whole_tensor(std::string(key_bytes, 'k'), DType::u8, {1});
    auto size = shard_file_bytes(sample.pieces);
    ASSERT_OK(size.status());
    ASSERT_EQ((*size - 1) % kShardDataAlignment, 0u) << key_bytes;
  }
}

TEST(Shard, ReadsAnyRangeThroughTheBlocksThatCoverIt) {
  MemoryStorage memory;
  SampleShard sample;
  const uint64_t bytes = 3 * base::kDigestBlockBytes + 1234;
  sample.whole_tensor("a", DType::u8, {5}, 3).whole_tensor("big", DType::u8, {bytes}, 4);
  auto written = write(*memory, sample);
  ASSERT_OK(written.status());
  auto reader = open_written(*memory, *written);
  std::mt19937_64 random(5);
  std::vector<std::pair<uint64_t, uint64_t>> ranges = {
      {0, 0},
      {bytes, bytes},
      {0, bytes},
      {0, 1},
      {base::kDigestBlockBytes - 1, base::kDigestBlockBytes + 1},
      {bytes - 1, bytes},
      {base::kDigestBlockBytes, 2 * base::kDigestBlockBytes}};
  for (int i = 0; i < 50; ++i) {
    uint64_t a = random() % (bytes + 1), b = random() % (bytes + 1);
    ranges.emplace_back(std::min(a, b), std::max(a, b));
  }
  for (auto [begin, end] : ranges) {
    uint64_t covering = reader->covering_bytes(1, begin, end), first = 0;
    EXPECT_LE(covering, end - begin + 2 * base::kDigestBlockBytes);
    Bytes out(covering);
    ASSERT_OK(reader->read_verified(1, begin, end, out, &first));
    ASSERT_LE(first, begin);
    ASSERT_TRUE(end == begin || first + covering >= end);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), sample.data[1].begin() + static_cast<ptrdiff_t>(first)));
  }
}

TEST(Shard, VerifiesOnlyTheBlocksItReads) {
  MemoryStorage memory;
  SampleShard sample;
  sample.whole_tensor("big", DType::u8, {2 * base::kDigestBlockBytes}, 4);
  auto written = write(*memory, sample);
  ASSERT_OK(written.status());
  memory.files.flip_bit(kPath, (written->size - 1) * 8);
  auto reader = open_written(*memory, *written);
  Bytes out(2 * base::kDigestBlockBytes);
  uint64_t first = 0;
  EXPECT_OK(reader->read_verified(0, 0, base::kDigestBlockBytes, out, &first));
  Status status =
      reader->read_verified(0, base::kDigestBlockBytes - 1, base::kDigestBlockBytes + 1, out, &first);
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_EQ(status.message(), std::string("/root/") + kPath + ": block 1 of 'big' differs from its digest");
}

TEST(Shard, CatchesAFlippedBitInEveryByte) {
  MemoryStorage memory;
  auto written = write(*memory, small_sample());
  ASSERT_OK(written.status());
  for (uint64_t byte = 0; byte < written->size; ++byte) {
    memory.files.flip_bit(kPath, byte * 8 + byte % 8);
    auto reader = ShardReader::open(*memory, kPath, &written->header_digest, &written->size);
    Status status = reader.ok() ? read_all(**reader) : reader.status();
    ASSERT_EQ(status.code(), Code::corrupt) << "byte " << byte << ": " << status.to_string();
    ASSERT_THAT(status.message(), HasSubstr(kPath));
    memory.files.flip_bit(kPath, byte * 8 + byte % 8);
  }
}

TEST(Shard, SurvivesAFlippedBitAnywhereInAHeaderWithoutDigest) {
  MemoryStorage memory;
  auto written = write(*memory, small_sample());
  ASSERT_OK(written.status());
  uint64_t header_bits = (written->size - written->payload_bytes) * 8;
  size_t refused = 0;
  for (uint64_t bit = 0; bit < std::min<uint64_t>(header_bits, 2000 * 8); ++bit) {
    memory.files.flip_bit(kPath, bit);
    auto reader = ShardReader::open(*memory, kPath, nullptr, nullptr);
    if (!reader.ok()) {
      ++refused;
      ASSERT_TRUE(reader.status().code() == Code::corrupt || reader.status().code() == Code::version)
          << reader.status().to_string();
      ASSERT_EQ(reader.status().message().find('\n'), std::string::npos);
    } else {
      (void)read_all(**reader);
    }
    memory.files.flip_bit(kPath, bit);
  }
  EXPECT_GT(refused, 4000u);
}

TEST(Shard, IsRefusedWhenCutOrPaddedAnywhere) {
  MemoryStorage memory;
  auto written = write(*memory, small_sample());
  ASSERT_OK(written.status());
  for (uint64_t size = 0; size < written->size; size += size < 100 ? 1 : 37) {
    MemoryStorage cut;
    ASSERT_OK(write(*cut, small_sample()).status());
    cut.files.resize(kPath, size);
    EXPECT_EQ(ShardReader::open(*cut, kPath, nullptr, nullptr).status().code(), Code::corrupt) << size;
  }
  memory.files.resize(kPath, written->size + 1);
  EXPECT_EQ(ShardReader::open(*memory, kPath, nullptr, nullptr).status().code(), Code::corrupt);
  EXPECT_THAT(ShardReader::open(*memory, kPath, nullptr, &written->size).status().message(),
              HasSubstr(std::to_string(written->size) + " are expected"));
}

TEST(WriteShard, ReportsAnEqualFileThatStandsThere) {
  MemoryStorage memory;
  auto first = write(*memory, small_sample(), 1), second = write(*memory, small_sample(), 2);
  ASSERT_OK(second.status());
  EXPECT_EQ(first->header_digest, second->header_digest);
  EXPECT_EQ(first->size, second->size);
}

TEST(WriteShard, RefusesADifferentFileThatStandsThere) {
  MemoryStorage memory;
  ASSERT_OK(write(*memory, small_sample(), 1).status());
  SampleShard other = small_sample();
  other.data[0][0] ^= std::byte{1};
  EXPECT_EQ(write(*memory, other, 2).status().code(), Code::already_exists);
  other.whole_tensor("more", DType::u8, {1});
  EXPECT_EQ(write(*memory, other, 3).status().code(), Code::already_exists);
}

TEST(WriteShard, FindsThatTheFileThatStandsThereIsDamaged) {
  MemoryStorage memory;
  auto written = write(*memory, small_sample(), 1);
  ASSERT_OK(written.status());
  memory.files.flip_bit(kPath, (written->size - 1) * 8);
  Status status = write(*memory, small_sample(), 2).status();
  EXPECT_EQ(status.code(), Code::already_exists);
  EXPECT_THAT(status.message(), HasSubstr("block 0 of 'rng@rank7' differs from its digest"));
}

TEST(WriteShard, RefusesPiecesThatMakeNoShard) {
  MemoryStorage memory;
  auto message_of = [&](const SampleShard& sample) {
    auto written = write(*memory, sample);
    EXPECT_FALSE(written.ok());
    return written.status().message();
  };
  SampleShard unaligned;
  unaligned.whole_tensor("a", DType::u8, {3}).whole_tensor("b", DType::f32, {1});
  EXPECT_THAT(message_of(unaligned), HasSubstr("'b': data offset 3 is not aligned to F32"));
  SampleShard twice;
  twice.whole_tensor("a", DType::u8, {3}).whole_tensor("a", DType::u8, {3});
  EXPECT_THAT(message_of(twice), HasSubstr("'a' is listed twice"));
  SampleShard wrong_bytes = small_sample();
  wrong_bytes.pieces[0].bytes += 1;
  EXPECT_THAT(message_of(wrong_bytes), HasSubstr("'layers.0.weight': 48 bytes were given, but 49 announced"));
  SampleShard wrong_data = small_sample();
  wrong_data.data[0].pop_back();
  EXPECT_THAT(message_of(wrong_data), HasSubstr("47 bytes were given, but 48 announced"));
  SampleShard outside = small_sample();
  outside.pieces[0].box.offsets[0] = 5;
  EXPECT_EQ(write(*memory, outside).status().code(), Code::invalid_argument);
  SampleShard reserved = small_sample();
  reserved.pieces[0].key = "__metadata__";
  EXPECT_EQ(write(*memory, reserved).status().code(), Code::invalid_argument);
  SampleShard sub_byte = small_sample();
  sub_byte.pieces[0].dtype = DType::f4;
  EXPECT_EQ(write(*memory, sub_byte).status().code(), Code::invalid_argument);
  EXPECT_EQ(memory->list("").value().size(), 0u) << "nothing was written";
}

TEST(WriteShard, RefusesAHeaderBeyondSafetensorsLimit) {
  ShardPiece piece;
  piece.key = piece.fqn = "huge";
  piece.dtype = DType::u8;
  piece.bytes = uint64_t{7} << 40;  // its digests alone take more than 100 MB
  piece.global_shape = {piece.bytes};
  piece.box = {{0}, {piece.bytes}};
  EXPECT_EQ(shard_file_bytes({piece}).status().code(), Code::too_large);
}

TEST(WriteShard, NamesTheFileWhenTheDiskIsFull) {
  MemoryStorage memory;
  memory.files.set_capacity(4096 + 10);
  Status status = write(*memory, small_sample()).status();
  EXPECT_EQ(status.code(), Code::no_space);
  EXPECT_THAT(status.message(), HasSubstr(kPath));
}

// Regression: a node that continued a save on a full disk aborted it, although all its files were written.
TEST(WriteShard, FindsWhatAnEarlierWriterWroteWhenTheDiskIsFull) {
  MemoryStorage memory;
  SampleShard sample = small_sample();
  const auto first = write(*memory, sample, 1);
  ASSERT_OK(first.status());
  memory.files.set_capacity(4096);
  const auto again = write(*memory, sample, 2);
  ASSERT_OK(again.status());
  EXPECT_EQ(again->size, first->size);
  EXPECT_EQ(again->header_digest, first->header_digest);
  EXPECT_EQ(again->payload_bytes, first->payload_bytes);
  sample.data[0][0] ^= std::byte{1};
  EXPECT_EQ(write(*memory, sample, 3).status().code(), Code::no_space) << "the file holds other bytes";
}

}  // namespace
}  // namespace shoal::storage
