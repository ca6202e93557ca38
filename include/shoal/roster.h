// Roster: which layout and which host every rank has. World: a roster with its layouts, all that planning
// knows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "shoal/hash.h"
#include "shoal/layout.h"
#include "shoal/status.h"

namespace shoal {

inline constexpr uint32_t kMaxWorldSize = 1u << 24;

struct Run {
  uint32_t count = 0;
  uint32_t value = 0;
  friend auto operator<=>(const Run&, const Run&) = default;
};

// Immutable. Canonical: layouts and hosts are numbered by the first rank that has them.
class Roster {
 public:
  // layout[r], host[r] for every rank r; hosts by any distinct numbers. Code::invalid_argument if the sizes
  // differ or are 0 or beyond kMaxWorldSize.
  static Result<Roster> make(std::span<const LayoutId> layout, std::span<const uint32_t> host);
  // From its encoded parts; validates that they are canonical (Code::corrupt).
  static Result<Roster> from_runs(uint32_t world_size, std::vector<LayoutId> layout_ids,
                                  std::vector<Run> layout_runs, std::vector<Run> host_runs);

  uint32_t world_size() const { return world_size_; }
  const std::vector<LayoutId>& layout_ids() const { return layout_ids_; }
  const std::vector<Run>& layout_runs() const { return layout_runs_; }
  const std::vector<Run>& host_runs() const { return host_runs_; }
  // The first rank of each run.
  const std::vector<uint32_t>& layout_starts() const { return layout_starts_; }
  const std::vector<uint32_t>& host_starts() const { return host_starts_; }
  uint32_t layout_of(Rank rank) const;  // index into layout_ids(); O(log runs)
  uint32_t host_of(Rank rank) const;
  uint32_t hosts() const { return hosts_; }
  const RosterId& id() const { return id_; }

 private:
  uint32_t world_size_ = 0;
  uint32_t hosts_ = 0;
  std::vector<LayoutId> layout_ids_;
  std::vector<Run> layout_runs_, host_runs_;
  std::vector<uint32_t> layout_starts_, host_starts_;
  RosterId id_;
};

struct World {
  Roster roster;
  std::vector<LayoutPtr> layouts;  // in the order of roster.layout_ids()

  const Layout& layout_of(Rank rank) const { return *layouts[roster.layout_of(rank)]; }
};

// Code::invalid_argument unless every layout is there, in order, with its id, and no fqn has two kinds,
// dtypes or shapes, mixes explicit boxes with a mesh, or is also what one rank has of its own; and every rank
// named by a layout lies in the world. Names the fqn.
Status validate_world(const World& world);
// An entry of the value of this name, in some layout; of what rank 7 has of its own ("x@rank7"), in its
// layout. nullptr if there is none.
const LayoutEntry* find_value(const World& world, std::string_view fqn);

}  // namespace shoal
