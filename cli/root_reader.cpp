#include "cli/root_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <limits>

namespace shoal {

Result<OpenRoot> open_root_for_reading(const std::string& path) {
  OpenRoot root;
  root.file_system = std::make_unique<PosixFileSystem>();
  SHOAL_ASSIGN_OR_RETURN(root.storage, LocalStorage::open(*root.file_system, path, random_128()));
  SHOAL_ASSIGN_OR_RETURN(root.id, open_root(*root.storage, false, RootId{}));
  return root;
}

std::string_view AttemptView::state_name() const {
  if (!damage.ok()) return "damaged";
  switch (info.state) {
    case AttemptInfo::State::committed:
      return "committed";
    case AttemptInfo::State::aborted:
      return "aborted";
    case AttemptInfo::State::deleted:
      return "deleted";
    case AttemptInfo::State::undecided:
      break;
  }
  return "undecided";
}

Result<AttemptView> view_attempt(Storage& storage, const AttemptInfo& info) {
  AttemptView view;
  view.key = info.key;
  view.info = info;
  if (info.state == AttemptInfo::State::undecided) return view;
  auto decision = read_decision(storage, info.key);
  if (decision.ok()) {
    view.decision = std::move(*decision);
    return view;
  }
  Code code = decision.status().code();
  if (code == Code::version || code == Code::not_found) return decision.status();
  view.damage = decision.status();
  return view;
}

Result<std::vector<AttemptView>> view_attempts(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(AttemptList list, list_attempts(storage));
  std::vector<AttemptView> views;
  for (const AttemptInfo& info : list.attempts) {
    auto view = view_attempt(storage, info);
    if (!view.ok() && view.status().code() == Code::not_found) continue;  // removed meanwhile
    if (!view.ok()) return view.status();
    views.push_back(std::move(*view));
  }
  for (auto& [key, status] : list.damaged) {
    if (status.code() == Code::version) return status;
    AttemptView view;
    view.key = key;
    view.damage = status;
    views.push_back(std::move(view));
  }
  std::sort(views.begin(), views.end(),
            [](const AttemptView& a, const AttemptView& b) { return a.key < b.key; });
  return views;
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

CLI::Option* add_choice_options(CLI::App& command, AttemptChoice* choice, const std::string& step_help) {
  auto take_step = [choice](const std::string& text) {
    choice->step = parse_step(text);
    if (choice->step) return;
    throw CLI::ValidationError("--step", fmt::format("'{}' is no step: a number from 0 to {} is needed", text,
                                                     std::numeric_limits<uint64_t>::max()));
  };
  CLI::Option* step = command.add_option_function<std::string>("--step", take_step, step_help);
  step->type_name("N");
  command.add_option("--attempt", choice->attempt, "This attempt at the step alone, such as g3a1");
  return step;
}

Status validate_choice(const AttemptChoice& choice) {
  if (choice.attempt.empty()) return ok_status();
  if (!choice.step) return Status(Code::invalid_argument, "--attempt needs --step");
  if (!parse_attempt_folder(*choice.step, choice.attempt)) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is no attempt; attempts are named as in g3a1", choice.attempt));
  }
  return ok_status();
}

Result<std::vector<AttemptView>> choose_attempts(const OpenRoot& root, const AttemptChoice& choice) {
  SHOAL_RETURN_IF_ERROR(validate_choice(choice));
  SHOAL_ASSIGN_OR_RETURN(std::vector<AttemptView> views, view_attempts(*root.storage));
  std::erase_if(views, [&](const AttemptView& view) {
    return (choice.step && view.key.step != *choice.step) ||
           (!choice.attempt.empty() && attempt_name(view.key) != choice.attempt);
  });
  if (!views.empty() || !choice.step) return views;
  return Status(Code::not_found,
                fmt::format("root {} has no attempt {}at step {}", root.storage->describe(),
                            choice.attempt.empty() ? "" : choice.attempt + " ", *choice.step));
}

uint64_t file_bytes_of(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) bytes += file.size;
  return bytes;
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

std::string_view dedupe_name(Dedupe dedupe) {
  switch (dedupe) {
    case Dedupe::balanced:
      return "balanced";
    case Dedupe::lowest_rank:
      return "lowest-rank";
    case Dedupe::none:
      break;
  }
  return "none";
}

}  // namespace shoal
