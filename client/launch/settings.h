// Copies settings (local/settings/settings.h) to the fields of CheckpointerOptions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "local/settings/settings.h"
#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

struct NodeField {
  const char* setting;
  std::variant<std::optional<uint64_t> NodeSettings::*, std::optional<std::string> NodeSettings::*> member;
};
std::span<const NodeField> node_fields();

// Sets the fields of the trainer's settings that variables or files give; leaves the others unchanged.
void apply_trainer_settings(const local::Settings& settings, CheckpointerOptions* options);
// Completes options.node: its own values, then variables, then files, all checked. Also sets unset options
// that follow from settings. Code::invalid_argument names the field, variable or line.
Status settle_settings(CheckpointerOptions& options);
// The arguments of `shoal node` for these settings.
std::vector<std::string> node_arguments(const NodeSettings& settings);

}  // namespace shoal::client
