// --load-memory and --staging-memory, which `shoal node` and `launch` take.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace shoal {

// Sizes as parse_bytes reads them, within what a node can do with; also from SHOAL_LOAD_MEMORY.
CLI::Option* add_load_memory_option(CLI::App& command, uint64_t* bytes);
// Likewise; also from SHOAL_STAGING_MEMORY.
CLI::Option* add_staging_memory_option(CLI::App& command, uint64_t* bytes);

}  // namespace shoal
