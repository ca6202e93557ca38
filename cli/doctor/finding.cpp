#include "cli/doctor/finding.h"

namespace shoal::cli {

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::warning:
      return "warning";
    case Outcome::error:
      return "error";
    case Outcome::skipped:
      return "skipped";
  }
  return "?";
}

Outcome worst_of(const Findings& findings) {
  Outcome worst = Outcome::ok;
  for (const Finding& each : findings) {
    if (each.outcome == Outcome::error) return Outcome::error;
    if (each.outcome == Outcome::warning) worst = Outcome::warning;
  }
  return worst;
}

}  // namespace shoal::cli
