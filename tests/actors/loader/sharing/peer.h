// The other node of a shared load.
#pragma once

#include "actors/ids.h"

namespace shoal::actors {

constexpr NodeId kPeer = kFirstSharer + 3;
constexpr TimeNs kDeadline = 5000 * kMillisecond;  // Timeouts::chunk_deadline_ms

}  // namespace shoal::actors
