// ProtocolLog: one line for every message between this node and another, and one where a session with a peer
// begins or ends. `shoal node --protocol-log FILE` writes it:
//
//   12.345678901 to coordinator: ShardsWritten step 3 (g1a1): 2 ranks, 2 files
//   12.349001234 from coordinator: Decided step 3 (g1a1): committed
//
// Times are seconds of the monotonic clock since the log was opened. actors/messages/describe.cpp makes the
// text of a message.
#pragma once

#include <memory>
#include <string>

#include "actors/messages/messages.h"
#include "actors/role.h"

namespace shoal::actors {

// Then FILE becomes FILE.1, replacing an earlier FILE.1.
inline constexpr size_t kMaxProtocolLogBytes = size_t{256} << 20;

class ProtocolLog {  // all methods may be called on any thread
 public:
  // Opens the file to append. Code::io; the message names the file.
  static Result<std::unique_ptr<ProtocolLog>> open(const std::string& file, TimeNs now);
  ~ProtocolLog();
  void peer_up(TimeNs now, NodeId node, const std::string& name);
  void peer_lost(TimeNs now, NodeId node, const Status& why);
  void sent(TimeNs now, NodeId to, const WireMessage& message);
  // The node that listens there.
  void sent_to(TimeNs now, const std::string& address, const WireMessage& message);
  void received(TimeNs now, NodeId from, const WireMessage& message);

 private:
  struct Impl;
  explicit ProtocolLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
