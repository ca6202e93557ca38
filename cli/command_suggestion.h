// What to say about a subcommand that does not exist.
#pragma once

#include <string>
#include <vector>

namespace shoal::cli {

// "unknown command 'list'; did you mean 'ls'?". Without the question if no command is similar.
std::string unknown_command(const std::string& given, const std::vector<std::string>& commands);

}  // namespace shoal::cli
