// The tables of states of the transport.
#include <gtest/gtest.h>

#include <vector>

#include "tests/base/state_tables.h"
#include "transport/live/peer_states.h"
#include "transport/session_state.h"

namespace shoal::transport {
namespace {

TEST(TheTablesOfTheTransport, ReachEveryState) {
  EXPECT_TRUE(base::reaches_all(kSessionTransitions, std::vector{SessionState::handshaking}));
  EXPECT_TRUE(base::reaches_all(kPeerTransitions, std::vector{PeerState::proving}));
  EXPECT_TRUE(base::reaches_all(kPathTransitions, std::vector{PathState::undecided}));
}

TEST(ASession, MayEndInEveryStateThatIsNotAnEnd) {
  for (const auto& row : kSessionTransitions) {
    EXPECT_TRUE(SessionMachine(row.from).may(SessionTrigger::ended)) << base::name_of_enumerator(row.from);
  }
}

TEST(ASession, IsRefusedOnlyBeforeItIsUp) {
  for (const auto& row : kSessionTransitions) {
    EXPECT_EQ(SessionMachine(row.from).may(SessionTrigger::refused), row.from != SessionState::up)
        << base::name_of_enumerator(row.from);
  }
}

// A listener that sent no welcome would leave the connector without its port.
TEST(ASession, OfAListenerIsAttachedOnlyAfterItHasOfferedItsPort) {
  SessionMachine listener(SessionState::handshaking);
  listener.on(SessionTrigger::proven_to_listener);
  EXPECT_FALSE(listener.may(SessionTrigger::attached));
  listener.on(SessionTrigger::port_offered);
  EXPECT_TRUE(listener.may(SessionTrigger::attached));
}

TEST(APeer, ComesUpOnlyIfItHasProvenTheToken) {
  EXPECT_FALSE(PeerMachine(PeerState::proving).may(PeerTrigger::came_up));
  for (const auto& row : kPeerTransitions) {
    if (row.to != PeerState::up) continue;
    EXPECT_EQ(row.from, PeerState::greeting);
  }
}

TEST(APeer, MayLoseItsSessionUntilItHas) {
  for (const auto& row : kPeerTransitions) {
    EXPECT_EQ(PeerMachine(row.from).may(PeerTrigger::session_ended), row.from != PeerState::parting)
        << base::name_of_enumerator(row.from);
  }
}

}  // namespace
}  // namespace shoal::transport
