// How long virtual trainers are given for what takes a job some milliseconds.
#pragma once

#include "actors/ids.h"

namespace shoal::sim {

constexpr actors::TimeNs kPatience = 1000 * actors::kMillisecond;

}  // namespace shoal::sim
