// The subcommands of `shoal`. Each adds itself to the parser; what it is to do is run after parsing.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::cli {

// Exit statuses. Of `launch`: the worst of its trainers', or 1 where the node failed, 2 for bad arguments.
inline constexpr int kExitOk = 0;
inline constexpr int kExitDamaged =
    1;  // verify, ls, show, status: what may be a checkpoint does not read back
inline constexpr int kExitUnusable = 2;  // bad arguments, no such root or step, a newer format, no permission
inline constexpr int kExitNoNode = 1;    // status, top: no node runs here
inline constexpr int kExitFailed = 1;    // node: it could not run, or not end cleanly
inline constexpr int kExitSuperseded =
    3;  // node: another job has taken the root, so that to start it again is in vain
inline constexpr int kExitSaveFailed =
    4;  // launch: the trainers ended well, but a save failed that none was told of, or too many in a row

using Command = std::function<int()>;  // returns the exit status

void add_node_command(CLI::App& app, Command* chosen);
// `command_line`: what follows the first "--" of the arguments.
void add_launch_command(CLI::App& app, const std::vector<std::string>& command_line, Command* chosen);
void add_ls_command(CLI::App& app, Command* chosen);
void add_show_command(CLI::App& app, Command* chosen);
void add_verify_command(CLI::App& app, Command* chosen);
void add_restore_id_command(CLI::App& app, Command* chosen);
void add_rm_command(CLI::App& app, Command* chosen);
void add_gc_command(CLI::App& app, Command* chosen);
void add_pin_command(CLI::App& app, Command* chosen);
void add_tag_command(CLI::App& app, Command* chosen);
void add_rebuild_command(CLI::App& app, Command* chosen);
void add_status_command(CLI::App& app, Command* chosen);
void add_top_command(CLI::App& app, Command* chosen);
void add_sim_command(CLI::App& app, Command* chosen);
void add_replay_command(CLI::App& app, Command* chosen);
void add_settings_command(CLI::App& app, Command* chosen);
void add_calibrate_command(CLI::App& app, Command* chosen);

// "shoal: not found: ...", one line on stderr. Returns kExitUnusable.
int report_unusable(const Status& status);

}  // namespace shoal::cli
