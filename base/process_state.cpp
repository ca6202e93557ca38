#include "base/process_state.h"

#include <fstream>
#include <iterator>
#include <string>

namespace shoal::base {

// /proc/PID/stat is "PID (NAME) STATE ...", and the name may contain anything.
bool is_process_stopped(int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  const char state = text[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace shoal::base
