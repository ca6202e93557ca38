// AttemptView: an attempt with its decision, for programs that display a root. Nothing here writes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/checkpoint_info.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

// One attempt, with its decision if that can be read. For a rank-local save whose rank manifests are complete
// but not merged: the decision that the next load will publish.
struct AttemptView {
  AttemptKey key;
  AttemptInfo info;                  // default if `damage` is set
  std::optional<Decision> decision;  // nullopt: undecided or damaged
  bool is_merged = true;             // false: no file holds that decision
  Status damage;
  std::string
      proof;  // Of an undecided attempt: what it lacks to be complete, or that it lacks nothing. "": unknown.

  bool committed() const { return decision && decision->committed(); }
  CheckpointInfo::State state() const;
  std::string_view state_name() const { return shoal::state_name(state()); }
};
// How much a view reads.
struct ViewDepth {
  bool leaves_encoded = false;  // may leave a manifest encoded; its world is then nullptr
  bool proves = true;           // fills `proof`, from the headers of the files
};
// A decision that cannot be read becomes `damage` of the view. A file of a newer version is an error.
Result<AttemptView> view_attempt(Storage& storage, const AttemptInfo& info, const ViewDepth& depth = {});
// The attempts of a listing, ascending in the order of `latest`.
Result<std::vector<AttemptView>> view_list(Storage& storage, const AttemptList& list,
                                           const ViewDepth& depth = {});
Result<std::vector<AttemptView>> view_attempts(Storage& storage);
// The newest `most` attempts, and older ones up to the newest checkpoint if these contain none. `*omitted`:
// the number of older attempts, of which only the names were read.
Result<std::vector<AttemptView>> view_newest_attempts(Storage& storage, size_t most, size_t* omitted,
                                                      const ViewDepth& depth = {});

// The newest attempts as trainers see them, at most kMaxListedCheckpoints, without `proof`. An attempt in a
// format newer than this program counts as damaged, with a cause that states this.
Result<CheckpointList> list_newest_checkpoints(Storage& storage, uint32_t newest);

}  // namespace shoal::storage
