// A job under the limits of containers: 64 MB of /dev/shm, a read-only home, no root user, and separate PID
// namespaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Makes the container's file systems, checks that they are as small and as restricted as they should be, then
// runs the command, as user `nobody` if the test is root.
constexpr const char* kContainer = R"(
set -e
mount -t tmpfs -o size=64m tmpfs /dev/shm
mkdir "$FOLDER/home"
mount -t tmpfs -o ro tmpfs "$FOLDER/home"
HOME=$FOLDER/home; export HOME
if touch "$HOME/file" 2>/dev/null; then echo 'the home can be written' >&2; exit 99; fi
chmod 777 "$FOLDER"
if test "$AS_NOBODY" = 1; then
  exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "$@"
fi
exec "$@"
)";

class ContainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ProcessEnd probe = in_namespaces({"/bin/sh", "-c", "mount -t tmpfs tmpfs /dev/shm"});
    if (probe.status != 0) GTEST_SKIP() << "no mount and PID namespaces here: " << probe.err;
    if (is_root() && run_process({"/usr/bin/env", "setpriv", "--reuid", "65534", "/bin/true"}).status != 0) {
      GTEST_SKIP() << "no setpriv here";
    }
  }
  static bool is_root() { return geteuid() == 0; }
  static std::vector<std::string> unshare() {
    std::vector<std::string> out = {"/usr/bin/env", "unshare", "--mount", "--pid", "--fork", "--mount-proc"};
    if (!is_root()) out.insert(out.begin() + 2, {"--user", "--map-root-user"});
    return out;
  }
  ProcessEnd in_namespaces(const std::vector<std::string>& command) const {
    std::vector<std::string> all = unshare();
    all.insert(all.end(), command.begin(), command.end());
    return run_process(all, options());
  }
  ProcessOptions options() const {
    return {.environment = {{"SHOAL_RUNTIME_DIR", folder_.path() + "/runtime"},
                            {"FOLDER", folder_.path()},
                            {"AS_NOBODY", is_root() ? "1" : "0"}}};
  }
  // About 74 MB a save: each rank's two slabs hold as much as the container's /dev/shm.
  std::vector<std::string> job(const std::vector<std::string>& before_trainer,
                               const std::vector<std::string>& arguments) const {
    std::vector<std::string> out = {SHOAL_PROGRAM, "launch", "--root", folder_.path() + "/root",
                                    "--create",    "-n",     "2",      "--"};
    out.insert(out.end(), before_trainer.begin(), before_trainer.end());
    out.insert(out.end(),
               {SHOAL_TRAINER, "--layers", "2", "--hidden", "256", "--vocab", "18000", "--context", "64"});
    out.insert(out.end(), arguments.begin(), arguments.end());
    return out;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(ContainerTest, AJobNeedsNoSharedMemoryFolderNoHomeAndNoRoot) {
  std::vector<std::string> command = {"/bin/sh", "-c", kContainer, "container"};
  for (std::string& word : job({}, {"--save-steps", "1-3"})) command.push_back(std::move(word));
  ProcessEnd saved = in_namespaces(command);
  EXPECT_EQ(saved.status, 0) << saved.err;
  EXPECT_THAT(saved.out, HasSubstr("step 3: committed"));
}

// What SO_PEERCRED says of a process in another PID namespace is 0, or nobody's number there.
TEST_F(ContainerTest, TrainersMayLiveInPidNamespacesOfTheirOwn) {
  std::vector<std::string> shut_in = unshare();
  ProcessEnd end = run_process(job(shut_in, {"--save-steps", "1-2"}), options());
  EXPECT_EQ(end.status, 0) << end.err;
  end = run_process(job(shut_in, {"--load", "latest"}), options());
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("loaded step 2"));
}

// Regression: the errors named a file, and neither its folder's lack of space nor what to do.
TEST_F(ContainerTest, ARuntimeFolderWithoutSpaceIsNamed) {
  constexpr const char* kToDo = "; free space there, or choose another runtime folder with SHOAL_RUNTIME_DIR";
  const auto with_runtime_folder = [this](const std::string& limit, const std::string& command) {
    const std::string script = "mkdir \"$SHOAL_RUNTIME_DIR\" && mount -t tmpfs -o mode=700," + limit +
                               " tmpfs \"$SHOAL_RUNTIME_DIR\" && mkdir -p \"$FOLDER/root\" && "
                               "{ cat /dev/zero > \"$SHOAL_RUNTIME_DIR/filler\"; " +
                               command +
                               "; status=$?; "
                               "umount \"$SHOAL_RUNTIME_DIR\"; rmdir \"$SHOAL_RUNTIME_DIR\"; exit $status; }";
    return in_namespaces({"/bin/sh", "-c", script});
  };
  const std::string program = SHOAL_PROGRAM, trainer = SHOAL_TRAINER;
  const std::string launch = program + " launch --root \"$FOLDER/root\" --create -- /bin/true";
  const ProcessEnd full = with_runtime_folder("size=4k", launch);
  EXPECT_NE(full.status, 0);
  EXPECT_THAT(full.err, AllOf(HasSubstr("cannot write the lock file "), HasSubstr(kToDo)));
  const ProcessEnd no_inode = with_runtime_folder("nr_inodes=2", launch);
  EXPECT_NE(no_inode.status, 0);
  EXPECT_THAT(no_inode.err, AllOf(HasSubstr(".saves, through which trainers"), HasSubstr(kToDo)));
  const ProcessEnd alone =
      with_runtime_folder("size=4k", "SHOAL_ATTACH_TIMEOUT_MS=1000 SHOAL_NODE_PROGRAM=" + program +
                                         " SHOAL_ROOT=\"$FOLDER/root\" " + trainer + " --save-steps 1");
  EXPECT_NE(alone.status, 0);
  EXPECT_THAT(alone.err, AllOf(HasSubstr("cannot be written: no space left on device"), HasSubstr(kToDo)));
}

}  // namespace
}  // namespace shoal::cli
