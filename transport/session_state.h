// The states of a session (transport/session.h).
#pragma once

#include <array>
#include <cstdint>

#include "base/state_machine.h"

namespace shoal::transport {

enum class SessionState : uint8_t {
  handshaking,    // Only small handshake frames pass.
  choosing_port,  // Only on a listener: both peers are proven. It must state the port for the data.
  attaching,      // Both peers are proven. The attach frame is awaited on the data connection.
  up,             // Messages pass.
  lost,           // The session was up, and has ended.
  refused,        // One peer refused the other before the session was up.
  failed,         // The session ended before it was up, and nobody refused: no answer, or no connection.
};
enum class SessionTrigger : uint8_t {
  proven_to_connector,  // the connector has read the listener's welcome
  proven_to_listener,   // the listener has read the connector's proof
  port_offered,         // the listener has sent its welcome, which states the port
  attached,             // the attach frame came
  refused,              // by this node or by the peer
  ended,                // the connection broke, the peer is silent or closes, or this node ends the session
};

inline constexpr auto kSessionTransitions = [] {
  using S = SessionState;
  using T = SessionTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::handshaking, T::proven_to_connector, S::attaching},
      {S::handshaking, T::proven_to_listener, S::choosing_port},
      {S::handshaking, T::refused, S::refused},
      {S::handshaking, T::ended, S::failed},
      {S::choosing_port, T::port_offered, S::attaching},
      {S::choosing_port, T::refused, S::refused},
      {S::choosing_port, T::ended, S::failed},
      {S::attaching, T::attached, S::up},
      {S::attaching, T::refused, S::refused},
      {S::attaching, T::ended, S::failed},
      {S::up, T::ended, S::lost},
  });
}();
using SessionMachine = base::StateMachine<kSessionTransitions>;

}  // namespace shoal::transport
