#include "cli/calibrate/host_meeting.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/owned_fd.h"
#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "storage/files/local_storage.h"

namespace shoal::cli {

namespace {

using MeetingClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kMeetings = ".shoal-calibrate-hosts";
constexpr std::string_view kMeetingPrefix = "meeting-";
constexpr const char* kFailed = "failed";
constexpr uint64_t kMostNoteBytes = uint64_t{64} << 10;
constexpr size_t kMostReasonBytes = 4000;
constexpr size_t kMostNameBytes = 256;
constexpr std::chrono::minutes kMostTurn{30};
static_assert(kMostMeetingHosts * 33 < kMostNoteBytes);  // begun-0

Status meeting_failed(const std::string& path, int number) {
  return Status(number == ENOENT ? Code::not_found : Code::io,
                fmt::format("{}: {}", path, std::strerror(number)));
}

Status make_meeting_folder(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? ok_status() : meeting_failed(path, errno);
}

// The names in a folder, without a request for each.
Result<std::set<std::string>> names_in(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return meeting_failed(path, errno);
  std::set<std::string> names;
  while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
  ::closedir(folder);
  return names;
}

std::optional<uint64_t> number_after(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string digits(name.substr(prefix.size()));
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoull(digits);
}

std::string read_counter(const std::string& path) {
  const base::OwnedFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 24> text{};
  const ssize_t size = file.get() < 0 ? -1 : ::read(file.get(), text.data(), text.size());
  return size < 0 ? "" : std::string(text.data(), static_cast<size_t>(size));
}

// One write of a fixed length, so that a reader never sees half a counter.
bool write_counter(const std::string& path, uint64_t count) {
  const base::OwnedFd file(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const std::string text = fmt::format("{:020}", count);
  return file.get() >= 0 && ::pwrite(file.get(), text.data(), text.size(), 0) > 0;
}

// Hosts that poll and raise counters must not be the load that is measured.
milliseconds for_hosts(uint32_t hosts, milliseconds least, milliseconds each) {
  return std::max(least, each * hosts);
}

}  // namespace

HostMeeting::HostMeeting(MeetingOptions options)
    : options_(std::move(options)),
      parent_(options_.root + "/" + kMeetings),
      nonce_(random_128().to_hex()),
      poll_(for_hosts(options_.hosts, milliseconds(50), milliseconds(4))),
      beat_(for_hosts(options_.hosts, milliseconds(200), milliseconds(8))),
      stale_(std::clamp<milliseconds>(options_.patience / 4, milliseconds(1000), milliseconds(10'000))) {}

Result<std::unique_ptr<HostMeeting>> HostMeeting::join(MeetingOptions options) {
  options.name = clean_line(options.name, kMostNameBytes);
  std::unique_ptr<HostMeeting> meeting(new HostMeeting(std::move(options)));
  const auto deadline = MeetingClock::now() + meeting->options_.patience;
  for (;;) {
    Gathered how = Gathered::try_next;
    Status gathered = meeting->open_newest();
    if (gathered.ok()) gathered = meeting->gather(deadline, &how);
    if (gathered.code() == Code::not_found && MeetingClock::now() < deadline) {
      // The last host of an earlier run has just removed the folder.
      meeting->leave(Remains::keep);
      std::this_thread::sleep_for(meeting->poll_);
      continue;
    }
    SHOAL_RETURN_IF_ERROR(gathered);
    if (how == Gathered::all) return meeting;
    meeting->leave(Remains::keep);
    const Status made =
        make_meeting_folder(fmt::format("{}/{}{}", meeting->parent_, kMeetingPrefix, meeting->number_ + 1));
    if (!made.ok() && made.code() != Code::not_found) return made;
  }
}

HostMeeting::~HostMeeting() {
  leave(Remains::remove);
}

Result<uint64_t> HostMeeting::newest_number() const {
  SHOAL_ASSIGN_OR_RETURN(const std::set<std::string> names, names_in(parent_));
  uint64_t newest = 1;
  for (const std::string& name : names) {
    newest = std::max(newest, number_after(kMeetingPrefix, name).value_or(0));
  }
  return newest;
}

Status HostMeeting::open_newest() {
  SHOAL_RETURN_IF_ERROR(make_meeting_folder(parent_));
  SHOAL_ASSIGN_OR_RETURN(number_, newest_number());
  folder_ = fmt::format("{}/{}{}", parent_, kMeetingPrefix, number_);
  SHOAL_RETURN_IF_ERROR(make_meeting_folder(folder_));
  auto opened = storage::LocalStorage::open(disk_, folder_, random_128());
  if (!opened.ok()) return opened.status();
  storage_ = std::move(*opened);
  seen_.clear();
  came_.clear();
  return ok_status();
}

// Joins this meeting and waits until it has begun. try_next: a member of it does not live, or another host
// has found so.
Status HostMeeting::gather(MeetingClock::time_point deadline, Gathered* how) {
  *how = Gathered::try_next;
  for (;; std::this_thread::sleep_for(poll_)) {
    SHOAL_ASSIGN_OR_RETURN(const auto names, list_names());
    SHOAL_ASSIGN_OR_RETURN(const auto members, read_members());
    if (has_place_ && names.contains("begun-0")) {
      *how = Gathered::all;
      return check_begun();
    }
    SHOAL_ASSIGN_OR_RETURN(const uint64_t newest, newest_number());
    if (newest > number_) return ok_status();
    const bool is_over =
        names.contains("begun-0") || names.contains(kFailed) || members.size() >= options_.hosts;
    bool all_live = true;
    for (const auto& [host, member] : members) {
      if (has_place_ && host == self_) continue;
      const Seen& seen = look_at(host, member.nonce);
      if (MeetingClock::now() - seen.since > stale_) return ok_status();
      all_live = all_live && seen.has_risen;
    }
    if (names.contains(kFailed) && members.empty()) return ok_status();
    if (options_.is_stopped()) return Status(Code::aborted, "stopped by a signal");
    if (!has_place_ && is_over && all_live && !members.empty()) {
      std::vector<std::string> who;
      for (const auto& [host, member] : members) who.push_back(member.name);
      return Status(Code::busy, fmt::format("{}: {} calibrate there: wait until they have ended",
                                            options_.root, fmt::join(who, ", ")));
    }
    for (const auto& [host, member] : members) {
      if (host > self_ && has_place_) continue;  // that host finds it
      if (is_like_this(member)) continue;
      if (!seen_.contains(host) || !seen_.at(host).has_risen) continue;
      return Status(
          Code::invalid_argument,
          fmt::format("{} calibrates there with --hosts {} and {} bytes, this host with --hosts {} and "
                      "{}: give all hosts the same options",
                      member.name, member.hosts, member.bytes, options_.hosts, options_.bytes));
    }
    if (!has_place_ && !is_over) SHOAL_RETURN_IF_ERROR(take_place(members));
    if (has_place_ && self_ == 0 && all_live) SHOAL_RETURN_IF_ERROR(begin_if_complete(members));
    if (MeetingClock::now() > deadline) return not_all_came();
  }
}

Status HostMeeting::take_place(const std::map<uint32_t, Member>& members) {
  for (uint32_t host = 0; host < options_.hosts; ++host) {
    if (members.contains(host)) continue;
    const std::string text =
        fmt::format("{} {} {} {}", options_.hosts, options_.bytes, nonce_, options_.name);
    SHOAL_ASSIGN_OR_RETURN(const bool created,
                           storage_->create_in_folder(fmt::format("member-{}", host), as_view(text)));
    if (!created) continue;
    self_ = host;
    has_place_ = true;
    came_[host] = options_.name;
    start_beats();
    options_.note(fmt::format("joined as host {} of {}", host, options_.hosts));
    return ok_status();
  }
  return ok_status();  // others were faster
}

Status HostMeeting::begin_if_complete(const std::map<uint32_t, Member>& members) {
  std::string nonces;
  for (const auto& [host, member] : members) {
    if (!is_like_this(member)) return ok_status();
    nonces += member.nonce + "\n";
  }
  if (members.size() != options_.hosts) return ok_status();
  return storage_->create_in_folder("begun-0", as_view(nonces)).status();
}

Status HostMeeting::check_begun() {
  SHOAL_ASSIGN_OR_RETURN(const Bytes bytes, storage_->read("begun-0", kMostNoteBytes));
  std::istringstream lines{std::string(as_text(bytes))};
  for (std::string line; std::getline(lines, line);) nonces_.push_back(line);
  SHOAL_ASSIGN_OR_RETURN(const auto members, read_members());
  if (nonces_.size() != options_.hosts || nonces_[self_] != nonce_) {
    return Status(Code::busy, options_.root + ": other hosts began to calibrate without this one");
  }
  for (uint32_t host = 0; host < options_.hosts; ++host) {
    names_.push_back(members.contains(host) ? members.at(host).name : fmt::format("host {}", host));
  }
  return ok_status();
}

Status HostMeeting::not_all_came() const {
  std::vector<std::string> names;
  for (const auto& [host, name] : came_) names.push_back(name);
  return Status(
      Code::deadline_exceeded,
      fmt::format("{} of {} hosts came within {} s{}{}: start `shoal calibrate` on all of them with the "
                  "same --root and --hosts, or raise --patience",
                  names.size(), options_.hosts, options_.patience.count(), names.empty() ? "" : ": ",
                  fmt::join(names, ", ")));
}

Result<std::set<std::string>> HostMeeting::list_names() const {
  return names_in(folder_);
}

Result<std::map<uint32_t, HostMeeting::Member>> HostMeeting::read_members() {
  std::map<uint32_t, Member> out;
  SHOAL_ASSIGN_OR_RETURN(const auto names, list_names());
  for (const std::string& name : names) {
    const auto host = number_after("member-", name);
    if (!host || *host >= kMostMeetingHosts) continue;
    const auto bytes = storage_->read(name, kMostNoteBytes);
    if (bytes.status().code() == Code::not_found) continue;  // it has just left
    if (!bytes.ok()) return bytes.status();
    Member member;
    std::istringstream text{std::string(as_text(*bytes))};
    text >> member.hosts >> member.bytes >> member.nonce >> std::ws;
    std::getline(text, member.name);
    came_[static_cast<uint32_t>(*host)] = member.name;
    out[static_cast<uint32_t>(*host)] = member;
  }
  return out;
}

const HostMeeting::Seen& HostMeeting::look_at(uint32_t host, const std::string& nonce) {
  const auto now = MeetingClock::now();
  Seen& seen = seen_[host];
  std::string count = read_counter(path_of("beat", host));
  if (seen.nonce != nonce) {
    seen = {nonce, std::move(count), now, false};
  } else if (count != seen.count && !count.empty()) {
    seen = {nonce, std::move(count), now, true};
  }
  return seen;
}

Status HostMeeting::check() {
  if (options_.is_stopped()) return Status(Code::aborted, "stopped by a signal");
  if (MeetingClock::now() < next_check_) return ok_status();
  next_check_ = MeetingClock::now() + beat_;
  const auto names = list_names();
  if (names.status().code() == Code::not_found) {
    return Status(Code::aborted, folder_ + " was removed while hosts calibrated");
  }
  if (!names.ok()) return names.status();
  return names->contains(kFailed) ? why_failed() : ok_status();
}

Status HostMeeting::publish(std::string_view stem, const std::string& text) {
  return storage_->create_in_folder(fmt::format("{}-{}", stem, self_), as_view(text)).status();
}

Result<std::string> HostMeeting::wait_for(std::string_view stem, uint32_t host) {
  const std::string wanted = fmt::format("{}-{}", stem, host);
  seen_.erase(host);  // nobody has looked for a while
  const auto begun = MeetingClock::now();
  auto next_look = begun;
  for (;; std::this_thread::sleep_for(poll_)) {
    const auto names = list_names();
    if (names.status().code() == Code::not_found) {
      return Status(Code::aborted, folder_ + " was removed while hosts calibrated");
    }
    if (!names.ok()) return names.status();
    if (names->contains(kFailed)) return why_failed();
    if (names->contains(wanted)) {
      SHOAL_ASSIGN_OR_RETURN(const Bytes bytes, storage_->read(wanted, kMostNoteBytes));
      return std::string(as_text(bytes));
    }
    const auto now = MeetingClock::now();
    if (options_.is_stopped()) return Status(Code::aborted, "stopped by a signal");
    if (now - begun > kMostTurn) {
      return Status(Code::deadline_exceeded,
                    fmt::format("{} has measured for {} minutes", names_[host], kMostTurn.count()));
    }
    if (host == self_ || now < next_look) continue;
    next_look = now + beat_;
    if (now - look_at(host, nonces_[host]).since > options_.patience) {
      const Status lost(Code::unavailable, fmt::format("{} has given no sign of life for {} s", names_[host],
                                                       options_.patience.count()));
      fail(lost, host);
      return lost;
    }
  }
}

Result<std::vector<std::string>> HostMeeting::wait_for_all(std::string_view stem) {
  std::vector<std::string> out;
  for (uint32_t host = 0; host < options_.hosts; ++host) {
    SHOAL_ASSIGN_OR_RETURN(out.emplace_back(), wait_for(stem, host));
  }
  return out;
}

void HostMeeting::fail(const Status& why, std::optional<uint32_t> lost) {
  if (!has_place_) return;
  if (lost) lost_.insert(*lost);
  const std::string text = fmt::format("{}\n{}\n{}", lost ? static_cast<int64_t>(*lost) : -1, options_.name,
                                       clean_line(why.message(), kMostReasonBytes));
  (void)storage_->create_in_folder(kFailed, as_view(text));
}

Status HostMeeting::why_failed() {
  SHOAL_ASSIGN_OR_RETURN(const Bytes bytes, storage_->read(kFailed, kMostNoteBytes));
  std::istringstream text{std::string(as_text(bytes))};
  int64_t lost = -1;
  std::string name, reason;
  text >> lost >> std::ws;
  std::getline(text, name);
  std::getline(text, reason);
  if (lost >= 0) lost_.insert(static_cast<uint32_t>(lost));
  return Status(Code::aborted, fmt::format("{} gave up: {}", name, reason));
}

void HostMeeting::start_beats() {
  stops_ = false;
  beats_ = std::thread([this, path = path_of("beat", self_)] {
    std::unique_lock lock(mutex_);
    for (uint64_t count = 1; !stops_; ++count) {
      lock.unlock();
      write_counter(path, count);  // if this fails, others notice
      lock.lock();
      wakes_.wait_for(lock, beat_, [&] { return stops_; });
    }
  });
}

void HostMeeting::stop_beats() {
  if (!beats_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wakes_.notify_all();
  beats_.join();
}

bool HostMeeting::is_like_this(const Member& member) const {
  return member.hosts == options_.hosts && member.bytes == options_.bytes;
}

// Removes what this host has in the meeting. Remains::remove: and all of it, if no other host is left.
void HostMeeting::leave(Remains remains) {
  stop_beats();
  if (!has_place_) return;
  has_place_ = false;
  // If this process was stopped for long, others may have removed the folder and made it again.
  const auto members = read_members();
  if (!members.ok() || !members->contains(self_) || members->at(self_).nonce != nonce_) return;
  std::error_code error;
  std::filesystem::remove(path_of("beat", self_), error);
  std::filesystem::remove(path_of("member", self_), error);
  if (remains == Remains::keep) return;
  const auto left = read_members();
  if (!left.ok()) return;
  for (const auto& [host, member] : *left) {
    if (!lost_.contains(host)) return;
  }
  for (uint64_t number = number_; number >= 1; --number) {
    std::filesystem::remove_all(fmt::format("{}/{}{}", parent_, kMeetingPrefix, number), error);
  }
  ::rmdir(parent_.c_str());  // fails if there is a later meeting
}

std::string HostMeeting::path_of(std::string_view stem, uint32_t host) const {
  return fmt::format("{}/{}-{}", folder_, stem, host);
}

}  // namespace shoal::cli
