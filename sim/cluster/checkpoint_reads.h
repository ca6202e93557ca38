// CheckpointReads: simulates trainers that read checkpoints while they train, each for itself. A trainer
// lists them, asks for the latest, loads values of the newest or of a step, or keeps a checkpoint open and
// reads from it twice. Its node reads the files, or the trainer itself. A load of the newest may keep the
// trainer from its next save, which the other ranks call meanwhile.
//
// It checks every answer, and names the first violation:
//
//   read-is-committed   an attempt that a trainer found is committed, and the one that it asked for
//   read-finds          what was committed when a trainer asked is found, unless it was deleted since
//   read-is-whole       a load that is reported as done has brought every value
//   read-is-sound       a load that may fall back finds no checkpoint that was damaged before it asked
//   read-is-possible    no read fails for a reason that the failures do not give, and none fails after they
//                       are over
//   open-is-kept        a checkpoint that a trainer keeps open is not deleted
//   read-ends-in-time   a trainer whose node serves it receives an answer
//
// Bytes are compared with those that were saved (StoredPayload).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/basics/random.h"
#include "sim/cluster/counted_trainers.h"
#include "sim/cluster/received_values.h"
#include "sim/failures/oracles.h"

namespace shoal::sim {

class CheckpointReads {
 public:
  struct Job {
    std::vector<LayoutPtr> layouts;  // one per pipeline stage
    uint32_t ranks = 0;
    uint32_t ranks_per_host = 1;
    uint32_t generation = kSimulatedGeneration;
    uint32_t saves = 1;
    uint32_t reads = 0;              // begun by random ranks after the begin of each save
    actors::TimeNs interval_ns = 0;  // between saves; a read begins up to twice as long after one
    uint64_t seed = 0;
    StoredPayload* payload = nullptr;  // never null
    // A read that begins at or after `recovered` must not fail.
    actors::TimeNs failures_end = 0, recovered = 0;
  };
  // The arguments outlive all scheduled events. Precondition: the cluster has a payload.
  CheckpointReads(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers, Job job);

  void save_begins();
  // Every message of a node to a trainer.
  void hear(actors::ClientId client, const local::LocalMessage& message);
  // The trainer attaches to another process of its node, or by another connection: its read is gone.
  void forget(Rank rank);
  void stop();  // ends all reads: another run of the job replaces this one
  // No read is under way. Drops those of trainers that no node serves.
  bool done();
  const std::optional<Violation>& check(actors::TimeNs now);  // deadlines; returns the first violation
  uint64_t begun() const { return begun_; }
  uint64_t failed() const { return failed_; }

 private:
  enum class Kind : uint8_t { list, latest, step, open, newest };
  struct Read {
    Kind kind = Kind::list;
    uint32_t request = 0;
    uint64_t step = 0;
    bool falls_back = false;  // a load of the newest may fall back
    uint32_t last_save = 0;   // that the trainer had called when it asked for the newest; 0: none
    uint32_t newest = 0;      // of a list
    actors::TimeNs asked = 0;
    std::vector<AttemptKey> existed;  // committed when it asked
    local::LoadTargets targets;
    bool reads_files = false;
    std::optional<AttemptKey> found;
    ReceivedValues received;
    actors::TimeNs copies_until = 0;
    uint32_t opened = 0;             // the request that keeps the checkpoint open; 0: none yet
    actors::TimeNs opened_at = 0;    // when that was asked
    std::optional<AttemptKey> kept;  // the checkpoint that is kept open
  };

  void begin(Rank rank);
  void forget_unserved();  // reads of trainers that no node serves
  void ask(Rank rank, Read& read);
  void ask_again(Rank rank, uint32_t opened);  // from the checkpoint that it keeps open
  uint64_t draw_step();
  local::LoadTargets draw_targets(Rank rank);
  bool is_served(Rank rank) const;
  // The read of this client with this request id; null: it has none.
  Read* find(actors::ClientId client, uint32_t request);
  void on_listing(actors::ClientId client, const local::Listing& listing);
  void on_found(actors::ClientId client, const local::Found& found);
  void on_loaded(actors::ClientId client, const local::Loaded& loaded);
  void on_files(actors::ClientId client, const local::FilesToRead& files);
  std::vector<local::UnreadRange> read_files(const Read& read, const local::FilesToRead& files);
  void on_done(actors::ClientId client, const local::LoadDone& done);
  void check_found(const Read& read, const AttemptKey& key);
  void check_failure(const Read& read, const Status& outcome);
  bool is_damaged(const Read& read) const;
  // Ends the read of this client, which has failed.
  void fail(actors::ClientId client, const Read& read, const Status& outcome);
  bool is_committed(const AttemptKey& key) const;
  void violated(std::string oracle, std::string what);
  size_t node_of(Rank rank) const { return rank / job_.ranks_per_host; }

  EventHeap& events_;
  VirtualCluster& cluster_;
  CountedTrainers& trainers_;
  const Job job_;
  Random random_;
  std::map<Rank, Read> reads_;  // under way: one a rank
  uint32_t last_request_ = 0;
  actors::TimeNs next_check_ = 0;
  uint64_t begun_ = 0, failed_ = 0;
  bool is_stopped_ = false;
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
