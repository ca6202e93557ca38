// Units of the tests of staging memory.
#pragma once

#include <cstdint>

#include "actors/event.h"

namespace shoal::actors {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr TimeNs kSecond = 1000 * kMillisecond;

}  // namespace shoal::actors
