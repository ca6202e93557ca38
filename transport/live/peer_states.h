// The states of a peer of the transport (transport/live/). Its life and the way its frames take change
// independently: a session may end before its way is chosen, or after.
#pragma once

#include <array>
#include <cstdint>

#include "base/state_machine.h"

namespace shoal::transport {

// --- its life ---

enum class PeerState : uint8_t {
  proving,   // The TLS handshake runs. The peer has not proven that it knows the job's token.
  greeting,  // It has. The session begins.
  up,        // The node was notified that the peer is up. Messages pass.
  parting,   // The session has ended, as the node knows. The peer gets time to read the reason.
  closing,   // Its connections are being closed. It is removed once UCX no longer uses its memory.
  dropped,   // Like `closing`, but the token was never proven.
};
enum class PeerTrigger : uint8_t {
  proven,         // the TLS handshake has proven that both sides know the token
  came_up,        // the session is up
  session_ended,  // for whatever reason
  farewell_over,  // the peer has read the reason, its connection broke, or it had time enough
};

inline constexpr auto kPeerTransitions = [] {
  using S = PeerState;
  using T = PeerTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::proving, T::proven, S::greeting},
      {S::proving, T::session_ended, S::dropped},
      {S::greeting, T::came_up, S::up},
      {S::greeting, T::session_ended, S::parting},
      {S::up, T::session_ended, S::parting},
      {S::parting, T::farewell_over, S::closing},
  });
}();
using PeerMachine = base::StateMachine<kPeerTransitions>;

// --- the way its frames take ---

enum class PathState : uint8_t {
  undecided,  // Handshake frames take the stream. The listener has not chosen how the others pass.
  stream,     // All frames take the stream (TransportKind::tcp).
  expected,   // Only on a listener: it has stated its port for data, and waits for the UCX connection.
  ucx,        // All frames but the handshake take a UCX connection.
  abandoned,  // The session ended before the UCX connection came.
};
enum class PathTrigger : uint8_t {
  stream_chosen,  // the listener stated that the session stays on its stream
  port_offered,   // a listener has stated its port for data
  connected,      // a connector opens a UCX connection, or the expected one came to a listener
  session_ended,
};

inline constexpr auto kPathTransitions = [] {
  using S = PathState;
  using T = PathTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::undecided, T::stream_chosen, S::stream},
      {S::undecided, T::port_offered, S::expected},
      {S::undecided, T::connected, S::ucx},
      {S::expected, T::connected, S::ucx},
      {S::expected, T::session_ended, S::abandoned},
  });
}();
using PathMachine = base::StateMachine<kPathTransitions>;

}  // namespace shoal::transport
