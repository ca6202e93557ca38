// A stranger: sends raw bytes to a node's sockets, without any of the checks of client and transport.
#pragma once

#include <string>
#include <string_view>

#include "base/owned_fd.h"
#include "shoal/bytes.h"
#include "transport/tcp/frame_stream.h"
#include "transport/transport.h"

namespace shoal::testing {

inline constexpr std::string_view kTokenOfNodeProgram = "secret";  // tests/process/node_program.cpp

// One connection. Calls block, with a timeout on every wait.
class Stranger {
 public:
  static Stranger at_address(const std::string& host_port);  // IPv4, as NodeChild::address returns it
  static Stranger at_socket(const std::string& path);

  bool connected() const { return fd_.valid(); }
  void send(ByteView bytes);  // as many as the other side accepts
  bool wait_closed();         // reads and discards; false: still open after a long time
  // Sends the first frame of a handshake, like a node with this token, identity and schema version. Returns
  // the error with which it is rejected, or OK if it receives a challenge. Ends the connection.
  Status say_hello(const transport::Identity& identity, uint32_t schema_version,
                   std::string_view token = kTokenOfNodeProgram);

 private:
  explicit Stranger(base::OwnedFd fd) : fd_(std::move(fd)) {}
  using Frame = Bytes;
  static Result<Frame> read_frame(transport::FrameStream& stream);
  base::OwnedFd fd_;
};

}  // namespace shoal::testing
