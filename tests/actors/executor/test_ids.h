// The attempt and the client of the executor's tests.
#pragma once

#include <cstdint>

#include "actors/ids.h"
#include "shoal/metadata.h"

namespace shoal::actors {

constexpr AttemptKey kKey = {1, 3, 1};
constexpr const char* kFolder = "step-00000003/g1a1/";
constexpr ClientId kClient = 5;
constexpr uint32_t kSlab = 2;

}  // namespace shoal::actors
