// SaveReport: what the trainers of a host tell their launcher of their saves, a line each, by the FIFO that
// SHOAL_SAVE_REPORT names. From it the launcher knows of failures that no trainer ever asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "local/socket/socket.h"
#include "shoal/metadata.h"
#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr const char* kSaveReportVariable = "SHOAL_SAVE_REPORT";

struct SaveEvent {
  // told: the trainer was told of a failure. too_many: as many failed in a row as may be; the last was `key`.
  enum class Kind { staged, committed, failed, told, too_many };
  Kind kind = Kind::staged;
  Rank rank = 0;
  AttemptKey key;
  std::string cause;  // of failed and too_many

  friend bool operator==(const SaveEvent&, const SaveEvent&) = default;
};

// One line with its end, at most PIPE_BUF bytes, so that lines of several writers never mix; a longer cause
// is cut.
std::string save_event_line(const SaveEvent& event);
// nullopt: no such line. Without its end.
std::optional<SaveEvent> parse_save_event(std::string_view line);

// Never blocks, never raises SIGPIPE; what finds no room is lost. One thread at a time.
class SaveReportWriter {
 public:
  SaveReportWriter();  // to the FIFO that the variable names; without one, or one that opens, to nobody
  void write(const SaveEvent& event);

 private:
  local::OwnedFd fifo_;
};

}  // namespace shoal::client
