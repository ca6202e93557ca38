// The job that the variables of launchers describe, with variables as these launchers set them.
#include "client/launch/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "client/launch/own_address.h"
#include "shoal/checkpointer.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Launcher = JobEnvironment::Launcher;
using Map = std::map<std::string, std::string>;

Result<JobEnvironment> read(const Map& map) {
  return read_job_environment([&](const char* name) -> std::optional<std::string> {
    auto found = map.find(name);
    return found == map.end() ? std::nullopt : std::optional(found->second);
  });
}

Map operator+(Map map, const Map& more) {
  for (const auto& [name, value] : more) map[name] = value;
  return map;
}

std::string error_of(const Map& map) {
  return read(map).status().message();
}

// torchrun 2.13, second host of two with four workers each.
const Map kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"GROUP_RANK", "1"},
                       {"GROUP_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "n1.cluster"},
                       {"MASTER_PORT", "41231"},
                       {"TORCHELASTIC_RUN_ID", "run7"},
                       {"TORCHELASTIC_RESTART_COUNT", "0"}};
// Open MPI 4.1, two hosts with two ranks each.
const Map kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "235143169"},
                      {"PMIX_RANK", "2"},
                      {"OMPI_MCA_orte_precondition_transports", "94dd5926acdd8a17-7eafe1ed9df92b1d"}};
// Slurm 22.05, srun -N2 -n4.
const Map kSlurm = {{"SLURM_PROCID", "3"},        {"SLURM_NTASKS", "4"},
                    {"SLURM_LOCALID", "1"},       {"SLURM_NODEID", "1"},
                    {"SLURM_JOB_ID", "812"},      {"SLURM_STEP_ID", "2"},
                    {"SLURM_NNODES", "2"},        {"SLURM_STEP_NUM_NODES", "2"},
                    {"SLURMD_NODENAME", "gpu02"}, {"SLURM_STEP_NODELIST", "gpu[01-02]"}};

TEST(JobEnvironment, OfNoLauncherIsOneRank) {
  auto job = read({});
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->launcher, Launcher::none);
  EXPECT_EQ(job->world_size, 1u);
  EXPECT_EQ(job->job_id, "");
  EXPECT_EQ(job->coordinator, "");
}

TEST(JobEnvironment, OfTorchrunHasItsJobIdMadeByRank0) {
  auto job = read(kTorchrun);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->launcher, Launcher::torchrun);
  EXPECT_EQ(job->rank, 5u);
  EXPECT_EQ(job->world_size, 8u);
  EXPECT_EQ(job->job_id, "") << "neither the run's id nor the restart count is new for each rendezvous";
  EXPECT_TRUE(job->mints_job_id);
  EXPECT_EQ(job->coordinator, "n1.cluster:7070");
  EXPECT_EQ(job->coordinates, false);
  EXPECT_EQ(read(kTorchrun + Map{{"GROUP_RANK", "0"}})->coordinates, true);
}

TEST(JobEnvironment, KnowsHowManyRanksAreOnThisHost) {
  EXPECT_EQ(read(kTorchrun)->ranks_on_host, 4u);
  EXPECT_EQ(read(kOpenMpi + Map{{"MASTER_ADDR", "n1"}})->ranks_on_host, 2u);
  EXPECT_EQ(read({})->ranks_on_host, 1u);
  EXPECT_EQ(read(kSlurm)->ranks_on_host, std::nullopt);
  const Map slurm = kSlurm + Map{{"SLURM_TASKS_PER_NODE", "8(x2)"}};
  EXPECT_EQ(read(slurm)->ranks_on_host, 8u);
  EXPECT_EQ(read(slurm + Map{{"SLURM_STEP_TASKS_PER_NODE", "3,1"}})->ranks_on_host, 1u)
      << "of the step, on its second host";
  EXPECT_EQ(read(slurm + kTorchrun)->ranks_on_host, 4u);
  EXPECT_EQ(read(kTorchrun + Map{{"LOCAL_WORLD_SIZE", "0"}})->ranks_on_host, std::nullopt);
}

TEST(JobEnvironment, OfOneHostNeedsNoCoordinator) {
  auto torchrun = read(kTorchrun + Map{{"LOCAL_WORLD_SIZE", "8"}});
  EXPECT_EQ(torchrun->coordinator, "");
  EXPECT_TRUE(torchrun->mints_job_id);
  EXPECT_EQ(read(kOpenMpi + Map{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"MASTER_ADDR", "n1"}})->coordinator,
            "");
  EXPECT_EQ(read(kSlurm + Map{{"SLURM_STEP_NUM_NODES", "1"}})->coordinator, "");
}

TEST(JobEnvironment, RanksThatMeetOnTheLoopbackAreOnOneHost) {
  const Map spawned = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"SHOAL_JOB_ID", "job"}};  // torch.multiprocessing
  for (const char* loopback : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    auto job = read(spawned + Map{{"MASTER_ADDR", loopback}});
    EXPECT_EQ(job->is_one_host, true) << loopback;
    EXPECT_EQ(job->ranks_on_host, 2u) << loopback;
    EXPECT_EQ(job->coordinator, "") << loopback;
  }
  EXPECT_EQ(read(spawned + Map{{"MASTER_ADDR", "n1"}})->is_one_host, std::nullopt);
  EXPECT_EQ(read(spawned + Map{{"MASTER_ADDR", "127.example.org"}})->is_one_host, std::nullopt);
  EXPECT_EQ(read(spawned + Map{{"MASTER_ADDR", "localhost"}, {"NODE_RANK", "1"}})->is_one_host, std::nullopt)
      << "a host with a number: the launcher knows of several";
  EXPECT_EQ(read(spawned + Map{{"MASTER_ADDR", "localhost"}, {"LOCAL_WORLD_SIZE", "1"}})->is_one_host, false);
}

TEST(JobEnvironment, OfOpenMpiIsKnownByItsNamespaceAndRandomKey) {
  EXPECT_THAT(error_of(kOpenMpi), HasSubstr("SHOAL_COORDINATOR"))
      << "mpirun does not say which host rank 0 is on";
  auto job = read(kOpenMpi + Map{{"MASTER_ADDR", "n1"}});
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->rank, 2u);
  EXPECT_EQ(job->job_id, "pmix-235143169-94dd5926acdd8a17-7eafe1ed9df92b1d");
  EXPECT_EQ(job->coordinator, "n1:7070");
  EXPECT_EQ(job->coordinates, std::nullopt) << "it is so where n1 is this host";
  Map without = kOpenMpi;
  without.erase("PMIX_NAMESPACE");
  EXPECT_THAT(error_of(without), HasSubstr("PMIX_NAMESPACE"));
}

TEST(JobEnvironment, OfOpenMpiInsideSlurmDoesNotTakeTheStepOfItsDaemon) {
  auto job = read(kSlurm + kOpenMpi + Map{{"MASTER_ADDR", "n1"}});
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->launcher, Launcher::open_mpi);
  EXPECT_EQ(job->rank, 2u);
  EXPECT_THAT(job->job_id, StartsWith("pmix-235143169-"));
  EXPECT_THAT(job->job_id, ::testing::EndsWith("-slurm-812-0"));
}

TEST(JobEnvironment, OfSlurmCoordinatesOnTheFirstHostOfItsStep) {
  auto job = read(kSlurm);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->rank, 3u);
  EXPECT_EQ(job->world_size, 4u);
  EXPECT_EQ(job->job_id, "slurm-812-2-0");
  EXPECT_EQ(job->coordinator, "gpu01:7070");
  EXPECT_EQ(job->coordinates, false);
  EXPECT_EQ(job->node_name, "gpu02");
  EXPECT_EQ(read(kSlurm + Map{{"SLURM_NODEID", "0"}})->coordinates, true);
  EXPECT_EQ(read(kSlurm + Map{{"SLURM_RESTART_COUNT", "1"}})->job_id, "slurm-812-2-1") << "requeued";
  EXPECT_THAT(error_of(kSlurm + Map{{"SLURM_STEP_NODELIST", "gpu[01-"}}), HasSubstr("SLURM_STEP_NODELIST"));
  Map without = kSlurm;
  without.erase("SLURM_JOB_ID");
  EXPECT_THAT(error_of(without), HasSubstr("SLURM_JOB_ID"));
}

TEST(JobEnvironment, TakesTheCoordinatorFromItsVariableThenMasterAddrThenSlurm) {
  Map both = kSlurm + Map{{"MASTER_ADDR", "n5"}};
  EXPECT_EQ(read(both)->coordinator, "n5:7070");
  EXPECT_EQ(read(both)->coordinates, std::nullopt) << "n5 need not be Slurm's first host";
  EXPECT_EQ(read(both + Map{{"SHOAL_COORDINATOR", "n9:1234"}})->coordinator, "n9:1234");
  EXPECT_EQ(read(kSlurm + Map{{"SHOAL_COORDINATOR", ":1234"}})->coordinator, "gpu01:1234");
  EXPECT_EQ(read(kTorchrun + Map{{"SHOAL_COORDINATOR", ":1234"}})->coordinator, "n1.cluster:1234");
  EXPECT_EQ(read(Map{{"SHOAL_COORDINATOR", "n9:1"}})->coordinator, "n9:1") << "said, even for one rank";
  EXPECT_EQ(read(both + Map{{"SHOAL_COORDINATOR", "[fe80::9]:1234"}})->coordinator, "[fe80::9]:1234");
  EXPECT_EQ(read(kTorchrun + Map{{"MASTER_ADDR", "fe80::9"}})->coordinator, "[fe80::9]:7070");
  for (const char* bad : {"n9", "n9:", "n9:65536", ":x", "fe80::9:1234"}) {
    EXPECT_THAT(error_of(both + Map{{"SHOAL_COORDINATOR", bad}}), HasSubstr("HOST:PORT")) << bad;
  }
}

TEST(JobEnvironment, OfTorchrunStartedBySlurmIsTorchruns) {
  auto job = read(kSlurm + kTorchrun);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->rank, 5u);
  EXPECT_TRUE(job->mints_job_id) << "the step outlives a rendezvous";
  EXPECT_EQ(job->coordinates, false);
}

TEST(JobEnvironment, PrefersAJobIdThatIsGiven) {
  for (const Map& launcher : {kTorchrun, kSlurm, kOpenMpi + Map{{"MASTER_ADDR", "n1"}}}) {
    auto job = read(launcher + Map{{"SHOAL_JOB_ID", "mine-1"}});
    ASSERT_TRUE(job.ok());
    EXPECT_EQ(job->job_id, "mine-1");
    EXPECT_FALSE(job->mints_job_id);
  }
}

TEST(JobEnvironment, RefusesSeveralRanksWithoutAJobId) {
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("SHOAL_JOB_ID is not set"));
  EXPECT_THAT(error_of({{"RANK", "0"}}), HasSubstr("WORLD_SIZE is not set"));
  EXPECT_THAT(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("RANK is 2"));
}

TEST(JobEnvironment, SaysThatAJobOnlyReads) {
  auto read_only = [](const std::string& value) {
    return read_only_of([&](const char*) { return value.empty() ? std::nullopt : std::optional(value); });
  };
  EXPECT_FALSE(*read_only(""));
  EXPECT_FALSE(*read_only("0"));
  EXPECT_TRUE(*read_only("1"));
  EXPECT_THAT(read_only("yes").status().message(), HasSubstr("SHOAL_READ_ONLY is 'yes': it must be 0 or 1"));
}

TEST(OwnAddress, KnowsThisHostFromOthers) {
  EXPECT_EQ(own_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(own_address("localhost"), "127.0.0.1");
  EXPECT_EQ(own_address("203.0.113.77"), std::nullopt) << "an address for documentation, nobody's";
  EXPECT_EQ(own_address("no-such-host.invalid"), std::nullopt);
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
  EXPECT_TRUE(own_address(name).has_value()) << name;
}

}  // namespace
}  // namespace shoal::client
