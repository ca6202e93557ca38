// AttemptWatch: decides attempts that others left undecided. It waits while somebody still writes. Then it
// commits what the root proves complete, and publishes a tombstone for the rest.
#pragma once

#include <functional>
#include <map>

#include "actors/continuations.h"

namespace shoal::actors {

class AttemptWatch {
 public:
  // state: the decision of the attempt; `deleted` also if its folder is gone. An error: the root could not be
  // read or written.
  using Then = std::function<void(TimeNs now, Result<storage::AttemptInfo::State> state, EffectWriter& out)>;

  AttemptWatch(PendingOperations& operations, PendingTimers& timers, TimeNs poll)
      : operations_(operations), timers_(timers), poll_(poll) {}

  // Polls the attempt until it has a decision, or until the listing of its folder has not changed for
  // `unchanged_for` by the clock of this observer. Then commits the attempt if the root proves it complete;
  // otherwise publishes a tombstone whose cause is `cause` and what the proof lacks. Calls `then` with the
  // decision that exists afterwards. If the root cannot be read, publishes nothing and reports the error.
  //
  // A complete set of rank manifests is merged at once. A set that is damaged in the same way at two looks in
  // a row gets its tombstone at the second.
  void watch(TimeNs now, const AttemptKey& key, TimeNs unchanged_for, std::string cause, EffectWriter& out,
             Then then);

 private:
  struct Watched {
    TimeNs unchanged_for = 0;
    TimeNs since = 0;
    uint64_t fingerprint = 0;
    bool seen = false;
    std::string cause;
    std::string damage;  // of a complete set, as the last look found it
    std::vector<Then> then;
  };
  void look(const AttemptKey& key, EffectWriter& out);
  void looked(TimeNs now, const AttemptKey& key, Result<storage::AttemptInfo> info, EffectWriter& out);
  void complete(const AttemptKey& key, bool is_over, EffectWriter& out);
  void look_later(TimeNs now, const AttemptKey& key, EffectWriter& out);
  void abort(const AttemptKey& key, std::string cause, EffectWriter& out);
  void finish(TimeNs now, const AttemptKey& key, Result<storage::AttemptInfo::State> state,
              EffectWriter& out);

  PendingOperations& operations_;
  PendingTimers& timers_;
  const TimeNs poll_;
  std::map<AttemptKey, Watched> watched_;
};

storage::AttemptInfo::State state_of(const storage::Decision& decision);

}  // namespace shoal::actors
