// Settings as flags of `shoal node`, `launch` and `gc`, and as what a node is made of.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "actors/node/node.h"
#include "local/settings/settings.h"
#include "shoal/status.h"

namespace shoal::cli {

// The flags of those settings by which a node, or a trainer, acts.
void add_settings(CLI::App& command, local::SettingOf of, local::Settings* settings);
// --keep-last, --keep-every and --keep-for alone.
void add_retention_settings(CLI::App& command, local::Settings* settings);

// What the flags leave open: variables, the working folder's file, the root's. Code::invalid_argument.
Status complete_settings(const std::string& root, local::Settings* settings);

Status apply_settings(const local::Settings& settings, actors::NodeOptions* node);
storage::RetentionPolicy retention_of(const local::Settings& settings);
// Arguments that make a node have all that was said for it, and nothing else.
std::vector<std::string> node_arguments_of(const local::Settings& settings);

}  // namespace shoal::cli
