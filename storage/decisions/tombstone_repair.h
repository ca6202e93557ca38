// Tombstones of which one bit has flipped. One above the newest checkpoint would else keep every load of the
// latest from it. A manifest with a flipped bit stays an error: its checkpoint is named as damaged.
#pragma once

#include <optional>

#include "shoal/bytes.h"

namespace shoal::storage {

// The bytes of a decision's file as they were, where these differ from a tombstone in one bit.
std::optional<Bytes> repaired_tombstone(ByteView bytes);

}  // namespace shoal::storage
