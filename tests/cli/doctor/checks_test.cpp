// What `shoal doctor` says about facts that a test states.
#include "cli/doctor/checks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

const Finding& finding_of(const Findings& findings, const std::string& check) {
  for (const Finding& each : findings) {
    if (each.check == check) return each;
  }
  static const Finding none = found_skipped("none", "there is no such finding");
  return none;
}

RootFacts good_root() {
  RootFacts facts;
  facts.root = facts.tried_in = "/ckpt/run7";
  facts.exists = true;
  facts.run = "abc";
  facts.space = SpaceFacts{100 * kGiB, 1000, 1000};
  facts.race.names = 16;
  facts.rate = {uint64_t{8} << 20, 0.1, 0.01, ok_status()};
  facts.clock_ahead_ns = 0;
  return facts;
}

MountFacts mounted(const std::string& type, const std::string& options) {
  return {"/ckpt", type, "server:/x", options};
}

TEST(DoctorRoot, IsFineIfEveryTrialSucceeds) {
  for (const Finding& each : check_root(good_root(), {})) {
    const bool is_stated = each.check != "file-system";
    EXPECT_EQ(each.outcome, is_stated ? Outcome::ok : Outcome::skipped) << each.check << each.measured;
    EXPECT_EQ(each.remedy, "");
  }
}

TEST(DoctorRoot, ThatCannotBeWrittenIsAnErrorAndTheTrialsAreSkipped) {
  RootFacts facts = good_root();
  facts.usable = Status(Code::refused, "cannot create a folder in /ckpt/run7: Permission denied");
  const Findings findings = check_root(facts, {});
  EXPECT_EQ(finding_of(findings, "root").outcome, Outcome::error);
  EXPECT_THAT(finding_of(findings, "root").measured, HasSubstr("Permission denied"));
  EXPECT_NE(finding_of(findings, "root").remedy, "");
  EXPECT_EQ(finding_of(findings, "creation").outcome, Outcome::skipped);
  EXPECT_EQ(finding_of(findings, "rate").outcome, Outcome::skipped);
}

TEST(DoctorRoot, ThatDoesNotExistIsAnErrorWithTheCommandThatMakesIt) {
  RootFacts facts = good_root();
  facts.exists = false;
  facts.tried_in = "/ckpt";
  const Finding finding = finding_of(check_root(facts, {}), "root");
  EXPECT_EQ(finding.outcome, Outcome::error);
  EXPECT_THAT(finding.remedy, HasSubstr("mkdir /ckpt/run7"));
}

TEST(DoctorRoot, WithFoldersOfAnotherUserNamesThem) {
  RootFacts facts = good_root();
  facts.closed_folders = {"epochs", "pins"};
  const Finding finding = finding_of(check_root(facts, {}), "root");
  EXPECT_EQ(finding.outcome, Outcome::error);
  EXPECT_THAT(finding.measured, HasSubstr("epochs, pins"));
}

TEST(DoctorRoot, ThatHasLostItsIdIsAnError) {
  RootFacts facts = good_root();
  facts.identity = Status(Code::refused, "root /ckpt/run7 has no ROOT_ID, but step-00000001 exists");
  EXPECT_EQ(finding_of(check_root(facts, {}), "root").outcome, Outcome::error);
  facts.identity = Status(Code::not_found, "root /ckpt/run7 holds no run");
  EXPECT_EQ(finding_of(check_root(facts, {}), "root").outcome, Outcome::ok);
}

TEST(DoctorRoot, WhereANameHasTwoCreatorsOrNoneIsAnError) {
  RootFacts facts = good_root();
  facts.race.with_two_creators = 1;
  EXPECT_EQ(finding_of(check_root(facts, {}), "creation").outcome, Outcome::error);
  facts.race.with_two_creators = 0;
  facts.race.without_creator = 2;
  EXPECT_THAT(finding_of(check_root(facts, {}), "creation").measured, HasSubstr("2 had none"));
}

TEST(DoctorRoot, SkipsTheRateWithoutSpaceAndReportsADiskThatFails) {
  RootFacts facts = good_root();
  facts.rate.failed = Status(Code::no_space, "8.00 MiB are needed");
  EXPECT_EQ(finding_of(check_root(facts, {}), "rate").outcome, Outcome::skipped);
  facts.rate.failed = Status(Code::io, "Input/output error");
  EXPECT_EQ(finding_of(check_root(facts, {}), "rate").outcome, Outcome::error);
}

TEST(DoctorRoot, NamesWhatAKilledCheckLeft) {
  RootFacts facts = good_root();
  facts.leftovers = {".shoal-doctor-1"};
  const Finding finding = finding_of(check_root(facts, {}), "cleanup");
  EXPECT_EQ(finding.outcome, Outcome::warning);
  EXPECT_EQ(finding.remedy, "rm -r /ckpt/run7/.shoal-doctor-1");
}

TEST(DoctorFileSystem, ThatIsKnownToLoseCheckpointsIsAWarning) {
  for (const char* type : {"tmpfs", "overlay", "fuse.s3fs", "cifs", "9p", "vfat"}) {
    const Finding finding = check_file_system(mounted(type, "rw"), 1);
    EXPECT_EQ(finding.outcome, Outcome::warning) << type;
    EXPECT_THAT(finding.measured, HasSubstr(type));
  }
  for (const char* type : {"ext4", "xfs", "lustre", "ceph"}) {
    EXPECT_EQ(check_file_system(mounted(type, "rw,relatime"), 1).outcome, Outcome::ok) << type;
  }
}

TEST(DoctorFileSystem, ThatIsLocalDoesNotSuitSeveralHosts) {
  EXPECT_EQ(check_file_system(mounted("ext4", "rw"), 2).outcome, Outcome::warning);
  EXPECT_EQ(check_file_system(mounted("lustre", "rw"), 2).outcome, Outcome::ok);
}

TEST(DoctorFileSystem, NamesTheMountOptionThatIsBad) {
  EXPECT_EQ(check_file_system(mounted("ext4", "ro,relatime"), 1).outcome, Outcome::error);
  const auto problem = [](const char* type, const char* options, uint64_t hosts) {
    const Finding finding = check_file_system(mounted(type, options), hosts);
    return finding.outcome == Outcome::warning ? finding.remedy : "fine";
  };
  EXPECT_EQ(problem("ext4", "rw,barrier=0", 1), "mount it with barriers");
  EXPECT_EQ(problem("nfs", "rw,vers=3,hard", 1), "mount it with vers=4.2");
  EXPECT_EQ(problem("nfs4", "rw,vers=4.2,soft", 1), "mount it with hard");
  EXPECT_EQ(problem("nfs4", "rw,vers=4.2,hard", 2), "mount it with noac or actimeo=0");
  EXPECT_EQ(problem("nfs4", "rw,vers=4.2,hard,noac", 2), "fine");
  EXPECT_EQ(problem("nfs4", "rw,vers=4.2,hard", 1), "fine");
}

TEST(DoctorFileSystem, IsTheLastMountOfTheLongestFolderThatContainsThePath) {
  const std::string text =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
      "30 22 0:40 / /data rw - nfs4 a:/x rw,vers=4.2\n"
      "31 22 0:41 / /data rw - lustre b:/y rw,flock\n"
      "32 22 0:42 / /with\\040space rw - xfs /dev/sdb rw\n";
  ASSERT_TRUE(find_mount(text, "/data/run7").has_value());
  EXPECT_EQ(find_mount(text, "/data/run7")->type, "lustre");
  EXPECT_EQ(find_mount(text, "/data/run7")->options, "rw,flock");
  EXPECT_EQ(find_mount(text, "/database")->type, "ext4");
  EXPECT_EQ(find_mount(text, "/with space/a")->type, "xfs");
  EXPECT_FALSE(find_mount("", "/data").has_value());
}

TEST(DoctorSpace, ComparesBytesAndInodesWithASave) {
  JobShape job;
  job.hosts = 2;
  job.ranks_here = 8;
  job.staged_bytes = 10 * kGiB;
  EXPECT_EQ(check_space({19 * kGiB, 0, 0}, job).outcome, Outcome::error);
  EXPECT_EQ(check_space({41 * kGiB, 0, 0}, job).outcome, Outcome::warning);
  EXPECT_EQ(check_space({100 * kGiB, 0, 0}, job).outcome, Outcome::ok);
  EXPECT_EQ(check_space({100 * kGiB, 1000, 20}, job).outcome, Outcome::error);
  EXPECT_EQ(check_space({kGiB / 2, 0, 0}, JobShape()).outcome, Outcome::warning);
  EXPECT_EQ(check_space({1000, 0, 0}, JobShape()).outcome, Outcome::error);
}

TEST(DoctorClock, IsAWarningIfNothingSynchronisesItOrTheServersDiffers) {
  ClockFacts clock;
  EXPECT_EQ(check_clock(clock).outcome, Outcome::warning);
  clock.is_synchronised = true;
  EXPECT_EQ(check_clock(clock).outcome, Outcome::ok);
  RootFacts root = good_root();
  EXPECT_EQ(check_server_clock(root).outcome, Outcome::ok);
  root.clock_ahead_ns = -3'000'000'000;
  EXPECT_EQ(check_server_clock(root).outcome, Outcome::warning);
  EXPECT_THAT(check_server_clock(root).measured, HasSubstr("3000.0 ms behind"));
}

TEST(DoctorMemory, IsComparedWithWhatASaveStages) {
  MemoryFacts facts;
  facts.headroom = {4 * kGiB, "memory.max of cgroup /job is 4.0 GiB"};
  JobShape job;
  EXPECT_EQ(finding_of(check_memory(facts, job, 0), "memory").outcome, Outcome::ok);
  job.staged_bytes = 5 * kGiB;
  const Finding parts = finding_of(check_memory(facts, job, 0), "memory");
  EXPECT_EQ(parts.outcome, Outcome::warning);
  EXPECT_THAT(parts.measured, HasSubstr("memory.max of cgroup /job"));
  EXPECT_THAT(finding_of(check_memory(facts, job, kGiB), "memory").remedy, HasSubstr("staging-memory"));
  facts.headroom.bytes = kGiB / 64;
  EXPECT_EQ(finding_of(check_memory(facts, job, 0), "memory").outcome, Outcome::error);
}

TEST(DoctorMemory, NamesLimitsOfTheKernel) {
  MemoryFacts facts;
  facts.headroom = {4 * kGiB, "free"};
  facts.overcommit = 2;
  facts.commit_limit_bytes = facts.committed_bytes = kGiB;
  facts.memlock_bytes = kGiB / 1024;
  EXPECT_EQ(finding_of(check_memory(facts, {}, 0), "overcommit").outcome, Outcome::warning);
  EXPECT_EQ(finding_of(check_memory(facts, {}, 0), "memlock").outcome, Outcome::ok);
  facts.has_rdma_device = true;
  EXPECT_EQ(finding_of(check_memory(facts, {}, 0), "memlock").outcome, Outcome::warning);
  facts.slab = Status(Code::refused, "cannot make a sealed anonymous memory file: not permitted");
  EXPECT_EQ(finding_of(check_memory(facts, {}, 0), "shared-memory").outcome, Outcome::error);
}

TEST(DoctorDescriptors, AreComparedWithTheHardLimit) {
  JobShape job;
  job.ranks_here = 8;
  job.hosts = 1000;
  const Finding low = check_descriptors({256, 1024}, job, 2048);
  EXPECT_EQ(low.outcome, Outcome::error);
  EXPECT_THAT(low.measured, HasSubstr("may have only 1024"));
  EXPECT_EQ(check_descriptors({256, 1 << 20}, job, 2048).outcome, Outcome::ok);
  job.coordinates_here = false;
  EXPECT_EQ(check_descriptors({256, 1024}, job, 2048).outcome, Outcome::ok);
}

TEST(DoctorDescriptors, OfMoreHostsThanACoordinatorReachesAreAnError) {
  JobShape job;
  job.hosts = 100;
  const Finding finding = check_descriptors({1 << 20, 1 << 20}, job, 8);
  EXPECT_EQ(finding.outcome, Outcome::error);
  EXPECT_EQ(finding.remedy, "raise --max-direct-nodes");
}

TEST(DoctorToken, MustExistForSeveralHostsAndBeLong) {
  EXPECT_EQ(check_token({ok_status(), 0}, 1).outcome, Outcome::skipped);
  EXPECT_EQ(check_token({ok_status(), 0}, 2).outcome, Outcome::error);
  EXPECT_EQ(check_token({ok_status(), 5}, 2).outcome, Outcome::warning);
  EXPECT_EQ(check_token({ok_status(), 44}, 2).outcome, Outcome::ok);
  EXPECT_EQ(check_token({Status(Code::refused, "token file /t has mode 0644"), 0}, 1).outcome,
            Outcome::error);
}

TEST(DoctorNetwork, NamesThePortThatIsTakenAndWhatToSet) {
  NetworkFacts facts;
  facts.ports.push_back({"coordinator", "10.0.0.1:7070", "set SHOAL_COORDINATOR=:PORT",
                         Status(Code::unavailable, "10.0.0.1:7070: Address already in use")});
  const Finding finding = finding_of(check_network(facts, {}), "ports");
  EXPECT_EQ(finding.outcome, Outcome::error);
  EXPECT_THAT(finding.measured, HasSubstr("Address already in use"));
  EXPECT_EQ(finding.remedy, "set SHOAL_COORDINATOR=:PORT");
}

TEST(DoctorNetwork, OfSeveralHostsMustNotMeetOnTheLoopback) {
  NetworkFacts facts;
  JobShape job;
  job.hosts = 2;
  facts.advertised = std::string("127.0.1.1");
  EXPECT_EQ(finding_of(check_network(facts, job), "address").outcome, Outcome::error);
  facts.advertised = std::string("10.0.0.1");
  EXPECT_EQ(finding_of(check_network(facts, job), "address").outcome, Outcome::ok);
  facts.hosts.push_back({"n1", false, std::string("127.0.0.1")});
  EXPECT_EQ(finding_of(check_network(facts, job), "hosts").outcome, Outcome::error);
  facts.hosts[0].is_this_host = true;
  EXPECT_EQ(finding_of(check_network(facts, job), "hosts").outcome, Outcome::ok);
}

TEST(DoctorNetwork, WithUcxAndNoDeviceWarnsThatNothingIsEncrypted) {
  NetworkFacts facts;
  facts.transport = "ucx";
  EXPECT_EQ(finding_of(check_network(facts, {}), "transport").outcome, Outcome::warning);
  facts.has_rdma_device = true;
  EXPECT_EQ(finding_of(check_network(facts, {}), "transport").outcome, Outcome::ok);
}

TEST(DoctorRuntimeFolder, IsAnErrorIfANodeRejectsItOrItIsFull) {
  RuntimeFolderFacts facts;
  facts.folder = "/run/user/1000/shoal";
  facts.bytes_free = kGiB;
  EXPECT_EQ(check_runtime_folder(facts).outcome, Outcome::ok);
  facts.bytes_free = 0;
  EXPECT_EQ(check_runtime_folder(facts).outcome, Outcome::error);
  facts.usable = Status(Code::refused, "other users may write to the runtime folder");
  EXPECT_THAT(check_runtime_folder(facts).measured, HasSubstr("other users may write"));
}

TEST(DoctorUse, OfTheRootByAnotherJobIsAnError) {
  UseFacts facts;
  EXPECT_EQ(check_use(facts).outcome, Outcome::skipped);
  facts.holds_run = true;
  EXPECT_EQ(check_use(facts).outcome, Outcome::ok);
  facts.other_run = Status(Code::refused, "job 'a' is running on /ckpt/run7");
  EXPECT_EQ(check_use(facts).outcome, Outcome::error);
}

TEST(DoctorVersions, ThatDifferAreAWarning) {
  VersionFacts facts{"0.1.0 (build 1)", "0.1.0", "", ""};
  EXPECT_EQ(check_versions(facts).outcome, Outcome::ok);
  facts.python = "0.2.0";
  EXPECT_EQ(check_versions(facts).outcome, Outcome::warning);
}

TEST(DoctorGpu, IsSkippedWithoutADriverAndAWarningIfTheDriverCannotBeUsed) {
  GpuFacts facts{"not built in", "", Status(Code::unavailable, "built without CUDA")};
  EXPECT_EQ(check_gpu(facts).outcome, Outcome::skipped);
  facts.driver = "NVRM version: 550";
  EXPECT_EQ(check_gpu(facts).outcome, Outcome::warning);
  facts.usable = ok_status();
  EXPECT_EQ(check_gpu(facts).outcome, Outcome::ok);
}

class DoctorSettings : public ::testing::Test {
 protected:
  Findings check(const std::map<std::string, std::string>& variables,
                 const std::vector<std::string>& unknown = {}) {
    local::Settings settings;
    auto value_of = [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    return check_settings(root_.path(), value_of, unknown, &settings);
  }
  TemporaryFolder root_;
};

TEST_F(DoctorSettings, EachWrongVariableIsNamed) {
  const Findings findings =
      check({{"SHOAL_KEEP_LAST", "many"}, {"SHOAL_PORTS", "x"}, {"SHOAL_KEEP_FOR", "7d"}});
  ASSERT_EQ(findings.size(), 2u);
  std::string all;
  for (const Finding& each : findings) {
    EXPECT_EQ(each.outcome, Outcome::error);
    all += each.measured + "\n";
  }
  EXPECT_THAT(all, HasSubstr("SHOAL_KEEP_LAST"));
  EXPECT_THAT(all, HasSubstr("SHOAL_PORTS"));
}

TEST_F(DoctorSettings, AnUnknownVariableIsAWarningWithASuggestion) {
  const Findings findings = check({}, {"SHOAL_KEEP_LATS"});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].outcome, Outcome::warning);
  EXPECT_EQ(findings[0].remedy, "did you mean SHOAL_KEEP_LAST?");
}

TEST_F(DoctorSettings, AnUnknownKeyOfTheFileNamesLineAndSuggestion) {
  std::ofstream(root_.path() + "/shoal.toml") << "keep-last = 5\nload-memroy = \"1 GiB\"\n";
  const Findings findings = check({});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].outcome, Outcome::error);
  EXPECT_THAT(findings[0].measured, HasSubstr("shoal.toml:2"));
  EXPECT_THAT(findings[0].measured, HasSubstr("did you mean 'load-memory'?"));
}

TEST_F(DoctorSettings, ThatAreValidAreListedWithTheirSource) {
  const Findings findings = check({{"SHOAL_KEEP_LAST", "5"}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].outcome, Outcome::ok);
  EXPECT_THAT(findings[0].measured, HasSubstr("keep-last 5 (SHOAL_KEEP_LAST)"));
}

TEST(DoctorFindings, AreAsBadAsTheWorst) {
  EXPECT_EQ(worst_of({found_ok("a", ""), found_skipped("b", "")}), Outcome::ok);
  EXPECT_EQ(worst_of({found_warning("a", "", ""), found_ok("b", "")}), Outcome::warning);
  EXPECT_EQ(worst_of({found_error("a", "", ""), found_warning("b", "", "")}), Outcome::error);
}

}  // namespace
}  // namespace shoal::cli
