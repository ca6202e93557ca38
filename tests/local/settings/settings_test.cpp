#include "local/settings/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/local/settings/sample_setting.h"

namespace shoal::local {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string sample(const Setting& setting) {
  return setting.kind == SettingKind::duration ? "36h" : sample_of(setting);
}

class SettingsFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/shoal_settings_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    before_ = fs::current_path();
    fs::create_directory(root());
    fs::create_directory(work());
    fs::current_path(work());
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }
  std::string root() const { return folder_ + "/root"; }
  std::string work() const { return folder_ + "/work"; }
  static std::string write(const std::string& where, const std::string& text) {
    const std::string file = where + "/shoal.toml";
    std::ofstream(file) << text;
    return file;
  }

 private:
  std::string folder_;
  fs::path before_;
};

TEST(SettingTable, NamesAreDistinctAndEveryDefaultIsAValue) {
  std::set<std::string> variables, fields;
  for (const Setting& setting : all_settings()) {
    EXPECT_TRUE(variables.insert(setting.variable()).second) << setting.name;
    EXPECT_TRUE(fields.insert(setting.field()).second) << setting.name;
    EXPECT_STRNE(setting.help, "") << setting.name;
    Settings settings;
    if (*setting.initially == '\0') continue;
    EXPECT_TRUE(settings.set(setting.name, setting.initially, "test").ok()) << setting.name;
  }
  EXPECT_EQ(find_setting("keep-last")->flag(), "--keep-last");
  EXPECT_EQ(find_setting("keep-last")->variable(), "SHOAL_KEEP_LAST");
  EXPECT_EQ(find_setting("load-memory")->field(), "node.load_memory_bytes");
  EXPECT_EQ(find_setting("save-mode")->field(), "save.mode");
  EXPECT_EQ(find_setting("attach-timeout-ms")->field(), "attach_timeout");
}

TEST(SettingsTest, AValueOutOfBoundsOrOfAnotherKindIsRefusedWithItsSource) {
  struct Bad {
    const char *name, *text;
  };
  for (const Bad& bad :
       {Bad{"keep-last", "0"}, Bad{"keep-last", "-1"}, Bad{"keep-last", "1x"}, Bad{"keep-last", ""},
        Bad{"keep-for", "7y"}, Bad{"load-memory", "1 MiB"}, Bad{"load-memory", "much"},
        Bad{"transport", "udp"}, Bad{"transport", "au"}, Bad{"ports", "7100"}, Bad{"ports", "0-1"},
        Bad{"ports", "2-1"}, Bad{"ports", "1-65536"}, Bad{"metrics", "9100"}, Bad{"metrics", "here:99999"},
        Bad{"interface", "e\nth"}, Bad{"attempt-deadline-ms", "86400001"}, Bad{"host-lost-ms", "2499"},
        Bad{"keep-lats", "1"}}) {
    Settings settings;
    const Status status = settings.set(bad.name, bad.text, "where it stands");
    EXPECT_EQ(status.code(), Code::invalid_argument) << bad.name << " " << bad.text;
    EXPECT_THAT(status.message(), HasSubstr("where it stands"));
    EXPECT_THAT(status.message(), HasSubstr(bad.name));
    EXPECT_EQ(settings.find(bad.name), nullptr);
  }
  Settings settings;
  EXPECT_THAT(settings.set("keep_last", "1", "f:1").message(), HasSubstr("did you mean 'keep-last'?"));
  EXPECT_EQ(settings.set("interface", std::string(kMaxSettingBytes + 1, 'x'), "f").code(),
            Code::invalid_argument);
}

TEST(SettingsTest, DeadlinesThatContradictEachOtherAreRefusedWithBothSources) {
  Settings settings;
  ASSERT_TRUE(settings.check().ok()) << "the defaults";
  ASSERT_TRUE(settings.set("attempt-deadline-ms", "400000", "SHOAL_ATTEMPT_DEADLINE_MS").ok());
  const std::string why = settings.check().message();
  EXPECT_THAT(why, HasSubstr("node-deadline-ms 300000 (the default) is too short for"));
  EXPECT_THAT(why, HasSubstr("attempt-deadline-ms 400000 (SHOAL_ATTEMPT_DEADLINE_MS)"));
  Settings leases;
  ASSERT_TRUE(leases.set("lease-ttl-ms", "9999", "--lease-ttl-ms").ok());
  EXPECT_THAT(leases.check().message(), HasSubstr("is too short for lease-renew-ms"));
  Settings lost;
  ASSERT_TRUE(lost.set("attempt-deadline-ms", "10000", "f").ok());
  EXPECT_TRUE(lost.check().ok()) << "a default that has no effect is no mistake";
  ASSERT_TRUE(lost.set("host-lost-ms", "10000", "f").ok());
  EXPECT_THAT(lost.check().message(), HasSubstr("host-lost-ms 10000 (f) has no effect, because"));
}

TEST_F(SettingsFiles, EverySettingIsTheSameByFlagVariableAndFile) {
  for (const Setting& setting : all_settings()) {
    const std::string value = sample(setting);
    Settings flag, variable, file;
    ASSERT_TRUE(flag.set(setting.name, value, setting.flag()).ok()) << setting.name << " " << value;
    ASSERT_TRUE(variable
                    .add_variables([&](const char* name) {
                      return name == setting.variable() ? std::optional(value) : std::nullopt;
                    })
                    .ok());
    const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
    const std::string quote = is_number ? "" : "\"";
    write(work(), std::string(setting.name) + " = " + quote + value + quote + "\n");
    const Status read = file.add_files(root());
    ASSERT_TRUE(read.ok()) << read.to_string();
    for (const Settings* each : {&flag, &variable, &file}) {
      ASSERT_EQ(each->values().size(), 1u) << setting.name;
      ASSERT_NE(each->find(setting.name), nullptr);
      EXPECT_EQ(each->find(setting.name)->text, value);
      EXPECT_EQ(each->find(setting.name)->number, flag.find(setting.name)->number);
    }
    EXPECT_EQ(variable.find(setting.name)->source, setting.variable());
    EXPECT_EQ(file.find(setting.name)->source, fs::current_path().string() + "/shoal.toml:1");
  }
}

TEST_F(SettingsFiles, AFlagCountsBeforeAVariableBeforeTheWorkingFolderBeforeTheRoot) {
  write(root(), "keep-last = 4\nkeep-every = 40\nkeep-for = \"40h\"\nload-memory = \"40 MiB\"\n");
  write(work(), "keep-last = 3\nkeep-every = 30\nkeep-for = \"30h\"\n");
  Settings settings;
  ASSERT_TRUE(settings.set("keep-last", "1", "--keep-last").ok());
  ASSERT_TRUE(settings
                  .add_variables([](const char* name) -> std::optional<std::string> {
                    if (std::string_view(name) == "SHOAL_KEEP_LAST") return "2";
                    if (std::string_view(name) == "SHOAL_KEEP_EVERY") return "20";
                    if (std::string_view(name) == "SHOAL_KEEP_FOR") return "";
                    return std::nullopt;
                  })
                  .ok());
  ASSERT_TRUE(settings.add_files(root()).ok());
  EXPECT_EQ(settings.number_of("keep-last"), 1u);
  EXPECT_EQ(settings.number_of("keep-every"), 20u);
  EXPECT_EQ(settings.number_of("keep-for"), 30u * 3600) << "an empty variable says nothing";
  EXPECT_EQ(settings.number_of("load-memory"), uint64_t{40} << 20);
  EXPECT_EQ(settings.number_of("lease-ttl-ms"), 60'000u) << "the default";
  EXPECT_THAT(settings.describe(), HasSubstr("keep-every 20 (SHOAL_KEEP_EVERY)"));
  EXPECT_THAT(settings.describe(), HasSubstr("load-memory 40 MiB (" + root() + "/shoal.toml:4)"));
}

TEST_F(SettingsFiles, AMistakeInAFileIsNamedWithItsLine) {
  struct Bad {
    const char *text, *place;
  };
  for (const Bad& bad :
       {Bad{"keep-last = 1\nkeep-lats = 2\n", "shoal.toml:2: 'keep-lats' is not a setting"},
        Bad{"\nkeep-last = 0\n", "shoal.toml:2: keep-last: '0'"}, Bad{"keep-last = 1.5\n", "shoal.toml:1:"},
        Bad{"keep-last = true\n", "shoal.toml:1:"}, Bad{"keep-last = \n", "shoal.toml:1:"},
        Bad{"keep-last = 1\nkeep-last = 2\n", "shoal.toml:2:"},
        Bad{"[node]\nkeep-last = 1\n", "shoal.toml:1: [node]"}, Bad{"keep-last = [1]\n", "shoal.toml:1:"}}) {
    write(root(), bad.text);
    Settings settings;
    ASSERT_TRUE(settings.set("keep-last", "5", "--keep-last").ok());
    const Status status = settings.add_files(root());
    EXPECT_EQ(status.code(), Code::invalid_argument) << bad.text;
    EXPECT_THAT(status.message(), HasSubstr(root() + "/" + bad.place));
  }
  write(root(), std::string(kMaxSettingsFileBytes + 1, '#'));
  EXPECT_EQ(Settings().add_files(root()).code(), Code::invalid_argument);
  fs::remove(root() + "/shoal.toml");
  fs::create_directory(root() + "/shoal.toml");
  EXPECT_EQ(Settings().add_files(root()).code(), Code::io);
}

// Regression: every command, and every trainer, waited for a writer for ever.
TEST_F(SettingsFiles, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((root() + "/shoal.toml").c_str(), 0600), 0);
  EXPECT_EQ(Settings().add_file(root() + "/shoal.toml", false).code(), Code::io);
}

TEST_F(SettingsFiles, WhoMayWriteToTheRootChoosesNoFileAndNoPortOfAnother) {
  for (const Setting& setting : all_settings()) {
    if (!setting.is_environment_only()) continue;
    const std::string line = std::string(setting.name) + " = \"" + sample(setting) + "\"\n";
    write(root(), line);
    Settings settings;
    EXPECT_THAT(settings.add_files(root()).message(), HasSubstr(setting.variable())) << setting.name;
    fs::current_path(root());
    EXPECT_FALSE(Settings().add_files(root()).ok()) << "the working folder is the root";
    fs::current_path(work());
    EXPECT_FALSE(Settings().add_file(root() + "/shoal.toml", false).ok());
    fs::remove(root() + "/shoal.toml");
  }
  if (::geteuid() != 0) return;  // only root can give a file away
  const std::string file = write(work(), "stats-file = \"/etc/motd\"\n");
  EXPECT_TRUE(Settings().add_files(root()).ok());
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_THAT(Settings().add_files(root()).message(), HasSubstr("stats-file")) << "another user's file";
}

TEST_F(SettingsFiles, NoFileIsNoSettingAndARootThatIsNotThereNeither) {
  Settings settings;
  EXPECT_TRUE(settings.add_files(root()).ok());
  EXPECT_TRUE(settings.add_files(root() + "/missing").ok());
  EXPECT_TRUE(settings.add_files("").ok());
  EXPECT_EQ(settings.describe(), "");
}

TEST(SettingsTest, AVariableThatMeansNothingIsNamed) {
  ::setenv("SHOAL_KEEP_LATS", "3", 1);
  ::setenv("SHOAL_TEST_OF_SETTINGS", "3", 1);
  ::setenv("SHOAL_KEEP_LAST", "3", 1);
  const std::vector<std::string> unknown = unknown_variables();
  const std::string line = settings_line(Settings());
  for (const char* name : {"SHOAL_KEEP_LATS", "SHOAL_TEST_OF_SETTINGS", "SHOAL_KEEP_LAST"}) ::unsetenv(name);
  EXPECT_THAT(unknown, Contains("SHOAL_KEEP_LATS"));
  EXPECT_THAT(unknown, Not(Contains("SHOAL_TEST_OF_SETTINGS")));
  EXPECT_THAT(unknown, Not(Contains("SHOAL_KEEP_LAST")));
  EXPECT_THAT(line, HasSubstr("none; SHOAL_KEEP_LATS is not a setting"));
}

}  // namespace
}  // namespace shoal::local
