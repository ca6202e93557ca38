// TransportLimits: the bounds of transport.h as values, so that tests can make them small.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace shoal::transport {

// Connections that have not proven to know the token, all together. When another one comes, one of them is
// closed: of the address that has the most, the oldest. Each is kept for so long at least, which bounds how
// fast a flood of them is let in, and for so long at most. One whose first message needs the token is kept
// for longer: when all nodes of a large job come at once, each has the time to finish.
inline constexpr size_t kMaxUnprovenSessions = 256;
inline constexpr uint32_t kUnprovenLifeMinMs = 25;
inline constexpr uint32_t kOfferedLifeMinMs = 500;
inline constexpr uint32_t kUnprovenLifeMaxMs = 2000;
static_assert(kUnprovenLifeMinMs < kOfferedLifeMinMs && kOfferedLifeMinMs < kUnprovenLifeMaxMs);
static_assert(kUnprovenLifeMaxMs < kHandshakeTimeoutMs);
// How long an ended session waits for the other side to have read why, before the connection is cut.
inline constexpr uint32_t kFarewellMs = 500;
static_assert(kFarewellMs < kHandshakeTimeoutMs);
// A large message that has its turn must go on: a chunk that does not arrive in this time ends the session.
// Heartbeats do not tell, they may take another way than bulk data.
inline constexpr uint32_t kMessageStallMs = 10000;
static_assert(kMessageStallMs > kPeerLostAfterMs);

// File descriptors of a session that is up: one by TCP, two by UCX over TCP, which has one more before that
// (tests/transport/descriptors_test.cpp counts them); and of the transport itself with all of UCX's workers.
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
  uint32_t unproven_life_min_ms = kUnprovenLifeMinMs;
  uint32_t offered_life_min_ms = kOfferedLifeMinMs;
  uint32_t unproven_life_max_ms = kUnprovenLifeMaxMs;
  size_t peers = kMaxPeers;
};

}  // namespace shoal::transport
