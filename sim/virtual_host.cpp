#include "sim/virtual_host.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace shoal {

// One node and its view of the world. What a dead one had scheduled does nothing.
class VirtualHost::Node final : public VirtualWorld {
 public:
  Node(VirtualHost& host, size_t index, bool is_coordinator)
      : coordinates(is_coordinator), host_(host), index_(index) {
    OperationRunner::Surroundings surroundings;
    surroundings.nonce = [&host] { return host.next_nonce(); };
    surroundings.unix_time_ns = [&host] { return host.now(); };
    runner_ = std::make_unique<OperationRunner>(*host.storage_, coordinates ? host.catalog_.get() : nullptr,
                                                slabs, host.root_id_, std::move(surroundings));
  }

  TimeNs now() const override { return host_.now_; }
  void schedule(TimeNs at, std::function<void()> action) override {
    host_.schedule(at, [this, action = std::move(action)] {
      if (alive) action();
    });
  }
  void send(NodeId to, const WireMessage& message) override { host_.send(index_, to, message); }
  void to_client(ClientId client, const std::shared_ptr<const LocalMessage>& message) override {
    auto found = host_.clients_.find(client);
    if (found == host_.clients_.end() || !found->second.connected) return;
    found->second.inbox.push_back(message);
    host_.transcript_.push_back("node" + std::to_string(index_) + " -> rank" +
                                std::to_string(found->second.rank) + ": local " +
                                std::to_string(message->index()));
  }
  void forget_client(ClientId client) override { slabs.forget(client); }
  Result<OperationResult> run(const Operation& operation) override { return runner_->run(operation); }
  void drained(RoleKind) override {
    if (drains_awaited > 0) --drains_awaited;
  }

  bool alive = true;
  bool cut_off = false;
  bool draining = false;
  size_t drains_awaited = 0;
  const bool coordinates;
  MemorySlabs slabs;
  std::unique_ptr<NodeEngine> engine;  // null while it is being made

 private:
  VirtualHost& host_;
  const size_t index_;
  std::unique_ptr<OperationRunner> runner_;
};

VirtualHost::VirtualHost(VirtualDelays delays, NodeEngineFactory engines)
    : delays_(delays), engines_(std::move(engines)), catalog_(make_memory_catalog()) {
  auto storage = LocalStorage::open(file_system_, "/root", next_nonce());
  SHOAL_CHECK(storage.ok());
  storage_ = std::move(*storage);
  auto root_id = open_root(*storage_, true, next_nonce());
  SHOAL_CHECK(root_id.ok());
  root_id_ = *root_id;
}

VirtualHost::~VirtualHost() = default;

Nonce VirtualHost::next_nonce() {
  Nonce nonce;
  store_le64(nonce.bytes.data(), ++nonces_);
  return nonce;
}

size_t VirtualHost::add_node(const NodeFacts& facts, bool coordinates) {
  const size_t index = nodes_.size();
  nodes_.push_back(std::make_unique<Node>(*this, index, coordinates));
  Node& node = *nodes_.back();

  std::vector<std::unique_ptr<Role>> roles;
  roles.push_back(make_planner(facts));
  roles.push_back(make_shard_writer(facts));
  roles.push_back(make_loader(facts));
  if (coordinates) {
    roles.push_back(make_coordinator(facts));
    coordinator_node_ = index;
  }
  node.engine = engines_(node, std::move(roles), delays_, coordinates);
  return index;
}

ClientId VirtualHost::attach(size_t node, Rank rank, uint32_t world_size) {
  const ClientId client = ++last_client_;
  clients_[client].node = node;
  clients_[client].rank = rank;
  local::Attach attach;
  attach.rank = rank;
  attach.world_size = world_size;
  from_client(client, attach);
  return client;
}

MutableByteView VirtualHost::add_slab(ClientId client, uint32_t slab_id, uint64_t bytes) {
  MutableByteView memory = nodes_[clients_.at(client).node]->slabs.add(client, slab_id, bytes);
  from_client(client, local::Slab{slab_id, bytes});
  return memory;
}

void VirtualHost::from_client(ClientId client, LocalMessage message) {
  deliver_local(clients_.at(client).node,
                event::FromClient{client, std::make_shared<const LocalMessage>(std::move(message))});
}

void VirtualHost::lose_client(ClientId client) {
  Client& lost = clients_.at(client);
  lost.connected = false;
  deliver_local(lost.node, event::ClientLost{client});
}

void VirtualHost::deliver_local(size_t index, Event event) {
  Node& node = *nodes_[index];
  node.schedule(now_ + delays_.local_ns, [&node, event = std::move(event)] {
    for (RoleKind role : {RoleKind::planner, RoleKind::shard_writer, RoleKind::loader}) {
      node.engine->deliver(role, event);
    }
  });
}

std::vector<std::shared_ptr<const LocalMessage>> VirtualHost::take(ClientId client) {
  return std::exchange(clients_.at(client).inbox, {});
}

void VirtualHost::kill_node(size_t node) {
  nodes_[node]->alive = false;
}
void VirtualHost::cut(size_t node, bool cut_off) {
  nodes_[node]->cut_off = cut_off;
}

void VirtualHost::drain(size_t index) {
  Node& node = *nodes_[index];
  node.draining = true;
  node.drains_awaited = node.coordinates ? 2 : 1;
  node.schedule(now_, [&node] {
    node.engine->deliver(RoleKind::shard_writer, event::Drain{});
    if (node.coordinates) node.engine->deliver(RoleKind::coordinator, event::Drain{});
  });
}

bool VirtualHost::drained(size_t node) const {
  return nodes_[node]->draining && nodes_[node]->drains_awaited == 0;
}

void VirtualHost::schedule(TimeNs at, std::function<void()> action) {
  heap_.push({std::max(at, now_), sequence_++, std::move(action)});
}

void VirtualHost::run_for(TimeNs duration) {
  const TimeNs until = now_ + duration;
  while (!heap_.empty() && heap_.top().at <= until) step();
  now_ = until;
}

void VirtualHost::run_until_quiet(TimeNs patience) {
  while (!heap_.empty() && heap_.top().at <= now_ + patience) step();
}

void VirtualHost::step() {
  Occurrence next = heap_.top();
  heap_.pop();
  now_ = next.at;
  next.action();
}

void VirtualHost::send(size_t from, NodeId to_node, const WireMessage& message) {
  const size_t to = to_node == kThisNode          ? from
                    : to_node == kCoordinatorNode ? coordinator_node_
                                                  : static_cast<size_t>(to_node - kFirstPeerNode);
  SHOAL_CHECK(to < nodes_.size());
  Node& receiver = *nodes_[to];
  if (to == from) {
    receiver.schedule(now_ + delays_.local_ns, [&receiver, message] {
      receiver.engine->deliver(message.to, event::Received{kThisNode, message});
    });
    return;
  }
  transcript_.push_back("node" + std::to_string(from) + "." + std::string(role_name(message.from)) +
                        " -> node" + std::to_string(to) + "." + std::string(role_name(message.to)) + ": " +
                        describe(*message.body));
  // Through the wire's encoding, so that what arrives is what would arrive.
  const Bytes encoded = encode_wire(message);
  ++wire_messages_;
  wire_bytes_ += encoded.size();
  if (nodes_[from]->cut_off || receiver.cut_off) return;
  auto decoded = decode_wire(encoded);
  SHOAL_CHECK(decoded.ok());
  const NodeId sender = from == coordinator_node_ ? kCoordinatorNode : kFirstPeerNode + from;
  receiver.schedule(now_ + delays_.network_ns, [&receiver, sender, arrived = std::move(*decoded)] {
    receiver.engine->deliver(arrived.to, event::Received{sender, arrived});
  });
}

}  // namespace shoal
