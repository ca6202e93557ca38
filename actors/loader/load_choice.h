// LoadChooser: chooses the checkpoint of a load. docs/reference/protocol.md, "A load".
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
    PassedOverPtr passed_over = nullptr;  // newer attempts that were not used, for load(latest)
  };
  // Code::not_found: there is no checkpoint; no other error has this code. A job that receives it may start
  // from scratch.
  using Then = std::function<void(TimeNs now, Result<Chosen> chosen, EffectWriter& out)>;

  // The arguments outlive the chooser. The chooser outlives its pending operations.
  LoadChooser(PendingOperations& operations, PendingTimers& timers, const NodeConfig& config)
      : operations_(operations),
        config_(config),
        watch_(operations, timers, config.timeouts.poll_ms * kMillisecond) {}

  static Status no_checkpoint();
  static Status no_checkpoint_of(uint64_t step, const std::string& why);  // why: may be empty

  // The choice of this load(latest): the one in the root if there is one. Otherwise waits until every attempt
  // above the newest checkpoint is decided, and publishes the newest checkpoint as the choice. A job that
  // only reads decides no attempt: it takes the newest checkpoint that exists.
  //
  // last_save: the last save that the loading ranks have called in this generation. Later attempts of this
  // generation need these ranks, which save only after the load: it does not wait for them. If attempt is 0,
  // the ranks have called none, and the load waits for all, because an earlier process of a rank may have.
  //
  // With an ordinal that may_fall_back, the newest checkpoint of which every byte has been verified. It is
  // verified before the choice is published, so that all ranks take the same. Damaged checkpoints above it
  // are passed over. Code::corrupt: all are damaged. A checkpoint that cannot be read for another reason is
  // an error: it may be sound.
  void choose_latest(uint32_t ordinal, const AttemptKey& last_save, EffectWriter& out, Then then);
  // The newest committed attempt of this step. First commits attempts of this step that the root proves
  // complete.
  void choose_step(uint64_t step, EffectWriter& out, Then then);

 private:
  struct Load {
    uint32_t ordinal = 0;
    AttemptKey last_save;
    Then then;
    // Attempts newer than the loaded one, and why they were aborted.
    std::map<AttemptKey, std::string> aborted = {};
    std::vector<AttemptKey> undecided = {};  // likewise, for which this load does not wait; ascending
    // For a load that may fall back.
    DamagedAttempts damaged = {};
    std::optional<AttemptKey> verified = {};  // the last one that was found sound
    bool falls_back() const { return may_fall_back(ordinal); }
  };
  using LoadPtr = std::shared_ptr<Load>;

  // Whether the load does not wait for the decision of this undecided attempt.
  bool is_left_to_others(const Load& load, const AttemptKey& attempt) const {
    if (config_.read_only) return true;
    const bool has_saved = load.last_save.attempt != 0;
    return has_saved && attempt.generation == config_.generation && load.last_save < attempt;
  }
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
  struct Tried {                          // attempts that this load tried to complete, from the newest down
    std::optional<AttemptKey> from = {};  // the last of them
    Status why = {};                      // why the newest could not be completed
  };
  void list_step(uint64_t step, Tried tried, EffectWriter& out, Then then);
  storage::ChoiceOf whose() const {
    return config_.read_only ? storage::ChoiceOf::reader : storage::ChoiceOf::generation;
  }

  PendingOperations& operations_;
  const NodeConfig& config_;
  AttemptWatch watch_;
  // Loads of this node that may fall back, by ordinal: they share one verification.
  std::map<uint32_t, std::vector<Then>> falling_back_;
};

}  // namespace shoal::actors
