// Planner: one a node. Collects what the ranks of this host hold, and joins the coordinator, which makes a
// roster of all ranks. Passes the world to the clients and the other roles of this node.
// docs/reference/protocol.md, "Joining".
#include <algorithm>
#include <optional>
#include <utility>

#include "actors/continuations.h"
#include "actors/effect_writer.h"
#include "actors/messages/message_bounds.h"
#include "actors/planner/joining.h"
#include "actors/recent_map.h"
#include "base/flat_map.h"
#include "base/rare_path.h"
#include "plan/saving/options_difference.h"

namespace shoal::actors {
namespace {

constexpr TimerId kJoinTimer = 1;
constexpr TimerId kEpochTimer = 2;
constexpr TimeNs kFirstLook = 500 * kMillisecond;  // at the highest epoch, again; each next one twice as late
constexpr size_t kMaxLayoutsRemembered = 64;       // besides those that the ranks hold now

class Planner final : public Role {
 public:
  explicit Planner(const NodeConfig& config)
      : config_(config), world_size_(config.world_size), epoch_(config.epoch), backoff_(config.timeouts) {}

  RoleKind kind() const override { return RoleKind::planner; }

  std::vector<TransitionsTaken> transitions() const override { return {{"joining", counts_.list()}}; }

  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    std::visit(
        Overloaded{
            [&](const event::FromClient& from) { on_client(now, from.client, *from.message, out); },
            [&](const event::ClientLost& lost) { on_client_lost(lost.client); },
            [&](const event::Received& received) {
              on_message(now, received.from, *received.message.body, out);
            },
            [&](const event::TimerFired& timer) {
              if (timer.timer == kJoinTimer) join(now, out);
              if (timer.timer == kEpochTimer && coordinator_lost_) look_up(now, std::nullopt, out);
            },
            [&](const event::OperationDone& done) { operations_.done(now, done, out); },
            [&](const event::PeerLost& peer) {
              if (peer.node == kCoordinatorNode) on_coordinator_lost(now, out);
            },
            [&](const event::PeerUp& peer) {
              if (peer.node == kCoordinatorNode) on_coordinator_up(now, out);
            },
            [](const OneOf<event::Started, event::WorldKnown, event::PlanningFailed,
                           event::CoordinatorSuperseded, event::TrainerEnded, event::NextRunStarts,
                           event::Stopping, event::Drain, event::RanksLost, event::SendDone> auto&) {}},
        event);
  }

 private:
  struct LocalRank {
    ClientId client = 0;  // 0: the client is gone; its layout stays part of the job
    LayoutPtr layout;
    SaveOptions options;
    bool is_named = false;  // to this coordinator: by JoinRanks, or by RanksEnded of the ShardWriter
  };

  // --- where the coordinator is ---

  void on_coordinator_lost(TimeNs now, EffectWriter& out) {
    coordinator_lost_ = true;
    next_look_ = kFirstLook;
    look_up(now, std::nullopt, out);
    if (!sends_joins()) return;
    backoff_.reset();
    out.set_timer(kJoinTimer, now + backoff_.next());
  }

  void on_coordinator_up(TimeNs now, EffectWriter& out) {
    coordinator_lost_ = false;
    out.cancel_timer(kEpochTimer);
    // The ShardWriter tells the coordinator which ranks are attached now.
    for (auto& [rank, local] : ranks_) local.is_named = local.is_named && local.client != 0;
    if (!sends_joins()) return;
    backoff_.reset();
    join(now, out);
  }

  // Reads the highest epoch from the root, and again soon: a launcher may replace the node of a coordinator
  // within a second. `report` is what a coordinator sent, used if the root cannot be read.
  void look_up(TimeNs now, std::optional<wire::Superseded> report, EffectWriter& out) {
    if (config_.read_only) return;  // the epochs are those of the job that trains
    out.set_timer(kEpochTimer, now + next_look_);
    next_look_ = std::min(2 * next_look_, config_.timeouts.epoch_check_ms * kMillisecond);
    if (!report && is_looking_) return;  // a root that hangs gets no more reads
    is_looking_ = true;
    operations_.start(
        operation::ReadEpoch{}, out,
        [this, report](TimeNs, Result<std::shared_ptr<const storage::EpochRecord>> answer,
                       EffectWriter& then_out) {
          is_looking_ = false;
          const storage::EpochRecord* highest = answer.ok() ? answer->get() : nullptr;
          if (highest != nullptr && !storage::is_of_run(*highest, config_.job_id, config_.generation)) {
            base::rare_path<"planner: another job has the root">();
            return coordinator_superseded(*highest, then_out);
          }
          if (highest != nullptr) follow(highest->epoch, highest->address, then_out);
          if (report) follow(report->epoch, report->address, then_out);
        });
  }

  // Redirects to this coordinator. If it is the one already followed, the node connects to it again.
  void follow(uint32_t epoch, const std::string& address, EffectWriter& out) {
    if (epoch < epoch_) {
      base::rare_path<"planner: hears of an earlier epoch">();
      return;
    }
    if (epoch > epoch_ && !std::exchange(coordinator_lost_, true)) {  // until a session with it exists
      // The coordinator before may be on this node: then no session with it ends.
      out.to_role(RoleKind::shard_writer,
                  event::PeerLost{kCoordinatorNode,
                                  Status(Code::unavailable, "a later coordinator has taken over, and " +
                                                                address + " has not answered")});
    }
    epoch_ = epoch;
    out.redirect(epoch, address);
  }

  void coordinator_superseded(const storage::EpochRecord& by, EffectWriter& out) {
    if (std::exchange(is_superseded_, true)) return;
    const Status why(Code::superseded, storage::run_of(by, config_.job_id) +
                                           " has taken over the root (epoch " + std::to_string(by.epoch) +
                                           " at " + by.address + ")");
    out.warning(why.message());
    out.to_role(RoleKind::shard_writer, event::CoordinatorSuperseded{why});
    if (!world_) refuse(why, out);
  }

  // --- joining ---

  void on(JoiningTrigger trigger) { joining_.on(trigger, counts_); }
  bool sends_joins() const { return joining_.is(JoiningState::joining) || joining_.is(JoiningState::adding); }

  void on_client(TimeNs now, ClientId client, const local::LocalMessage& message, EffectWriter& out) {
    std::visit(
        Overloaded{
            [&](const local::Attach& attach) { on_attach(client, attach, out); },
            [&](const local::LayoutUpdate& layout) { on_layout(now, client, layout, out); },
            // Messages to other roles or to the node itself (actors/client_routes.h).
            [](const OneOf<local::Slab, local::Staged, local::Written, local::NotStaged, local::PlanRequest,
                           local::PlanGathering, local::Latest, local::List, local::Load, local::Placed,
                           local::FilesRead, local::Close, local::Ping, local::Detach, local::StatusRequest,
                           local::JobStatusRequest, local::StagingRequest, local::StagingKept,
                           local::PartStaged, local::SaveReturned> auto&) {},
            // Messages of a node to its clients.
            [](const OneOf<local::Attached, local::Failed, local::RosterUpdate, local::SlabFree,
                           local::Decided, local::Found, local::Loaded, local::LoadDone, local::Refused,
                           local::Pong, local::StatusReport, local::JobStatusReport, local::PlanUpdate,
                           local::FilesToRead, local::StagingGranted, local::GiveBack, local::PartRequest,
                           local::Listing, local::StillWriting> auto&) {}},
        message);
  }

  void on_attach(ClientId client, const local::Attach& attach, EffectWriter& out) {
    clients_[client] = attach.rank;
    ranks_[attach.rank].client = client;
    if (world_size_ == 0) world_size_ = attach.world_size;
    out.to_client(client, local::Attached{config_.generation, config_.pid, config_.timeouts.node_deadline_ms,
                                          config_.grants_staging, config_.counts_returns});
  }

  void on_layout(TimeNs now, ClientId client, const local::LayoutUpdate& report, EffectWriter& out) {
    auto attached = clients_.find(client);
    if (attached == clients_.end()) return;
    const Rank rank = attached->second;
    LocalRank& local = ranks_[rank];
    // The coordinator must learn that the layouts of this rank are those of different saves.
    if (local.layout && local.layout->id() != report.layout->id() && !world_ && !local.is_named) {
      join(now, out);
    }
    local.layout = report.layout;
    received_before_.put(report.layout->id(), report.layout);
    local.options = report.options;
    if (report.options.mode == SaveMode::rank_local) return answer_rank_local(rank, local, out);
    // Ranks in mode collective receive a plan for each save. The node keeps their layouts for LayoutRequest.
    if (report.options.mode == SaveMode::collective) return;
    on(JoiningTrigger::layout_declared);
    if (joining_.is(JoiningState::refused)) {
      out.to_client(client, local::Failed{refused_});
    } else if (world_) {
      answer(rank, local, out);
      name_late_ranks(now, out);
    } else {
      out.set_timer(kJoinTimer,
                    all_local_known() ? now : now + config_.timeouts.join_gather_ms * kMillisecond);
    }
  }

  bool all_local_known() const {
    for (Rank rank : config_.expected_ranks) {
      auto found = ranks_.find(rank);
      if (found == ranks_.end() || !found->second.layout) return false;
    }
    return !config_.expected_ranks.empty();
  }

  void on_client_lost(ClientId client) {
    auto found = clients_.find(client);
    if (found == clients_.end()) return;
    LocalRank& local = ranks_[found->second];
    if (local.client == client) local.client = 0;
    clients_.erase(found);
  }

  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out) {
    std::visit(
        Overloaded{
            [&](const wire::RosterUpdate& roster) { on_roster(now, roster, out); },
            [&](const wire::LayoutRequest& request) { send_layouts(from, request, out); },
            [&](const wire::JoinRejected& rejected) {
              if (!world_) return refuse(Status(Code::refused, rejected.cause), out);
              if (joining_.is(JoiningState::adding)) stop_joining(out);
            },
            [&](const wire::Superseded& superseded) {
              if (superseded.epoch > epoch_) look_up(now, superseded, out);
            },
            // Messages to the other roles.
            [](const OneOf<wire::JoinRanks, wire::Layouts, wire::ShardsWritten, wire::SaveFailed,
                           wire::Pending, wire::Decided, wire::Undecided, wire::LayoutsStaged,
                           wire::AttemptRoster, wire::RanksEnded, wire::LocalPlans, wire::GlobalPlan,
                           wire::PlanGathering, wire::JoinLoad, wire::LoadRoster, wire::ChunkRequest,
                           wire::ChunkData, wire::ChunksUnavailable, wire::ChunksCancelled,
                           wire::ChunksPending, wire::SaveProgress, wire::ManifestsPublished> auto&) {}},
        body);
  }

  void send_layouts(NodeId to, const wire::LayoutRequest& wanted, EffectWriter& out) {
    std::vector<LayoutPtr> layouts;
    for (const LayoutId& id : wanted.ids) {
      if (LayoutPtr layout = find_layout(id)) layouts.push_back(std::move(layout));
    }
    Status refused;
    for (wire::Layouts& part : split_layouts(layouts, config_.message_bytes_max, &refused)) {
      out.send(to, RoleKind::coordinator, std::move(part));
    }
    if (!refused.ok()) refuse(refused, out);
  }

  LayoutPtr find_layout(const LayoutId& id) const {
    for (const auto& [rank, local] : ranks_) {
      if (local.layout && local.layout->id() == id) return local.layout;
    }
    auto before = received_before_.find(id);
    return before == received_before_.end() ? nullptr : before->second;
  }

  void on_roster(TimeNs now, const wire::RosterUpdate& report, EffectWriter& out) {
    if (world_ && world_->roster.id() == report.world->roster.id()) {  // a repetition
      if (!joining_.is(JoiningState::adding)) return;
      base::rare_path<"planner: names its ranks to a later coordinator">();
      stop_joining(out);
      return name_late_ranks(now, out);
    }
    if (report.rule_version != kRuleVersion) {
      refuse(Status(Code::version, "the coordinator plans by rule version " +
                                       std::to_string(report.rule_version) + ", but this node by version " +
                                       std::to_string(kRuleVersion)),
             out);
      return;
    }
    stop_joining(out);
    world_ = report.world;
    options_ = report.options;
    out.to_role(RoleKind::shard_writer, event::WorldKnown{world_, options_, std::nullopt});
    out.to_role(RoleKind::loader, event::WorldKnown{world_, options_, std::nullopt});
    for (const auto& [rank, local] : ranks_) {
      if (local.layout && local.client != 0) answer(rank, local, out);
    }
    name_late_ranks(now, out);
  }

  void stop_joining(EffectWriter& out) {
    on(JoiningTrigger::roster);
    out.cancel_timer(kJoinTimer);
  }

  // After the node before has stopped or was lost, the coordinator waits for each of its ranks by name.
  void name_late_ranks(TimeNs now, EffectWriter& out) {
    if (!joining_.is(JoiningState::known)) return;
    const bool all_named = std::none_of(ranks_.begin(), ranks_.end(), [this](const auto& each) {
      return can_be_named(each.first, each.second) && !each.second.is_named;
    });
    if (all_named) return;
    on(JoiningTrigger::ranks_unnamed);
    backoff_.reset();
    out.set_timer(kJoinTimer, now + config_.timeouts.join_gather_ms * kMillisecond);
  }

  // Precondition: there is a roster. Its other clients have received an error.
  bool can_be_named(Rank rank, const LocalRank& local) const {
    return local.layout && local.client != 0 && local.options == options_ &&
           rank < world_->roster.world_size();
  }

  // A client whose layout is not in the roster gets no answer: it stages all that it holds, and the
  // coordinator makes a roster from that save.
  void answer(Rank rank, const LocalRank& local, EffectWriter& out) {
    if (local.client == 0) return;
    if (rank >= world_->roster.world_size()) {
      out.to_client(local.client,
                    local::Failed{Status(Code::invalid_argument,
                                         "rank " + std::to_string(rank) + " is not in the roster of " +
                                             std::to_string(world_->roster.world_size()) + " ranks")});
    } else if (local.options != options_) {
      out.to_client(local.client,
                    local::Failed{Status(Code::invalid_argument,
                                         "rank " + std::to_string(rank) +
                                             " saves with other options than the rest of the job, " +
                                             plan::options_difference(local.options, options_))});
    } else if (world_->layout_of(rank).id() == local.layout->id()) {
      out.to_client(local.client, local::RosterUpdate{world_, kRuleVersion, options_});
    }
  }

  // Rank-local: the world of a rank follows from its own layout, so the node sends no message.
  void answer_rank_local(Rank rank, const LocalRank& local, EffectWriter& out) {
    auto refused = [&](Code code, const std::string& why) {
      out.to_client(local.client, local::Failed{Status(code, "rank " + std::to_string(rank) + ": " + why)});
    };
    for (const auto& [other, each] : ranks_) {
      if (!each.layout || each.options == local.options) continue;
      return refused(Code::invalid_argument, "saves with other options than rank " + std::to_string(other) +
                                                 ", " +
                                                 plan::options_difference(local.options, each.options));
    }
    if (rank >= world_size_) {
      return refused(Code::invalid_argument, "outside a world of " + std::to_string(world_size_) + " ranks");
    }
    auto world = config_.plans->world_of_one_rank(local.layout, world_size_);
    if (!world.ok()) return refused(world.status().code(), world.status().message());
    out.to_role(RoleKind::shard_writer, event::WorldKnown{*world, local.options, rank});
    out.to_client(local.client, local::RosterUpdate{*world, kRuleVersion, local.options});
  }

  void refuse(Status why, EffectWriter& out) {
    if (joining_.is(JoiningState::refused)) return;
    on(JoiningTrigger::refused);
    refused_ = std::move(why);
    out.cancel_timer(kJoinTimer);
    out.warning("there is no roster: " + refused_.to_string());
    out.to_role(RoleKind::shard_writer, event::PlanningFailed{refused_});
    for (const auto& [client, rank] : clients_) out.to_client(client, local::Failed{refused_});
  }

  void join(TimeNs now, EffectWriter& out) {
    if (!sends_joins()) return;
    wire::JoinRanks body;
    body.host = config_.host;
    body.world_size = world_size_;
    if (joining_.is(JoiningState::adding)) {
      name_attached(body);
      if (body.ranks.empty()) return stop_joining(out);
    } else if (!name_all(body, out)) {
      return;
    }
    backoff_.spread_over(config_.timeouts, world_size_,
                         std::max(config_.expected_ranks.size(), ranks_.size()),
                         config_.timeouts.attempt_deadline_ms * kMillisecond / 2);
    out.send(kCoordinatorNode, RoleKind::coordinator, std::move(body));
    out.set_timer(kJoinTimer, now + backoff_.next());
  }

  void name(Rank rank, LocalRank& local, wire::JoinRanks& body) {
    local.is_named = true;
    body.ranks.push_back({rank, local.layout->id()});
  }

  void name_attached(wire::JoinRanks& body) {
    body.options = options_;
    for (auto& [rank, local] : ranks_) {
      if (can_be_named(rank, local)) name(rank, local, body);
    }
  }

  // False: the ranks contradict each other, and all of them are rejected.
  bool name_all(wire::JoinRanks& body, EffectWriter& out) {
    for (auto& [rank, local] : ranks_) {
      if (!local.layout) continue;
      if (body.ranks.empty()) {
        body.options = local.options;
      } else if (local.options != body.options) {
        refuse(Status(Code::invalid_argument, "rank " + std::to_string(rank) +
                                                  " saves with other options than rank " +
                                                  std::to_string(body.ranks.front().rank) + ", " +
                                                  plan::options_difference(local.options, body.options)),
               out);
        return false;
      }
      name(rank, local, body);
    }
    return true;
  }

  const NodeConfig config_;
  uint32_t world_size_;
  uint32_t epoch_;  // of the coordinator that this node follows
  bool coordinator_lost_ = false;
  bool is_superseded_ = false;  // another job has the root
  PendingOperations operations_;
  TimeNs next_look_ = kFirstLook;  // at the highest epoch, while the coordinator is lost
  bool is_looking_ = false;
  Backoff backoff_;
  base::FlatMap<Rank, LocalRank> ranks_;
  RecentMap<LayoutId, LayoutPtr> received_before_{kMaxLayoutsRemembered};  // saves in flight may have these
  base::FlatMap<ClientId, Rank> clients_;
  JoiningMachine joining_{JoiningState::idle};
  JoiningMachine::Counts counts_;
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  Status refused_;
};

}  // namespace

std::unique_ptr<Role> make_planner(const NodeConfig& config) {
  return std::make_unique<Planner>(config);
}

}  // namespace shoal::actors
