// HostMeeting: processes of `shoal calibrate --hosts N` on several hosts meet in the root, take turns and
// wait for each other. They need no network: all that they exchange are small files, created exclusively.
//
//   ROOT/.shoal-calibrate-hosts/meeting-M/
//     member-K    host K has joined: what it wants to calibrate, its nonce and its name
//     beat-K      a counter that host K raises while it lives
//     begun-0     the nonces of all hosts, by host 0: from here on nobody joins
//     STEM-K      host K has published something: a result, or that it is ready
//     failed      why the first host gave up
//
// A process that was killed leaves its files and a counter that no longer rises. Hosts that find such a
// member while they gather go on to meeting M + 1, so that the files of an earlier run never count. No clocks
// of two hosts are compared. The last host that leaves removes the meeting, and those before it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shoal/status.h"
#include "storage/files/posix_file_system.h"
#include "storage/storage.h"

namespace shoal::cli {

inline constexpr uint32_t kMostMeetingHosts = 256;

struct MeetingOptions {
  std::string root;
  uint32_t hosts = 2;
  uint64_t bytes = 0;             // must be equal on all hosts, as `hosts`
  std::chrono::seconds patience;  // most time for all hosts to come, and without a sign of life of one
  std::string name;               // of this host
  std::function<bool()> is_stopped;
  std::function<void(const std::string&)> note;
};

// One thread at a time.
class HostMeeting {
 public:
  // Waits for all hosts. Code::deadline_exceeded: some did not come; names those that did. Code::busy: other
  // hosts hold a meeting. Code::invalid_argument: another host has other options. Code::aborted: stopped.
  static Result<std::unique_ptr<HostMeeting>> join(MeetingOptions options);
  ~HostMeeting();
  HostMeeting(const HostMeeting&) = delete;

  uint32_t self() const { return self_; }  // host 0 writes the profile
  const std::vector<std::string>& names() const { return names_; }
  const std::string& folder() const { return folder_; }  // removed at the end, with all that is in it

  // Whether the meeting goes on: the errors of wait_for, except of a host that gives no sign of life. May be
  // called often.
  Status check();
  Status publish(std::string_view stem, const std::string& text);
  // The text that a host has published. Code::unavailable: it has given no sign of life for `patience`.
  // Code::aborted: a host gave up, with its reason; or this process is stopped.
  Result<std::string> wait_for(std::string_view stem, uint32_t host);
  Result<std::vector<std::string>> wait_for_all(std::string_view stem);  // of each host
  // Makes all other hosts give up with this error. `host`: the one that it is about.
  void fail(const Status& why, std::optional<uint32_t> lost = std::nullopt);

 private:
  struct Member {
    uint32_t hosts = 0;
    uint64_t bytes = 0;
    std::string nonce, name;
  };
  struct Seen {  // of a counter
    std::string nonce, count;
    std::chrono::steady_clock::time_point since;
    bool has_risen = false;
  };
  enum class Gathered : uint8_t { all, try_next };
  enum class Remains : uint8_t { keep, remove };

  explicit HostMeeting(MeetingOptions options);
  Result<uint64_t> newest_number() const;
  Status open_newest();
  Status gather(std::chrono::steady_clock::time_point deadline, Gathered* how);
  Status take_place(const std::map<uint32_t, Member>& members);
  Status begin_if_complete(const std::map<uint32_t, Member>& members);
  Status check_begun();
  Status not_all_came() const;
  Result<std::map<uint32_t, Member>> read_members();
  Result<std::set<std::string>> list_names() const;
  // Reads the counter of a host. Returns since when it has not risen, for this nonce.
  const Seen& look_at(uint32_t host, const std::string& nonce);
  Status why_failed();
  void start_beats();
  void stop_beats();
  bool is_like_this(const Member& member) const;
  void leave(Remains remains);
  std::string path_of(std::string_view stem, uint32_t host) const;

  const MeetingOptions options_;
  const std::string parent_, nonce_;
  const std::chrono::milliseconds poll_, beat_, stale_;
  storage::PosixFileSystem disk_;
  std::unique_ptr<storage::Storage> storage_;
  uint64_t number_ = 0;  // M
  std::string folder_;
  uint32_t self_ = 0;
  bool has_place_ = false;
  std::vector<std::string> names_, nonces_;
  std::map<uint32_t, Seen> seen_;
  std::chrono::steady_clock::time_point next_check_;
  std::map<uint32_t, std::string> came_;  // names of all that have come, for errors
  std::set<uint32_t> lost_;
  std::thread beats_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool stops_ = false;
};

}  // namespace shoal::cli
