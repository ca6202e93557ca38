#include "shoal/passed_over.h"

#include "shoal/bytes.h"

namespace shoal {

void PassedOver::add(const AttemptKey& key, const std::string& cause) {
  ++count;
  if (named.size() < kMaxPassedOverNamed) named.push_back({key, clean_line(cause, kMaxPassedOverCauseBytes)});
}

std::string to_string(const PassedOver& passed_over) {
  std::string text;
  for (const PassedOverAttempt& each : passed_over.named) {
    if (!text.empty()) text += "; ";
    text += to_string(each.key) + " is " + each.cause;
  }
  if (passed_over.count > passed_over.named.size()) {
    text += "; and " + std::to_string(passed_over.count - passed_over.named.size()) + " more";
  }
  return text;
}

}  // namespace shoal
