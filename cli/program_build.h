// Which build of the program this is: two of one version may differ.
#pragma once

#include <string>

namespace shoal::cli {

// A hash of the program's file, in hex; "" where it cannot be read.
std::string program_build();

}  // namespace shoal::cli
