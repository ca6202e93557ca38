// Settings as fields of CheckpointerOptions: each has the same effect as field, variable and file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "client/launch/checkpointer_options.h"
#include "client/launch/settings.h"
#include "client/loading/file_reads.h"
#include "client/session/node_process.h"
#include "local/messages/messages.h"
#include "tests/client/fake_node.h"
#include "tests/local/settings/sample_setting.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// All that settings of trainers change.
std::string trainer_fields(const CheckpointerOptions& o) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", o.max_in_flight,
                     static_cast<int>(o.on_busy), static_cast<int>(o.on_failed), o.max_failed_saves,
                     mode_name(o.save.mode), static_cast<int>(o.save.dedupe), o.save.unit_bytes,
                     static_cast<int>(o.save.replica_check), o.load_window_bytes, o.load_threads,
                     static_cast<int>(o.load_fallback), o.staging_bytes_max, o.attach_timeout.count(),
                     o.node_silence.count());
}

// The arguments of a node that such a trainer starts, without where each was said.
std::vector<std::string> node_arguments_of(CheckpointerOptions options) {
  const Status settled = settle_settings(options);
  EXPECT_TRUE(settled.ok()) << settled.to_string();
  EXPECT_NE(options.node.sources, "");
  options.node_program = "/bin/shoal";
  std::vector<std::string> out = node_command(options).value();
  auto received = std::find(out.begin(), out.end(), "--settings-sources");
  EXPECT_NE(received, out.end());
  if (received != out.end()) out.erase(received, received + 2);
  return out;
}

class ClientSettings : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("SHOAL_ROOT", root_.path().c_str(), 1); }
  void TearDown() override {
    ::unsetenv("SHOAL_ROOT");
    for (const local::Setting& setting : local::all_settings()) ::unsetenv(setting.variable().c_str());
  }
  CheckpointerOptions options() const {
    CheckpointerOptions out;
    out.root = root_.path();
    return out;
  }
  std::string file() const { return root_.path() + "/shoal.toml"; }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  void write(const local::Setting& setting, const std::string& value) const {
    const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
    const std::string quote = is_number ? "" : "\"";
    write(fmt::format("{} = {}{}{}\n", setting.name, quote, value, quote));
  }

  const TemporaryRoot root_;
};

TEST_F(ClientSettings, EverySettingOfANodeIsAFieldAndReachesTheNodeByFieldVariableAndFile) {
  const std::vector<std::string> plain = node_arguments_of(options());
  std::set<std::string> seen;
  for (const NodeField& field : node_fields()) {
    const local::Setting& setting = *local::find_setting(field.setting);
    seen.insert(setting.name);
    const std::string value = local::sample_of(setting);
    std::vector<std::string> expected = plain;
    expected.insert(expected.end() - 1, {setting.flag(), value});

    CheckpointerOptions by_field = options();
    if (auto* number = std::get_if<std::optional<uint64_t> NodeSettings::*>(&field.member)) {
      by_field.node.*(*number) = std::stoull(value);
    } else {
      by_field.node.*std::get<std::optional<std::string> NodeSettings::*>(field.member) = value;
    }
    EXPECT_EQ(node_arguments_of(by_field), expected) << setting.name;
    ::setenv(setting.variable().c_str(), value.c_str(), 1);
    EXPECT_EQ(node_arguments_of(options()), expected) << setting.name;
    ::unsetenv(setting.variable().c_str());
    if (setting.is_environment_only()) continue;  // by the working folder's file: settings_test of local
    write(setting, value);
    EXPECT_EQ(node_arguments_of(options()), expected) << setting.name;
    std::filesystem::remove(file());
  }
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of == local::SettingOf::trainer) continue;
    EXPECT_TRUE(seen.contains(setting.name)) << setting.name << ": no field";
  }
}

TEST_F(ClientSettings, EverySettingOfATrainerIsAFieldThatVariableAndFileSet) {
  const std::string plain = trainer_fields(CheckpointerOptions());
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of != local::SettingOf::trainer) continue;
    const std::string value = local::sample_of(setting);
    ::setenv(setting.variable().c_str(), value.c_str(), 1);
    const std::string by_variable = trainer_fields(CheckpointerOptions::from_environment().value());
    ::unsetenv(setting.variable().c_str());
    write(setting, value);
    const std::string by_file = trainer_fields(CheckpointerOptions::from_environment().value());
    std::filesystem::remove(file());
    EXPECT_NE(by_variable, plain) << setting.name << ": it changes no field";
    EXPECT_EQ(by_variable, by_file) << setting.name;
    if (*setting.initially == '\0') continue;
    ::setenv(setting.variable().c_str(), setting.initially, 1);
    EXPECT_EQ(trainer_fields(CheckpointerOptions::from_environment().value()), plain)
        << setting.name << ": the table's default is not the field's";
    ::unsetenv(setting.variable().c_str());
  }
}

TEST_F(ClientSettings, TheTablesBoundsAreThoseOfTheOptions) {
  EXPECT_EQ(local::find_setting("max-in-flight")->most, local::kMaxSlabsPerClient - 1);
  EXPECT_EQ(local::find_setting("load-threads")->most, kMaxLoadThreads);
  EXPECT_EQ(local::find_setting("load-window-bytes")->least, kMinWindowBytes);
  EXPECT_EQ(local::find_setting("load-window-bytes")->most, local::kMaxSlabBytes);
  for (uint64_t bytes :
       {local::find_setting("save-unit-bytes")->least, local::find_setting("save-unit-bytes")->most}) {
    SaveOptions save;
    save.unit_bytes = bytes;
    EXPECT_TRUE(validate_options(save).ok());
    save.unit_bytes = bytes < (uint64_t{1} << 20) ? bytes - 1 : bytes + 1;
    EXPECT_FALSE(validate_options(save).ok());
  }
}

TEST_F(ClientSettings, AFieldCountsBeforeAVariableBeforeAFileAndTheLineSaysWhere) {
  write("keep-last = 1\nkeep-every = 100\nlease-ttl-ms = 90000\n");
  ::setenv("SHOAL_KEEP_LAST", "2", 1);
  ::setenv("SHOAL_KEEP_EVERY", "200", 1);
  CheckpointerOptions options = this->options();
  options.node.keep_last = 3;
  ASSERT_TRUE(settle_settings(options).ok());
  EXPECT_EQ(options.node.keep_last, 3u);
  EXPECT_EQ(options.node.keep_every, 200u);
  EXPECT_EQ(options.node.lease_ttl_ms, 90'000u);
  EXPECT_EQ(options.node.keep_for_s, std::nullopt);
  EXPECT_THAT(options.node.sources, AllOf(HasSubstr("keep-last 3 (CheckpointerOptions::node.keep_last)"),
                                          HasSubstr("keep-every 200 (SHOAL_KEEP_EVERY)"),
                                          HasSubstr("lease-ttl-ms 90000 (" + file() + ":3)")));
}

TEST_F(ClientSettings, AMistakeEndsOpenAtOnceAndNamesWhereItIs) {
  const auto open_with = [&](auto change) {
    CheckpointerOptions options = this->options();
    change(options);
    const Status status = Checkpointer::open(options).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    return status.message();
  };
  EXPECT_THAT(open_with([](auto& o) { o.node.keep_last = 0; }),
              HasSubstr("CheckpointerOptions::node.keep_last"));
  EXPECT_THAT(open_with([](auto& o) { o.node.transport = "udp"; }), HasSubstr("'udp'"));
  EXPECT_THAT(open_with([](auto& o) { o.node.attempt_deadline_ms = 400'000; }), HasSubstr("too short for"));
  write("keep-lats = 1\n");
  EXPECT_THAT(open_with([](auto&) {}), HasSubstr(file() + ":1: 'keep-lats' is not a setting"));
  EXPECT_THAT(CheckpointerOptions::from_environment().status().message(),
              HasSubstr(file() + ":1: 'keep-lats' is not a setting"));
}

// After the coordinator's host is gone, every handle waits that long.
TEST_F(ClientSettings, ATrainerLooksForItsNodeAsLongAsThatLooksForItsCoordinatorAndAMinuteMore) {
  const auto timeout_of = [&](auto change) {
    CheckpointerOptions options = this->options();
    change(options);
    EXPECT_TRUE(settle_settings(options).ok());
    return options.attach_timeout;
  };
  EXPECT_EQ(timeout_of([](auto&) {}), milliseconds(30'000));
  EXPECT_EQ(timeout_of([](auto& o) { o.coordinator = "n0:7070"; }), milliseconds(120'000));
  EXPECT_EQ(timeout_of([](auto& o) { o.attach_timeout = milliseconds(5); }), milliseconds(5));
  ::setenv("SHOAL_FIND_COORDINATOR_MS", "20000", 1);
  EXPECT_EQ(timeout_of([](auto& o) { o.coordinator = "n0:7070"; }), milliseconds(80'000));
  EXPECT_EQ(timeout_of([](auto& o) { o.coordinator = "n0:7070", o.node.find_coordinator_ms = 1'000; }),
            milliseconds(61'000));
  EXPECT_EQ(timeout_of([](auto&) {}), milliseconds(30'000)) << "all ranks are on one host";
  ::setenv("SHOAL_ATTACH_TIMEOUT_MS", "7000", 1);
  EXPECT_EQ(CheckpointerOptions::from_environment().value().attach_timeout, milliseconds(7'000));
}

TEST_F(ClientSettings, MaxFailedSavesHoldsByVariableOrFileForOptionsMadeByHandToo) {
  CheckpointerOptions options = this->options();
  ::setenv("SHOAL_MAX_FAILED_SAVES", "4", 1);
  ASSERT_TRUE(settle_settings(options).ok());
  EXPECT_EQ(options.max_failed_saves, 4u);
  options.max_failed_saves = 2;
  ASSERT_TRUE(settle_settings(options).ok());
  EXPECT_EQ(options.max_failed_saves, 2u);
}

}  // namespace
}  // namespace shoal::client
