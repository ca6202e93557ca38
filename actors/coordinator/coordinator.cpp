// Coordinator: events, epochs, joining, and what earlier coordinators left.
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/messages/message_bounds.h"

namespace shoal::actors {

void Coordinator::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  told_roster_.observe(now);
  told_plans_.observe(now);
  if (const auto* received = std::get_if<event::Received>(&event)) {
    if (superseded_) return send_superseded(received->from, out);
    on_message(now, received->from, *received->message.body, out);
  } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
    operations_.done(now, *done, out);
  } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
    timers_.fired(now, *timer, out);
  } else if (const auto* peer = std::get_if<event::PeerLost>(&event)) {
    nodes_.erase(peer->node);
    early_joins_.erase(peer->node);
    told_roster_.forget_if([&](NodeId node) { return node == peer->node; });
    told_plans_.forget_if([&](const auto& told) { return told.second == peer->node; });
    loads_.forget(peer->node);
    lose_ranks_of(now, peer->node, out);
  } else if (const auto* failed = std::get_if<event::PlanningFailed>(&event)) {
    if (!plans_ && refused_.ok() && !superseded_) refuse_all(failed->why, out);
  } else if (std::get_if<event::CommittedAlone>(&event)) {
    if (!superseded_) retention_.committed(out);
  } else if (std::get_if<event::Started>(&event)) {
    if (facts_.read_only) return;  // another job decides, cleans up and retains
    recover(out);
    watch_epoch(now, out);
    retention_.begin(out);
  } else if (const auto* stopping = std::get_if<event::Stopping>(&event)) {
    stopping_ = true;
    stopping_since_ = now;
    hands_over_ = stopping->trainers_live;
    look_for_all_gone(now, out);
  } else if (const auto* drain = std::get_if<event::Drain>(&event)) {
    draining_ = true;
    const bool was_spared = std::exchange(hands_over_, drain->told && drain->trainers_live);
    if (stopping_ && was_spared && !hands_over_) look_for_all_gone(now, out);
  }
  if (stopping_ || draining_) consider_drain(now, out);
}

// --- epochs ---

void Coordinator::watch_epoch(TimeNs now, EffectWriter& out) {
  timers_.set(now + facts_.times.epoch_check_ms * kMillisecond, out, [this](TimeNs, EffectWriter& then_out) {
    if_in_office(then_out,
                 [this](TimeNs then_now, EffectWriter& last_out) { watch_epoch(then_now, last_out); });
  });
}

void Coordinator::if_in_office(EffectWriter& out, std::function<void(TimeNs now, EffectWriter& out)> act) {
  if (superseded_) return;
  operations_.start(
      operation::ReadEpoch{}, out,
      [this, act = std::move(act)](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
        if (superseded_) return;
        auto highest = result_as<std::shared_ptr<const storage::EpochRecord>>(std::move(result));
        if (highest.ok() && (*highest)->epoch > facts_.epoch) return retire(**highest, then_out);
        act(now, then_out);
      });
}

// Nodes report what is in flight here to the later coordinator, or decide it at their deadlines.
void Coordinator::retire(const storage::EpochRecord& by, EffectWriter& out) {
  superseded_ = by;
  out.warning("superseded by epoch " + std::to_string(by.epoch) + " at " + by.address +
              (storage::is_of_run(by, facts_.job_id, facts_.generation)
                   ? ""
                   : " of " + storage::run_of(by, facts_.job_id)));
  while (!attempts_.empty()) close_attempt(AttemptKey(attempts_.begin()->first), out);
  nodes_.insert(kThisNode);
  for (NodeId node : nodes_) send_superseded(node, out);
  out.retire(by);
}

void Coordinator::send_superseded(NodeId to, EffectWriter& out) {
  out.send(to, RoleKind::planner, wire::Superseded{superseded_->epoch, superseded_->address});
}

// --- what earlier coordinators left ---

void Coordinator::recover(EffectWriter& out) {
  operations_.start(operation::ReadRoster{facts_.generation}, out,
                    [this](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto record = result_as<storage::RosterRecord>(std::move(result));
                      if (record.ok()) roster_stands(now, *record, then_out);
                      if (record.ok()) await_all(now, then_out);
                      roster_asked_ = true;
                      for (const auto& [node, join] : std::exchange(early_joins_, {}))
                        on_join(node, join, then_out);
                    });
  operations_.start(operation::ListAttempts{}, out,
                    [this](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto list = result_as<storage::AttemptList>(std::move(result));
                      if (!list.ok()) {
                        then_out.warning("attempts could not be listed: " + list.status().to_string());
                        return;
                      }
                      clean_up(now, *list, then_out);
                    });
}

void Coordinator::clean_up(TimeNs now, const storage::AttemptList& list, EffectWriter& out) {
  for (const storage::AttemptInfo& info : list.attempts) {
    if (info.to_sweep()) {
      sweep(info.key, out);
    } else if (info.state == storage::AttemptInfo::State::undecided &&
               info.key.generation < facts_.generation) {
      watch_.watch(
          now, info.key, facts_.times.abandoned_after_ms * kMillisecond,
          "generation " + std::to_string(info.key.generation) + " ended before it was complete", out,
          [this, key = info.key](TimeNs, Result<storage::AttemptInfo::State> state, EffectWriter& then_out) {
            if (!state.ok()) {
              then_out.warning(to_string(key) + ": " + state.status().to_string());
            } else if (*state == storage::AttemptInfo::State::committed) {
              then_out.warning(to_string(key) +
                               " was left undecided by its generation and is complete: committed");
            } else if (*state == storage::AttemptInfo::State::aborted) {
              then_out.info(to_string(key) + " was left undecided by its generation: aborted");
              sweep(key, then_out);
            }
          });
    } else if (info.state == storage::AttemptInfo::State::undecided &&
               info.key.generation == facts_.generation &&
               info.rank_manifests == 0) {  // else its ranks decide it
      if (open_attempt(now, info.key, out) != nullptr) look_for_gone(now, info.key, out);
    }
  }
  for (const auto& [key, why] : list.damaged) out.warning(to_string(key) + ": " + why.to_string());
}

void Coordinator::sweep(const AttemptKey& key, EffectWriter& out) {
  if (auto [running, fresh] = sweeps_.try_emplace(key, false); !fresh) {
    running->second = true;
    return;
  }
  operations_.start(operation::SweepAttempt{key}, out,
                    [this, key](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                      auto bytes = result_as<uint64_t>(std::move(result));
                      if (!bytes.ok()) {
                        then_out.warning(to_string(key) + ": " + bytes.status().to_string());
                      } else if (*bytes != 0) {
                        then_out.info(to_string(key) + ": swept " + human_bytes(*bytes) + " of leftovers");
                      }
                      auto swept = sweeps_.find(key);
                      const bool once_more = swept->second;
                      sweeps_.erase(swept);
                      if (once_more) sweep(key, then_out);
                    });
}

void Coordinator::sweep_later(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  if (late_sweeps_ >= kMaxLateSweeps) return;
  ++late_sweeps_;
  timers_.set(now + facts_.times.node_deadline_ms * kMillisecond, out,
              [this, key](TimeNs, EffectWriter& then_out) {
                --late_sweeps_;
                sweep(key, then_out);
              });
}

// --- joining ---

void Coordinator::on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out) {
  if (facts_.read_only) {  // nothing is saved: nodes only need load choices
    if (const auto* load = std::get_if<wire::JoinLoad>(&body)) loads_.join(now, from, *load, out);
  } else if (const auto* join = std::get_if<wire::JoinRanks>(&body)) {
    on_join(from, *join, out);
  } else if (const auto* layouts = std::get_if<wire::Layouts>(&body)) {
    for (const LayoutPtr& layout : layouts->layouts) {
      gathering_.add_layout(layout);
      take_staged_layout(layout);
    }
    consider_roster(out);
    for (const AttemptKey& key : open_keys()) consider_complete(key, out);
  } else if (const auto* staged = std::get_if<wire::LayoutsStaged>(&body)) {
    on_layouts_staged(now, from, *staged, out);
  } else if (const auto* local = std::get_if<wire::LocalPlans>(&body)) {
    on_local_plans(now, from, *local, out);
  } else if (const auto* plans = std::get_if<wire::PlanExchange>(&body)) {
    on_plan_exchange(now, from, *plans, out);
  } else if (const auto* written = std::get_if<wire::ShardsWritten>(&body)) {
    on_written(now, from, *written, out);
  } else if (const auto* failed = std::get_if<wire::SaveFailed>(&body)) {
    on_failed(now, from, *failed, out);
  } else if (const auto* gone = std::get_if<wire::RanksGone>(&body)) {
    on_ranks_gone(now, from, *gone, out);
  } else if (const auto* load = std::get_if<wire::JoinLoad>(&body)) {
    loads_.join(now, from, *load, out);
    // The sender claims a later coordinator; the root has the truth.
  } else if (std::holds_alternative<wire::Superseded>(body)) {
    if_in_office(out, [](TimeNs, EffectWriter&) {});
  }
}

void Coordinator::on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out) {
  nodes_.insert(from);
  std::vector<Rank> theirs;
  for (const wire::RankLayout& rank : join.ranks) theirs.push_back(rank.rank);
  heard_of(from, theirs, join.host);
  if (!refused_.ok()) return out.send(from, RoleKind::planner, wire::JoinRefused{refused_.message()});
  if (plans_) {
    if (const uint32_t ranks = plans_->world().roster.world_size(); join.world_size != ranks) {
      return out.send(
          from, RoleKind::planner,
          wire::JoinRefused{"host " + join.host + " says a world of " + std::to_string(join.world_size) +
                            " ranks, the roster of this run has " + std::to_string(ranks)});
    }
    // The roster exists. A Planner whose clients do not fit it rejects them, or they stage all that they
    // hold.
    if (told_roster_.has_crossed(from)) return;
    told_roster_.tell(from);
    return out.send(from, RoleKind::planner,
                    wire::RosterIs{plans_->world_ptr(), plans_->options(), kRuleVersion});
  }
  if (!roster_asked_) {  // the roster in the root counts, if there is one
    early_joins_.insert_or_assign(from, join);
    return;
  }
  if (Status status = gathering_.add(join); !status.ok()) return refuse_all(status, out);
  if (auto ids = to_ask(from, gathering_.missing_layouts(join)); !ids.empty()) {
    out.send(from, RoleKind::planner, wire::LayoutsWanted{std::move(ids)});
  }
  consider_roster(out);
}

// Requests a layout that many nodes have from one of them, or from another if that one is lost. A message of
// a node makes the coordinator ask it again, because the earlier request may be lost.
std::vector<LayoutId> Coordinator::to_ask(NodeId node, std::vector<LayoutId> missing) {
  ask_again(node);
  std::erase_if(missing, [&](const LayoutId& id) {
    auto [asked, fresh] = layouts_asked_.try_emplace(id, node);
    if (fresh) return false;
    if (nodes_.contains(asked->second)) return true;
    asked->second = node;
    return false;
  });
  return missing;
}

void Coordinator::consider_roster(EffectWriter& out) {
  if (plans_ || publishing_roster_ || !refused_.ok() || !gathering_.complete()) return;
  auto world = gathering_.make_world();
  if (!world.ok()) return refuse_all(world.status(), out);
  if (Status fits = check_roster_fits(**world, facts_.message_bytes_max); !fits.ok()) {
    return refuse_all(fits, out);
  }
  publishing_roster_ = true;
  const storage::RosterRecord record{*world, gathering_.options(), kRuleVersion};
  if_in_office(out, [this, record](TimeNs, EffectWriter& then_out) { publish_roster(record, then_out); });
}

void Coordinator::publish_roster(storage::RosterRecord record, EffectWriter& out) {
  operations_.start(operation::PublishRoster{facts_.generation, record}, out,
                    [this, record](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto stands = result_as<storage::RosterRecord>(std::move(result));
                      if (stands.ok()) {
                        publishing_roster_ = false;
                        return roster_stands(now, *stands, then_out);
                      }
                      const Status why = stands.status().with_context("the roster could not be published");
                      const TimeNs again_at = roster_retries_.next_at(now, why);
                      if (again_at == 0) {
                        publishing_roster_ = false;
                        return refuse_all(why, then_out);
                      }
                      then_out.warning(why.to_string());
                      timers_.set(again_at, then_out, [this, record](TimeNs, EffectWriter& retry_out) {
                        publish_roster(record, retry_out);
                      });
                    });
}

void Coordinator::roster_stands(TimeNs now, const storage::RosterRecord& record, EffectWriter& out) {
  // An earlier coordinator with another bound may have made this roster.
  const bool travels = record.options.mode != SaveMode::collective;
  if (Status fits = check_roster_fits(*record.world, facts_.message_bytes_max); travels && !fits.ok()) {
    return refuse_all(fits, out);
  }
  prefer(std::make_shared<ExpectedPlans>(facts_, record.world, record.options), out);
  for (const AttemptKey& key : open_keys()) take_early(now, key, out);
}

void Coordinator::refuse_all(Status why, EffectWriter& out) {
  refused_ = std::move(why);
  out.warning("no roster: " + refused_.to_string());
  for (NodeId node : nodes_) out.send(node, RoleKind::planner, wire::JoinRefused{refused_.message()});
}

std::unique_ptr<Role> make_coordinator(const NodeFacts& facts) {
  return std::make_unique<Coordinator>(facts);
}

}  // namespace shoal::actors
