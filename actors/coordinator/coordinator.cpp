// Coordinator: events, epochs, joining, and what earlier coordinators left.
#include "actors/coordinator/coordinator.h"

#include <utility>
#include <variant>

#include "actors/messages/message_bounds.h"
#include "base/rare_path.h"

namespace shoal::actors {

void Coordinator::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  roster_sent_.observe(now);
  plans_sent_.observe(now);
  std::visit(
      Overloaded{
          [&](const event::Started&) { on_start(now, out); },
          [&](const event::Received& received) {
            on_message(now, received.from, *received.message.body, out);
          },
          [&](const event::OperationDone& done) { operations_.done(now, done, out); },
          [&](const event::TimerFired& timer) { timers_.fired(now, timer, out); },
          [&](const event::PeerLost& peer) { on_peer_lost(now, peer.node, peer.why, out); },
          [&](const event::PlanningFailed& failed) {
            if (!rosters_.newest() && !is_refused() && !is_superseded()) refuse_all(failed.why, out);
          },
          [&](const event::Stopping& stopping) { on_stopping(now, stopping, out); },
          [&](const event::Drain& drain) { on_drain(now, drain, out); },
          // The coordinator has no clients, and sends nothing with an id. Peers introduce themselves by their
          // first message. The ShardWriter reports trainers that have ended (wire::RanksEnded).
          [](const event::FromClient&) {}, [](const event::ClientLost&) {}, [](const event::WorldKnown&) {},
          [](const event::PeerUp&) {}, [](const event::CoordinatorSuperseded&) {},
          [](const event::TrainerEnded&) {}, [](const event::NextRunStarts&) {},
          [](const event::RanksLost&) {}, [](const event::SendDone&) {}},
      event);
  consider_shutdown(now, out);
}

std::vector<TransitionsTaken> Coordinator::transitions() const {
  return {{"attempt", attempt_counts_.list()},           {"plan gather", plan_gather_counts_.list()},
          {"load gathering", loads_.counts().list()},    {"term", term_counts_.list()},
          {"first roster", first_roster_counts_.list()}, {"shutdown", shutdown_counts_.list()},
          {"retention", retention_.counts().list()}};
}

void Coordinator::on_start(TimeNs now, EffectWriter& out) {
  term_.on(config_.read_only ? TermTrigger::started_read_only : TermTrigger::started, term_counts_);
  if (term_.is(TermState::serving_loads)) return;  // another job decides, cleans up and retains
  recover(out);
  watch_epoch(now, out);
  retention_.begin(out);
}

void Coordinator::on_peer_lost(TimeNs now, NodeId node, const Status& why, EffectWriter& out) {
  nodes_.erase(node);
  early_joins_.erase(node);
  roster_sent_.forget_if([&](NodeId to) { return to == node; });
  plans_sent_.forget_if([&](const auto& sent) { return sent.second == node; });
  loads_.forget(node);
  const std::vector<Rank> ranks = presence_.ranks_to_lose(node);
  if (!ranks.empty()) {
    out.info("lost the node of " + presence_.name_ranks(ranks) + ": " + why.message() +
             "; saves that wait for these ranks are aborted in " +
             human_seconds(config_.timeouts.host_lost_ms / 1e3) + " unless they come back");
  }
  presence_.lose_node(now, node, why.message());
  if (!ranks.empty()) await_lost(now, out);
}

// --- epochs ---

void Coordinator::watch_epoch(TimeNs now, EffectWriter& out) {
  timers_.set(
      now + config_.timeouts.epoch_check_ms * kMillisecond, out, [this](TimeNs, EffectWriter& then_out) {
        if_not_superseded(
            then_out, [this](TimeNs then_now, EffectWriter& last_out) { watch_epoch(then_now, last_out); });
      });
}

void Coordinator::if_not_superseded(EffectWriter& out,
                                    std::function<void(TimeNs now, EffectWriter& out)> act) {
  if (is_superseded()) return;
  operations_.start(
      operation::ReadEpoch{}, out,
      [this, act = std::move(act)](TimeNs now, Result<std::shared_ptr<const storage::EpochRecord>> highest,
                                   EffectWriter& then_out) {
        if (is_superseded()) return;
        if (highest.ok() && (*highest)->epoch > config_.epoch) return retire(**highest, then_out);
        act(now, then_out);
      });
}

// Nodes report what is in flight here to the later coordinator, or decide it at their deadlines.
void Coordinator::retire(const storage::EpochRecord& by, EffectWriter& out) {
  term_.on(TermTrigger::later_epoch_exists, term_counts_);
  superseded_by_ = by;
  retention_.end(out);
  out.warning("this coordinator is superseded by epoch " + std::to_string(by.epoch) + " at " + by.address +
              (storage::is_of_run(by, config_.job_id, config_.generation)
                   ? ""
                   : " of " + storage::run_of(by, config_.job_id)));
  if (!attempts_.empty()) base::rare_path<"coordinator: is superseded while it has attempts">();
  while (!attempts_.empty()) close(attempts_.begin()->second, AttemptTrigger::superseded, out);
  if (!lost_sent_.is_empty()) out.to_role(RoleKind::shard_writer, event::RanksLost{});
  lost_sent_ = {};
  nodes_.insert(kThisNode);
  for (NodeId node : nodes_) send_superseded(node, out);
  out.retire(by);
}

void Coordinator::send_superseded(NodeId to, EffectWriter& out) {
  out.send(to, RoleKind::planner, wire::Superseded{superseded_by_->epoch, superseded_by_->address});
}

// --- what earlier coordinators left ---

void Coordinator::recover(EffectWriter& out) {
  operations_.start(operation::ReadRoster{config_.generation}, out,
                    [this](TimeNs now, Result<storage::RosterRecord> record, EffectWriter& then_out) {
                      if (record.ok()) {
                        adopt_first_roster(now, *record, then_out);
                        await_all(now, then_out);
                      }
                      if (!early_joins_.empty())
                        base::rare_path<"coordinator: nodes have joined before it read the roster">();
                      on_first_roster(FirstRosterTrigger::none_found);
                      for (const auto& [node, join] : std::exchange(early_joins_, {}))
                        on_join(node, join, then_out);
                    });
  list_attempts(out);
}

void Coordinator::list_attempts(EffectWriter& out) {
  operations_.start(operation::ListAttempts{}, out,
                    [this](TimeNs now, Result<storage::AttemptList> list, EffectWriter& then_out) {
                      if (is_superseded()) return;  // it could decide no attempt that it opened
                      if (list.ok()) return clean_up(now, *list, then_out);
                      then_out.warning("cannot list the attempts: " + list.status().to_string());
                      if (!is_permanent(list.status())) {
                        base::rare_path<"coordinator: lists the attempts again">();
                        look_later(now, then_out,
                                   [this](TimeNs, EffectWriter& later_out) { list_attempts(later_out); });
                      }
                    });
}

void Coordinator::look_again_for_first_roster(EffectWriter& out) {
  if (!gathers_layouts() || is_reading_first_roster_) return;
  is_reading_first_roster_ = true;
  operations_.start(operation::ReadRoster{config_.generation}, out,
                    [this](TimeNs now, Result<storage::RosterRecord> record, EffectWriter& then_out) {
                      is_reading_first_roster_ = false;
                      // Not found, or the read failed: the node repeats its report.
                      if (!record.ok() || !gathers_layouts()) return;
                      base::rare_path<"coordinator: finds the first roster late">();
                      adopt_first_roster(now, *record, then_out);
                      await_all(now, then_out);
                    });
}

void Coordinator::clean_up(TimeNs now, const storage::AttemptList& list, EffectWriter& out) {
  for (const storage::AttemptInfo& info : list.attempts) {
    const bool is_undecided = info.state == storage::AttemptInfo::State::undecided;
    if (info.to_sweep()) {
      sweeps_.sweep(info.key, out);
    } else if (is_undecided && info.key.generation < config_.generation) {
      decide_earlier(now, info.key, out);
    } else if (is_undecided && info.key.generation == config_.generation && info.rank_manifests == 0 &&
               !rank_local_) {
      base::rare_path<"coordinator: takes over an undecided attempt">();
      // If there are rank manifests, the nodes decide it. If there are none yet, see leave_to_nodes.
      const Opened opened = open(now, info.key, out);
      if (opened.is_new) look_for_ended(now, *opened.attempt, out);
    }
  }
  for (const auto& [key, why] : list.damaged) out.warning(to_string(key) + ": " + why.to_string());
}

void Coordinator::decide_earlier(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  const std::string unfinished =
      "generation " + std::to_string(key.generation) + " ended before it was complete";
  watch_.watch(now, key, config_.timeouts.abandoned_after_ms * kMillisecond, unfinished, out,
               [this, key, unfinished](TimeNs then_now, Result<storage::AttemptInfo::State> state,
                                       EffectWriter& then_out) {
                 if (!state.ok()) {
                   then_out.warning(to_string(key) + ": " + state.status().to_string());
                   if (is_permanent(state.status())) return;
                   base::rare_path<"coordinator: looks at an earlier attempt again">();
                   look_later(then_now, then_out, [this, key](TimeNs later, EffectWriter& later_out) {
                     decide_earlier(later, key, later_out);
                   });
                 } else if (*state == storage::AttemptInfo::State::committed) {
                   base::rare_path<"coordinator: commits an attempt of an earlier run">();
                   then_out.warning(to_string(key) +
                                    " is committed: its generation left it undecided, and it is complete");
                 } else if (*state == storage::AttemptInfo::State::aborted) {
                   then_out.info(to_string(key) + " is aborted: " + unfinished);
                   sweeps_.sweep(key, then_out);
                 }
               });
}

// After an error of the storage, which may be better then. Without another look, what earlier runs left
// would stay until the next coordinator.
void Coordinator::look_later(TimeNs now, EffectWriter& out, PendingTimers::Then look) {
  timers_.set(now + config_.timeouts.abandoned_after_ms * kMillisecond, out,
              [this, look = std::move(look)](TimeNs then_now, EffectWriter& then_out) {
                if (!is_superseded()) look(then_now, then_out);
              });
}

// --- messages and joining ---

void Coordinator::on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out) {
  if (is_superseded()) {
    base::rare_path<"coordinator: receives a message after it was superseded">();
    return send_superseded(from, out);
  }
  if (term_.is(TermState::serving_loads)) {  // nothing is saved: nodes only need load choices
    if (const auto* load = std::get_if<wire::JoinLoad>(&body)) loads_.join(now, from, *load, out);
    return;
  }
  std::visit(
      Overloaded{
          [&](const wire::JoinRanks& join) { on_join(from, join, out); },
          [&](const wire::Layouts& layouts) { on_layouts(layouts, out); },
          [&](const wire::LayoutsStaged& staged) { on_layouts_staged(now, from, staged, out); },
          [&](const wire::LocalPlans& plans) { on_local_plans(now, from, plans, out); },
          [&](const wire::PlanGathering& plans) { on_plan_gather(now, from, plans, out); },
          [&](const wire::ShardsWritten& report) { on_report(now, from, report, out); },
          [&](const wire::SaveFailed& failed) { on_failed(now, from, failed, out); },
          [&](const wire::SaveProgress& progress) { on_progress(now, from, progress, out); },
          [&](const wire::ManifestsPublished& published) { on_manifests_published(from, published, out); },
          [&](const wire::Decided& decided) { on_found_committed(from, decided, out); },
          [&](const wire::RanksEnded& gone) { on_ranks_ended(now, from, gone, out); },
          [&](const wire::JoinLoad& load) { loads_.join(now, from, load, out); },
          // The sender claims that a later coordinator exists; the root has the truth.
          [&](const wire::Superseded&) { if_not_superseded(out, [](TimeNs, EffectWriter&) {}); },
          // Messages to the other roles.
          [](const OneOf<wire::LayoutRequest, wire::RosterUpdate, wire::JoinRejected, wire::Pending,
                         wire::Undecided, wire::AttemptRoster, wire::GlobalPlan, wire::LoadRoster,
                         wire::ChunkRequest, wire::ChunkData, wire::ChunksUnavailable, wire::ChunksCancelled,
                         wire::ChunksPending> auto&) {}},
      body);
}

void Coordinator::on_layouts(const wire::Layouts& layouts, EffectWriter& out) {
  for (const LayoutPtr& layout : layouts.layouts) {
    gathering_.add_layout(layout);
    layouts_.take(layout);
  }
  consider_first_roster(out);
  for (auto& [key, attempt] : attempts_) consider(attempt, out);
}

void Coordinator::on_join(NodeId from, const wire::JoinRanks& join, EffectWriter& out) {
  nodes_.insert(from);
  presence_.reported(from, ranks_in(join.ranks), join.host);
  if (is_refused()) return out.send(from, RoleKind::planner, wire::JoinRejected{refused_.message()});
  if (const auto& roster = rosters_.newest()) {
    if (const uint32_t ranks = roster->world().roster.world_size(); join.world_size != ranks) {
      return out.send(
          from, RoleKind::planner,
          wire::JoinRejected{"host " + join.host + " declares a world of " + std::to_string(join.world_size) +
                             " ranks, but the roster of this run has " + std::to_string(ranks)});
    }
    // The roster exists. A Planner whose clients do not fit it rejects them, or they stage all that they
    // hold.
    if (roster_sent_.has_crossed(from)) return;
    roster_sent_.sent(from);
    return out.send(from, RoleKind::planner,
                    wire::RosterUpdate{roster->world_ptr(), roster->options(), kRuleVersion});
  }
  if (first_roster_.is(FirstRosterState::reading)) {  // the roster in the root counts, if there is one
    early_joins_.insert_or_assign(from, join);
    return;
  }
  if (Status status = gathering_.add(join); !status.ok()) return refuse_all(status, out);
  refuse_mixed_modes(out);
  if (is_refused()) return;
  // A message of a node makes the coordinator request layouts again, because the earlier request may be lost.
  layouts_.request_again(from);
  std::vector<LayoutId> ids = gathering_.missing_layouts(join);
  std::erase_if(ids, [&](const LayoutId& id) { return !layouts_.must_request(id, from, nodes_); });
  if (!ids.empty()) out.send(from, RoleKind::planner, wire::LayoutRequest{std::move(ids)});
  consider_first_roster(out);
}

void Coordinator::on_first_roster(FirstRosterTrigger trigger) {
  if (first_roster_.may(trigger)) first_roster_.on(trigger, first_roster_counts_);
}

void Coordinator::consider_first_roster(EffectWriter& out) {
  if (!gathers_layouts() || !gathering_.complete() || !gathering_.take_news()) return;
  auto world = gathering_.make_world();
  // A rank may be further than others. A roster of layouts of different saves would be that of no save, and
  // ranks that planned by it would lose their saves.
  if (!world.ok() || gathering_.has_changed()) {
    on_first_roster(FirstRosterTrigger::layouts_contradict);
    if (!world.ok()) {
      out.warning("cannot make a roster of the layouts that the ranks have declared: " +
                  world.status().message());
    }
    for (auto& [key, attempt] : attempts_) consider(attempt, out);  // each has layouts of its own
    return;
  }
  if (Status fits = check_roster_fits(**world, config_.message_bytes_max); !fits.ok()) {
    return refuse_all(fits, out);
  }
  on_first_roster(FirstRosterTrigger::all_joined);
  const storage::RosterRecord record{*world, gathering_.options(), kRuleVersion};
  if_not_superseded(
      out, [this, record](TimeNs, EffectWriter& then_out) { publish_first_roster(record, then_out); });
}

void Coordinator::publish_first_roster(storage::RosterRecord record, EffectWriter& out) {
  operations_.start(
      operation::PublishRoster{config_.generation, record}, out,
      [this, record](TimeNs now, Result<storage::RosterRecord> published, EffectWriter& then_out) {
        if (published.ok()) return adopt_first_roster(now, *published, then_out);
        const Status why = published.status().with_context("cannot publish the roster");
        if (is_permanent(why)) return refuse_all(why, then_out);
        // For as long as the run lasts: saves that wait end at their deadlines, and later ones may succeed.
        base::rare_path<"coordinator: publishes the first roster again">();
        if (first_roster_failure_ != why) then_out.warning(why.to_string());
        first_roster_failure_ = why;
        timers_.set(
            now + first_roster_backoff_.next(), then_out,
            [this, record](TimeNs, EffectWriter& retry_out) { publish_first_roster(record, retry_out); });
      });
}

void Coordinator::adopt_first_roster(TimeNs now, const storage::RosterRecord& record, EffectWriter& out) {
  first_roster_failure_ = ok_status();
  // An earlier coordinator with another bound may have made this roster.
  const bool travels = record.options.mode != SaveMode::collective;
  if (Status fits = check_roster_fits(*record.world, config_.message_bytes_max); travels && !fits.ok()) {
    return refuse_all(fits, out);
  }
  make_newest(std::make_shared<ExpectedPlans>(config_, record.world, record.options), out);
  for (auto& [key, attempt] : attempts_) take_early(now, attempt, out);
}

Status Coordinator::mixed_modes(const std::string& host, SaveMode mode) const {
  return Status(Code::refused, "host " + rank_local_host_ + " saves in mode rank-local, but host " + host +
                                   " saves in mode " + std::string(mode_name(mode)));
}

void Coordinator::refuse_mixed_modes(EffectWriter& out) {
  if (rank_local_host_.empty()) return;
  if (collective_) {
    const std::string cause = mixed_modes(collective_->first_host, SaveMode::collective).message();
    for (auto& [key, attempt] : attempts_) {
      if (attempt.is_open()) abort(attempt, GiveUp::contradiction, cause, out);
    }
    return;
  }
  if (gathering_.ranks_known() == 0 || !gathers_layouts()) return;
  refuse_all(mixed_modes(gathering_.first_host(), gathering_.options().mode), out);
}

void Coordinator::refuse_all(Status why, EffectWriter& out) {
  on_first_roster(FirstRosterTrigger::refused);
  refused_ = std::move(why);
  out.warning("there is no roster: " + refused_.to_string());
  for (NodeId node : nodes_) out.send(node, RoleKind::planner, wire::JoinRejected{refused_.message()});
}

void Coordinator::make_newest(const std::shared_ptr<ExpectedPlans>& roster, EffectWriter& out) {
  if (!rosters_.make_newest(roster)) return;
  on_first_roster(FirstRosterTrigger::known);
  const World& world = roster->world();
  const std::string hosts = presence_.name_hosts_with_ranks();
  out.info("roster " + world.roster.id().short_hex() + ": " + std::to_string(world.roster.world_size()) +
           " ranks, " + std::to_string(world.layouts.size()) + " layouts" +
           (hosts.empty() ? "" : "; hosts: " + hosts));
  if (roster->options().mode == SaveMode::collective) return;  // each rank receives only its own plan
  for (NodeId node : nodes_) {
    roster_sent_.sent(node);
    out.send(node, RoleKind::planner,
             wire::RosterUpdate{roster->world_ptr(), roster->options(), kRuleVersion});
  }
}

uint32_t Coordinator::world_size() const {
  if (const auto& roster = rosters_.newest()) return roster->world().roster.world_size();
  if (collective_) return collective_->world_size;
  return first_roster_.is(FirstRosterState::contradicted) ? gathering_.world_size() : 0;
}

const SaveOptions& Coordinator::options() const {
  if (const auto& roster = rosters_.newest()) return roster->options();
  return collective_ ? collective_->options : gathering_.options();
}

std::unique_ptr<Role> make_coordinator(const NodeConfig& config) {
  return std::make_unique<Coordinator>(config);
}

}  // namespace shoal::actors
