// SaveReport: the lines that the trainers of a host send to their launcher about their saves, through the
// FIFO that SHOAL_SAVE_REPORT names. They let the launcher report failures that no trainer noticed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/metadata.h"
#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr const char* kSaveReportVariable = "SHOAL_SAVE_REPORT";

struct SaveEvent {
  // notified: a call returned the failure to the trainer. too_many: max_failed_saves saves failed in a row,
  // the last of them `key`.
  enum class Kind { staged, committed, failed, notified, too_many };
  Kind kind = Kind::staged;
  Rank rank = 0;
  AttemptKey key;
  std::string cause;  // for failed and too_many

  friend bool operator==(const SaveEvent&, const SaveEvent&) = default;
};

// One line with its newline. It has at most PIPE_BUF bytes, so that lines of several writers never mix; a
// longer cause is cut.
std::string save_event_line(const SaveEvent& event);
// `line` has no newline. nullopt: it is no such line.
std::optional<SaveEvent> parse_save_event(std::string_view line);

// Never blocks and never raises SIGPIPE; drops a line if the FIFO is full. One thread at a time may use it.
class SaveReportWriter {
 public:
  // Opens the FIFO that the variable names. If there is none, or it cannot be opened, write does nothing.
  SaveReportWriter();
  void write(const SaveEvent& event);

 private:
  base::OwnedFd fifo_;
};

}  // namespace shoal::client
