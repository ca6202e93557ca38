// Settings as flags of `shoal node`, `launch` and `gc`, and as what a node is made of.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "actors/node/node.h"
#include "local/settings/settings.h"
#include "shoal/status.h"

namespace shoal {

// The flags of those settings by which a node, or a trainer, acts.
void add_settings(CLI::App& command, SettingOf of, Settings* settings);
// --keep-last, --keep-every and --keep-for alone.
void add_retention_settings(CLI::App& command, Settings* settings);

// What the flags leave open: variables, the working folder's file, the root's. Code::invalid_argument.
Status complete_settings(const std::string& root, Settings* settings);

Status apply_settings(const Settings& settings, NodeOptions* node);
RetentionPolicy retention_of(const Settings& settings);
// Arguments that make a node have all that was said for it, and nothing else.
std::vector<std::string> node_arguments_of(const Settings& settings);

}  // namespace shoal
