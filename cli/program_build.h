// Identifies the build of the program, because two builds of one version may differ.
#pragma once

#include <string>

namespace shoal::cli {

// A hash of the program's file in hex; "" if it cannot be read.
std::string program_build();

}  // namespace shoal::cli
