// VirtualCluster: runs the production roles of many nodes on virtual time, with modelled costs. Messages pass
// through interfaces (sim/models/network_model.h), events through the processor of each node
// (sim/models/cpu_model.h), and operations through the storage (sim/models/storage_model.h). The contents of
// shards are counted, not stored (sim/cluster/counted_root.h). VirtualHost (sim/bytes/virtual_host.h) is the
// alternative: it stores every byte, can crash the storage, and has no cost model.
//
// Node 0 is the coordinator at first. One thread. Equal calls give equal events and equal trace hashes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "actors/operation_traits.h"
#include "sim/basics/pool.h"
#include "sim/cluster/client_ids.h"
#include "sim/cluster/counted_root.h"
#include "sim/cluster/part_writes.h"
#include "sim/cluster/run_start.h"
#include "sim/cluster/shared_plans.h"
#include "sim/cluster/stored_payload.h"
#include "sim/failures/hazards.h"
#include "sim/models/core_pool.h"
#include "sim/models/cpu_model.h"
#include "sim/models/item_model.h"
#include "sim/models/network_model.h"
#include "sim/models/relay_model.h"
#include "sim/reports/coordinator_series.h"
#include "sim/reports/path_counts.h"
#include "sim/reports/trace.h"

namespace shoal::sim {

inline constexpr uint32_t kSimulatedGeneration = 1;

struct CoordinatorCounts {  // of the coordinator's node
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t longest_queue = 0;  // greatest number of events that waited for its processor
  actors::TimeNs busy_ns = 0;  // time during which its processor was busy
};

class VirtualCluster {
 public:
  using ToClient = std::function<void(actors::ClientId, const local::LocalMessage&)>;

  // Called for each message between two nodes when it is sent.
  using MessageListener =
      std::function<void(size_t from, size_t to, const actors::WireMessage&, uint64_t bytes)>;
  void on_message(MessageListener listener) { listener_ = std::move(listener); }
  // Called for each event before it is delivered to a role.
  using EventListener = std::function<void(size_t node, actors::RoleKind role, const actors::Event&)>;
  void on_event(EventListener listener) { event_listener_ = std::move(listener); }

  // Called for each operation on the root that a node requests, before it begins.
  using OperationListener = std::function<void(size_t node, const actors::Operation&)>;
  void on_operation(OperationListener listener) { operation_listener_ = std::move(listener); }

  // Called when a node unmaps the slabs of a client although a write that it has begun reads them.
  using SlabListener = std::function<void(size_t node, actors::ClientId client)>;
  void on_unmapped_slab(SlabListener listener) { slab_listener_ = std::move(listener); }

  // Counts what the roles do, including the transitions of those that end, until this object is destroyed.
  // Null: nobody counts.
  void count_paths(PathCounts* paths) { paths_ = paths; }
  // Records what the nodes do. Null: nobody records. Call it before start().
  void record(Trace* trace);

  struct Job {
    SaveMode mode = SaveMode::collective_free;
    std::vector<std::vector<Rank>> ranks_of_node;  // [n]: the ranks on the host of node n
    // A launcher starts the nodes: they know their ranks, refuse others, and hear how a trainer ended. Else
    // the trainers start them, and a node knows the ranks that have attached.
    bool has_launcher = true;
    uint32_t world_size = 0;
    uint32_t max_direct_nodes = actors::kDefaultDirectNodes;  // further nodes use relays
    uint32_t generation = kSimulatedGeneration;
    storage::RetentionPolicy retention = {};
    actors::Timeouts timeouts = {};
    // The root of an earlier run, which may still use it; its coordinator then claims the next epoch. Null:
    // another root.
    std::shared_ptr<CountedRoot> root = nullptr;
    // The job only reads `root`. Its generation is its number under readers/.
    bool read_only = false;
    // Of each slab through which trainers stage saves in parts; 0: they stage none so.
    uint64_t parts_slab_bytes = 0;
  };
  VirtualCluster(EventHeap& events, const Profile& profile, uint64_t seed, Job job);
  ~VirtualCluster();

  // Also stores the bytes that are otherwise counted in `payload`, which must outlive this object. Each rank
  // then has its own plan. Call it before start().
  void keep_bytes(StoredPayload* payload);
  // With true bytes, messages pass through their codecs, unless this is called.
  void skip_codecs() { has_codecs_ = false; }
  // Delivers Started to every role. `to_client` receives each message of a node to a client, when it arrives.
  // `state_of` returns the address of the state of a client's receiver; the cluster prefetches it into the
  // cache shortly before.
  void start(ToClient to_client, std::function<const void*(actors::ClientId)> state_of = nullptr);
  // Before start(), of a run on the root of an earlier one: the nodes open the root and connect
  // (sim/cluster/run_start.h). `earlier_host_lives`: that of the coordinator of the run before.
  void open_and_connect(bool earlier_host_lives, std::function<void()> claimed,
                        std::function<void()> connected);
  void stop_connecting();  // the run was killed meanwhile
  // A trainer sends a message to its node. `takes`: time on the trainer's processor before it is sent.
  void from_client(size_t node, actors::ClientId client, local::LocalMessage message,
                   actors::TimeNs takes = 0);
  // The same, for a message that many trainers send.
  void from_client(size_t node, actors::ClientId client, std::shared_ptr<const local::LocalMessage> message,
                   actors::TimeNs takes = 0);
  // The trainer of a rank connects to this node and attaches, by the connection client(rank).
  void attach(size_t node, Rank rank) { attach(node, rank, client(rank)); }
  void attach(size_t node, Rank rank, actors::ClientId client);
  actors::ClientId client(Rank rank) const {
    const auto broken = broken_connections_.find(rank);
    return client_of(rank, broken == broken_connections_.end() ? 0 : broken->second);
  }
  bool has_launcher() const { return job_.has_launcher; }
  actors::PlanSource& plans() { return *plans_; }
  CorePool& cores() { return cores_; }
  CountedRoot& counted_root() { return *root_; }
  const std::shared_ptr<CountedRoot>& shared_root() const { return root_; }

  // --- what goes wrong (sim/cluster/cluster_life.cpp) ---
  // The power of the host fails. Each peer with a session to its node loses it kSilenceNs later.
  void kill(size_t node);
  // The process of the node ends. Its peers lose their sessions as soon as the network reports it.
  void crash(size_t node);
  // The process of the node gets a request to stop, while trainers of its host live or after they have ended.
  // It drains for at most node_deadline_ms, then ends as in crash(). Then `has_ended` runs.
  void stop(size_t node, bool trainers_live, std::function<void()> has_ended);
  // The process of the node ends because no client needs it; as in stop().
  void end_idle(size_t node, std::function<void()> has_ended);
  struct Undrained {  // a process that node_deadline_ms ended before it had drained
    size_t node = 0;
    actors::TimeNs asked = 0;
  };
  const std::optional<Undrained>& undrained() const { return undrained_; }  // the last one
  // Other nodes reach the coordinator through this node, or it is the coordinator and others live.
  bool has_followers(size_t node) const;
  // Another process replaces the process of the node, with new roles. A process that still lives is ended
  // first. The new process coordinates if `coordinates` is true, or if the root's highest epoch belongs to
  // this node; then it claims the next epoch. Otherwise it starts its roles as soon as it reaches the
  // coordinator of the highest epoch. `is_up` runs then.
  void start_again(size_t node, bool coordinates, std::function<void()> is_up);
  // The process of the node handles nothing for `duration`. If this lasts kSilenceNs, its peers consider it
  // lost.
  void stall(size_t node, actors::TimeNs duration);
  // What `shoal gc` does on the host of this node: it looks at each attempt, and removes the files of those
  // that were aborted. At once, and without costs.
  void sweep_attempts(size_t node);
  // --- what operators do, at once and without costs (sim/cluster/operator_acts.cpp) ---
  // `behind`: how many checkpoints are newer than the one that is meant. Pins or tags it, and returns the
  // name of the mark; none if there are not so many checkpoints.
  std::optional<std::string> mark_checkpoint(storage::MarkKind kind, uint64_t behind);
  void unmark(storage::MarkKind kind, const std::string& name);
  void remove_checkpoint(uint64_t behind);   // `shoal rm`
  void collect_garbage(uint32_t keep_last);  // `shoal gc --keep-last`
  // A bit of a file of a checkpoint flips (Failure::Kind::rots). Not in a manifest of which `is_read` is
  // false.
  void rot(uint64_t behind, uint64_t part, uint64_t permille,
           const std::function<bool(const AttemptKey&)>& is_read);
  void begin_hazard(const Failure& failure);  // a failure of a link or a disk
  // The trainer's connection ends; the node notices it this much later.
  void lose_client(size_t node, Rank rank, actors::TimeNs later = 0) {
    lose_connection(node, client(rank), later);
  }
  void lose_connection(size_t node, actors::ClientId client, actors::TimeNs later,
                       bool process_lives = false);
  // The same, but the trainer lives: its next connection has another id. Messages of the node to the earlier
  // connection do not arrive. The node may notice the next connection first.
  void break_connection(size_t node, Rank rank, actors::TimeNs later);
  void end_trainer(size_t node, Rank rank, const std::string& how);  // as the launcher reports it
  // The node that has, or had, this session with a coordinator. Precondition: the session was opened.
  size_t node_of(actors::NodeId session) const { return session_owners_[session - actors::kFirstPeerNode]; }
  // The coordinator that the node follows.
  size_t coordinator_of(size_t node) const { return nodes_[node].coordinator; }
  actors::Timeouts timeouts() const;
  const RootView& root() const { return *root_; }
  size_t nodes() const { return nodes_.size(); }
  bool alive(size_t node) const { return nodes_[node].alive; }
  // Its node has joined. False for one that is dead, and for one that looks for a coordinator.
  bool serves(size_t node) const {
    return nodes_[node].alive &&
           nodes_[node].roles[static_cast<size_t>(actors::RoleKind::shard_writer)] != nullptr;
  }
  bool has_serving() const {
    for (size_t node = 0; node < nodes_.size(); ++node) {
      if (serves(node)) return true;
    }
    return false;
  }
  size_t coordinator() const { return coordinator_; }  // the node of the highest epoch
  void set_items(const std::vector<uint32_t>& of_rank) {
    cpu_.set_items(of_rank);
    items_.set_items(of_rank);
  }

  // Slows a node down for the whole job. Values are thousandths of the time that another node takes.
  void slow_down(size_t node, uint32_t network_permille, uint32_t storage_permille) {
    network_.slow_down(node, network_permille);
    storage_.slow_down(node, storage_permille);
  }
  size_t relays() const { return relays_.relays(); }
  const CoordinatorCounts& coordinator_counts() const { return coordinator_costs_; }
  uint64_t coordinator_queue() const { return nodes_[coordinator_].inputs.size(); }  // now
  // The state now. Takes time linear in the number of nodes if sessions were opened or closed since the last
  // call.
  CoordinatorLoad coordinator_load() const;
  void forget_longest_queue() { coordinator_costs_.longest_queue = 0; }
  const StorageCounts& storage() const { return storage_.counts(); }
  uint64_t record_bytes() const { return root_->record_bytes(); }
  uint64_t shared_bytes() const { return shared_bytes_; }  // bytes that nodes sent each other in shared loads
  // Hash of time, place and content of every event that was delivered to a role.
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t events() const { return delivered_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // Identifies one process of a node. An action that was scheduled for an earlier process has no effect.
  using Life = uint64_t;
  struct Input {
    std::optional<actors::RoleKind> role;  // none: each of Planner, ShardWriter and Loader that handles it
    actors::Event event;
    uint64_t wire_bytes = 0;
    Input* next = nullptr;  // next in its Line
  };
  struct WriteInParts {
    actors::operation::WriteShard write;
    StorageSteps after;  // the last part
    PartsCopied copied;
  };
  struct Running {  // an operation from its start to its end
    size_t node = 0;
    Life life = 0;
    actors::RoleKind role = actors::RoleKind::planner;
    actors::OperationId id = 0;
    actors::ThreadClass threads = actors::ThreadClass::duty;
    std::optional<AttemptKey> writes;  // of a WriteShard
    actors::ClientId reads_slab = 0;   // the client whose slab a WriteShard reads; 0: none
    std::string_view name;             // for the trace
    actors::TimeNs began = 0;          // when it ran, after its wait for a thread
    // The operation until it runs. Bulk operations, whose description is long, have `work` instead.
    actors::Operation* operation = nullptr;
    CountedRoot::Work work;
    std::unique_ptr<WriteInParts> in_parts;
    Status fails;
    Running* next = nullptr;  // next in its Line
    bool is_bulk() const { return threads == actors::ThreadClass::bulk; }
  };
  // A first-in, first-out queue of values of a Pool. The queue of an idle node takes no memory.
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
  struct Threads {  // threads for operations: `free` more may run, the others wait
    size_t free = 0;
    Line<Running> waiting;
  };
  struct Timer {  // the setting that is in force
    actors::RoleKind role = actors::RoleKind::planner;
    actors::TimerId timer = 0;
    uint64_t setting = 0;
  };
  struct alignas(64) Node {  // members that every event reads come first
    std::array<std::unique_ptr<actors::Role>, actors::kRoleCount> roles;
    Line<Input> inputs;       // events that wait for its processor; if busy, the first is being handled
    uint64_t wire_bytes = 0;  // of all inputs
    bool busy = false;
    bool alive = true;
    uint32_t life = 0;                 // number of its process, counted from 0
    actors::TimeNs silent_since = -1;  // since when it is dead or stalled; -1: neither
    actors::TimeNs stalled_until = 0;
    size_t coordinator = 0;  // the coordinator that it follows
    uint32_t epoch = 1;      // epoch of that coordinator
    // Session id at that coordinator; 0: no session, or it is the coordinator itself.
    actors::NodeId session = 0;
    std::vector<Timer> timers;
    std::vector<AttemptKey> writing;           // of each WriteShard that runs
    std::vector<actors::ClientId> slabs_read;  // of each WriteShard that runs or waits for a thread
    Threads bulk, duty, background;
  };
  struct Stopping {  // a process that drains
    actors::event::Drain how;
    std::function<void()> has_ended;
  };
  struct Answers {  // effects of the roles that handled an event
    struct Answer {
      actors::RoleKind role = actors::RoleKind::planner;
      size_t end = 0;  // end of its effects; they begin where those of the previous answer end
    };
    std::vector<Answer> of_roles;
    actors::Effects effects;
    std::vector<uint64_t> sizes;  // encoded sizes of all Sends; 0 for a message within the node
    void clear();                 // keeps some of the allocated memory
  };
  struct HandleNext {  // runs when the node's processor has received the first input
    VirtualCluster* cluster = nullptr;
    Life life = 0;
    void operator()() const {
      if (cluster->lives(life)) cluster->handle_next(static_cast<uint32_t>(life));
    }
    void fetch() const;
  };

  struct Route {
    size_t to = 0;
    actors::NodeId session = 0;  // the session that carries the message
    actors::NodeId sender = 0;   // id of the sender at the receiver
    size_t follower = 0;         // the one of the two nodes that is not the coordinator
  };
  struct Sent {  // a message in transit
    Route route;
    actors::WireMessage message;
    uint64_t bytes = 0;
  };

  Life life_of(size_t node) const { return uint64_t{nodes_[node].life} << 32 | node; }
  bool lives(Life life) const {
    const Node& node = nodes_[static_cast<uint32_t>(life)];
    return node.alive && node.life == life >> 32;
  }
  uint64_t coordinator_peers() const;  // nodes with a direct session to the coordinator
  bool is_coordinator(size_t node) const {
    return nodes_[node].roles[static_cast<size_t>(actors::RoleKind::coordinator)] != nullptr;
  }
  void count_transitions(const Node& node) const;
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
  void send_from_client(size_t node, actors::ClientId client,
                        std::shared_ptr<const local::LocalMessage> report, actors::TimeNs takes);
  void add_input(size_t node, Input* input);
  Input* take_input(Node& node);  // removes the first input
  void give_back(Input* input);
  void begin_next(size_t node);
  void handle_next(size_t node);
  void deliver(size_t node, actors::RoleKind role, const Input& input, Answers& answers,
               actors::TimeNs* takes);
  void leave(size_t node, Answers& answers);
  void note(size_t node, actors::RoleKind role, const Input& input);
  void carry_out(size_t node, actors::RoleKind role, actors::Effect& any, uint64_t bytes);
  void to_client(actors::ClientId client, std::shared_ptr<const local::LocalMessage> message);
  // True: no role needs it.
  bool takes_for_parts(size_t node, actors::ClientId client, const local::LocalMessage& message);
  void when_it_runs(size_t node, std::function<void()> act);
  template <class Message>
  Message passed(const Message& message);
  void send(size_t node, const actors::effect::Send& send, uint64_t bytes);
  void arrive(const Sent& sent);
  void send_between(size_t from, size_t to, const actors::WireMessage& sent, uint64_t bytes,
                    actors::SendId id = 0);
  actors::WireMessage corrupted(size_t from, const actors::WireMessage& message);
  void report_left(Life from, actors::RoleKind role, actors::SendId id) {
    if (id != 0 && lives(from)) offer(static_cast<uint32_t>(from), role, actors::event::SendDone{id});
  }
  void start_operation(size_t node, actors::RoleKind role, actors::effect::Start start);
  void run_operation(Running* running);
  CountedRoot::Work work_of(size_t node, const actors::Operation& operation);
  // The command of an operator carries this out. Its process has read nothing of the root before.
  Result<actors::OperationResult> operate(const actors::Operation& operation);
  std::optional<AttemptKey> checkpoint_behind(uint64_t newer) const;
  void delete_and_keep(const AttemptKey& key, uint32_t keep_last);
  // The storage of this node reports success for this write, but the shard is not there as it was written.
  void lose_write(Running& running, const actors::operation::WriteShard& write, Hazards::LostWrite how);
  CountedRoot::Work measure_writes(size_t node, const actors::operation::MeasureWrites& measure) const;
  void begin_operation(Running* running);
  void begin_in_parts(Running* running);
  void store_parts(Running* running);
  Result<actors::OperationResult> end_in_parts(Running& running);
  void end_operation(Running* running);
  Threads& threads_of(const Running& running) {
    Node& node = nodes_[running.node];
    switch (running.threads) {
      case actors::ThreadClass::bulk:
        return node.bulk;
      case actors::ThreadClass::background:
        return node.background;
      case actors::ThreadClass::duty:
        break;
    }
    return node.duty;
  }
  // Drops an operation that fails, or whose process has ended. If it is small, a pseudo-random bit decides
  // whether it takes effect nevertheless.
  void abandon(actors::OperationId id, bool is_small, const CountedRoot::Work& work);
  void begin_drain(size_t node, const actors::event::Drain& how, std::function<void()> has_ended);
  void drained(size_t node, actors::RoleKind role);
  void end_stopped(Life life);
  void set_timer(size_t node, actors::RoleKind role, const actors::effect::SetTimer& set);
  bool is_local(size_t node, actors::NodeId to) const;

  // --- sessions (sim/cluster/cluster_life.cpp) ---
  std::optional<Route> find_route(size_t from, actors::NodeId to) const;  // none: the session has ended
  bool exists(const Route& route) const { return nodes_[route.follower].session == route.session; }
  bool reachable(size_t one, size_t other) const;
  bool is_silent(size_t one, size_t other) const;  // for at least kSilenceNs
  void check_links_of(size_t node);
  void lose_sessions_of(size_t node, const Status& why);
  actors::TimeNs notice_time(size_t index, const Status& why) const;
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
  const std::shared_ptr<CountedRoot> root_;
  StoredPayload* payload_ = nullptr;
  bool has_codecs_ = true;
  const Job job_;
  std::vector<Node> nodes_;
  std::map<Life, Stopping> stopping_;
  std::optional<Undrained> undrained_;
  std::unique_ptr<RunStart> run_start_;
  std::optional<PartWrites> part_writes_;
  uint64_t marks_made_ = 0;                      // by operators
  std::map<Rank, uint32_t> broken_connections_;  // of living trainers
  std::vector<uint32_t> session_owners_;         // by session id minus kFirstPeerNode
  size_t coordinator_ = 0;                       // of the highest epoch
  uint32_t epoch_ = 1;                           // the highest epoch of this run
  ToClient to_client_;
  std::function<const void*(actors::ClientId)> state_of_client_;
  MessageListener listener_;
  EventListener event_listener_;
  OperationListener operation_listener_;
  SlabListener slab_listener_;
  PathCounts* paths_ = nullptr;
  Trace* trace_ = nullptr;
  CoordinatorCounts coordinator_costs_;
  mutable std::optional<uint64_t>
      coordinator_peers_;  // none: sessions were opened or closed since it was counted
  Pool<Input> inputs_;
  Pool<Running> operations_;
  Pool<actors::Operation> waiting_operations_;
  Pool<Answers> answers_;
  Pool<Sent> sent_;
  // Encoded sizes of the effects of the role that handles an event; a member to reuse its memory.
  std::vector<uint64_t> sent_sizes_;
  uint64_t settings_ = 0;
  uint64_t shared_bytes_ = 0;
  uint64_t delivered_ = 0;
  uint64_t trace_hash_ = 0;
  std::vector<std::string> warnings_;  // the first few
};

}  // namespace shoal::sim
