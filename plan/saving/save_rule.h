// SaveRule: rule version 1 applied to the holdings of a world. plan_save and Locator both use it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "plan/layout/holdings.h"
#include "plan/saving/units.h"
#include "shoal/save_plan.h"

namespace shoal::plan {

// A piece of a local box that a rank writes.
struct Piece {
  uint32_t value = 0;         // index in the holdings
  uint32_t entry = 0;         // index in the rank's layout
  uint32_t local_box = 0;     // index in shards_of(entry, rank).boxes
  uint64_t local_offset = 0;  // elements from the start of that box
  Box box;
  bool canonical = true;
};

// The boxes that one replica group divides among its members.
struct Bucket {
  struct HeldBox {
    uint32_t value = 0;
    uint32_t entry = 0;      // of the rank from which the bucket was gathered
    uint32_t local_box = 0;  // of the same rank
    uint64_t element_bytes = 0;
    Box box;
  };
  void add(uint32_t value, uint32_t entry, HeldPart part, uint64_t element_bytes) {
    for (uint32_t i = 0; i < part.boxes.size(); ++i) {
      boxes.push_back({value, entry, part.first_box + i, element_bytes, std::move(part.boxes[i])});
    }
  }
  std::vector<HeldBox> boxes;           // in canonical order: by value, that is by fqn, then by box
  std::vector<Assignment> assignments;  // filled by divide_bucket
  std::vector<Rank> members;            // the members that the assignments refer to
  bool divided = false;
};
using Buckets = std::map<RankSet, Bucket>;

class SaveRule {
 public:
  SaveRule(const World& world, const SaveOptions& options, FqnIndex index);

  Holdings& holdings() { return holdings_; }
  const World& world() const { return holdings_.world(); }
  const SaveOptions& options() const { return options_; }

  // What concerns `rank`: the pieces that it alone determines, and the buckets of its replica groups.
  struct Gathered {
    std::vector<Piece> pieces;
    Buckets buckets;
  };
  Gathered gather(Rank rank);
  void divide_bucket(const RankSet& group, Bucket& bucket) const;

  // The rank that writes a value which a group holds whole without proof of equal bytes. nullopt if no rank
  // holds it.
  std::optional<Rank> whole_writer(uint32_t value) {
    return holdings_.whole_writer(value, options_.dedupe != Dedupe::balanced);
  }
  // The one holder that writes an explicit box that is not divided.
  Rank box_writer(const ValueHoldings& value, const BoxHoldings& boxes,
                  const BoxHoldings::HeldBox& held) const;
  bool divides(const BoxHoldings::HeldBox& held) const {
    return options_.dedupe == Dedupe::balanced && held.replicated && held.count > 1;
  }

 private:
  struct Context;
  void gather_entry(Context& context, uint32_t entry);
  void gather_mesh(Context& context, uint32_t value, uint32_t entry);
  void gather_boxes(Context& context, uint32_t value, uint32_t entry);

  SaveOptions options_;
  Holdings holdings_;
};

// Appends the pieces that `rank` writes of a divided bucket. Entries and local boxes refer to the rank from
// which the bucket was gathered.
void append_pieces_of(const Bucket& bucket, Rank rank, std::vector<Piece>& out);

// Sorts the pieces of one rank by (value, box) and returns the file of each, in sorted order. The n-th piece
// of a tensor goes to file min(n, kMaxFilesPerRank - 1).
std::vector<uint32_t> sort_into_files(std::vector<Piece>& pieces);

SavePlan plan_with(SaveRule& rule, Rank rank);  // equals the result of plan_save; reuses cached holdings

}  // namespace shoal::plan
