// The options --step and --attempt of commands on attempts of a root.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "admin/root_reader.h"

namespace shoal::cli {

// A step that is neither a number nor a tag is a command-line error.
CLI::Option* add_choice_options(CLI::App& command, admin::AttemptChoice* choice,
                                const std::string& step_help);

}  // namespace shoal::cli
