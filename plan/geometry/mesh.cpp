#include "shoal/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace shoal {

namespace {

Status bad_mesh(const std::string& what) {
  return Status(Code::invalid_argument, "mesh: " + what);
}

// The number of ranks in a mesh of this shape.
Result<uint64_t> mesh_size(std::span<const uint64_t> shape) {
  if (shape.empty() || shape.size() > kMaxDims) {
    return bad_mesh(fmt::format("it has {} dimensions: 1 to {} are allowed", shape.size(), kMaxDims));
  }
  std::optional<uint64_t> count = element_count(shape);
  if (!count || *count == 0 || *count > kMaxMeshSize) {
    return bad_mesh(fmt::format("its shape has {} ranks: 1 to {} are allowed",
                                count ? fmt::to_string(*count) : "2^63 or more", kMaxMeshSize));
  }
  return *count;
}

// Dimensions of size > 1 by descending stride.
std::vector<uint8_t> order_by_stride(std::span<const uint64_t> shape, std::span<const uint64_t> strides) {
  std::vector<uint8_t> order;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1) order.push_back(static_cast<uint8_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return strides[a] > strides[b]; });
  return order;
}

// Advances to the next coordinate of a shape in row-major order; false after the last.
bool next_coordinate(Dims& coordinate, std::span<const uint64_t> shape) {
  for (size_t i = shape.size(); i-- > 0;) {
    if (++coordinate[i] < shape[i]) return true;
    coordinate[i] = 0;
  }
  return false;
}

}  // namespace

// Whether every stride exceeds the sum that all smaller ones can reach, so that digits can be computed
// greedily.
bool Mesh::strides_nest(std::span<const uint64_t> shape, std::span<const uint64_t> strides) {
  if (shape.size() != strides.size() || shape.size() > kMaxDims) return false;
  std::vector<uint8_t> order = order_by_stride(shape, strides);
  uint64_t reach = 0;
  for (size_t k = order.size(); k-- > 0;) {
    if (strides[order[k]] <= reach) return false;
    reach += (shape[order[k]] - 1) * strides[order[k]];
  }
  return true;
}

Mesh Mesh::affine_unchecked(Dims shape, Rank base, Dims strides) {
  Mesh mesh;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) strides[i] = 0;
    mesh.size_ *= shape[i];
  }
  mesh.by_stride_ = order_by_stride(shape, strides);
  mesh.shape_ = std::move(shape);
  mesh.base_ = base;
  mesh.strides_ = std::move(strides);
  return mesh;
}

Result<Mesh> Mesh::from_ranks(Dims shape, std::vector<Rank> ranks) {
  SHOAL_ASSIGN_OR_RETURN(uint64_t size, mesh_size(shape));
  if (ranks.size() != size)
    return bad_mesh(fmt::format("{} ranks are given for a shape of {}", ranks.size(), size));
  // The only possible strides are those to the neighbours of the first coordinate.
  Dims strides(shape.size(), 0);
  bool is_affine = true;
  uint64_t step = size;
  for (size_t i = 0; i < shape.size(); ++i) {
    step /= shape[i];
    if (shape[i] == 1) continue;
    is_affine = is_affine && ranks[step] > ranks[0];
    strides[i] = uint64_t{ranks[step]} - ranks[0];
  }
  is_affine = is_affine && strides_nest(shape, strides);
  if (is_affine) {
    Mesh mesh = affine_unchecked(shape, ranks[0], strides);
    Dims coordinate(shape.size(), 0);
    uint64_t position = 0;
    do {
      is_affine = mesh.rank_at(coordinate) == ranks[position++];
    } while (is_affine && next_coordinate(coordinate, shape));
    if (is_affine) return mesh;
  }
  auto listed = std::make_shared<Listed>();
  listed->by_rank.resize(size);
  std::iota(listed->by_rank.begin(), listed->by_rank.end(), 0u);
  std::sort(listed->by_rank.begin(), listed->by_rank.end(),
            [&](uint32_t a, uint32_t b) { return ranks[a] < ranks[b]; });
  for (size_t i = 1; i < size; ++i) {
    Rank rank = ranks[listed->by_rank[i]];
    if (rank == ranks[listed->by_rank[i - 1]]) return bad_mesh(fmt::format("rank {} occurs twice", rank));
  }
  listed->ranks = std::move(ranks);
  Mesh mesh;
  mesh.shape_ = std::move(shape);
  mesh.size_ = size;
  mesh.listed_ = std::move(listed);
  return mesh;
}

const std::vector<Rank>& Mesh::listed() const {
  static const std::vector<Rank> none;
  return listed_ ? listed_->ranks : none;
}

std::strong_ordering operator<=>(const Mesh& a, const Mesh& b) {
  if (auto order = a.shape_ <=> b.shape_; order != 0) return order;
  if (auto order = a.base_ <=> b.base_; order != 0) return order;
  if (auto order = a.strides_ <=> b.strides_; order != 0) return order;
  if (a.listed_ == b.listed_) return std::strong_ordering::equal;
  return a.listed() <=> b.listed();
}

Result<Mesh> Mesh::affine(Dims shape, Rank base, Dims strides) {
  SHOAL_ASSIGN_OR_RETURN(uint64_t size, mesh_size(shape));
  if (strides.size() != shape.size()) return bad_mesh("the numbers of strides and dimensions differ");
  uint64_t highest = base;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (strides[i] > std::numeric_limits<Rank>::max()) return bad_mesh("a rank exceeds 32 bits");
    highest += (shape[i] - 1) * strides[i];
    if (highest > std::numeric_limits<Rank>::max()) return bad_mesh("a rank exceeds 32 bits");
  }
  if (strides_nest(shape, strides)) return affine_unchecked(std::move(shape), base, std::move(strides));
  std::vector<Rank> ranks;
  ranks.reserve(size);
  Dims coordinate(shape.size(), 0);
  do {
    uint64_t rank = base;
    for (size_t i = 0; i < shape.size(); ++i) rank += coordinate[i] * (shape[i] == 1 ? 0 : strides[i]);
    ranks.push_back(static_cast<Rank>(rank));
  } while (next_coordinate(coordinate, shape));
  return from_ranks(std::move(shape), std::move(ranks));
}

Mesh Mesh::contiguous(Dims shape, Rank base) {
  Dims strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  Result<Mesh> mesh = affine(shape, base, strides);
  if (mesh.ok()) return std::move(mesh).value();
  Mesh none;
  none.shape_ = std::move(shape);
  none.base_ = base;
  none.strides_ = std::move(strides);
  none.size_ = 0;
  return none;
}

Status Mesh::status() const {
  return size_ != 0 ? ok_status() : affine(shape_, base_, strides_).status();
}

Mesh Mesh::single(Rank rank) {
  return affine_unchecked({1}, rank, {0});
}

Rank Mesh::rank_at(std::span<const uint64_t> coordinate) const {
  if (is_affine()) {
    uint64_t rank = base_;
    for (size_t i = 0; i < coordinate.size(); ++i) rank += coordinate[i] * strides_[i];
    return static_cast<Rank>(rank);
  }
  uint64_t position = 0;
  for (size_t i = 0; i < coordinate.size(); ++i) position = position * shape_[i] + coordinate[i];
  return listed_->ranks[position];
}

std::optional<Dims> Mesh::coordinate_of(Rank rank) const {
  if (size_ == 0) return std::nullopt;
  Dims coordinate(dims(), 0);
  if (is_affine()) {
    if (rank < base_) return std::nullopt;
    uint64_t left = rank - base_;
    for (uint8_t dim : by_stride_) {
      coordinate[dim] = left / strides_[dim];
      if (coordinate[dim] >= shape_[dim]) return std::nullopt;
      left -= coordinate[dim] * strides_[dim];
    }
    if (left != 0) return std::nullopt;
    return coordinate;
  }
  const std::vector<Rank>& ranks = listed_->ranks;
  auto found = std::lower_bound(listed_->by_rank.begin(), listed_->by_rank.end(), rank,
                                [&](uint32_t position, Rank wanted) { return ranks[position] < wanted; });
  if (found == listed_->by_rank.end() || ranks[*found] != rank) return std::nullopt;
  uint64_t position = *found;
  for (size_t i = dims(); i-- > 0;) {
    coordinate[i] = position % shape_[i];
    position /= shape_[i];
  }
  return coordinate;
}

Mesh Mesh::slice(std::span<const uint64_t> coordinate, const std::vector<bool>& free) const {
  SHOAL_CHECK(coordinate.size() == dims() && free.size() == dims());
  Dims origin(coordinate.begin(), coordinate.end()), shape;
  std::vector<size_t> kept;
  for (size_t i = 0; i < dims(); ++i) {
    if (!free[i]) continue;
    origin[i] = 0;
    kept.push_back(i);
    shape.push_back(shape_[i]);
  }
  if (kept.empty()) return single(rank_at(origin));
  if (is_affine()) {
    Dims strides;
    for (size_t i : kept) strides.push_back(strides_[i]);
    return affine_unchecked(std::move(shape), rank_at(origin), std::move(strides));
  }
  std::vector<Rank> ranks;
  Dims step(kept.size(), 0);
  do {
    for (size_t k = 0; k < kept.size(); ++k) origin[kept[k]] = step[k];
    ranks.push_back(rank_at(origin));
  } while (next_coordinate(step, shape));
  Result<Mesh> mesh = from_ranks(std::move(shape), std::move(ranks));
  SHOAL_CHECK(mesh.ok());
  return std::move(mesh).value();
}

std::vector<Rank> Mesh::ranks() const {
  if (!is_affine()) return listed_->ranks;
  if (size_ == 0) return {};
  std::vector<Rank> ranks;
  ranks.reserve(size_);
  Dims coordinate(dims(), 0);
  do {
    ranks.push_back(rank_at(coordinate));
  } while (next_coordinate(coordinate, shape_));
  return ranks;
}

std::vector<Rank> Mesh::ascending_ranks() const {
  std::vector<Rank> out;
  if (is_affine()) {
    out = ranks();
    std::sort(out.begin(), out.end());
    return out;
  }
  out.reserve(size_);
  for (uint32_t position : listed_->by_rank) out.push_back(listed_->ranks[position]);
  return out;
}

}  // namespace shoal
