// Empty or small objects in the folder of an attempt that say what it is. Only object stores have them, where
// folders cannot be renamed.
#pragma once

#include <string_view>

namespace shoal::storage {

// An unfinished copy (admin/checkpoint_copy.h): `shoal copy` writes a checkpoint under its own name, the
// manifest last. Without a decision, such a folder is no attempt: nobody loads, lists, completes or aborts
// it.
inline constexpr std::string_view kCopyMarkName = "copy.shoal";
// What it holds while a process removes the copy; otherwise a hash of what is copied.
inline constexpr std::string_view kRemovedCopyText = "removed";
// The decision beside it is the tombstone of a deletion that has ended. A listing of the root shows this, so
// that nobody needs to read the tombstone.
inline constexpr std::string_view kDeletedMarkName = "deleted.shoal";

}  // namespace shoal::storage
