// RosterGathering: collects what every rank of the job holds until a World can be made of it. Part of the
// Coordinator.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordinator/missing.h"
#include "actors/messages/messages.h"
#include "base/paged_map.h"

namespace shoal::actors {

class RosterGathering {
 public:
  // Adds what a host states about its ranks. A repetition changes nothing; another layout of a rank replaces
  // the one before. Code::refused: two statements contradict each other, and the message names both.
  Status add(const wire::JoinRanks& message);
  void add_layout(LayoutPtr layout);  // a layout that no rank has declared is dropped
  // Layouts that ranks of this message have and that no node has sent yet.
  std::vector<LayoutId> missing_layouts(const wire::JoinRanks& message) const;

  bool complete() const;  // every rank has declared a layout, and every layout is here
  // Whether a rank has declared a layout, or one has arrived, since the last call.
  bool take_news() { return std::exchange(has_news_, false); }
  // Whether a rank has declared another layout since its first one. The layouts of the ranks may then be
  // those of different saves.
  bool has_changed() const { return has_changed_; }
  const SaveOptions& options() const { return *options_; }
  uint32_t world_size() const { return world_size_; }
  size_t ranks_known() const { return ranks_.size(); }
  const std::string& first_host() const { return first_host_; }  // that joined; "": none has
  // The ranks whose layouts are missing, and the hosts of their neighbours.
  Missing what_is_missing() const;
  // The number of the host of each rank. Precondition: complete.
  std::vector<uint32_t> hosts() const;
  // Precondition: complete. The world is validated, and so is its coverage.
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
  std::map<LayoutId, LayoutPtr> layouts_;  // that ranks have declared; null: not sent yet
  bool has_news_ = false;
  bool has_changed_ = false;
};

}  // namespace shoal::actors
