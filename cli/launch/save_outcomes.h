// SaveOutcomes: what became of the saves of a host's trainers, as they report it
// (client/launch/save_report.h), and which failures none of them was told of.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/launch/save_report.h"

namespace shoal::cli {

struct UntoldSaves {  // a line each, for whoever started the job
  std::vector<std::string> failed;
  std::vector<std::string> undecided;
};

// Pure, but for untold().
class SaveOutcomes {
 public:
  // Bytes as they came; a line may come in parts.
  void hear(std::string_view bytes);
  // Of the first trainer that reported as many failures in a row as may be.
  const std::optional<client::SaveEvent>& too_many() const { return too_many_; }

  // The saves that trainers reported as failed, or of which they heard nothing, and that none was told of.
  // The root says what was decided in the end: neither a committed one nor one that was deleted since is
  // named.
  UntoldSaves untold(const std::string& root) const;

 private:
  struct Save {
    Rank rank = 0;  // the first that reported it, or its failure
    bool is_committed = false, has_failed = false, is_told = false;
    std::string cause;
  };
  void hear_event(const client::SaveEvent& event);

  std::string line_;  // of which the end has not come
  std::map<AttemptKey, Save> saves_;
  std::optional<client::SaveEvent> too_many_;
};

}  // namespace shoal::cli
