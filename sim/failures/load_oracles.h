// Oracles of a load: properties that must hold whenever a restarted job loads the newest checkpoint.
// sim/failures/oracles.h has those of saves.
//
//   load-is-committed    the chosen attempt, and every attempt that is read, is committed; each file that is
//                        read is in the root with the size that the reader expects
//   load-is-newest       the choice is the newest checkpoint that existed when the load began; for a load
//   that
//                        may fall back, the newest of which no bit has flipped
//   load-is-sound        a load that may fall back chooses no checkpoint that was damaged when it began
//   load-is-one          all ranks of a load read the same checkpoint
//   choice-is-final      no attempt of an earlier run above the choice is committed after it. The nodes of an
//                        earlier run that saves rank-local, and goes on, commit without a coordinator: until
//                        they notice the later run they may begin and commit others
//   latest-goes-forward  latest is never older than it was for the previous job
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/operation.h"
#include "sim/failures/oracles.h"

namespace shoal::sim {

class LoadOracles {
 public:
  // `before`: the latest checkpoint when the previous job ended.
  // `falls_back`: the load passes over damaged checkpoints.
  LoadOracles(actors::TimeNs now, const RootView& root, std::optional<AttemptKey> before,
              bool falls_back = false);

  // A node requests an operation on the root.
  void asked(actors::TimeNs now, const actors::Operation& operation);
  // The root returns a result to a role.
  void answered(actors::TimeNs now, const actors::OperationResult& result);
  // The load has ended. What trainers read later is their own choice.
  void loaded() { is_over_ = true; }
  // The run has ended. `generation`: of the run that loads. `is_rank_local`: of all runs.
  void finish(actors::TimeNs now, uint32_t generation, bool is_rank_local);
  const std::optional<AttemptKey>& newest() const { return newest_; }
  const std::optional<Violation>& violation() const { return violation_; }

 private:
  void violated(std::string oracle, actors::TimeNs now, std::string what);
  bool is_committed(const AttemptKey& key) const;
  void check_choice(actors::TimeNs now, const std::optional<AttemptKey>& chosen);
  void check_read(actors::TimeNs now, const actors::operation::PieceRef& piece);

  const RootView& root_;
  const actors::TimeNs began_;
  const bool falls_back_;
  const std::vector<AttemptKey> existed_;   // when the load began
  const std::optional<AttemptKey> newest_;  // when the load began
  std::optional<storage::LoadChoice> choice_;
  std::vector<AttemptKey> undecided_;  // when the choice was made
  std::optional<AttemptKey> read_;
  std::unordered_map<std::string, uint64_t> files_;  // files of read_ by name, with their sizes in the root
  bool is_over_ = false;
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
