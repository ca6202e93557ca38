// RefusalLines: lines for the log about those who were turned away at one of a node's doors. Whoever causes
// them, there are few; and a flood of connections that prove nothing is reported whatever else is refused.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "actors/node/watch/line_budget.h"
#include "shoal/status.h"

namespace shoal::actors {

// So many lines at once, then one in so many milliseconds, of floods and of all else.
inline constexpr uint32_t kRefusalLinesAtOnce = 10;
inline constexpr uint32_t kRefusalLineMs = 10'000;

class RefusalLines {
 public:
  explicit RefusalLines(std::string door = "") : door_(std::move(door)) {}

  // Any thread. What the transport said of somebody whom it refused (TransportHandler::on_refused), as a
  // line; nothing: there were too many of late.
  std::optional<std::string> line(TimeNs now, const std::string& address, const Status& why);

 private:
  const std::string door_;  // "the relay's door"; empty: the node's own
  std::mutex mutex_;
  LineBudget floods_{kRefusalLinesAtOnce, kRefusalLineMs};  // Code::busy
  LineBudget others_{kRefusalLinesAtOnce, kRefusalLineMs};
};

}  // namespace shoal::actors
