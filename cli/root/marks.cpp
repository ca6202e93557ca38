// Shoal pin and shoal tag: add or remove marks that keep a checkpoint.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/root/choice_options.h"
#include "cli/root/collected_report.h"
#include "cli/table.h"

namespace shoal::cli {

namespace {

struct MarkOptions {
  std::string root;
  std::optional<std::string> name;  // name of a tag, or of a pin to remove
  admin::AttemptChoice choice;
  std::string note;
  bool remove = false, move = false, json = false;
};

constexpr const char* kPinFooter =
    "No command deletes a pinned checkpoint. Without --step and --remove, this command lists the pins. The\n"
    "list includes the pins that loads hold while they read (leases). They end by themselves.\n"
    "\n"
    "Examples:\n"
    "  shoal pin /checkpoints/run7 --step 1000 --note 'paper, table 2'\n"
    "  shoal pin /checkpoints/run7\n"
    "  shoal pin /checkpoints/run7 --remove 0f3c…\n"
    "\n"
    "Exit status: 0 success; 1 a pin in the list is damaged; 2 the checkpoint or the pin does not exist,\n"
    "or the root cannot be read or written.";

constexpr const char* kTagFooter =
    "A tag is a name for one checkpoint. No command deletes a tagged checkpoint. The option --step of\n"
    "every command accepts a tag. Without NAME, this command lists the tags.\n"
    "\n"
    "Examples:\n"
    "  shoal tag /checkpoints/run7 best --step 1000\n"
    "  shoal tag /checkpoints/run7 best --step 2000 --move\n"
    "  shoal show /checkpoints/run7 --step best\n"
    "  shoal tag /checkpoints/run7 best --remove\n"
    "\n"
    "Exit status: 0 success; 1 a tag in the list is damaged; 2 the checkpoint or the tag does not exist,\n"
    "another checkpoint has the tag, or the root cannot be read or written.";

// The newest of the requested checkpoints.
Result<AttemptKey> choose_checkpoint(const admin::OpenRoot& root, const admin::AttemptChoice& choice) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, admin::choose_attempts(root, choice));
  SHOAL_RETURN_IF_ERROR(admin::merge_attempts(root, views));
  const storage::AttemptView* newest = admin::newest_checkpoint(views);
  if (newest != nullptr && !newest->damage.ok()) return newest->damage;
  if (newest != nullptr) return newest->key;
  return Status(Code::not_found, fmt::format("root {} has no such checkpoint", root.storage->describe()));
}

// Reads the manifest after the mark was created. If the checkpoint was deleted meanwhile, removes the mark
// and returns an error.
Status check_still_there(const admin::OpenRoot& root, storage::MarkKind kind, const storage::Mark& mark) {
  auto decision = storage::read_decision(*root.storage, mark.key);
  if (decision.ok() && decision->committed()) return ok_status();
  SHOAL_RETURN_IF_ERROR(storage::remove_mark(*root.storage, kind, mark.name));
  if (!decision.ok() && decision.status().code() != Code::not_found) return decision.status();
  return Status(Code::not_found, to_string(mark.key) + " was deleted meanwhile");
}

storage::Mark make_mark(const std::string& name, const AttemptKey& key, const std::string& note) {
  return {name, key, false, 0, note, admin::unix_time_now_ns(), random_128()};
}

std::string_view command_of(storage::MarkKind kind) {
  return kind == storage::MarkKind::pin ? "pin" : "tag";
}

void print_made(const MarkOptions& options, storage::MarkKind kind, const storage::Mark& mark,
                std::string_view what) {
  if (options.json) {
    nlohmann::ordered_json out = key_json(mark.key);
    out["name"] = mark.name;
    print_json(command_of(kind), out);
  } else {
    fmt::print("{}: {} {}\n", to_string(mark.key), what, mark.name);
  }
}

int print_marks(const admin::OpenRoot& root, storage::MarkKind kind, bool json) {
  auto listed = storage::list_marks(*root.storage, kind);
  if (!listed.ok()) return report_unusable(listed.status());
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  bool is_pin = kind == storage::MarkKind::pin;
  Table table(
      {{is_pin ? "PIN" : "TAG"}, {"STEP", Table::Align::right}, {"ATTEMPT"}, {"KIND"}, {"TIME"}, {"NOTE"}});
  for (const storage::Mark& mark : listed->marks) {
    std::string type = !is_pin ? "tag" : mark.is_lease ? "load" : "pin";
    nlohmann::ordered_json one = key_json(mark.key);
    one["name"] = mark.name;
    one["kind"] = type;
    one["note"] = mark.note;
    one["unix_time_ns"] = mark.unix_time_ns;
    out.push_back(std::move(one));
    table.add_row({mark.name, fmt::to_string(mark.key.step), admin::attempt_name(mark.key), type,
                   admin::utc_time(mark.unix_time_ns), mark.note});
  }
  for (const auto& [name, why] : listed->damaged) {
    out.push_back({{"name", name}, {"damage", why.to_string()}});
    table.add_row({name, "-", "-", "damaged", "-", why.message()});
  }
  if (json) {
    print_json(command_of(kind), {{"marks", out}});
  } else {
    fmt::print("{}", table.to_string());
  }
  return listed->damaged.empty() ? kExitOk : kExitDamaged;
}

int remove_named(const admin::OpenRoot& root, storage::MarkKind kind, const MarkOptions& options) {
  const std::string& name = *options.name;
  auto mark = storage::read_mark(*root.storage, kind, name);  // a damaged mark may be removed too
  if (!mark.ok() && mark.status().code() == Code::not_found) {
    return report_unusable(
        Status(Code::not_found,
               fmt::format("root {} has no {} '{}'", root.storage->describe(), command_of(kind), name)));
  }
  Status status = storage::remove_mark(*root.storage, kind, name);
  if (!status.ok()) return report_unusable(status);
  if (options.json) {
    // The checkpoint of a damaged mark is not known.
    nlohmann::ordered_json out = mark.ok() ? key_json(mark->key) : nlohmann::ordered_json::object();
    out["removed"] = name;
    print_json(command_of(kind), out);
  }
  return kExitOk;
}

int run_pin(const MarkOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  if (options.name) {
    Status valid = storage::validate_component(*options.name);
    return valid.ok() ? remove_named(*root, storage::MarkKind::pin, options) : report_unusable(valid);
  }
  if (!options.choice.names_one()) return print_marks(*root, storage::MarkKind::pin, options.json);
  auto key = choose_checkpoint(*root, options.choice);
  if (!key.ok()) return report_unusable(key.status());
  storage::Mark pin = make_mark(storage::pin_name(random_128()), *key, options.note);
  Status status = storage::create_mark(*root->storage, storage::MarkKind::pin, pin).status();
  if (status.ok()) status = check_still_there(*root, storage::MarkKind::pin, pin);
  if (!status.ok()) return report_unusable(status);
  print_made(options, storage::MarkKind::pin, pin, "pinned by");
  return kExitOk;
}

Status put_tag(const admin::OpenRoot& root, const MarkOptions& options, const storage::Mark& tag) {
  SHOAL_ASSIGN_OR_RETURN(bool created, storage::create_mark(*root.storage, storage::MarkKind::tag, tag));
  if (!created) {
    auto before = storage::read_mark(*root.storage, storage::MarkKind::tag, tag.name);
    if (before.ok() && before->key == tag.key) return ok_status();
    if (!options.move) {
      return Status(Code::already_exists,
                    fmt::format("tag '{}' already names {}: use --move to move it", tag.name,
                                before.ok() ? to_string(before->key) : "another checkpoint"));
    }
    SHOAL_RETURN_IF_ERROR(storage::remove_mark(*root.storage, storage::MarkKind::tag, tag.name));
    SHOAL_ASSIGN_OR_RETURN(created, storage::create_mark(*root.storage, storage::MarkKind::tag, tag));
    if (!created)
      return Status(Code::busy, fmt::format("another process has moved tag '{}': try again", tag.name));
  }
  return check_still_there(root, storage::MarkKind::tag, tag);
}

int run_tag(const MarkOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  if (!options.name) {
    if (!options.choice.names_one() && !options.remove)
      return print_marks(*root, storage::MarkKind::tag, options.json);
    return report_unusable(
        Status(Code::invalid_argument, "the tag's name is missing: shoal tag ROOT NAME --step STEP"));
  }
  Status valid = storage::validate_tag(*options.name);
  if (!valid.ok()) return report_unusable(valid);
  if (options.remove) return remove_named(*root, storage::MarkKind::tag, options);
  if (!options.choice.names_one()) {
    return report_unusable(Status(Code::invalid_argument, "--step is missing: name the checkpoint to tag"));
  }
  auto key = choose_checkpoint(*root, options.choice);
  if (!key.ok()) return report_unusable(key.status());
  storage::Mark tag = make_mark(*options.name, *key, options.note);
  Status status = put_tag(*root, options, tag);
  if (!status.ok()) return report_unusable(status);
  print_made(options, storage::MarkKind::tag, tag, "tagged");
  return kExitOk;
}

}  // namespace

void add_pin_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("pin", "Pin a checkpoint so that it is never deleted; list or remove pins");
  auto options = std::make_shared<MarkOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  CLI::Option* step =
      add_choice_options(*command, &options->choice, "Pin the newest checkpoint of this step");
  command->add_option("--note", options->note, "Reason, in your words")->needs(step);
  command->add_option("--remove", options->name, "Remove this pin")->type_name("PIN")->excludes(step);
  command->add_flag("--json", options->json, "JSON instead of lines");
  command->footer(kPinFooter);
  command->callback([=] { *chosen = [=] { return run_pin(*options); }; });
}

void add_tag_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand(
      "tag", "Give a checkpoint a name, which also protects it from deletion; list or remove tags");
  auto options = std::make_shared<MarkOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  command->add_option("NAME", options->name, "Name of the tag; begins with a letter");
  CLI::Option* step =
      add_choice_options(*command, &options->choice, "Tag the newest checkpoint of this step");
  command->add_option("--note", options->note, "Reason, in your words")->needs(step);
  command->add_flag("--move", options->move, "Move the tag from the checkpoint that has it")->needs(step);
  command->add_flag("--remove", options->remove, "Remove the tag")->excludes(step);
  command->add_flag("--json", options->json, "JSON instead of lines");
  command->footer(kTagFooter);
  command->callback([=] { *chosen = [=] { return run_tag(*options); }; });
}

}  // namespace shoal::cli
