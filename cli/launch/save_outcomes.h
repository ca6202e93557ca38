// SaveOutcomes: the outcomes of the saves of a host's trainers, as the trainers report them
// (client/launch/save_report.h), and the failures of which no trainer was notified.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/launch/save_report.h"

namespace shoal::cli {

struct UnreportedSaves {  // one line each, for the user who started the job
  std::vector<std::string> failed;
  std::vector<std::string> undecided;
};

// Has no side effects; only untold() reads files.
class SaveOutcomes {
 public:
  // Takes bytes in the order of arrival; a line may arrive in parts.
  void read(std::string_view bytes);
  // The report of the first trainer that reached the maximum of failures in a row.
  const std::optional<client::SaveEvent>& too_many() const { return too_many_; }

  // The saves that trainers reported as failed or never reported, and of which no trainer was notified. It
  // reads the final decisions from the root, and leaves out saves that are committed or were deleted since.
  UnreportedSaves unreported(const std::string& root) const;

 private:
  struct Save {
    Rank rank = 0;  // the first rank that reported it, or its failure
    bool is_committed = false, has_failed = false, is_notified = false;
    std::string cause;
  };
  void take_line(const client::SaveEvent& event);

  std::string line_;  // an unfinished line
  std::map<AttemptKey, Save> saves_;
  std::optional<client::SaveEvent> too_many_;
};

}  // namespace shoal::cli
