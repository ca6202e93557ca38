// StorageTrial: whether a node of a shared load should read from storage instead. docs/reference/protocol.md,
// "A shared load".
//
// All hosts of a load begin with a few chunks that each reads itself before it requests any from peers. This
// measures storage while all hosts read from it. Then they share. The node compares that rate with the rate
// of everything that has come since all its peers send. If storage was clearly faster, the node reads the
// rest itself, as long as that is not slower than sharing was; if it becomes slower, the node shares again
// and stays with it. If storage is what limits sharing, it does not appear faster: then it gives no single
// host more than all hosts together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/loader/sharing/chunk_plan.h"
#include "actors/loader/sharing/chunk_state.h"
#include "actors/role.h"

namespace shoal::actors {

// The chunks with which this node begins, ascending; empty: no trial is worth it. In a group all of whose
// members read: the first chunks of its own part, at most a quarter of that. In a larger group: the first
// chunks of all, as long as the trials of all members read at most an eighth of what one member needs.
std::vector<uint32_t> trial_chunks(const ChunkPlan& plan, uint64_t buffer_bytes,
                                   const std::function<bool(uint32_t chunk)>& is_own_part);

class StorageTrial {
 public:
  struct Arrival {  // of a chunk, from storage or from a peer
    uint64_t bytes = 0;
    bool all_send = false;       // every peer with requests has sent something by now
    bool none_requested = true;  // no request to a peer is open
  };
  // `chunks`: number of chunks in the trial; 0: the node shares, whatever the speed of storage.
  // `needed_bytes`: of the whole load.
  StorageTrial(size_t chunks, uint64_t needed_bytes, TrialMachine::Counts& counts);

  void begin(TimeNs now) { since_ = now; }
  void came(TimeNs now, const Arrival& arrival);
  void give_up() { on(TrialTrigger::given_up); }  // the node shares

  // Nothing has been requested from peers yet.
  bool is_in_progress() const { return state_.is(TrialState::trying); }
  bool waits_for_peers() const { return state_.is(TrialState::warming); }
  bool reads_storage() const { return state_.is_one_of(TrialState::leaving, TrialState::reading); }

 private:
  void on(TrialTrigger trigger) { state_.on(trigger, counts_); }
  void begin_sample(TimeNs now, TrialTrigger trigger);

  TrialMachine state_;
  TrialMachine::Counts& counts_;
  size_t chunks_left_;  // of the trial
  const uint64_t sample_bytes_;
  TimeNs since_ = 0;  // start of the current sample
  uint64_t bytes_ = 0;
  uint64_t look_at_bytes_;  // bytes_ at which to compare
  uint64_t storage_kib_per_s_ = 0, shared_kib_per_s_ = 0;
};

}  // namespace shoal::actors
