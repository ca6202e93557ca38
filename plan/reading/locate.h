// Locates the stored pieces of a value from the roster alone, so that a load may use any other sharding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/save_plan.h"

namespace shoal::plan {

struct StoredPiece {
  Rank rank = 0;
  uint32_t file = 0;
  Box box;  // global coordinates; no dimensions for an object
  friend auto operator<=>(const StoredPiece&, const StoredPiece&) = default;
};

// Finds stored pieces for one world and one set of options, which must have passed validate_world and
// validate_options. Not thread-safe, because it caches what it computes, within bounds.
class Locator {
 public:
  Locator(std::shared_ptr<const World> world, SaveOptions options);
  ~Locator();
  Locator(const Locator&) = delete;
  Locator& operator=(const Locator&) = delete;

  struct Value {
    LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
    DType dtype = DType::u8;
    Dims shape;
  };
  // Code::not_found if no layout has the fqn.
  Result<Value> value(std::string_view fqn) const;
  // The canonical pieces that share at least one element with `target`, ascending by box. For an object or an
  // empty tensor, all pieces. For a mesh sharding it computes the ranks from the target's coordinates and
  // never visits all ranks.
  Result<std::vector<StoredPiece>> pieces(std::string_view fqn, const Box& target);
  // Where other ranks wrote the same bytes as a canonical piece from pieces(): at most `most` copies, those
  // of other hosts first. Empty if the save wrote no copies (dedupe), or if nothing proves that holders have
  // equal bytes, as for an undeclared group.
  Result<std::vector<StoredPiece>> copies(std::string_view fqn, const StoredPiece& piece, size_t most);
  // The whole plan of one rank, as plan_save computes it. Cached.
  Result<SavePlanPtr> plan_of(Rank rank);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::plan
