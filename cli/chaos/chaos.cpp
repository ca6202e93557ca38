// shoal chaos: starts the program of chaos/, which is Python, with this program and its own trainer.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/installed_files.h"

namespace shoal::cli {

namespace {

int run_chaos(const std::vector<std::string>& arguments) {
  const std::string program = own_program(), script = shared_folder() + "/chaos";
  const std::string trainer = helper_folder() + "/sharded_trainer";
  if (std::error_code error; !std::filesystem::exists(script, error)) {
    return report_unusable(Status(Code::not_found, fmt::format("{}: this installation lacks it", script)));
  }
  std::vector<std::string> command = {"python3", "-B", script, "--program", program, "--trainer", trainer};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  return report_unusable(
      Status(Code::unavailable, fmt::format("python3, which shoal chaos needs: {}", std::strerror(error))));
}

}  // namespace

void add_chaos_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("chaos", "Attack real jobs on this machine, and audit what they saved");
  command->prefix_command();
  command->set_help_flag();  // the program of chaos/ has it
  command->callback([command, chosen] {
    std::vector<std::string> arguments = command->remaining();
    *chosen = [arguments] { return run_chaos(arguments); };
  });
}

}  // namespace shoal::cli
