// shoal calibrate: its result is a complete profile with plausible numbers. It measures a peer that answers,
// and names one that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;

// The values by "table.key", for numbers with a kind and a source.
std::map<std::string, int64_t> numbers_of(const std::string& profile) {
  std::map<std::string, int64_t> out;
  std::istringstream lines(profile);
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) table = line.substr(1, line.find(']') - 1);
    const size_t value = line.find(" = { value = ");
    const bool has_kind = line.find("kind = \"measured\"") != std::string::npos ||
                          line.find("kind = \"assumed\"") != std::string::npos;
    if (value == std::string::npos || !has_kind || line.find(", source = \"") == std::string::npos) continue;
    out[table + "." + line.substr(0, value)] = std::stoll(line.substr(line.find("value = ") + 8));
  }
  return out;
}

TEST(Calibrate, WritesAWholeProfileAndLeavesNothingBehind) {
  TemporaryFolder folder;
  const std::string root = folder.path() + "/root", out = folder.path() + "/here.toml";
  std::filesystem::create_directory(root);
  const ProcessEnd end =
      run_shoal({"calibrate", "--root", root, "--bytes", "16MiB", "--name", "ours", "--out", out});
  ASSERT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.out, "");
  EXPECT_THAT(end.err, HasSubstr("storage: " + root));
  std::ifstream file(out);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, HasSubstr("name = \"ours\"\n"));
  const auto numbers = numbers_of(text);
  EXPECT_EQ(numbers.size(), 22u) << text;
  for (const char* key :
       {"network.latency_ns", "network.bytes_per_s", "cpu.message_ns", "cpu.codec_bytes_per_s",
        "cpu.plan_item_ns", "cpu.check_item_ns", "trainer.copy_bytes_per_s", "storage.change_ns",
        "storage.look_ns", "storage.sync_ns", "storage.client_bytes_per_s", "storage.catalog_ns"}) {
    ASSERT_TRUE(numbers.contains(key)) << key;
    EXPECT_GT(numbers.at(key), 0) << key;
  }
  EXPECT_TRUE(std::filesystem::is_empty(root));
  const ProcessEnd simulated = run_shoal({"sim", "--profile", out, "--ranks", "16", "--model", "gpt2"});
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  EXPECT_THAT(simulated.out, HasSubstr("profile " + out));
}

TEST(Calibrate, MeasuresAPeer) {
  TemporaryFolder folder;
  Process server({SHOAL_PROGRAM, "calibrate", "--serve"});
  ASSERT_TRUE(server.wait_for_output("\n"));
  ASSERT_TRUE(server.wait_for_errors("serving at 127.0.0.1:"));
  const std::string errors = server.errors();
  const size_t message = errors.find("serving at ") + 11;
  const std::string address = errors.substr(message, errors.find(';', message) - message);
  const ProcessEnd end =
      run_shoal({"calibrate", "--root", folder.path(), "--bytes", "4MiB", "--peer", address});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("to " + address));
  EXPECT_EQ(numbers_of(end.out).size(), 22u);
  const ProcessEnd stranger = run_shoal(
      {"calibrate", "--root", folder.path(), "--bytes", "4MiB", "--peer", address, "--secret", "another"});
  EXPECT_EQ(stranger.status, 2);
  EXPECT_THAT(stranger.err, HasSubstr(address));
  server.send_signal(SIGTERM);
  EXPECT_EQ(server.wait().status, 0);
}

// Regression: it accepted any client with the secret that --help shows.
TEST(Calibrate, ServesOtherHostsOnlyWithASecretOfTheirOwn) {
  const ProcessEnd open_to_all = run_shoal({"calibrate", "--serve", "--listen", "0.0.0.0:0"});
  EXPECT_EQ(open_to_all.status, 2);
  EXPECT_THAT(open_to_all.err, HasSubstr("set --secret WORD"));
  const ProcessEnd asks = run_shoal({"calibrate", "--root", "/tmp", "--peer", "203.0.113.1:7171"});
  EXPECT_EQ(asks.status, 2);
  EXPECT_THAT(asks.err, HasSubstr("set --secret WORD"));
}

TEST(Calibrate, NamesWhatItCannotUse) {
  const ProcessEnd no_root = run_shoal({"calibrate"});
  EXPECT_EQ(no_root.status, 2);
  EXPECT_THAT(no_root.err, HasSubstr("--root is missing"));
  const ProcessEnd nobody = run_shoal({"calibrate", "--root", "/tmp", "--peer", "127.0.0.1:1"});
  EXPECT_EQ(nobody.status, 2);
  EXPECT_THAT(nobody.err, HasSubstr("127.0.0.1:1"));
  const ProcessEnd no_folder = run_shoal({"calibrate", "--root", "/no/such/folder"});
  EXPECT_EQ(no_folder.status, 2);
  EXPECT_THAT(no_folder.err, HasSubstr("/no/such/folder"));
  EXPECT_EQ(run_shoal({"calibrate", "--root", "/tmp", "--bytes", "many"}).status, 2);
  const ProcessEnd no_file = run_shoal({"calibrate", "--root", "/tmp", "--out", "/no/such/here.toml"});
  EXPECT_EQ(no_file.status, 2);
  EXPECT_THAT(no_file.err, HasSubstr("cannot write /no/such/here.toml"));
  EXPECT_THAT(no_file.err, ::testing::Not(HasSubstr("network")));
}

}  // namespace
}  // namespace shoal::cli
