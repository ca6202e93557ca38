// KnownWorlds: the rosters of this generation that a node has received, and the plans of its ranks under
// each. Part of the ShardWriter.
#pragma once

#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "actors/messages/messages.h"
#include "base/flat_map.h"

namespace shoal::actors {

class KnownWorlds {
 public:
  static constexpr size_t kMost = 8;  // a forgotten roster is read from the root again
  static_assert(kMost >= 2);

  struct Known {
    std::shared_ptr<const World> world;
    SaveOptions options;
    base::FlatMap<Rank, SavePlanPtr> plans;  // those computed so far
  };

  bool empty() const { return worlds_.empty(); }
  const World& newest() const { return *worlds_.back().world; }

  // For a roster that the coordinator states to be in force. A roster that is known becomes the newest again.
  void add_newest(std::shared_ptr<const World> world, const SaveOptions& options) {
    Known known{std::move(world), options, {}};
    for (auto each = worlds_.begin(); each != worlds_.end(); ++each) {
      if (each->world->roster.id() != known.world->roster.id()) continue;
      known = std::move(*each);
      worlds_.erase(each);
      break;
    }
    worlds_.push_back(std::move(known));
    if (worlds_.size() > kMost) worlds_.erase(worlds_.begin());
  }
  // For a roster, read from the root, by which an assignment was planned. Precondition: at least one world is
  // known, so that this one does not become the newest.
  void add_earlier(std::shared_ptr<const World> world, const SaveOptions& options) {
    if (find(world->roster.id()) != nullptr) return;
    if (worlds_.size() >= kMost) worlds_.erase(worlds_.begin());
    worlds_.insert(std::prev(worlds_.end()), Known{std::move(world), options, {}});
  }

  // The pointer is valid until the next roster is added.
  Known* find(const RosterId& id) {
    for (auto each = worlds_.rbegin(); each != worlds_.rend(); ++each) {
      if (each->world->roster.id() == id) return &*each;
    }
    return nullptr;
  }
  // For rank-local worlds, each of which has one layout.
  Known* find_by_layout(const LayoutId& id) {
    for (auto each = worlds_.rbegin(); each != worlds_.rend(); ++each) {
      if (each->world->layouts.front()->id() == id) return &*each;
    }
    return nullptr;
  }

 private:
  std::vector<Known> worlds_;  // the newest is last
};

}  // namespace shoal::actors
