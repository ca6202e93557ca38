#include "sim/reports/path_counts.h"

#include <fmt/format.h>

#include <variant>

#include "actors/operation_traits.h"
#include "shoal/check.h"
#include "sim/reports/event_text.h"

namespace shoal::sim {

namespace {

// What tells events of one kind apart.
size_t detail_index(const actors::Event& event) {
  if (const auto* done = std::get_if<actors::event::OperationDone>(&event)) {
    return static_cast<size_t>(done->result.status().code());
  }
  if (const auto* received = std::get_if<actors::event::Received>(&event)) {
    return received->message.body->index();
  }
  if (const auto* offered = std::get_if<actors::event::FromClient>(&event)) return offered->message->index();
  return 0;
}

}  // namespace

void PathCounts::handled(actors::RoleKind role, const actors::Event& event) {
  static_assert(std::variant_size_v<actors::Event> <= kEvents);
  std::vector<Handled>& of_role = handled_[static_cast<size_t>(role)];
  if (of_role.empty()) of_role.resize(kEvents * kDetails);
  const size_t detail = detail_index(event);
  SHOAL_CHECK(detail < kDetails);
  Handled& handled = of_role[event.index() * kDetails + detail];
  if (handled.count++ != 0) return;
  handled.name = fmt::format("{} event: {}", actors::role_name(role), event_name(event));
  if (const auto* done = std::get_if<actors::event::OperationDone>(&event)) {
    handled.name += fmt::format(" {}", code_name(done->result.status().code()));
  }
}

void PathCounts::requested(actors::RoleKind role, const actors::Operation& operation) {
  ++requested_[{role, actors::traits_of(operation).name}];
}

void PathCounts::ended(const actors::Role& role) {
  for (const actors::TransitionsTaken& table : role.transitions()) {
    for (const base::TransitionCount& row : table.rows) {
      others_[fmt::format("{} {}: {} on {}", actors::role_name(role.kind()), table.machine, row.from,
                          row.on)] += row.count;
    }
  }
}

void PathCounts::took(const base::RarePathCounts& rare) {
  for (const auto& [name, count] : rare.list()) others_[fmt::format("rare: {}", name)] += count;
}

PathsTaken PathCounts::taken() const {
  PathsTaken all = others_;
  for (const std::vector<Handled>& of_role : handled_) {
    for (const Handled& handled : of_role) {
      if (handled.count != 0) all[handled.name] += handled.count;
    }
  }
  for (const auto& [request, count] : requested_) {
    all[fmt::format("{} operation: {}", actors::role_name(request.first), request.second)] += count;
  }
  return all;
}

}  // namespace shoal::sim
