// Text files that a command writes.
#pragma once

#include <string>

#include "shoal/status.h"

namespace shoal::cli {

// Code::io if the file cannot be written. Does not change the file.
Status check_writable(const std::string& file);
// Code::io, with the reason, if not all of the text was written.
Status write_text(const std::string& file, const std::string& text);
// "name.toml", or, if this name is taken, "name-2.toml", "name-3.toml", ...
std::string free_name(const std::string& stem, const std::string& ending);

}  // namespace shoal::cli
