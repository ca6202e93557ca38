#include "plan/geometry/rank_set.h"

#include <algorithm>
#include <utility>

namespace shoal::plan {

RankSet RankSet::of_mesh(const Mesh& mesh) {
  if (!mesh.is_affine()) return from_ascending(mesh.ascending_ranks());
  RankSet set;
  set.size_ = mesh.size();
  set.base_ = mesh.base();
  std::vector<Digit> digits;
  for (size_t i = 0; i < mesh.dims(); ++i) {
    if (mesh.shape()[i] > 1) digits.push_back({mesh.strides()[i], mesh.shape()[i]});
  }
  std::sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) { return a.stride > b.stride; });
  for (const Digit& digit : digits) {
    if (!set.digits_.empty() && set.digits_.back().stride == digit.stride * digit.size) {
      set.digits_.back() = {digit.stride, digit.size * set.digits_.back().size};
    } else {
      set.digits_.push_back(digit);
    }
  }
  return set;
}

RankSet RankSet::from_ascending(std::vector<Rank> ranks) {
  RankSet set;
  set.size_ = ranks.size();
  // Finds the innermost digit first: the longest progression at the start must repeat in every block of its
  // length.
  std::vector<Rank> firsts = ranks;
  while (firsts.size() > 1) {
    const uint64_t stride = firsts[1] - firsts[0];
    size_t length = 2;
    while (length < firsts.size() && firsts[length] - firsts[length - 1] == stride) ++length;
    bool regular = firsts.size() % length == 0;
    for (size_t i = 0; regular && i < firsts.size(); ++i) {
      regular = i % length == 0 || firsts[i] - firsts[i - 1] == stride;
    }
    if (!regular) {
      set.digits_.clear();
      set.listed_ = std::move(ranks);
      return set;
    }
    set.digits_.insert(set.digits_.begin(), {stride, length});
    for (size_t i = 0; i * length < firsts.size(); ++i) firsts[i] = firsts[i * length];
    firsts.resize(firsts.size() / length);
  }
  if (!firsts.empty()) set.base_ = firsts[0];
  return set;
}

Rank RankSet::nth(uint64_t index) const {
  SHOAL_CHECK(index < size_);
  if (!listed_.empty()) return listed_[index];
  uint64_t rank = base_;
  for (size_t i = digits_.size(); i-- > 0;) {
    rank += index % digits_[i].size * digits_[i].stride;
    index /= digits_[i].size;
  }
  return static_cast<Rank>(rank);
}

std::vector<Rank> RankSet::ranks() const {
  if (!listed_.empty() || size_ == 0) return listed_;
  std::vector<Rank> out{base_};
  out.reserve(size_);
  for (size_t i = digits_.size(); i-- > 0;) {
    const size_t block = out.size();
    for (uint64_t k = 1; k < digits_[i].size; ++k) {
      const Rank shift = static_cast<Rank>(k * digits_[i].stride);
      for (size_t j = 0; j < block; ++j) out.push_back(out[j] + shift);
    }
  }
  return out;
}

uint64_t RankSet::count_below(uint64_t rank) const {
  if (!listed_.empty()) {
    return static_cast<uint64_t>(std::lower_bound(listed_.begin(), listed_.end(), rank) - listed_.begin());
  }
  if (size_ == 0 || rank <= base_) return 0;
  uint64_t left = rank - base_, count = 0, below = size_;
  for (const Digit& digit : digits_) {
    below /= digit.size;
    uint64_t value = left / digit.stride;
    if (value >= digit.size) return count + digit.size * below;
    count += value * below;
    left -= value * digit.stride;
  }
  return count + (left > 0 ? 1 : 0);
}

}  // namespace shoal::plan
