// Settings (local/settings/settings.h) as fields of CheckpointerOptions.
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

// The fields by which this trainer acts, as variables and files say them; others stay.
void apply_trainer_settings(const local::Settings& settings, CheckpointerOptions* options);
// What options.node says, then variables, then files, checked and put into options.node; and what other
// options follow from settings where they are left open. Code::invalid_argument names the field, variable or
// line.
Status settle_settings(CheckpointerOptions& options);
// Arguments of `shoal node`.
std::vector<std::string> node_arguments(const NodeSettings& settings);

}  // namespace shoal::client
