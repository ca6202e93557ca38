// Files of text that a command leaves behind.
#pragma once

#include <string>

#include "shoal/status.h"

namespace shoal::cli {

// Code::io where it cannot be written; leaves it as it is.
Status check_writable(const std::string& file);
// Code::io, with the reason, where not all of it was written.
Status write_text(const std::string& file, const std::string& text);
// "name.toml", or where something of that name is there already "name-2.toml", "name-3.toml", ...
std::string free_name(const std::string& stem, const std::string& ending);

}  // namespace shoal::cli
