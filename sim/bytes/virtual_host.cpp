#include "sim/bytes/virtual_host.h"

#include <algorithm>
#include <utility>

#include "actors/client_routes.h"
#include "actors/executor/operation_runner.h"
#include "shoal/bytes.h"
#include "sim/reports/event_text.h"

namespace shoal::sim {

// One node and its view of the world. The scheduled actions of a dead node do nothing.
class VirtualHost::Node final : public VirtualWorld {
 public:
  Node(VirtualHost& host, size_t index, bool is_coordinator)
      : coordinates(is_coordinator), host_(host), index_(index) {
    actors::OperationRunner::Surroundings surroundings;
    surroundings.nonce = [&host] { return host.next_nonce(); };
    surroundings.unix_time_ns = [&host] { return host.now(); };
    runner_ =
        std::make_unique<actors::OperationRunner>(*host.storage_, coordinates ? host.catalog_.get() : nullptr,
                                                  slabs, host.root_id_, std::move(surroundings));
  }

  actors::TimeNs now() const override { return host_.now_; }
  void schedule(actors::TimeNs at, std::function<void()> action) override {
    host_.schedule(at, [this, action = std::move(action)] {
      if (!alive) return;
      if (paused) return deferred.push_back(action);
      action();
    });
  }
  void send(actors::NodeId to, const actors::WireMessage& message, actors::SendId id) override {
    host_.send(index_, to, message, id);
  }
  void end_session(actors::NodeId node) override { host_.end_session(index_, node); }
  void send_to(const std::string& address, const actors::WireMessage& message) override {
    host_.send_between(index_, std::stoul(address.substr(4)), message, 0);  // after "node"
  }
  void to_client(actors::ClientId client,
                 const std::shared_ptr<const local::LocalMessage>& message) override {
    auto found = host_.clients_.find(client);
    if (found == host_.clients_.end() || !found->second.connected) return;
    found->second.inbox.push_back(message);
    host_.transcript_.push_back("node" + std::to_string(index_) + " -> rank" +
                                std::to_string(host_.clients_.at(client).rank) + ": " +
                                local_message_name(*message));
  }
  void forget_client(actors::ClientId client) override { slabs.forget(client); }
  Result<actors::OperationResult> run(const actors::Operation& operation) override {
    if (!alive) return Status(Code::unavailable, "this node is dead");
    auto result = std::holds_alternative<actors::operation::ListenToPeers>(operation)
                      ? Result<actors::OperationResult>("node" + std::to_string(index_))
                      : runner_->run(operation);
    if (host_.listener_) host_.listener_(index_, operation);
    return result;
  }
  void redirect(const actors::effect::Redirect& to) override { host_.redirect(index_, to); }
  void retired(const storage::EpochRecord&) override { has_retired = true; }
  void drained(actors::RoleKind role) override {
    if (drains_awaited > 0) --drains_awaited;
    if (role != actors::RoleKind::shard_writer || !coordinates) return;
    schedule(now(), [this] {
      engine->deliver(actors::RoleKind::coordinator, actors::event::Drain{true, host_.has_clients(index_)});
    });
  }

  bool alive = true;
  bool cut_off = false;
  bool paused = false;
  bool takes_nothing = false;
  bool has_retired = false;
  bool draining = false;
  size_t drains_awaited = 0;
  std::vector<std::function<void()>> deferred;  // actions that wait while the node is paused
  size_t coordinator = 0;                       // the coordinator that it follows
  uint32_t epoch = 0;                           // epoch of that coordinator
  actors::NodeId session = 0;                   // session id at the coordinator; 0: not connected
  const bool coordinates;
  MemorySlabs slabs;
  std::unique_ptr<NodeEngine> engine;  // null during construction

 private:
  VirtualHost& host_;
  const size_t index_;
  std::unique_ptr<actors::OperationRunner> runner_;
};

VirtualHost::VirtualHost(VirtualDelays delays, NodeEngineFactory engines)
    : delays_(delays), engines_(std::move(engines)) {
  open_storage();
}

void VirtualHost::open_storage() {
  catalog_ = storage::make_memory_catalog();
  auto storage = storage::LocalStorage::open(file_system_, "/root", next_nonce());
  SHOAL_CHECK(storage.ok());
  storage_ = std::move(*storage);
  auto root_id = storage::open_root(*storage_, true, next_nonce());
  SHOAL_CHECK(root_id.ok());
  root_id_ = *root_id;
}

VirtualHost::~VirtualHost() = default;

Nonce VirtualHost::next_nonce() {
  Nonce nonce;
  store_le64(nonce.bytes.data(), ++nonces_);
  return nonce;
}

size_t VirtualHost::add_node(const actors::NodeConfig& config, bool coordinates) {
  const size_t index = nodes_.size();
  nodes_.push_back(std::make_unique<Node>(*this, index, coordinates));
  Node& node = *nodes_.back();

  actors::NodeConfig known = config;
  if (known.job_id.empty()) known.job_id = "job-" + std::to_string(config.generation);
  if (coordinates) {
    auto last = storage::highest_epoch(*storage_);
    SHOAL_CHECK(last.ok());
    known.epoch = *last ? (*last)->epoch + 1 : 1;
    const storage::EpochRecord record{known.epoch, "node" + std::to_string(index), known.job_id,
                                      next_nonce()};
    auto claimed = storage::claim_epoch(*storage_, record);
    SHOAL_CHECK(claimed.ok() && *claimed);
    coordinator_node_ = index;
  } else {
    known.epoch = nodes_[coordinator_node_]->epoch;
    node.session = ++last_session_;
  }
  node.coordinator = coordinator_node_;
  node.epoch = known.epoch;

  std::vector<std::unique_ptr<actors::Role>> roles;
  roles.push_back(actors::make_planner(known));
  roles.push_back(actors::make_shard_writer(known));
  roles.push_back(actors::make_loader(known));
  if (coordinates) roles.push_back(actors::make_coordinator(known));
  node.engine = engines_(node, std::move(roles), delays_, coordinates);
  return index;
}

actors::ClientId VirtualHost::attach(size_t node, Rank rank, uint32_t world_size) {
  const actors::ClientId client = ++last_client_;
  clients_[client].node = node;
  clients_[client].rank = rank;
  local::Attach attach;
  attach.rank = rank;
  attach.world_size = world_size;
  from_client(client, attach);
  return client;
}

MutableByteView VirtualHost::add_slab(actors::ClientId client, uint32_t slab_id, uint64_t bytes) {
  MutableByteView memory = nodes_[clients_.at(client).node]->slabs.add(client, slab_id, bytes);
  from_client(client, local::Slab{slab_id, bytes});
  return memory;
}

void VirtualHost::from_client(actors::ClientId client, local::LocalMessage message) {
  const Client& sender = clients_.at(client);
  transcript_.push_back("rank" + std::to_string(sender.rank) + " -> node" + std::to_string(sender.node) +
                        ": " + local_message_name(message));
  deliver_local(
      clients_.at(client).node,
      actors::event::FromClient{client, std::make_shared<const local::LocalMessage>(std::move(message))});
}

void VirtualHost::lose_client(actors::ClientId client) {
  Client& lost = clients_.at(client);
  lost.connected = false;
  deliver_local(lost.node, actors::event::ClientLost{client});
}

void VirtualHost::deliver_local(size_t index, actors::Event event) {
  Node& node = *nodes_[index];
  node.schedule(now_ + delays_.local_ns, [&node, event = std::move(event)] {
    const auto* from_client = std::get_if<actors::event::FromClient>(&event);
    for (actors::RoleKind role :
         {actors::RoleKind::planner, actors::RoleKind::shard_writer, actors::RoleKind::loader}) {
      if (from_client == nullptr || actors::hears(role, *from_client->message))
        node.engine->deliver(role, event);
    }
  });
}

std::vector<std::shared_ptr<const local::LocalMessage>> VirtualHost::take(actors::ClientId client) {
  return std::exchange(clients_.at(client).inbox, {});
}

void VirtualHost::kill_node(size_t node) {
  nodes_[node]->alive = false;
  schedule(now_ + kSilenceNs, [this] { check_links(); });
  std::erase_if(untaken_, [&](const Untaken& each) {
    if (each.to == node) on_left(each.from, each.message, each.id, kSilenceNs);
    return each.to == node;
  });
}
void VirtualHost::crash(const MemoryFileSystem::Unsynced& unsynced) {
  for (auto& node : nodes_) node->alive = false;
  file_system_.crash(unsynced);
  lost_storages_.push_back(std::move(storage_));
  lost_catalogs_.push_back(std::move(catalog_));
  open_storage();
}
void VirtualHost::cut(size_t node, bool cut_off) {
  nodes_[node]->cut_off = cut_off;
  schedule(now_ + kSilenceNs, [this] { check_links(); });
}

void VirtualHost::pause(size_t index, bool paused) {
  Node& node = *nodes_[index];
  node.paused = paused;
  if (paused) {
    schedule(now_ + kSilenceNs, [this] { check_links(); });
  } else {
    for (auto& action : std::exchange(node.deferred, {})) node.schedule(now_, std::move(action));
  }
}

bool VirtualHost::alive(size_t node) const {
  return nodes_[node]->alive;
}
bool VirtualHost::retired(size_t node) const {
  return nodes_[node]->has_retired;
}

bool VirtualHost::reachable(size_t one, size_t other) const {
  auto answers = [](const Node& node) { return node.alive && !node.cut_off && !node.paused; };
  return answers(*nodes_[one]) && answers(*nodes_[other]);
}

void VirtualHost::check_links() {
  for (size_t index = 0; index < nodes_.size(); ++index) {
    const Node& node = *nodes_[index];
    if (node.session != 0 && !reachable(index, node.coordinator)) lose_coordinator(index);
  }
}

// Both sides are notified, each when it can be.
void VirtualHost::lose_coordinator(size_t index) {
  Node& node = *nodes_[index];
  Node& coordinator = *nodes_[node.coordinator];
  const Status why(Code::unavailable, "the peer sends nothing");
  const actors::event::PeerLost peer{std::exchange(node.session, 0), why};
  coordinator.schedule(
      now_, [&coordinator, peer] { coordinator.engine->deliver(actors::RoleKind::coordinator, peer); });
  deliver_local(index, actors::event::PeerLost{actors::kCoordinatorNode, why});
}

void VirtualHost::connect(size_t index) {
  if (!reachable(index, nodes_[index]->coordinator)) return;
  nodes_[index]->session = ++last_session_;
  deliver_local(index, actors::event::PeerUp{actors::kCoordinatorNode});
}

void VirtualHost::redirect(size_t index, const actors::effect::Redirect& to) {
  Node& node = *nodes_[index];
  if (to.epoch < node.epoch) return;
  const size_t coordinator = std::stoul(to.address.substr(4));  // after "node"
  node.epoch = to.epoch;
  if (coordinator == index) return;
  if (coordinator == node.coordinator && node.session != 0) {
    return deliver_local(index, actors::event::PeerUp{actors::kCoordinatorNode});
  }
  if (node.session != 0) {
    Node& left = *nodes_[node.coordinator];
    const actors::event::PeerLost peer{std::exchange(node.session, 0), Status(Code::unavailable, "left")};
    left.schedule(now_ + delays_.network_ns,
                  [&left, peer] { left.engine->deliver(actors::RoleKind::coordinator, peer); });
  }
  node.coordinator = coordinator;
  node.schedule(now_ + delays_.network_ns, [this, index] { connect(index); });
}

void VirtualHost::drain(size_t index) {
  Node& node = *nodes_[index];
  node.draining = true;
  node.drains_awaited = node.coordinates ? 2 : 1;
  node.schedule(now_, [this, index, &node] {
    if (node.coordinates)
      node.engine->deliver(actors::RoleKind::coordinator, actors::event::Stopping{has_clients(index)});
    node.engine->deliver(actors::RoleKind::shard_writer, actors::event::Drain{});
  });
}

void VirtualHost::end_trainer(size_t index, Rank rank, const std::string& how) {
  Node& node = *nodes_[index];
  node.schedule(now_ + delays_.local_ns, [&node, rank, how] {
    node.engine->deliver(actors::RoleKind::shard_writer, actors::event::TrainerEnded{rank, how});
  });
}

bool VirtualHost::has_clients(size_t node) const {
  return std::any_of(clients_.begin(), clients_.end(),
                     [&](const auto& each) { return each.second.node == node && each.second.connected; });
}

bool VirtualHost::drained(size_t node) const {
  return nodes_[node]->draining && nodes_[node]->drains_awaited == 0;
}

void VirtualHost::schedule(actors::TimeNs at, std::function<void()> action) {
  heap_.push({std::max(at, now_), sequence_++, std::move(action)});
}

void VirtualHost::run_for(actors::TimeNs duration) {
  const actors::TimeNs until = now_ + duration;
  while (!heap_.empty() && heap_.top().at <= until) step();
  now_ = until;
}

void VirtualHost::run_until_quiet(actors::TimeNs patience) {
  while (!heap_.empty() && heap_.top().at <= now_ + patience) step();
}

void VirtualHost::step() {
  Occurrence next = heap_.top();
  heap_.pop();
  now_ = next.at;
  next.action();
}

void VirtualHost::send(size_t from, actors::NodeId to_node, const actors::WireMessage& message,
                       actors::SendId id) {
  const Node& sender = *nodes_[from];
  size_t to = from;
  actors::NodeId sender_id = actors::kThisNode;
  bool connected = true;
  if (to_node == actors::kCoordinatorNode) {
    to = sender.coordinator;
    sender_id = sender.session;
    connected = sender.session != 0;
  } else if (to_node >= actors::kFirstSharer) {
    return send_between(from, to_node - actors::kFirstSharer, message, id);
  } else if (to_node != actors::kThisNode) {
    sender_id = actors::kCoordinatorNode;
    for (to = 0; to < nodes_.size() && nodes_[to]->session != to_node;) ++to;
    if (to == nodes_.size() || nodes_[to]->coordinator != from) return;  // it is no longer connected
  }
  Node& receiver = *nodes_[to];
  if (to == from) {
    receiver.schedule(now_ + delays_.local_ns, [&receiver, message] {
      receiver.engine->deliver(message.to, actors::event::Received{actors::kThisNode, message});
    });
    return;
  }
  pass_on(from, to, sender_id, message, connected);
}

// Messages between nodes of a shared load, which need no session with a coordinator. A message is lost only
// if one of the two nodes is cut off or dead.
void VirtualHost::send_between(size_t from, size_t to, const actors::WireMessage& message,
                               actors::SendId id) {
  if (id != 0 && nodes_[to]->takes_nothing) return untaken_.push_back({from, to, message, id});
  pass_on(from, to, actors::kFirstSharer + from, message, true);
  on_left(from, message, id, reachable(from, to) ? delays_.network_ns : kSilenceNs);
}

void VirtualHost::on_left(size_t from, const actors::WireMessage& message, actors::SendId id,
                          actors::TimeNs after) {
  if (id == 0) return;
  Node& sender = *nodes_[from];
  sender.schedule(now_ + after, [&sender, role = message.from, id] {
    sender.engine->deliver(role, actors::event::SendDone{id});
  });
}

void VirtualHost::set_takes_no_bulk(size_t node, bool takes_nothing) {
  nodes_[node]->takes_nothing = takes_nothing;
  if (takes_nothing) return;
  std::vector<Untaken> left;
  for (Untaken& each : std::exchange(untaken_, {})) {
    if (each.to == node) {
      send_between(each.from, each.to, each.message, each.id);
    } else {
      left.push_back(std::move(each));
    }
  }
  untaken_ = std::move(left);
}

void VirtualHost::end_session(size_t from, actors::NodeId to) {
  std::erase_if(untaken_, [&](const Untaken& each) {
    const bool ends = each.from == from && actors::kFirstSharer + each.to == to;
    if (ends) on_left(from, each.message, each.id, delays_.local_ns);
    return ends;
  });
}

uint64_t VirtualHost::untaken_bytes(size_t node) const {
  std::map<const actors::Chunk*, uint64_t> bytes;  // a chunk for several receivers counts once
  for (const Untaken& each : untaken_) {
    const auto* chunk = std::get_if<actors::wire::ChunkData>(each.message.body.get());
    if (each.from == node && chunk != nullptr) bytes[chunk->chunk.get()] = chunk->chunk->size;
  }
  uint64_t sum = 0;
  for (const auto& [chunk, size] : bytes) sum += size;
  return sum;
}

void VirtualHost::pass_on(size_t from, size_t to, actors::NodeId sender_id,
                          const actors::WireMessage& received, bool connected) {
  actors::WireMessage message = received;
  if (corruption_) corruption_(from, message);
  const Node& sender = *nodes_[from];
  Node& receiver = *nodes_[to];
  transcript_.push_back("node" + std::to_string(from) + "." + std::string(actors::role_name(message.from)) +
                        " -> node" + std::to_string(to) + "." + std::string(actors::role_name(message.to)) +
                        ": " + actors::describe(*message.body));
  // Encodes and decodes the message, so that the receiver gets what it would get over a network.
  const Bytes encoded = actors::encode_wire(message);
  ++wire_messages_;
  wire_bytes_ += encoded.size();
  if (!connected || sender.cut_off || receiver.cut_off) return;
  auto decoded = actors::decode_wire(encoded);
  SHOAL_CHECK(decoded.ok());
  receiver.schedule(now_ + delays_.network_ns, [&receiver, sender_id, arrived = std::move(*decoded)] {
    receiver.engine->deliver(arrived.to, actors::event::Received{sender_id, arrived});
  });
}

}  // namespace shoal::sim
