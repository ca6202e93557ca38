#include <gtest/gtest.h>

#include <algorithm>

#include "base/digest/digest.h"
#include "gpu/kernels/emulate.h"
#include "tests/gpu/kernels/expected_digests.h"
#include "tests/gpu/kernels/kernel_runner.h"

namespace shoal::gpu {
namespace {

class DigestKernel : public ::testing::TestWithParam<RunsOn> {
 protected:
  void SetUp() override {
    std::string reason;
    runner_ = make_runner(GetParam(), &reason);
    if (runner_ == nullptr) GTEST_SKIP() << reason;
  }

  std::vector<uint64_t> digests_of(const std::vector<std::byte>& piece, size_t shift = 0) {
    auto memory = runner_->allocate(piece.size() + shift);
    std::vector<std::byte> shifted(shift);
    shifted.insert(shifted.end(), piece.begin(), piece.end());
    memory->write(shifted);
    std::vector<DigestPiece> pieces;
    append_digest_piece({memory->address() + shift, nullptr, piece.size()}, &pieces);
    return runner_->run_digests(pieces);
  }

  std::unique_ptr<KernelRunner> runner_;
};

TEST_P(DigestKernel, HasTheValuesThatAreWrittenInFiles) {
  std::vector<std::byte> zeros(base::kDigestBlockBytes);
  EXPECT_EQ(digests_of(zeros), std::vector<uint64_t>{7986378615663651833u});  // docs/reference/format.md
  zeros.resize(1);
  EXPECT_EQ(digests_of(zeros), std::vector<uint64_t>{1239657453579251651u});
}

// Every length at which XXH3 changes its ways, and one around each.
TEST_P(DigestKernel, EqualsTheHostsDigestOfEveryShortPiece) {
  const std::vector<std::byte> bytes = random_bytes(2200, 1);
  auto memory = runner_->allocate(bytes.size());
  memory->write(bytes);
  std::vector<DigestPiece> pieces;
  std::vector<uint64_t> expected;
  for (size_t size = 1; size <= bytes.size(); ++size) {
    append_digest_piece({memory->address() + bytes.size() - size, nullptr, size}, &pieces);
    expected.push_back(expected_digests(ByteView(bytes).last(size)).front());
  }
  EXPECT_EQ(runner_->run_digests(pieces), expected);
}

TEST_P(DigestKernel, EqualsTheHostsDigestsFromAnyAddress) {
  constexpr size_t kLeaf = base::kDigestLeafBytes;
  for (size_t size : {size_t{4096}, kLeaf - 1, kLeaf, kLeaf + 1, kLeaf + 240, 2 * kLeaf + 241}) {
    const std::vector<std::byte> piece = random_bytes(size, size);
    const std::vector<uint64_t> expected = expected_digests(piece);
    for (size_t shift : {0, 1, 2, 3, 4, 6, 8, 12, 15}) {
      EXPECT_EQ(digests_of(piece, shift), expected) << size << " bytes, shifted by " << shift;
    }
  }
}

TEST_P(DigestKernel, EqualsTheHostsDigestsOfSeveralBlocks) {
  for (size_t size : {base::kDigestBlockBytes - 1, base::kDigestBlockBytes, base::kDigestBlockBytes + 1,
                      3 * base::kDigestBlockBytes + 100'001}) {
    const std::vector<std::byte> piece = random_bytes(size, size);
    EXPECT_EQ(digests_of(piece), expected_digests(piece)) << size << " bytes";
  }
}

TEST_P(DigestKernel, EqualsTheHostsDigestsOfBytesThatMakeSumsOverflow) {
  for (std::byte value : {std::byte{0x00}, std::byte{0xFF}, std::byte{0x80}, std::byte{0x01}}) {
    const std::vector<std::byte> piece(base::kDigestBlockBytes + 12'345, value);
    EXPECT_EQ(digests_of(piece), expected_digests(piece)) << static_cast<int>(value);
  }
}

TEST_P(DigestKernel, SeesEveryFlippedBitOfAShortPieceAndEveryFlippedByteOfALeaf) {
  std::vector<std::byte> piece = random_bytes(base::kDigestLeafBytes, 5);
  const std::vector<uint64_t> right = digests_of(piece);
  for (size_t at = 0; at < piece.size(); at += 997) {
    piece[at] ^= std::byte{0x10};
    EXPECT_NE(digests_of(piece), right) << "byte " << at;
    piece[at] ^= std::byte{0x10};
  }
  EXPECT_EQ(digests_of(piece), right);
}

// Thousands of pieces of all sizes in one launch, among them empty ones.
TEST_P(DigestKernel, DigestsManyPiecesInOneLaunch) {
  const std::vector<std::byte> bytes = random_bytes(3 << 20, 3);
  auto memory = runner_->allocate(bytes.size());
  memory->write(bytes);
  std::vector<DigestPiece> pieces;
  std::vector<uint64_t> expected;
  uint64_t state = 9;
  size_t begin = 0;
  for (int i = 0; begin < bytes.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const size_t size = std::min<size_t>((state >> 40) % (i % 50 == 0 ? 300'000 : 700), bytes.size() - begin);
    append_digest_piece({memory->address() + begin, nullptr, size}, &pieces);
    for (uint64_t digest : expected_digests(ByteView(bytes).subspan(begin, size))) expected.push_back(digest);
    begin += size;
  }
  EXPECT_GT(pieces.size(), 500u);
  EXPECT_EQ(runner_->run_digests(pieces), expected);
}

TEST_P(DigestKernel, CopiesWhileItDigestsAndTouchesNothingElse) {
  constexpr size_t kMargin = 64;
  constexpr std::byte kUntouched{0xA5};
  for (size_t size : {1, 15, 240, 241, 1023, 1024, 1025, 65'536, 65'537, 200'003}) {
    for (size_t from : {0, 2, 5, 8}) {
      for (size_t to : {0, 1, 4, 8}) {
        const std::vector<std::byte> bytes = random_bytes(size + from, size);
        auto source = runner_->allocate(bytes.size());
        source->write(bytes);
        auto target = runner_->allocate(size + 2 * kMargin);
        target->write(std::vector<std::byte>(size + 2 * kMargin, kUntouched));
        std::vector<DigestPiece> pieces;
        append_digest_piece({source->address() + from, target->address() + kMargin + to, size}, &pieces);
        const ByteView piece = ByteView(bytes).subspan(from);
        EXPECT_EQ(runner_->run_digests(pieces), expected_digests(piece))
            << size << ", " << from << ", " << to;
        std::vector<std::byte> expected(size + 2 * kMargin, kUntouched);
        std::copy(piece.begin(), piece.end(), expected.begin() + kMargin + to);
        EXPECT_EQ(target->read(), expected) << size << " bytes from " << from << " to " << to;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(On, DigestKernel, ::testing::Values(RunsOn::emulator, RunsOn::device),
                         [](const auto& where) { return name_of(where.param); });

TEST(DigestTable, LeavesOutEmptyPieces) {
  std::vector<DigestPiece> pieces;
  EXPECT_EQ(table_of(pieces).leaves, 0u);
  append_digest_piece({nullptr, nullptr, 0}, &pieces);
  EXPECT_EQ(table_of(pieces).blocks, 0u);
  emulate_digests(table_of(pieces), nullptr, nullptr, 1);
}

}  // namespace
}  // namespace shoal::gpu
