// Shared by the fuzz targets. A target is one function over untrusted bytes. It must end in bounded memory,
// without a crash, and its assertions must hold: a failed SHOAL_CHECK ends the process.
//
// The same function is linked twice: with libFuzzer (SHOAL_FUZZ, clang), and with tests/fuzz/replay_main.cpp,
// which runs the files of the corpus once on any compiler. docs/how-to/fuzz.md describes long runs.
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
