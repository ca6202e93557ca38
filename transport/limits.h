// TransportLimits: the bounds of transport.h as values, so that tests can reduce them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace shoal::transport {

// Bounds on all connections that have not proven the token. When another one arrives at the maximum, the
// oldest connection of the address that has the most is closed. Each connection is kept for a minimum time,
// which limits the rate at which a flood is accepted, and for a maximum time. A connection that already
// offered the key is kept longer, so that all nodes of a large job can connect at once.
inline constexpr size_t kMaxUnprovenSessions = 256;
inline constexpr uint32_t kUnprovenLifeMinMs = 25;
inline constexpr uint32_t kOfferedLifeMinMs = 500;
inline constexpr uint32_t kUnprovenLifeMaxMs = 2000;
static_assert(kUnprovenLifeMinMs < kOfferedLifeMinMs && kOfferedLifeMinMs < kUnprovenLifeMaxMs);
static_assert(kUnprovenLifeMaxMs < kHandshakeTimeoutMs);
// How long an ended session waits for the peer to read the reason before it closes the connection.
inline constexpr uint32_t kFarewellMs = 500;
static_assert(kFarewellMs < kHandshakeTimeoutMs);
// A large message in transfer must make progress: a chunk that takes longer than this ends the session.
// Heartbeats do not prove progress, because they may use another path than bulk data.
inline constexpr uint32_t kMessageStallMs = 10000;
static_assert(kMessageStallMs > kPeerLostAfterMs);

// File descriptors of an established session: one with TCP, two with UCX over TCP, which has one more while
// it connects (tests/transport/live/descriptors_test.cpp counts them). And those of the transport itself,
// including all UCX workers.
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
