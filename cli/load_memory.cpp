#include "cli/load_memory.h"

#include <fmt/format.h>

#include <string>

#include "actors/role.h"
#include "actors/staging_budget.h"
#include "base/bytes.h"

namespace shoal {

namespace {

CLI::Option* add_memory_option(CLI::App& command, uint64_t* bytes, const std::string& flag,
                               const char* variable, uint64_t least, uint64_t most,
                               const std::string& description) {
  auto read = [=](const std::string& text) {
    const Result<uint64_t> given = parse_bytes(text);
    if (!given.ok()) throw CLI::ValidationError(flag, given.status().message());
    if (*given < least || *given > most) {
      throw CLI::ValidationError(
          flag, fmt::format("{}: from {} to {} are allowed", text, human_bytes(least), human_bytes(most)));
    }
    *bytes = *given;
  };
  return command.add_option_function<std::string>(flag, read, description)
      ->type_name("BYTES")
      ->envname(variable);
}

}  // namespace

CLI::Option* add_load_memory_option(CLI::App& command, uint64_t* bytes) {
  return add_memory_option(
      command, bytes, "--load-memory", "SHOAL_LOAD_MEMORY", kMinLoadMemoryBytes, kMaxLoadMemoryBytes,
      fmt::format("Memory that the loads of this host take together, beside what they fill; default: {}",
                  human_bytes(kDefaultLoadMemoryBytes)));
}

CLI::Option* add_staging_memory_option(CLI::App& command, uint64_t* bytes) {
  return add_memory_option(
      command, bytes, "--staging-memory", "SHOAL_STAGING_MEMORY", kLeastStagingBytes, kMaxSlabBytes,
      "Memory that the saves in flight of this host take together; default: what the host leaves");
}

}  // namespace shoal
