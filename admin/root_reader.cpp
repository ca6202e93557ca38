#include "admin/root_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <limits>

#include "storage/decisions/rank_manifest.h"
#include "storage/open_storage.h"

namespace shoal::admin {

Result<OpenRoot> open_root_for_reading(const std::string& path) {
  OpenRoot root;
  SHOAL_ASSIGN_OR_RETURN(storage::OpenedStorage opened, storage::open_storage(path, random_128()));
  root.file_system = std::move(opened.disk);
  root.storage = std::move(opened.storage);
  SHOAL_ASSIGN_OR_RETURN(root.id, storage::open_root(*root.storage, false, RootId{}));
  return root;
}

namespace {

std::optional<uint64_t> parse_step(const std::string& text) {
  uint64_t step = 0;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, step);
  if (text.empty() || error != std::errc() || end != last) return std::nullopt;
  return step;
}

}  // namespace

Status choose_step(const std::string& text, AttemptChoice* choice) {
  choice->step = parse_step(text);
  if (choice->step) return ok_status();
  if (!storage::validate_tag(text).ok()) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is neither a step (a number from 0 to {}) nor a valid tag", text,
                              std::numeric_limits<uint64_t>::max()));
  }
  choice->tag = text;
  return ok_status();
}

Status validate_choice(const AttemptChoice& choice) {
  if (choice.attempt.empty()) return ok_status();
  if (!choice.step) return Status(Code::invalid_argument, "--attempt needs --step with a number");
  if (!storage::parse_attempt_folder(*choice.step, choice.attempt)) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is not an attempt: write it as in g3a1", choice.attempt));
  }
  return ok_status();
}

namespace {

// Replaces a tag by the step and attempt that it names.
Result<AttemptChoice> resolve(const OpenRoot& root, AttemptChoice choice) {
  SHOAL_RETURN_IF_ERROR(validate_choice(choice));
  if (choice.tag.empty()) return choice;
  auto tag = storage::read_mark(*root.storage, storage::MarkKind::tag, choice.tag);
  if (!tag.ok() && tag.status().code() == Code::not_found) {
    return Status(Code::not_found,
                  fmt::format("root {} has no tag '{}'", root.storage->describe(), choice.tag));
  }
  if (!tag.ok()) return tag.status();
  choice.step = tag->key.step;
  choice.attempt = attempt_name(tag->key);
  return choice;
}

Result<storage::AttemptList> list_for(storage::Storage& storage, const AttemptChoice& choice) {
  if (choice.step) return storage::list_attempts_of_step(storage, *choice.step);
  return choice.newest_only ? storage::list_newest_attempts(storage) : storage::list_attempts(storage);
}

}  // namespace

Result<std::vector<storage::AttemptView>> choose_attempts(const OpenRoot& root, const AttemptChoice& given) {
  SHOAL_ASSIGN_OR_RETURN(AttemptChoice choice, resolve(root, given));
  SHOAL_ASSIGN_OR_RETURN(storage::AttemptList list, list_for(*root.storage, choice));
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, storage::view_list(*root.storage, list));
  std::erase_if(views, [&](const storage::AttemptView& view) {
    return !choice.attempt.empty() && attempt_name(view.key) != choice.attempt;
  });
  if (!views.empty() || !choice.step) return views;
  return Status(Code::not_found,
                fmt::format("root {} has no attempt {}at step {}", root.storage->describe(),
                            choice.attempt.empty() ? "" : choice.attempt + " ", *choice.step));
}

Status merge_attempts(const OpenRoot& root, const std::vector<storage::AttemptView>& views) {
  for (const storage::AttemptView& view : views) {
    if (view.is_merged) continue;
    const storage::DecisionStamp stamp{random_128(), root.id, unix_time_now_ns()};
    SHOAL_RETURN_IF_ERROR(storage::complete_rank_local(*root.storage, view.key, stamp).status());
  }
  return ok_status();
}

const storage::AttemptView* newest_checkpoint(const std::vector<storage::AttemptView>& views) {
  for (auto view = views.rbegin(); view != views.rend(); ++view) {
    if (view->committed() || !view->damage.ok()) return &*view;
  }
  return nullptr;
}

Status check_reads_back(const storage::AttemptView* newest) {
  if (newest == nullptr || newest->damage.ok()) return ok_status();
  return Status(newest->damage.code(), fmt::format("{}; it may be the newest checkpoint, so a load of the "
                                                   "latest fails: name another one that `shoal ls` lists",
                                                   newest->damage.message()));
}

int64_t unix_time_now_ns() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int64_t monotonic_now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

uint64_t file_bytes_of(const storage::Manifest& manifest) {
  uint64_t bytes = 0;
  for (const storage::FileEntry& file : manifest.files) bytes += file.size;
  return bytes;
}

std::string counted(uint64_t count, std::string_view thing, std::string_view things) {
  if (count != 1 && !things.empty()) return fmt::format("{} {}", count, things);
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string attempt_name(const AttemptKey& key) {
  return fmt::format("g{}a{}", key.generation, key.attempt);
}

std::string utc_time(int64_t unix_time_ns) {
  if (unix_time_ns <= 0) return "-";
  std::time_t seconds = static_cast<std::time_t>(unix_time_ns / 1'000'000'000);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "-";
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts));
}

}  // namespace shoal::admin
