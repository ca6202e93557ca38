// Load: one load of one client at its node, from its request until its end. It does no I/O: the Loader starts
// the operations and calls on() with what happened.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "actors/loader/open_checkpoints.h"
#include "actors/loader/read_plan.h"
#include "actors/loader/sharing/busy_time.h"
#include "actors/loader/window_budget.h"
#include "actors/messages/messages.h"
#include "base/state_machine.h"

namespace shoal::actors {

enum class LoadState : uint8_t {
  opening,           // The request has come.
  in_round,          // It waits for the other ranks of its host, and for the coordinator's answer.
  choosing,          // The node chooses the checkpoint.
  pinning,           // The checkpoint is chosen. The node pins it, so that it is not deleted meanwhile.
  reading_manifest,  // The node reads the manifest.
  decoding,          // The client has the encoded manifest. Client and node decode it.
  planning,          // The client knows the checkpoint. The node computes which bytes to read.
  measuring,         // The node reads the lengths of objects, which are not in the manifest.
  awaiting_round,    // Planned. The other loads of its round are not, or the round waits for memory.
  awaiting_window,   // Planned. It waits for memory for its window.
  transferring,      // Bytes go to the client: through the window, or the client reads the files.
  failing,           // It has failed. Operations that fill its window must end first.
  done,              // The client has everything.
  failed,            // The client has received the error.
  left,              // The client has disconnected.
};
enum class LoadTrigger : uint8_t {
  shares,            // it loads together with other ranks
  chooses,           // this node chooses the checkpoint by itself
  chosen,            // the checkpoint is known
  pinned,            // the pin is in the root
  manifest_encoded,  // the manifest is read, and large
  manifest_known,    // the manifest is read and decoded
  lengths_needed,    // the plan has objects
  planned_in_round,  // the plan is known, and its round builds one ChunkExchange from the plans of all its
                     // loads
  window_needed,     // the plan is known, or what the client could not read; bytes need a window
  transfer_begins,   // the window is granted, or none is needed
  transferred,       // every byte is placed
  failed,            // the first error
  ended,             // no operation fills its window any more
  client_left,       // the connection of the client has ended
};

inline constexpr auto kLoadTransitions = [] {
  using S = LoadState;
  using T = LoadTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::opening, T::shares, S::in_round},
      {S::opening, T::chooses, S::choosing},
      {S::opening, T::chosen, S::pinning},
      {S::opening, T::failed, S::failing},
      {S::in_round, T::chooses, S::choosing},
      {S::in_round, T::chosen, S::pinning},
      {S::in_round, T::failed, S::failing},
      {S::in_round, T::client_left, S::left},
      {S::choosing, T::chosen, S::pinning},
      {S::choosing, T::failed, S::failing},
      {S::choosing, T::client_left, S::left},
      {S::pinning, T::pinned, S::reading_manifest},
      {S::pinning, T::failed, S::failing},
      {S::pinning, T::client_left, S::left},
      {S::reading_manifest, T::manifest_encoded, S::decoding},
      {S::reading_manifest, T::manifest_known, S::planning},
      {S::reading_manifest, T::failed, S::failing},
      {S::reading_manifest, T::client_left, S::left},
      {S::decoding, T::manifest_known, S::planning},
      {S::decoding, T::failed, S::failing},
      {S::decoding, T::client_left, S::left},
      {S::planning, T::lengths_needed, S::measuring},
      {S::planning, T::planned_in_round, S::awaiting_round},
      {S::planning, T::window_needed, S::awaiting_window},
      {S::planning, T::transfer_begins, S::transferring},
      {S::planning, T::failed, S::failing},
      {S::measuring, T::planned_in_round, S::awaiting_round},
      {S::measuring, T::window_needed, S::awaiting_window},
      {S::measuring, T::transfer_begins, S::transferring},
      {S::measuring, T::failed, S::failing},
      {S::measuring, T::client_left, S::left},
      {S::awaiting_round, T::window_needed, S::awaiting_window},
      {S::awaiting_round, T::transfer_begins, S::transferring},
      {S::awaiting_round, T::failed, S::failing},
      {S::awaiting_round, T::client_left, S::left},
      {S::awaiting_window, T::transfer_begins, S::transferring},
      {S::awaiting_window, T::failed, S::failing},
      {S::awaiting_window, T::client_left, S::left},
      {S::transferring, T::window_needed, S::awaiting_window},
      {S::transferring, T::transferred, S::done},
      {S::transferring, T::failed, S::failing},
      {S::transferring, T::client_left, S::left},
      {S::failing, T::ended, S::failed},
      {S::failing, T::client_left, S::left},
  });
}();
using LoadMachine = base::StateMachine<kLoadTransitions>;

// One load among all that a client ever requests: a client may use a request id again, and an operation of
// the earlier load must not touch the later one.
struct LoadRef {
  OpenCheckpoints::RequestKey key;
  uint64_t number = 0;
};

class Load {
 public:
  struct Queue {                                 // a list of batches, of which the first have begun
    std::shared_ptr<const ReadBatches> batches;  // nullptr: none
    uint32_t next = 0;
    uint32_t in_progress = 0;  // batches that have a part of the window
    uint32_t size() const { return batches == nullptr ? 0 : static_cast<uint32_t>(batches->size()); }
    bool has_next() const { return next < size(); }
  };

  // number: differs from that of every other load of its Loader.
  Load(uint64_t number, const local::Load& from_client, TimeNs now, LoadMachine::Counts& counts)
      : request(from_client), began(now), number_(number), counts_(counts) {}

  uint64_t number() const { return number_; }
  LoadState state() const { return state_.state(); }
  void on(LoadTrigger trigger) { state_.on(trigger, counts_); }
  bool is(LoadState state) const { return state_.is(state); }
  // A checkpoint is chosen. From then on a missing file is damage, not "there is no checkpoint".
  bool is_chosen() const {
    return !state_.is_one_of(LoadState::opening, LoadState::in_round, LoadState::choosing);
  }
  // Found was sent, so that LoadDone must follow. Precondition: not failing.
  bool is_found() const {
    return is_chosen() && !state_.is_one_of(LoadState::pinning, LoadState::reading_manifest);
  }
  bool has_failed() const { return state_.is(LoadState::failing); }

  // The queue of a batch. Numbers of own batches count from 0, those of shared ones from kFirstShared.
  static constexpr uint32_t kFirstShared = uint32_t{1} << 31;
  static uint32_t number_of_shared(uint32_t at) { return kFirstShared + at; }
  Queue& queue_of(uint32_t batch) { return batch < kFirstShared ? own : shared; }
  ReadBatchPlan batch(uint32_t number) const {
    return number < kFirstShared ? (*own.batches)[number] : (*shared.batches)[number - kFirstShared];
  }

  // --- the request ---
  local::Load request;  // targets and sharing are kept until the load is planned
  uint64_t bytes = 0;   // of the targets, if it may share
  bool reads = false;
  bool reads_files = false;         // the client reads `own` itself
  std::optional<AttemptKey> fixed;  // the checkpoint that the client keeps open
  TimeNs began = 0, chosen = 0;

  // --- the checkpoint ---
  std::optional<AttemptKey> pinned;
  PassedOverPtr passed_over;  // newer attempts that the choice did not use
  std::shared_ptr<StoredCheckpoint> stored;

  // --- its round, and its memory ---
  std::optional<wire::LoadId> round;
  std::optional<uint32_t> user;                // its number among the users of the round's exchange
  std::shared_ptr<const ReadPlan> plan;        // in awaiting_window
  std::optional<WindowBudget::Ticket> ticket;  // in awaiting_window
  bool has_window = false;
  uint64_t slab_bytes = 0;  // of its window when it began
  uint64_t part_bytes = 0;  // bytes of the window that it may use
  std::vector<uint32_t> free_parts;

  // --- transferring ---
  // own: read straight into the window, or by the client. shared: copied from chunks.
  Queue own, shared;
  std::map<uint32_t, std::vector<uint32_t>> given;  // own batches that the client reads: which reads of each
  // What the client could not read; read into the window after the other batches are placed.
  std::vector<PlannedRead> unread;
  std::set<uint32_t> reading;  // batches that are being read into the window
  // Batch that is being read, or is loaded and not placed yet -> its part of the window.
  std::map<uint32_t, uint32_t> parts;
  std::set<uint32_t> loaded;  // of these, the batches that the client knows to be loaded
  DamageList damaged;         // what was read from copies
  BusyTime busy;
  LoadTimes times;

  Status failure;  // in failing: the first error, sent when nothing is being read any more

 private:
  const uint64_t number_;
  LoadMachine state_{LoadState::opening};
  LoadMachine::Counts& counts_;
};

}  // namespace shoal::actors
