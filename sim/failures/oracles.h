// Oracles: properties that must hold in every run, whatever failures it has. The oracles check what the root
// answers to roles, what the nodes report to trainers, and the root itself. A run names the first violation
// and ignores later ones.
//
//   one-decision             an attempt has one decision, the same for every reader
//   notified-of-what-exists  a trainer that is notified of a commit finds the manifest, and a trainer that is
//                            notified of an abort finds a tombstone
//   committed-durable        every file of a manifest exists with its size, and so does every file that the
//                            plan of a rank has, when trainers are notified and at the end
//   latest-is-committed      the latest checkpoint is a committed attempt, or there is none
//   latest-goes-forward      the latest checkpoint never gets older within a generation
//   bounds                   messages and slabs in use stay within their bounds
//   slabs-come-back          no slab is in use long after all saves are decided
//   slabs-outlive-writes     no node unmaps a slab that a write reads
//   needless-abort           no save fails if all failures are ones that a save must survive
//   staged-is-saved          a save that every rank has staged is committed, if only trainers end and disks
//                            are slow
//   cause-is-true            the cause that a trainer receives for a save that failed is one that the
//   failures
//                            give
//   complete-is-committed    no attempt is aborted that has long been complete: all files of all ranks exist
//   replicas-are-named       with replica_check, a save whose ranks digested a flipped bit says that replicas
//                            differ, and names the tensor; no other save says so
//   commits-again            a save that begins after all failures are over is committed, if all hosts and
//                            trainers live
//   ends-in-time             each living rank is notified of a save within its deadline, once failures stop
//   kept-by-rule             retention deletes no checkpoint that its rule keeps
//   deletes-in-time          retention deletes what no rule keeps, where all nodes live and no disk fails
//   leases-end               no lease holds a checkpoint once the loads have ended, where nothing fails
//   aborted-is-swept         the files of aborted attempts are removed, where all nodes live and no disk
//   fails
//   goes-quiet               nodes send nothing more when all is decided, if no trainer has ended
//
// sim/simulation.cpp checks replicas-are-named, slabs-come-back and the last four. The oracles do not check
// that equal seeds give equal traces: sim/replay.h compares two runs.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/failures/abort_causes.h"
#include "storage/decisions/decision.h"

namespace shoal::sim {

struct Violation {
  std::string oracle;
  actors::TimeNs at = 0;
  std::string what;
};

// The root as the oracles see it.
class RootView {
 public:
  virtual ~RootView() = default;
  virtual std::shared_ptr<const storage::Decision> decision(
      const AttemptKey& key) const = 0;  // null: undecided
  virtual std::optional<uint64_t> file_bytes(const AttemptKey& key, Rank rank, uint32_t file) const = 0;
  virtual std::optional<AttemptKey> latest() const = 0;  // the checkpoint that a load would choose
  virtual std::vector<AttemptKey> committed() const = 0;
  virtual std::vector<AttemptKey> undecided() const = 0;
  // If this attempt was aborted by the newest run although the root proved it complete: for how long it had
  // been complete.
  virtual std::optional<actors::TimeNs> complete_when_aborted(const AttemptKey& key) const = 0;
  virtual bool has_roster() const = 0;                        // the first one of the run
  virtual bool was_deleted(const AttemptKey& key) const = 0;  // by a rule of retention, or an operator
  virtual std::optional<actors::TimeNs> deleted_at(const AttemptKey& key) const = 0;  // null: it was not
  // When a bit of one of its files flipped on the disk; null: it is sound.
  virtual std::optional<actors::TimeNs> damaged_at(const AttemptKey& key) const = 0;
  // A checkpoint that was deleted although it was one of those that the rule keeps, or that lost the pin of
  // an operator.
  virtual std::optional<AttemptKey> wrongly_deleted() const = 0;
};

class Oracles {
 public:
  struct Facts {
    uint32_t generation = 1;
    uint32_t ranks = 0;
    actors::TimeNs failures_end = 0;
    // Failures excuse no abort of a save that begins later, if all ranks live, and no wait beyond this
    // deadline.
    actors::TimeNs prompt_deadline = 0;
    actors::TimeNs recovered = std::numeric_limits<actors::TimeNs>::max();
    uint32_t max_in_flight = 2;                     // the slabs of a rank
    bool loses_only_trainers = false;               // other failures only take time
    std::function<bool(uint32_t save)> all_staged;  // whether every rank has staged the save
    bool needs_no_abort = false;  // every rank takes part in every save, and no outage is long
    // Longest time until the last rank is notified of a save. It begins when the first node receives a
    // message of the save, or when the last failure ends.
    actors::TimeNs save_deadline = 0;
    // Likewise while the root has no roster: a coordinator does not know which ranks it waits for.
    actors::TimeNs first_deadline = 0;
    std::function<actors::TimeNs(uint32_t save)>
        notified_at;  // when the first node received one; negative: none has
    std::function<bool(Rank)> lives;
    // What explains why saves fail. Null: cause-is-true is not checked.
    std::shared_ptr<AbortCauses> causes;
    std::function<size_t()> coordinator;  // its host; not null if `causes` is not
    // Whether the trainer waits for a slab that a disk that hangs may hold.
    std::function<bool(actors::TimeNs now, Rank)> waits_for_disk;
    // How long storage takes to write the staged bytes of a save; null: no time.
    std::function<actors::TimeNs(uint32_t save)> writing;
    std::function<uint64_t(const storage::Manifest&, Rank)>
        assigned_bytes;  // bytes that the planning rule assigns to a rank
  };
  Oracles(Facts facts, const RootView& root) : facts_(std::move(facts)), root_(root) {}

  void save_begins(actors::TimeNs now, uint32_t save);  // numbered from 1
  void answered(actors::TimeNs now,
                const std::shared_ptr<const storage::Decision>& decision);  // by the root, to a role
  void notified(actors::TimeNs now, Rank rank, const AttemptKey& key, const Status& outcome);
  void sent(actors::TimeNs now, size_t from, size_t to, uint64_t bytes);
  void slabs(actors::TimeNs now, Rank rank, uint32_t in_use);
  // A node has unmapped the slabs of a client of which a write still reads.
  void slab_unmapped(actors::TimeNs now, size_t node, Rank rank);
  // Checks the deadlines up to `now`. True: an oracle is violated, and the run must end.
  bool stops(actors::TimeNs now);
  void finish(actors::TimeNs now);  // the run has ended
  // The job has started again as another run. Nothing of this one must be decided in time any more.
  void superseded();
  const std::optional<Violation>& violation() const { return violation_; }
  actors::TimeNs last_sent() const { return last_sent_; }  // when a node sent its last message
  // The attempts that some trainer was notified of as committed.
  std::vector<AttemptKey> told_committed() const;

 private:
  struct Save {
    actors::TimeNs began = 0;
    std::vector<bool> notified;  // by rank
  };
  struct Known {  // a decision that the root has answered
    bool committed = false;
    std::string summary;  // a tombstone's cause, a manifest's files
  };
  void violated(std::string oracle, actors::TimeNs now, std::string what);
  // Failures may delay or abort this save.
  bool is_excused(const Save& save) const;
  void check_commits_again(actors::TimeNs now, const Save& save, const AttemptKey& key,
                           const Status& outcome);
  void check_cause(actors::TimeNs now, Rank rank, const AttemptKey& key, const Status& outcome);
  void check_durable(actors::TimeNs now, const AttemptKey& key, const storage::Manifest& manifest);
  void check_latest(actors::TimeNs now);
  void check_deadlines(actors::TimeNs now);
  actors::TimeNs due(uint32_t number, const Save& save, actors::TimeNs now) const;

  const Facts facts_;
  const RootView& root_;
  std::map<uint32_t, Save> open_;             // saves of which a rank has not been notified
  std::map<uint32_t, actors::TimeNs> began_;  // all saves
  std::map<AttemptKey, Known> known_;
  std::set<std::pair<AttemptKey, std::string>> checked_causes_;
  std::map<AttemptKey, bool> checked_;  // manifests whose files were checked at the first notification
  std::optional<AttemptKey> latest_;
  actors::TimeNs next_due_ = 0;
  actors::TimeNs last_sent_ = 0;
  bool is_superseded_ = false;
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
