// ProtocolLog: a line for every message between this node and another, as `shoal node --protocol-log FILE`
// keeps it:
//
//   12.345678901 to coordinator: ShardsWritten s3a1: 2 ranks, 2 files
//   12.349001234 from coordinator: Decided s3a1: committed
//
// and one where a session with a peer begins or ends. Seconds are of the monotonic clock, since the log was
// opened. What a message says is actors/messages/describe.cpp's.
#pragma once

#include <memory>
#include <string>

#include "actors/messages/messages.h"
#include "actors/role.h"

namespace shoal::actors {

inline constexpr size_t kMaxProtocolLogBytes = size_t{256} << 20;  // then FILE becomes FILE.1, once

class ProtocolLog {  // any thread
 public:
  // Appends. Code::io, naming the file.
  static Result<std::unique_ptr<ProtocolLog>> open(const std::string& file, TimeNs now);
  ~ProtocolLog();
  void peer_up(TimeNs now, NodeId node, const std::string& name);
  void peer_lost(TimeNs now, NodeId node, const Status& why);
  void sent(TimeNs now, NodeId to, const WireMessage& message);
  void sent_to(TimeNs now, const std::string& address, const WireMessage& message);  // who listens there
  void received(TimeNs now, NodeId from, const WireMessage& message);

 private:
  struct Impl;
  explicit ProtocolLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
