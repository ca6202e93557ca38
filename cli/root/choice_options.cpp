#include "cli/root/choice_options.h"

#include "cli/not_empty.h"

namespace shoal::cli {

CLI::Option* add_choice_options(CLI::App& command, admin::AttemptChoice* choice,
                                const std::string& step_help) {
  auto take_step = [choice](const std::string& text) {
    if (Status taken = admin::choose_step(text, choice); !taken.ok()) {
      throw CLI::ValidationError("--step", std::string(taken.message()));
    }
  };
  CLI::Option* step = command.add_option_function<std::string>("--step", take_step, step_help + "; or a tag");
  step->type_name("N");
  command
      .add_option("--attempt", choice->attempt,
                  "Only this attempt at the step, such as g3a1 (generation 3, attempt 1 of 'shoal ls')")
      ->check(not_empty, "");
  return step;
}

}  // namespace shoal::cli
