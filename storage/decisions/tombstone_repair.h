// Repairs tombstones in which one bit flipped. Without the repair, a damaged tombstone above the newest
// checkpoint would make every load of the latest fail. A manifest with a flipped bit stays an error: its
// checkpoint is reported as damaged.
#pragma once

#include <optional>

#include "shoal/bytes.h"

namespace shoal::storage {

// If `bytes` differ from a tombstone in one bit, returns the file of that tombstone.
std::optional<Bytes> repaired_tombstone(ByteView bytes);

}  // namespace shoal::storage
