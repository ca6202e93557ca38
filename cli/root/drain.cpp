// Shoal drain: follows the commits of a root and copies each to another one, which has rules of its own.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "admin/drain.h"
#include "admin/newest_of_both.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/launch/fast_root.h"
#include "cli/node/node_settings.h"
#include "cli/not_empty.h"
#include "cli/progress.h"
#include "cli/root/other_root.h"
#include "storage/open_storage.h"

namespace shoal::cli {

namespace {

using DrainClock = std::chrono::steady_clock;

constexpr double kDefaultDrainIntervalSeconds = 5;
// Between two looks at the signals, and at the launcher.
constexpr std::chrono::milliseconds kDrainSlice{200};

struct DrainCommand {
  std::string root, other;
  bool create = false, once = false, copy_back = false, json = false, progress = false;
  unsigned jobs = admin::kDefaultCopyJobs;
  double interval_seconds = kDefaultDrainIntervalSeconds;
  int launcher_fd = -1;  // reaches its end with the job
  // The rules, from flags only, as for `shoal gc`.
  local::Settings settings;
};

constexpr const char* kDrainFooter =
    "Copies each checkpoint that is committed in ROOT to OTHER, as `shoal copy` does, until a signal ends "
    "the\n"
    "command; with --once, those that exist now. Either may be in an object store, s3://BUCKET/PREFIX. The\n"
    "newest checkpoint is copied first. The rules --keep-last, --keep-every and --keep-for are those of "
    "OTHER\n"
    "and are applied there after each copy; what they would delete at once is not copied. In ROOT nothing "
    "is\n"
    "deleted. ROOT has the rules of its jobs: a checkpoint that they delete before it is copied is named on\n"
    "standard error. The one that is being copied cannot be deleted.\n"
    "\n"
    "If a root cannot be read or written, the command tries again after 1 s, 2 s, and so on up to 60 s. "
    "After\n"
    "SIGTERM, SIGINT or a crash the same command continues; complete files stay. Run it once for a root.\n"
    "\n"
    "With --copy-back it goes the other way: if the newest checkpoint of OTHER is newer than all of ROOT, it "
    "is\n"
    "copied to ROOT, and the command ends. Run it before a job starts on a new machine, or after ROOT was "
    "lost.\n"
    "\n"
    "Examples:\n"
    "  shoal drain /fast/run7 s3://archive/run7 --create --keep-every 1000 --keep-last 3\n"
    "  shoal drain /fast/run7 /archive/run7 --once      copy what is there, then end\n"
    "  shoal drain /fast/run7 /archive/run7 --copy-back --create    before a job starts on a new machine\n"
    "  shoal launch -n 8 --root /fast/run7 --drain-to s3://archive/run7 -- ./trainer    beside a job\n"
    "\n"
    "Exit status: 0 OTHER has all that its rules keep; 1 some are damaged or not copied; 2 the command "
    "could\n"
    "not begin.";

std::string_view drained_state(admin::CopyResult::Outcome outcome) {
  switch (outcome) {
    case admin::CopyResult::Outcome::copied:
      return "copied";
    case admin::CopyResult::Outcome::present:
      return "present";
    case admin::CopyResult::Outcome::deleted:
      return "lost";
    case admin::CopyResult::Outcome::deleted_there:
      return "deleted_there";
    case admin::CopyResult::Outcome::failed:
      return "failed";
  }
  return "failed";
}

// What the command has done since the last report.
struct DrainReport {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  nlohmann::ordered_json deleted = nlohmann::ordered_json::array();
  uint64_t passed_over = 0;
  bool is_empty() const { return checkpoints.empty() && deleted.empty() && passed_over == 0; }
};

class Draining {
 public:
  Draining(const DrainCommand& command, admin::Drain drain)
      : command_(command),
        drain_(std::move(drain)),
        prefix_(command.launcher_fd < 0 ? "" : "shoal drain: ") {}

  int run() {
    const Interrupts interrupts;
    is_finishing_ = command_.once;
    while (Interrupts::signal_number() == 0) {
      if (!is_finishing_ && launcher_has_ended()) {
        is_finishing_ = true;
        drain_.forget_failures();
      }
      const bool has_copied = act();
      if (command_.json && !command_.once) print_report();
      if (is_finishing_ && is_done()) break;
      if (!has_copied) wait();
    }
    if (command_.json && (command_.once || !report_.is_empty())) print_report();
    if (drain_.pending() != 0) {
      complain("end", fmt::format("{} of {} not copied to {}", admin::counted(drain_.pending(), "checkpoint"),
                                  command_.root, command_.other));
    }
    return is_ok() ? kExitOk : kExitDamaged;
  }

 private:
  bool is_ok() const { return is_looked_ && !has_unreadable_ && drain_.pending() == 0; }
  // Whatever can be copied now is copied. While a root is unreachable, --once does not wait for it.
  bool is_done() const { return is_looked_ ? drain_.untried() == 0 : command_.once; }

  bool launcher_has_ended() const {
    pollfd end = {command_.launcher_fd, POLLIN, 0};
    return command_.launcher_fd >= 0 && poll(&end, 1, 0) > 0;
  }

  void wait() const {
    const double seconds =
        is_finishing_ ? std::min(1.0, command_.interval_seconds) : command_.interval_seconds;
    const auto until = DrainClock::now() + std::chrono::duration<double>(seconds);
    while (Interrupts::signal_number() == 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - DrainClock::now());
      if (left <= std::chrono::milliseconds(0)) return;
      pollfd end = {is_finishing_ ? -1 : command_.launcher_fd, POLLIN, 0};
      if (poll(&end, 1, static_cast<int>(std::min(left, kDrainSlice).count())) > 0) return;
    }
  }

  // Returns whether it has copied, or tried to.
  bool act() {
    if (admin::monotonic_now_ns() < drain_.resumes_at_ns()) return false;
    auto news = drain_.look();
    is_looked_ = news.ok();
    if (!news.ok()) return complain("look", news.status().to_string()), false;
    told_.erase("look");
    report_news(*news);
    if (!std::exchange(has_begun_, true)) apply_rules();
    const auto key = drain_.next();
    if (!key) return false;
    copy(*key);
    return true;
  }

  void copy(const AttemptKey& key) {
    std::atomic<uint64_t> bytes_done{0};
    const auto begun = DrainClock::now();
    admin::CopyResult result;
    {
      ProgressLine progress(
          [&](double seconds) {
            return fmt::format("drain: {}: {}, {}/s", to_string(key), human_bytes(bytes_done),
                               human_bytes(static_cast<uint64_t>(bytes_done / std::max(seconds, 0.001))));
          },
          command_.progress);
      result = drain_.copy(key, &bytes_done);
    }
    if (result.outcome == admin::CopyResult::Outcome::failed && Interrupts::signal_number() != 0) return;
    if (result.ends_all) is_looked_ = false;  // the roots are opened again
    report_copy(key, result, std::chrono::duration<double>(DrainClock::now() - begun).count());
    if (result.outcome == admin::CopyResult::Outcome::copied) apply_rules();
  }

  void apply_rules() {
    admin::Collected collected;
    Status applied = drain_.apply_rules(&collected);
    for (const auto& [what, why] : collected.failed) {
      if (applied.ok()) applied = why.with_context(what);
    }
    if (!applied.ok()) complain("rules", "the rules of " + command_.other + ": " + applied.to_string());
    if (applied.ok()) told_.erase("rules");
    for (const auto* gone : {&collected.deleted, &collected.held}) {
      for (const admin::Collected::Item& item : *gone) {
        print_line(fmt::format("{}: deleted from {}: {}", to_string(item.key), command_.other, item.why));
        report_.deleted.push_back(key_json(item.key));
      }
    }
  }

  void report_news(const admin::DrainNews& news) {
    for (const AttemptKey& key : news.lost) report_lost(key);
    has_unreadable_ = news.unreadable_now != 0;
    for (const auto& [key, why] : news.unreadable) {
      complain(to_string(key), fmt::format("{} is not copied: {}", to_string(key), why.to_string()));
      add_checkpoint(key, "failed")["cause"] = why.message();
    }
    if (news.passed_over == 0) return;
    report_.passed_over += news.passed_over;
    print_line(fmt::format("{} passed over: no rule of {} would keep them",
                           admin::counted(news.passed_over, "checkpoint"), command_.other));
  }

  void report_lost(const AttemptKey& key) {
    complain(to_string(key), fmt::format("warning: {} was deleted from {} before it was copied: keep more "
                                         "checkpoints there, or save less often",
                                         to_string(key), command_.root));
    add_checkpoint(key, "lost");
  }

  void report_copy(const AttemptKey& key, const admin::CopyResult& result, double seconds) {
    using Outcome = admin::CopyResult::Outcome;
    if (!result.not_pinned.ok()) {
      complain("pin",
               fmt::format("warning: {} is copied without a pin, and must not be deleted meanwhile: {}",
                           to_string(key), result.not_pinned.message()));
    }
    if (result.outcome == Outcome::deleted) return report_lost(key);
    if (result.outcome == Outcome::failed) {
      const std::string text = fmt::format("{} is not copied: {}", to_string(key), result.status.to_string());
      if (!complain(to_string(key), text)) return;
    }
    nlohmann::ordered_json& out = add_checkpoint(key, drained_state(result.outcome));
    out["files"] = result.work.files;
    out["bytes"] = result.work.bytes;
    out["files_kept"] = result.work.files_kept;
    out["bytes_kept"] = result.work.bytes_kept;
    out["seconds"] = seconds;
    if (!result.status.ok()) out["cause"] = result.status.message();
    const std::string size =
        fmt::format("{} in {}", human_bytes(result.work.bytes), admin::counted(result.work.files, "file"));
    if (result.outcome == Outcome::present) print_line(fmt::format("{}: present: {}", to_string(key), size));
    if (result.outcome == Outcome::deleted_there) {
      print_line(fmt::format("{}: not copied: {}", to_string(key), result.status.message()));
    }
    if (result.outcome != Outcome::copied) return;
    const std::string kept =
        result.work.files_kept == 0
            ? ""
            : fmt::format("; {} of an earlier copy kept", admin::counted(result.work.files_kept, "file"));
    print_line(fmt::format("{}: copied: {} in {}{}", to_string(key), size, human_seconds(seconds), kept));
  }

  nlohmann::ordered_json& add_checkpoint(const AttemptKey& key, std::string_view state) {
    report_.checkpoints.push_back(key_json(key));
    report_.checkpoints.back()["state"] = state;
    return report_.checkpoints.back();
  }

  void print_line(const std::string& line) const {
    if (command_.json) return;
    fmt::print("{}{}\n", prefix_, line);
    std::fflush(stdout);
  }

  // Prints a line to stderr, unless the last one about this was the same.
  bool complain(const std::string& about, const std::string& line) {
    std::string& last = told_[about];
    if (std::exchange(last, line) == line) return false;
    fmt::print(stderr, "{}{}\n", prefix_.empty() ? "shoal: " : prefix_, line);
    return true;
  }

  void print_report() {
    if (report_.is_empty() && !command_.once) return;
    nlohmann::ordered_json out;
    out["root"] = command_.root;
    out["other"] = command_.other;
    out["ok"] = is_ok();
    out["pending"] = drain_.pending();
    out["passed_over"] = report_.passed_over;
    out["checkpoints"] = std::move(report_.checkpoints);
    out["deleted"] = std::move(report_.deleted);
    report_ = {};
    print_json("drain", out, command_.once ? JsonLayout::indented : JsonLayout::one_line);
    std::fflush(stdout);
  }

  const DrainCommand& command_;
  admin::Drain drain_;
  const std::string prefix_;
  DrainReport report_;
  std::map<std::string, std::string> told_;  // the last line about something
  bool is_finishing_ = false;                // ends when nothing is left to copy
  bool is_looked_ = false;                   // both roots could be read, and nothing ended that since
  bool has_begun_ = false, has_unreadable_ = false;
};

// Whether a second try may succeed without anything that the user changes.
bool may_pass(Code code) {
  return code == Code::unavailable || code == Code::io || code == Code::deadline_exceeded;
}

// The folder is then a root, which a drain may follow before the first job saves there.
Status make_fast_root(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(storage::make_root_folder(path));
  SHOAL_ASSIGN_OR_RETURN(const admin::OpenRoot root, admin::open_maybe_root(path));
  return storage::open_root(*root.storage, true, random_128()).status();
}

int copy_back_command(const DrainCommand& command) {
  if (command.create) {
    if (Status made = make_fast_root(command.root); !made.ok()) return report_unusable(made);
  }
  const auto copied =
      prepare_fast_root({command.root, command.other, "shoal drain --copy-back", {}, command.create, false});
  if (!copied.ok()) return report_unusable(copied.status());
  if (command.json) {
    nlohmann::ordered_json out;
    out["root"] = command.root;
    out["other"] = command.other;
    out["copied_back"] = *copied ? key_json(**copied) : nlohmann::ordered_json();
    print_json("drain", out);
  } else if (*copied) {
    fmt::print("{}: copied back to {}\n", to_string(**copied), command.root);
  } else {
    fmt::print("nothing to copy back: no checkpoint of {} is newer than all of {}\n", command.other,
               command.root);
  }
  return kExitOk;
}

int drain_command(DrainCommand& command) {
  if (command.copy_back) return copy_back_command(command);
  auto root = admin::open_root_for_reading(command.root);
  Status opened = root.status();
  if (opened.ok()) opened = open_other_root(*root, command.other, command.create, true).status();
  const bool waits = !command.once && may_pass(opened.code());
  if (!opened.ok() && !waits) return report_unusable(opened);
  local::Settings of_other;
  if (Status status = complete_settings(command.other, &of_other); !status.ok())
    return report_unusable(status);
  admin::DrainOptions options;
  options.retention = retention_of(command.settings);
  options.jobs = command.jobs;
  options.lease_ttl_ms = static_cast<uint32_t>(of_other.number_of("lease-ttl-ms"));
  options.keeps_going = [] { return Interrupts::signal_number() == 0; };
  admin::Drain drain([&] { return admin::open_root_for_reading(command.root); },
                     [&] { return admin::open_root_for_reading(command.other); }, std::move(options));
  return Draining(command, std::move(drain)).run();
}

}  // namespace

void add_drain_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("drain", "Copy each checkpoint that jobs commit in a root to another, slower one");
  auto options = std::make_shared<DrainCommand>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the run")->required();
  command->add_option("OTHER", options->other, "Root, empty folder or s3://BUCKET/PREFIX to copy to")
      ->required()
      ->check(not_empty, "");
  add_retention_settings(*command, &options->settings);
  command->add_flag(
      "--create", options->create,
      "Create the folder OTHER if its parent exists, or let an empty prefix of a bucket become a root; with "
      "--copy-back also ROOT");
  CLI::Option* once = command->add_flag("--once", options->once, "Copy what is committed now, then end");
  command
      ->add_flag("--copy-back", options->copy_back,
                 "Copy the newest checkpoint of OTHER to ROOT if it is newer than all of ROOT, then end")
      ->excludes(once);
  command->add_option("--interval", options->interval_seconds, "Seconds between two looks at ROOT")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command->add_option("--jobs,-j", options->jobs, "Number of files copied at once")
      ->check(CLI::Range(1u, admin::kMaxCopyJobs))
      ->capture_default_str();
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json,
                    "With --once one JSON object, otherwise one on a line for each copy, instead of lines");
  command->add_option("--launcher-fd", options->launcher_fd)->group("");
  command->footer(kDrainFooter);
  command->callback([=] { *chosen = [=] { return drain_command(*options); }; });
}

}  // namespace shoal::cli
