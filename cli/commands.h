// The subcommands of `shoal`. Each function adds a subcommand to the parser and sets *chosen if the user
// selected it. main() runs *chosen after parsing.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::cli {

// Exit statuses. `launch` returns the worst status of its trainers, 1 if the node failed, or 2 for bad
// arguments.
inline constexpr int kExitOk = 0;
// Verify, ls, show, status: a checkpoint, or what may be one, is damaged.
inline constexpr int kExitDamaged = 1;
inline constexpr int kExitUnusable = 2;  // bad arguments, no such root or step, a newer format, no permission
inline constexpr int kExitNoNode = 1;    // status, top: no node runs here
inline constexpr int kExitFailed = 1;    // node: it could not run, or did not end cleanly
inline constexpr int kExitDifferent = 1;  // diff
// node: another job has taken over the root, so a restart is of no use
inline constexpr int kExitSuperseded = 3;
// launch: the trainers succeeded, but a save failed without any trainer being notified, or too many failed in
// a row
inline constexpr int kExitSaveFailed = 4;
// launch: the trainers succeeded, but a checkpoint could not be copied to the root of --drain-to
inline constexpr int kExitNotDrained = 5;

using Command = std::function<int()>;  // returns the exit status

void add_node_command(CLI::App& app, Command* chosen);
// `command_line`: the arguments after the first "--".
void add_launch_command(CLI::App& app, const std::vector<std::string>& command_line, Command* chosen);
void add_ls_command(CLI::App& app, Command* chosen);
void add_show_command(CLI::App& app, Command* chosen);
void add_verify_command(CLI::App& app, Command* chosen);
void add_copy_command(CLI::App& app, Command* chosen);
void add_drain_command(CLI::App& app, Command* chosen);
void add_diff_command(CLI::App& app, Command* chosen);
void add_export_command(CLI::App& app, Command* chosen);
void add_import_command(CLI::App& app, Command* chosen);
void add_restore_id_command(CLI::App& app, Command* chosen);
void add_rm_command(CLI::App& app, Command* chosen);
void add_gc_command(CLI::App& app, Command* chosen);
void add_pin_command(CLI::App& app, Command* chosen);
void add_tag_command(CLI::App& app, Command* chosen);
void add_rebuild_command(CLI::App& app, Command* chosen);
void add_status_command(CLI::App& app, Command* chosen);
void add_top_command(CLI::App& app, Command* chosen);
void add_sim_command(CLI::App& app, Command* chosen);
void add_plan_command(CLI::App& app, Command* chosen);
void add_fuzz_command(CLI::App& app, Command* chosen);
void add_replay_command(CLI::App& app, Command* chosen);
// `shoal chaos` passes all its arguments on.
void add_chaos_command(CLI::App& app, Command* chosen);
void add_settings_command(CLI::App& app, Command* chosen);
void add_doctor_command(CLI::App& app, Command* chosen);
void add_calibrate_command(CLI::App& app, Command* chosen);

// Prints one line to stderr, "shoal: not found: ...". Returns kExitUnusable.
int report_unusable(const Status& status);

}  // namespace shoal::cli
