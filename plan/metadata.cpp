#include "plan/metadata.h"

#include <fmt/format.h>

namespace shoal {

std::string to_string(const AttemptKey& key) {
  return fmt::format("step {} (g{}a{})", key.step, key.generation, key.attempt);
}

}  // namespace shoal
