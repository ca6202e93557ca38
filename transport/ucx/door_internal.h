// The door: plain TCP connections that carry the handshake, and nothing else. UCX's own listener takes its
// strangers' bytes for its own and dies of them (1.13 asserts on a header of zeros), so it is opened only for
// peers that have proven themselves here.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "transport/frame.h"
#include "transport/ucx/resolver_internal.h"

namespace shoal {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string to_string(const SocketAddress& address);  // "HOST:PORT"
void set_port(SocketAddress& address, uint16_t port);

// One connection, never blocking. Reads at most one frame ahead; a frame whose payload is over
// kMaxHandshakeBytes is given out without it, and ends the reading.
class DoorConnection {
 public:
  // Begins to connect; Code::unavailable if that fails at once.
  static Result<DoorConnection> connect(const SocketAddress& address);
  DoorConnection(FileDescriptor socket, bool is_connected)
      : socket_(std::move(socket)), is_connected_(is_connected) {}

  int fd() const { return socket_.get(); }
  bool wants_to_write() const { return !is_connected_ || written_ < outgoing_.size(); }
  void write(const OutgoingFrame& frame);
  void write_raw(ByteView bytes);
  // Once all is written, the other side reads the end of the stream.
  void end_writing() { ends_writing_ = true; }

  struct Frame {
    Bytes header, payload;
  };
  // Moves what can be moved, and appends what arrived. Not OK: the connection is over, on their side or by an
  // error.
  Status progress(std::vector<Frame>& frames);

 private:
  Status finish_connecting();
  Status flush();
  Status read_more();
  bool take_frame(std::vector<Frame>& frames);

  FileDescriptor socket_;
  bool is_connected_;
  bool ends_writing_ = false, has_ended_writing_ = false;
  bool ignores_rest_ = false;
  Bytes incoming_, outgoing_;
  size_t written_ = 0;
};

class DoorListener {
 public:
  static Result<DoorListener> listen(const SocketAddress& address);
  int fd() const { return socket_.get(); }
  uint16_t port() const;

  struct Visitor {
    FileDescriptor socket;
    SocketAddress from;
  };
  // Code::not_found: nobody is waiting. Code::busy: this process has no descriptor left.
  Result<Visitor> accept();

 private:
  explicit DoorListener(FileDescriptor socket) : socket_(std::move(socket)) {}
  FileDescriptor socket_;
};

}  // namespace shoal
