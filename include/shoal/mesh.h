// Mesh and Placement: PyTorch's DeviceMesh and DTensor placements, as values.
//
// Semantics: torch.distributed.tensor (2.13), placement_types.py. Placements are applied to mesh dimensions
// from left to right; Shard(d) splits as torch.chunk does (ceil-sized chunks, the last ones short or empty);
// _StridedShard(d, split_factor) first splits into split_factor chunks, then each of these over the mesh
// dimension, and a coordinate holds its chunk of each, concatenated.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shoal/box.h"
#include "shoal/status.h"

namespace shoal {

using Rank = uint32_t;

inline constexpr uint64_t kMaxMeshSize = uint64_t{1} << 24;  // ranks in one mesh
// The product of all split factors of one tensor: it bounds the boxes that a rank holds of it.
inline constexpr uint64_t kMaxSplitFactor = uint64_t{1} << 16;

// An n-dimensional array of distinct ranks. Immutable; equal meshes compare equal however they were made.
//
// Canonical form: *affine*, rank = base + sum(coordinate[i] * strides[i]), wherever that describes the ranks
// and the strides nest, that is: ordered by descending stride, over the dimensions of size > 1, each stride
// is greater than the sum of (size - 1) * stride of those after it. Strides of dimensions of size 1 are 0.
// Otherwise *listed*.
class Mesh {
 public:
  // Row-major list of ranks. Code::invalid_argument: no or too many dimensions, a size of 0, more than
  // kMaxMeshSize ranks, wrong count, a rank twice.
  static Result<Mesh> from_ranks(Dims shape, std::vector<Rank> ranks);
  // rank = base + sum(coordinate[i] * strides[i]); costs O(dims) where the strides nest.
  // Code::invalid_argument: two coordinates share a rank, or one passes 32 bits.
  static Result<Mesh> affine(Dims shape, Rank base, Dims strides);
  // Whether an affine mesh of these strides, as many as there are sizes, is canonical (above).
  static bool strides_nest(std::span<const uint64_t> shape, std::span<const uint64_t> strides);
  // Row-major ranks from `base` on. What affine would refuse gives a mesh of no ranks, whose status() says
  // why; a layout refuses it.
  static Mesh contiguous(Dims shape, Rank base = 0);
  static Mesh single(Rank rank);  // one dimension of size 1

  Status status() const;  // not OK: no mesh, as contiguous made it
  const Dims& shape() const { return shape_; }
  size_t dims() const { return shape_.size(); }
  uint64_t size() const { return size_; }
  bool is_affine() const { return !listed_; }
  Rank base() const { return base_; }
  const Dims& strides() const { return strides_; }  // affine only
  const std::vector<Rank>& listed() const;          // row-major; empty if affine

  Rank rank_at(std::span<const uint64_t> coordinate) const;
  // The coordinate of a rank; nullopt if it is not in the mesh. O(dims) if affine, else O(log size).
  std::optional<Dims> coordinate_of(Rank rank) const;
  bool contains(Rank rank) const { return coordinate_of(rank).has_value(); }
  // The sub-mesh through `coordinate` along the mesh dimensions flagged in `free`; its dimensions are those
  // alone (one dimension of size 1 if none is free).
  Mesh slice(std::span<const uint64_t> coordinate, const std::vector<bool>& free) const;
  std::vector<Rank> ranks() const;  // row-major
  std::vector<Rank> ascending_ranks() const;

  // Lexicographic in (shape, base, strides, listed ranks), a listed mesh having base 0 and no strides.
  friend std::strong_ordering operator<=>(const Mesh& a, const Mesh& b);
  friend bool operator==(const Mesh& a, const Mesh& b) { return (a <=> b) == 0; }

 private:
  static Mesh affine_unchecked(Dims shape, Rank base, Dims strides);

  struct Listed {
    std::vector<Rank> ranks;        // row-major
    std::vector<uint32_t> by_rank;  // row-major positions by ascending rank
  };

  Dims shape_;
  Rank base_ = 0;
  Dims strides_;
  std::shared_ptr<const Listed>
      listed_;  // nullptr if affine; shared, as meshes of a million ranks are copied
  // What follows is derived.
  uint64_t size_ = 1;
  std::vector<uint8_t> by_stride_;  // affine only: dimensions of size > 1 by descending stride
};

struct Placement {
  enum class Kind : uint8_t { replicate = 0, shard = 1, strided_shard = 2 };
  Kind kind = Kind::replicate;
  uint32_t dim = 0;           // tensor dimension; 0 for replicate
  uint64_t split_factor = 0;  // strided_shard only

  static Placement replicate() { return {}; }
  static Placement shard(uint32_t dim) { return {Kind::shard, dim, 0}; }
  static Placement strided_shard(uint32_t dim, uint64_t split_factor) {
    return {Kind::strided_shard, dim, split_factor};
  }
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

// The part of a tensor at one mesh coordinate. `boxes` are in global coordinates; `local` says where each
// lies in the local tensor of shape `local_shape` (a DTensor's to_local()). Row-major over the boxes' order
// in each dimension. Empty shards: no boxes, and a local_shape with a 0.
struct LocalShards {
  Dims local_shape;
  std::vector<Box> boxes;
  std::vector<Box> local;  // parallel to boxes; same sizes, offsets in the local tensor
};

// Code::invalid_argument: as many placements as mesh dimensions are needed, with dims inside the shape, and
// split factors of at least 1 whose product is at most kMaxSplitFactor.
Status validate_placements(std::span<const Placement> placements, const Mesh& mesh,
                           std::span<const uint64_t> shape);
LocalShards shards_at(std::span<const uint64_t> shape, const Mesh& mesh,
                      std::span<const Placement> placements, std::span<const uint64_t> coordinate);

}  // namespace shoal
