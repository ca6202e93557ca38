// ViolationPage: what led to a violation, as one HTML page: a lane for each node, messages as arrows between
// them, failures, what trainers were told, and what the violated oracle demands.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "sim/simulation.h"

namespace shoal::sim {

// What the oracle of this name demands, as a sentence; "" if no oracle has the name.
std::string_view meaning_of_oracle(std::string_view oracle);

class ViolationPage {
 public:
  // The last events before the end of a run that the page shows.
  static constexpr size_t kMostRows = 600;

  // To pass to simulate(). They record until the page is made; the page must outlive the run.
  SimulationListeners listeners();
  // Self-contained: no script, no other file; light or dark as the reader prefers. Equal runs give equal
  // text.
  std::string html(const SimulationReport& report, const std::string& replay_command) const;

 private:
  struct Row {
    enum class Kind : uint8_t { message, event, failure, told_committed, told_failed } kind = Kind::event;
    actors::TimeNs at = 0;
    size_t node = 0, from = 0;  // of a failure: neither
    std::string text;
  };
  void add(Row row);
  std::string svg(const SimulationReport& report) const;

  std::deque<Row> rows_;
  size_t lanes_ = 1;
  uint64_t left_out_ = 0;
};

}  // namespace shoal::sim
