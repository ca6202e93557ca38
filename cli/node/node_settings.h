// Settings as flags of `shoal node`, `launch` and `gc`, and their conversion into the options of a node.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "actors/node/node.h"
#include "local/settings/settings.h"
#include "shoal/status.h"

namespace shoal::cli {

// Adds flags for the settings of nodes, or of trainers.
void add_settings(CLI::App& command, local::SettingOf of, local::Settings* settings);
// Adds --keep-last, --keep-every and --keep-for only, with `prefix` before "keep". The command reads them
// from its flags alone.
void add_retention_settings(CLI::App& command, local::Settings* settings, const std::string& prefix = "");
// Adds --lease-ttl-ms and --abandoned-after-ms only. Both must equal those of the nodes.
void add_waiting_settings(CLI::App& command, local::Settings* settings);

// Fills in settings that have no flag from variables, from the file in the working folder and from that of
// the root. Code::invalid_argument.
Status complete_settings(const std::string& root, local::Settings* settings);

Status apply_settings(const local::Settings& settings, actors::NodeOptions* node);
storage::RetentionPolicy retention_of(const local::Settings& settings);
// The arguments that give a node exactly these settings.
std::vector<std::string> node_arguments_of(const local::Settings& settings);

}  // namespace shoal::cli
