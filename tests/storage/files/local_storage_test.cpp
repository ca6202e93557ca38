#include "storage/files/local_storage.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> names(Storage& storage, const std::string& folder) {
  auto listed = storage.list(folder);
  SHOAL_CHECK(listed.ok());
  std::vector<std::string> out;
  for (const ObjectInfo& object : *listed) out.push_back(object.name + (object.is_folder ? "/" : ""));
  return out;
}

// Every test of the contract runs on the real file system and on its fake.
class StorageContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("posix")) {
      auto opened = LocalStorage::open(posix_, folder_.path(), random_128());
      ASSERT_OK(opened.status());
      storage_ = std::move(opened).value();
    } else {
      auto opened = LocalStorage::open(memory_, "/root", nonce_of(1));
      ASSERT_OK(opened.status());
      storage_ = std::move(opened).value();
    }
  }
  Storage& storage() { return *storage_; }

  MemoryFolder folder_;
  PosixFileSystem posix_;
  sim::MemoryFileSystem memory_;
  std::unique_ptr<LocalStorage> storage_;
};
INSTANTIATE_TEST_SUITE_P(On, StorageContract, ::testing::Values("posix", "memory"),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST_P(StorageContract, CreatesOnceAndThenKeepsTheFirst) {
  auto first = storage().create_exclusive("a/b/c", as_view("one"));
  ASSERT_OK(first.status());
  EXPECT_TRUE(*first);
  auto second = storage().create_exclusive("a/b/c", as_view("two"));
  ASSERT_OK(second.status());
  EXPECT_FALSE(*second);
  auto content = storage().read("a/b/c", 100);
  ASSERT_OK(content.status());
  EXPECT_EQ(as_text(*content), "one");
  EXPECT_THAT(names(storage(), "a/b"), ElementsAre("c")) << "no temporary is left";
}

// Regression: after `sudo shoal pin` in another user's root, that user's loads could not pin.
TEST(TheSuperuser, GivesWhatItCreatesToTheOwnerOfTheFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "needs the superuser";
  constexpr uid_t kUser = 12345;
  constexpr gid_t kGroup = 23456;
  MemoryFolder root;
  ASSERT_EQ(chown(root.path().c_str(), kUser, kGroup), 0);
  PosixFileSystem posix;
  auto storage = LocalStorage::open(posix, root.path(), random_128());
  ASSERT_OK(storage.status());
  ASSERT_OK((*storage)->create_exclusive("pins/mine", as_view("one")).status());
  for (const char* path : {"/pins", "/pins/mine"}) {
    struct stat info;
    ASSERT_EQ(stat((root.path() + path).c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, kUser) << path;
    EXPECT_EQ(info.st_gid, kGroup) << path;
  }
}

TEST_P(StorageContract, LetsExactlyOneOfManyThreadsCreate) {
  std::atomic<int> winners{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      auto created = storage().create_exclusive("epochs/1", as_view(std::to_string(i)));
      if (created.ok() && *created) ++winners;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
  EXPECT_THAT(names(storage(), "epochs"), ElementsAre("1"));
}

TEST_P(StorageContract, ReadsNoMoreThanTheBound) {
  ASSERT_OK(storage().create_exclusive("x", as_view("12345")).status());
  EXPECT_OK(storage().read("x", 5).status());
  Status status = storage().read("x", 4).status();
  EXPECT_EQ(status.code(), Code::too_large);
  EXPECT_THAT(status.message(), HasSubstr(storage().describe() + "/x: it has 5 bytes"));
}

TEST_P(StorageContract, SaysWhatIsNotThere) {
  EXPECT_EQ(storage().read("x", 5).status().code(), Code::not_found);
  EXPECT_EQ(storage().read("no/x", 5).status().code(), Code::not_found);
  EXPECT_EQ(storage().open("x").status().code(), Code::not_found);
  EXPECT_EQ(storage().list("no").status().code(), Code::not_found);
  EXPECT_OK(storage().remove("x"));
  EXPECT_OK(storage().remove("no/x"));
  EXPECT_OK(storage().remove_folder("no"));
  EXPECT_OK(storage().remove_folder("no/more"));
  EXPECT_THAT(storage().read("x", 5).status().message(), HasSubstr(storage().describe() + "/x"));
}

TEST_P(StorageContract, ListsByNameWithPartialObjects) {
  ASSERT_OK(storage().create_exclusive("b", as_view("12")).status());
  ASSERT_OK(storage().create_exclusive("a/x", as_view("")).status());
  auto file = storage().create("c", nonce_of(5), 10);
  ASSERT_OK(file.status());
  auto listed = storage().list("");
  ASSERT_OK(listed.status());
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_EQ((*listed)[0].name, "a");
  EXPECT_TRUE((*listed)[0].is_folder);
  EXPECT_EQ((*listed)[1].name, "b");
  EXPECT_EQ((*listed)[1].size, 2u);
  EXPECT_EQ((*listed)[2].name, partial_name("c", nonce_of(5)));
  EXPECT_TRUE(is_partial((*listed)[2].name));
  EXPECT_OK(storage().remove((*listed)[2].name)) << "a sweep may remove it";
}

TEST_P(StorageContract, ShowsAWrittenObjectOnlyWhenPublished) {
  auto file = storage().create("d/x", nonce_of(5), 0);
  ASSERT_OK(file.status());
  Bytes big = random_bytes(700'000, 1);
  EXPECT_OK((*file)->append(as_view("head")));
  EXPECT_OK((*file)->append(big));
  EXPECT_OK((*file)->append(as_view("tail")));
  EXPECT_OK((*file)->patch(0, as_view("HEAD")));
  EXPECT_OK((*file)->patch(700'004, as_view("TAIL")));
  EXPECT_EQ(storage().read("d/x", 1 << 20).status().code(), Code::not_found);
  auto published = (*file)->publish();
  ASSERT_OK(published.status());
  EXPECT_TRUE(*published);
  auto content = storage().read("d/x", 1 << 20);
  ASSERT_OK(content.status());
  Bytes expected = bytes_of("HEAD");
  expected.insert(expected.end(), big.begin(), big.end());
  for (std::byte b : as_view("TAIL")) expected.push_back(b);
  EXPECT_TRUE(*content == expected);
  EXPECT_THAT(names(storage(), "d"), ElementsAre("x"));
}

TEST_P(StorageContract, RemovesWhatWasNotPublished) {
  {
    auto file = storage().create("x", nonce_of(5), 0);
    ASSERT_OK(file.status());
    EXPECT_EQ(names(storage(), "").size(), 1u);
  }
  EXPECT_TRUE(names(storage(), "").empty());
}

TEST_P(StorageContract, ReplacesItsOwnLeftover) {
  auto dead = storage().create("x", nonce_of(5), 0);
  ASSERT_OK((*dead)->append(random_bytes(300'000, 3)));
  auto file = storage().create("x", nonce_of(5), 0);
  ASSERT_OK(file.status());
  ASSERT_OK((*file)->append(as_view("new")));
  EXPECT_TRUE((*file)->publish().ok());
  EXPECT_EQ(as_text(*storage().read("x", 10)), "new");
}

TEST_P(StorageContract, KeepsThePublishedObjectWhenTheNameIsTaken) {
  ASSERT_OK(storage().create_exclusive("x", as_view("first")).status());
  auto file = storage().create("x", nonce_of(5), 0);
  ASSERT_OK((*file)->append(as_view("second")));
  auto published = (*file)->publish();
  ASSERT_OK(published.status());
  EXPECT_FALSE(*published);
  EXPECT_EQ(as_text(*storage().read("x", 10)), "first");
  EXPECT_THAT(names(storage(), ""), ElementsAre("x"));
}

TEST_P(StorageContract, RemovesOnlyEmptyFolders) {
  ASSERT_OK(storage().create_exclusive("a/x", as_view("")).status());
  EXPECT_EQ(storage().remove_folder("a").code(), Code::busy);
  EXPECT_FALSE(storage().remove("a").ok()) << "a folder is no object";
  EXPECT_OK(storage().remove("a/x"));
  EXPECT_OK(storage().remove_folder("a"));
  EXPECT_EQ(storage().list("a").status().code(), Code::not_found);
  EXPECT_OK(storage().create_exclusive("a/x", as_view("again")).status());
}

TEST_P(StorageContract, RefusesPathsThatLeaveTheRoot) {
  for (std::string path : {"../x", "a/../../x", "/etc/passwd", "a//b", "a/", ".hidden", "a/.", "x\ny",
                           "caf\xc3\xa9", "a\\b", ""}) {
    EXPECT_EQ(storage().create_exclusive(path, as_view("")).status().code(), Code::invalid_argument) << path;
    EXPECT_EQ(storage().create(path, nonce_of(1), 0).status().code(), Code::invalid_argument) << path;
    EXPECT_EQ(storage().read(path, 10).status().code(), Code::invalid_argument) << path;
    EXPECT_EQ(storage().remove(path).code(), Code::invalid_argument) << path;
    EXPECT_EQ(storage().remove_folder(path).code(), Code::invalid_argument) << path;
    if (path.empty()) continue;  // the root itself
    EXPECT_EQ(storage().list(path).status().code(), Code::invalid_argument) << path;
  }
  EXPECT_EQ(storage().read(std::string("a\0b", 3), 10).status().code(), Code::invalid_argument);
  EXPECT_EQ(storage().read(std::string(201, 'a'), 10).status().code(), Code::invalid_argument);
  EXPECT_OK(storage().create_exclusive(std::string(200, 'a'), as_view("")).status());
  std::string partial = partial_name("x", nonce_of(1));
  EXPECT_EQ(storage().create_exclusive(partial, as_view("")).status().code(), Code::invalid_argument)
      << "nothing is published under a partial name";
}

TEST_P(StorageContract, ReadsAtPositionsAndRefusesToReadPastTheEnd) {
  ASSERT_OK(storage().create_exclusive("x", as_view("0123456789")).status());
  auto file = storage().open("x");
  ASSERT_OK(file.status());
  EXPECT_EQ((*file)->size(), 10u);
  Bytes out(4);
  EXPECT_OK((*file)->read_at(3, out));
  EXPECT_EQ(as_text(out), "3456");
  EXPECT_EQ((*file)->read_at(7, out).code(), Code::corrupt);
  EXPECT_EQ((*file)->read_at(uint64_t{1} << 40, out).code(), Code::corrupt);
}

TEST(ComponentNames, ArePlainAndShort) {
  for (const char* good : {"a", "A-Z_0.9", "rank-00007.safetensors", "manifest.shoal"}) {
    EXPECT_OK(validate_component(good));
  }
  for (const char* bad : {"", ".", "..", ".x", "a/b", "a b", "a\n", "\xff"}) {
    EXPECT_EQ(validate_component(bad).code(), Code::invalid_argument) << bad;
  }
}

TEST(PartialNames, CarryTheNonce) {
  std::string name = partial_name("rank-00007.safetensors", nonce_of(255));
  EXPECT_EQ(name, "rank-00007.safetensors.ff000000000000000000000000000000.partial");
  EXPECT_TRUE(is_partial(name));
  for (const char* other :
       {"x", "x.partial", ".ff000000000000000000000000000000.partial",
        "x.ff00000000000000000000000000000.partial", "ff000000000000000000000000000000.partial",
        "x.FF000000000000000000000000000000.partial"}) {
    EXPECT_FALSE(is_partial(other)) << other;
  }
}

class OnDisk : public ::testing::Test {
 protected:
  std::unique_ptr<LocalStorage> opened(const std::string& root) {
    auto result = LocalStorage::open(posix_, root, random_128());
    SHOAL_CHECK(result.ok());
    return std::move(result).value();
  }
  MemoryFolder folder_;
  PosixFileSystem posix_;
};

TEST_F(OnDisk, SaysThatTheRootIsNotThere) {
  std::string root = folder_.path() + "/missing";
  Status status = LocalStorage::open(posix_, root, random_128()).status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_EQ(status.message(), "root " + root + " does not exist");
  std::ofstream(root) << "a file";
  EXPECT_EQ(LocalStorage::open(posix_, root, random_128()).status().message(),
            "root " + root + " is not a folder");
}

TEST_F(OnDisk, FollowsASymbolicLinkToTheRootButNoneBelowIt) {
  std::string real = folder_.path() + "/real", link = folder_.path() + "/link";
  ASSERT_EQ(mkdir(real.c_str(), 0777), 0);
  ASSERT_EQ(symlink(real.c_str(), link.c_str()), 0);
  auto storage = opened(link);
  EXPECT_OK(storage->create_exclusive("x", as_view("1")).status());

  std::string outside = folder_.path() + "/outside";
  ASSERT_EQ(mkdir(outside.c_str(), 0777), 0);
  std::ofstream(outside + "/secret") << "secret";
  ASSERT_EQ(symlink(outside.c_str(), (real + "/step").c_str()), 0);
  ASSERT_EQ(symlink((outside + "/secret").c_str(), (real + "/file").c_str()), 0);
  EXPECT_EQ(storage->read("step/secret", 100).status().code(), Code::refused);
  EXPECT_EQ(storage->read("file", 100).status().code(), Code::refused);
  EXPECT_EQ(storage->create_exclusive("step/new", as_view("1")).status().code(), Code::refused);
  auto taken = storage->create_exclusive("file", as_view("1"));
  EXPECT_TRUE(taken.ok() && !*taken);
  EXPECT_OK(storage->remove("file"));
  EXPECT_EQ(access((outside + "/secret").c_str(), F_OK), 0) << "the link was removed, not its target";
  EXPECT_NE(access((outside + "/new").c_str(), F_OK), 0);
}

TEST_F(OnDisk, IsNotHeldByAFifoUnderAFileName) {
  ASSERT_EQ(mkfifo((folder_.path() + "/fifo").c_str(), 0666), 0);
  auto storage = opened(folder_.path());
  EXPECT_EQ(storage->read("fifo", 100).status().code(), Code::corrupt);
  EXPECT_EQ(storage->read("fifo", 100).status().message(),
            folder_.path() + "/fifo: it is not a regular file");
}

// Runs `body` in a child without root's powers; its text comes back.
std::string as_unprivileged_user(const std::function<std::string()>& body) {
  int ends[2];
  SHOAL_CHECK(pipe(ends) == 0);
  pid_t child = fork();
  SHOAL_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    std::string text = body();
    ssize_t put = write(ends[1], text.data(), text.size());
    _exit(put == static_cast<ssize_t>(text.size()) ? 0 : 3);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST_F(OnDisk, ReadsAReadOnlyRootAndNamesWhatItCannotWrite) {
  ASSERT_OK(opened(folder_.path())->create_exclusive("x", as_view("1")).status());
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  std::string text = as_unprivileged_user([&]() -> std::string {
    auto storage = LocalStorage::open(posix_, folder_.path(), random_128());
    if (!storage.ok()) return storage.status().to_string();
    if (Status synced = (*storage)->sync_folder(""); !synced.ok()) return synced.to_string();
    auto content = (*storage)->read("x", 10);
    if (!content.ok()) return content.status().to_string();
    return (*storage)->create_exclusive("y", as_view("1")).status().to_string() + "\n" +
           (*storage)->create_exclusive("a/y", as_view("1")).status().to_string() + "\n" +
           (*storage)->remove("x").to_string();
  });
  chmod(folder_.path().c_str(), 0777);
  std::string root = folder_.path();
  EXPECT_EQ(text, "refused: " + root + "/y: cannot create: not writable: Permission denied\n" +
                      "refused: " + root + "/a: cannot make the folder: not writable: Permission denied\n" +
                      "refused: " + root + "/x: cannot remove: not writable: Permission denied");
}

TEST_F(OnDisk, SaysThatTheRootMayNotBeRead) {
  ASSERT_EQ(chmod(folder_.path().c_str(), 0), 0);
  std::string text = as_unprivileged_user(
      [&] { return LocalStorage::open(posix_, folder_.path(), random_128()).status().to_string(); });
  chmod(folder_.path().c_str(), 0777);
  EXPECT_EQ(text, "refused: root " + folder_.path() + ": cannot open: not readable: Permission denied");
}

TEST_F(OnDisk, SaysThatTheDiskIsFull) {
  if (mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no permission to mount a small tmpfs; MemoryFileSystem covers a full disk";
  }
  {
    auto storage = opened(folder_.path());
    Status status = storage->create("x", nonce_of(1), 2 << 20).status();
    EXPECT_EQ(status.code(), Code::no_space);
    EXPECT_THAT(status.message(), HasSubstr("2.00 MiB are needed"));
    EXPECT_THAT(status.message(), HasSubstr("(to free space: shoal gc " + folder_.path() + ")"));
    auto file = storage->create("x", nonce_of(1), 0);
    ASSERT_OK(file.status());
    status = (*file)->append(Bytes(3 << 20));
    EXPECT_EQ(status.code(), Code::no_space);
    EXPECT_EQ(status.message(), folder_.path() +
                                    "/x: cannot write: No space left on device "
                                    "(to free space in a root: shoal gc ROOT)");
    file->reset();
    EXPECT_TRUE(names(*storage, "").empty());
    EXPECT_OK(storage->create_exclusive("y", as_view("fits")).status());
  }
  umount2(folder_.path().c_str(), MNT_DETACH);
}

TEST(FullDisk, IsAnErrorAndLeavesNothing) {
  MemoryStorage memory;
  memory.files.set_capacity(1000);
  Status status = memory->create_exclusive("d/x", Bytes(2000)).status();
  EXPECT_EQ(status.code(), Code::no_space);
  EXPECT_EQ(status.message(),
            "/root/d/x: cannot write: No space left on device "
            "(to free space in a root: shoal gc ROOT)");
  EXPECT_TRUE(names(*memory, "d").empty());
  EXPECT_OK(memory->create_exclusive("d/x", Bytes(1000)).status());
}

TEST(ShortWrites, AreContinued) {
  MemoryStorage memory;
  for (uint64_t i = 0; i < 40; ++i) memory.files.cut_short_at(memory.files.operations() + i, 3);
  auto created = memory->create_exclusive("x", as_view("0123456789"));
  ASSERT_OK(created.status());
  EXPECT_EQ(as_text(*memory->read("x", 100)), "0123456789");
}

}  // namespace
}  // namespace shoal::storage
