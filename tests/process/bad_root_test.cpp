// Roots that fail under a running job: moved, replaced, removed, full, not writable. Each error names the
// root. No save is reported as committed that is not in the root, and a root that works again is used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class RootUnderAJob : public ::testing::Test {
 protected:
  void start(const std::string& job = "job-1") {
    node_ = std::make_unique<NodeChild>(
        scratch_.host("a"), std::vector<std::string>{"root=" + scratch_.root(), "job=" + job, "world=1",
                                                     "attempt_deadline_ms=300", "node_deadline_ms=500"});
    ASSERT_NE(node_->address(), "");
    trainer_ = std::make_unique<Trainer>(scratch_, "a", 0, 1, job);
    ASSERT_TRUE(trainer_->opened.ok()) << trainer_->opened.status().to_string();
  }
  // The outcome of one save: OK if committed.
  Status outcome_of(uint64_t step) {
    auto saved = trainer_->save(step);
    return saved.ok() ? saved->wait_committed(kPatience).status() : saved.status();
  }
  void expect_error_naming_the_root(const Status& status) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), Code::deadline_exceeded) << "nobody waits for ever: " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(scratch_.root()));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }
  static size_t manifests_in(const std::string& root) {
    size_t found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.path().filename() == "manifest.shoal") ++found;
    }
    return found;
  }

  Scratch scratch_;
  std::unique_ptr<NodeChild> node_;
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(RootUnderAJob, ThatIsMovedAwayFailsSavesByNameUntilItIsBack) {
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  const std::string away = scratch_.file("away");
  fs::rename(scratch_.root(), away);
  expect_error_naming_the_root(outcome_of(2));
  EXPECT_EQ(manifests_in(away), 1u) << "nothing is committed where nobody looks for it";
  fs::rename(away, scratch_.root());
  EXPECT_TRUE(outcome_of(3).ok());
}

TEST_F(RootUnderAJob, ThatIsReplacedByAnotherFolderFailsSavesByName) {
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  const std::string away = scratch_.file("away");
  fs::rename(scratch_.root(), away);
  fs::create_directory(scratch_.root());  // as an empty mount point
  Status status = outcome_of(2);
  expect_error_naming_the_root(status);
  EXPECT_TRUE(fs::is_empty(scratch_.root())) << "a stranger's folder stays as it is";
  EXPECT_EQ(manifests_in(away), 1u);
  fs::remove(scratch_.root());
  fs::copy(away, scratch_.root(), fs::copy_options::recursive);  // with the same ROOT_ID
  expect_error_naming_the_root(outcome_of(3));
}

TEST_F(RootUnderAJob, ThatIsRemovedFailsSavesByNameAndTheNodeLivesOn) {
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  fs::remove_all(scratch_.root());
  expect_error_naming_the_root(outcome_of(2));
  expect_error_naming_the_root(outcome_of(3));
  EXPECT_FALSE(trainer_->checkpointer().load(trainer_->state).ok());
  trainer_.reset();
  node_->signal(SIGTERM);
  EXPECT_TRUE(node_->wait().has_value());
}

// Regression: saves were still committed there, and no job loaded them until a user ran `restore-id`.
TEST_F(RootUnderAJob, ThatLosesItsRecordsHasThemAgainAfterTheNextCommit) {
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  uint64_t step = 1;
  const std::vector<std::vector<std::string>> losses = {
      {"ROOT_ID"}, {"epochs"}, {"generations"}, {"ROOT_ID", "epochs", "generations"}};
  const std::vector<std::string> records = {"/ROOT_ID", "/epochs/1", "/generations/1"};
  std::vector<std::string> before;
  for (const std::string& record : records) before.push_back(read_file(scratch_.root() + record));
  for (const auto& lost : losses) {
    for (const std::string& each : lost) ASSERT_GT(fs::remove_all(scratch_.root() + "/" + each), 0u);
    const Status outcome = outcome_of(++step);
    EXPECT_TRUE(outcome.ok()) << lost.front() << ": " << outcome.to_string();
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(read_file(scratch_.root() + records[i]), before[i]) << records[i];
    }
  }
  trainer_.reset();
  node_->signal(SIGTERM);
  ASSERT_EQ(node_->wait(), 0);
  start("job-2");
  auto loaded = trainer_->checkpointer().load(trainer_->state);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->metadata.key.step, step);
}

TEST_F(RootUnderAJob, WhoseRecordsAreAnotherRunsRefusesSavesByName) {
  Scratch other;
  {
    NodeChild node(other.host("a"), {"root=" + other.root(), "job=another", "world=1"});
    ASSERT_NE(node.address(), "");
  }
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  uint64_t step = 1;
  for (const char* record : {"/ROOT_ID", "/generations/1", "/epochs/1"}) {
    const std::string path = scratch_.root() + record, aside = scratch_.file("aside");
    fs::rename(path, aside);
    fs::copy(other.root() + record, path);
    const Status outcome = outcome_of(++step);
    expect_error_naming_the_root(outcome);
    EXPECT_THAT(outcome.message(), HasSubstr(record));
    fs::rename(aside, path);
  }
  EXPECT_TRUE(outcome_of(++step).ok());
}

TEST_F(RootUnderAJob, ThatIsFullFailsSavesByNameAndTakesThemAgainWhenThereIsRoom) {
  if (mount("tmpfs", scratch_.root().c_str(), "tmpfs", 0, "size=512k") != 0) {
    GTEST_SKIP() << "no permission to mount a small tmpfs";
  }
  start();
  EXPECT_TRUE(outcome_of(1).ok());
  const std::string filler = scratch_.root() + "/filler";
  {
    std::ofstream file(filler);
    const std::string block(4096, 'f');
    while (file.write(block.data(), 4096).flush()) {
    }
  }
  Status status = outcome_of(2);
  expect_error_naming_the_root(status);
  EXPECT_THAT(status.message(), AnyOf(HasSubstr("no space"), HasSubstr("No space"), HasSubstr("left")));
  fs::remove(filler);
  EXPECT_TRUE(outcome_of(3).ok());
  trainer_->forget();
  auto loaded = trainer_->checkpointer().load(trainer_->state);
  EXPECT_TRUE(loaded.ok() && trainer_->holds(3)) << loaded.status().to_string();
  trainer_.reset();
  node_.reset();
  EXPECT_EQ(umount2(scratch_.root().c_str(), MNT_DETACH), 0);
}

TEST_F(RootUnderAJob, ThatIsUnmountedFailsSavesByName) {
  if (mount("tmpfs", scratch_.root().c_str(), "tmpfs", 0, "size=4m") != 0) {
    GTEST_SKIP() << "no permission to mount a tmpfs";
  }
  start();
  ASSERT_TRUE(outcome_of(1).ok());
  ASSERT_EQ(umount2(scratch_.root().c_str(), MNT_DETACH), 0);
  expect_error_naming_the_root(outcome_of(2));
  EXPECT_TRUE(fs::is_empty(scratch_.root()));
}

TEST(BadRoot, ThatIsAFileIsRefusedByName) {
  Scratch scratch;
  std::ofstream(scratch.file("file")) << "no folder";
  NodeChild node(scratch.host("a"), {"root=" + scratch.file("file"), "job=job-1"});
  EXPECT_THAT(node.first_line(), HasSubstr(scratch.file("file")));
  EXPECT_EQ(node.wait(), 1);
}

// A root that this process owns, for a user that may only read it: another user, or this one if the test is
// not root.
class ReadOnlyRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) return;
    ASSERT_EQ(chmod(fs::path(scratch_.root()).parent_path().c_str(), 0755), 0);
    ASSERT_EQ(chown(scratch_.host("a").c_str(), 65534, 65534), 0);
  }
  // The exit status of a child process that runs as that user.
  void expect_of_reader(const std::function<bool()>& holds) {
    ASSERT_EQ(chmod(scratch_.root().c_str(), geteuid() == 0 ? 0755 : 0555), 0);
    pid_t child = fork();
    if (child == 0) {
      if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(77);
      _exit(holds() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(chmod(scratch_.root().c_str(), 0755), 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "cannot become another user";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  Scratch scratch_;
};

TEST_F(ReadOnlyRoot, RefusesANodeByNameAndWithWhatItNeeds) {
  auto refuses_naming = [this](const std::string& what) {
    return [this, what] {
      NodeChild node(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1"});
      std::string line = node.first_line();
      bool is_notified = line.find(scratch_.root()) != std::string::npos &&
                         line.find("not writable") != std::string::npos &&
                         line.find(what) != std::string::npos && node.wait() == 1;
      if (!is_notified) fprintf(stderr, "%s\n", line.c_str());
      return is_notified;
    };
  };
  expect_of_reader(refuses_naming("ROOT_ID"));
  {
    NodeChild owner(scratch_.host("b"), {"root=" + scratch_.root(), "job=job-0"});
    ASSERT_NE(owner.address(), "");
  }
  ASSERT_EQ(chmod((scratch_.root() + "/probes").c_str(), geteuid() == 0 ? 0755 : 0555), 0);
  expect_of_reader(refuses_naming("probes, epochs, generations and pins"));
}

TEST_F(ReadOnlyRoot, IsLoadedFromWhereTheFoldersOfClaimsAreWritable) {
  {
    NodeChild node(scratch_.host("b"), {"root=" + scratch_.root(), "job=job-1", "world=1"});
    ASSERT_NE(node.address(), "");
    Trainer trainer(scratch_, "b", 0, 1);
    ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
    auto saved = trainer.save(1);
    ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
  }
  for (const char* folder : {"probes", "epochs", "generations", "pins"}) {
    const std::string path = scratch_.root() + "/" + folder;
    fs::create_directories(path);
    ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  }
  expect_of_reader([this] {
    NodeChild node(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-2", "world=1"});
    if (node.address().empty()) return false;
    Trainer trainer(scratch_, "a", 0, 1, "job-2");
    if (!trainer.opened.ok()) return false;
    auto loaded = trainer.checkpointer().load(trainer.state);
    if (!loaded.ok()) fprintf(stderr, "%s\n", loaded.status().to_string().c_str());
    return loaded.ok() && trainer.holds(1);
  });
}

}  // namespace
}  // namespace shoal::testing
