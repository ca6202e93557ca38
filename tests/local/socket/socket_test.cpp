#include "local/socket/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/owned_fd.h"
#include "local/status/node_query.h"
#include "tests/temporary_folder.h"

namespace shoal::local {
namespace {

using ::testing::HasSubstr;

struct Pair {
  Pair() {
    int ends[2];
    SHOAL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    raw = base::OwnedFd(ends[0]);
    socket = std::make_unique<LocalSocket>(base::OwnedFd(ends[1]));
  }
  void write(ByteView bytes) {
    ASSERT_EQ(::send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // With descriptors beside the first byte.
  void write(ByteView bytes, const std::vector<int>& fds) {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(32 * sizeof(int))> control{};
    iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr out{};
    out.msg_iov = &vector;
    out.msg_iovlen = 1;
    out.msg_control = control.data();
    out.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&out);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    ASSERT_EQ(::sendmsg(raw.get(), &out, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  base::OwnedFd raw;
  std::unique_ptr<LocalSocket> socket;
};

// A socket with this file, at which nothing listens.
base::OwnedFd bound_socket(const std::string& path, int type) {
  base::OwnedFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  SHOAL_CHECK(path.size() < sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  SHOAL_CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

Bytes framed(const LocalMessage& message) {
  const Bytes body = encode_local(message);
  Bytes frame(4 + body.size());
  store_le32(frame.data(), static_cast<uint32_t>(body.size()));
  std::copy(body.begin(), body.end(), frame.begin() + 4);
  return frame;
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(folder), end(folder)));
}

base::OwnedFd sealed_memory(uint64_t bytes) {
  base::OwnedFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  SHOAL_CHECK(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  SHOAL_CHECK(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  return fd;
}

TEST(LocalSocket, CarriesMessagesAndADescriptorBothWays) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/socket";
  auto listener = LocalListener::listen(path).value();
  auto client = LocalSocket::connect(path).value();
  LocalSocket node(std::move(**listener->accept(-1)));

  base::OwnedFd memory = sealed_memory(4096);
  ASSERT_TRUE(client->send(local::Latest{1}).ok());
  ASSERT_TRUE(client->send(local::Slab{3, 4096}, memory.get()).ok());
  ASSERT_TRUE(client->send(local::Detach{}).ok());
  EXPECT_EQ(std::get<local::Latest>((**node.receive(-1)).message).request_id, 1u);
  auto slab = node.receive(-1);
  EXPECT_EQ(std::get<local::Slab>((**slab).message).slab_id, 3u);
  EXPECT_TRUE(check_slab((**slab).fd.get(), 4096).ok());
  EXPECT_THAT(check_slab((**slab).fd.get(), 8192).message(), HasSubstr("8192"));
  EXPECT_TRUE(std::holds_alternative<local::Detach>((**node.receive(-1)).message));
  ASSERT_TRUE(node.send(local::SlabFree{3}).ok());
  EXPECT_EQ(std::get<local::SlabFree>((**client->receive(-1)).message).slab_id, 3u);
}

TEST(LocalSocket, KeepsTheMessageTogetherThatComesInDribs) {
  Pair pair;
  const Bytes frame = framed(local::Attached{7, 8});
  for (size_t i = 0; i + 1 < frame.size(); ++i) {
    pair.write(ByteView(frame).subspan(i, 1));
    auto nothing = pair.socket->receive(0);
    ASSERT_TRUE(nothing.ok());
    ASSERT_FALSE(nothing->has_value());
  }
  pair.write(ByteView(frame).last(1));
  EXPECT_EQ(std::get<local::Attached>((**pair.socket->receive(0)).message).generation, 7u);
}

TEST(LocalSocket, SendsMoreThanTheKernelHolds) {
  Pair pair;
  LocalSocket other(std::move(pair.raw));
  local::Staged staged;
  for (uint32_t i = 0; i < 200'000; ++i) staged.pieces.push_back({i, 0, 0, 1, i});
  std::thread sender([&] { EXPECT_TRUE(pair.socket->send(staged).ok()); });
  auto received = other.receive(-1);
  sender.join();
  EXPECT_EQ(std::get<local::Staged>((**received).message).pieces.size(), staged.pieces.size());
}

TEST(LocalSocket, NamesTheEndOfTheOtherSide) {
  Pair pair;
  pair.raw = base::OwnedFd();
  EXPECT_EQ(pair.socket->receive(-1).status().code(), Code::unavailable);
  EXPECT_EQ(pair.socket->send(local::Detach{}).code(), Code::unavailable);

  Pair cut;
  cut.write(ByteView(framed(local::Latest{1})).first(9));
  cut.raw = base::OwnedFd();
  EXPECT_THAT(cut.socket->receive(-1).status().message(), HasSubstr("in the middle of a message"));

  Pair shut;
  shut.socket->shutdown();
  EXPECT_EQ(shut.socket->receive(-1).status().code(), Code::unavailable);
}

TEST(LocalSocket, SendsALoadOfManyTargetsAsItIsEncoded) {
  Pair pair;
  LocalSocket other(std::move(pair.raw));
  local::Load load;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const Box box{{i, 0}, {1, 64}};
    load.targets.push_back(
        {"layer." + std::to_string(i), LayoutEntry::Kind::tensor, DType::f32, {i + 1, 64}, {box}});
  }
  std::thread sender([&] {
    EXPECT_TRUE(pair.socket->send(load).ok());
    EXPECT_TRUE(pair.socket->send(local::Latest{1}).ok());
  });
  auto received = other.receive(-1);
  auto next = other.receive(-1);
  sender.join();
  ASSERT_TRUE(received.ok()) << received.status().to_string();
  EXPECT_EQ(encode_local((**received).message), encode_local(load));
  EXPECT_TRUE(std::holds_alternative<local::Latest>((**next).message));
}

TEST(LocalSocket, RefusesWrongLengthsBeforeReservingMemory) {
  for (uint32_t length : {0u, static_cast<uint32_t>(kMaxLocalMessageBytes) + 8, 0xffffffffu}) {
    Pair pair;
    Bytes header(4);
    store_le32(header.data(), length);
    pair.write(header);
    Status first = pair.socket->receive(-1).status();
    EXPECT_EQ(first.code(), length == 0 ? Code::corrupt : Code::too_large);
    EXPECT_EQ(pair.socket->receive(-1).status(), first);
  }
}

TEST(LocalSocket, LeaksNoDescriptorOfAMalformedMessage) {
  const base::OwnedFd memory = sealed_memory(4096);
  const size_t before = open_descriptors();
  {
    Pair pair;  // two descriptors where one is allowed
    pair.write(framed(local::Slab{0, 4096}), {memory.get(), memory.get()});
    EXPECT_EQ(pair.socket->receive(-1).status().code(), Code::corrupt);
    EXPECT_EQ(open_descriptors(), before + 2);  // of the pair itself
  }
  {
    Pair pair;  // more than there is room for
    pair.write(framed(local::Slab{0, 4096}), std::vector<int>(30, memory.get()));
    EXPECT_EQ(pair.socket->receive(-1).status().code(), Code::corrupt);
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  {
    Pair pair;  // a descriptor with a message that needs none
    pair.write(framed(local::Latest{1}), {memory.get()});
    EXPECT_THAT(pair.socket->receive(-1).status().message(), HasSubstr("a descriptor came without a slab"));
    EXPECT_EQ(open_descriptors(), before + 2);
  }
  {
    Pair pair;  // half a message, and its sender is gone
    pair.write(ByteView(framed(local::Slab{0, 4096})).first(10), {memory.get()});
    pair.raw = base::OwnedFd();
    EXPECT_EQ(pair.socket->receive(-1).status().code(), Code::unavailable);
    EXPECT_EQ(open_descriptors(), before + 1);
  }
  {
    Pair pair;  // half a message, dropped by its receiver
    pair.write(ByteView(framed(local::Slab{0, 4096})).first(10), {memory.get()});
    EXPECT_FALSE(pair.socket->receive(0)->has_value());
  }
  {
    Pair pair;  // none where one is needed
    pair.write(framed(local::Slab{0, 4096}));
    EXPECT_THAT(pair.socket->receive(-1).status().message(), HasSubstr("without its descriptor"));
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LocalSocket, TakesOnlySealedMemoryForASlab) {
  base::OwnedFd open_file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_file.get(), 4096), 0);
  EXPECT_EQ(check_slab(open_file.get(), 4096).code(), Code::refused);
}

TEST(LocalListener, TakesOverAStaleSocketAndRemovesItsOwn) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/socket";
  EXPECT_EQ(LocalSocket::connect(path).status().code(), Code::unavailable);
  std::filesystem::create_directory(folder.path() + "/sub");
  {
    const base::OwnedFd closed = bound_socket(path, SOCK_STREAM);
    EXPECT_EQ(LocalSocket::connect(path).status().code(), Code::unavailable);
    auto second = LocalListener::listen(path).value();
    auto client = LocalSocket::connect(path).value();
    EXPECT_TRUE(second->accept(-1)->has_value());
    EXPECT_FALSE(second->accept(0)->has_value());
    struct stat file {};
    ASSERT_EQ(::stat(path.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777u, 0600u);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(LocalListener::listen(std::string(200, 'x')).status().code(), Code::invalid_argument);
}

// Regression: it took the place of the socket, so that the clients of another program reached a node.
TEST(LocalListener, LeavesTheSocketOfALiveProgram) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/socket";
  auto owner = LocalListener::listen(path).value();
  const Status refused = LocalListener::listen(path).status();
  EXPECT_EQ(refused.code(), Code::already_exists);
  EXPECT_THAT(refused.message(), HasSubstr(path + ": another program listens at this socket"));
  auto client = LocalSocket::connect(path).value();
  EXPECT_TRUE(owner->accept(-1)->has_value());
  const std::string datagrams = folder.path() + "/datagrams";
  const base::OwnedFd of_another_type = bound_socket(datagrams, SOCK_DGRAM);
  EXPECT_EQ(LocalListener::listen(datagrams).status().code(), Code::already_exists);
  EXPECT_TRUE(std::filesystem::exists(datagrams));
}

// Regression: it deleted whatever file the path of the socket named.
TEST(LocalListener, LeavesWhatIsNotASocket) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/weights";
  std::ofstream(path) << "all of them";
  for (const std::string& given : {path, folder.path()}) {
    const Status refused = LocalListener::listen(given).status();
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_THAT(refused.message(), HasSubstr(given + ": exists and is not a socket"));
  }
  EXPECT_EQ(std::filesystem::file_size(path), 11u);
}

TEST(LocalListener, LeavesAFileThatReplacedItsSocket) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/socket";
  {
    auto listener = LocalListener::listen(path).value();
    std::filesystem::remove(path);
    std::ofstream(path) << "a file";
  }
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(NodePaths, AreOneForAllNamesOfARoot) {
  TemporaryFolder runtime, root;
  ::setenv("SHOAL_RUNTIME_DIR", (runtime.path() + "/shoal").c_str(), 1);
  std::filesystem::create_directory_symlink(root.path(), runtime.path() + "/link");
  NodePaths direct = node_paths(root.path()).value();
  EXPECT_EQ(node_paths(root.path() + "/./").value().socket_file, direct.socket_file);
  EXPECT_EQ(node_paths(runtime.path() + "/link").value().socket_file, direct.socket_file);
  EXPECT_THAT(direct.lock_file, HasSubstr(runtime.path() + "/shoal/"));
  EXPECT_NE(node_paths(runtime.path()).value().socket_file, direct.socket_file);
  const NodePaths reader = node_paths(root.path(), "eval").value();
  EXPECT_NE(reader.lock_file, direct.lock_file) << "a job that only reads has a node of its own";
  EXPECT_NE(reader.socket_file, node_paths(root.path(), "another").value().socket_file);
  std::ofstream(reader.socket_file) << "";
  std::ofstream(direct.socket_file) << "";
  EXPECT_EQ(list_reader_sockets(root.path()).value(), std::vector<std::string>{reader.socket_file});
  struct stat made {};
  ASSERT_EQ(::stat((runtime.path() + "/shoal").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777u, 0700u);
  EXPECT_EQ(node_paths(root.path() + "/absent").status().code(), Code::not_found);
}

TEST(NodePaths, RefuseAFolderThatOthersMayChange) {
  TemporaryFolder runtime, root;
  const std::string open_folder = runtime.path() + "/open";
  std::filesystem::create_directory(open_folder);
  ASSERT_EQ(::chmod(open_folder.c_str(), 0777), 0);
  ::setenv("SHOAL_RUNTIME_DIR", open_folder.c_str(), 1);
  EXPECT_EQ(node_paths(root.path()).status().code(), Code::refused);
  const std::string link = runtime.path() + "/link";
  std::filesystem::create_directory_symlink(root.path(), link);
  ::setenv("SHOAL_RUNTIME_DIR", link.c_str(), 1);
  EXPECT_EQ(node_paths(root.path()).status().code(), Code::refused);
  ::unsetenv("SHOAL_RUNTIME_DIR");
}

}  // namespace
}  // namespace shoal::local
