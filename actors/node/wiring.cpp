#include "actors/node/wiring.h"

#include <fmt/format.h>

#include <utility>

#include "actors/client_routes.h"
#include "actors/executor/operation_runner.h"
#include "actors/operation_traits.h"
#include "base/clock.h"

namespace shoal::actors {

namespace {

constexpr int kRoomTickMs = 100;

}  // namespace

NodeWiring::NodeWiring(OperationRunner& runner, PeerLinks& links, SlabTable& slabs, NodeLog& log,
                       Activity& activity, const NodeReport& report,
                       std::function<void(std::string_view operation, bool is_done)> around_operation)
    : runner_(runner),
      links_(links),
      slabs_(slabs),
      log_(log),
      activity_(activity),
      report_(report),
      around_operation_(std::move(around_operation)) {}

void NodeWiring::connect(CafHost& host, LocalServer& server) {
  host_ = &host;
  server_ = &server;
}

void NodeWiring::check_joins(CheckJoin check) {
  check_join_ = std::move(check);
}

void NodeWiring::share(SharingLinks& links) {
  sharing_ = &links;
}

void NodeWiring::stage_by(StagingMemory& memory, StagedParts& parts) {
  staging_ = &memory;
  parts_ = &parts;
}

void NodeWiring::watch(FirstSaveWatch& first_save) {
  first_save_ = &first_save;
}

void NodeWiring::watch(JobWatch& job) {
  job_ = &job;
}

void NodeWiring::warn(const std::string& line) {
  activity_.warned(now(), line);
  log_.warning(line);
}

void NodeWiring::keep(std::unique_ptr<ProtocolLog> log) {
  protocol_ = std::move(log);
}

bool NodeWiring::wait_drained(RoleKind role, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return drained_.count(role) > 0; });
}

void NodeWiring::refuse_clients() {
  refuses_clients_ = true;
}

void NodeWiring::add_stats(NodeStats* stats) const {
  stats->saves_committed = committed_.load();
  stats->saves_aborted = aborted_.load();
}

TimeNs NodeWiring::now() {
  return base::steady_now_ns();
}

void NodeWiring::send(NodeId to, const WireMessage& message, SendId id) {
  if (protocol_) protocol_->sent(now(), to, message);
  if (to < kFirstSharer) return links_.send(to, message);
  if (sharing_ != nullptr) sharing_->send(to, message, id);
}

void NodeWiring::send_to(const std::string& address, const WireMessage& message) {
  if (protocol_) protocol_->sent_to(now(), address, message);
  if (sharing_ != nullptr) sharing_->send_to(address, message);
}

void NodeWiring::to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) {
  activity_.to_client(now(), client, *message);
  if (staging_ != nullptr) staging_->to_client(now(), client, *message);
  if (first_save_ != nullptr) first_save_->to_client(client, *message);
  if (LocalServer* server = server_.load()) server->send(client, message);
}

void NodeWiring::forget_client(ClientId client) {
  slabs_.forget(client);
  if (staging_ != nullptr) staging_->forget_client(client);
}

Result<OperationResult> NodeWiring::run(const Operation& operation) {
  activity_.operation_began(now(), operation);
  if (around_operation_) around_operation_(traits_of(operation).name, false);
  auto result = carry_out(operation);
  if (around_operation_) around_operation_(traits_of(operation).name, true);
  activity_.operation_ended(now(), operation, result);
  const auto* record = std::get_if<operation::RecordDecision>(&operation);
  if (record != nullptr && result.ok()) ++(record->decision->committed() ? committed_ : aborted_);
  return result;
}

Result<OperationResult> NodeWiring::carry_out(const Operation& operation) {
  if (!std::holds_alternative<operation::ListenToPeers>(operation) || sharing_ == nullptr) {
    return runner_.run(operation);
  }
  SHOAL_ASSIGN_OR_RETURN(std::string address, sharing_->listen());
  return OperationResult(std::move(address));
}

void NodeWiring::redirect(const effect::Redirect& to) {
  links_.redirect(to.epoch, to.address);
}

void NodeWiring::end_session(NodeId node, const Status& why) {
  if (sharing_ != nullptr) sharing_->end_session(node, why);
}

void NodeWiring::on_left(SendId id) {
  host_.load()->post(RoleKind::loader, event::SendDone{id});
}

void NodeWiring::retired(const storage::EpochRecord& by) {
  if (job_ != nullptr) job_->retired();
  std::lock_guard lock(mutex_);
  superseded_by_ = by;
}

std::optional<storage::EpochRecord> NodeWiring::superseded_by() const {
  std::lock_guard lock(mutex_);
  return superseded_by_;
}

void NodeWiring::drained(RoleKind role) {
  {
    std::lock_guard lock(mutex_);
    drained_.insert(role);
  }
  changed_.notify_all();
}

void NodeWiring::log(RoleKind role, const effect::Log& log) {
  std::string line = fmt::format("{}: {}", role_name(role), log.line);
  if (log.level == effect::Log::Level::info) return log_.info(line);
  warn(line);
}

void NodeWiring::post_from_client(RoleKind role, ClientId client,
                                  const std::shared_ptr<const local::LocalMessage>& message) {
  CafHost& host = *host_.load();
  while (!refuses_clients_.load() && !host.wait_for_room(role, kRoomTickMs)) {
  }
  host.post(role, event::FromClient{client, message});
}

void NodeWiring::from_client(ClientId client, std::shared_ptr<const local::LocalMessage> message) {
  activity_.from_client(now(), client, *message);
  if (const auto* kept = std::get_if<local::StagingKept>(message.get())) {
    slabs_.keep_only(client, kept->slabs, kept->slab_ids);
  }
  if (std::get_if<local::Attach>(message.get()) && parts_ != nullptr) parts_->client_attached(client);
  if (const auto* part = std::get_if<local::PartStaged>(message.get());
      part != nullptr && parts_ != nullptr) {
    parts_->answered(client, *part);
  }
  if (staging_ != nullptr) staging_->from_client(now(), client, *message);
  if (first_save_ != nullptr) first_save_->from_client(client, *message);
  for (RoleKind role : {RoleKind::planner, RoleKind::shard_writer, RoleKind::loader}) {
    if (hears(role, *message)) post_from_client(role, client, message);
  }
}

std::shared_ptr<const local::NodeStatus> NodeWiring::status() {
  return std::make_shared<const local::NodeStatus>(report_.status());
}

std::shared_ptr<const local::JobStatus> NodeWiring::job_status() {
  return std::make_shared<const local::JobStatus>(
      job_->ask(std::chrono::milliseconds(local::kJobStatusPatienceMs)));
}

void NodeWiring::client_lost(ClientId client, bool process_lives) {
  activity_.client_lost(client);
  if (parts_ != nullptr) parts_->client_lost(client);
  if (staging_ != nullptr) staging_->client_lost(now(), client);
  if (first_save_ != nullptr) first_save_->client_lost(client);
  for (RoleKind role : {RoleKind::planner, RoleKind::shard_writer, RoleKind::loader}) {
    host_.load()->post(role, event::ClientLost{client, process_lives});
  }
}

bool NodeWiring::received(NodeId from, WireMessage message, size_t encoded_bytes) {
  activity_.from_peer(now(), *message.body);
  if (protocol_) protocol_->received(now(), from, message);
  auto check = [this](const auto* join) {
    if (join == nullptr || !check_join_) return;
    Status fits = check_join_(join->host, static_cast<uint32_t>(join->ranks.size()), join->world_size);
    if (!fits.ok()) host_.load()->post(RoleKind::coordinator, event::PlanningFailed{fits});
  };
  check(std::get_if<wire::JoinRanks>(message.body.get()));
  check(std::get_if<wire::LocalPlans>(message.body.get()));
  return host_.load()->post_received(from, std::move(message), encoded_bytes);
}

void NodeWiring::peer_up(NodeId node, const transport::Identity& identity) {
  if (protocol_) protocol_->peer_up(now(), node, identity.name);
  {
    std::lock_guard lock(mutex_);
    peer_names_[node] = identity.name;
  }
  if (job_ != nullptr) job_->peer_up(node, identity);
  log_.info(fmt::format("{} {} is up", node == kCoordinatorNode ? "coordinator" : "node", identity.name));
  if (node == kCoordinatorNode) host_.load()->post_all(event::PeerUp{node});
}

void NodeWiring::peer_lost(NodeId node, const Status& why) {
  std::string name;
  {
    std::lock_guard lock(mutex_);
    if (auto known = peer_names_.extract(node)) name = " " + known.mapped();
  }
  std::string line =
      fmt::format("{}{} lost: {}", node == kCoordinatorNode ? "coordinator" : "node", name, why.to_string());
  if (why.message().ends_with(kCoordinatorNotReady)) {  // usual while a job starts
    log_.info(line);
  } else {
    warn(line);
  }
  if (job_ != nullptr) job_->peer_lost(node);
  if (protocol_) protocol_->peer_lost(now(), node, why);
  host_.load()->post_all(event::PeerLost{node, why});
}

void NodeWiring::peer_refused(const std::string& address, const Status& why) {
  if (auto line = rejections_.line(now(), address, why)) log_.warning(*line);
}

}  // namespace shoal::actors
