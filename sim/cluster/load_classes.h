// LoadClasses: hosts of a restarted job that load alike. If each rank of a host loads what it has saved, and
// the host alone holds that, then its ranks read what they wrote themselves. Two such hosts whose ranks wrote
// alike (plan/saving/plan_classes.h) read the same pieces of the same files, except for the names of the
// files and the offsets of boxes. Where bytes are only counted, neither changes what a load costs. So the
// ranks of one host stand for those of all hosts of its class, and share their targets and plans.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/saving/plan_classes.h"
#include "sim/cluster/counted_root.h"

namespace shoal::sim {

class LoadClasses {
 public:
  // The ranks load what the root has now. layout_of: of each rank of the job that loads.
  LoadClasses(const CountedRoot& root, std::vector<LayoutPtr> layout_of, uint32_t ranks_per_host);

  // The rank whose load costs what that of `rank` costs. It has the same place on its host. Itself if no
  // class is known.
  Rank like(Rank rank);

 private:
  // What a rank holds of the values of one mesh, if some dimensions of the mesh replicate them.
  struct Replicated {
    const Mesh* mesh = nullptr;
    std::vector<bool> dims;
    friend bool operator==(const Replicated&, const Replicated&) = default;
  };
  bool know_root();  // false: the checkpoints of the root are not those of one world
  // The meshes of a layout; nullopt: not every value of it lies on a mesh that replicates affinely.
  static std::optional<std::vector<Replicated>> replicated_by(const Layout& layout);
  bool is_closed(Rank first, Rank end);  // whether no rank elsewhere holds what these hold
  Hash128 class_of(Rank first, Rank end);

  const CountedRoot& root_;
  const std::vector<LayoutPtr> layout_of_;
  const uint32_t ranks_per_host_;
  std::shared_ptr<const World> world_;  // null: no classes are known
  std::unique_ptr<plan::PlanClasses> plans_;
  std::vector<AttemptKey> attempts_;  // of which the root has files
  std::unordered_map<const Layout*, std::optional<std::vector<Replicated>>> replicated_;
  std::unordered_map<Hash128, Rank> first_of_class_;
  std::vector<Rank> like_host_;  // by host: the first rank of the host that stands for it
};

}  // namespace shoal::sim
