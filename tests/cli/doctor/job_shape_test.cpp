// The job that `shoal doctor` derives from options and from a launcher's variables.
#include "cli/doctor/job_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<ShapedJob> shape(const JobOptions& options, const std::map<std::string, std::string>& variables = {}) {
  return shape_job(options, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

const std::map<std::string, std::string> kStep = {
    {"SLURM_PROCID", "9"},         {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"},
    {"SLURM_STEP_ID", "0"},        {"SLURM_NODEID", "1"},  {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"},
    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "n[0-1]"}};

TEST(DoctorJob, IsOneRankOnOneHostWithoutAnyStatement) {
  const auto job = shape({});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->shape.hosts, 1u);
  EXPECT_EQ(job->shape.ranks_here, 1u);
  EXPECT_FALSE(job->has_launcher);
  EXPECT_TRUE(job->is_first_here);
}

TEST(DoctorJob, TakesHostsRanksAndCoordinatorFromSlurm) {
  const auto job = shape({}, kStep);
  ASSERT_TRUE(job.ok());
  EXPECT_TRUE(job->variables.ok()) << job->variables.to_string();
  EXPECT_EQ(job->shape.hosts, 2u);
  EXPECT_EQ(job->shape.ranks_here, 8u);
  EXPECT_EQ(job->shape.coordinator, "n0:7070");
  EXPECT_EQ(job->shape.coordinates_here, false);
  EXPECT_TRUE(job->has_launcher);
  EXPECT_FALSE(job->is_first_here);
  EXPECT_EQ(job->on_each_host, "srun --ntasks-per-node=1");
}

TEST(DoctorJob, KnowsHowItsLauncherStartsOneProcessAHost) {
  const auto job = shape({}, {{"TORCHELASTIC_RUN_ID", "a"},
                              {"RANK", "0"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"GROUP_RANK", "0"},
                              {"MASTER_ADDR", "n0"}});
  ASSERT_TRUE(job.ok());
  EXPECT_TRUE(job->variables.ok()) << job->variables.to_string();
  EXPECT_EQ(job->on_each_host, "torchrun --nproc-per-node 1 --no-python");
  EXPECT_EQ(job->shape.hosts, 2u);
  EXPECT_TRUE(job->shape.serves_job_id);
}

TEST(DoctorJob, OptionsComeBeforeVariables) {
  JobOptions options;
  options.ranks = 4;
  options.hosts = "64";
  options.staged = "2GiB";
  options.coordinator = "a:7170";
  const auto job = shape(options, kStep);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->shape.ranks_here, 4u);
  EXPECT_EQ(job->shape.hosts, 64u);
  EXPECT_EQ(job->shape.staged_bytes, uint64_t{2} << 30);
  EXPECT_EQ(job->shape.coordinator, "a:7170");
}

TEST(DoctorJob, VariablesThatCannotStartAJobAreReported) {
  const auto job = shape({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  ASSERT_TRUE(job.ok());
  EXPECT_THAT(job->variables.message(), HasSubstr("SHOAL_JOB_ID is not set"));
}

TEST(DoctorJob, HostsAreANumberNamesOrAFile) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/hosts";
  std::ofstream(file) << "# hosts of the job\nn0 slots=8\n\nn1 slots=8\n";
  JobOptions options;
  options.hosts = file;
  ASSERT_TRUE(shape(options).ok());
  EXPECT_THAT(shape(options)->shape.host_names, ElementsAre("n0", "n1"));
  options.hosts = "n0,n1,n2";
  EXPECT_EQ(shape(options)->shape.hosts, 3u);
  for (const char* wrong : {"0", "/no/such/file", ","}) {
    options.hosts = wrong;
    EXPECT_EQ(shape(options).status().code(), Code::invalid_argument) << wrong;
  }
  options.hosts = "2";
  options.staged = "much";
  EXPECT_THAT(shape(options).status().message(), HasSubstr("--staged"));
}

}  // namespace
}  // namespace shoal::cli
