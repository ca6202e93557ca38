#include "sim/restarts.h"

#include <algorithm>
#include <array>

namespace shoal::sim {

namespace {

using State = NewerAttempt::State;
constexpr std::array<std::string_view, 5> kStates = {"unwritten", "undecided", "aborted", "damaged",
                                                     "deleted"};  // by State

// The checkpoint that holds the training of the run before this restart, as far as any does.
std::optional<AttemptKey> loaded_at_last(const SimulationReport& report, size_t restart) {
  for (size_t i = restart; i < report.restarts.size(); ++i) {
    if (report.restarts[i].checkpoint) return report.restarts[i].checkpoint;
  }
  return std::nullopt;
}

// When the run of this generation began to train; negative: it never did.
actors::TimeNs trained_from(const SimulationReport& report, uint32_t generation) {
  for (const RestartReport& restart : report.restarts) {
    if (restart.generation == generation) return restart.resumed;
  }
  return 0;
}

// Trainers that wait in save() do not train.
actors::TimeNs lost_by(const SimulationReport& report, size_t index) {
  const RestartReport& restart = report.restarts[index];
  const uint32_t generation = restart.generation - 1;
  actors::TimeNs since = trained_from(report, generation), stalls = 0;
  if (since < 0) return 0;
  const std::optional<AttemptKey> checkpoint = loaded_at_last(report, index);
  for (const SaveReport& save : report.saves) {
    if (save.generation != generation || save.began == 0 || save.began >= restart.failed) continue;
    const bool is_loaded =
        checkpoint && checkpoint->generation == generation && checkpoint->step == save.step;
    if (is_loaded) {
      since = std::min(save.began + save.blocked.greatest, restart.failed);
      stalls = 0;
    } else {
      stalls += std::min(save.blocked.greatest, restart.failed - save.began);
    }
  }
  return std::max<actors::TimeNs>(restart.failed - since - stalls, 0);
}

}  // namespace

std::string_view state_name(NewerAttempt::State state) {
  return kStates[static_cast<size_t>(state)];
}

RootBefore RootBefore::of(const CountedRoot& root, uint32_t generation, uint32_t saves_begun) {
  RootBefore before;
  for (uint32_t step = 1; step <= saves_begun; ++step) {
    before.attempts[{generation, step, 1}] = State::unwritten;
  }
  // What has no file, although it was decided, was aborted and swept.
  for (auto& [key, state] : before.attempts) {
    if (root.decision(key)) state = State::aborted;
  }
  for (const AttemptKey& key : root.attempts()) {
    before.attempts[key] = root.decision(key) ? State::aborted : State::undecided;
  }
  return before;
}

std::vector<NewerAttempt> newer_attempts(const CountedRoot& root, const RootBefore& before,
                                         const std::optional<AttemptKey>& checkpoint) {
  std::vector<NewerAttempt> newer;
  for (const auto& [key, state] : before.attempts) {
    if (checkpoint && key <= *checkpoint) continue;
    NewerAttempt attempt{key, state, state == State::undecided, ""};
    const auto decision = root.decision(key);
    if (decision && decision->committed()) {
      if (!root.damaged_at(key)) continue;  // committed after the choice, by nodes that went on
      attempt.state = State::damaged;
    } else if (decision) {
      const bool is_deleted = decision->was_committed() || root.was_deleted(key);
      attempt.state = is_deleted ? State::deleted : State::aborted;
      attempt.cause = decision->tombstone().cause;
    }
    newer.push_back(std::move(attempt));
  }
  return newer;
}

void add_losses(SimulationReport& report) {
  for (size_t i = 0; i < report.restarts.size(); ++i) {
    RestartReport& restart = report.restarts[i];
    restart.lost_steps = lost_by(report, i);
    for (const SaveReport& save : report.saves) {
      if (save.generation != restart.generation || !save.is_committed()) continue;
      restart.saved = save.began + save.committed.greatest;
      break;
    }
  }
}

}  // namespace shoal::sim
