// Where the stored pieces of a value are, by arithmetic from the roster, for a load of any other sharding.
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

// Finds stored pieces under one (world, options), which have passed validate_world and validate_options. Not
// thread-safe: it keeps what it derived, within bounds.
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
  std::vector<std::string> fqns() const;  // ascending, each once
  // The canonical pieces that share at least one element with `target`, ascending by box; all of an object or
  // of an empty tensor. Never walks all ranks for a mesh sharding: ranks are found from the target's
  // coordinates.
  Result<std::vector<StoredPiece>> pieces(std::string_view fqn, const Box& target);
  // Where other ranks have written the very bytes of a canonical piece, one that pieces() gave: `most` of
  // them, those of other hosts first. None where the save was to write no copies (dedupe), nor where nothing
  // proves that holders have the same: an undeclared group, an object of one.
  Result<std::vector<StoredPiece>> copies(std::string_view fqn, const StoredPiece& piece, size_t most);
  // The whole plan of one rank, as plan_save gives it (kept).
  Result<SavePlanPtr> plan_of(Rank rank);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::plan
