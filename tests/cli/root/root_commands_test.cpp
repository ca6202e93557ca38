// shoal ls, show and verify on the golden root, on damaged copies of it, and on folders that are not roots.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/json_output.h"
#include "gpu/build_info.h"
#include "tests/cli/process.h"
#include "tests/golden_copy.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGolden = SHOAL_GOLDEN_ROOT;

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

void expect_one_line_error(const ProcessEnd& end, const std::string& cause) {
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr(cause));
  EXPECT_EQ(count_lines(end.err), 1u) << end.err;
  EXPECT_EQ(end.out, "");
}

// The commands that read a root, each with the folder of one.
std::vector<std::vector<std::string>> json_commands(const std::string& root) {
  std::vector<std::vector<std::string>> commands = {{"ls"},
                                                    {"show"},
                                                    {"verify"},
                                                    {"copy", root + "-copy", "--create", "--dry-run"},
                                                    {"pin"},
                                                    {"tag"},
                                                    {"gc", "--dry-run"},
                                                    {"rm", "--step", "1", "--force", "--dry-run"},
                                                    {"rebuild"},
                                                    {"status"},
                                                    {"doctor"},
                                                    {"export", "--to", root + "-exported"},
                                                    {"diff", kGolden, "--step", "4"},
                                                    {"settings"}};
  for (std::vector<std::string>& command : commands) {
    command.insert(command.begin() + 1, root);
    command.emplace_back("--json");
  }
  return commands;
}

TEST(Ls, ShowsEveryAttemptWithWhatBecameOfIt) {
  ProcessEnd end = run_shoal({"ls", kGolden});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(count_lines(end.out), 6u);
  for (const char* text :
       {"committed *", "aborted", "deleted", "undecided", "rank 2: host-2 was not heard for 60 s"}) {
    EXPECT_THAT(end.out, HasSubstr(text));
  }
  EXPECT_THAT(end.out, Not(HasSubstr(" \n"))) << "a line ends in a space";
  EXPECT_THAT(end.out, Not(HasSubstr("\x1b"))) << "control characters go into a pipe";
}

TEST(Ls, SaysTheSameInJson) {
  ProcessEnd end = run_shoal({"ls", kGolden, "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  json out = json::parse(end.out);
  ASSERT_EQ(out["attempts"].size(), 5u);
  EXPECT_EQ(out["attempts"][0]["state"], "committed");
  EXPECT_EQ(out["attempts"][0]["world_size"], 4);
  EXPECT_EQ(out["attempts"][0]["files"], 5);
  EXPECT_EQ(out["attempts"][1]["cause"], "rank 2: host-2 was not heard for 60 s");
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(out["attempts"][i]["latest"], i == 3);
}

// Regression: each of them ended by an uncaught exception.
TEST(Json, IsMadeOfARootWhoseNameIsNoUtf8) {
  GoldenCopy copy;
  const std::string root = copy.beside("r\xff\xc3");
  fs::rename(copy.root(), root);
  for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
           {"ls"}, {"show"}, {"verify"}, {"status"}, {"gc", "--dry-run"}, {"tag"}, {"rebuild"}}) {
    SCOPED_TRACE(command[0]);
    command.insert(command.begin() + 1, root);
    command.push_back("--json");
    ProcessEnd end = run_shoal(command, {.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}});
    EXPECT_LE(end.status, 1) << end.err;
    EXPECT_TRUE(json::accept(end.out)) << end.out;
  }
}

// The section of docs/reference/json.md about a command.
std::string json_page_about(const std::string& command) {
  std::ifstream file(SHOAL_SOURCE_FOLDER "/docs/reference/json.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (size_t begin = page.find("\n## "); begin != std::string::npos;) {
    const size_t end = page.find("\n## ", begin + 1);
    const std::string section = page.substr(begin, end - begin);
    if (section.substr(0, section.find('\n', 1)).find("`shoal " + command + "`") != std::string::npos) {
      return section;
    }
    begin = end;
  }
  return "";
}

// Collects the names of all fields, at every depth.
void collect_fields(const json& value, std::set<std::string>* names) {
  if (!value.is_structured()) return;
  for (const auto& [name, inner] : value.items()) {
    if (value.is_object()) names->insert(name);
    if (name != "metadata" && name != "settings") collect_fields(inner, names);  // their names are data
  }
}

TEST(Json, OfEveryCommandIsDocumented) {
  GoldenCopy copy;
  const ProcessOptions with{.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}};
  for (const std::vector<std::string>& command : json_commands(copy.root())) {
    const std::string page = json_page_about(command[0]);
    std::set<std::string> names;
    collect_fields(json::parse(run_shoal(command, with).out), &names);
    for (const char* everywhere : {"command", "json_version", "step", "generation", "attempt"}) {
      names.erase(everywhere);
    }
    for (const std::string& name : names) {
      EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << "shoal " << command[0] << ": " << name;
    }
  }
}

TEST(Json, OfEveryCommandHasTheEnvelope) {
  GoldenCopy copy;
  const ProcessOptions with{.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}};
  for (const std::vector<std::string>& command : json_commands(copy.root())) {
    SCOPED_TRACE(command[0]);
    const ProcessEnd end = run_shoal(command, with);
    EXPECT_LE(end.status, 1) << end.err;
    const json out = json::parse(end.out);
    EXPECT_EQ(out["command"], command[0]);
    EXPECT_EQ(out["json_version"], 1);
    EXPECT_FALSE(out.contains("error"));
  }
}

TEST(Json, NamesAnErrorByACodeOfThePage) {
  std::ifstream file(SHOAL_SOURCE_FOLDER "/docs/reference/json.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (int code = 1; code <= static_cast<int>(kLastCode); ++code) {
    const std::string name = json_code(static_cast<Code>(code));
    EXPECT_NE(page.find("`" + name + "`"), std::string::npos) << name;
  }
}

TEST(Json, OfACommandThatCannotBeginNamesTheError) {
  GoldenCopy copy;
  const ProcessOptions with{.environment = {{"SHOAL_RUNTIME_DIR", copy.beside("runtime")}}};
  for (const std::vector<std::string>& command : json_commands(copy.beside("no-such-root"))) {
    if (command[0] == "doctor" || command[0] == "settings") continue;  // they need no root
    SCOPED_TRACE(command[0]);
    const ProcessEnd end = run_shoal(command, with);
    EXPECT_EQ(end.status, 2);
    EXPECT_THAT(end.err, HasSubstr("shoal: not found: ")) << "the error is a line as well";
    const json out = json::parse(end.out);
    EXPECT_EQ(out["command"], command[0]);
    EXPECT_EQ(out["json_version"], 1);
    EXPECT_EQ(out["error"]["code"], "not_found");
    EXPECT_THAT(out["error"]["message"].get<std::string>(), HasSubstr("no-such-root"));
  }
  for (const char* option : {"--no-such-option", "--step"}) {
    const json out = json::parse(run_shoal({"ls", kGolden, "--json", option}, with).out);
    EXPECT_EQ(out["error"]["code"], "invalid_argument") << option;
  }
  EXPECT_EQ(run_shoal({"ls", copy.beside("no-such-root")}, with).out, "") << "without --json";
}

// Regression: what stood after "--" was ignored, so that this deleted.
TEST(Json, AndEveryOtherOptionMustStandBeforeTheTwoDashes) {
  GoldenCopy copy;
  const ProcessEnd end = run_shoal({"gc", copy.root(), "--keep-last", "1", "--json", "--", "--dry-run"});
  EXPECT_EQ(end.status, 2);
  EXPECT_EQ(json::parse(end.out)["error"]["code"], "invalid_argument");
  EXPECT_THAT(end.err, HasSubstr("'--dry-run' would be ignored"));
  EXPECT_TRUE(fs::exists(copy.path("step-00000001/g1a1/manifest.shoal")));
}

TEST(Operands, MayStandAfterTwoDashes) {
  const ProcessEnd plain = run_shoal({"ls", kGolden}), dashes = run_shoal({"ls", "--", kGolden});
  EXPECT_EQ(dashes.status, 0) << dashes.err;
  EXPECT_EQ(dashes.out, plain.out);
}

TEST(Operands, AreRefusedAfterTwoDashesIfThereAreTooMany) {
  const ProcessEnd end = run_shoal({"ls", kGolden, "--", "more"});
  EXPECT_EQ(end.status, 2);
  EXPECT_THAT(end.err, HasSubstr("more"));
}

// A damaged root is a result, and stays the only value.
TEST(Json, IsOneValueWhereTheNewestManifestIsDamaged) {
  GoldenCopy copy;
  fs::resize_file(copy.path("step-00000004/g2a1/manifest.shoal"), 100);
  for (const char* command : {"ls", "show", "verify", "status"}) {
    const ProcessEnd end = run_shoal({command, copy.root(), "--json"});
    EXPECT_EQ(end.status, 1) << command;
    EXPECT_FALSE(json::parse(end.out).contains("error")) << command;
  }
}

TEST(Ls, ListsADamagedDecisionAndTheOthers) {
  GoldenCopy copy;
  copy.flip_bit_from_end("step-00000001/g1a1/manifest.shoal", 1);
  ProcessEnd end = run_shoal({"ls", copy.root()});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("damaged"));
  EXPECT_THAT(end.out, HasSubstr("step-00000001/g1a1/manifest.shoal"));
  EXPECT_EQ(count_lines(end.out), 6u);
}

TEST(ADamagedNewestManifest, IsNamedInsteadOfAnOlderLatest) {
  const std::string manifest = "step-00000004/g2a1/manifest.shoal";
  for (int64_t offset :
       {int64_t{1}, int64_t{40}, static_cast<int64_t>(fs::file_size(kGolden + "/" + manifest))}) {
    GoldenCopy copy;
    copy.flip_bit_from_end(manifest, offset);
    for (const char* command : {"ls", "show", "status"}) {
      SCOPED_TRACE(std::string(command) + ", bit flipped " + std::to_string(offset) + " from the end");
      ProcessEnd text = run_shoal({command, copy.root()}),
                 as_json = run_shoal({command, copy.root(), "--json"});
      for (const ProcessEnd& end : {text, as_json}) {
        EXPECT_EQ(end.status, 1);
        EXPECT_THAT(end.err, HasSubstr(copy.path(manifest)));
        EXPECT_EQ(count_lines(end.err), 1u) << end.err;
        EXPECT_THAT(end.out, Not(HasSubstr("committed *")));
        EXPECT_THAT(end.out, Not(HasSubstr("the latest is step")));
        EXPECT_THAT(end.out, Not(HasSubstr("step 1 (g1a1)")));
      }
      EXPECT_THAT(as_json.out, HasSubstr(copy.path(manifest)));
    }
    json listed = json::parse(run_shoal({"ls", copy.root(), "--json"}).out);
    for (const json& attempt : listed["attempts"]) EXPECT_EQ(attempt["latest"], false);
    EXPECT_THAT(listed["latest_unknown"].get<std::string>(), HasSubstr(manifest));
    json shown = json::parse(run_shoal({"show", copy.root(), "--json"}).out);
    EXPECT_EQ(shown["step"], 4);
    EXPECT_EQ(shown["state"], "damaged");
    json root = json::parse(run_shoal({"status", copy.root(), "--json"}).out)["root"];
    EXPECT_TRUE(root["latest"].is_null());
    EXPECT_THAT(root["latest_unknown"].get<std::string>(), HasSubstr(manifest));
    EXPECT_EQ(run_shoal({"show", copy.root(), "--step", "1"}).status, 0) << "another may be named";
  }
}

TEST(ADamagedNewestManifest, OfAStepIsNotPassedOverByATag) {
  GoldenCopy copy;
  fs::copy(copy.path("step-00000001/g1a1"), copy.path("step-00000001/g2a1"));
  expect_one_line_error(run_shoal({"tag", copy.root(), "best", "--step", "1"}), "step-00000001/g2a1");
}

TEST(ADamagedOlderManifest, LeavesTheLatestWhatItIs) {
  GoldenCopy copy;
  copy.flip_bit_from_end("step-00000001/g1a1/manifest.shoal", 1);
  EXPECT_THAT(run_shoal({"ls", copy.root()}).out, HasSubstr("committed *"));
  EXPECT_THAT(run_shoal({"show", copy.root()}).out, HasSubstr("step 4 (g2a1)"));
  EXPECT_THAT(run_shoal({"status", copy.root()}).out, HasSubstr("the latest is step 4"));
}

TEST(Ls, ListsWhatCannotBeReadAndTheOthers) {
  GoldenCopy copy;
  const std::string link = "step-00000001/g1a1/manifest.shoal";
  fs::rename(copy.path(link), copy.path("elsewhere"));
  fs::create_symlink(copy.path("elsewhere"), copy.path(link));
  ProcessEnd end = run_shoal({"ls", copy.root()});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr(link + ": cannot open"));
  EXPECT_EQ(count_lines(end.out), 6u);
  EXPECT_EQ(run_shoal({"verify", copy.root(), "--step", "4"}).status, 0);

  fs::remove(copy.path(link));
  fs::rename(copy.path("elsewhere"), copy.path(link));
  fs::permissions(copy.path(link), fs::perms::none);
  fs::permissions(fs::path(copy.root()).parent_path(), fs::perms::others_exec, fs::perm_options::add);
  end = run_shoal({"ls", copy.root()}, {.unprivileged = true});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr(link + ": cannot open: not readable"));
  EXPECT_EQ(count_lines(end.out), 6u);
}

// Regression: an older one was shown as the latest.
TEST(Ls, ListsAStepWhoseFolderIsALink) {
  GoldenCopy copy;
  fs::rename(copy.path("step-00000004"), copy.path("moved"));
  fs::create_directory_symlink("moved", copy.path("step-00000004"));
  ProcessEnd end = run_shoal({"ls", copy.root()});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, Not(HasSubstr("committed *")));
  EXPECT_THAT(end.out, HasSubstr("step-00000004 is not a folder"));
  EXPECT_THAT(end.out, HasSubstr("committed"));
}

TEST(RestoreId, PutsBackALostRootId) {
  GoldenCopy copy;
  std::string before = run_shoal({"ls", copy.root()}).out;
  EXPECT_EQ(run_shoal({"restore-id", copy.root()}).status, 2) << "nothing is lost yet";
  fs::remove(copy.path("ROOT_ID"));
  expect_one_line_error(run_shoal({"ls", copy.root()}), "shoal restore-id " + copy.root());
  EXPECT_EQ(run_shoal({"restore-id", copy.root()}).status, 0);
  EXPECT_EQ(run_shoal({"ls", copy.root()}).out, before);
}

TEST(RestoreId, SaysWhatToDoAboutADamagedRootId) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{20}}) {
    GoldenCopy copy;
    std::string before = run_shoal({"ls", copy.root()}).out;
    fs::resize_file(copy.path("ROOT_ID"), bytes);
    for (const char* command : {"restore-id", "ls"}) {
      expect_one_line_error(run_shoal({command, copy.root()}),
                            "move it away: then `shoal restore-id " + copy.root() + "`");
    }
    fs::rename(copy.path("ROOT_ID"), copy.beside("moved away"));
    EXPECT_EQ(run_shoal({"restore-id", copy.root()}).status, 0);
    EXPECT_EQ(run_shoal({"ls", copy.root()}).out, before);
  }
}

TEST(Ls, WritesNothingIntoTheRoot) {
  GoldenCopy copy;
  auto listing = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(copy.root())) names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    return names;
  };
  auto before = listing();
  for (const char* command : {"ls", "show"}) EXPECT_EQ(run_shoal({command, copy.root()}).status, 0);
  EXPECT_EQ(run_shoal({"verify", copy.root(), "--no-record"}).status, 0);
  EXPECT_EQ(listing(), before);
}

TEST(Show, DescribesTheLatestCheckpointByDefault) {
  ProcessEnd end = run_shoal({"show", kGolden});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("step 4 (g2a1)"));
  EXPECT_THAT(end.out, HasSubstr("F8_E8M0"));
}

TEST(Show, DescribesShardingAndFilesOfAStep) {
  ProcessEnd end = run_shoal({"show", kGolden, "--step", "1", "--json"});
  ASSERT_EQ(end.status, 0) << end.err;
  json out = json::parse(end.out);
  EXPECT_EQ(out["state"], "committed");
  EXPECT_EQ(out["options"]["unit_bytes"], 1024);
  EXPECT_EQ(out["files"].size(), 5u);
  EXPECT_EQ(out["files"][0]["header_digest"].get<std::string>().size(), 32u);
  auto strided = std::find_if(out["values"].begin(), out["values"].end(),
                              [](const json& value) { return value["fqn"] == "strided"; });
  ASSERT_NE(strided, out["values"].end());
  EXPECT_EQ((*strided)["shape"], json({11, 2}));
  EXPECT_EQ((*strided)["sharding"][0], "[_StridedShard(0, sf=2), Shard(0)] on 2x2 ranks 0-3");
}

TEST(Show, TellsTheCauseOfAnAbort) {
  ProcessEnd end = run_shoal({"show", kGolden, "--step", "2", "--attempt", "g1a1"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("aborted"));
  EXPECT_THAT(end.out, HasSubstr("host-2 was not heard"));
  end = run_shoal({"show", kGolden, "--step", "2", "--attempt", "g1a1", "--json"});
  EXPECT_EQ(json::parse(end.out)["cause"], "rank 2: host-2 was not heard for 60 s");
}

TEST(Status, TellsOfAbortsWhenNoNodeRuns) {
  ProcessEnd end = run_shoal({"status", kGolden});
  EXPECT_THAT(end.out,
              HasSubstr("aborted: 1 attempt; the newest is step 2 (g1a1): rank 2: host-2 was not heard"));
  const json root = json::parse(run_shoal({"status", kGolden, "--json"}).out)["root"];
  EXPECT_EQ(root["aborted"], 1);
  EXPECT_EQ(root["last_abort"]["step"], 2);
  EXPECT_EQ(root["last_abort"]["cause"], "rank 2: host-2 was not heard for 60 s");
}

TEST(Verify, FindsTheGoldenRootSound) {
  ProcessEnd end = run_shoal({"verify", kGolden, "--all", "--json", "--no-record"});
  ASSERT_EQ(end.status, 0) << end.err;
  json out = json::parse(end.out);
  EXPECT_EQ(out["ok"], true);
  ASSERT_EQ(out["checkpoints"].size(), 2u);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(kGolden + "/step-00000001/g1a1")) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  }
  EXPECT_EQ(out["checkpoints"][0]["bytes"], bytes) << "every byte is read";
  EXPECT_EQ(end.err, "") << "progress belongs on a terminal";
}

TEST(Verify, NamesFileTensorAndBlockThatDiffer) {
  GoldenCopy copy;
  copy.flip_bit_from_end("step-00000001/g1a1/rank-00002.safetensors", 1);
  ProcessEnd end = run_shoal({"verify", copy.root(), "--step", "1", "--json"});
  EXPECT_EQ(end.status, 1);
  json out = json::parse(end.out);
  EXPECT_EQ(out["ok"], false);
  ASSERT_EQ(out["checkpoints"][0]["damage"].size(), 1u);
  json damage = out["checkpoints"][0]["damage"][0];
  EXPECT_EQ(damage["file"], "rank-00002.safetensors");
  EXPECT_EQ(damage["tensor"], "rng@rank2");
  EXPECT_EQ(damage["block"], 0);
  EXPECT_THAT(damage["what"].get<std::string>(), HasSubstr("differs from its digest"));

  ProcessEnd text = run_shoal({"verify", copy.root(), "--step", "1"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("rank-00002.safetensors: block 0 of 'rng@rank2' differs"));
  EXPECT_THAT(text.out, HasSubstr("DAMAGED in 1 place:"));
}

TEST(Verify, FindsEveryDamagedFileOfACheckpoint) {
  GoldenCopy copy;
  const std::string folder = "step-00000001/g1a1/";
  copy.flip_bit_from_end(folder + "rank-00000.safetensors", 5000);  // in its header
  fs::resize_file(copy.path(folder + "rank-00001.safetensors"), 5000);
  fs::remove(copy.path(folder + "rank-00003.safetensors"));
  ProcessEnd end = run_shoal({"verify", copy.root(), "--all"});
  EXPECT_EQ(end.status, 1);
  EXPECT_THAT(end.out, HasSubstr("rank-00000.safetensors: the header differs"));
  EXPECT_THAT(end.out, HasSubstr("rank-00001.safetensors: has 5000 bytes"));
  EXPECT_THAT(end.out, HasSubstr("rank-00003.safetensors: "));
  EXPECT_THAT(end.out, HasSubstr("step 4 (g2a1): ok"));
}

TEST(Verify, CountsADamagedManifest) {
  GoldenCopy copy;
  copy.flip_bit_from_end("step-00000004/g2a1/manifest.shoal", 40);
  EXPECT_EQ(run_shoal({"verify", copy.root(), "--all"}).status, 1);
  EXPECT_EQ(run_shoal({"verify", copy.root()}).status, 1) << "it might be the latest";
  EXPECT_EQ(run_shoal({"verify", copy.root(), "--step", "1"}).status, 0);
}

TEST(BadInput, IsAOneLineErrorWithItsCause) {
  TemporaryFolder empty;
  for (const char* command : {"ls", "show", "verify"}) {
    expect_one_line_error(run_shoal({command, empty.path() + "/none"}), "none does not exist");
    expect_one_line_error(run_shoal({command, empty.path()}), "holds no run");
    expect_one_line_error(run_shoal({command, kGolden + "/ROOT_ID"}), "ROOT_ID");
  }
  expect_one_line_error(run_shoal({"show", kGolden, "--step", "77"}), "no attempt at step 77");
  expect_one_line_error(run_shoal({"show", kGolden, "--step", "1", "--attempt", "g9a9"}),
                        "no attempt g9a9 at step 1");
  expect_one_line_error(run_shoal({"show", kGolden, "--step", "1", "--attempt", "../x"}),
                        "'../x' is not an attempt");
  for (const char* command : {"show", "verify"}) {
    for (const char* step : {"-1", "18446744073709551616", "1e3", "0x1", "", " 1"}) {
      expect_one_line_error(run_shoal({command, kGolden, "--step", step}),
                            "--step: '" + std::string(step) + "'");
    }
  }
  expect_one_line_error(run_shoal({"verify", kGolden, "--step", "2"}),
                        "no checkpoint at step 2: step 2 (g1a1) is aborted: rank 2: host-2 was not heard");
  expect_one_line_error(run_shoal({"frobnicate"}), "frobnicate");
  expect_one_line_error(run_shoal({}), "subcommand");
  expect_one_line_error(run_shoal({"list", "/nowhere"}), "unknown command 'list'; did you mean 'ls'?");
}

TEST(BadInput, ANewerFormatIsRefusedByBothVersions) {
  GoldenCopy copy;
  {
    std::fstream file(copy.path("ROOT_ID"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file.put(99);
  }
  ProcessEnd end = run_shoal({"ls", copy.root()});
  EXPECT_EQ(end.status, 2);
  EXPECT_EQ(count_lines(end.err), 1u);
}

TEST(BadInput, ARootThatMayNotBeReadIsRefusedByName) {
  GoldenCopy copy;
  fs::permissions(copy.root(), fs::perms::none);
  ProcessEnd end = run_shoal({"ls", copy.root()}, {.unprivileged = true});
  fs::permissions(copy.root(), fs::perms::owner_all);
  expect_one_line_error(end, copy.root());
  EXPECT_THAT(end.err, HasSubstr("ermission"));
}

TEST(Help, NamesEveryCommandWithExamples) {
  ProcessEnd end = run_shoal({"--help"});
  EXPECT_EQ(end.status, 0);
  for (const char* text : {"ls", "show", "verify", "rebuild", "Examples:", "Exit status:"}) {
    EXPECT_THAT(end.out, HasSubstr(text));
  }
  EXPECT_EQ(run_shoal({"verify", "--help"}).status, 0);
}

TEST(Version, NamesTheFormatsAndWhetherCudaIsBuiltIn) {
  const std::string version = run_shoal({"--version"}).out;
  EXPECT_THAT(version, ::testing::StartsWith("shoal "));
  EXPECT_THAT(version, HasSubstr("GPU support: " + std::string(gpu::cuda_build())));
}

}  // namespace
}  // namespace shoal::cli
