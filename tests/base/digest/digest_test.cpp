#include "base/digest/digest.h"

#include <gtest/gtest.h>

#include <random>

#include "base/digest/kernel.h"
#include "shoal/hash.h"

namespace shoal::base {
namespace {

Bytes random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(size);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

// The definition, written down once more from docs/reference/format.md.
uint64_t digest_by_definition(ByteView block) {
  Bytes leaves;
  while (!block.empty()) {
    ByteView leaf = block.first(std::min<size_t>(block.size(), 65536));
    std::byte hash[8];
    store_le64(hash, xxh3_64(leaf));
    leaves.insert(leaves.end(), hash, hash + 8);
    block = block.subspan(leaf.size());
  }
  return xxh3_64(leaves);
}

const std::vector<size_t> kSizes = {0,    1,     7,     8,     63,     64,      239,     241,
                                    1024, 65535, 65536, 65537, 131072, 1000001, 1048575, 1048576};

TEST(BlockDigest, IsTheHashOfTheHashesOfItsLeaves) {
  for (size_t size : kSizes) {
    Bytes block = random_bytes(size, size);
    EXPECT_EQ(block_digest(block), digest_by_definition(block)) << size << " bytes";
  }
}

TEST(BlockDigest, IsTheSameOnEveryInstructionSetAndAlignment) {
  DigestKernels kernels = digest_kernels();
  Bytes bytes = random_bytes(kDigestBlockBytes + 64, 7);
  for (size_t size : kSizes) {
    for (size_t shift : {0, 1, 31}) {
      ByteView block = ByteView(bytes).subspan(shift, size);
      for (size_t i = 0; i < kernels.count; ++i) {
        if (!kernels.first[i].usable) continue;
        EXPECT_EQ(kernels.first[i].kernel(block.data(), block.size()), digest_by_definition(block))
            << kernels.first[i].name << ", " << size << " bytes, shifted by " << shift;
      }
    }
  }
}

TEST(BlockDigest, HasTheValuesThatAreWrittenInFiles) {
  Bytes zeros(kDigestBlockBytes);
  EXPECT_EQ(block_digest(ByteView(zeros).first(1)), 1239657453579251651u);
  EXPECT_EQ(block_digest(zeros), 7986378615663651833u);
}

TEST(BlockDigest, SeesEveryFlippedBitOfAShortBlock) {
  Bytes block = random_bytes(300, 1);
  uint64_t right = block_digest(block);
  for (size_t bit = 0; bit < block.size() * 8; ++bit) {
    block[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(block_digest(block), right) << "bit " << bit;
    block[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(DigestBlocks, CutsAPieceIntoBlocksOfOneMebibyte) {
  for (size_t size :
       {size_t{0}, size_t{1}, kDigestBlockBytes, kDigestBlockBytes + 1, 3 * kDigestBlockBytes - 5}) {
    Bytes piece = random_bytes(size, size + 1);
    std::vector<uint64_t> digests = {42};
    digest_blocks(piece, &digests);
    ASSERT_EQ(digests.size(), 1 + digest_count(size));
    EXPECT_EQ(digests[0], 42u) << "digests are appended";
    for (size_t i = 1; i < digests.size(); ++i) {
      size_t begin = (i - 1) * kDigestBlockBytes;
      ByteView block = ByteView(piece).subspan(begin, std::min(kDigestBlockBytes, size - begin));
      EXPECT_EQ(digests[i], digest_by_definition(block));
    }
  }
}

}  // namespace
}  // namespace shoal::base
