// Round: one call of load by the ranks of this host, as far as this node coordinates it with other nodes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/loader/load.h"
#include "actors/loader/load_choice.h"
#include "actors/loader/sharing/chunk_exchange.h"

namespace shoal::actors {

enum class RoundState : uint8_t {
  gathering,        // Loads of the ranks of this host come.
  opening_address,  // The node opens the address at which peers reach it.
  asking,           // The node has asked the coordinator who loads what, and asks again until it answers.
  planning,         // The coordinator has answered. The loads plan what they read.
  awaiting_memory,  // Every load is planned. The round waits for windows and a buffer.
  exchanging,       // The nodes exchange chunks.
  direct,           // Nothing is shared: the coordinator does not answer, or memory is short.
};
enum class RoundTrigger : uint8_t {
  gathered,           // every rank of this host has joined, or none has joined for a while
  gathered_to_share,  // as gathered, but the node needs an address first
  address_known,      // peers reach this node, or cannot
  answered,           // the coordinator has named the checkpoint and the hosts that share
  no_answer,          // the coordinator does not answer, or its session has ended
  all_planned,        // every load of the round is planned
  member_left,        // a load has ended while the round waited for memory
  memory_granted,     // the windows and the buffer are granted
  too_little_memory,  // the windows of all ranks can never fit together
};

inline constexpr auto kRoundTransitions = [] {
  using S = RoundState;
  using T = RoundTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::gathering, T::gathered, S::asking},
      {S::gathering, T::gathered_to_share, S::opening_address},
      {S::opening_address, T::address_known, S::asking},
      {S::opening_address, T::answered, S::planning},
      {S::opening_address, T::no_answer, S::direct},
      {S::asking, T::answered, S::planning},
      {S::asking, T::no_answer, S::direct},
      {S::planning, T::all_planned, S::awaiting_memory},
      {S::planning, T::too_little_memory, S::direct},
      {S::awaiting_memory, T::member_left, S::planning},
      {S::awaiting_memory, T::memory_granted, S::exchanging},
  });
}();
using RoundMachine = base::StateMachine<kRoundTransitions>;

class Round {
 public:
  using LoadKey = OpenCheckpoints::RequestKey;

  explicit Round(RoundMachine::Counts& counts) : counts_(counts) {}

  RoundState state() const { return state_.state(); }
  void on(RoundTrigger trigger) { state_.on(trigger, counts_); }
  bool is(RoundState state) const { return state_.is(state); }
  bool awaits_answer() const { return state_.is_one_of(RoundState::opening_address, RoundState::asking); }
  bool is_answered() const { return !state_.is(RoundState::gathering) && !awaits_answer(); }
  // What the node and its peers exchange is settled: an exchange exists, or none will.
  bool is_settled() const { return state_.is_one_of(RoundState::exchanging, RoundState::direct); }

  std::vector<LoadKey> loads;      // that began before the coordinator answered, and have not left
  std::map<Rank, LayoutId> ranks;  // ranks of these loads, and the ids of what they share
  std::set<LoadKey> late;          // loads that began after the answer
  uint32_t world_size = 0;
  bool shares = false;
  bool insists = false;  // one of the loads requires sharing
  uint64_t bytes = 0;    // of the loads that share

  // --- asking ---
  bool asks_again = false;  // soon, because ranks have come since the last JoinLoad
  TimeNs asked_since = 0;
  TimerId timer = 0;
  std::optional<Backoff> backoff;

  // --- from planning on ---
  std::optional<LoadChooser::Chosen> chosen;
  // As the coordinator has sent it. It may name many hosts, so rounds do not copy it.
  std::shared_ptr<const wire::LoadRoster> roster = std::make_shared<const wire::LoadRoster>();
  std::map<LoadKey, std::shared_ptr<const ReadPlan>> planned;
  std::vector<LoadKey> users;                  // of the exchange, by number
  uint32_t own_host = 0;                       // its number in the exchange
  std::vector<UserReads> reads;                // of the users, in awaiting_memory
  std::optional<WindowBudget::Ticket> ticket;  // for their windows and the buffer
  std::unique_ptr<ChunkExchange> exchange;     // in exchanging

  // --- peers that are ahead ---
  std::vector<std::pair<NodeId, wire::ChunkRequest>> early;
  TimeNs early_since = 0;
  std::vector<wire::ChunksCancelled> early_cancelled;

 private:
  RoundMachine state_{RoundState::gathering};
  RoundMachine::Counts& counts_;
};

}  // namespace shoal::actors
