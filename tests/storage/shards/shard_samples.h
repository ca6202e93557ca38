// Shards for tests: every storable dtype, scalars, empty tensors, sharded pieces, objects.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "storage/shards/shard_file.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {

struct SampleShard {
  std::vector<ShardPiece> pieces;
  std::vector<Bytes> data;

  // A piece of noise seeded by `fill`. Its key is its fqn.
  SampleShard& tensor(std::string fqn, DType dtype, Dims global_shape, Box box, uint64_t fill = 1) {
    ShardPiece piece;
    piece.key = piece.fqn = std::move(fqn);
    piece.dtype = dtype;
    piece.global_shape = std::move(global_shape);
    piece.box = std::move(box);
    uint64_t elements = 1;
    for (uint64_t size : piece.box.sizes) elements *= size;
    piece.bytes = elements * *dtype_bytes(dtype);
    data.push_back(random_bytes(piece.bytes, fill));
    if (dtype == DType::boolean) {
      for (std::byte& b : data.back()) b &= std::byte{1};
    }
    pieces.push_back(std::move(piece));
    return *this;
  }
  SampleShard& whole_tensor(std::string fqn, DType dtype, Dims shape, uint64_t fill = 1) {
    Box box{Dims(shape.size(), 0), shape};
    return tensor(std::move(fqn), dtype, std::move(shape), std::move(box), fill);
  }
  SampleShard& object(std::string fqn, Bytes bytes) {
    ShardPiece piece;
    piece.key = piece.fqn = std::move(fqn);
    piece.is_object = true;
    piece.bytes = bytes.size();
    data.push_back(std::move(bytes));
    pieces.push_back(std::move(piece));
    return *this;
  }
  std::vector<ByteView> views() const { return {data.begin(), data.end()}; }
};

// A small shard with pieces of every kind.
inline SampleShard small_sample() {
  SampleShard sample;
  sample.tensor("layers.0.weight", DType::f32, {8, 3}, {{2, 0}, {4, 3}}, 11)
      .whole_tensor("step", DType::i32, {}, 12)
      .tensor("layers.0.bias", DType::bf16, {5}, {{3}, {2}}, 13)
      .whole_tensor("empty", DType::f16, {0, 4}, 14)
      .whole_tensor("caf\xc3\xa9 \"quoted\"\\", DType::u8, {3}, 15)
      .object("rng@rank7", bytes_of("object bytes"));
  return sample;
}

inline void expect_same_piece(const ShardPiece& got, const ShardPiece& expected) {
  EXPECT_EQ(got.key, expected.key);
  EXPECT_EQ(got.fqn, expected.fqn);
  EXPECT_EQ(got.dtype, expected.dtype);
  EXPECT_EQ(got.is_object, expected.is_object);
  EXPECT_EQ(got.global_shape, expected.global_shape);
  EXPECT_EQ(got.box, expected.box);
  EXPECT_EQ(got.bytes, expected.bytes);
}

}  // namespace shoal::storage
