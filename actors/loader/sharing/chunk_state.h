// The states of a shared load on one node: of each of its chunks (ChunkExchange), and of the comparison of
// storage with peers (StorageTrial).
#pragma once

#include <array>
#include <cstdint>

#include "base/state_machine.h"

namespace shoal::actors {

enum class ChunkState : uint8_t {
  waiting,       // Its turn has not come.
  requested,     // Requested from a peer.
  needs_header,  // A header of its files is on its way. Then the node reads the chunk, or checks what it got.
  reading,       // The node reads it from storage.
  checking,      // A peer has sent it. The node compares it with its digests.
  here,          // In the buffer: users copy it, and peers receive it.
  gone,          // No longer in the buffer, or never to come. Peers that request it read it themselves.
};
enum class ChunkTrigger : uint8_t {
  request_sent,    // a peer is to send it
  peer_given_up,   // the peer has sent nothing in time: another source is chosen
  header_missing,  // a header that is on its way is needed first
  read_begun,      // this node is to read it; a peer may not have it, or have sent damaged bytes
  received,        // a peer has sent it
  arrived,         // it was read, or it passed the check
  read_failed,     // it cannot be read
  not_needed,      // the users of this node have all ended
  released,        // nobody needs it any more, or peers did not request it in time
};

inline constexpr auto kChunkTransitions = [] {
  using S = ChunkState;
  using T = ChunkTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::waiting, T::request_sent, S::requested},
      {S::waiting, T::header_missing, S::needs_header},
      {S::waiting, T::read_begun, S::reading},
      {S::waiting, T::not_needed, S::gone},
      {S::requested, T::peer_given_up, S::waiting},
      {S::requested, T::header_missing, S::needs_header},
      {S::requested, T::read_begun, S::reading},
      {S::requested, T::received, S::checking},
      {S::needs_header, T::header_missing, S::needs_header},
      {S::needs_header, T::read_begun, S::reading},
      {S::needs_header, T::received, S::checking},
      {S::reading, T::arrived, S::here},
      {S::reading, T::read_failed, S::gone},
      {S::checking, T::arrived, S::here},
      {S::checking, T::read_begun, S::reading},
      {S::here, T::released, S::gone},
  });
}();
using ChunkMachine = base::StateMachine<kChunkTransitions>;

enum class TrialState : uint8_t {
  trying,   // The node reads the chunks of the trial, and requests none from peers.
  warming,  // It requests from peers. Not all of them send yet.
  sharing,  // All peers send. The node compares their rate with that of the trial.
  leaving,  // Storage is clearly faster. What was requested from peers still arrives.
  reading,  // The node reads everything itself, and compares each sample with the rate of sharing.
  over,     // The node shares, whatever the speed of storage.
};
enum class TrialTrigger : uint8_t {
  tried,              // every chunk of the trial has been read
  all_send,           // every peer with requests has sent something
  storage_faster,     // storage gave clearly more than the peers do
  nothing_requested,  // no request to a peer is open any more
  still_as_fast,      // a sample of own reads was not slower than sharing
  given_up,           // own reads have become slower than sharing, or a chunk could not be read
};

inline constexpr auto kTrialTransitions = [] {
  using S = TrialState;
  using T = TrialTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::trying, T::tried, S::warming},
      {S::trying, T::given_up, S::over},
      {S::warming, T::all_send, S::sharing},
      {S::warming, T::given_up, S::over},
      {S::sharing, T::storage_faster, S::leaving},
      {S::sharing, T::given_up, S::over},
      {S::leaving, T::nothing_requested, S::reading},
      {S::leaving, T::given_up, S::over},
      {S::reading, T::still_as_fast, S::reading},
      {S::reading, T::given_up, S::over},
      {S::over, T::given_up, S::over},
  });
}();
using TrialMachine = base::StateMachine<kTrialTransitions>;

// Counters of the states of all exchanges of a Loader.
struct ExchangeCounts {
  ChunkMachine::Counts chunks;
  TrialMachine::Counts trials;
};

}  // namespace shoal::actors
