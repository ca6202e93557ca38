// Rare paths: places in the roles that only unusual schedules of failures reach, such as a second try after
// an error. Each is marked by a name:
//
//   base::rare_path<"coordinator: publishes a tombstone again">();
//
// A campaign (`shoal fuzz`) counts how often each was reached, and says which never were. A marked path that
// no run reaches is untested, whatever else passes. The idea is that of CODE_PROBE in FoundationDB.
//
// Outside a RarePathCounts, a mark costs one read of a thread-local variable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::base {

namespace rare_path_internal {

template <size_t kBytes>
struct Name {
  char text[kBytes];
  consteval Name(const char (&from)[kBytes]) {  // implicit: a string literal is the template argument
    std::copy_n(from, kBytes, text);
  }
};
// Gives each name a place in the counts. Called before main().
size_t add(const char* name);
template <Name kName>
inline const size_t kPlace = add(kName.text);
inline constinit thread_local uint64_t* counts = nullptr;  // of the RarePathCounts of this thread

}  // namespace rare_path_internal

template <rare_path_internal::Name kName>
void rare_path() {
  if (rare_path_internal::counts != nullptr) ++rare_path_internal::counts[rare_path_internal::kPlace<kName>];
}

// Counts the rare paths that the calling thread takes while this object lives. Of two objects of a thread,
// the later one counts. Destroy it in the thread that made it.
class RarePathCounts {
 public:
  RarePathCounts();
  ~RarePathCounts();
  RarePathCounts(const RarePathCounts&) = delete;
  RarePathCounts& operator=(const RarePathCounts&) = delete;

  // All rare paths of the program, ascending by name, and how often each was taken. The names live as long as
  // the program.
  std::vector<std::pair<std::string_view, uint64_t>> list() const;

 private:
  std::vector<uint64_t> counts_;
  uint64_t* const before_;
};

}  // namespace shoal::base
