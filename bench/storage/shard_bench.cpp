// Writing and reading a shard, compared with plain operations on the same bytes in the same run.
//
//   shard_bench [FOLDER [MEBIBYTES]]
//
// Each line has the best of several rounds and its ratio to the plain operation: write(2) + fsync, or read(2)
// + one digest pass.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/digest/digest.h"
#include "shoal/check.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {
namespace {

constexpr int kRounds = 5;
constexpr size_t kChunkBytes = size_t{1} << 20;

double seconds(const std::function<void()>& work) {
  auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void write_plainly(const std::string& path, ByteView data) {
  int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0666);
  SHOAL_CHECK(fd >= 0);
  for (size_t at = 0; at < data.size(); at += kChunkBytes) {
    size_t bytes = std::min(kChunkBytes, data.size() - at);
    SHOAL_CHECK(write(fd, data.data() + at, bytes) == static_cast<ssize_t>(bytes));
  }
  SHOAL_CHECK(fsync(fd) == 0);
  close(fd);
}

void read_plainly(const std::string& path, MutableByteView out) {
  int fd = open(path.c_str(), O_RDONLY);
  SHOAL_CHECK(fd >= 0);
  std::vector<uint64_t> digests;
  for (size_t at = 0; at < out.size(); at += kChunkBytes) {
    size_t bytes = std::min(kChunkBytes, out.size() - at);
    SHOAL_CHECK(read(fd, out.data() + at, bytes) == static_cast<ssize_t>(bytes));
    base::digest_blocks(out.subspan(at, bytes), &digests);
  }
  close(fd);
}

void report(const char* what, double time, double against, double bytes) {
  std::printf("%-28s %8.3f s %8.2f GB/s  x %.2f\n", what, time, bytes / time / 1e9, time / against);
}

int run(const std::string& folder, size_t mebibytes) {
  PosixFileSystem files;
  auto storage = LocalStorage::open(files, folder, random_128());
  if (!storage.ok()) {
    std::fprintf(stderr, "%s\n", storage.status().to_string().c_str());
    return 1;
  }
  Bytes data(mebibytes << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  Bytes copy = data;
  ShardPiece piece;
  piece.key = piece.fqn = "x";
  piece.bytes = data.size();
  piece.global_shape = {data.size()};
  piece.box = {{0}, {data.size()}};
  const std::string shard = "shard_bench.safetensors", plain = folder + "/shard_bench.plain";

  double best_copy = 1e9, best_digest = 1e9, best_plain = 1e9, best_shard = 1e9, best_read = 1e9,
         best_verified = 1e9;
  auto better = [](double* best, double time) { *best = std::min(*best, time); };
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint64_t> digests;
    better(&best_copy, seconds([&] { std::copy(data.begin(), data.end(), copy.begin()); }));
    better(&best_digest, seconds([&] { base::digest_blocks(data, &digests); }));
    better(&best_plain, seconds([&] { write_plainly(plain, data); }));
    better(&best_shard,
           seconds([&] { SHOAL_CHECK(write_shard(**storage, shard, random_128(), {piece}, {data}).ok()); }));
    better(&best_read, seconds([&] { read_plainly(plain, copy); }));
    better(&best_verified, seconds([&] {
      auto reader = ShardReader::open(**storage, shard, nullptr, nullptr);
      uint64_t first = 0;
      SHOAL_CHECK(reader.ok() && (*reader)->read_verified(0, 0, data.size(), copy, &first).ok());
    }));
    SHOAL_CHECK((*storage)->remove(shard).ok());
    unlink(plain.c_str());
  }
  double bytes = static_cast<double>(data.size());
  report("memcpy", best_copy, best_copy, bytes);
  report("digest", best_digest, best_copy, bytes);
  report("write(2) + fsync", best_plain, best_plain, bytes);
  report("write_shard", best_shard, best_plain, bytes);
  report("read(2) + digest", best_read, best_read, bytes);
  report("ShardReader, verified", best_verified, best_read, bytes);
  return 0;
}

}  // namespace
}  // namespace shoal::storage

int main(int argc, char** argv) {
  return shoal::storage::run(argc > 1 ? argv[1] : "/dev/shm",
                             argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 512);
}
