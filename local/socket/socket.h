// The unix stream socket between client and node: framed LocalMessages with at most one descriptor each, and
// where it lies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "local/messages/messages.h"
#include "shoal/status.h"

namespace shoal::local {

// Owns a file descriptor.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

struct ReceivedLocal {
  LocalMessage message;
  OwnedFd fd;  // of a Slab
};

// How long send waits for a peer that does not read.
inline constexpr int kLocalSendTimeoutMs = 30000;
// What a socket takes whole or not at all: the kernel cuts at half of its default buffer of 208 KiB.
inline constexpr size_t kTrySendBytesMax = size_t{64} << 10;

class LocalFrame;

// One end of a connection. send: any thread, whole messages. receive: one thread. Neither raises SIGPIPE.
class LocalSocket {
 public:
  explicit LocalSocket(OwnedFd fd);
  // Code::unavailable: nobody listens. Code::refused: a process of another user (neither ours nor root) does.
  static Result<std::unique_ptr<LocalSocket>> connect(const std::string& path);

  // fd_to_pass is borrowed. Code::too_large: beyond kMaxLocalMessageBytes, nothing was sent. Any other error
  // ends the connection. Code::unavailable: the other side closed. Code::deadline_exceeded: it did not read
  // for kLocalSendTimeoutMs.
  Status send(const LocalMessage& message, int fd_to_pass = -1);
  // If it can go without waiting. False: it is longer than kTrySendBytesMax, another thread is sending, or
  // the peer has not read what came before; nothing was sent. Errors are those of send.
  Result<bool> try_send(const LocalMessage& message, int fd_to_pass = -1);
  // Blocks up to timeout_ms (-1: for ever); nullopt on timeout, and what had come of a message is kept.
  // Code::unavailable: the other side closed. Code::corrupt, too_large or version: it sent what it must not;
  // every later receive says the same, and no descriptor stays open.
  Result<std::optional<ReceivedLocal>> receive(int timeout_ms);
  int32_t peer_pid() const;         // 0: unknown, as where it lives in another PID namespace
  uint64_t bytes_received() const;  // of the receiving thread: progress within a long message
  void shutdown();                  // any thread: receive and send end with Code::unavailable
  int fd() const { return fd_.get(); }

 private:
  struct State;
  Result<bool> send_frame(const LocalFrame& frame, int fd_to_pass, bool may_wait);
  OwnedFd fd_;
  std::shared_ptr<State> state_;
};

// What passes as a slab: a memfd of exactly `bytes`, sealed against growing and shrinking, so that mapping it
// can raise no SIGBUS. Code::refused says what is wrong.
Status check_slab(int fd, uint64_t bytes);

class LocalListener {
 public:
  // Takes over a stale socket file at `path` (the caller holds the host's lock). Mode 0600.
  static Result<std::unique_ptr<LocalListener>> listen(const std::string& path);
  ~LocalListener();  // removes the socket file
  // nullopt on timeout. Only peers of the same user, or root (SO_PEERCRED), are accepted, others closed.
  Result<std::optional<OwnedFd>> accept(int timeout_ms);
  int fd() const { return fd_.get(); }

 private:
  LocalListener() = default;
  OwnedFd fd_;
  std::string path_;
};

// One node a user, host and root, and one for each job that only reads it. The runtime directory is
// $SHOAL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/shoal, else /tmp/shoal-<uid>; made with mode 0700, refused if it
// belongs to somebody else or others may write in it. File names carry a hash of the root's real path, so
// that all names of one root mean one node.
struct NodePaths {
  std::string lock_file;  // held by the node for its life, never unlinked; holds its pid as text
  std::string socket_file;
  std::string log_file;     // of a node that a client started
  std::string catalog_dir;  // default place of the coordinator's catalog
};
// Code::not_found: there is no folder `root`. `reader`: names a job that only reads, whose node has files of
// its own beside those of the job that trains; empty: none.
Result<NodePaths> node_paths(const std::string& root, const std::string& reader = "");

}  // namespace shoal::local
