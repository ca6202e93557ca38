#include "actors/coordinator/rosters.h"

#include <utility>

namespace shoal::actors {

std::shared_ptr<ExpectedPlans> Rosters::find(const RosterId& id) const {
  for (const auto& each : rosters_) {
    if (each->world().roster.id() == id) return each;
  }
  return nullptr;
}

LayoutPtr Rosters::find_layout(const LayoutId& id) const {
  for (const auto& each : rosters_) {
    if (LayoutPtr layout = actors::find_layout(*each, id)) return layout;
  }
  return nullptr;
}

bool Rosters::make_newest(std::shared_ptr<ExpectedPlans> roster) {
  if (newest_ == roster) return false;
  std::erase(rosters_, roster);
  rosters_.push_back(roster);
  if (rosters_.size() > kMaxRosters) rosters_.pop_front();
  newest_ = std::move(roster);
  return true;
}

void Rosters::add_older(std::shared_ptr<ExpectedPlans> roster) {
  if (rosters_.size() >= kMaxRosters) rosters_.pop_front();
  rosters_.insert(rosters_.end() - (rosters_.empty() ? 0 : 1), std::move(roster));
}

LayoutPtr find_layout(const ExpectedPlans& roster, const LayoutId& id) {
  for (const LayoutPtr& layout : roster.world().layouts) {
    if (layout->id() == id) return layout;
  }
  return nullptr;
}

}  // namespace shoal::actors
