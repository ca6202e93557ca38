// Shoal settings: prints all settings, the value of each, and its source.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/node/node_settings.h"
#include "cli/table.h"
#include "client/launch/job_environment.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

struct SettingsOptions {
  std::string root;
  local::Settings settings;
  bool json = false, markdown = false;
};

constexpr const char* kSettingsFooter =
    "Shows the settings of a job that would start now, in this folder, with these variables, on ROOT. The\n"
    "first lines of a node's log show the settings of a running job. This command takes the flags of\n"
    "`shoal launch`, so it also checks them.\n"
    "\n"
    "Examples:\n"
    "  shoal settings /checkpoints/run7\n"
    "  SHOAL_KEEP_LAST=5 shoal settings --json | jq '.settings[\"keep-last\"]'\n"
    "\n"
    "Exit status: 0 success; 2 a variable, a file or a flag has an invalid value.";

constexpr const char* kPageHead = R"(# Settings

This page lists every setting of a job. Who is who in a job (rank, host, coordinator) is in
[clusters.md](../how-to/clusters.md). `shoal settings --markdown` writes this page, and a test checks that
the two are equal. `shoal settings ROOT` shows each value that is in effect, and where it was set.

## Four ways to set a value

Every setting has one name. The names of its flag, variable, field and key follow from it. For `keep-last`
they are:

| way | name | who reads it |
|---|---|---|
| flag | `--keep-last 5` | `shoal launch`; `shoal node`, if the setting is one of nodes |
| variable | `SHOAL_KEEP_LAST=5` | nodes and trainers; torchrun, mpirun and srun pass it on |
| field | `options.node.keep_last = 5` | the trainer's program: `CheckpointerOptions` |
| file | `keep-last = 5` in `shoal.toml` | nodes and trainers; in the working folder, or the root |

If several of them set a value, the first in this list decides:

1. the flag, or the field of `CheckpointerOptions`
2. the variable; an empty variable counts as not set
3. `shoal.toml` in the working folder
4. `shoal.toml` in the root
5. the default

`shoal launch` passes the flags of trainers on as variables. A field that the program sets itself therefore
takes precedence over such a flag. `CheckpointerOptions::from_environment()` fills the fields of the second
table from variables and files. `Checkpointer::open` does the same for the fields of `node`, also if the
program did not call `from_environment`, and passes all of them to the node that it starts. The settings of a
node hold until its job ends. A node that is started again in the same job does not read the files again.

A node writes one line when it starts. The line has each setting that was set, its value and its source:

```
settings: keep-last 5 (SHOAL_KEEP_LAST), load-memory 512 MiB (/checkpoints/run7/shoal.toml:2)
```

The same line names variables that begin with `SHOAL_` and are not settings: most of them are misspelt.

Settings whose names end in `-ms` are whole numbers of milliseconds, at most one day. Sizes are numbers of
bytes, or have a unit as in `512MiB` and `1 GiB`. A wrong value is an error before anything starts, also if a
setting that comes earlier in the order overrides it.

## shoal.toml

`shoal.toml` is a TOML file of at most 64 KiB without sections. Each line has one setting. Whole numbers are
written as they are, and all other values in quotes.

```toml
# /checkpoints/run7/shoal.toml
keep-last = 5
keep-for = "7d"
load-memory = "512 MiB"
```

A key that is not a setting is an error that names file and line. **A user who may write to a root cannot
choose the files and ports of other users.** Settings that name a file or an address (marked ✎) are rejected
in the root's file. They are also rejected in the working folder's file if it belongs neither to you nor to
root.

`shoal gc` takes its rules from flags only: neither a file nor a variable makes it delete anything.
)";

std::string shown(const std::string& text) {
  return text.empty() ? "–" : "`" + text + "`";
}

std::string bounds_of(const local::Setting& setting) {
  switch (setting.kind) {
    case local::SettingKind::count:
      return fmt::format("from {}", setting.least);
    case local::SettingKind::milliseconds:
      return setting.least > 1 ? fmt::format("from {}", setting.least) : "";
    case local::SettingKind::bytes:
      return fmt::format("from {}", setting.least == 0 ? "0" : human_bytes(setting.least));
    case local::SettingKind::choice:
      return setting.values;
    case local::SettingKind::duration:
      return "as in 90s, 15m, 36h, 7d, 2w";
    case local::SettingKind::ports:
      return "A-B";
    case local::SettingKind::address:
      return "HOST:PORT";
    case local::SettingKind::text:
    case local::SettingKind::path:
      break;
  }
  return "";
}

void print_page_rows(local::SettingOf of) {
  std::string group;
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of != of) continue;
    if (group != setting.group) {
      group = setting.group;
      fmt::print("\n### {}\n\n", group);
      fmt::print("| flag, key in `shoal.toml` | variable | field | values | default | what it does |\n");
      fmt::print("|---|---|---|---|---|---|\n");
    }
    fmt::print("| `{}`{} | `{}` | `{}` | {} | {} | {} |\n", setting.flag(),
               setting.is_environment_only() ? " ✎" : "", setting.variable(), setting.field(),
               bounds_of(setting), shown(setting.initially), setting.help);
  }
}

int print_page() {
  fmt::print("{}", kPageHead);
  fmt::print("\n## Settings of nodes\n");
  print_page_rows(local::SettingOf::node);
  fmt::print("\n## Settings of trainers\n");
  print_page_rows(local::SettingOf::trainer);
  fmt::print("\n## Other variables\n\nThese identify a job and its parts. No file sets them.\n\n");
  fmt::print("| variable | what it is |\n|---|---|\n");
  for (const local::OtherVariable& other : local::other_variables())
    fmt::print("| `{}` | {} |\n", other.name, other.help);
  return kExitOk;
}

nlohmann::json settings_json(const local::Settings& settings) {
  nlohmann::json out = nlohmann::json::object();
  for (const local::Setting& setting : local::all_settings()) {
    const local::Settings::Value* value = settings.find(setting.name);
    nlohmann::json& row = out[setting.name];
    row["value"] = value ? value->text : setting.initially;
    row["source"] = value ? value->source : "default";
    row["default"] = setting.initially;
    row["of"] = setting.of == local::SettingOf::node ? "node" : "trainer";
    row["variable"] = setting.variable();
    row["field"] = setting.field();
    row["help"] = setting.help;
  }
  return {{"settings", out}, {"unknown_variables", local::unknown_variables()}};
}

int run_settings(SettingsOptions& options) {
  if (options.markdown) return print_page();
  if (options.root.empty()) options.root = client::environment_variable("SHOAL_ROOT").value_or("");
  Status status = complete_settings(options.root, &options.settings);
  if (!status.ok()) return report_unusable(status);
  if (options.json) {
    print_json("settings", settings_json(options.settings));
    return kExitOk;
  }
  Table table({{"SETTING"}, {"VALUE"}, {"SET BY"}, {"WHAT IT DOES"}});
  for (const local::Setting& setting : local::all_settings()) {
    const local::Settings::Value* value = options.settings.find(setting.name);
    const std::string text = value ? value->text : setting.initially;
    table.add_row({setting.name, text.empty() ? "-" : text, value ? value->source : "default", setting.help});
  }
  fmt::print("{}", table.to_string());
  for (const std::string& name : local::unknown_variables()) {
    fmt::print(stderr, "shoal: warning: {} is not a setting and has no effect\n", name);
  }
  return kExitOk;
}

}  // namespace

void add_settings_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand(
      "settings", "List all settings with their values, where each was set, and what it does");
  auto options = std::make_shared<SettingsOptions>();
  command->add_option("ROOT", options->root,
                      "Folder of the run; default: $SHOAL_ROOT, else read no root's file");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->add_flag("--markdown", options->markdown, "Print the page docs/reference/settings.md");
  add_settings(*command, local::SettingOf::node, &options->settings);
  add_settings(*command, local::SettingOf::trainer, &options->settings);
  command->footer(kSettingsFooter);
  command->callback([=] { *chosen = [=] { return run_settings(*options); }; });
}

}  // namespace shoal::cli
