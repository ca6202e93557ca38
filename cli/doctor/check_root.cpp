// Judges what was measured of the root.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string_view>

#include "cli/doctor/checks.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

constexpr uint64_t kShortFreeBytes = uint64_t{1} << 30;  // warned about below, if --staged is not given
constexpr uint64_t kLeastFreeBytes = uint64_t{1} << 20;  // a run cannot even begin below
constexpr uint64_t kFilesOfSave = 16;                    // of one save besides its shards: folders, manifest
constexpr uint64_t kFewSaves = 3;                        // warned about if there is room for fewer
constexpr int64_t kClocksDifferNs = 1'000'000'000;

constexpr const char* kWhatStorageMustDo =
    "use another file system: docs/how-to/install.md, \"What the file system must do\"";

struct KnownFileSystem {
  std::string_view type;
  const char* problem;
  const char* remedy;
};
// A node starts on these if its trial files succeed. No other test has shown that they keep checkpoints.
constexpr auto kDoubtfulFileSystems = std::to_array<KnownFileSystem>({
    {"tmpfs", "it keeps files in memory, so they are lost when this host ends", "use a disk for real runs"},
    {"ramfs", "it keeps files in memory, so they are lost when this host ends", "use a disk for real runs"},
    {"overlay", "it is usually the writable layer of a container, which is lost with the container",
     "mount storage into the container for the root"},
    {"cifs", "Shoal is not tested on SMB shares", kWhatStorageMustDo},
    {"smb3", "Shoal is not tested on SMB shares", kWhatStorageMustDo},
    {"9p", "Shoal is not tested on it, and its hosts may see stale listings", kWhatStorageMustDo},
    {"virtiofs", "Shoal is not tested on it, and its hosts may see stale listings", kWhatStorageMustDo},
    {"vboxsf", "Shoal is not tested on it, and it may not have hard links", kWhatStorageMustDo},
    {"vfat", "it has no hard links", kWhatStorageMustDo},
    {"exfat", "it has no hard links", kWhatStorageMustDo},
});

constexpr auto kLocalFileSystems =
    std::to_array<std::string_view>({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs",
                                     "tmpfs", "ramfs", "overlay", "vfat", "exfat"});

bool has_option(const MountFacts& mount, std::string_view wanted) {
  std::istringstream options(mount.options);
  for (std::string each; std::getline(options, each, ',');) {
    if (each == wanted) return true;
  }
  return false;
}

struct Doubt {
  std::string problem, remedy;
};

std::optional<Doubt> doubt_about_type(const MountFacts& mount, uint64_t hosts) {
  for (const KnownFileSystem& each : kDoubtfulFileSystems) {
    if (each.type == mount.type) return Doubt{each.problem, each.remedy};
  }
  if (mount.type.starts_with("fuse")) {
    return Doubt{"a FUSE file system may lack hard links, fsync or listings that are equal on all hosts",
                 kWhatStorageMustDo};
  }
  const bool is_nfs = mount.type == "nfs" || mount.type == "nfs4";
  if (is_nfs && (has_option(mount, "vers=3") || has_option(mount, "vers=2"))) {
    return Doubt{"Shoal is meant to work on NFSv4, not on older versions", "mount it with vers=4.2"};
  }
  const bool is_local = std::ranges::find(kLocalFileSystems, mount.type) != kLocalFileSystems.end();
  if (is_local && hosts > 1) {
    return Doubt{
        fmt::format("other hosts do not see files of a local file system, and the job has {} hosts", hosts),
        "use a folder that all hosts see"};
  }
  return std::nullopt;
}

std::optional<Doubt> doubt_about_options(const MountFacts& mount, uint64_t hosts) {
  for (const char* option : {"nobarrier", "barrier=0"}) {
    if (has_option(mount, option)) {
      return Doubt{fmt::format("with {} a power failure may lose what fsync has written", option),
                   "mount it with barriers"};
    }
  }
  if (!mount.type.starts_with("nfs")) return std::nullopt;
  for (const char* option : {"soft", "softerr"}) {
    if (has_option(mount, option)) {
      return Doubt{fmt::format("with {} a server that is slow for a while fails saves", option),
                   "mount it with hard"};
    }
  }
  const bool caches = !has_option(mount, "noac") && !has_option(mount, "actimeo=0");
  if (caches && hosts > 1) {
    return Doubt{"hosts cache attributes, so that one may not see files of another for a while",
                 "mount it with noac or actimeo=0"};
  }
  return std::nullopt;
}

// Restores the characters that mountinfo writes as a backslash and three octal digits.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '\\' && i + 3 < text.size() && text.find_first_not_of("01234567", i + 1) >= i + 4;
    if (is_escape) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool contains_path(const std::string& folder, const std::string& path) {
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

Finding check_place(const RootFacts& facts) {
  const std::string& root = facts.root;
  if (!facts.usable.ok()) {
    return found_error("root", facts.usable.message(),
                       facts.exists ? "give this user write permission there, mount the storage for writing, "
                                      "or choose another root"
                                    : "mount the storage, create the folder above it, or correct the path");
  }
  if (!facts.exists) {
    return found_error(
        "root", fmt::format("{} does not exist; {} can hold it", root, facts.tried_in),
        fmt::format("mount the storage if a run is there; for a new run: mkdir {}, or start the "
                    "job with --create",
                    root));
  }
  if (!facts.closed_folders.empty()) {
    std::string names;
    for (const std::string& each : facts.closed_folders) names += (names.empty() ? "" : ", ") + each;
    return found_error("root",
                       fmt::format("{}: this user may not create files in its folders {}", root, names),
                       "run the job as the user who owns them, or give this user write permission");
  }
  if (facts.identity.code() == Code::not_found) {
    return found_ok("root", fmt::format("{} is writable and holds no run yet", root));
  }
  if (!facts.identity.ok()) {
    return found_error("root", facts.identity.message(), "repair the root before a job uses it");
  }
  return found_ok("root", fmt::format("{} is writable and holds run {}", root, facts.run));
}

Finding check_creation(const RootFacts& facts) {
  constexpr const char* kCheck = "creation";
  if (facts.probe.code() == Code::no_space || facts.race.failed.code() == Code::no_space) {
    return found_error(kCheck, facts.probe.ok() ? facts.race.failed.message() : facts.probe.message(),
                       "free some space");
  }
  if (!facts.probe.ok()) return found_error(kCheck, facts.probe.message(), kWhatStorageMustDo);
  const RootFacts::Race& race = facts.race;
  if (!race.failed.ok()) return found_error(kCheck, race.failed.message(), kWhatStorageMustDo);
  if (race.without_creator != 0 || race.with_two_creators != 0) {
    return found_error(kCheck,
                       fmt::format("two threads created the same {} names at once: {} had two creators and "
                                   "{} had none, but each must have one",
                                   race.names, race.with_two_creators, race.without_creator),
                       kWhatStorageMustDo);
  }
  return found_ok(kCheck,
                  fmt::format("hard links, exclusive creation and fsync work; two threads created the same "
                              "{} names, and each name had one creator",
                              race.names));
}

Finding check_rate(const RootFacts::Rate& rate) {
  constexpr const char* kCheck = "rate";
  if (rate.failed.code() == Code::no_space)
    return found_skipped(kCheck, "too little space is left for a file");
  if (!rate.failed.ok()) {
    return found_error(kCheck, rate.failed.message(), "find out why the storage fails before a job uses it");
  }
  if (rate.bytes == 0) return found_skipped(kCheck, "the creation of files failed");
  auto per_second = [&](double seconds) {
    return human_bytes(static_cast<uint64_t>(static_cast<double>(rate.bytes) / std::max(seconds, 1e-9)));
  };
  return found_ok(kCheck, fmt::format("a file of {} was written and synced at {}/s, and read through this "
                                      "host's cache at {}/s; `shoal calibrate` measures more",
                                      human_bytes(rate.bytes), per_second(rate.write_seconds),
                                      per_second(rate.read_seconds)));
}

// What this command left in the root, now or before.
void add_leftovers(const RootFacts& facts, Findings* out) {
  if (!facts.cleaned.ok()) {
    out->push_back(found_warning("cleanup", facts.cleaned.message(), "remove this folder by hand"));
  }
  for (const std::string& name : facts.leftovers) {
    out->push_back(found_warning(
        "cleanup", fmt::format("{}/{} was left by a check that was killed", facts.tried_in, name),
        fmt::format("rm -r {}/{}", facts.tried_in, name)));
  }
}

}  // namespace

std::optional<MountFacts> find_mount(const std::string& mountinfo, const std::string& path) {
  std::optional<MountFacts> found;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 /root /folder rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue"
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, options_of_type;
    MountFacts mount;
    before >> skipped >> skipped >> skipped >> skipped >> mount.folder >> mount.options;
    after >> mount.type >> mount.source >> options_of_type;
    mount.folder = unescaped(mount.folder);
    if (!contains_path(mount.folder, path)) continue;
    std::istringstream of_type(options_of_type);
    for (std::string each; std::getline(of_type, each, ',');) {
      if (!has_option(mount, each)) mount.options += "," + each;
    }
    // A later line hides an earlier one of the same folder.
    if (!found || mount.folder.size() >= found->folder.size()) found = mount;
  }
  return found;
}

Finding check_file_system(const MountFacts& mount, uint64_t hosts) {
  constexpr const char* kCheck = "file-system";
  const std::string measured =
      fmt::format("{} at {} ({}, {})", mount.type, mount.folder, mount.source, mount.options);
  if (has_option(mount, "ro")) {
    return found_error(kCheck, measured + ": it is mounted read-only", "mount it for writing");
  }
  std::optional<Doubt> doubt = doubt_about_type(mount, hosts);
  if (!doubt) doubt = doubt_about_options(mount, hosts);
  if (doubt) return found_warning(kCheck, fmt::format("{}: {}", measured, doubt->problem), doubt->remedy);
  return found_ok(kCheck, measured);
}

Finding check_space(const SpaceFacts& space, const JobShape& job) {
  constexpr const char* kCheck = "space";
  constexpr const char* kRemedy =
      "delete checkpoints with `shoal gc ROOT --keep-last N`, or use larger storage";
  const std::string files =
      space.files_total == 0 ? "no limit of files" : fmt::format("{} files", space.files_free);
  std::string measured = fmt::format("{} and {} are free", human_bytes(space.bytes_free), files);
  const uint64_t files_of_save = job.hosts * job.ranks_here + kFilesOfSave;
  if (space.files_total != 0 && space.files_free < files_of_save) {
    return found_error(kCheck, fmt::format("{}, but one save makes about {} files", measured, files_of_save),
                       "remove files, or use a file system with more inodes");
  }
  if (space.bytes_free < kLeastFreeBytes) return found_error(kCheck, measured, kRemedy);
  if (job.staged_bytes == 0) {
    if (space.bytes_free < kShortFreeBytes) return found_warning(kCheck, measured, kRemedy);
    return found_ok(kCheck, measured);
  }
  const double save_bytes = static_cast<double>(job.staged_bytes) * static_cast<double>(job.hosts);
  const double saves = std::floor(static_cast<double>(space.bytes_free) / save_bytes);
  measured += fmt::format(": room for {:.0f} saves of {} hosts with {} each", saves, job.hosts,
                          human_bytes(job.staged_bytes));
  if (saves < 1) return found_error(kCheck, measured, kRemedy);
  if (saves < kFewSaves) return found_warning(kCheck, measured, kRemedy);
  return found_ok(kCheck, measured);
}

Finding check_server_clock(const RootFacts& facts) {
  constexpr const char* kCheck = "server-clock";
  if (!facts.clock_ahead_ns) return found_skipped(kCheck, "no file could be made in the root");
  const double ahead_ms = static_cast<double>(*facts.clock_ahead_ns) / 1e6;
  const std::string measured =
      *facts.clock_ahead_ns == 0
          ? fmt::format("the file system's clock is this host's within the {:.1f} ms of one creation",
                        static_cast<double>(facts.creation_ns) / 1e6)
          : fmt::format("the file system's clock is {:.1f} ms {} this host's", std::abs(ahead_ms),
                        ahead_ms > 0 ? "ahead of" : "behind");
  if (std::abs(*facts.clock_ahead_ns) < kClocksDifferNs) return found_ok(kCheck, measured);
  return found_warning(
      kCheck, measured,
      "synchronise both clocks; else times of checkpoints, and --keep-for, are wrong by this");
}

Findings check_root(const RootFacts& facts, const JobShape& job) {
  Findings out{check_place(facts)};
  out.push_back(facts.mount ? check_file_system(*facts.mount, job.hosts)
                            : found_skipped("file-system", "the mount of the root is not known"));
  if (facts.space) out.push_back(check_space(*facts.space, job));
  if (!facts.usable.ok()) {
    for (const char* check : {"creation", "rate", "server-clock"}) {
      out.push_back(found_skipped(check, "no file could be made in the root"));
    }
  } else {
    out.push_back(check_creation(facts));
    out.push_back(check_rate(facts.rate));
    out.push_back(check_server_clock(facts));
  }
  add_leftovers(facts, &out);
  return out;
}

}  // namespace shoal::cli
