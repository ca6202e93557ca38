// Roster: which layout and which host every rank has. World: a roster with its layouts, the input of
// planning.
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
  // layout[r] and host[r] are those of rank r; hosts have any distinct numbers. Code::invalid_argument: the
  // sizes differ, are 0, or are greater than kMaxWorldSize.
  static Result<Roster> make(std::span<const LayoutId> layout, std::span<const uint32_t> host);
  // Makes a roster from its encoded parts. Code::corrupt: they are not canonical.
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

// OK if the world has every layout of the roster, in order and with its id, and all of these hold. No fqn has
// two kinds, dtypes or shapes, has both explicit boxes and a mesh, or is also the name of a per-rank object.
// Every rank that a layout names is in the world. Otherwise Code::invalid_argument, which names the fqn.
Status validate_world(const World& world);
// An entry of the value with this name, in any layout that has it; for an object of rank 7 ("x@rank7"), in
// the layout of rank 7. nullptr: there is none.
const LayoutEntry* find_value(const World& world, std::string_view fqn);

}  // namespace shoal
