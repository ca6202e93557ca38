// Copies bytes that will not be read again soon, bypassing the caches where the machine can do that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::base {

// Smaller copies use memcpy: a copy that fits into the caches should stay there.
inline constexpr uint64_t kStreamCopyBytesMin = uint64_t{64} << 10;

// Like memcpy(target, source, bytes); the ranges must not overlap. On x86-64, from kStreamCopyBytesMin on, it
// copies four pages at a time with non-temporal stores. These do not read the target first, and use several
// memory banks at once. When it returns, the bytes are visible to other threads and processes like any store.
void stream_copy(std::byte* target, const std::byte* source, uint64_t bytes);

}  // namespace shoal::base
