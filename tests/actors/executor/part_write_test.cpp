// A file written from a slab that holds only part of it at a time equals one from a slab that holds all of
// it.
#include "actors/executor/part_write.h"
#include "actors/executor/operation_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/digest/digest.h"
#include "sim/bytes/memory_slabs.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/test_support.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSlabBytes = 2 * base::kDigestBlockBytes;

// A client that copies what is asked for when it is waited for, out of order where two parts are under way.
class CopyingSource final : public PartSource {
 public:
  CopyingSource(ByteView staged, MutableByteView slab) : staged_(staged), slab_(slab) {}
  uint64_t ask(std::vector<local::PartRange> ranges) override {
    for (const local::PartRange& range : ranges) {
      EXPECT_LE(range.slab_offset + range.bytes, slab_.size());
      EXPECT_EQ(range.slab_offset % kPartAlignmentBytes, 0u);
      // No half that is still to be written is overwritten.
      for (const auto& [number, others] : asked_) {
        for (const local::PartRange& other : others) {
          EXPECT_TRUE(other.slab_offset >= range.slab_offset + range.bytes ||
                      range.slab_offset >= other.slab_offset + other.bytes);
        }
      }
    }
    asked_[++last_] = std::move(ranges);
    EXPECT_LE(asked_.size(), 2u);
    return last_;
  }
  Status wait(uint64_t number) override {
    if (--left_ == 0) return Status(Code::unavailable, "its trainer went away");
    if (on_wait) on_wait();
    for (const local::PartRange& range : asked_.at(number)) {
      std::memcpy(slab_.data() + range.slab_offset, staged_.data() + range.from, range.bytes);
    }
    asked_.erase(number);
    return ok_status();
  }
  void fail_at(size_t part) { left_ = part; }
  std::function<void()> on_wait;

 private:
  const ByteView staged_;
  const MutableByteView slab_;
  std::map<uint64_t, std::vector<local::PartRange>> asked_;
  uint64_t last_ = 0;
  size_t left_ = SIZE_MAX;
};

class PartSlabs final : public Slabs {
 public:
  explicit PartSlabs(Bytes staged)
      : staged_(std::move(staged)), slab_(slabs_.add(kClient, kSlab, kSlabBytes)) {}
  Result<View> find(ClientId client, uint32_t slab_id) override { return slabs_.find(client, slab_id); }
  Status release(ClientId client, uint32_t slab_id) override { return slabs_.release(client, slab_id); }
  Result<std::unique_ptr<PartSource>> parts_of(ClientId, uint32_t, const AttemptKey&) override {
    auto source = std::make_unique<CopyingSource>(staged_, slab_);
    source->fail_at(fails_at);
    source->on_wait = on_wait;
    return std::unique_ptr<PartSource>(std::move(source));
  }
  ByteView staged() const { return staged_; }
  size_t fails_at = SIZE_MAX;
  std::function<void()> on_wait;

 private:
  sim::MemorySlabs slabs_;
  const Bytes staged_;
  const MutableByteView slab_;
};

// Pieces of these sizes, which lie in the staged bytes in another order than in the file.
operation::WriteShard write_of(const std::vector<uint64_t>& sizes, uint64_t* staged_bytes) {
  operation::WriteShard write;
  write.key = kKey;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string key = "piece" + std::to_string(i);
    write.pieces.push_back({key, key, DType::u8, true, {}, {}, sizes[i]});
    write.data.push_back({kClient, kSlab, 0, sizes[i]});
  }
  uint64_t end = 0;
  std::vector<SlabRange> data = write.data.vector();
  for (size_t i = sizes.size(); i-- > 0;) {
    data[i].offset = end;
    end += (sizes[i] + 63) / 64 * 64;
  }
  write.data = {};
  for (const SlabRange& range : data) write.data.push_back(range);
  *staged_bytes = std::max<uint64_t>(1, end);
  return write;
}

class InParts : public ::testing::TestWithParam<std::vector<uint64_t>> {
 protected:
  Result<storage::WrittenShard> write(storage::MemoryStorage& storage, const operation::WriteShard& write,
                                      Slabs& slabs) {
    OperationRunner runner(*storage, nullptr, slabs, storage::nonce_of(77),
                           {[this] { return storage::nonce_of(++nonces_); }, [] { return int64_t{1}; }});
    Result<OperationResult> result = runner.run(write);
    if (!result.ok()) return result.status();
    return std::get<storage::WrittenShard>(*result);
  }
  uint64_t nonces_ = 0;
};
constexpr uint64_t kBlock = base::kDigestBlockBytes;
INSTANTIATE_TEST_SUITE_P(Sizes, InParts,
                         ::testing::Values(std::vector<uint64_t>{}, std::vector<uint64_t>{0},
                                           std::vector<uint64_t>{1}, std::vector<uint64_t>{kBlock},
                                           std::vector<uint64_t>{9 * kBlock + 5},
                                           std::vector<uint64_t>{kBlock - 1, kBlock + 1, 0, 3 * kBlock, 77},
                                           std::vector<uint64_t>{100, 3 * kBlock + 64, 100, 0},
                                           std::vector<uint64_t>(40'000, 40)));

TEST_P(InParts, TheFileIsTheSame) {
  uint64_t staged_bytes = 0;
  operation::WriteShard wanted = write_of(GetParam(), &staged_bytes);
  PartSlabs parts(storage::random_bytes(staged_bytes, 3));
  sim::MemorySlabs whole;
  MutableByteView slab = whole.add(kClient, kSlab, staged_bytes);
  std::copy(parts.staged().begin(), parts.staged().end(), slab.begin());

  storage::MemoryStorage one, other;
  const Result<storage::WrittenShard> at_once = write(one, wanted, whole);
  ASSERT_OK(at_once.status());
  wanted.in_parts = true;
  const Result<storage::WrittenShard> in_parts = write(other, wanted, parts);
  ASSERT_OK(in_parts.status());
  EXPECT_EQ(in_parts->header_digest, at_once->header_digest);
  EXPECT_EQ(in_parts->size, at_once->size);
  const std::string path = storage::shard_path(kKey, 0, 0);
  EXPECT_EQ(other->read(path, UINT64_MAX / 2).value(), one->read(path, UINT64_MAX / 2).value());
  // Offered again after its node had died: the existing file is the same.
  EXPECT_EQ(write(other, wanted, parts).value().header_digest, at_once->header_digest);
}

TEST_F(InParts, NothingIsLeftWhereTheTrainerGoesAway) {
  uint64_t staged_bytes = 0;
  operation::WriteShard wanted = write_of({9 * kBlock}, &staged_bytes);
  wanted.in_parts = true;
  for (size_t part = 1; part < 9; part += 3) {
    PartSlabs parts(storage::random_bytes(staged_bytes, 3));
    parts.fails_at = part;
    storage::MemoryStorage storage;
    const Status failed = write(storage, wanted, parts).status();
    EXPECT_EQ(failed.code(), Code::unavailable);
    EXPECT_THAT(failed.message(), HasSubstr("its trainer went away"));
    EXPECT_EQ(storage->read(storage::shard_path(kKey, 0, 0), 1).status().code(), Code::not_found);
  }
}

TEST_F(InParts, AWriteThatRunsIsMeasuredForItsOwnAttempt) {
  uint64_t staged_bytes = 0;
  operation::WriteShard wanted = write_of({9 * kBlock}, &staged_bytes);
  wanted.in_parts = true;
  PartSlabs parts(storage::random_bytes(staged_bytes, 3));
  storage::MemoryStorage storage;
  OperationRunner runner(*storage, nullptr, parts, storage::nonce_of(77),
                         {[this] { return storage::nonce_of(++nonces_); }, [] { return int64_t{1}; }});
  auto measure = [&](const AttemptKey& key) {
    return std::get<uint64_t>(runner.run(operation::MeasureWrites{{key}}).value());
  };
  std::vector<uint64_t> measured;
  parts.on_wait = [&] {
    measured.push_back(measure(kKey));
    EXPECT_EQ(measure({1, 4, 1}), 0u) << "of another attempt";
  };
  ASSERT_OK(runner.run(wanted).status());
  ASSERT_EQ(measured.size(), 9u);
  for (size_t part = 0; part < measured.size(); ++part) EXPECT_EQ(measured[part], part * kBlock);
  EXPECT_EQ(measure(kKey), 0u) << "no write of it runs any more";
}

TEST_F(InParts, SlabsThatAreTakenWholeHaveNoParts) {
  uint64_t staged_bytes = 0;
  operation::WriteShard wanted = write_of({100}, &staged_bytes);
  wanted.in_parts = true;
  sim::MemorySlabs slabs;
  slabs.add(kClient, kSlab, kSlabBytes);
  storage::MemoryStorage storage;
  EXPECT_EQ(write(storage, wanted, slabs).status().code(), Code::unavailable);
}

}  // namespace
}  // namespace shoal::actors
