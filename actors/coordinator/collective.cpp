// Coordinator: collective saves. It gathers what all ranks hold, makes one roster of it, and sends each rank
// its plan before it stages anything. From the reports on, such a save is like any other.
#include <utility>

#include "actors/coordinator/coordinator.h"

namespace shoal::actors {

namespace {

// Upper estimate of the bytes of a plan in a message.
size_t message_bytes_of(const SavePlan& plan) {
  size_t bytes = 256;
  for (const WriteItem& item : plan.items) bytes += 80 + 16 * item.box.dims();
  return bytes;
}

}  // namespace

Status Coordinator::check_host(const Speaker& said) const {
  auto refuse = [&](const std::string& what, const std::string& than) {
    return Status(Code::refused, "host " + said.host + " says " + what + " than " + than);
  };
  if (plans_ && said.options != plans_->options())
    return refuse("other save options", "the roster of this run");
  if (plans_ && said.world_size != world_size()) {
    return refuse("a world of " + std::to_string(said.world_size) + " ranks, another",
                  "the roster of this run with " + std::to_string(world_size()));
  }
  if (!collective_) return ok_status();
  if (said.options != collective_->options) {
    return refuse("other save options", "host " + collective_->first_host);
  }
  if (said.world_size != collective_->world_size) {
    return refuse("a world of " + std::to_string(said.world_size) + " ranks, another",
                  "host " + collective_->first_host + " with " + std::to_string(collective_->world_size));
  }
  return ok_status();
}

Coordinator::Attempt* Coordinator::hear(TimeNs now, const Speaker& said, const AttemptKey& key,
                                        EffectWriter& out) {
  nodes_.insert(said.node);
  heard_of(said.node, said.ranks, said.host);
  if (!refused_.ok()) {
    out.send(said.node, RoleKind::planner, wire::JoinRefused{refused_.message()});
    return nullptr;
  }
  if (answer_decided(said.node, key, out)) return nullptr;
  Attempt* attempt = open_attempt(now, key, out);
  if (attempt == nullptr) return nullptr;
  out.send(said.node, RoleKind::shard_writer, wire::Pending{key});
  if (attempt->phase == Phase::publishing) return nullptr;
  if (Status fits = check_host(said); !fits.ok()) {
    abort(key, GiveUp::contradiction, fits.message(), out);
    return nullptr;
  }
  if (!collective_) collective_ = Collective{said.world_size, said.options, said.host, {}};
  if (!attempt->follows_planner) attempt->follows_planner.emplace(said.follows_planner, said.host);
  const auto& [follows, host] = *attempt->follows_planner;
  if (follows != said.follows_planner) {
    abort(key, GiveUp::contradiction,
          "the planners of host " + (follows ? host : said.host) +
              " have a global plan of their own, those of host " + (follows ? said.host : host) +
              " have none",
          out);
    return nullptr;
  }
  return attempt;
}

void Coordinator::on_local_plans(TimeNs now, NodeId from, const wire::LocalPlans& said, EffectWriter& out) {
  Speaker speaker{from, said.host, said.world_size, said.options, said.follows_planner, {}};
  for (const wire::RankLayout& rank : said.ranks) speaker.ranks.push_back(rank.rank);
  Attempt* attempt = hear(now, speaker, said.key, out);
  if (attempt == nullptr) return;
  ask_again(from);
  bool is_news = false;
  for (size_t i = 0; i < said.ranks.size(); ++i) {
    const auto& [rank, layout_id] = said.ranks[i];
    collective_->host_of[rank] = said.host;
    if (attempt->reported.contains(rank)) continue;
    const Waiting now_waits{from, layout_id, false, said.known[i]};
    auto [waiting, fresh] = attempt->waiting.try_emplace(rank, now_waits);
    if (fresh || waiting->second == now_waits) {
      is_news = is_news || fresh;
      continue;
    }
    waiting->second = now_waits;
    is_news = true;
  }
  if (is_news) attempt->last_news = now;
  if (attempt->named && !is_news && told_plans_.has_crossed({said.key, from})) return;
  if (attempt->named) return send_global_plan(said.key, from, out);
  consider_complete(said.key, out);
  look_for_gone(now, said.key, out);
}

void Coordinator::send_global_plan(const AttemptKey& key, NodeId to, EffectWriter& out) {
  auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second.phase != Phase::gathering) return;
  const Attempt& attempt = found->second;
  const RosterId& roster = attempt.named->world().roster.id();
  wire::GlobalPlan part{key, roster, {}};
  size_t bytes = 0;
  told_plans_.tell({key, to});
  const auto of_node = ranks_of_.find(to);
  if (of_node == ranks_of_.end()) return;
  for (Rank rank : of_node->second) {
    const auto found_waiting = attempt.waiting.find(rank);
    if (found_waiting == attempt.waiting.end()) continue;
    const Waiting& waiting = found_waiting->second;
    if (waiting.node != to || waiting.has_staged) continue;
    // An earlier node of this rank stated another layout, and the roster has that one.
    if (attempt.named->world().layout_of(rank).id() != waiting.layout_id) {
      return abort(key, GiveUp::contradiction,
                   "rank " + std::to_string(rank) + " has changed what it holds since it first said so", out);
    }
    auto plan = attempt.named->plan_unless(rank, waiting.known);
    if (!plan.ok())
      return abort(key, GiveUp::contradiction,
                   "rank " + std::to_string(rank) + ": " + plan.status().message(), out);
    const size_t more = *plan ? message_bytes_of(**plan) : sizeof(wire::RankPart);
    if (more > facts_.message_bytes_max) {
      return abort(key, GiveUp::contradiction,
                   "the plan of rank " + std::to_string(rank) + " takes " + human_bytes(more) +
                       ", a message at most " + human_bytes(facts_.message_bytes_max),
                   out);
    }
    if (bytes + more > facts_.message_bytes_max) {
      out.send(to, RoleKind::shard_writer, std::exchange(part, wire::GlobalPlan{key, roster, {}}));
      bytes = 0;
    }
    bytes += more;
    part.parts.push_back({rank, *std::move(plan)});
  }
  out.send(to, RoleKind::shard_writer, std::move(part));
}

}  // namespace shoal::actors
