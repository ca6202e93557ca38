#include "client/staging/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "client/staging/slab.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

class MemoryBudget : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(folder_.folder()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  base::MemoryFiles files() const {
    return {folder_.folder() + "/cgroup", folder_.folder() + "/own", folder_.folder() + "/meminfo"};
  }
  TemporaryRoot folder_;
};

TEST_F(MemoryBudget, IsTheLeastAlongThePathOfTheCgroup) {
  write("own", "0::/slice/job\n");
  write("meminfo", "MemTotal: 64 kB\nMemAvailable:   1048576 kB\n");
  write("cgroup/slice/job/memory.max", "max\n");
  write("cgroup/slice/job/memory.current", "1000\n");
  write("cgroup/slice/memory.max", "10485760\n");
  write("cgroup/slice/memory.current", "8388608\n");
  EXPECT_EQ(base::memory_headroom(files()).bytes, 2u << 20);
  write("cgroup/slice/memory.stat", "anon 5\ninactive_file 1048576\n");
  EXPECT_EQ(base::memory_headroom(files()).bytes, 3u << 20);
  EXPECT_TRUE(check_budget(3 << 20, 0, 0, files()).ok());
  Status over = check_budget((3 << 20) + 1, 4096, 0, files());
  EXPECT_EQ(over.code(), Code::no_space);
  EXPECT_THAT(over.message(), HasSubstr("memory.max of cgroup /slice is 10.0 MiB, and 7.00 MiB are used"));
}

TEST_F(MemoryBudget, KnowsTheFirstVersionOfCgroups) {
  write("own", "4:cpu,memory:/job\n0::/\n");
  write("meminfo", "MemAvailable: 1048576 kB\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "4194304\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "1048576\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "99\n");
  EXPECT_EQ(base::memory_headroom(files()).bytes, 3u << 20);
}

TEST_F(MemoryBudget, IsWhatTheMachineHasWhereNoCgroupLimitsIt) {
  write("meminfo", "MemAvailable: 2048 kB\n");
  EXPECT_EQ(base::memory_headroom(files()).bytes, 2u << 20);
  EXPECT_EQ(check_budget(1, 0, 0, {"/absent", "/absent", "/absent"}), ok_status());
}

TEST_F(MemoryBudget, GivenByTheCallerRulesAlone) {
  write("meminfo", "MemAvailable: 1 kB\n");
  EXPECT_TRUE(check_budget(100, 50, 150, files()).ok());
  EXPECT_EQ(check_budget(101, 50, 150, files()).code(), Code::no_space);
  EXPECT_EQ(check_budget(UINT64_MAX, 1, UINT64_MAX, files()).code(), Code::no_space);
}

TEST(MemorySlab, IsSealedAndOfAWholeNumberOfHugePages) {
  EXPECT_EQ(slab_bytes_for(0), 2u << 20);
  EXPECT_EQ(slab_bytes_for((2 << 20) + 1), 4u << 20);
  EXPECT_EQ(slab_bytes_for(uint64_t{1} << 40) % (2 << 20), 0u);
  MemorySlab slab = MemorySlab::make(2 << 20).value();
  EXPECT_TRUE(local::check_slab(slab.fd(), 2 << 20).ok());
  EXPECT_NE(::ftruncate(slab.fd(), 0), 0);
  EXPECT_EQ(MemorySlab::make(local::kMaxSlabBytes + 1).status().code(), Code::too_large);
}

// Regression: the kernel ended the trainer with SIGXFSZ.
TEST(Slab, BeyondTheLimitOfTheSizeOfFilesIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit lower{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &lower), 0);
  const Status refused = MemorySlab::make(2 << 20).status();
  const Status fits = MemorySlab::make(1 << 20).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(refused.code(), Code::no_space);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("ulimit -f"));
  EXPECT_TRUE(fits.ok()) << fits.to_string();
}

}  // namespace
}  // namespace shoal::client
