// What every fuzz target shares. A target is one function over bytes that nobody vouches for: it must end, in
// bounded memory, without a crash, and hold what it asserts. SHOAL_CHECK ends the process where it does not.
//
// The same function is linked twice: with libFuzzer (SHOAL_FUZZ, clang), and with tests/fuzz/replay_main.cpp,
// which runs the files of the corpus once on any compiler. docs/how-to/fuzz.md says how to run them for long.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/bytes.h"
#include "shoal/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace shoal {

inline ByteView view_of_input(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

}  // namespace shoal
