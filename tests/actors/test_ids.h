// The attempts, the loads, the client and the slab that several tests name.
#pragma once

#include <cstdint>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "actors/operation.h"
#include "shoal/metadata.h"

namespace shoal::actors {

constexpr AttemptKey kKey = {1, 3, 1};
constexpr const char* kFolder = "step-00000003/g1a1/";  // of kKey
constexpr AttemptKey kLoadedKey = {1, 10, 1};
constexpr wire::LoadId kLoadOfLatest = {true, 0, 3, 0};
constexpr wire::LoadId kLoadOfStep = {false, kLoadedKey.step, 0, 0};
constexpr ClientId kClient = 7;
constexpr uint32_t kSlab = 2;

}  // namespace shoal::actors
