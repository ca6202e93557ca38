// Copying a checkpoint to another root, compared in the same run with `cp -r` of its folder and an fsync of
// each file.
//
//   copy_bench [FOLDER [MEBIBYTES [FILES]]]
//
// Each line has the best of several rounds and its ratio to cp.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "admin/checkpoint_copy.h"
#include "shoal/check.h"
#include "shoal/layout.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/shards/shard_file.h"

namespace shoal::admin {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;
const AttemptKey kCopied{1, 1, 1};

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

OpenRoot make_root(const std::string& path) {
  fs::create_directories(path);
  OpenRoot root;
  root.file_system = std::make_unique<storage::PosixFileSystem>();
  root.storage = storage::LocalStorage::open(*root.file_system, path, random_128()).value();
  root.id = storage::open_root(*root.storage, true, random_128()).value();
  return root;
}

// One tensor, of which each rank has written a part.
uint64_t save_checkpoint(OpenRoot& root, uint64_t bytes, uint32_t ranks) {
  const Mesh mesh = Mesh::contiguous({ranks});
  LayoutBuilder builder;
  const uint64_t part = bytes / ranks;
  builder.add_tensor("x", DType::u8, {part * ranks}, mesh, {Placement::shard(0)});
  LayoutPtr layout = std::move(builder).build().value();
  storage::Manifest manifest;
  const std::vector<LayoutId> ids(ranks, layout->id());
  manifest.world =
      std::make_shared<World>(World{Roster::make(ids, std::vector<uint32_t>(ranks)).value(), {layout}});
  Bytes data(part);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  for (Rank rank = 0; rank < ranks; ++rank) {
    storage::ShardPiece piece{"x", "x", DType::u8, false, {part * ranks}, {{part * rank}, {part}}, part};
    auto written = storage::write_shard(*root.storage, storage::shard_path(kCopied, rank, 0), random_128(),
                                        {piece}, {data});
    SHOAL_CHECK(written.ok());
    manifest.files.push_back(
        {shard_file_name(rank, 0), written->size, written->header_digest, rank, uint32_t{0}});
    manifest.payload_bytes += written->payload_bytes;
  }
  const uint64_t total = file_bytes_of(manifest);
  SHOAL_CHECK(storage::publish_decision(*root.storage, {kCopied, random_128(), root.id, 1, manifest}).ok());
  return total;
}

void copy_by_cp(const std::string& from, const std::string& to) {
  SHOAL_CHECK(std::system(("cp -r " + from + " " + to).c_str()) == 0);
  for (const auto& entry : fs::recursive_directory_iterator(to)) {
    const int fd = open(entry.path().c_str(), O_RDONLY);
    SHOAL_CHECK(fd >= 0 && fsync(fd) == 0);
    close(fd);
  }
}

void copy_by_shoal(const OpenRoot& from, const std::string& to) {
  auto target = open_copy_target(from, to, true);
  SHOAL_CHECK(target.ok());
  std::atomic<uint64_t> bytes{0};
  const CopyResult result =
      CheckpointCopier(*from.storage, *target->storage, target->id).copy(kCopied, &bytes);
  if (!result.status.ok()) std::fprintf(stderr, "%s\n", result.status.to_string().c_str());
  SHOAL_CHECK(result.outcome == CopyResult::Outcome::copied);
}

int run(const std::string& folder, uint64_t mebibytes, uint32_t files) {
  const std::string own = folder + "/copy_bench." + std::to_string(getpid());
  OpenRoot from = make_root(own + "/from");
  const uint64_t bytes = save_checkpoint(from, mebibytes << 20, files);
  double best_cp = 1e9, best_shoal = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const std::string to = own + "/to";
    best_cp = std::min(best_cp, seconds([&] { copy_by_cp(own + "/from", to); }));
    fs::remove_all(to);
    fs::create_directory(to);
    best_shoal = std::min(best_shoal, seconds([&] { copy_by_shoal(from, to); }));
    fs::remove_all(to);
  }
  fs::remove_all(own);
  const auto report = [&](const char* what, double time) {
    std::printf("%-28s %8.3f s %8.2f GB/s  x %.2f\n", what, time, static_cast<double>(bytes) / time / 1e9,
                time / best_cp);
  };
  report("cp -r and fsync", best_cp);
  report("shoal copy", best_shoal);
  return 0;
}

}  // namespace
}  // namespace shoal::admin

int main(int argc, char** argv) {
  return shoal::admin::run(argc > 1 ? argv[1] : "/tmp", argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 512,
                           argc > 3 ? static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)) : 4);
}
