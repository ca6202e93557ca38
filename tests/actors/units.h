// Units of the tests of the roles and their host.
#pragma once

#include <cstdint>

#include "actors/ids.h"

namespace shoal::actors {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr TimeNs kSecond = 1000 * kMillisecond;

}  // namespace shoal::actors
