// The trials of `shoal doctor` in a root, on file systems that break what commits rely on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "cli/doctor/checks.h"
#include "cli/doctor/measure_facts.h"
#include "cli/interrupt.h"
#include "storage/files/posix_file_system.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// How a file system is broken. A function that is not set leaves the call to the disk.
struct Breaks {
  std::function<int(storage::OpenFolder& folder, const std::string& from, const std::string& to)> link;
  std::function<int()> write, sync;
};

class BrokenFile final : public storage::OpenFile {
 public:
  BrokenFile(std::unique_ptr<OpenFile> file, const Breaks& breaks)
      : file_(std::move(file)), breaks_(breaks) {}
  int size(uint64_t* bytes) override { return file_->size(bytes); }
  int read_at(uint64_t offset, MutableByteView out, size_t* done) override {
    return file_->read_at(offset, out, done);
  }
  int write_at(uint64_t offset, ByteView data, size_t* done) override {
    return breaks_.write ? breaks_.write() : file_->write_at(offset, data, done);
  }
  int sync() override { return breaks_.sync ? breaks_.sync() : file_->sync(); }
  void start_writeback(uint64_t, uint64_t) override {}

 private:
  std::unique_ptr<OpenFile> file_;
  const Breaks& breaks_;
};

class BrokenFolder final : public storage::OpenFolder {
 public:
  BrokenFolder(std::unique_ptr<OpenFolder> folder, const Breaks& breaks)
      : folder_(std::move(folder)), breaks_(breaks) {}
  int is_same(OpenFolder& other, bool* same) override {
    return folder_->is_same(*static_cast<BrokenFolder&>(other).folder_, same);
  }
  int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) override {
    const int number = folder_->open_folder(name, folder);
    if (number == 0) *folder = std::make_unique<BrokenFolder>(std::move(*folder), breaks_);
    return number;
  }
  int make_folder(const std::string& name) override { return folder_->make_folder(name); }
  int open_file(const std::string& name, std::unique_ptr<storage::OpenFile>* file) override {
    return folder_->open_file(name, file);
  }
  int create_file(const std::string& name, std::unique_ptr<storage::OpenFile>* file) override {
    const int number = folder_->create_file(name, file);
    if (number == 0) *file = std::make_unique<BrokenFile>(std::move(*file), breaks_);
    return number;
  }
  int link(const std::string& from, const std::string& to) override {
    return breaks_.link ? breaks_.link(*folder_, from, to) : folder_->link(from, to);
  }
  int rename(const std::string& from, const std::string& to) override { return folder_->rename(from, to); }
  int remove_file(const std::string& name) override { return folder_->remove_file(name); }
  int remove_folder(const std::string& name) override { return folder_->remove_folder(name); }
  int list(std::vector<storage::FolderEntry>* entries) override { return folder_->list(entries); }
  int sync() override { return folder_->sync(); }
  int free_space(uint64_t* bytes) override { return folder_->free_space(bytes); }

 private:
  std::unique_ptr<OpenFolder> folder_;
  const Breaks& breaks_;
};

class BrokenDisk final : public storage::FileSystem {
 public:
  explicit BrokenDisk(Breaks breaks) : breaks_(std::move(breaks)) {}
  int open_root(const std::string& path, std::unique_ptr<storage::OpenFolder>* folder) override {
    const int number = disk_.open_root(path, folder);
    if (number == 0) *folder = std::make_unique<BrokenFolder>(std::move(*folder), breaks_);
    return number;
  }

 private:
  storage::PosixFileSystem disk_;
  const Breaks breaks_;
};

Finding creation_of(const RootFacts& facts) {
  for (const Finding& each : check_root(facts, {})) {
    if (each.check == "creation") return each;
  }
  return found_skipped("creation", "there is no such finding");
}

class DoctorTrials : public ::testing::Test {
 protected:
  RootFacts measure(Breaks breaks) {
    BrokenDisk disk(std::move(breaks));
    RootFacts facts = measure_root(root_.path(), disk, [] { return false; });
    EXPECT_TRUE(fs::is_empty(root_.path()));
    return facts;
  }
  TemporaryFolder root_;
};

TEST_F(DoctorTrials, SucceedOnASoundDiskAndLeaveNothing) {
  const RootFacts facts = measure({});
  EXPECT_TRUE(facts.exists);
  EXPECT_TRUE(facts.usable.ok());
  EXPECT_EQ(facts.identity.code(), Code::not_found);
  EXPECT_EQ(creation_of(facts).outcome, Outcome::ok) << creation_of(facts).measured;
  EXPECT_GT(facts.rate.bytes, 0u);
  EXPECT_TRUE(facts.mount.has_value());
  ASSERT_TRUE(facts.space.has_value());
  EXPECT_GT(facts.space->bytes_free, 0u);
  // A disk of this host has its clock.
  EXPECT_EQ(facts.clock_ahead_ns, 0);
}

TEST_F(DoctorTrials, FindThatThereAreNoHardLinks) {
  const RootFacts facts =
      measure({.link = [](auto&, auto&, auto&) { return EPERM; }, .write = {}, .sync = {}});
  EXPECT_EQ(creation_of(facts).outcome, Outcome::error);
  EXPECT_THAT(creation_of(facts).measured, HasSubstr("cannot link"));
}

TEST_F(DoctorTrials, FindThatANameCanBeCreatedTwice) {
  // As on storage where creation replaces.
  const RootFacts facts =
      measure({.link =
                   [](storage::OpenFolder& folder, const std::string& from, const std::string& to) {
                     const int number = folder.link(from, to);
                     return number == EEXIST ? 0 : number;
                   },
               .write = {},
               .sync = {}});
  EXPECT_EQ(creation_of(facts).outcome, Outcome::error);
  EXPECT_THAT(creation_of(facts).measured, HasSubstr("creating the same name twice"));
}

TEST_F(DoctorTrials, FindThatRacingCreatorsBothSucceed) {
  // Only names of the race are created twice.
  const RootFacts facts =
      measure({.link =
                   [](storage::OpenFolder& folder, const std::string& from, const std::string& to) {
                     const int number = folder.link(from, to);
                     return to.starts_with("race-") && number == EEXIST ? 0 : number;
                   },
               .write = {},
               .sync = {}});
  EXPECT_TRUE(facts.probe.ok());
  EXPECT_EQ(facts.race.with_two_creators, facts.race.names);
  EXPECT_EQ(creation_of(facts).outcome, Outcome::error);
}

TEST_F(DoctorTrials, FindThatTheDiskIsFull) {
  const RootFacts facts = measure({.link = {}, .write = [] { return ENOSPC; }, .sync = {}});
  EXPECT_EQ(creation_of(facts).outcome, Outcome::error);
  EXPECT_EQ(creation_of(facts).remedy, "free some space");
}

TEST_F(DoctorTrials, FindThatFsyncFails) {
  const RootFacts facts = measure({.link = {}, .write = {}, .sync = [] { return EIO; }});
  EXPECT_EQ(creation_of(facts).outcome, Outcome::error);
}

TEST_F(DoctorTrials, LeaveNothingWhenTheyAreInterrupted) {
  const Interrupts interrupts;
  bool was_raised = false;
  BrokenDisk disk({.link =
                       [&](storage::OpenFolder& folder, const std::string& from, const std::string& to) {
                         if (!was_raised) std::raise(SIGINT);
                         was_raised = true;
                         return folder.link(from, to);
                       },
                   .write = {},
                   .sync = {}});
  const RootFacts facts = measure_root(root_.path(), disk, [] { return Interrupts::signal_number() != 0; });
  EXPECT_TRUE(was_raised);
  EXPECT_EQ(facts.race.names, 0u);
  EXPECT_TRUE(fs::is_empty(root_.path()));
}

TEST_F(DoctorTrials, AreMadeBesideARootThatDoesNotExist) {
  storage::PosixFileSystem disk;
  const RootFacts facts = measure_root(root_.path() + "/run7/", disk, [] { return false; });
  EXPECT_FALSE(facts.exists);
  EXPECT_TRUE(facts.usable.ok());
  EXPECT_EQ(facts.tried_in, root_.path());
  EXPECT_EQ(creation_of(facts).outcome, Outcome::ok);
  EXPECT_TRUE(fs::is_empty(root_.path()));
  EXPECT_EQ(measure_root(root_.path() + "/a/b", disk, [] { return false; }).usable.code(), Code::not_found);
}

TEST_F(DoctorTrials, NeedAFolder) {
  const std::string file = root_.path() + "/file";
  std::ofstream(file) << "x";
  storage::PosixFileSystem disk;
  EXPECT_THAT(measure_root(file, disk, [] { return false; }).usable.message(), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace shoal::cli
