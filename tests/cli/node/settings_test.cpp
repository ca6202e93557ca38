// Settings as a user gives them: flags, variables, shoal.toml in the working folder and in the root.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "actors/node/clients/staging_budget.h"
#include "actors/node/links/relay_tree.h"
#include "cli/node/node_settings.h"
#include "local/messages/messages.h"
#include "tests/cli/process.h"
#include "tests/cli/text_of_file.h"
#include "tests/local/settings/sample_setting.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// All that settings change of a node.
std::string node_fields_of(const actors::NodeOptions& o) {
  const actors::Timeouts& t = o.timeouts;
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} {} {} {} {}",
                     transport::to_string(o.network.transport), o.network.interface,
                     transport::to_string(o.network.ports), o.max_direct_nodes, o.load_memory_bytes,
                     o.staging_memory_bytes, o.catalog_dir, o.stats_file, o.protocol_log, o.metrics,
                     o.status_page, o.retention.keep_last, o.retention.keep_every, o.retention.keep_for_s,
                     t.report_partial_after_ms, t.attempt_deadline_ms, t.node_deadline_ms,
                     t.drain_patience_ms, t.host_lost_ms, t.find_coordinator_ms, t.epoch_check_ms,
                     t.abandoned_after_ms, t.lease_renew_ms, t.lease_ttl_ms);
}

TEST(NodeSettings, EachChangesWhatANodeIsMadeOfAndItsDefaultDoesNot) {
  const std::string plain = node_fields_of(actors::NodeOptions());
  std::set<std::string> results{plain};
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of != local::SettingOf::node) continue;
    local::Settings settings, defaults;
    ASSERT_TRUE(settings.set(setting.name, local::sample_of(setting), "test").ok()) << setting.name;
    actors::NodeOptions changed, same;
    ASSERT_TRUE(apply_settings(settings, &changed).ok()) << setting.name;
    EXPECT_TRUE(results.insert(node_fields_of(changed)).second) << setting.name << ": it changes nothing";
    if (*setting.initially == '\0') continue;
    ASSERT_TRUE(defaults.set(setting.name, setting.initially, "test").ok());
    ASSERT_TRUE(apply_settings(defaults, &same).ok());
    EXPECT_EQ(node_fields_of(same), plain) << setting.name << ": the table's default is not the node's";
  }
  EXPECT_EQ(local::find_setting("max-direct-nodes")->most, actors::kMaxDirectNodes);
  EXPECT_EQ(local::find_setting("load-memory")->least, actors::kMinLoadMemoryBytes);
  EXPECT_EQ(local::find_setting("staging-memory")->least, actors::kLeastStagingBytes);
  EXPECT_EQ(local::find_setting("staging-memory")->most, local::kMaxSlabBytes);
}

actors::NodeOptions parse(std::vector<std::string> arguments) {
  local::Settings settings;
  std::string message;
  CLI::App app;
  app.add_option("--settings-sources", message);
  add_settings(app, local::SettingOf::node, &settings);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  app.parse(arguments);
  actors::NodeOptions out;
  EXPECT_TRUE(apply_settings(settings, &out).ok());
  return out;
}

// `shoal launch` passes them on to its node.
TEST(NodeSettings, MeanTheSameToANodeThatTheyArePassedOnTo) {
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of != local::SettingOf::node) continue;
    local::Settings given;
    ASSERT_TRUE(given.set(setting.name, local::sample_of(setting), "test").ok());
    EXPECT_EQ(node_fields_of(parse(node_arguments_of(given))),
              node_fields_of(parse({setting.flag(), local::sample_of(setting)})))
        << setting.name;
  }
  EXPECT_EQ(node_arguments_of(local::Settings()).size(), 2u) << "what is not given is not passed on";
  EXPECT_THROW(parse({"--ports", "7100"}), CLI::ValidationError);
  EXPECT_THROW(parse({"--transport", "udp"}), CLI::ValidationError);
}

class SettingsCommand : public ::testing::Test {
 protected:
  SettingsCommand() {
    fs::create_directory(root());
    fs::create_directory(work());
  }
  std::string root() const { return folder_.path() + "/root"; }
  std::string work() const { return folder_.path() + "/work"; }
  static void write(const std::string& folder, const std::string& text) {
    std::ofstream(folder + "/shoal.toml") << text;
  }
  ProcessOptions options(std::vector<std::pair<std::string, std::string>> variables = {}) const {
    variables.emplace_back("SHOAL_RUNTIME_DIR", folder_.path() + "/run");
    return {variables, false};
  }
  // Runs `shoal ARGUMENTS` in the working folder.
  ProcessEnd shoal(const std::vector<std::string>& arguments,
                   std::vector<std::pair<std::string, std::string>> variables = {}) const {
    std::vector<std::string> command{"/bin/sh", "-c", "cd " + work() + " && exec \"$@\"", "sh",
                                     SHOAL_PROGRAM};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_process(command, options(std::move(variables)));
  }
  static json shown(const ProcessEnd& end, const std::string& name) {
    EXPECT_EQ(end.status, 0) << end.err;
    return end.status == 0 ? json::parse(end.out)["settings"][name] : json();
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(SettingsCommand, ShowsEachSettingAndWhereItWasSaid) {
  write(root(), "keep-last = 4\nkeep-every = 40\nlease-ttl-ms = 40000\nnode-silence-ms = 4000\n");
  write(work(), "keep-last = 3\nkeep-every = 30\nlease-ttl-ms = 30000\n");
  const ProcessEnd end = shoal({"settings", root(), "--json", "--keep-last", "1"},
                               {{"SHOAL_KEEP_LAST", "2"}, {"SHOAL_KEEP_EVERY", "20"}});
  EXPECT_EQ(shown(end, "keep-last")["value"], "1");
  EXPECT_EQ(shown(end, "keep-last")["source"], "--keep-last");
  EXPECT_EQ(shown(end, "keep-every")["value"], "20");
  EXPECT_EQ(shown(end, "keep-every")["source"], "SHOAL_KEEP_EVERY");
  EXPECT_EQ(shown(end, "lease-ttl-ms")["value"], "30000");
  EXPECT_EQ(shown(end, "lease-ttl-ms")["source"], fs::canonical(work()).string() + "/shoal.toml:3");
  EXPECT_EQ(shown(end, "node-silence-ms")["source"], root() + "/shoal.toml:4");
  EXPECT_EQ(shown(end, "transport")["value"], "auto");
  EXPECT_EQ(shown(end, "transport")["source"], "default");
  const ProcessEnd table = shoal({"settings"}, {{"SHOAL_ROOT", root()}, {"SHOAL_KEEP_LATS", "3"}});
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("node-silence-ms"), HasSubstr(root() + "/shoal.toml:4")));
  EXPECT_THAT(table.err, HasSubstr("SHOAL_KEEP_LATS is not a setting"));
}

TEST_F(SettingsCommand, EveryRowIsAFlagAndAVariable) {
  for (const local::Setting& setting : local::all_settings()) {
    const std::string value = local::sample_of(setting);
    // Long ones if a deadline must stay above another one.
    const bool needs_others =
        setting.name == std::string("lease-ttl-ms") || setting.name == std::string("node-deadline-ms");
    const std::string message = needs_others ? "400000" : value;
    const json flag = shown(shoal({"settings", "--json", setting.flag(), message}), setting.name);
    EXPECT_EQ(flag["value"], message) << setting.name;
    EXPECT_EQ(flag["source"], setting.flag());
    const json variable = shown(shoal({"settings", "--json"}, {{setting.variable(), message}}), setting.name);
    EXPECT_EQ(variable["value"], message) << setting.name;
    EXPECT_EQ(variable["source"], setting.variable());
  }
}

TEST_F(SettingsCommand, AWrongVariableOrLineIsRefusedByEachCommandThatReadsIt) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"settings", root()},
                                                  {"node", "--root", root(), "--job-id", "j"},
                                                  {"launch", "--root", root(), "--", "/bin/echo", "never"}}) {
    ProcessEnd end = shoal(command, {{"SHOAL_KEEP_LAST", "0"}});
    EXPECT_EQ(end.status, 2) << command[0];
    EXPECT_THAT(end.err, HasSubstr("SHOAL_KEEP_LAST: '0'")) << command[0];
    write(root(), "\nkeep-lats = 1\n");
    end = shoal(command);
    EXPECT_EQ(end.status, 2) << command[0];
    EXPECT_THAT(end.err, HasSubstr(root() + "/shoal.toml:2: 'keep-lats' is not a setting"));
    EXPECT_THAT(end.out, Not(HasSubstr("never")));
    fs::remove(root() + "/shoal.toml");
  }
}

TEST_F(SettingsCommand, ANodeThatLaunchStartsLogsWhatWasSaidAndTrainersGetTheirs) {
  write(root(), "keep-last = 4\nload-threads = 2\nfind-coordinator-ms = 40000\n");
  const ProcessEnd end =
      shoal({"launch", "--root", root(), "--create", "--max-in-flight", "3", "--", "/usr/bin/env"},
            {{"SHOAL_KEEP_EVERY", "20"}});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("settings: "), HasSubstr("keep-last 4 (" + root() + "/shoal.toml:1)"),
                             HasSubstr("keep-every 20 (SHOAL_KEEP_EVERY)"),
                             HasSubstr("max-in-flight 3 (--max-in-flight)")));
  EXPECT_THAT(end.out, AllOf(HasSubstr("SHOAL_LOAD_THREADS=2\n"), HasSubstr("SHOAL_MAX_IN_FLIGHT=3\n"),
                             HasSubstr("SHOAL_FIND_COORDINATOR_MS=40000\n")));
  EXPECT_THAT(end.out, Not(HasSubstr("SHOAL_KEEP_LAST="))) << "trainers start no node here";
}

TEST_F(SettingsCommand, GcDeletesNothingByAVariableOrAFile) {
  fs::remove_all(root());
  fs::copy(SHOAL_GOLDEN_ROOT, root(), fs::copy_options::recursive);
  fs::remove(root() + "/generations/2.load-0");
  write(root(), "keep-last = 1\n");
  const ProcessEnd end = shoal({"gc", root(), "--dry-run"}, {{"SHOAL_KEEP_LAST", "1"}});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, Not(HasSubstr("keep-last 1")));
  EXPECT_THAT(shoal({"gc", root(), "--dry-run", "--keep-last", "1"}).out, HasSubstr("keep-last 1"));
}

TEST_F(SettingsCommand, ThePageOfTheDocumentationIsWhatTheProgramWrites) {
  EXPECT_EQ(text_of_file(SHOAL_SOURCE_FOLDER "/docs/reference/settings.md"),
            shoal({"settings", "--markdown"}).out)
      << "write it again: shoal settings --markdown > docs/reference/settings.md";
}

std::set<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) out.insert((*at)[1]);
  return out;
}

// Flags that are not in the table identify the process in the job, or select the action of the command.
TEST_F(SettingsCommand, EveryFlagOfNodeAndLaunchIsASettingOrOnThisList) {
  const std::set<std::string> others = {
      "--help",           "--root",          "--job-id",          "--coordinator",      "--coordinate",
      "--listen",         "--take-over",     "--rejoin",          "--token-file",       "--name",
      "--world-size",     "--ranks",         "--socket",          "--idle-exit",        "--ready-fd",
      "--create-root",    "--create",        "--read-only",       "--nproc-per-node",   "--resume",
      "--nnodes",         "--node-rank",     "--first-rank",      "--master-port",      "--kill-on-failure",
      "--tag-output",     "--drain-to",      "--drain-keep-last", "--drain-keep-every", "--drain-keep-for",
      "--drain-interval", "--drain-patience"};
  for (const char* command : {"node", "launch"}) {
    const std::string help = run_shoal({command, "--help"}).out;
    const std::set<std::string> flags = matches(help, R"((?:^|\n)  (?:-[a-z],)?(--[a-z-]+))");
    EXPECT_GT(flags.size(), 20u);
    for (const std::string& flag : flags) {
      EXPECT_TRUE(others.contains(flag) || local::find_setting(flag.substr(2))) << command << " " << flag;
    }
    for (const local::Setting& setting : local::all_settings()) {
      if (setting.of == local::SettingOf::trainer && command == std::string("node")) continue;
      EXPECT_TRUE(flags.contains(setting.flag())) << command << " lacks " << setting.flag();
    }
  }
}

TEST_F(SettingsCommand, EveryVariableThatTheDocumentationNamesIsKnown) {
  std::set<std::string> known;
  for (const local::Setting& setting : local::all_settings()) known.insert(setting.variable());
  for (const local::OtherVariable& other : local::other_variables()) known.insert(other.name);
  // Variables for testing Shoal, and those of its build.
  for (const char* name : {"SHOAL_REQUIRE_PEERS", "SHOAL_BENCH_BYTES", "SHOAL_CHECK"}) known.insert(name);
  for (const char* file :
       {SHOAL_SOURCE_FOLDER "/CMakeLists.txt", SHOAL_SOURCE_FOLDER "/cmake/ShoalCuda.cmake"}) {
    known.merge(matches(text_of_file(file), R"((?:option|set)\((SHOAL_[A-Z_]+) )"));
  }
  std::vector<std::string> files{SHOAL_SOURCE_FOLDER "/README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(SHOAL_SOURCE_FOLDER "/docs")) {
    if (entry.path().extension() == ".md") files.push_back(entry.path());
  }
  EXPECT_GT(files.size(), 10u);
  for (const std::string& file : files) {
    for (const std::string& name : matches(text_of_file(file), R"((SHOAL_[A-Z_]*[A-Z]))")) {
      EXPECT_TRUE(known.contains(name)) << file << ": " << name;
    }
  }
}

}  // namespace
}  // namespace shoal::cli
