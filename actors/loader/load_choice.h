// LoadChooser: which checkpoint a load takes. docs/reference/protocol.md, "A load".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/attempt_watch.h"
#include "actors/continuations.h"
#include "actors/loader/attempt_choice.h"
#include "shoal/passed_over.h"

namespace shoal::actors {

class LoadChooser {
 public:
  struct Chosen {
    AttemptKey key;
    PassedOverPtr passed_over = nullptr;  // newer attempts, where the latest was asked for
  };
  // Code::not_found: there is none, and nothing else. Whoever hears it may start afresh.
  using Then = std::function<void(TimeNs now, Result<Chosen> chosen, EffectWriter& out)>;

  // All outlive the chooser, as it outlives what is under way.
  LoadChooser(PendingOperations& operations, PendingTimers& timers, const NodeFacts& facts)
      : operations_(operations),
        facts_(facts),
        watch_(operations, timers, facts.times.poll_ms * kMillisecond) {}

  static Status no_checkpoint();
  static Status no_checkpoint_of(uint64_t step, const std::string& why);  // why: may be empty

  // The choice of that load(latest): the one that stands in the root, else the newest checkpoint once every
  // attempt above it is decided, published. A job that only reads decides nothing: it takes the newest
  // checkpoint that there is.
  //
  // With an ordinal that may_fall_back: the newest one of which every byte was verified before the choice is
  // published, so that all ranks take the same. Damaged ones above it are passed over. Where all are damaged,
  // Code::corrupt; what cannot be read for another reason is an error, since it may be sound.
  void choose_latest(uint32_t ordinal, EffectWriter& out, Then then);
  // The newest committed attempt at this step, once an attempt that the root proves complete is committed.
  void choose_step(uint64_t step, EffectWriter& out, Then then);

 private:
  struct Load {
    uint32_t ordinal = 0;
    Then then;
    std::map<AttemptKey, std::string> aborted = {};  // newer than what is loaded, and why
    std::vector<AttemptKey> undecided = {};          // likewise, where the job only reads; ascending
    // Of a load that may fall back.
    DamagedAttempts damaged = {};
    std::optional<AttemptKey> verified = {};  // the last that was found sound
    bool falls_back() const { return may_fall_back(ordinal); }
  };
  using LoadPtr = std::shared_ptr<Load>;

  void decide_earlier(const LoadPtr& load, EffectWriter& out);
  void listed(TimeNs now, const LoadPtr& load, storage::AttemptList list, EffectWriter& out);
  void verify(const LoadPtr& load, const AttemptKey& key, EffectWriter& out);
  void confirm(TimeNs now, const LoadPtr& load, const std::optional<AttemptKey>& best,
               std::vector<storage::AttemptInfo> decided, EffectWriter& out);
  void await_decisions(TimeNs now, const LoadPtr& load, const std::vector<AttemptKey>& keys,
                       EffectWriter& out);
  void publish(TimeNs now, const LoadPtr& load, const std::optional<AttemptKey>& key, EffectWriter& out);
  static PassedOverPtr passed_over(const Load& load, const std::optional<AttemptKey>& key);
  static void report_passed_over(const Load& load, const std::optional<AttemptKey>& key, EffectWriter& out);
  static void chosen(TimeNs now, const LoadPtr& load, const storage::LoadChoice& choice, EffectWriter& out);
  struct Tried {                          // to complete, from the newest down
    std::optional<AttemptKey> from = {};  // the last of them
    Status why = {};                      // of the newest
  };
  void list_step(uint64_t step, Tried tried, EffectWriter& out, Then then);
  storage::ChoiceOf whose() const {
    return facts_.read_only ? storage::ChoiceOf::reader : storage::ChoiceOf::generation;
  }

  PendingOperations& operations_;
  const NodeFacts& facts_;
  AttemptWatch watch_;
  // Loads of this node that may fall back, by ordinal: a checkpoint is verified once for all of them.
  std::map<uint32_t, std::vector<Then>> falling_back_;
};

}  // namespace shoal::actors
