// Another such header.
#pragma once

namespace plan {
struct Box {
  int width = 0;
};
}  // namespace plan
