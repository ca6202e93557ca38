// Mesh and Placement: PyTorch's DeviceMesh and DTensor placements, as values.
//
// Semantics: torch.distributed.tensor (2.13), placement_types.py. Placements apply to mesh dimensions from
// left to right. Shard(d) splits as torch.chunk does: chunks of ceil(size / n), the last ones short or empty.
// _StridedShard(d, split_factor) first splits into split_factor chunks, then splits each of these over the
// mesh dimension. A coordinate holds its part of each chunk, concatenated.
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
// Bound on the product of all split factors of one tensor. It bounds the boxes of it that a rank holds.
inline constexpr uint64_t kMaxSplitFactor = uint64_t{1} << 16;

// An n-dimensional array of distinct ranks. Immutable. Equal meshes compare equal however they were made,
// because each has one canonical form.
//
// The canonical form is *affine*, rank = base + sum(coordinate[i] * strides[i]), if that describes the ranks
// and the strides nest. Strides nest if, among the dimensions of size > 1 in order of descending stride, each
// stride is greater than the sum of (size - 1) * stride of those after it. Strides of dimensions of size 1
// are 0. The canonical form of all other meshes is *listed*.
class Mesh {
 public:
  // `ranks` is row-major. Code::invalid_argument: no or too many dimensions, a size of 0, more than
  // kMaxMeshSize ranks, a number of ranks that does not fit the shape, or a rank twice.
  static Result<Mesh> from_ranks(Dims shape, std::vector<Rank> ranks);
  // rank = base + sum(coordinate[i] * strides[i]). Costs O(dims) if the strides nest.
  // Code::invalid_argument: two coordinates have the same rank, or a rank needs more than 32 bits.
  static Result<Mesh> affine(Dims shape, Rank base, Dims strides);
  // Whether the strides nest, as above. Both spans have the same length.
  static bool strides_nest(std::span<const uint64_t> shape, std::span<const uint64_t> strides);
  // Consecutive ranks from `base` on, row-major. Arguments for which affine returns an error give a mesh
  // without ranks, whose status() is that error; make_layout rejects such a mesh.
  static Mesh contiguous(Dims shape, Rank base = 0);
  static Mesh single(Rank rank);  // one dimension of size 1

  Status status() const;  // the error of contiguous, if it has one
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
  // The sub-mesh through `coordinate` along the mesh dimensions that are true in `free`. It has these
  // dimensions only, or one dimension of size 1 if none is free.
  Mesh slice(std::span<const uint64_t> coordinate, const std::vector<bool>& free) const;
  std::vector<Rank> ranks() const;  // row-major
  std::vector<Rank> ascending_ranks() const;

  // Lexicographic in (shape, base, strides, listed ranks). A listed mesh has base 0 and no strides.
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
  // nullptr if affine. Copies share it, because a mesh may have a million ranks.
  std::shared_ptr<const Listed> listed_;
  // The members below are derived from those above.
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

// The part of a tensor at one mesh coordinate. `boxes` are in global coordinates. `local` has the place of
// each box in the local tensor of shape `local_shape` (a DTensor's to_local()). Boxes are in row-major order
// of the local tensor. An empty shard has no boxes, and a 0 in local_shape.
struct LocalShards {
  Dims local_shape;
  std::vector<Box> boxes;
  std::vector<Box> local;  // local[i] is boxes[i] with offsets in the local tensor
};

// OK if there is one placement for each mesh dimension, all tensor dimensions exist in the shape, and all
// split factors are at least 1 with a product of at most kMaxSplitFactor. Otherwise Code::invalid_argument.
Status validate_placements(std::span<const Placement> placements, const Mesh& mesh,
                           std::span<const uint64_t> shape);
LocalShards shards_at(std::span<const uint64_t> shape, const Mesh& mesh,
                      std::span<const Placement> placements, std::span<const uint64_t> coordinate);

}  // namespace shoal
