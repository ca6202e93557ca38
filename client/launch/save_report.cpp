#include "client/launch/save_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>

#include "base/owned_fd.h"

namespace shoal::client {

namespace {

constexpr size_t kMaxCauseBytes = 1024;
constexpr std::array<std::string_view, 5> kKinds = {"staged", "committed", "failed", "notified", "too_many"};
static_assert(kMaxCauseBytes + 128 <= PIPE_BUF);

// Reads the number at the start of `text`, and removes it and one space from `text`.
template <class Number>
bool take_number(std::string_view* text, Number* value) {
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  if (text->empty()) return true;
  if (text->front() != ' ') return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::string save_event_line(const SaveEvent& event) {
  std::string cause = event.cause.substr(0, kMaxCauseBytes);
  std::replace_if(
      cause.begin(), cause.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return fmt::format("{} {} {} {} {} {}\n", kKinds[static_cast<size_t>(event.kind)], event.rank,
                     event.key.generation, event.key.step, event.key.attempt, cause);
}

std::optional<SaveEvent> parse_save_event(std::string_view line) {
  const std::string_view word = line.substr(0, line.find(' '));
  const auto kind = std::find(kKinds.begin(), kKinds.end(), word);
  if (kind == kKinds.end() || word.size() == line.size()) return std::nullopt;
  line.remove_prefix(word.size() + 1);
  SaveEvent event;
  event.kind = static_cast<SaveEvent::Kind>(kind - kKinds.begin());
  if (!take_number(&line, &event.rank) || !take_number(&line, &event.key.generation) ||
      !take_number(&line, &event.key.step) || !take_number(&line, &event.key.attempt)) {
    return std::nullopt;
  }
  event.cause = line;
  return event;
}

SaveReportWriter::SaveReportWriter() {
  const char* path = std::getenv(kSaveReportVariable);
  if (path == nullptr || *path == '\0') return;
  // Opened for reading too: while this process is a reader, writing raises no SIGPIPE if the launcher has
  // ended.
  base::OwnedFd fifo(::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
  struct stat found {};
  if (fifo.valid() && ::fstat(fifo.get(), &found) == 0 && S_ISFIFO(found.st_mode)) fifo_ = std::move(fifo);
}

void SaveReportWriter::write(const SaveEvent& event) {
  if (!fifo_.valid()) return;
  const std::string line = save_event_line(event);
  if (::write(fifo_.get(), line.data(), line.size()) < 0) return;  // the FIFO is full or broken
}

}  // namespace shoal::client
