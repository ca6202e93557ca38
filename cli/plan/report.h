// The output of `shoal plan`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/plan/plan_case.h"

namespace shoal::cli {

// "90 s", "2 min", "1 h 30 min"; "250 ms" below ten seconds.
std::string duration_text(actors::TimeNs time);
std::string percent_text(double part);   // "93.40 %"
std::string grouped_text(double value);  // "1,234"
// What to do, in one sentence.
std::string takeaway_text(const PlanResult& result);
// What the plan is about, in one line.
std::string job_text(const PlanResult& result);
// The parts of a life, in the order in which they are shown.
struct NamedPart {
  const char* name;
  const char* key;
  actors::TimeNs sim::LifeParts::*part;
  bool is_lost;
};
const std::vector<NamedPart>& life_parts();

std::string plan_text(const PlanResult& result);
nlohmann::ordered_json plan_json(const PlanResult& result);
// A line of names, then one line for each case and interval.
std::string plan_csv(const PlanResult& result);

}  // namespace shoal::cli
