// Oracles of a load: what must hold whenever a job that has started again loads the newest checkpoint. As
// sim/failures/oracles.h, which looks at saves.
//
//   load-is-committed    what is chosen, and whatever is read, is of a committed attempt; a file that is read
//                        stands in the root in the size that the reader takes it to have
//   load-is-newest       the choice is the newest checkpoint there was when the load began
//   load-is-one          all ranks of a load read the same checkpoint
//   latest-goes-forward  latest is never older than it was for the job before
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "actors/operation.h"
#include "sim/failures/oracles.h"

namespace shoal::sim {

class LoadOracles {
 public:
  // `before`: what was latest when the job before ended.
  LoadOracles(actors::TimeNs now, const RootView& root, std::optional<AttemptKey> before);

  void asked(actors::TimeNs now, const actors::Operation& operation);        // a node, of the root
  void answered(actors::TimeNs now, const actors::OperationResult& result);  // by the root, to a role
  const std::optional<AttemptKey>& newest() const { return newest_; }
  const std::optional<Violation>& violation() const { return violation_; }

 private:
  void violated(std::string oracle, actors::TimeNs now, std::string what);
  bool is_committed(const AttemptKey& key) const;
  void check_read(actors::TimeNs now, const actors::operation::PieceRef& piece);

  const RootView& root_;
  const std::optional<AttemptKey> newest_;  // as the load began
  std::optional<AttemptKey> read_;
  std::unordered_map<std::string, uint64_t> files_;  // of that one, by name: their bytes in the root
  std::optional<Violation> violation_;
};

}  // namespace shoal::sim
