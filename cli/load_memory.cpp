#include "cli/load_memory.h"

#include <fmt/format.h>

#include <string>

#include "actors/role.h"
#include "base/bytes.h"

namespace shoal {

CLI::Option* add_load_memory_option(CLI::App& command, uint64_t* bytes) {
  auto read = [bytes](const std::string& text) {
    const Result<uint64_t> given = parse_bytes(text);
    if (!given.ok()) throw CLI::ValidationError("--load-memory", given.status().message());
    if (*given < kMinLoadMemoryBytes || *given > kMaxLoadMemoryBytes) {
      throw CLI::ValidationError(
          "--load-memory", fmt::format("{}: from {} to {} are allowed", text,
                                       human_bytes(kMinLoadMemoryBytes), human_bytes(kMaxLoadMemoryBytes)));
    }
    *bytes = *given;
  };
  return command
      .add_option_function<std::string>(
          "--load-memory", read,
          fmt::format("Memory that the loads of this host take together, beside what they fill; default: {}",
                      human_bytes(kDefaultLoadMemoryBytes)))
      ->type_name("BYTES")
      ->envname("SHOAL_LOAD_MEMORY");
}

}  // namespace shoal
