// The cost to open a checkpoint of many tensors, and to read one tensor of it. Each is compared with plain
// operations on the same bytes:
//
//   open        open_checkpoint: choose, pin, read the manifest, decode all layouts
//                                     against  read(2) of the manifest and its hash
//   and list    the same, and the first call of metadata(), which lists names, types and shapes
//                                     against  the same
//   first read  the first read of one tensor: opens its file and verifies the header of all its tensors
//                                     against  read(2) of such a header and its hash
//   read        a read of another tensor
//                                     against  pread(2) of its bytes and their digests
//   load        Checkpointer::load of one tensor, which chooses and pins the checkpoint each time
//                                     against  the same
//
//   reader_bench --root FOLDER [--tensors 100000] [--tensor-bytes 64k] [--ranks 1] [--rounds 100]
//                [--json]
//
// One rank and its node read what --ranks have saved, with a warm page cache. The output has medians of times
// and of each round's ratio. Opens and first reads are measured a tenth as often. Each first read uses a new
// node, because a node keeps its files open.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/digest/digest.h"
#include "base/owned_fd.h"
#include "bench/timing.h"
#include "shoal/checkpoint_reader.h"
#include "shoal/hash.h"

namespace shoal::bench {
namespace {

struct BenchOptions {
  std::string root, node_program;
  uint32_t tensors = 100'000, rounds = 100, ranks = 1;
  uint64_t tensor_bytes = uint64_t{64} << 10;
  bool json = false;
};

class PlainFile {
 public:
  explicit PlainFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!fd_.valid()) fail(path + ": " + std::strerror(errno));
  }
  void read(uint64_t at, MutableByteView out) const {
    for (size_t got = 0; got < out.size();) {
      const ssize_t bytes =
          ::pread(fd_.get(), out.data() + got, out.size() - got, static_cast<off_t>(at + got));
      if (bytes <= 0) fail("pread");
      got += static_cast<size_t>(bytes);
    }
  }

 private:
  base::OwnedFd fd_;
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options) {}

  void run() {
    save();
    const std::string manifest = folder_ + "/manifest.shoal";
    Bytes whole(std::filesystem::file_size(manifest));
    for (uint32_t round = 0; round < std::max(3u, options_.rounds / 10); ++round) {
      auto checkpointer = attach();
      std::optional<CheckpointReader> reader;
      open_.push_back(timed([&] { reader = need(checkpointer->open_checkpoint(1)); }));
      size_t values = 0;
      listed_.push_back(open_.back() +
                        timed([&] { values = reader->metadata().state_dict_metadata.size(); }));
      if (values != options_.tensors) fail("values are missing");
      plain_open_.push_back(timed([&] {
        PlainFile(manifest).read(0, whole);
        hash_ = xxh3_128(whole);
      }));
      first_.push_back(timed([&] { read_one(*reader); }));
      plain_first_.push_back(read_plain_header());
    }
    auto checkpointer = attach();
    CheckpointReader reader = need(checkpointer->open_checkpoint(1));
    read_one(reader);
    const PlainFile file(shard_);
    const uint64_t in_shard = (options_.tensors + options_.ranks - 1) / options_.ranks;
    const uint64_t data = std::filesystem::file_size(shard_) - in_shard * options_.tensor_bytes;
    Bytes bytes(options_.tensor_bytes);
    std::vector<uint64_t> digests;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      read_.push_back(timed([&] { read_one(reader); }));
      const uint64_t at = data + random_() % in_shard * options_.tensor_bytes;
      plain_read_.push_back(timed([&] {
        digests.clear();
        file.read(at, bytes);
        base::digest_blocks(bytes, &digests);
      }));
    }
    for (uint32_t round = 0; round < std::max(3u, options_.rounds / 10); ++round) {
      StateDict one;
      const std::string name = name_of(random_() % options_.tensors);
      one.add_tensor(name, DType::u8, {options_.tensor_bytes}, Mesh::single(0), {Placement::shard(0)},
                     bytes.data());
      load_.push_back(timed([&] { need(checkpointer->load(one, {1, {}})); }));
      plain_load_.push_back(plain_read_[round]);
    }
    print("open", "read + hash", open_, plain_open_);
    print("and list", "read + hash", listed_, plain_open_);
    print("first read", "read + hash", first_, plain_first_);
    print("read", "pread + digest", read_, plain_read_);
    print("load", "pread + digest", load_, plain_load_);
  }

 private:
  static std::string name_of(uint64_t i) { return fmt::format("model.layers.{:06}.mlp.weight", i); }

  // Each is a new run, so that its node is a new one.
  std::unique_ptr<Checkpointer> attach() {
    ++runs_;
    return attach_as(0, 1);
  }

  std::unique_ptr<Checkpointer> attach_as(Rank rank, uint32_t world_size) {
    CheckpointerOptions options;
    options.root = options_.root;
    options.rank = rank;
    options.world_size = world_size;
    options.job_id = fmt::format("reader-bench-{}-{}", ::getpid(), runs_);
    options.node_program = options_.node_program;
    return need(Checkpointer::open(options));
  }

  void save() {
    const uint64_t total = options_.tensors * options_.tensor_bytes;
    Bytes memory(total);
    for (uint64_t i = 0; i < total; i += 8) {
      const uint64_t value = i * 0x9E3779B97F4A7C15u;
      std::memcpy(memory.data() + i, &value, sizeof value);
    }
    std::vector<std::unique_ptr<Checkpointer>> ranks;
    std::vector<StateDict> states(options_.ranks);
    for (uint32_t i = 0; i < options_.tensors; ++i) {
      const Rank rank = i % options_.ranks;
      states[rank].add_tensor(name_of(i), DType::u8, {options_.tensor_bytes}, Mesh::single(rank),
                              {Placement::shard(0)}, memory.data() + i * options_.tensor_bytes);
    }
    std::vector<SaveHandle> saves;
    ++runs_;
    for (Rank rank = 0; rank < options_.ranks; ++rank) ranks.push_back(attach_as(rank, options_.ranks));
    for (Rank rank = 0; rank < options_.ranks; ++rank)
      saves.push_back(need(ranks[rank]->save(1, states[rank])));
    for (SaveHandle& save : saves) need(save.wait_committed());
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(options_.root + "/step-00000001")) {
      if (entry.path().extension() != ".safetensors") continue;
      if (shard_.empty() || std::filesystem::file_size(entry.path()) > std::filesystem::file_size(shard_)) {
        shard_ = entry.path();
      }
    }
    folder_ = std::filesystem::path(shard_).parent_path();
  }

  void read_one(CheckpointReader& reader) {
    const uint64_t i = random_() % options_.tensors;
    const Bytes bytes = need(reader.read(name_of(i)));
    const uint64_t value = i * options_.tensor_bytes * 0x9E3779B97F4A7C15u;
    if (std::memcmp(bytes.data(), &value, sizeof value) != 0) fail("the bytes read differ");
  }

  double read_plain_header() {
    Bytes header;
    return timed([&] {
      const PlainFile file(shard_);
      Bytes length(8);
      file.read(0, length);
      header.resize(8 + load_le64(length.data()));
      file.read(0, header);
      hash_ = xxh3_128(header);
    });
  }

  void print(const char* what, const char* against, const std::vector<double>& ours,
             const std::vector<double>& theirs) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    if (options_.json) {
      fmt::print(
          "{{\"what\":\"{}\",\"against\":\"{}\",\"tensors\":{},\"tensor_bytes\":{},\"seconds\":{:.6f},"
          "\"against_seconds\":{:.6f},\"ratio\":{:.3f},\"ratio_min\":{:.3f},\"ratio_max\":{:.3f}}}\n",
          what, against, options_.tensors, options_.tensor_bytes, median(ours), median(theirs),
          median(ratios), *least, *most);
      return;
    }
    fmt::print("{:10} {:>9.3f} ms   {:15} {:>9.3f} ms   x{:.1f}  ({:.1f} to {:.1f})\n", what,
               median(ours) * 1e3, against, median(theirs) * 1e3, median(ratios), *least, *most);
  }

  const BenchOptions& options_;
  std::mt19937_64 random_{7};
  uint32_t runs_ = 0;
  std::string folder_, shard_;
  Hash128 hash_;
  std::vector<double> open_, listed_, plain_open_, first_, plain_first_, read_, plain_read_, load_,
      plain_load_;
};

}  // namespace
}  // namespace shoal::bench

int main(int argc, char** argv) {
  shoal::bench::BenchOptions options;
  std::string tensor_bytes = "64k";
  CLI::App app("Opens a checkpoint of many tensors, and reads them one by one");
  app.add_option("--root", options.root, "A folder to make the run in")->required();
  app.add_option("--node-program", options.node_program, "The shoal program");
  app.add_option("--tensors", options.tensors)->check(CLI::Range(1u, 1u << 22));
  app.add_option("--tensor-bytes", tensor_bytes);
  app.add_option("--ranks", options.ranks, "Ranks that saved it, each with its own layout")
      ->check(CLI::Range(1u, 64u));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1u, 100'000u));
  app.add_flag("--json", options.json);
  CLI11_PARSE(app, argc, argv);
  auto bytes = shoal::parse_bytes(tensor_bytes);
  if (!bytes.ok() || *bytes == 0 || *bytes % 8 != 0) {
    fmt::print(stderr, "--tensor-bytes must be a multiple of 8\n");
    return 2;
  }
  options.tensor_bytes = *bytes;
  options.root = fmt::format("{}/reader-bench-{}", options.root, ::getpid());
  std::filesystem::create_directories(options.root);
  shoal::bench::Bench(options).run();
  std::error_code ignored;
  std::filesystem::remove_all(options.root, ignored);
  return 0;
}
