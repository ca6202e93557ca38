// The object that marks the folder of an attempt as an unfinished copy (admin/checkpoint_copy.h).
//
// Where folders cannot be renamed, `shoal copy` writes a checkpoint under its own name, the manifest last.
// Without a decision, such a folder is no attempt: nobody loads, lists, completes or aborts it.
#pragma once

#include <string_view>

namespace shoal::storage {

inline constexpr std::string_view kCopyMarkName = "copy.shoal";

}  // namespace shoal::storage
