// ShardWriter: one a node. Persists what local ranks staged, reports it, and tells the clients what was
// decided. docs/protocol.md, "A save".
#include <algorithm>
#include <map>
#include <set>

#include "actors/continuations.h"
#include "actors/staged_share.h"

namespace shoal {
namespace {

constexpr size_t kMaxDecisionsRemembered = 1024;
constexpr size_t kMaxSavesInFlight = 256;  // of this node, all ranks together
constexpr TimeNs kPublishRetry = 1000 * kMillisecond;

class ShardWriter final : public Role {
 public:
  explicit ShardWriter(const NodeFacts& facts) : facts_(facts) {}

  RoleKind kind() const override { return RoleKind::shard_writer; }

  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    if (const auto* from_client = std::get_if<event::FromClient>(&event)) {
      on_client(now, from_client->client, from_client->message, out);
    } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
      operations_.done(now, *done, out);
    } else if (const auto* received = std::get_if<event::Received>(&event)) {
      on_message(now, *received->message.body, out);
    } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
      timers_.fired(now, *timer, out);
    } else if (const auto* world = std::get_if<event::WorldKnown>(&event)) {
      on_world(now, *world, out);
    } else if (const auto* failed = std::get_if<event::PlanningFailed>(&event)) {
      planning_failed_ = failed->why;
      fail_unplanned(now, out);
    } else if (const auto* lost = std::get_if<event::ClientLost>(&event)) {
      on_client_lost(now, lost->client, out);
    } else if (const auto* peer = std::get_if<event::PeerLost>(&event)) {
      if (peer->node == kCoordinatorNode) resend_all(now, out);
    } else if (std::get_if<event::Drain>(&event)) {
      draining_ = true;
    }
    if (draining_ && saves_.empty() && reading_ == 0) {
      draining_ = false;
      out.drained();
    }
  }

 private:
  struct Share {  // of one rank in one save
    ClientId client = 0;
    std::shared_ptr<const LocalMessage> message;  // the Staged, until it is planned
    uint32_t slab_id = 0;
    bool planned = false;
    bool slab_in_use = true;
    size_t files_writing = 0;
    PlanId plan_id;
    std::vector<wire::WrittenFile> files;
    bool written = false;
  };
  struct Save {
    std::map<Rank, Share> shares;
    Status failure;  // the first here
    Rank failed_rank = 0;
    bool deciding = false;
    size_t reported = 0;  // ranks in the last report
    bool partial_due = false;
    TimerId resend = 0, partial = 0, deadline = 0;
    Backoff backoff;
    explicit Save(const RoleTimes& times) : backoff(times) {}
  };
  struct Outcome {
    bool committed = false;
    std::string cause;
  };

  // --- clients ---

  void on_client(TimeNs now, ClientId client, const std::shared_ptr<const LocalMessage>& message,
                 EffectWriter& out) {
    if (const auto* attach = std::get_if<local::Attach>(message.get())) {
      clients_[client] = attach->rank;
      attached_[attach->rank] = client;
      lost_.erase(attach->rank);
    } else if (const auto* staged = std::get_if<local::Staged>(message.get())) {
      on_staged(now, client, message, *staged, out);
    }
  }

  void on_staged(TimeNs now, ClientId client, std::shared_ptr<const LocalMessage> message,
                 const local::Staged& staged, EffectWriter& out) {
    auto attached = clients_.find(client);
    if (attached == clients_.end()) return;
    const Rank rank = attached->second;
    const AttemptKey key{facts_.generation, staged.step, staged.attempt};
    if (auto decided = decided_.find(key); decided != decided_.end()) {
      out.to_client(client, local::SlabFree{staged.slab_id});
      tell_outcome(client, key, Status(Code::aborted, decided->second.cause), {}, out);
      return;
    }
    auto found = saves_.find(key);
    if (found == saves_.end()) {
      if (saves_.size() >= kMaxSavesInFlight) {
        out.to_client(client, local::Refused{staged.step, staged.attempt,
                                             Status(Code::busy, std::to_string(kMaxSavesInFlight) +
                                                                    " saves are in flight on this node")});
        return;
      }
      found = open_save(now, key, out);
    }
    Save& save = found->second;
    auto [share, fresh] = save.shares.try_emplace(rank);
    if (!fresh) {
      // By an earlier client of this rank: what it staged is what is saved.
      out.to_client(client,
                    local::Refused{staged.step, staged.attempt,
                                   Status(Code::already_exists, "rank " + std::to_string(rank) + " staged " +
                                                                    to_string(key) + " before")});
      return;
    }
    share->second.client = client;
    share->second.message = std::move(message);
    share->second.slab_id = staged.slab_id;
    if (world_) {
      plan_share(now, key, rank, out);
    } else if (!planning_failed_.ok()) {
      fail(now, key, rank, planning_failed_, out);
    }
    consider_report(now, key, out);
  }

  std::map<AttemptKey, Save>::iterator open_save(TimeNs now, const AttemptKey& key, EffectWriter& out) {
    auto found = saves_.emplace(key, Save(facts_.times)).first;
    found->second.deadline =
        timers_.set(now + facts_.times.node_deadline_ms * kMillisecond, out,
                    [this, key](TimeNs, EffectWriter& then_out) { give_up(key, then_out); });
    for (Rank rank : lost_) fail(now, key, rank, trainer_ended(), out);
    return found;
  }

  static Status trainer_ended() {
    return Status(Code::unavailable, "its trainer ended before it had staged this save");
  }

  void on_client_lost(TimeNs now, ClientId client, EffectWriter& out) {
    auto found = clients_.find(client);
    if (found == clients_.end()) return;
    const Rank rank = found->second;
    clients_.erase(found);
    gone_.insert(client);
    if (attached_[rank] == client) {  // else another client of this rank has come, and may still stage
      attached_.erase(rank);
      lost_.insert(rank);
      std::vector<AttemptKey> without;
      for (auto& [key, save] : saves_) {
        if (!save.shares.contains(rank)) without.push_back(key);
      }
      for (const AttemptKey& key : without) fail(now, key, rank, trainer_ended(), out);
    }
    forget_if_unused(client, out);
  }

  // A client that is gone keeps its slabs until they are written or dropped.
  void forget_if_unused(ClientId client, EffectWriter& out) {
    if (!gone_.contains(client)) return;
    for (const auto& [key, save] : saves_) {
      for (const auto& [rank, share] : save.shares) {
        if (share.client == client && share.slab_in_use) return;
      }
    }
    for (const auto& [key, share] : late_) {
      if (share.client == client) return;
    }
    gone_.erase(client);
    out.forget_client(client);
  }

  void free_slab(Share& share, EffectWriter& out) {
    if (!share.slab_in_use || share.files_writing != 0) return;
    share.slab_in_use = false;
    share.message.reset();
    if (clients_.contains(share.client)) {
      out.to_client(share.client, local::SlabFree{share.slab_id});
    } else {
      forget_if_unused(share.client, out);
    }
  }

  // --- planning and writing ---

  void on_world(TimeNs now, const event::WorldKnown& known, EffectWriter& out) {
    if (world_) return;
    world_ = known.world;
    options_ = known.options;
    for_each_unplanned([&](const AttemptKey& key, Rank rank) { plan_share(now, key, rank, out); });
  }

  void fail_unplanned(TimeNs now, EffectWriter& out) {
    for_each_unplanned(
        [&](const AttemptKey& key, Rank rank) { fail(now, key, rank, planning_failed_, out); });
  }

  template <class Act>
  void for_each_unplanned(Act&& act) {
    std::vector<std::pair<AttemptKey, Rank>> unplanned;
    for (const auto& [key, save] : saves_) {
      for (const auto& [rank, share] : save.shares) {
        if (!share.planned) unplanned.emplace_back(key, rank);
      }
    }
    for (const auto& [key, rank] : unplanned) {
      if (saves_.contains(key)) act(key, rank);
    }
  }

  Result<SavePlanPtr> plan_of(Rank rank) {
    auto found = plans_.find(rank);
    if (found != plans_.end()) return found->second;
    if (rank >= world_->roster.world_size()) {
      return Status(Code::invalid_argument, "rank " + std::to_string(rank) + " is not in the roster of " +
                                                std::to_string(world_->roster.world_size()) + " ranks");
    }
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*world_, rank, options_));
    return plans_.emplace(rank, std::make_shared<const SavePlan>(std::move(plan))).first->second;
  }

  void plan_share(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
    Share& share = saves_.at(key).shares.at(rank);
    share.planned = true;
    auto plan = plan_of(rank);
    if (!plan.ok()) return fail(now, key, rank, plan.status(), out);
    share.plan_id = (*plan)->id;
    auto writes = shard_writes(*world_, **plan, key, share.client, std::get<local::Staged>(*share.message));
    if (!writes.ok()) return fail(now, key, rank, writes.status(), out);
    share.files.resize(writes->size());
    share.files_writing = writes->size();
    for (operation::WriteShard& write : *writes) {
      const uint32_t file = write.file;
      operations_.start(
          std::move(write), out,
          [this, key, rank, file](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
            file_written(then_now, key, rank, file, result_as<WrittenShard>(std::move(result)), then_out);
          });
    }
    if (share.files_writing == 0) share_written(now, key, rank, out);
  }

  void file_written(TimeNs now, const AttemptKey& key, Rank rank, uint32_t file, Result<WrittenShard> written,
                    EffectWriter& out) {
    auto found = saves_.find(key);
    if (found == saves_.end()) return release_late(key, rank, out);
    Share& share = found->second.shares.at(rank);
    --share.files_writing;
    if (!written.ok()) {
      fail(now, key, rank, written.status(), out);
    } else {
      share.files[file] = {rank, file, written->size, written->header_digest, written->payload_bytes};
    }
    found = saves_.find(key);
    if (found != saves_.end() && found->second.shares.at(rank).files_writing == 0)
      share_written(now, key, rank, out);
  }

  // A write that ended after its save had been decided: only the slab is left to free.
  void release_late(const AttemptKey& key, Rank rank, EffectWriter& out) {
    auto late = late_.find({key, rank});
    if (late == late_.end() || --late->second.files_writing != 0) return;
    Share share = std::move(late->second);
    late_.erase(late);
    free_slab(share, out);
    forget_if_unused(share.client, out);
  }

  void share_written(TimeNs now, const AttemptKey& key, Rank rank, EffectWriter& out) {
    Save& save = saves_.at(key);
    Share& share = save.shares.at(rank);
    share.written = save.failure.ok();
    free_slab(share, out);
    if (save.partial == 0 && !save.partial_due) {
      save.partial = timers_.set(now + facts_.times.report_partial_after_ms * kMillisecond, out,
                                 [this, key](TimeNs then_now, EffectWriter& then_out) {
                                   auto open = saves_.find(key);
                                   if (open == saves_.end()) return;
                                   open->second.partial = 0;
                                   open->second.partial_due = true;
                                   consider_report(then_now, key, then_out);
                                 });
    }
    consider_report(now, key, out);
  }

  // --- reporting ---

  // Every rank of this host that may take part has written.
  bool all_here_written(const Save& save) const {
    for (const auto& [rank, share] : save.shares) {
      if (!share.written) return false;
    }
    for (Rank rank : facts_.expected_ranks) {
      if (!save.shares.contains(rank)) return false;
    }
    for (const auto& [rank, client] : attached_) {
      if (!save.shares.contains(rank)) return false;
    }
    return true;
  }

  void consider_report(TimeNs now, const AttemptKey& key, EffectWriter& out) {
    auto found = saves_.find(key);
    if (found == saves_.end() || !found->second.failure.ok()) return;
    Save& save = found->second;
    const size_t written = static_cast<size_t>(std::count_if(
        save.shares.begin(), save.shares.end(), [](const auto& share) { return share.second.written; }));
    if (written == 0 || written == save.reported) return;
    if (!save.partial_due && !all_here_written(save)) return;
    save.reported = written;
    save.backoff.reset();
    send_report(now, key, save, out);
  }

  void send_report(TimeNs now, const AttemptKey& key, Save& save, EffectWriter& out) {
    if (save.deciding) return;
    if (!save.failure.ok()) {
      out.send(kCoordinatorNode, RoleKind::coordinator,
               wire::SaveFailed{key, save.failed_rank, save.failure});
    } else if (save.reported != 0) {
      wire::ShardsWritten report;
      report.key = key;
      report.roster_id = world_->roster.id();
      for (const auto& [rank, share] : save.shares) {
        if (!share.written) continue;
        report.plans.push_back({rank, share.plan_id});
        report.files.insert(report.files.end(), share.files.begin(), share.files.end());
      }
      out.send(kCoordinatorNode, RoleKind::coordinator, std::move(report));
    } else {
      return;
    }
    timers_.cancel(&save.resend, out);
    save.resend =
        timers_.set(now + save.backoff.next(), out, [this, key](TimeNs then_now, EffectWriter& then_out) {
          auto open = saves_.find(key);
          if (open == saves_.end()) return;
          open->second.resend = 0;
          send_report(then_now, key, open->second, then_out);
        });
  }

  void resend_all(TimeNs now, EffectWriter& out) {
    for (auto& [key, save] : saves_) {
      save.backoff.reset();
      send_report(now, key, save, out);
    }
  }

  void fail(TimeNs now, const AttemptKey& key, Rank rank, Status why, EffectWriter& out) {
    auto found = saves_.find(key);
    if (found == saves_.end() || !found->second.failure.ok()) return;
    Save& save = found->second;
    save.failure = std::move(why);
    save.failed_rank = rank;
    save.backoff.reset();
    out.warning(to_string(key) + ": rank " + std::to_string(rank) + ": " + save.failure.to_string());
    send_report(now, key, save, out);
  }

  // --- the decision ---

  void on_message(TimeNs now, const WireBody& body, EffectWriter& out) {
    if (const auto* decided = std::get_if<wire::Decided>(&body)) {
      if (saves_.contains(decided->key)) settle(decided->key, decided->committed, decided->cause, out);
    } else if (const auto* pending = std::get_if<wire::Pending>(&body)) {
      auto found = saves_.find(pending->key);
      if (found == saves_.end() || found->second.resend == 0) return;
      found->second.backoff.slow_down();
      timers_.cancel(&found->second.resend, out);
      const AttemptKey key = pending->key;
      found->second.resend = timers_.set(now + found->second.backoff.next(), out,
                                         [this, key](TimeNs then_now, EffectWriter& then_out) {
                                           auto open = saves_.find(key);
                                           if (open == saves_.end()) return;
                                           open->second.resend = 0;
                                           send_report(then_now, key, open->second, then_out);
                                         });
    }
  }

  // No word within this node's own deadline: it publishes the tombstone itself and obeys whatever stands.
  void give_up(const AttemptKey& key, EffectWriter& out) {
    auto found = saves_.find(key);
    if (found == saves_.end()) return;
    Save& save = found->second;
    save.deadline = 0;
    save.deciding = true;
    std::string cause = !save.failure.ok()
                            ? "rank " + std::to_string(save.failed_rank) + ": " + save.failure.to_string()
                            : "host " + facts_.host + " heard no decision within " +
                                  human_seconds(facts_.times.node_deadline_ms / 1e3);
    operations_.start(
        operation::PublishDecision{key,
                                   Tombstone{Tombstone::Reason::aborted, cause.substr(0, kMaxCauseBytes)}},
        out, [this, key](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
          auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
          if (!saves_.contains(key)) return;
          if (!decision.ok()) {
            then_out.warning(to_string(key) + ": " + decision.status().to_string());
            timers_.set(now + kPublishRetry, then_out,
                        [this, key](TimeNs, EffectWriter& retry_out) { give_up(key, retry_out); });
            return;
          }
          settle(key, (*decision)->committed(),
                 (*decision)->committed() ? "" : (*decision)->tombstone().cause, then_out);
        });
  }

  void settle(const AttemptKey& key, bool committed, const std::string& cause, EffectWriter& out) {
    auto found = saves_.find(key);
    Save save = std::move(found->second);
    saves_.erase(found);
    timers_.cancel(&save.resend, out);
    timers_.cancel(&save.partial, out);
    timers_.cancel(&save.deadline, out);
    decided_.emplace(key,
                     Outcome{committed, committed ? "what this rank had staged before is committed" : cause});
    if (decided_.size() > kMaxDecisionsRemembered) decided_.erase(decided_.begin());
    std::vector<ClientId> told;
    for (auto& [rank, share] : save.shares) {
      told.push_back(share.client);
      if (share.files_writing != 0) {
        late_.emplace(std::pair(key, rank), std::move(share));
      } else {
        free_slab(share, out);
        forget_if_unused(share.client, out);
      }
    }
    if (!committed) {
      for (ClientId client : told) tell_outcome(client, key, Status(Code::aborted, cause), {}, out);
      return;
    }
    ++reading_;
    operations_.start(operation::ReadDecision{key}, out,
                      [this, key, told](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                        --reading_;
                        auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
                        Status outcome = decision.status();
                        Metadata metadata;
                        if (decision.ok()) metadata = metadata_of(**decision);
                        for (ClientId client : told) tell_outcome(client, key, outcome, metadata, then_out);
                      });
  }

  void tell_outcome(ClientId client, const AttemptKey& key, const Status& outcome, Metadata metadata,
                    EffectWriter& out) {
    if (!clients_.contains(client)) return;
    out.to_client(client, local::Decided{key.step, key.attempt, outcome, std::move(metadata)});
  }

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  std::map<ClientId, Rank> clients_;  // attached now
  std::map<Rank, ClientId> attached_;
  std::set<Rank> lost_;      // were attached and are gone
  std::set<ClientId> gone_;  // lost clients whose slabs are still kept
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  Status planning_failed_;
  std::map<Rank, SavePlanPtr> plans_;
  std::map<AttemptKey, Save> saves_;                   // in flight
  std::map<std::pair<AttemptKey, Rank>, Share> late_;  // decided while a file was still being written
  std::map<AttemptKey, Outcome> decided_;              // the newest kMaxDecisionsRemembered
  size_t reading_ = 0;                                 // manifests being read for clients
  bool draining_ = false;
};

}  // namespace

std::unique_ptr<Role> make_shard_writer(const NodeFacts& facts) {
  return std::make_unique<ShardWriter>(facts);
}

}  // namespace shoal
