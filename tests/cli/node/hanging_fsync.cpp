// A library to preload: fsync and fdatasync do not return while the file that SHOAL_TEST_HANG names exists.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace {
void hang() {
  const char* file = std::getenv("SHOAL_TEST_HANG");
  while (file != nullptr && access(file, F_OK) == 0) usleep(10'000);
}
}  // namespace

extern "C" int fsync(int fd) {
  hang();
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int fdatasync(int fd) {
  hang();
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
