// The unix stream socket between client and node. It carries framed LocalMessages with at most one descriptor
// each. NodePaths has the path of the socket.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/owned_fd.h"
#include "base/parent_only.h"
#include "local/messages/messages.h"
#include "shoal/status.h"

namespace shoal::local {

struct ReceivedLocal {
  LocalMessage message;
  base::OwnedFd fd;  // of a Slab
};

// How long send waits for a peer that does not read.
inline constexpr int kLocalSendTimeoutMs = 30000;
// A socket accepts a message up to this size whole or not at all: the kernel splits messages at half of its
// default buffer of 208 KiB.
inline constexpr size_t kTrySendBytesMax = size_t{64} << 10;

class LocalFrame;

// One end of a connection. Any thread may send; messages are sent whole. Only one thread may receive. Neither
// raises SIGPIPE.
class LocalSocket {
 public:
  explicit LocalSocket(base::OwnedFd fd);
  // Code::unavailable: no process listens. Code::refused: the listening process runs as another user, who is
  // not root.
  // The children that this process forks do not keep the socket (base/parent_only.h).
  static Result<std::unique_ptr<LocalSocket>> connect(const std::string& path);

  // The caller keeps fd_to_pass. Code::too_large: the message is longer than kMaxLocalMessageBytes and was
  // not sent. All other errors end the connection. Code::unavailable: the peer closed it.
  // Code::deadline_exceeded: the peer did not read for kLocalSendTimeoutMs.
  Status send(const LocalMessage& message, int fd_to_pass = -1);
  // Sends if that does not have to wait. False: it sent nothing, because the message is longer than
  // kTrySendBytesMax, another thread is sending, or the peer has not read earlier messages. Errors: see send.
  Result<bool> try_send(const LocalMessage& message, int fd_to_pass = -1);
  // Blocks up to timeout_ms (-1: without limit). nullopt: timeout; the next call continues with what has
  // arrived of a message. Code::unavailable: the peer closed the connection. Code::corrupt, too_large or
  // version: the peer sent an invalid message. Every later receive returns the same error, and no received
  // descriptor stays open.
  Result<std::optional<ReceivedLocal>> receive(int timeout_ms);
  int32_t peer_pid() const;         // 0: unknown, for example in another PID namespace
  uint64_t bytes_received() const;  // by the receiving thread only: shows progress of a long message
  void shutdown();                  // by any thread: receive and send end with Code::unavailable
  int fd() const { return fd_.get(); }

 private:
  struct State;
  Result<bool> send_frame(const LocalFrame& frame, int fd_to_pass, bool may_wait);
  base::OwnedFd fd_;
  std::optional<base::ParentOnly> parent_only_;  // ends before fd_ does
  std::shared_ptr<State> state_;
};

// Checks a slab: it must be a memfd of exactly `bytes` bytes, sealed against growing and shrinking, so that
// access to its mapping cannot raise SIGBUS. Code::refused names the violation.
Status check_slab(int fd, uint64_t bytes);

class LocalListener {
 public:
  // Creates the socket file with mode 0600, and replaces a stale one at `path`. The caller must hold the
  // node's lock file. Code::already_exists: a process listens there.
  static Result<std::unique_ptr<LocalListener>> listen(const std::string& path);
  ~LocalListener();  // removes the socket file
  // nullopt: timeout. Accepts peers of the same user or of root only (SO_PEERCRED), and closes others.
  Result<std::optional<base::OwnedFd>> accept(int timeout_ms);
  int fd() const { return fd_.get(); }

 private:
  LocalListener() = default;
  base::OwnedFd fd_;
  std::string path_;
};

// Paths of a node's files. There is one node for each user, host and root, and one more for each job that
// only reads the root. Its runtime folder is $SHOAL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/shoal, else
// /tmp/shoal-<uid>. It is created with mode 0700, and rejected if it belongs to another user or others may
// write to it. File names contain a hash of the root's real path, so that all paths to one root lead to one
// node.
struct NodePaths {
  std::string lock_file;  // the node locks it for its lifetime; never unlinked; contains the pid as text
  std::string socket_file;
  std::string log_file;     // of a node that a client started
  std::string catalog_dir;  // default folder of the coordinator's catalog
};
// `reader`: identifies a job that only reads, whose node has separate files; empty: a job that trains.
// Code::not_found: there is no folder `root`.
Result<NodePaths> node_paths(const std::string& root, const std::string& reader = "");

}  // namespace shoal::local
