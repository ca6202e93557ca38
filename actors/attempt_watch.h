// Sees undecided attempts decided: waits while somebody still writes, then commits what the root proves
// complete and puts a tombstone over the rest.
#pragma once

#include <functional>
#include <map>

#include "actors/continuations.h"

namespace shoal::actors {

class AttemptWatch {
 public:
  // state: what became of it. An error: the root could not be read or written.
  using Then = std::function<void(TimeNs now, Result<storage::AttemptInfo::State> state, EffectWriter& out)>;

  AttemptWatch(PendingOperations& operations, PendingTimers& timers, TimeNs poll)
      : operations_(operations), timers_(timers), poll_(poll) {}

  // Polls until a decision stands, or until the listing of the attempt's folder has not changed for
  // `unchanged_for` by this observer's clock. Then commits the attempt if the root proves it complete, or
  // publishes a tombstone whose cause is `cause` and what the proof lacks; and reports what stands. Reports
  // an error, and publishes nothing, if the root cannot be read. A complete set of rank manifests is merged
  // at once; a set that two looks find damaged alike gets its tombstone then.
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
