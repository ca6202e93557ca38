// FakeNode: the other end of a Checkpointer's socket, which the test plays. save never waits for a node, so
// one thread can play both. Calls that block (open, load, latest) run in a std::async of the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/checkpointer.h"

namespace shoal::client {

class TemporaryRoot {
 public:
  TemporaryRoot() {
    char name[] = "/tmp/shoal-client-XXXXXX";
    path_ = ::mkdtemp(name);
    std::filesystem::create_directory(path_ + "/root");
    ::setenv("SHOAL_RUNTIME_DIR", (path_ + "/run").c_str(), 1);
    ::unsetenv("SHOAL_SOCKET");
  }
  ~TemporaryRoot() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_ + "/root"; }
  std::string folder() const { return path_; }

 private:
  std::string path_;
};

// Of rank 0 of two, with a node that the test plays.
inline CheckpointerOptions options_of_two_ranks(const std::string& root) {
  CheckpointerOptions options;
  options.root = root;
  options.world_size = 2;
  options.job_id = "job";
  options.start_node = false;
  options.attach_timeout = std::chrono::milliseconds(1'000);
  return options;
}

inline std::vector<uint16_t> numbers(size_t count, uint16_t first = 0) {
  std::vector<uint16_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

class FakeNode {
 public:
  static constexpr int32_t kPid = 4242;
  static constexpr int kPatienceMs = 20'000;

  // `reader`: the id of a job that only reads; empty for other jobs.
  explicit FakeNode(const std::string& root, const std::string& reader = "")
      : listener_(local::LocalListener::listen(local::node_paths(root, reader).value().socket_file).value()) {
  }
  ~FakeNode() {
    for (auto& [id, slab] : slabs_) ::munmap(slab.first, slab.second);
  }

  void accept() {
    socket_ = std::make_unique<local::LocalSocket>(std::move(**listener_->accept(kPatienceMs)));
  }
  void die() { socket_.reset(); }
  // Dies and stops listening.
  void stop() {
    listener_.reset();
    die();
  }
  void send(const local::LocalMessage& message) { ASSERT_TRUE(socket_->send(message).ok()); }

  // Returns the next message, which must have this type. Maps slabs that arrive before it, answers pings, and
  // skips StagingKept messages.
  template <class Message>
  Message expect() {
    while (true) {
      auto received = socket_->receive(kPatienceMs);
      SHOAL_CHECK(received.ok() && received->has_value());
      local::LocalMessage& message = (**received).message;
      if (auto* wanted = std::get_if<Message>(&message)) return std::move(*wanted);
      if (std::get_if<local::Ping>(&message)) {
        if (answers_pings) send(local::Pong{});
        continue;
      }
      if (std::get_if<local::StagingKept>(&message)) continue;
      auto* slab = std::get_if<local::Slab>(&message);
      SHOAL_CHECK(slab != nullptr);
      map(*slab, (**received).fd);
    }
  }

  // False once the other side has closed the connection.
  bool is_connected() {
    while (true) {
      auto received = socket_->receive(0);
      if (!received.ok()) return false;
      if (!received->has_value()) return true;
    }
  }

  const std::byte* slab(uint32_t id) const { return static_cast<const std::byte*>(slabs_.at(id).first); }
  std::byte* writable_slab(uint32_t id) { return static_cast<std::byte*>(slabs_.at(id).first); }
  bool answers_pings = true;  // false: it is silent, like a node that is stopped or swapped out

  size_t slabs_received() const { return slabs_received_; }
  uint64_t slab_bytes(uint32_t id) const { return slabs_.at(id).second; }

 private:
  void map(const local::Slab& slab, const base::OwnedFd& fd) {
    SHOAL_CHECK(local::check_slab(fd.get(), slab.bytes).ok());
    if (auto old = slabs_.find(slab.slab_id); old != slabs_.end())
      ::munmap(old->second.first, old->second.second);
    void* mapped = ::mmap(nullptr, slab.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    SHOAL_CHECK(mapped != MAP_FAILED);
    slabs_[slab.slab_id] = {mapped, slab.bytes};
    ++slabs_received_;
  }

  std::unique_ptr<local::LocalListener> listener_;
  std::unique_ptr<local::LocalSocket> socket_;
  std::map<uint32_t, std::pair<void*, uint64_t>> slabs_;
  size_t slabs_received_ = 0;
};

inline std::unique_ptr<Checkpointer> attach(FakeNode& node, const CheckpointerOptions& options,
                                            bool grants_staging = false, bool counts_returns = false) {
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options); });
  node.accept();
  EXPECT_EQ(node.expect<local::Attach>().rank, options.rank);
  node.send(local::Attached{3, FakeNode::kPid, 0, grants_staging, counts_returns});
  return std::move(opening.get()).value();
}

}  // namespace shoal::client
