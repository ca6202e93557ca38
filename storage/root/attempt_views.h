// AttemptView: an attempt with its decision, for those who show what a root holds. Nothing is written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/checkpoint_info.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

// One attempt, with its decision where there is one that reads back. Of a rank-local save which all ranks
// have published and nobody has merged yet: the decision that the next load makes of it.
struct AttemptView {
  AttemptKey key;
  AttemptInfo info;                  // default where `damage` is set
  std::optional<Decision> decision;  // nullopt: undecided or damaged
  bool is_merged = true;             // false: of that decision there is no file
  Status damage;
  std::string
      proof;  // of an undecided one: what it lacks to be complete, or that it lacks nothing; "": not known

  bool committed() const { return decision && decision->committed(); }
  CheckpointInfo::State state() const;
  std::string_view state_name() const { return shoal::state_name(state()); }
};
// What of it is read.
struct ViewDepth {
  bool leaves_encoded = false;  // a manifest may be left encoded: then its world is nullptr
  bool proves = true;           // says of an undecided one what it lacks, by the headers of its files
};
// A decision that does not read back is `damage` of the view. A version newer than this program is an error.
Result<AttemptView> view_attempt(Storage& storage, const AttemptInfo& info, const ViewDepth& depth = {});
// Those of a listing, ascending, as `latest` orders.
Result<std::vector<AttemptView>> view_list(Storage& storage, const AttemptList& list,
                                           const ViewDepth& depth = {});
Result<std::vector<AttemptView>> view_attempts(Storage& storage);
// The newest `most` of them, and as many more as it takes to come to a checkpoint. *omitted: how many are
// older; of these only names were read.
Result<std::vector<AttemptView>> view_newest_attempts(Storage& storage, size_t most, size_t* omitted,
                                                      const ViewDepth& depth = {});

// The newest attempts as trainers see them, at most kMaxListedCheckpoints; what they lack is not looked into.
// One of a format that is newer than this program is damaged, with a cause that says so.
Result<CheckpointList> list_newest_checkpoints(Storage& storage, uint32_t newest);

}  // namespace shoal::storage
