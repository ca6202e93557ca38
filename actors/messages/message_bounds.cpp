#include "actors/messages/message_bounds.h"

#include <string>

#include "plan/layout/codec.h"

namespace shoal::actors {

std::vector<wire::Layouts> split_layouts(const std::vector<LayoutPtr>& layouts, size_t bytes_max,
                                         Status* refused) {
  std::vector<wire::Layouts> messages;
  size_t bytes = 0;
  for (const LayoutPtr& layout : layouts) {
    const size_t own_bytes = plan::encode_layout(*layout).size() + kItemOverheadBytes;
    if (own_bytes + kMessageOverheadBytes > bytes_max) {
      *refused = Status(Code::too_large,
                        "layout " + layout->id().short_hex() + " takes " + std::to_string(own_bytes) +
                            " bytes, but a message takes at most " + std::to_string(bytes_max));
      continue;
    }
    if (messages.empty() || bytes + own_bytes > bytes_max) {
      messages.emplace_back();
      bytes = kMessageOverheadBytes;
    }
    messages.back().layouts.push_back(layout);
    bytes += own_bytes;
  }
  return messages;
}

std::vector<wire::PlanGathering> split_plans(wire::PlanGathering whole, size_t bytes_max, Status* refused) {
  std::vector<wire::PlanGathering> messages;
  const std::vector<wire::PlanOfRank> plans = std::move(whole.plans);
  whole.plans.clear();
  size_t bytes = 0;
  for (const wire::PlanOfRank& plan : plans) {
    const size_t own_bytes = plan.bytes->size() + kItemOverheadBytes;
    if (own_bytes + kMessageOverheadBytes > bytes_max) {
      *refused =
          Status(Code::too_large, "the plan of rank " + std::to_string(plan.rank) + " takes " +
                                      std::to_string(own_bytes) + " bytes, but a message takes at most " +
                                      std::to_string(bytes_max));
      continue;
    }
    if (messages.empty() || bytes + own_bytes > bytes_max) {
      messages.push_back(whole);
      bytes = kMessageOverheadBytes;
    }
    messages.back().plans.push_back(plan);
    bytes += own_bytes;
  }
  return messages;
}

Status check_roster_fits(const World& world, size_t bytes_max) {
  size_t bytes = kMessageOverheadBytes + plan::encode_roster(world.roster).size();
  for (const LayoutPtr& layout : world.layouts)
    bytes += plan::encode_layout(*layout).size() + kItemOverheadBytes;
  if (bytes <= bytes_max) return ok_status();
  return Status(Code::too_large, "the roster of " + std::to_string(world.roster.world_size()) +
                                     " ranks and " + std::to_string(world.layouts.size()) +
                                     " layouts takes " + std::to_string(bytes) +
                                     " bytes, but a message takes at most " + std::to_string(bytes_max));
}

}  // namespace shoal::actors
