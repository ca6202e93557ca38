// TransportLimits: the bounds of transport.h as values, so that tests can make them small.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace shoal {

// Sessions that have not proven to know the token, all together; further ones are turned away at the door.
inline constexpr size_t kMaxUnprovenSessions = 256;
// How long an ended session waits for the other side to have read why, before the connection is cut.
inline constexpr uint32_t kFarewellMs = 500;
static_assert(kFarewellMs < kHandshakeTimeoutMs);
// A large message that has its turn must go on: a chunk that does not arrive in this time ends the session.
// Heartbeats do not tell, they may take another way than bulk data.
inline constexpr uint32_t kMessageStallMs = 10000;
static_assert(kMessageStallMs > kPeerLostAfterMs);

// File descriptors of a session that is up (two by UCX over TCP, tests/transport/descriptors_test.cpp counts
// them; at the door a session has one more), and of the transport itself with all the workers it may have.
inline constexpr size_t kDescriptorsPerPeer = 2;
inline constexpr size_t kDescriptorsOfTransport = 64;

struct TransportLimits {
  uint32_t heartbeat_interval_ms = kHeartbeatIntervalMs;
  uint32_t peer_lost_after_ms = kPeerLostAfterMs;
  uint32_t handshake_timeout_ms = kHandshakeTimeoutMs;
  uint32_t farewell_ms = kFarewellMs;
  uint32_t message_stall_ms = kMessageStallMs;
  size_t queued_bytes_per_peer = kMaxQueuedBytesPerPeer;
  size_t queued_messages_per_peer = kMaxQueuedMessagesPerPeer;
  size_t inbound_bytes = kMaxInboundBytes;
  size_t unproven_sessions = kMaxUnprovenSessions;
  size_t peers = kMaxPeers;
};

}  // namespace shoal
