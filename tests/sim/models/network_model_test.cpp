// NetworkModel, compared with closed forms: the time of gathers over one tier and two, direct and through a
// tree; the wait of a message at an interface; hosts that share processors.
#include "sim/models/network_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/basics/integer_math.h"
#include "sim/basics/random.h"
#include "sim/models/core_pool.h"
#include "sim/models/relay_model.h"
#include "tests/sim/models/run_all.h"

namespace shoal::sim {
namespace {

constexpr actors::TimeNs kLatency = 2500, kPerMessage = 1000;
constexpr uint64_t kByteANanosecond = 1'000'000'000;

NetworkCosts costs_of(uint32_t hosts_per_rack = 0, uint32_t oversubscription_permille = 1000) {
  NetworkCosts costs;
  costs.latency_ns = kLatency;
  costs.message_ns = kPerMessage;
  costs.bytes_per_s = kByteANanosecond;
  costs.hosts_per_rack = hosts_per_rack;
  costs.oversubscription_permille = oversubscription_permille;
  costs.rack_latency_ns = 700;
  return costs;
}

TEST(NetworkModel, GathersAtTheHubAtTheRateOfItsInterface) {
  EventHeap events;
  constexpr size_t kNodes = 1000;
  NetworkModel network(events, costs_of(), kNodes);
  actors::TimeNs last = 0;
  for (size_t node = 1; node < kNodes; ++node) network.send(node, 0, 4096, [&] { last = events.now(); });
  run_all(events);
  // L, and then g + s G of each message, one after the other.
  EXPECT_EQ(last, kLatency + actors::TimeNs{kNodes - 1} * (kPerMessage + 4096));
}

// Each of `relays` gathers from `fan_out` nodes and sends on what it has in one message.
actors::TimeNs tree_gather_ns(size_t relays, size_t fan_out, uint64_t bytes) {
  EventHeap events;
  NetworkModel network(events, costs_of(), 1 + relays + relays * fan_out);
  std::vector<size_t> missing(relays, fan_out);
  actors::TimeNs last = 0;
  for (size_t leaf = 0; leaf < relays * fan_out; ++leaf) {
    const size_t relay = leaf % relays;
    network.send(1 + relays + leaf, 1 + relay, bytes, [&, relay] {
      if (--missing[relay] != 0) return;
      network.send(1 + relay, 0, bytes * fan_out, [&] { last = events.now(); });
    });
  }
  run_all(events);
  return last;
}

TEST(NetworkModel, GathersByATreeAsTheClosedFormSays) {
  for (size_t fan_out : {4, 32, 256}) {
    constexpr size_t kRelays = 64;
    constexpr uint64_t kBytes = 512;
    const auto f = static_cast<actors::TimeNs>(fan_out);
    const actors::TimeNs relays_have_all = kLatency + f * (kPerMessage + actors::TimeNs{kBytes});
    const actors::TimeNs coordinator_has_all =
        kLatency + actors::TimeNs{kRelays} * (kPerMessage + f * actors::TimeNs{kBytes});
    EXPECT_EQ(tree_gather_ns(kRelays, fan_out, kBytes), relays_have_all + coordinator_has_all) << fan_out;
  }
}

// Every host of the first rack sends to its like in the second.
actors::TimeNs between_racks_ns(uint32_t hosts, uint32_t oversubscription_permille, uint64_t bytes) {
  EventHeap events;
  NetworkModel network(events, costs_of(hosts, oversubscription_permille), 2 * size_t{hosts});
  actors::TimeNs last = 0;
  for (size_t host = 0; host < hosts; ++host) {
    network.send(host, host + hosts, bytes, [&] { last = std::max(last, events.now()); });
  }
  run_all(events);
  return last;
}

TEST(NetworkModel, TakesWhatTheUplinkTakesBetweenRacks) {
  constexpr uint32_t kHosts = 32;
  constexpr uint64_t kBytes = 1'000'000;
  const actors::TimeNs latency = kLatency + 700;
  // The last message waits for the 31 before it at the uplink's rate, that of 32 interfaces by the factor,
  // and then takes an interface's time at its receiver.
  for (uint32_t factor : {1, 4, 8}) {
    EXPECT_EQ(between_racks_ns(kHosts, factor * 1000, kBytes),
              latency + actors::TimeNs{kHosts - 1} * actors::TimeNs{kBytes} * factor / kHosts + kPerMessage +
                  actors::TimeNs{kBytes});
  }
  // An uplink that is slower than one interface is all that counts.
  EXPECT_EQ(between_racks_ns(kHosts, 64'000, kBytes), latency + actors::TimeNs{kBytes} * 64);
}

TEST(NetworkModel, DoesNotAskTheUplinkWithinARack) {
  EventHeap events;
  NetworkModel network(events, costs_of(8, 100'000), 16);
  actors::TimeNs last = 0;
  network.send(1, 0, 4096, [&] { last = events.now(); });
  run_all(events);
  EXPECT_EQ(last, kLatency + kPerMessage + 4096);
}

TEST(NetworkModel, KeepsMessagesBetweenTwoNodesInOrder) {
  for (uint32_t hosts : {0, 2}) {
    EventHeap events;
    NetworkModel network(events, costs_of(hosts, 3000), 8);
    Random random(5);
    std::vector<int> order;
    for (int i = 0; i < 200; ++i) {
      network.send(1, 6, random.below(20'000), [&order, i] { order.push_back(i); });
      network.send(0, 6, random.below(20'000), [] {});
    }
    run_all(events);
    ASSERT_EQ(order.size(), 200u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

// A Poisson stream at a server of constant service: M/D/1, whose mean wait is rho S / (2 (1 - rho)).
TEST(NetworkModel, MakesMessagesWaitAtAnInterfaceAsInAnMD1Queue) {
  constexpr int kMessages = 1'000'000;
  constexpr actors::TimeNs kService = kPerMessage + 1000;
  for (double load : {0.3, 0.6}) {
    EventHeap events;
    NetworkModel network(events, costs_of(), 20'000);
    Random random(7);
    double waited = 0, at = 0;
    for (int i = 0; i < kMessages; ++i) {
      at += -std::log((static_cast<double>(random.below(1 << 30)) + 1) / (1 << 30)) * kService / load;
      const auto sent = static_cast<actors::TimeNs>(at);
      events.schedule(sent, [&, sent, i] {
        network.send(1 + static_cast<size_t>(i) % 19'999, 0, 1000,
                     [&, sent] { waited += static_cast<double>(events.now() - sent - kLatency - kService); });
      });
    }
    run_all(events);
    const double wanted = load * kService / (2 * (1 - load));
    EXPECT_NEAR(waited / kMessages, wanted, 0.01 * wanted) << load;
  }
}

// --- relays ---

// Every node but the coordinator's and `dead` sends it one message.
struct Gathered {
  actors::TimeNs last = 0;
  size_t messages = 0, relays = 0, children_of_dead = 0;
};
Gathered gather_by_relays(size_t nodes, size_t direct_max, uint64_t bytes, size_t dead = 0) {
  EventHeap events;
  CpuCosts cpu;
  cpu.message_ns = 9000;
  NetworkModel network(events, costs_of(), nodes);
  RelayModel relays(events, network, cpu, nodes, direct_max);
  Gathered gathered;
  gathered.relays = relays.relays();
  if (dead != 0) relays.kill(dead);
  for (size_t node = 1; node < nodes; ++node) {
    if (node == dead) continue;
    if (dead != 0 && relays.relay_of(node) == dead) ++gathered.children_of_dead;
    relays.send(node, 0, bytes, [&] {
      ++gathered.messages;
      gathered.last = events.now();
    });
  }
  run_all(events);
  return gathered;
}

TEST(RelayModel, LeavesJobsThatFitAsTheyAre) {
  const Gathered gathered = gather_by_relays(1000, 999, 4096);
  EXPECT_EQ(gathered.relays, 0u);
  EXPECT_EQ(gathered.last, kLatency + actors::TimeNs{999} * (kPerMessage + 4096));
}

TEST(RelayModel, GathersAtTheRateOfTheThreadOfOneRelay) {
  constexpr size_t kDirect = 100;
  const Gathered gathered = gather_by_relays(1 + kDirect + actors::kRelayFill, kDirect, 100);
  EXPECT_EQ(gathered.relays, 1u);
  const actors::TimeNs first_at_relay = kLatency + kPerMessage + 100;
  const actors::TimeNs passed_on = first_at_relay + actors::TimeNs{actors::kRelayFill} * 2 * 9000;
  EXPECT_EQ(gathered.last, passed_on + kLatency + kPerMessage + 200);
}

TEST(RelayModel, GathersByManyRelaysAtTheRateOfTheHub) {
  constexpr size_t kDirect = 40, kNodes = 1 + kDirect + kDirect * actors::kRelayFill;
  const Gathered gathered = gather_by_relays(kNodes, kDirect, 100);
  EXPECT_GE(gathered.relays, kDirect - 1);
  EXPECT_EQ(gathered.messages, kNodes - 1);
  // What comes straight, and then what is relayed with its envelope, without a pause.
  EXPECT_EQ(gathered.last, kLatency + actors::TimeNs{kDirect} * (kPerMessage + 100) +
                               actors::TimeNs{kDirect * actors::kRelayFill} * (kPerMessage + 200));
}

TEST(RelayModel, LosesWhatIsUnderWayThroughARelayThatDies) {
  constexpr size_t kDirect = 40, kNodes = 1 + kDirect + kDirect * actors::kRelayFill;
  const Gathered gathered = gather_by_relays(kNodes, kDirect, 100, 3);
  EXPECT_GE(gathered.children_of_dead, actors::kRelayFill);
  EXPECT_EQ(gathered.messages, kNodes - 2 - gathered.children_of_dead);
}

TEST(CorePool, GivesWorkToTheProcessorThatIsFreeFirst) {
  CorePool two(2);
  EXPECT_EQ(two.end_of(0, 10), 10);
  EXPECT_EQ(two.end_of(0, 4), 4);
  EXPECT_EQ(two.end_of(1, 5), 9) << "behind the four";
  EXPECT_EQ(two.end_of(1, 5), 14) << "behind the nine";
  EXPECT_EQ(two.end_of(100, 1), 101);
}

TEST(CorePool, LetsNobodyWaitWhereEachHostHasItsOwn) {
  CorePool own(0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(own.end_of(7, 10), 17);
}

}  // namespace
}  // namespace shoal::sim
