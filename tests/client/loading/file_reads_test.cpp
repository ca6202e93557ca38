// Direct reads of a load from the files that its node names.
#include "client/loading/file_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/digest/digest.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

Bytes some_bytes(uint64_t size, uint32_t seed) {
  Bytes bytes(size);
  for (uint64_t i = 0; i < size; ++i) {
    seed = seed * 1664525 + 1013904223;
    bytes[i] = static_cast<std::byte>(seed >> 24);
  }
  return bytes;
}

// Tensors of bytes, stored one after the other in one file, behind 100 bytes of something else.
class AFile : public ::testing::Test {
 protected:
  static constexpr uint64_t kBefore = 100;

  void make(const std::vector<uint64_t>& sizes) {
    file_ = some_bytes(kBefore, 99);
    loaded_.reserve(sizes.size());
    for (uint32_t i = 0; i < sizes.size(); ++i) {
      const Bytes tensor = some_bytes(sizes[i], i);
      loaded_.emplace_back(sizes[i], std::byte{0});
      // Named in their order, by which the layout's entries go.
      state_.add_tensor("t" + std::to_string(1000 + i), DType::u8, {sizes[i]}, Mesh::single(0),
                        {Placement::shard(0)}, loaded_.back().data());
      batch_.ranges.push_back({{i, Box{{0}, {sizes[i]}}, 0, sizes[i], sizes[i]}, 0, file_.size()});
      base::digest_blocks(tensor, &batch_.digests);
      file_.insert(file_.end(), tensor.begin(), tensor.end());
    }
    batch_.files = {"shard"};
    write();
    bound_.emplace(BoundState::bind(state_, 0).value());
    std::vector<uint32_t> entries(sizes.size());
    for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = i;
    placer_.emplace(*bound_, entries);
  }
  void write() {
    std::ofstream out(root_.path() + "/shard", std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(file_.data()), static_cast<std::streamsize>(file_.size()));
  }
  Result<std::vector<local::UnreadRange>> read(unsigned threads = 3) {
    return FileReads(root_.path(), threads, buffers_).read(batch_, *placer_);
  }
  Bytes stored(uint32_t tensor) const {
    const local::FileRange& range = batch_.ranges[tensor];
    return {file_.begin() + static_cast<ptrdiff_t>(range.file_offset),
            file_.begin() + static_cast<ptrdiff_t>(range.file_offset + range.bytes)};
  }

  TemporaryRoot root_;
  Bytes file_;
  std::vector<Bytes> loaded_;
  StateDict state_;
  local::FilesToRead batch_;
  std::optional<BoundState> bound_;
  std::optional<Placer> placer_;
  FileReads::Buffers buffers_;
};

TEST_F(AFile, IsReadByAnyNumberOfThreads) {
  make({5 * base::kDigestBlockBytes + 3, 1, 70'000, 2 * base::kDigestBlockBytes, 40'000'000});
  for (unsigned threads : {1u, 2u, 7u}) {
    for (Bytes& each : loaded_) std::fill(each.begin(), each.end(), std::byte{0});
    placer_.emplace(*bound_, std::vector<uint32_t>{0, 1, 2, 3, 4});
    auto unread = read(threads);
    ASSERT_TRUE(unread.ok()) << unread.status().to_string();
    EXPECT_TRUE(unread->empty());
    EXPECT_TRUE(placer_->finish().ok()) << placer_->finish().to_string();
    EXPECT_EQ(placer_->bytes_placed(), file_.size() - kBefore);
    for (uint32_t i = 0; i < loaded_.size(); ++i) EXPECT_EQ(loaded_[i], stored(i)) << i;
  }
}

TEST_F(AFile, WithManySmallTensorsIsRead) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 3000; ++i) sizes.push_back(1 + i * 7919 % 9000);
  make(sizes);
  auto unread = read();
  ASSERT_TRUE(unread.ok());
  EXPECT_TRUE(unread->empty());
  EXPECT_TRUE(placer_->finish().ok());
  for (uint32_t i = 0; i < loaded_.size(); ++i) ASSERT_EQ(loaded_[i], stored(i)) << i;
}

TEST_F(AFile, OfWhichABitFlippedLeavesThatBlockUnreadAndUnplaced) {
  make({1000, 3 * base::kDigestBlockBytes, 1000});
  file_[kBefore + 1000 + base::kDigestBlockBytes + 17] ^= std::byte{4};
  write();
  auto unread = read();
  ASSERT_TRUE(unread.ok());
  ASSERT_EQ(unread->size(), 1u);
  EXPECT_EQ(unread->front().range, 1u);
  EXPECT_EQ(unread->front().begin, base::kDigestBlockBytes);
  EXPECT_EQ(unread->front().end, 2 * base::kDigestBlockBytes);
  const Bytes right = stored(1);
  EXPECT_TRUE(std::equal(right.begin(), right.begin() + base::kDigestBlockBytes, loaded_[1].begin()));
  for (uint64_t i = base::kDigestBlockBytes; i < 2 * base::kDigestBlockBytes; ++i) {
    ASSERT_EQ(loaded_[1][i], std::byte{0}) << "placed, though it differs";
  }
  EXPECT_EQ(loaded_[0], stored(0)) << "a neighbour in the same run";
  EXPECT_EQ(loaded_[2], stored(2));
  EXPECT_EQ(placer_->bytes_placed(), 2000 + 2 * base::kDigestBlockBytes);
}

TEST_F(AFile, ThatIsShorterThanTheNodeSaysIsReadAsFarAsItGoes) {
  make({2 * base::kDigestBlockBytes, 3 * base::kDigestBlockBytes});
  std::filesystem::resize_file(root_.path() + "/shard", kBefore + 3 * base::kDigestBlockBytes + 5);
  auto unread = read(1);
  ASSERT_TRUE(unread.ok());
  ASSERT_EQ(unread->size(), 1u) << "neighbours are one range";
  EXPECT_EQ(unread->front().range, 1u);
  EXPECT_EQ(unread->front().begin, base::kDigestBlockBytes);
  EXPECT_EQ(unread->front().end, 3 * base::kDigestBlockBytes);
}

TEST_F(AFile, ThatIsNotHereIsLeftToTheNode) {
  make({10, base::kDigestBlockBytes + 1});
  std::filesystem::remove(root_.path() + "/shard");
  auto unread = read();
  ASSERT_TRUE(unread.ok());
  ASSERT_EQ(unread->size(), 2u);
  EXPECT_EQ((*unread)[1].end, base::kDigestBlockBytes + 1);
  EXPECT_EQ(placer_->bytes_placed(), 0u);
}

TEST_F(AFile, BehindALinkIsLeftToTheNode) {
  make({10});
  std::filesystem::rename(root_.path() + "/shard", root_.path() + "/elsewhere");
  std::filesystem::create_symlink(root_.path() + "/elsewhere", root_.path() + "/shard");
  EXPECT_EQ(read().value().size(), 1u);
}

TEST_F(AFile, OfNoBytesCountsAsRead) {
  std::string object = "something";
  make({1});
  state_.add_object("o", &object, Mesh::single(0));
  bound_.emplace(BoundState::bind(state_, 0).value());
  placer_.emplace(*bound_, std::vector<uint32_t>{0});
  batch_.ranges = {{{0, Box{}, 0, 0, 0}, 0, kBefore}};
  batch_.digests.clear();
  EXPECT_TRUE(read().value().empty());
  EXPECT_TRUE(placer_->finish().ok());
  EXPECT_EQ(object, "");
}

TEST_F(AFile, OfWhichTheNodeSaysWhatCannotBeIsAnErrorAndNothingIsPlaced) {
  make({2 * base::kDigestBlockBytes});
  const local::FilesToRead right = batch_;
  auto expect_corrupt = [&](const char* what) {
    EXPECT_EQ(read().status().code(), Code::corrupt) << what;
    EXPECT_THAT(read().status().message(), HasSubstr(what));
    EXPECT_EQ(placer_->bytes_placed(), 0u);
    batch_ = right;
  };
  batch_.ranges[0].piece_offset = 5, batch_.ranges[0].bytes -= 5;
  expect_corrupt("cut a digest block");
  batch_.ranges[0].bytes -= 5;
  expect_corrupt("cut a digest block");
  batch_.digests.pop_back();
  expect_corrupt("without their digests");
  batch_.digests.push_back(7);
  expect_corrupt("too many digests");
  batch_.ranges[0].target = 1;
  expect_corrupt("of an unknown target");
  batch_.ranges[0].box.offsets = {1};
  expect_corrupt("outside of the tensor's shape");
}

TEST(LoadThreads, AreNoMoreThanAskedForAndAtLeastOneWhereAnyAreWanted) {
  EXPECT_EQ(load_threads_of(0), 0u);
  EXPECT_EQ(load_threads_of(1), 1u);
  EXPECT_GE(load_threads_of(kMaxLoadThreads), 1u);
  EXPECT_LE(load_threads_of(1000), kMaxLoadThreads);
}

}  // namespace
}  // namespace shoal::client
