// VirtualCluster: the production roles of many nodes on virtual time, where everything costs: messages pass
// through interfaces (sim/models/network_model.h), events through each node's processor
// (sim/models/cpu_model.h), operations through the storage (sim/models/storage_model.h). What a shard holds
// is counted, not kept (sim/cluster/counted_root.h). The sibling of VirtualHost, which keeps every byte and
// can fail, and where nothing costs.
//
// Node 0 coordinates. One thread; equal calls give equal events, and so equal hashes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sim/basics/pool.h"
#include "sim/cluster/counted_root.h"
#include "sim/cluster/shared_plans.h"
#include "sim/cluster/stored_payload.h"
#include "sim/failures/hazards.h"
#include "sim/models/core_pool.h"
#include "sim/models/cpu_model.h"
#include "sim/models/item_model.h"
#include "sim/models/network_model.h"
#include "sim/models/relay_model.h"
#include "sim/reports/hub_series.h"

namespace shoal::sim {

inline constexpr uint32_t kSimulatedGeneration = 1;

// A simulated trainer's connection.
inline Rank rank_of(actors::ClientId client) {
  return static_cast<Rank>(client - 1);
}
inline actors::ClientId client_of(Rank rank) {
  return actors::ClientId{rank} + 1;
}

struct HubCounts {  // of the coordinator's node
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t longest_queue = 0;  // of events that waited for its processor
  actors::TimeNs busy_ns = 0;  // its processor
};

class VirtualCluster {
 public:
  using ToClient = std::function<void(actors::ClientId, const local::LocalMessage&)>;

  // Hears of each message between two nodes as it is sent.
  using MessageListener =
      std::function<void(size_t from, size_t to, const actors::WireMessage&, uint64_t bytes)>;
  void on_message(MessageListener listener) { listener_ = std::move(listener); }
  // Hears of each event before a role is given it.
  using EventListener = std::function<void(size_t node, actors::RoleKind role, const actors::Event&)>;
  void on_event(EventListener listener) { event_listener_ = std::move(listener); }

  // Hears of each operation that a node asks of the root, before it begins.
  using OperationListener = std::function<void(size_t node, const actors::Operation&)>;
  void on_operation(OperationListener listener) { operation_listener_ = std::move(listener); }

  // ranks_of_node[n]: those that node n expects. max_direct_nodes: beyond them nodes go by way of relays.
  VirtualCluster(EventHeap& events, const Profile& profile, uint64_t seed, SaveMode mode,
                 const std::vector<std::vector<Rank>>& ranks_of_node, uint32_t world_size,
                 uint32_t max_direct_nodes = actors::kDefaultDirectNodes, uint32_t generation = 1);
  ~VirtualCluster();

  // What is counted is stored in `payload` besides, which outlives this, and each rank plans for itself.
  // Before start.
  void keep_bytes(StoredPayload* payload);
  // Every role hears of Started. `to_client` hears what nodes say to clients, when it has arrived.
  // `state_of`: of whoever hears what is said to a client, where its state lies; fetched shortly before.
  void start(ToClient to_client, std::function<const void*(actors::ClientId)> state_of = nullptr);
  // `takes`: of the trainer's processor, before it is sent.
  void from_client(size_t node, actors::ClientId client, local::LocalMessage message,
                   actors::TimeNs takes = 0);
  // The trainer of a rank connects to this node and attaches.
  void attach(size_t node, Rank rank);
  actors::PlanSource& plans() { return *plans_; }
  CorePool& cores() { return cores_; }
  CountedRoot& counted_root() { return root_; }

  // --- what goes wrong (sim/cluster/cluster_life.cpp) ---
  // The host's power fails. Whoever had a session with its node hears of it kSilenceNs later.
  void kill(size_t node);
  // The node's process ends: its peers hear of it as soon as the network tells them.
  void crash(size_t node);
  // The node's process is told to stop, while trainers of its host live or after they have ended. It drains,
  // at most for node_deadline_ms, and ends as by crash(); `has_ended` runs then.
  void stop(size_t node, bool trainers_live, std::function<void()> has_ended);
  // Another process takes the node's place, with roles that know nothing; one that lives is ended first. It
  // coordinates where told to, and where the root's highest epoch is this node's: then it claims the next
  // one. Else it serves as soon as the coordinator of the highest epoch can be reached. `is_up` runs then.
  void start_again(size_t node, bool coordinates, std::function<void()> is_up);
  // Its process takes nothing in for so long. From kSilenceNs on its peers take it for dead.
  void stall(size_t node, actors::TimeNs duration);
  void begin_hazard(const Fault& fault);                             // of a link or a disk
  void lose_client(size_t node, actors::ClientId client);            // its connection ends
  void end_trainer(size_t node, Rank rank, const std::string& how);  // as its launcher says it
  // Who has, or had, that session with a coordinator. Precondition: there was one.
  size_t node_of(actors::NodeId session) const { return session_owners_[session - actors::kFirstPeerNode]; }
  size_t coordinator_of(size_t node) const { return nodes_[node].coordinator; }  // whom it follows
  actors::RoleTimes times() const;
  const RootView& root() const { return root_; }
  size_t nodes() const { return nodes_.size(); }
  bool alive(size_t node) const { return nodes_[node].alive; }
  size_t coordinator() const { return coordinator_; }  // the node of the highest epoch
  void set_items(const std::vector<uint32_t>& of_rank) {
    cpu_.set_items(of_rank);
    items_.set_items(of_rank);
  }

  // For as long as the job lasts, in thousandths of what another node takes.
  void slow_down(size_t node, uint32_t network_permille, uint32_t storage_permille) {
    network_.slow_down(node, network_permille);
    storage_.slow_down(node, storage_permille);
  }
  size_t relays() const { return relays_.relays(); }
  const HubCounts& hub() const { return hub_; }
  uint64_t hub_queue() const { return nodes_[coordinator_].inputs.size(); }  // now
  HubState hub_state() const;  // now; takes a time in the number of nodes where sessions have come or gone
  void forget_longest_queue() { hub_.longest_queue = 0; }
  const StorageCounts& storage() const { return storage_.counts(); }
  uint64_t record_bytes() const { return root_.record_bytes(); }
  uint64_t shared_bytes() const { return shared_bytes_; }  // that nodes sent each other to load together
  // Of every event that a role was given: when, where, what.
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t events() const { return delivered_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // A process of a node: what was scheduled for an earlier one comes to nothing.
  using Life = uint64_t;
  struct Input {
    std::optional<actors::RoleKind> role;  // none: planner, shard writer and loader, who hear it
    actors::Event event;
    uint64_t wire_bytes = 0;
    Input* next = nullptr;  // in its line
  };
  struct Running {  // an operation, from its start to its end
    size_t node = 0;
    Life life = 0;
    actors::RoleKind role = actors::RoleKind::planner;
    actors::OperationId id = 0;
    bool is_bulk = false;
    actors::Operation* operation =
        nullptr;  // until it runs; of bulk, which is described at length, work instead
    CountedRoot::Work work;
    Status fails;
    Running* next = nullptr;  // in its line
  };
  // Who waits for the same, in order: values of a pool, so that a node where nobody waits takes no memory.
  template <class T>
  class Line {
   public:
    bool empty() const { return first_ == nullptr; }
    size_t size() const { return size_; }
    const T* front() const { return first_; }
    void push_back(T* value) {
      value->next = nullptr;
      (first_ == nullptr ? first_ : last_->next) = value;
      last_ = value;
      ++size_;
    }
    T* pop_front() {
      T* value = first_;
      first_ = value->next;
      --size_;
      return value;
    }

   private:
    T* first_ = nullptr;
    T* last_ = nullptr;
    size_t size_ = 0;
  };
  struct Threads {  // operations: so many at a time, the others wait
    size_t free = 0;
    Line<Running> waiting;
  };
  struct Timer {  // the setting in force
    actors::RoleKind role = actors::RoleKind::planner;
    actors::TimerId timer = 0;
    uint64_t setting = 0;
  };
  struct alignas(64) Node {  // what each event touches comes first
    std::array<std::unique_ptr<actors::Role>, actors::kRoleCount> roles;
    Line<Input> inputs;       // wait for its processor; the first is being handled while busy
    uint64_t wire_bytes = 0;  // of all of them
    bool busy = false;
    bool alive = true;
    uint32_t life = 0;                 // counts its processes
    actors::TimeNs silent_since = -1;  // dead or stalled; -1: neither
    actors::TimeNs stalled_until = 0;
    size_t coordinator = 0;      // whom it follows
    uint32_t epoch = 1;          // of that one
    actors::NodeId session = 0;  // what that one calls it; 0: none stands, or it is that one
    std::vector<Timer> timers;
    Threads bulk, duty;
  };
  struct Stopping {  // a process that drains
    bool trainers_live = false;
    std::function<void()> has_ended;
  };
  struct Answers {  // of the roles that heard an event
    struct Answer {
      actors::RoleKind role = actors::RoleKind::planner;
      size_t end = 0;  // of its effects, which begin where those of the one before end
    };
    std::vector<Answer> of_roles;
    actors::Effects effects;
    std::vector<uint64_t> sizes;  // of all Sends, encoded; 0 within the node
    void clear();                 // keeps some memory
  };
  struct HandleNext {  // when a node's processor has taken in the first in line
    VirtualCluster* cluster = nullptr;
    Life life = 0;
    void operator()() const {
      if (cluster->lives(life)) cluster->handle_next(static_cast<uint32_t>(life));
    }
    void fetch() const;
  };

  struct Route {
    size_t to = 0;
    actors::NodeId session = 0;  // by which it goes
    actors::NodeId sender = 0;   // as the receiver knows him
    size_t follower = 0;         // of the two, who is not the coordinator
  };
  struct Sent {  // a message on its way
    Route route;
    actors::WireMessage message;
    uint64_t bytes = 0;
  };

  Life life_of(size_t node) const { return uint64_t{nodes_[node].life} << 32 | node; }
  bool lives(Life life) const {
    const Node& node = nodes_[static_cast<uint32_t>(life)];
    return node.alive && node.life == life >> 32;
  }
  uint64_t hub_peers() const;  // nodes with a session with the coordinator, but by way of a relay
  bool is_coordinator(size_t node) const {
    return nodes_[node].roles[static_cast<size_t>(actors::RoleKind::coordinator)] != nullptr;
  }
  void make_roles(size_t node, uint32_t epoch, bool coordinates);
  void begin_roles(size_t node);

  template <class SomeEvent>
  void offer(size_t node, std::optional<actors::RoleKind> role, SomeEvent event, uint64_t wire_bytes = 0) {
    if (!nodes_[node].alive) return;
    Input* input = inputs_.take();
    input->role = role;
    input->event = std::move(event);
    input->wire_bytes = wire_bytes;
    add_input(node, input);
  }
  void add_input(size_t node, Input* input);
  Input* take_input(Node& node);  // the first in line
  void give_back(Input* input);
  void begin_next(size_t node);
  void handle_next(size_t node);
  void deliver(size_t node, actors::RoleKind role, const Input& input, Answers& answers,
               actors::TimeNs* takes);
  void leave(size_t node, Answers& answers);
  void note(size_t node, actors::RoleKind role, const Input& input);
  void carry_out(size_t node, actors::RoleKind role, actors::Effect& effect, uint64_t bytes);
  void send(size_t node, const actors::effect::Send& send, uint64_t bytes);
  void arrive(const Sent& sent);
  void send_between(size_t from, size_t to, const actors::WireMessage& message, uint64_t bytes,
                    actors::SendId id = 0);
  void say_left(Life from, actors::RoleKind role, actors::SendId id) {
    if (id != 0 && lives(from)) offer(static_cast<uint32_t>(from), role, actors::event::SendDone{id});
  }
  void start_operation(size_t node, actors::RoleKind role, actors::effect::Start start);
  void run_operation(Running* running);
  CountedRoot::Work work_of(size_t node, const actors::Operation& operation);
  void begin_operation(Running* running);
  void end_operation(Running* running);
  Threads& threads_of(const Running& running) {
    Node& node = nodes_[running.node];
    return running.is_bulk ? node.bulk : node.duty;
  }
  // What a process had asked of the storage when it ended: a name may be made all the same, or not.
  void abandon(actors::OperationId id, bool is_small, const CountedRoot::Work& work);
  void drained(size_t node, actors::RoleKind role);
  void end_stopped(Life life);
  void set_timer(size_t node, actors::RoleKind role, const actors::effect::SetTimer& set);
  bool is_local(size_t node, actors::NodeId to) const;

  // --- sessions (sim/cluster/cluster_life.cpp) ---
  std::optional<Route> find_route(size_t from, actors::NodeId to) const;  // none: connected no more
  bool stands(const Route& route) const { return nodes_[route.follower].session == route.session; }
  bool reachable(size_t one, size_t other) const;
  bool is_silent(size_t one, size_t other) const;  // for kSilenceNs
  void check_links_of(size_t node);
  void lose_sessions_of(size_t node, const Status& why);
  void lose_session(size_t node, const Status& why);  // with the coordinator that it follows
  void connect(size_t node);
  void redirect(size_t node, const actors::effect::Redirect& to);
  void join_again(Life life, const std::shared_ptr<std::function<void()>>& is_up);

  EventHeap& events_;
  const std::shared_ptr<SharedPlans> plans_;
  const Profile profile_;
  NetworkModel network_;
  RelayModel relays_;
  StorageModel storage_;
  Hazards hazards_;
  CpuModel cpu_;
  CorePool cores_;
  ItemModel items_;
  MessageSizes sizes_;
  CountedRoot root_;
  StoredPayload* payload_ = nullptr;
  const std::vector<std::vector<Rank>> ranks_of_node_;
  const uint32_t world_size_;
  const uint32_t generation_;
  std::vector<Node> nodes_;
  std::map<Life, Stopping> stopping_;
  std::vector<uint32_t> session_owners_;  // by session, from kFirstPeerNode on
  size_t coordinator_ = 0;                // of the highest epoch
  uint32_t epoch_ = 1;                    // that one
  ToClient to_client_;
  std::function<const void*(actors::ClientId)> state_of_client_;
  MessageListener listener_;
  EventListener event_listener_;
  OperationListener operation_listener_;
  HubCounts hub_;
  mutable std::optional<uint64_t> hub_peers_;  // none: sessions have come or gone
  Pool<Input> inputs_;
  Pool<Running> operations_;
  Pool<actors::Operation> waiting_operations_;
  Pool<Answers> answers_;
  Pool<Sent> sent_;
  std::vector<uint64_t> sent_sizes_;  // of the role that handles an event; kept for its memory
  uint64_t settings_ = 0;
  uint64_t shared_bytes_ = 0;
  uint64_t delivered_ = 0;
  uint64_t trace_hash_ = 0;
  std::vector<std::string> warnings_;  // the first few
};

}  // namespace shoal::sim
