#include "actors/node/launcher_reports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>

#include "actors/messages/messages.h"

namespace shoal::actors {

namespace {

constexpr std::string_view kEnded = "ended ";

}  // namespace

std::string launcher_line(const LauncherReports::Ended& message) {
  return fmt::format("{}{} {}\n", kEnded, message.rank, message.how);
}

void LauncherReports::receive(const std::function<bool(const Ended& message)>& take) {
  read_lines();
  std::erase_if(pending_, [&](const Ended& message) { return take(message); });
}

void LauncherReports::read_lines() {
  char buffer[4096];
  while (fd_ >= 0) {
    const ssize_t size = read(fd_, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size <= 0 || text_.size() > kMaxLauncherBytes || pending_.size() >= kMaxRanksPerNode) {
      fd_ = -1;  // the pipe has ended, or the text is not a launcher's
      return;
    }
    text_.append(buffer, static_cast<size_t>(size));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      take_line(text_.substr(0, end));
    }
  }
}

void LauncherReports::take_line(const std::string& line) {
  if (!line.starts_with(kEnded)) return;
  Ended message;
  const char* last = line.data() + line.size();
  auto [end, error] = std::from_chars(line.data() + kEnded.size(), last, message.rank);
  if (error != std::errc() || end == last || *end != ' ') return;
  message.how.assign(end + 1, last);
  if (message.rank < kMaxWorldSize) pending_.push_back(std::move(message));
}

}  // namespace shoal::actors
