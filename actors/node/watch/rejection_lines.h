// RejectionLines: log lines about connections that a listener of a node has rejected. Their number is
// bounded, no matter who causes them. A flood of connections that do not authenticate is reported even if
// other rejections use up their lines.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "actors/node/watch/line_budget.h"
#include "shoal/status.h"

namespace shoal::actors {

// So many lines at once, then one in this interval; separately for floods and for all other causes.
inline constexpr uint32_t kRejectionLinesAtOnce = 10;
inline constexpr uint32_t kRejectionLineMs = 10'000;

class RejectionLines {
 public:
  explicit RejectionLines(std::string listener = "") : listener_(std::move(listener)) {}

  // Any thread. The line about a rejection (TransportHandler::on_refused); nullopt: there were too many
  // recently.
  std::optional<std::string> line(TimeNs now, const std::string& address, const Status& why);

 private:
  const std::string listener_;  // the listener, such as "the listener of the relay"; empty: the node's own
  std::mutex mutex_;
  LineBudget floods_{kRejectionLinesAtOnce, kRejectionLineMs};  // Code::busy
  LineBudget others_{kRejectionLinesAtOnce, kRejectionLineMs};
};

}  // namespace shoal::actors
