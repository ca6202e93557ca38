// Oracles: what must hold in every run, whatever goes wrong. They look at what roles are answered by the
// root, at what trainers are told, and at the root itself; the first that is violated is named, and nothing
// after it counts.
//
//   one-decision         an attempt has one decision, the same for all who read it, for ever
//   notified-of-what-exists     who is told "committed" finds the manifest standing, who is told "aborted" a
//   tombstone committed-durable    every file of a manifest is there in its size, and each rank's share is
//   among them,
//                        when it is told and at the end
//   latest-is-committed  latest names a committed attempt, or none
//   latest-goes-forward  latest never goes back within a generation
//   bounds               messages are within their bound, slabs in use within theirs
//   needless-abort  no save is aborted where nothing goes wrong that it must not outlive
//   ends-in-time         a save is decided for every rank that lives within its deadline, once faults stop
//
// That equal seeds give equal traces is compared by whoever runs twice (sim/replay.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/role.h"
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
  virtual std::optional<AttemptKey> latest() const = 0;  // what a load would choose
  virtual std::vector<AttemptKey> committed() const = 0;
};

class Oracles {
 public:
  struct Facts {
    uint32_t generation = 1;
    uint32_t ranks = 0;
    actors::TimeNs faults_end = 0;
    bool needs_no_abort = false;  // every rank comes to every save, and nothing is away for long
    // From when a node first hears of a save, or the last fault's end, to the last rank's answer.
    actors::TimeNs save_deadline = 0;
    std::function<actors::TimeNs(uint32_t save)> notified_at;  // when that was; negative: none has
    std::function<bool(Rank)> lives;
    // How long storage takes to write what was staged of a save; null: no time.
    std::function<actors::TimeNs(uint32_t save)> writing;
    std::function<uint64_t(const storage::Manifest&, Rank)>
        share_bytes;  // what the rule gives a rank to write
  };
  Oracles(Facts facts, const RootView& root) : facts_(std::move(facts)), root_(root) {}

  void save_begins(actors::TimeNs now, uint32_t save);  // numbered from 1
  void answered(actors::TimeNs now,
                const std::shared_ptr<const storage::Decision>& decision);  // by the root, to a role
  void notified(actors::TimeNs now, Rank rank, const AttemptKey& key, const Status& outcome);
  void sent(actors::TimeNs now, size_t from, size_t to, uint64_t bytes);
  void slabs(actors::TimeNs now, Rank rank, uint32_t in_use);
  // Due, with what has been called until now: true where something is violated, and the run must end.
  bool stops(actors::TimeNs now);
  void finish(actors::TimeNs now);  // the run has come to its end
  const std::optional<Violation>& violation() const { return violation_; }

 private:
  struct Save {
    actors::TimeNs began = 0;
    std::vector<bool> notified;  // by rank
  };
  struct Known {  // of a decision that was seen
    bool committed = false;
    std::string says;  // a tombstone's cause, a manifest's files
  };
  void violated(std::string oracle, actors::TimeNs now, std::string what);
  void check_durable(actors::TimeNs now, const AttemptKey& key, const storage::Manifest& manifest);
  void check_latest(actors::TimeNs now);
  void check_deadlines(actors::TimeNs now);
  actors::TimeNs due(uint32_t number, const Save& save, actors::TimeNs now) const;

  const Facts facts_;
  const RootView& root_;
  std::map<uint32_t, Save> open_;  // saves of which some rank has not heard
  std::map<AttemptKey, Known> known_;
  std::map<AttemptKey, bool> checked_;  // manifests whose files were looked for when they were first told
  std::optional<AttemptKey> latest_;
  actors::TimeNs next_due_ = 0;
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
