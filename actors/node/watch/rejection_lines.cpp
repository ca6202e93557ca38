#include "actors/node/watch/rejection_lines.h"

#include <fmt/format.h>

namespace shoal::actors {

std::optional<std::string> RejectionLines::line(TimeNs now, const std::string& address, const Status& why) {
  std::lock_guard lock(mutex_);
  LineBudget& budget = why.code() == Code::busy ? floods_ : others_;
  const std::optional<uint64_t> left_out = budget.take(now);
  if (!left_out) return std::nullopt;
  const std::string others = *left_out == 0 ? "" : fmt::format(" ({} more were rejected before)", *left_out);
  const std::string where = listener_.empty() ? "" : fmt::format("at {}: ", listener_);
  // If the handshake rejected the visitor, the cause names it.
  const std::string who = address.empty() ? "" : address + ": ";
  return fmt::format("rejected {}{}{}{}", where, who, why.message(), others);
}

}  // namespace shoal::actors
