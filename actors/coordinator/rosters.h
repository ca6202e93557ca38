// Rosters: the rosters of this generation that the coordinator has in memory. A forgotten one is read from
// the root again. The newest is only a hint: ranks that save next plan by it, and each attempt has its own.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "actors/coordinator/expected_plans.h"

namespace shoal::actors {

inline constexpr size_t kMaxRosters = 8;

class Rosters {
 public:
  // Null: none is known.
  const std::shared_ptr<ExpectedPlans>& newest() const { return newest_; }
  std::shared_ptr<ExpectedPlans> find(const RosterId& id) const;
  LayoutPtr find_layout(const LayoutId& id) const;  // null: no roster in memory has it
  // False: it is the newest already.
  bool make_newest(std::shared_ptr<ExpectedPlans> roster);
  void add_older(std::shared_ptr<ExpectedPlans> roster);
  const std::deque<std::shared_ptr<ExpectedPlans>>& all() const { return rosters_; }

 private:
  std::shared_ptr<ExpectedPlans> newest_;
  std::deque<std::shared_ptr<ExpectedPlans>> rosters_;  // the newest is last
};

// The layout if the roster has it, else null.
LayoutPtr find_layout(const ExpectedPlans& roster, const LayoutId& id);

}  // namespace shoal::actors
