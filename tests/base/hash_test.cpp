#include "shoal/hash.h"

#include <gmock/gmock.h>

#include "shoal/bytes.h"

namespace shoal::base {
namespace {

// Values of the reference implementation (xxhsum 0.8, XXH3, seed 0).
TEST(Hash, IsXxh3) {
  EXPECT_EQ(xxh3_64(std::string_view("")), 0x2d06800538d394c2u);
  EXPECT_EQ(xxh3_128(as_view("")).to_hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_64(std::string_view("shoal")), xxh3_64(as_view("shoal")));
}

TEST(Hash, ComesBackFromHexAndBytes) {
  Hash128 hash = xxh3_128(as_view("shoal"));
  EXPECT_EQ(*Hash128::from_hex(hash.to_hex()), hash);
  EXPECT_EQ(*Hash128::from_bytes(hash.bytes), hash);
  EXPECT_EQ(hash.short_hex(), hash.to_hex().substr(0, 8));
  EXPECT_EQ(Hash128::from_hex("abcd").status().code(), Code::corrupt);
  EXPECT_EQ(Hash128::from_hex(std::string(32, 'x')).status().code(), Code::corrupt);
  EXPECT_EQ(Hash128::from_bytes({}).status().code(), Code::corrupt);
}

TEST(Hash, OrdersAsItPrints) {
  Hash128 a = xxh3_128(as_view("a")), b = xxh3_128(as_view("b"));
  EXPECT_EQ(a < b, a.to_hex() < b.to_hex());
  EXPECT_TRUE(Hash128{}.is_zero());
  EXPECT_FALSE(a.is_zero());
}

TEST(Hash, RandomOnesDiffer) {
  EXPECT_NE(random_128(), random_128());
}

}  // namespace
}  // namespace shoal::base
