// Coordinator: collective saves. It gathers what all ranks hold, makes one roster of it, and sends each rank
// its plan before it stages anything. From the reports on, such a save is like any other. If planners make a
// global plan, a plan gather precedes this.
#include <utility>

#include "actors/coordinator/coordinator.h"
#include "actors/messages/message_bounds.h"
#include "plan/saving/options_difference.h"

namespace shoal::actors {

namespace {

// Upper estimate of the bytes of a plan in a message.
size_t message_bytes_of(const SavePlan& plan) {
  size_t bytes = 256;
  for (const WriteItem& item : plan.items) bytes += 80 + 16 * item.box.dims();
  return bytes;
}

}  // namespace

Status Coordinator::check_host(const Sender& sender) const {
  auto refuse = [&](const std::string& what) {
    return Status(Code::refused, "host " + sender.host + " " + what);
  };
  const auto& roster = rosters_.newest();
  if (roster && sender.options != roster->options())
    return refuse("saves with other options than the roster of this run, " +
                  plan::options_difference(sender.options, roster->options()));
  if (roster && sender.world_size != world_size()) {
    return refuse("declares a world of " + std::to_string(sender.world_size) +
                  " ranks, but the roster of this run has " + std::to_string(world_size()));
  }
  if (!collective_) return ok_status();
  if (sender.options != collective_->options) {
    return refuse("saves with other options than host " + collective_->first_host + ", " +
                  plan::options_difference(sender.options, collective_->options));
  }
  if (sender.world_size != collective_->world_size) {
    return refuse("declares a world of " + std::to_string(sender.world_size) + " ranks, but host " +
                  collective_->first_host + " declares " + std::to_string(collective_->world_size));
  }
  return ok_status();
}

Coordinator::Opened Coordinator::open_collective(TimeNs now, const Sender& sender, const AttemptKey& key,
                                                 EffectWriter& out) {
  nodes_.insert(sender.node);
  presence_.reported(sender.node, sender.ranks, sender.host);
  if (is_refused()) {
    out.send(sender.node, RoleKind::planner, wire::JoinRejected{refused_.message()});
    return {};
  }
  if (answer_decided(sender.node, key, out)) return {};
  const Opened opened = open(now, key, out);
  if (opened.attempt == nullptr) return {};
  send_pending(now, sender.node, *opened.attempt, out);
  if (!opened.attempt->is_open()) return {};
  Status fits = check_host(sender);
  if (fits.ok() && !rank_local_host_.empty()) fits = mixed_modes(sender.host, SaveMode::collective);
  if (fits.ok()) {
    if (!collective_) collective_ = Collective{sender.world_size, sender.options, sender.host, {}};
    fits = opened.attempt->check_planners(sender.follows_planner, sender.host);
  }
  if (!fits.ok()) {
    abort(*opened.attempt, GiveUp::contradiction, fits.message(), out);
    return {};
  }
  return opened;
}

void Coordinator::on_local_plans(TimeNs now, NodeId from, const wire::LocalPlans& message,
                                 EffectWriter& out) {
  const Sender sender{from,
                      message.host,
                      message.world_size,
                      message.options,
                      message.follows_planner,
                      ranks_in(message.ranks)};
  const auto [attempt, is_new] = open_collective(now, sender, message.key, out);
  if (attempt == nullptr) return;
  layouts_.request_again(from);
  bool is_news = false;
  for (size_t i = 0; i < message.ranks.size(); ++i) {
    const auto& [rank, layout_id] = message.ranks[i];
    collective_->host_of[rank] = message.host;
    const bool changes = attempt->wait_for_plan(rank, {from, layout_id, false, message.known[i]});
    is_news = is_news || changes;
  }
  if (is_news) attempt->on_news(now);
  if (attempt->roster()) {
    if (!is_news && plans_sent_.has_crossed({message.key, from})) return;
    return send_global_plan(*attempt, from, out);
  }
  consider(*attempt, out);
  if (is_new) look_for_ended(now, *attempt, out);
}

void Coordinator::send_global_plan(Attempt& attempt, NodeId to, EffectWriter& out) {
  if (!attempt.is_open()) return;
  ExpectedPlans& under = *attempt.roster();
  const RosterId& roster = under.world().roster.id();
  wire::GlobalPlan message{attempt.key(), roster, {}};
  size_t bytes = 0;
  plans_sent_.sent({attempt.key(), to});
  const std::vector<Rank>* of_node = presence_.ranks_of(to);
  if (of_node == nullptr) return;
  for (Rank rank : *of_node) {
    const auto found = attempt.waiting().find(rank);
    if (found == attempt.waiting().end()) continue;
    const Attempt::Waiting& waiting = found->second;
    if (waiting.node != to || waiting.has_staged) continue;
    const std::string name = "rank " + std::to_string(rank);
    // An earlier node of this rank stated another layout, and the roster has that one.
    if (under.world().layout_of(rank).id() != waiting.layout_id) {
      return abort(attempt, GiveUp::contradiction, name + " now declares another layout than at first", out);
    }
    auto plan = under.plan_unless(rank, waiting.known);
    if (!plan.ok()) {
      return abort(attempt, GiveUp::contradiction, name + ": " + plan.status().message(), out);
    }
    const size_t more = *plan ? message_bytes_of(**plan) : sizeof(wire::RankPart);
    if (more > config_.message_bytes_max) {
      return abort(attempt, GiveUp::contradiction,
                   "the plan of " + name + " takes " + human_bytes(more) + ", but a message takes at most " +
                       human_bytes(config_.message_bytes_max),
                   out);
    }
    if (bytes + more > config_.message_bytes_max) {
      out.send(to, RoleKind::shard_writer,
               std::exchange(message, wire::GlobalPlan{attempt.key(), roster, {}}));
      bytes = 0;
    }
    bytes += more;
    message.parts.push_back({rank, *std::move(plan)});
  }
  out.send(to, RoleKind::shard_writer, std::move(message));
}

// --- the plan gather ---

void Coordinator::on_plan_gather(TimeNs now, NodeId from, const wire::PlanGathering& message,
                                 EffectWriter& out) {
  Sender sender{from, message.host, message.world_size, message.options, true, ranks_in(message.plans)};
  if (message.stage == plan::GatherStage::made)
    sender.ranks = {message.coordinator_rank};  // the plans in the message are those of all ranks
  const auto [attempt, is_new] = open_collective(now, sender, message.key, out);
  if (attempt == nullptr) return;
  if (!attempt->plan_gather) attempt->plan_gather.emplace(message.coordinator_rank, plan_gather_counts_);
  PlanGather& gather = *attempt->plan_gather;
  if (gather.coordinator_rank() != message.coordinator_rank) {
    return abort(*attempt, GiveUp::contradiction,
                 "host " + message.host + " sets coordinator_rank " +
                     std::to_string(message.coordinator_rank) + ", but another host sets " +
                     std::to_string(gather.coordinator_rank()),
                 out);
  }
  const size_t known = gather.plans_taken();
  Result<PlanGather::Answer> answer = PlanGather::Answer{};
  if (message.stage == plan::GatherStage::offered) {
    answer = gather.take_offers(from, message);
  } else if (message.stage == plan::GatherStage::made) {
    answer = gather.take_made(from, message);
  }
  if (gather.plans_taken() != known) attempt->on_news(now);
  if (!answer.ok()) {
    abort(*attempt, GiveUp::contradiction, answer.status().message(), out);
  } else {
    for (NodeId node : answer->to) send_gathered_plans(*attempt, answer->stage, node, out);
  }
  if (is_new) look_for_ended(now, *attempt, out);
}

void Coordinator::send_gathered_plans(Attempt& attempt, plan::GatherStage stage, NodeId to,
                                      EffectWriter& out) {
  const PlanGather& gather = *attempt.plan_gather;
  wire::PlanGathering message{attempt.key(),
                              stage,
                              "",
                              world_size(),
                              options(),
                              gather.coordinator_rank(),
                              gather.plans_for(to, stage)};
  Status refused;
  for (wire::PlanGathering& part : split_plans(std::move(message), config_.message_bytes_max, &refused)) {
    out.send(to, RoleKind::shard_writer, std::move(part));
  }
  if (!refused.ok()) abort(attempt, GiveUp::contradiction, refused.message(), out);
}

}  // namespace shoal::actors
