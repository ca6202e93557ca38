#include "cli/program_build.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "shoal/hash.h"

namespace shoal::cli {

std::string program_build() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(program), {}};
  return bytes.empty() ? "" : fmt::format("{:016x}", xxh3_64(bytes));
}

}  // namespace shoal::cli
