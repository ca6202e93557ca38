// The project's own header under a path that Shoal's tree has too, with names of Shoal's folders. None of
// them may reach Shoal's headers, nor Shoal's library these names.
#pragma once

#include <string>

namespace base {
struct Status {
  std::string text;
};
inline Status describe(const std::string& text) {
  return {"the project's own status: " + text};
}
}  // namespace base
