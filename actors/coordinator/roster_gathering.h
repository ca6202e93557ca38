// Gathers what every rank of the job holds until a World can be made of it. Part of the Coordinator.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages/messages.h"
#include "base/paged_map.h"

namespace shoal::actors {

class RosterGathering {
 public:
  // Takes what a host says of its ranks; the same again changes nothing, another layout replaces the one
  // before. Code::refused names the two that disagree.
  Status add(const wire::JoinRanks& said);
  void add_layout(LayoutPtr layout);  // one that no rank has named is not kept
  // Layouts that ranks of this message have and nobody has sent yet.
  std::vector<LayoutId> missing_layouts(const wire::JoinRanks& said) const;

  bool complete() const;  // every rank has a layout, and every layout is here
  const SaveOptions& options() const { return *options_; }
  uint32_t world_size() const { return world_size_; }
  size_t ranks_known() const { return ranks_.size(); }
  // Who has not said what it holds, beside whom; one line.
  std::string what_is_missing() const;
  // Precondition: complete. Validated, coverage included.
  Result<std::shared_ptr<const World>> make_world() const;

 private:
  void forget_unnamed_layouts();

  struct Known {
    LayoutId layout_id;
    std::string host;
  };
  uint32_t world_size_ = 0;
  std::optional<SaveOptions> options_;
  std::string first_host_;
  base::PagedMap<Rank, Known> ranks_;
  std::map<LayoutId, LayoutPtr> layouts_;  // of those that ranks named; null until somebody has sent it
};

}  // namespace shoal::actors
