// shoal doctor as a user runs it, also where the environment is hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorCommand : public ::testing::Test {
 protected:
  DoctorCommand() {
    fs::create_directory(root_);
    fs::create_directory(runtime_);
    fs::permissions(folder_.path(), fs::perms::all);
    fs::permissions(runtime_, fs::perms::owner_all);
    set("SHOAL_RUNTIME_DIR", runtime_);
  }
  void set(const std::string& name, const std::string& value) {
    options_.environment.emplace_back(name, value);
  }
  ProcessEnd doctor(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "doctor");
    return run_shoal(arguments, options_);
  }
  // The line of a check.
  static std::string line_of(const ProcessEnd& end, const std::string& check) {
    std::istringstream lines(end.out);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string outcome, name;
      if (words >> outcome >> name && name == check) return line;
    }
    return "no line of " + check + " in:\n" + end.out + end.err;
  }

  TemporaryFolder folder_;
  const std::string root_ = folder_.path() + "/root", runtime_ = folder_.path() + "/runtime";
  ProcessOptions options_;
};

TEST_F(DoctorCommand, FindsASoundRootFineAndLeavesNothing) {
  const ProcessEnd end = doctor({root_});
  EXPECT_EQ(end.status, 0) << end.out << end.err;
  EXPECT_THAT(line_of(end, "root"), HasSubstr("ok       root"));
  EXPECT_THAT(line_of(end, "creation"), HasSubstr("each name had one creator"));
  EXPECT_THAT(end.out, HasSubstr("\nerrors: 0, "));
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_TRUE(fs::is_empty(runtime_));
}

TEST_F(DoctorCommand, PrintsOneJsonObject) {
  const ProcessEnd end = doctor({root_, "--json"});
  const json report = json::parse(end.out);
  EXPECT_EQ(report["root"], root_);
  EXPECT_NE(report["outcome"], "error");
  EXPECT_EQ(report["checks"][0]["check"], "settings");
  EXPECT_EQ(report["checks"][0]["outcome"], "ok");
  EXPECT_FALSE(report["checks"][0].contains("remedy"));
}

TEST_F(DoctorCommand, FindsThatTheRootIsReadOnly) {
  fs::permissions(
      root_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  options_.unprivileged = true;
  options_.environment.clear();
  set("SHOAL_RUNTIME_DIR", folder_.path() + "/of-nobody");
  const ProcessEnd end = doctor({root_});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(line_of(end, "root"), HasSubstr("Permission denied"));
  EXPECT_FALSE(fs::exists(folder_.path() + "/of-nobody"));
  fs::permissions(root_, fs::perms::owner_all);
}

TEST_F(DoctorCommand, FindsThatOthersMayReadTheToken) {
  const std::string token = folder_.path() + "/token";
  std::ofstream(token) << "0123456789abcdef0123456789abcdef";
  ASSERT_EQ(::chmod(token.c_str(), 0644), 0);
  const ProcessEnd end = doctor({root_, "--token-file", token});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(line_of(end, "token"), HasSubstr("run chmod 600"));
}

TEST_F(DoctorCommand, FindsThatAVariableIsMisspelt) {
  set("SHOAL_KEEP_LATS", "5");
  const ProcessEnd end = doctor({root_});
  EXPECT_EQ(end.status, 0) << end.out;
  EXPECT_THAT(line_of(end, "settings"),
              HasSubstr("SHOAL_KEEP_LATS is not a setting and has no effect; did you "
                        "mean SHOAL_KEEP_LAST?"));
}

TEST_F(DoctorCommand, FindsThatTooFewDescriptorsAreAllowed) {
  const ProcessEnd end = run_process(
      {"/usr/bin/prlimit", "--nofile=200:200", SHOAL_PROGRAM, "doctor", root_, "--hosts", "64"}, options_);
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(line_of(end, "descriptors"), HasSubstr("may have only 200"));
}

TEST_F(DoctorCommand, FindsThatOthersMayWriteToTheRuntimeFolder) {
  fs::permissions(runtime_, fs::perms::all);
  const ProcessEnd end = doctor({root_});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(line_of(end, "runtime-folder"), HasSubstr("other users may write"));
}

TEST_F(DoctorCommand, WritesTheHostBeforeEachLineUnderALauncherOfSeveralHosts) {
  set("SHOAL_JOB_ID", "check");
  set("MASTER_ADDR", "127.0.0.1");
  set("RANK", "0");
  set("WORLD_SIZE", "2");
  set("LOCAL_WORLD_SIZE", "1");
  set("LOCAL_RANK", "0");
  ProcessEnd end = doctor({root_});
  EXPECT_EQ(end.status, 1);  // there is no token, and the address is that of the loopback
  EXPECT_THAT(end.out, HasSubstr(": error    token"));
  EXPECT_THAT(end.out, HasSubstr(": error    address"));
  set("LOCAL_RANK", "1");
  end = doctor({root_});
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.out, "");
}

TEST_F(DoctorCommand, RejectsWrongArguments) {
  EXPECT_EQ(doctor({root_, "--hosts", "0"}).status, 2);
  EXPECT_EQ(doctor({root_, "--staged", "much"}).status, 2);
  EXPECT_EQ(doctor({root_, "--no-such-option"}).status, 2);
  const ProcessEnd empty = doctor({""});  // regression: it found no error, because it checked no root
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.err, HasSubstr("ROOT: it is empty"));
  EXPECT_THAT(doctor({"--help"}).out, HasSubstr("srun --ntasks-per-node=1 shoal doctor"));
}

}  // namespace
}  // namespace shoal::cli
