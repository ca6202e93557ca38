// Finding: the result of one check of `shoal doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::cli {

enum class Outcome : uint8_t {
  ok,
  warning,  // a job starts, but may lose speed, checkpoints or safety
  error,    // a job would not start, or could not save
  skipped,  // there is nothing to check, or it could not be checked
};
std::string_view to_string(Outcome outcome);

struct Finding {
  std::string check;  // "root", "clock": docs/reference/cli.md lists them
  Outcome outcome = Outcome::ok;
  std::string measured;
  std::string remedy;  // what to do; empty unless the outcome is a warning or an error
};
using Findings = std::vector<Finding>;

inline Finding found_ok(std::string check, std::string measured) {
  return {std::move(check), Outcome::ok, std::move(measured), ""};
}
inline Finding found_skipped(std::string check, std::string why) {
  return {std::move(check), Outcome::skipped, std::move(why), ""};
}
inline Finding found_warning(std::string check, std::string measured, std::string remedy) {
  return {std::move(check), Outcome::warning, std::move(measured), std::move(remedy)};
}
inline Finding found_error(std::string check, std::string measured, std::string remedy) {
  return {std::move(check), Outcome::error, std::move(measured), std::move(remedy)};
}

// error, if any finding is one; else warning, if any is one; else ok.
Outcome worst_of(const Findings& findings);

}  // namespace shoal::cli
