// Shoal copy: copies checkpoints from one root to another one.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "admin/checkpoint_copy.h"
#include "admin/root_reader.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/not_empty.h"
#include "cli/progress.h"
#include "cli/root/choice_options.h"
#include "cli/root/other_root.h"
#include "storage/files/posix_file_system.h"

namespace shoal::cli {

namespace {

struct CopyCommand {
  std::string root, other;
  admin::AttemptChoice choice;
  bool latest = false, create = false, dry_run = false, json = false, progress = false;
  unsigned jobs = admin::kDefaultCopyJobs;

  bool names_one() const { return latest || choice.names_one(); }
};

constexpr const char* kCopyFooter =
    "Copies every checkpoint of ROOT, the newest first, or those chosen, to OTHER: another root, or an "
    "empty\n"
    "folder, which becomes a root. Either may be in an object store, s3://BUCKET/PREFIX. Every block is "
    "compared with its digest while it is read. A checkpoint\n"
    "appears in OTHER when all its bytes are durable there, and not before. It keeps its step, generation\n"
    "and attempt. Pins, tags and shoal.toml are not copied.\n"
    "\n"
    "A checkpoint that OTHER already has with the same content is passed over, so the same command again\n"
    "copies what is new. A copy that was interrupted at any moment is continued: complete files stay as "
    "they\n"
    "are if their size and header are right, and others are written again. `shoal verify OTHER` reads all "
    "of\n"
    "them back. The checkpoint that is being copied is pinned in both roots.\n"
    "\n"
    "A checkpoint that is damaged or cannot be copied is named with the cause, and the others are copied.\n"
    "Each of the --jobs files in flight takes 16 MiB of memory, besides the header of the file; from an\n"
    "object store 32 MiB, and to one six parts of an upload, which have 16 MiB or more.\n"
    "\n"
    "Examples:\n"
    "  shoal copy /checkpoints/run7 /archive/run7 --create      every checkpoint, to a new folder\n"
    "  shoal copy /checkpoints/run7 /archive/run7 --latest      the latest one\n"
    "  shoal copy /checkpoints/run7 /archive/run7 --step 1000   every checkpoint at this step\n"
    "  shoal copy /checkpoints/run7 /archive/run7 --dry-run     what it would copy, and whether it fits\n"
    "  shoal copy /checkpoints/run7 s3://archive/run7 --create  to a bucket\n"
    "\n"
    "Exit status: 0 OTHER has all of them; 1 some are damaged or could not be copied; 2 the command could\n"
    "not begin.";

struct CopyItem {
  AttemptKey key;
  admin::CopyResult result;
  bool was_tried = false;
  double seconds = 0;

  bool is_there() const {
    return result.outcome == admin::CopyResult::Outcome::copied ||
           result.outcome == admin::CopyResult::Outcome::present;
  }
};

std::string_view state_of(const CopyItem& item, bool dry_run) {
  if (item.result.outcome == admin::CopyResult::Outcome::deleted_there) return "deleted_there";
  if (!item.result.status.ok() && item.result.outcome == admin::CopyResult::Outcome::failed) return "failed";
  if (item.result.outcome == admin::CopyResult::Outcome::present) return "present";
  if (dry_run) return "to_copy";
  if (!item.was_tried) return "not_tried";
  return item.result.outcome == admin::CopyResult::Outcome::copied ? "copied" : "deleted_meanwhile";
}

// Copies one checkpoint after another.
class Copying {
 public:
  // `other`: null if the folder does not exist yet.
  Copying(const CopyCommand& command, const admin::OpenRoot& root, const admin::OpenRoot* other)
      : command_(command) {
    if (other == nullptr) return;
    copier_.emplace(*root.storage, *other->storage, other->id,
                    admin::CopyOptions{command.jobs, [] { return Interrupts::signal_number() == 0; }});
  }

  // Finds out what there is to do. An error of one checkpoint becomes its result.
  void look(const std::vector<storage::AttemptView>& views) {
    for (auto view = views.rbegin(); view != views.rend(); ++view) {
      CopyItem& item = items.emplace_back();
      item.key = view->key;
      item.result.status = view->damage;
      if (!view->damage.ok()) continue;
      auto forecast = copier_ ? copier_->forecast(*view->decision) : admin::whole_copy(*view->decision);
      item.result.status = forecast.status();
      if (!forecast.ok() && copier_->is_deleted_there(view->key)) {
        item.result.outcome = admin::CopyResult::Outcome::deleted_there;
      }
      if (!forecast.ok()) continue;
      item.result.work = *forecast;
      if (forecast->is_present) item.result.outcome = admin::CopyResult::Outcome::present;
      if (!forecast->is_present) bytes_to_copy += forecast->bytes - forecast->bytes_kept;
    }
  }

  void run() {
    const Interrupts interrupts;
    std::atomic<uint64_t> bytes_done{0};
    ProgressLine progress("copy", bytes_to_copy, bytes_done, command_.progress);
    for (CopyItem& item : items) {
      if (item.is_there() || !item.result.status.ok()) continue;
      const auto begun = std::chrono::steady_clock::now();
      item.result = copier_->copy(item.key, &bytes_done);
      item.was_tried = true;
      item.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
      warn_unpinned(item);
      if (item.result.ends_all) return;
    }
  }

  std::vector<CopyItem> items;  // the newest first
  uint64_t bytes_to_copy = 0;

 private:
  void warn_unpinned(const CopyItem& item) {
    if (item.result.not_pinned.ok() || warned_) return;
    warned_ = true;
    fmt::print(stderr, "shoal: warning: {} is copied without a pin, and must not be deleted meanwhile: {}\n",
               to_string(item.key), item.result.not_pinned.message());
  }

  const CopyCommand& command_;
  std::optional<admin::CheckpointCopier> copier_;
  bool warned_ = false;
};

// The chosen checkpoints, and those whose decisions cannot be read; ascending.
Result<std::vector<storage::AttemptView>> choose_to_copy(const admin::OpenRoot& root,
                                                         const CopyCommand& command) {
  admin::AttemptChoice choice = command.choice;
  choice.newest_only = command.latest;
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, admin::choose_attempts(root, choice));
  std::erase_if(views,
                [](const storage::AttemptView& view) { return !view.committed() && view.damage.ok(); });
  if (views.empty() && command.names_one()) {
    return Status(Code::not_found, fmt::format("root {} has no such checkpoint", root.storage->describe()));
  }
  if (command.latest) views.erase(views.begin(), views.end() - 1);
  return views;
}

nlohmann::ordered_json item_json(const CopyItem& item, bool dry_run) {
  nlohmann::ordered_json out = key_json(item.key);
  out["state"] = state_of(item, dry_run);
  out["files"] = item.result.work.files;
  out["bytes"] = item.result.work.bytes;
  out["files_kept"] = item.result.work.files_kept;
  out["bytes_kept"] = item.result.work.bytes_kept;
  if (item.was_tried) out["seconds"] = item.seconds;
  if (!item.result.status.ok()) out["cause"] = item.result.status.message();
  return out;
}

void print_item(const CopyItem& item, bool dry_run) {
  const admin::CopyForecast& work = item.result.work;
  const std::string size =
      fmt::format("{} in {}", human_bytes(work.bytes), admin::counted(work.files, "file"));
  const std::string kept = work.files_kept == 0 ? ""
                                                : fmt::format("; {} of an earlier copy kept",
                                                              admin::counted(work.files_kept, "file"));
  const std::string_view state = state_of(item, dry_run);
  if (state == "copied") {
    fmt::print("{}: copied: {} in {}{}\n", to_string(item.key), size, human_seconds(item.seconds), kept);
  } else if (state == "to_copy") {
    fmt::print("{}: to copy: {}{}\n", to_string(item.key), size, kept);
  } else if (state == "present") {
    fmt::print("{}: present: {}\n", to_string(item.key), size);
  } else if (state == "deleted_meanwhile") {
    fmt::print("{}: deleted while `shoal copy` ran: {}\n", to_string(item.key), item.result.status.message());
  } else if (state == "deleted_there") {
    fmt::print("{}: not copied: {}\n", to_string(item.key), item.result.status.message());
  } else if (state == "not_tried") {
    fmt::print("{}: not copied: the command ended before\n", to_string(item.key));
  } else {
    fmt::print(stderr, "shoal: {} is not copied: {}\n", to_string(item.key), item.result.status.to_string());
  }
}

bool is_done(const CopyItem& item, const CopyCommand& command) {
  if (item.is_there()) return true;
  // A rule has deleted it in OTHER: it is none of what OTHER should have.
  if (item.result.outcome == admin::CopyResult::Outcome::deleted_there) return !command.names_one();
  const bool is_gone = item.was_tried && item.result.outcome == admin::CopyResult::Outcome::deleted;
  if (is_gone) return !command.names_one();  // of all checkpoints, this one is none any more
  return command.dry_run && item.result.status.ok();
}

// nullopt: an object store has no limit that it tells.
using FreeBytes = std::optional<uint64_t>;

int report_copied(const CopyCommand& command, const Copying& copying, FreeBytes free_bytes) {
  bool ok = std::ranges::all_of(copying.items, [&](const CopyItem& item) { return is_done(item, command); });
  const bool fits = !free_bytes || copying.bytes_to_copy <= *free_bytes;
  if (command.dry_run && !fits) ok = false;
  if (command.json) {
    nlohmann::ordered_json out;
    out["root"] = command.root;
    out["other"] = command.other;
    out["dry_run"] = command.dry_run;
    out["ok"] = ok;
    out["bytes_to_copy"] = copying.bytes_to_copy;
    out["free_bytes"] = free_bytes ? nlohmann::ordered_json(*free_bytes) : nlohmann::ordered_json();
    out["fits"] = fits;
    out["checkpoints"] = nlohmann::ordered_json::array();
    for (const CopyItem& item : copying.items) out["checkpoints"].push_back(item_json(item, command.dry_run));
    print_json("copy", out);
    return ok ? kExitOk : kExitDamaged;
  }
  for (const CopyItem& item : copying.items) print_item(item, command.dry_run);
  if (copying.items.empty()) fmt::print("no checkpoint yet\n");
  if (command.dry_run && !free_bytes) {
    fmt::print("{} to copy to {}\n", human_bytes(copying.bytes_to_copy), command.other);
  } else if (command.dry_run) {
    fmt::print("{} to copy; {} has {} free{}\n", human_bytes(copying.bytes_to_copy), command.other,
               human_bytes(*free_bytes), fits ? "" : ": that is not enough");
  }
  return ok ? kExitOk : kExitDamaged;
}

Status check_space(const Copying& copying, const CopyCommand& command, FreeBytes free_bytes) {
  if (command.dry_run || !free_bytes || copying.bytes_to_copy <= *free_bytes) return ok_status();
  return Status(Code::no_space,
                fmt::format("{} are to be copied, and {} has {} free: choose fewer with --step or --latest, "
                            "or free space",
                            human_bytes(copying.bytes_to_copy), command.other, human_bytes(*free_bytes)));
}

// What `--create --dry-run` knows of a folder that does not exist yet: everything is to be copied there.
Result<FreeBytes> free_space_for(const CopyCommand& command) {
  if (base::is_in_object_store(command.other)) return FreeBytes();
  std::filesystem::path path = std::filesystem::absolute(command.other).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (!std::filesystem::exists(path)) path = path.parent_path();
  storage::PosixFileSystem disk;
  SHOAL_ASSIGN_OR_RETURN(const uint64_t bytes, admin::free_space_of(disk, path.string()));
  return FreeBytes(bytes);
}

int copy_command(const CopyCommand& command) {
  auto root = admin::open_root_for_reading(command.root);
  if (!root.ok()) return report_unusable(root.status());
  auto views = choose_to_copy(*root, command);
  if (!views.ok()) return report_unusable(views.status());
  auto other = open_other_root(*root, command.other, command.create, !command.dry_run);
  const bool is_missing = other.status().code() == Code::not_found;
  if (!other.ok() && !(is_missing && command.create)) return report_unusable(other.status());
  auto free_bytes = free_space_for(command);
  if (!free_bytes.ok()) return report_unusable(free_bytes.status());
  Copying copying(command, *root, is_missing ? nullptr : &*other);
  copying.look(*views);
  if (Status fits = check_space(copying, command, *free_bytes); !fits.ok()) return report_unusable(fits);
  if (!command.dry_run) copying.run();
  return report_copied(command, copying, *free_bytes);
}

}  // namespace

void add_copy_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("copy", "Copy checkpoints from one root to another one");
  auto options = std::make_shared<CopyCommand>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the run")->required();
  command->add_option("OTHER", options->other, "Root, empty folder or s3://BUCKET/PREFIX to copy to")
      ->required()
      ->check(not_empty, "");
  CLI::Option* step = add_choice_options(*command, &options->choice, "Copy the checkpoints at this step");
  command->add_flag("--latest", options->latest, "Copy the latest checkpoint")->excludes(step);
  command->add_flag(
      "--create", options->create,
      "Create the folder OTHER if its parent exists, or let an empty prefix of a bucket become a root");
  command->add_option("--jobs,-j", options->jobs, "Number of files copied at once")
      ->check(CLI::Range(1u, admin::kMaxCopyJobs))
      ->capture_default_str();
  command->add_flag("--dry-run", options->dry_run,
                    "Print what the command would copy, and whether OTHER has space; change nothing");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kCopyFooter);
  command->callback([=] { *chosen = [=] { return copy_command(*options); }; });
}

}  // namespace shoal::cli
