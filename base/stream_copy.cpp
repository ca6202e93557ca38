#include "base/stream_copy.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shoal::base {

namespace {

#if defined(__SSE2__)

constexpr uint64_t kCacheLineBytes = 64, kPageBytes = 4096;
// A round interleaves kPages pages, with kLines lines of each at a time. With four lines an AMD EPYC takes
// twice as long.
constexpr uint64_t kPages = 4, kLines = 8;

inline void stream_line(std::byte* target, const std::byte* source) {
  const auto* from = reinterpret_cast<const __m128i*>(source);
  auto* to = reinterpret_cast<__m128i*>(target);
  const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}

void stream(std::byte* target, const std::byte* source, uint64_t bytes) {
  const uint64_t past_line = reinterpret_cast<uintptr_t>(target) % kCacheLineBytes;
  const uint64_t head = std::min(past_line == 0 ? 0 : kCacheLineBytes - past_line, bytes);
  std::memcpy(target, source, head);
  target += head, source += head, bytes -= head;
  for (; bytes >= kPages * kPageBytes; bytes -= kPages * kPageBytes) {
    for (uint64_t at = 0; at < kPageBytes; at += kLines * kCacheLineBytes) {
      for (uint64_t page = 0; page < kPages; ++page) {
        for (uint64_t line = 0; line < kLines; ++line) {
          const uint64_t offset = page * kPageBytes + at + line * kCacheLineBytes;
          stream_line(target + offset, source + offset);
        }
      }
    }
    target += kPages * kPageBytes, source += kPages * kPageBytes;
  }
  for (; bytes >= kCacheLineBytes;
       bytes -= kCacheLineBytes, target += kCacheLineBytes, source += kCacheLineBytes) {
    stream_line(target, source);
  }
  std::memcpy(target, source, bytes);
  _mm_sfence();  // non-temporal stores are not ordered with other stores without a fence
}

#endif

}  // namespace

void stream_copy(std::byte* target, const std::byte* source, uint64_t bytes) {
#if defined(__SSE2__)
  if (bytes >= kStreamCopyBytesMin) return stream(target, source, bytes);
#endif
  if (bytes > 0) std::memcpy(target, source, bytes);
}

}  // namespace shoal::base
