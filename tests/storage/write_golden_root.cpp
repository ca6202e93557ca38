// Writes the golden root into a folder: write_golden_root FOLDER.
#include <cstdio>

#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "tests/storage/golden_root.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  shoal::storage::PosixFileSystem files;
  auto storage = shoal::storage::LocalStorage::open(files, argv[1], shoal::random_128());
  shoal::Status status = storage.ok() ? shoal::storage::write_golden_root(**storage) : storage.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
