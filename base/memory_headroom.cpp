#include "base/memory_headroom.h"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include "shoal/bytes.h"

namespace shoal::base {

namespace {

constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // v1 writes "unlimited" as a number near 2^63

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return parse_number(word);
}

// Reads the number after `key` in a file of "key value" lines.
std::optional<uint64_t> read_keyed_number(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    size_t digit = line.find_first_of("0123456789", key.size());
    if (digit != std::string::npos) return parse_number(std::string_view(line).substr(digit));
  }
  return std::nullopt;
}

struct ControllerFiles {
  const char* limit;
  const char* used;
  const char* cache_key;
};
constexpr ControllerFiles kVersion2{"memory.max", "memory.current", "inactive_file "};
constexpr ControllerFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};

void consider(const std::string& folder, const std::string& name, const ControllerFiles& files,
              MemoryHeadroom& least) {
  std::optional<uint64_t> limit = read_number(folder + "/" + files.limit);
  std::optional<uint64_t> used = read_number(folder + "/" + files.used);
  if (!limit || !used || *limit >= kNoLimit) return;
  const uint64_t cache = read_keyed_number(folder + "/memory.stat", files.cache_key).value_or(0);
  const uint64_t taken = *used > cache ? *used - cache : 0;
  const uint64_t left = *limit > taken ? *limit - taken : 0;
  if (left >= least.bytes) return;
  least.bytes = left;
  least.because = fmt::format("{} of cgroup {} is {}, and {} are used", files.limit, name,
                              human_bytes(*limit), human_bytes(taken));
}

// Applies the limits of the cgroup at `path` and of all above it. In a container only some are visible.
void consider_path(const std::string& root, std::string path, const ControllerFiles& files,
                   MemoryHeadroom& least) {
  while (true) {
    consider(path == "/" ? root : root + path, path, files, least);
    if (path.empty() || path == "/") return;
    const size_t slash = path.rfind('/');
    path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
  }
}

}  // namespace

MemoryHeadroom memory_headroom(const MemoryFiles& files) {
  MemoryHeadroom least;
  std::ifstream own(files.own_cgroups);
  std::string line;
  while (std::getline(own, line)) {  // hierarchy:controllers:path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      consider_path(files.cgroup_root, path, kVersion2, least);
      consider_path(files.cgroup_root + "/unified", path, kVersion2, least);
    } else if (controllers.find(",memory,") != std::string::npos) {
      consider_path(files.cgroup_root + "/memory", path, kVersion1, least);
    }
  }
  if (auto available_kib = read_keyed_number(files.meminfo, "MemAvailable:");
      available_kib && *available_kib < least.bytes / 1024) {
    least.bytes = *available_kib * 1024;
    least.because = fmt::format("this host has {} available", human_bytes(least.bytes));
  }
  return least;
}

}  // namespace shoal::base
