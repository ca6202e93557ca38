#include "cli/launch/save_outcomes.h"

#include <fmt/format.h>

#include "admin/root_reader.h"

namespace shoal::cli {

namespace {

constexpr size_t kMaxNamed = 8;        // further ones are only counted
constexpr size_t kMaxKept = 1u << 16;  // saves; older ones are dropped

}  // namespace

void SaveOutcomes::read(std::string_view bytes) {
  line_ += bytes;
  for (size_t end; (end = line_.find('\n')) != std::string::npos; line_.erase(0, end + 1)) {
    if (auto event = client::parse_save_event(std::string_view(line_).substr(0, end))) take_line(*event);
  }
}

void SaveOutcomes::take_line(const client::SaveEvent& event) {
  const auto known = saves_.find(event.key);
  switch (event.kind) {
    case client::SaveEvent::Kind::staged:
      saves_.try_emplace(event.key, Save{event.rank, false, false, false, ""});
      if (saves_.size() > kMaxKept) saves_.erase(saves_.begin());
      return;
    case client::SaveEvent::Kind::committed:
      if (known != saves_.end()) known->second.is_committed = true;
      break;
    case client::SaveEvent::Kind::failed: {
      Save& save = saves_[event.key];
      if (!save.has_failed) save.rank = event.rank, save.cause = event.cause;
      save.has_failed = true;
      return;
    }
    case client::SaveEvent::Kind::notified:
      if (known != saves_.end()) known->second.is_notified = true;
      break;
    case client::SaveEvent::Kind::too_many:
      if (!too_many_) too_many_ = event;
      return;
  }
}

UnreportedSaves SaveOutcomes::unreported(const std::string& path) const {
  UnreportedSaves out;
  size_t more = 0;
  Result<admin::OpenRoot> root = Status(Code::unavailable, "not opened yet");
  bool is_open = false;
  for (const auto& [key, save] : saves_) {
    if (save.is_committed || save.is_notified) continue;
    if (out.failed.size() + out.undecided.size() >= kMaxNamed) {
      ++more;
      continue;
    }
    if (!is_open) root = admin::open_root_for_reading(path);
    is_open = true;
    admin::AttemptChoice choice;
    choice.step = key.step;
    choice.attempt = admin::attempt_name(key);
    const auto views = root.ok() ? admin::choose_attempts(*root, choice)
                                 : Result<std::vector<storage::AttemptView>>(root.status());
    const std::string which = fmt::format("rank {}: the save of {}", save.rank, to_string(key));
    if (views.ok() && !views->empty()) {
      const storage::AttemptView& view = views->front();
      const std::string_view state = view.state_name();
      if (state == "committed" || state == "deleted") continue;
      if (state == "aborted" || state == "damaged") {
        std::string cause = save.cause;
        if (cause.empty() && view.decision && !view.decision->committed()) {
          cause = view.decision->tombstone().cause;
        }
        if (!view.damage.ok()) cause = view.damage.to_string();
        out.failed.push_back(
            fmt::format("{} failed, and no trainer asked for its outcome: {}", which, cause));
        continue;
      }
    }
    if (save.has_failed) {
      out.failed.push_back(
          fmt::format("{} failed, and no trainer asked for its outcome: {}", which, save.cause));
    } else if (!views.ok() && views.status().code() != Code::not_found) {
      out.undecided.push_back(
          fmt::format("the outcome of {} is unknown: {}", which, views.status().to_string()));
    } else {
      out.undecided.push_back(fmt::format("{} was undecided when the job ended", which));
    }
  }
  if (more != 0) {
    (out.failed.empty() ? out.undecided : out.failed)
        .push_back(fmt::format("{} more saves failed or were undecided", more));
  }
  return out;
}

}  // namespace shoal::cli
