#include "actors/loader/sharing/load_tree.h"

#include <algorithm>

namespace shoal::actors {

uint32_t LoadTree::root_of(uint64_t ordinal) const {
  const uint64_t readers = std::min(members_, kReadersMost);
  return static_cast<uint32_t>(ordinal % readers * members_ / readers);
}

// Goes up the tree to the next living member. If there is none, takes the first living member of all, which
// reads.
std::optional<uint32_t> LoadTree::parent_of(uint32_t position, uint32_t root) const {
  for (uint32_t at = position; at != 0;) {
    at = (at - 1) / fan();
    if (!dead_.contains(place_at(at, root))) return at;
  }
  for (uint32_t at = 0; at < position; ++at) {
    if (!dead_.contains(place_at(at, root))) return at;
  }
  return std::nullopt;
}

std::optional<uint32_t> LoadTree::parent(uint64_t ordinal) const {
  const uint32_t root = root_of(ordinal);
  const std::optional<uint32_t> at = parent_of(position_of(own_, root), root);
  if (!at) return std::nullopt;
  return place_at(*at, root);
}

uint32_t LoadTree::children(uint64_t ordinal) const {
  const uint32_t root = root_of(ordinal);
  const uint32_t own = position_of(own_, root);
  uint32_t count = 0;
  if (dead_.empty()) {
    for (uint64_t at = uint64_t{own} * fan() + 1; at < members_ && at <= uint64_t{own} * fan() + fan(); ++at)
      ++count;
    return count;
  }
  for (uint32_t at = own + 1; at < members_; ++at) {
    if (!dead_.contains(place_at(at, root)) && parent_of(at, root) == own) ++count;
  }
  return count;
}

}  // namespace shoal::actors
