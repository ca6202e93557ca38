// A copy of bytes that nobody reads again soon: past the caches, where the machine knows how.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shoal::base {

// Below this, memcpy is as good: a copy that fits the caches is better left in them.
inline constexpr uint64_t kStreamCopyBytesMin = uint64_t{64} << 10;

// As memcpy(target, source, bytes); the ranges do not overlap. From kStreamCopyBytesMin on, on x86-64, four
// pages at a time with stores that leave the caches alone: the target is not read first, and several banks of
// memory work at once. Visible to other threads and processes when it returns, like any other store.
void stream_copy(std::byte* target, const std::byte* source, uint64_t bytes);

}  // namespace shoal::base
