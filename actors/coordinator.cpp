// Coordinator: one a run. Makes the roster of a generation, decides attempts, and tells. docs/protocol.md.
//
// Its memory is a cache: whatever it forgets when it dies, the root decides. The first file under an
// attempt's decision name stands, whoever wrote it.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "actors/attempt_watch.h"
#include "actors/coordinator_plans.h"
#include "actors/roster_gathering.h"

namespace shoal {
namespace {

constexpr size_t kMaxDecisionsRemembered = 1024;
constexpr size_t kMaxAttemptsInFlight = 256;
constexpr TimeNs kPublishRetry = 1000 * kMillisecond;
constexpr size_t kRanksNamed = 8;  // in a cause

class Coordinator final : public Role {
 public:
  explicit Coordinator(const NodeFacts& facts)
      : facts_(facts), watch_(operations_, timers_, facts.times.poll_ms * kMillisecond) {}

  RoleKind kind() const override { return RoleKind::coordinator; }

  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    if (const auto* received = std::get_if<event::Received>(&event)) {
      on_message(now, received->from, *received->message.body, out);
    } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
      operations_.done(now, *done, out);
    } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
      timers_.fired(now, *timer, out);
    } else if (const auto* peer = std::get_if<event::PeerLost>(&event)) {
      nodes_.erase(peer->node);
      early_joins_.erase(peer->node);
    } else if (std::get_if<event::Started>(&event)) {
      recover(out);
    } else if (std::get_if<event::Drain>(&event)) {
      draining_ = true;
    }
    if (draining_ && attempts_.empty() && telling_ == 0) {
      draining_ = false;
      out.drained();
    }
  }

 private:
  enum class Phase { asking, gathering, publishing };
  struct Attempt {
    Phase phase = Phase::asking;
    std::map<Rank, std::vector<wire::WrittenFile>> reported;
    std::vector<wire::ShardsWritten> early;  // came before the roster or before the root had been asked
    TimerId deadline = 0;
  };
  struct Outcome {
    bool committed = false;
    std::string cause;
  };

  // --- what earlier incarnations left ---

  void recover(EffectWriter& out) {
    operations_.start(operation::ReadRoster{facts_.generation}, out,
                      [this](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto record = result_as<RosterRecord>(std::move(result));
                        if (record.ok()) roster_stands(now, *record, then_out);
                        roster_asked_ = true;
                        for (const auto& [node, join] : std::exchange(early_joins_, {})) {
                          if (!plans_) on_join(node, join, then_out);
                        }
                      });
    operations_.start(operation::ListAttempts{}, out,
                      [this](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto list = result_as<AttemptList>(std::move(result));
                        if (!list.ok()) {
                          then_out.warning("attempts could not be listed: " + list.status().to_string());
                          return;
                        }
                        clean_up(now, *list, then_out);
                      });
  }

  void clean_up(TimeNs now, const AttemptList& list, EffectWriter& out) {
    for (const AttemptInfo& info : list.attempts) {
      if (info.state == AttemptInfo::State::aborted || info.state == AttemptInfo::State::deleted) {
        if (info.leftover_files != 0) sweep(info.key, out);
      } else if (info.state == AttemptInfo::State::undecided && info.key.generation < facts_.generation) {
        watch_.watch(
            now, info.key, facts_.times.abandoned_after_ms * kMillisecond,
            "generation " + std::to_string(info.key.generation) + " ended before it was complete", out,
            [this, key = info.key](TimeNs, Result<AttemptInfo::State> state, EffectWriter& then_out) {
              if (!state.ok()) {
                then_out.warning(to_string(key) + ": " + state.status().to_string());
              } else if (*state == AttemptInfo::State::aborted) {
                then_out.info(to_string(key) + " was left undecided by its generation: aborted");
                sweep(key, then_out);
              }
            });
      } else if (info.state == AttemptInfo::State::undecided && info.key.generation == facts_.generation) {
        open_attempt(now, info.key, out);
      }
    }
    for (const auto& [key, why] : list.damaged) out.warning(to_string(key) + ": " + why.to_string());
  }

  void sweep(const AttemptKey& key, EffectWriter& out) {
    operations_.start(operation::SweepAttempt{key}, out,
                      [key](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                        auto bytes = result_as<uint64_t>(std::move(result));
                        if (bytes.ok()) {
                          then_out.info(to_string(key) + ": swept " + human_bytes(*bytes) + " of leftovers");
                        } else {
                          then_out.warning(to_string(key) + ": " + bytes.status().to_string());
                        }
                      });
  }

  // --- joining ---

  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out) {
    if (const auto* join = std::get_if<wire::JoinRanks>(&body)) {
      on_join(from, *join, out);
    } else if (const auto* layouts = std::get_if<wire::Layouts>(&body)) {
      for (const LayoutPtr& layout : layouts->layouts) gathering_.add_layout(layout);
      consider_roster(out);
    } else if (const auto* written = std::get_if<wire::ShardsWritten>(&body)) {
      on_written(now, from, *written, out);
    } else if (const auto* failed = std::get_if<wire::SaveFailed>(&body)) {
      on_failed(now, from, *failed, out);
    }
  }

  void on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out) {
    nodes_.insert(from);
    if (!refused_.ok()) return out.send(from, RoleKind::planner, wire::JoinRefused{refused_.message()});
    if (plans_) {
      // The roster stands; a planner that holds something else says so to its clients by name.
      return out.send(from, RoleKind::planner,
                      wire::RosterIs{plans_->world_ptr(), plans_->options(), kRuleVersion});
    }
    if (!roster_asked_) {  // what a host says is judged by the roster of the root, where there is one
      early_joins_.insert_or_assign(from, join);
      return;
    }
    if (Status status = gathering_.add(join); !status.ok()) return refuse_all(status, out);
    if (auto missing = gathering_.missing_layouts(join); !missing.empty()) {
      out.send(from, RoleKind::planner, wire::LayoutsWanted{std::move(missing)});
    }
    consider_roster(out);
  }

  void consider_roster(EffectWriter& out) {
    if (plans_ || publishing_roster_ || !refused_.ok() || !gathering_.complete()) return;
    auto world = gathering_.make_world();
    if (!world.ok()) return refuse_all(world.status(), out);
    publish_roster(RosterRecord{*world, gathering_.options(), kRuleVersion}, out);
  }

  void publish_roster(RosterRecord record, EffectWriter& out) {
    publishing_roster_ = true;
    operations_.start(
        operation::PublishRoster{facts_.generation, record}, out,
        [this, record](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
          auto stands = result_as<RosterRecord>(std::move(result));
          publishing_roster_ = false;
          if (stands.ok()) return roster_stands(now, *stands, then_out);
          then_out.warning("the roster could not be published: " + stands.status().to_string());
          timers_.set(now + kPublishRetry, then_out,
                      [this, record](TimeNs, EffectWriter& retry_out) { publish_roster(record, retry_out); });
        });
  }

  void roster_stands(TimeNs now, const RosterRecord& record, EffectWriter& out) {
    plans_ = std::make_unique<ExpectedPlans>(record.world, record.options);
    out.info("roster " + record.world->roster.id().short_hex() + ": " +
             std::to_string(record.world->roster.world_size()) + " ranks, " +
             std::to_string(record.world->layouts.size()) + " layouts");
    for (NodeId node : nodes_) {
      out.send(node, RoleKind::planner, wire::RosterIs{record.world, record.options, kRuleVersion});
    }
    std::vector<AttemptKey> keys;
    for (const auto& [key, attempt] : attempts_) keys.push_back(key);
    for (const AttemptKey& key : keys) take_early(now, key, out);
  }

  void refuse_all(Status why, EffectWriter& out) {
    refused_ = std::move(why);
    out.warning("no roster: " + refused_.to_string());
    for (NodeId node : nodes_) out.send(node, RoleKind::planner, wire::JoinRefused{refused_.message()});
  }

  // --- attempts ---

  // Answers from memory; false if this attempt is not decided as far as is known here.
  bool answer_decided(NodeId to, const AttemptKey& key, EffectWriter& out) {
    auto decided = decided_.find(key);
    if (decided == decided_.end()) return false;
    out.send(to, RoleKind::shard_writer,
             wire::Decided{key, decided->second.committed, decided->second.cause});
    return true;
  }

  // The attempt, opened if need be; null where it is none of this generation's or there are too many.
  Attempt* open_attempt(TimeNs now, const AttemptKey& key, EffectWriter& out) {
    if (key.generation != facts_.generation) return nullptr;
    auto found = attempts_.find(key);
    if (found != attempts_.end()) return &found->second;
    if (attempts_.size() >= kMaxAttemptsInFlight) return nullptr;  // reports are resent
    Attempt& attempt = attempts_[key];
    attempt.deadline = timers_.set(
        now + facts_.times.attempt_deadline_ms * kMillisecond, out,
        [this, key](TimeNs then_now, EffectWriter& then_out) { deadline_passed(then_now, key, then_out); });
    // It may have been decided before this coordinator began, or by a node.
    operations_.start(operation::ReadDecision{key}, out,
                      [this, key](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
                        if (decision.ok()) return decided(key, *decision, then_out);
                        auto open = attempts_.find(key);
                        if (open == attempts_.end() || open->second.phase != Phase::asking) return;
                        open->second.phase = Phase::gathering;
                        take_early(then_now, key, then_out);
                      });
    return &attempt;
  }

  void on_written(TimeNs now, NodeId from, const wire::ShardsWritten& report, EffectWriter& out) {
    nodes_.insert(from);
    if (answer_decided(from, report.key, out)) return;
    Attempt* attempt = open_attempt(now, report.key, out);
    if (attempt == nullptr) return;
    out.send(from, RoleKind::shard_writer, wire::Pending{report.key});
    if (attempt->phase == Phase::publishing) return;
    if (attempt->phase == Phase::asking || !plans_) {
      // Reports are resent, so that keeping the newest few hundred loses nothing.
      if (attempt->early.size() < kMaxRanksPerNode) attempt->early.push_back(report);
      return;
    }
    take(now, report, out);
  }

  void take_early(TimeNs now, const AttemptKey& key, EffectWriter& out) {
    auto found = attempts_.find(key);
    if (found == attempts_.end() || found->second.phase != Phase::gathering || !plans_) return;
    std::vector<wire::ShardsWritten> early = std::move(found->second.early);
    found->second.early.clear();
    for (const wire::ShardsWritten& report : early) take(now, report, out);
  }

  void take(TimeNs now, const wire::ShardsWritten& report, EffectWriter& out) {
    auto found = attempts_.find(report.key);
    if (found == attempts_.end() || found->second.phase != Phase::gathering) return;
    if (Status status = plans_->check(report); !status.ok()) {
      return abort(now, report.key, status.message(), out);
    }
    Attempt& attempt = found->second;
    for (const wire::RankPlan& plan : report.plans) attempt.reported.try_emplace(plan.rank);
    for (const wire::WrittenFile& file : report.files) {
      auto& files = attempt.reported[file.rank];
      if (files.size() == file.index) files.push_back(file);
    }
    if (attempt.reported.size() == plans_->world().roster.world_size()) commit(now, report.key, attempt, out);
  }

  void commit(TimeNs now, const AttemptKey& key, Attempt& attempt, EffectWriter& out) {
    (void)now;
    attempt.phase = Phase::publishing;
    Manifest manifest;
    manifest.world = plans_->world_ptr();
    manifest.options = plans_->options();
    for (const auto& [rank, files] : attempt.reported) {
      for (const wire::WrittenFile& file : files) {
        manifest.files.push_back(
            {shard_file_name(rank, file.index), file.size, file.header_digest, rank, file.index});
        manifest.payload_bytes += file.payload_bytes;
      }
    }
    operations_.start(
        operation::CheckFiles{key, manifest.files}, out,
        [this, key, manifest](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
          auto found = attempts_.find(key);
          if (found == attempts_.end()) return;
          if (Status status = result.status(); !status.ok()) {
            found->second.phase = Phase::gathering;
            return abort(then_now, key, status.message(), then_out);
          }
          publish(key, manifest, then_out);
        });
  }

  void abort(TimeNs now, const AttemptKey& key, const std::string& cause, EffectWriter& out) {
    (void)now;
    auto found = attempts_.find(key);
    if (found == attempts_.end() || found->second.phase == Phase::publishing) return;
    found->second.phase = Phase::publishing;
    publish(key, Tombstone{Tombstone::Reason::aborted, cause.substr(0, kMaxCauseBytes)}, out);
  }

  void publish(const AttemptKey& key, std::variant<Manifest, Tombstone> body, EffectWriter& out) {
    operations_.start(
        operation::PublishDecision{key, body}, out,
        [this, key, body](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
          auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
          if (decision.ok()) return decided(key, *decision, then_out);
          // What stands is unknown; asking again with the same name is safe, and a node's own deadline bounds
          // it.
          then_out.warning(to_string(key) + ": " + decision.status().to_string());
          timers_.set(now + kPublishRetry, then_out,
                      [this, key, body](TimeNs, EffectWriter& retry_out) { publish(key, body, retry_out); });
        });
  }

  void on_failed(TimeNs now, NodeId from, const wire::SaveFailed& failed, EffectWriter& out) {
    nodes_.insert(from);
    if (answer_decided(from, failed.key, out)) return;
    Attempt* attempt = open_attempt(now, failed.key, out);
    if (attempt == nullptr || attempt->phase == Phase::publishing) return;
    abort(now, failed.key, "rank " + std::to_string(failed.rank) + ": " + failed.why.to_string(), out);
  }

  void deadline_passed(TimeNs now, const AttemptKey& key, EffectWriter& out) {
    auto found = attempts_.find(key);
    if (found == attempts_.end()) return;
    found->second.deadline = 0;
    abort(now, key, missing_ranks(found->second), out);
  }

  std::string missing_ranks(const Attempt& attempt) const {
    const uint32_t world_size = plans_ ? plans_->world().roster.world_size() : gathering_.world_size();
    const std::string within = " within " + human_seconds(facts_.times.attempt_deadline_ms / 1e3);
    if (!plans_) {
      return "no roster: only " + std::to_string(gathering_.ranks_known()) + " of " +
             std::to_string(world_size) + " ranks said what they hold" + within;
    }
    std::string names;
    size_t missing = 0;
    for (Rank rank = 0; rank < world_size; ++rank) {
      if (attempt.reported.contains(rank)) continue;
      if (++missing <= kRanksNamed) names += (missing == 1 ? "" : ", ") + std::to_string(rank);
    }
    if (missing > kRanksNamed) names += " and " + std::to_string(missing - kRanksNamed) + " more";
    return (missing == 1 ? "rank " : "ranks ") + names + " did not report" + within;
  }

  // A decision stands, whoever published it.
  void decided(const AttemptKey& key, const std::shared_ptr<const Decision>& decision, EffectWriter& out) {
    auto found = attempts_.find(key);
    if (found == attempts_.end()) return;
    timers_.cancel(&found->second.deadline, out);
    attempts_.erase(found);
    Outcome outcome{decision->committed(), decision->committed() ? "" : decision->tombstone().cause};
    decided_.emplace(key, outcome);
    if (decided_.size() > kMaxDecisionsRemembered) decided_.erase(decided_.begin());
    ++telling_;
    operations_.start(
        operation::RecordDecision{decision}, out,
        [this, key, outcome](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
          --telling_;
          if (!result.ok()) {
            // The catalog is an index of the root: the decision stands without it.
            then_out.warning("catalog: " + result.status().to_string());
          }
          for (NodeId node : nodes_) {
            then_out.send(node, RoleKind::shard_writer, wire::Decided{key, outcome.committed, outcome.cause});
          }
          then_out.info(to_string(key) +
                        (outcome.committed ? " is committed" : " is aborted: " + outcome.cause));
          if (!outcome.committed) sweep(key, then_out);
        });
  }

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  AttemptWatch watch_;
  std::set<NodeId> nodes_;  // that have spoken in this epoch and are not lost
  RosterGathering gathering_;
  bool roster_asked_ = false;
  std::map<NodeId, wire::JoinRanks> early_joins_;  // came before the root had been asked for its roster
  bool publishing_roster_ = false;
  Status refused_;
  std::unique_ptr<ExpectedPlans> plans_;
  std::map<AttemptKey, Attempt> attempts_;  // in flight
  std::map<AttemptKey, Outcome> decided_;   // the newest kMaxDecisionsRemembered
  size_t telling_ = 0;                      // decided, not yet told
  bool draining_ = false;
};

}  // namespace

std::unique_ptr<Role> make_coordinator(const NodeFacts& facts) {
  return std::make_unique<Coordinator>(facts);
}

}  // namespace shoal
