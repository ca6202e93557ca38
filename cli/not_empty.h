// A check of an option's value. An empty text is most often a variable of a script that is not set, and must
// not count as an option that was not given.
#pragma once

#include <string>

namespace shoal::cli {

inline std::string not_empty(const std::string& text) {
  return text.empty() ? "it is empty" : std::string();
}

}  // namespace shoal::cli
