// Shoal ls: lists every attempt in a root.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "admin/root_reader.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/table.h"

namespace shoal::cli {

namespace {

constexpr size_t kDefaultShown = 200;
constexpr size_t kMostUserBytes = 60;  // of the user metadata of a save, in a table

struct LsOptions {
  std::string root;
  size_t shown = kDefaultShown;
  bool all = false;
  bool json = false;
};

// The pins and tags that keep a checkpoint, whatever the retention rules.
struct MarksOf {
  std::vector<std::string> tags, pins, loads;
  bool is_verified = false;

  std::string text() const {
    std::vector<std::string> words = tags;
    if (!pins.empty()) words.push_back("(pinned)");
    if (!loads.empty()) words.push_back("(loading)");
    if (is_verified) words.push_back("(verified)");
    return fmt::format("{}", fmt::join(words, " "));
  }
};
using Marks = std::map<AttemptKey, MarksOf>;

Result<Marks> read_marks(storage::Storage& storage) {
  Marks marks;
  SHOAL_ASSIGN_OR_RETURN(storage::MarkList tags, storage::list_marks(storage, storage::MarkKind::tag));
  SHOAL_ASSIGN_OR_RETURN(storage::MarkList pins, storage::list_marks(storage, storage::MarkKind::pin));
  SHOAL_ASSIGN_OR_RETURN(storage::MarkList verified,
                         storage::list_marks(storage, storage::MarkKind::verified));
  for (const storage::Mark& tag : tags.marks) marks[tag.key].tags.push_back(tag.name);
  for (const storage::Mark& pin : pins.marks) {
    (pin.is_lease ? marks[pin.key].loads : marks[pin.key].pins).push_back(pin.name);
  }
  for (const storage::Mark& mark : verified.marks) marks[mark.key].is_verified = true;
  return marks;
}

MarksOf marks_of(const Marks& marks, const AttemptKey& key) {
  auto found = marks.find(key);
  return found == marks.end() ? MarksOf{} : found->second;
}

constexpr const char* kLsFooter =
    "Reads the root's files, and no catalog. STATE is one of\n"
    "  committed  a checkpoint (* marks the latest), which loads can use; also a rank-local save that all\n"
    "             ranks have published, whose parts the next load merges\n"
    "  undecided  a save is writing it, or an ended job left it; NOTE states what is missing, or that its\n"
    "             files prove it complete: the next job that loads or saves then commits it\n"
    "  aborted    never became a checkpoint; NOTE states why\n"
    "  deleted    was a checkpoint\n"
    "  damaged    its decision is unreadable; if it is newer than every checkpoint, there is no latest one\n"
    "SIZE is the size of the shards of a checkpoint, or of the files that remain of another attempt. TIME\n"
    "is UTC, by the clock of the process that decided. NOTE of a checkpoint has its tags, whether it is\n"
    "pinned, loaded or verified, and the first part of the metadata that the trainers saved (`show` has\n"
    "all of it).\n"
    "\n"
    "Examples:\n"
    "  shoal ls /checkpoints/run7\n"
    "  shoal ls /checkpoints/run7 --json | jq '.attempts[] | select(.latest)'\n"
    "\n"
    "Exit status: 0 success; 1 a decision is damaged; 2 the root cannot be read.";

std::string cause_of(const storage::AttemptView& view) {
  if (!view.damage.ok()) return view.damage.message();
  if (view.decision && !view.committed()) return view.decision->tombstone().cause;
  return view.proof;
}

// The latest checkpoint; nullptr if there is none or it is unknown.
const storage::AttemptView* latest_of(const std::vector<storage::AttemptView>& views) {
  const storage::AttemptView* newest = admin::newest_checkpoint(views);
  return newest != nullptr && newest->damage.ok() ? newest : nullptr;
}

// The aborted attempts that are newer than the latest checkpoint, which load(latest) passes over.
std::vector<const storage::AttemptView*> passed_over(const std::vector<storage::AttemptView>& views) {
  const storage::AttemptView* latest = latest_of(views);
  std::vector<const storage::AttemptView*> out;
  for (const storage::AttemptView& view : views) {
    const bool is_aborted = view.damage.ok() && view.info.state == storage::AttemptInfo::State::aborted;
    if (latest != nullptr && latest->key < view.key && is_aborted) out.push_back(&view);
  }
  return out;
}

// NOTE has their causes.
void warn_of_passed_over(const std::vector<storage::AttemptView>& views) {
  const std::vector<const storage::AttemptView*> aborted = passed_over(views);
  if (aborted.empty()) return;
  const std::string newest = to_string(latest_of(views)->key);
  if (aborted.size() == 1) {
    fmt::print(stderr, "warning: {} is newer than the latest checkpoint, {}, and was aborted: see NOTE\n",
               to_string(aborted.front()->key), newest);
    return;
  }
  fmt::print(stderr,
             "warning: {} attempts are newer than the latest checkpoint, {}, and were aborted: see NOTE\n",
             aborted.size(), newest);
}

// A short form; `show` prints all of it.
std::string user_text(const UserMetadata& user) {
  std::vector<std::string> words;
  for (const auto& [key, value] : user) words.push_back(key + "=" + value);
  const std::string all = fmt::format("{}", fmt::join(words, " "));
  const std::string line = clean_line(all, kMostUserBytes);
  return all.size() > kMostUserBytes ? line + "…" : line;
}

std::string note_of(const storage::AttemptView& view, const Marks& marks) {
  if (!view.committed()) return cause_of(view);
  const std::string keepers = marks_of(marks, view.key).text();
  const std::string user = user_text(view.decision->manifest().user);
  return keepers + (keepers.empty() || user.empty() ? "" : " ") + user;
}

// A file in the place of a folder of attempts has neither generation nor attempt.
std::string number_text(uint32_t number) {
  return number == std::numeric_limits<uint32_t>::max() ? "-" : fmt::to_string(number);
}

std::string as_table(const std::vector<storage::AttemptView>& views, const Marks& marks) {
  using Align = Table::Align;
  Table table({{"STEP", Align::right},
               {"GENERATION", Align::right},
               {"ATTEMPT", Align::right},
               {"STATE"},
               {"SIZE", Align::right},
               {"FILES", Align::right},
               {"RANKS", Align::right},
               {"TIME"},
               {"NOTE"}});
  const storage::AttemptView* latest = latest_of(views);
  for (const storage::AttemptView& view : views) {
    std::string size = human_bytes(view.info.files_bytes);
    std::string files = fmt::to_string(view.info.leftover_files), ranks = "-";
    if (view.committed()) {
      const storage::Manifest& manifest = view.decision->manifest();
      size = human_bytes(admin::file_bytes_of(manifest));
      files = fmt::to_string(manifest.files.size());
      ranks = fmt::to_string(manifest.world->roster.world_size());
    }
    table.add_row({fmt::to_string(view.key.step), number_text(view.key.generation),
                   number_text(view.key.attempt),
                   std::string(view.state_name()) + (&view == latest ? " *" : ""), size, files, ranks,
                   admin::utc_time(view.decision ? view.decision->unix_time_ns : 0), note_of(view, marks)});
  }
  return table.to_string();
}

nlohmann::ordered_json as_json(const admin::OpenRoot& root, const std::vector<storage::AttemptView>& views,
                               const Marks& marks, size_t omitted) {
  nlohmann::ordered_json out;
  out["root"] = root.storage->describe();
  out["root_id"] = root.id.to_hex();
  out["omitted"] = omitted;
  Status unknown = admin::check_reads_back(admin::newest_checkpoint(views));
  if (!unknown.ok()) out["latest_unknown"] = unknown.message();
  out["passed_over"] = nlohmann::ordered_json::array();
  for (const storage::AttemptView* view : passed_over(views)) {
    out["passed_over"].push_back({{"step", view->key.step},
                                  {"generation", view->key.generation},
                                  {"attempt", view->key.attempt},
                                  {"cause", cause_of(*view)}});
  }
  out["attempts"] = nlohmann::ordered_json::array();
  const storage::AttemptView* latest = latest_of(views);
  for (const storage::AttemptView& view : views) {
    nlohmann::ordered_json one;
    one["step"] = view.key.step;
    one["generation"] = view.key.generation;
    one["attempt"] = view.key.attempt;
    one["state"] = view.state_name();
    one["latest"] = &view == latest;
    one["folder"] = storage::attempt_folder(view.key);
    one["folder_bytes"] = view.info.files_bytes;
    if (view.committed()) {
      const storage::Manifest& manifest = view.decision->manifest();
      one["file_bytes"] = admin::file_bytes_of(manifest);
      one["payload_bytes"] = manifest.payload_bytes;
      one["files"] = manifest.files.size();
      one["world_size"] = manifest.world->roster.world_size();
      MarksOf keepers = marks_of(marks, view.key);
      one["tags"] = keepers.tags;
      one["pins"] = keepers.pins;
      one["loads"] = keepers.loads;
      one["verified"] = keepers.is_verified;
      if (!manifest.user.empty()) one["metadata"] = manifest.user;
    } else {
      one["leftover_files"] = view.info.leftover_files;
    }
    if (view.decision) one["unix_time_ns"] = view.decision->unix_time_ns;
    if (std::string cause = cause_of(view); !cause.empty()) one["cause"] = cause;
    out["attempts"].push_back(std::move(one));
  }
  return out;
}

int run_ls(const LsOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  size_t omitted = 0;
  size_t shown = options.all ? std::numeric_limits<size_t>::max() : options.shown;
  auto views = storage::view_newest_attempts(*root->storage, shown, &omitted);
  if (!views.ok()) return report_unusable(views.status());
  auto marks = read_marks(*root->storage);
  if (!marks.ok()) return report_unusable(marks.status());
  if (options.json) print_json("ls", as_json(*root, *views, *marks, omitted));
  if (!options.json) fmt::print("{}", as_table(*views, *marks));
  warn_of_passed_over(*views);
  if (omitted != 0 && !options.json)
    fmt::print("{} older attempts are not shown: use --all or --last N\n", omitted);
  if (Status unknown = admin::check_reads_back(admin::newest_checkpoint(*views)); !unknown.ok())
    report_unusable(unknown);
  bool damaged =
      std::any_of(views->begin(), views->end(), [](const auto& view) { return !view.damage.ok(); });
  return damaged ? kExitDamaged : kExitOk;
}

}  // namespace

void add_ls_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("ls", "List the checkpoints and other attempts of a root");
  auto options = std::make_shared<LsOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  CLI::Option* last = command->add_option("--last", options->shown, "Show the newest N attempts")
                          ->type_name("N")
                          ->check(CLI::Range(size_t{1}, std::numeric_limits<size_t>::max()))
                          ->capture_default_str();
  command->add_flag("--all", options->all, "Show every attempt")->excludes(last);
  command->add_flag("--json", options->json, "One JSON object instead of a table");
  command->footer(kLsFooter);
  command->callback([=] { *chosen = [=] { return run_ls(*options); }; });
}

}  // namespace shoal::cli
