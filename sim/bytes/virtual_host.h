// VirtualHost: runs the production roles of many nodes on virtual time, in one thread, over a file system in
// memory.
//
// This is the minimal form of the simulator. Delays are fixed, and messages are not lost unless a test cuts a
// link. One event heap orders events by time in nanoseconds and then by sequence number, so equal calls give
// equal transcripts. The caller simulates the trainers: it plays the clients.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "actors/operation.h"
#include "actors/role.h"
#include "sim/bytes/memory_file_system.h"
#include "sim/bytes/memory_slabs.h"
#include "storage/files/local_storage.h"

namespace shoal::sim {

struct VirtualDelays {
  actors::TimeNs network_ns = 20'000;
  actors::TimeNs local_ns = 1'000;  // between roles of a node, and between client and node
  actors::TimeNs operation_ns = 200'000;
};

// The virtual world as the engine of one node sees it. One thread.
class VirtualWorld {
 public:
  virtual ~VirtualWorld() = default;
  virtual actors::TimeNs now() const = 0;
  virtual void schedule(actors::TimeNs at, std::function<void()> action) = 0;
  // Sends to any node, including this one. If `to` is a node of a shared load (an id from
  // actors::kFirstSharer on) and id is not 0, event::SendDone follows.
  virtual void send(actors::NodeId to, const actors::WireMessage& message, actors::SendId id) = 0;
  // Ends the session with a node of a shared load.
  virtual void end_session(actors::NodeId node) = 0;
  virtual void send_to(const std::string& address, const actors::WireMessage& message) = 0;
  virtual void to_client(actors::ClientId client,
                         const std::shared_ptr<const local::LocalMessage>& message) = 0;
  virtual void forget_client(actors::ClientId client) = 0;
  virtual Result<actors::OperationResult> run(const actors::Operation& operation) = 0;
  virtual void redirect(const actors::effect::Redirect& to) = 0;
  virtual void retired(const storage::EpochRecord& by) = 0;
  virtual void drained(actors::RoleKind role) = 0;
};

// Hosts the roles of one node in a VirtualWorld. The default engine carries effects out directly. A test can
// use the CAF host instead.
class NodeEngine {
 public:
  virtual ~NodeEngine() = default;
  virtual void deliver(actors::RoleKind role, actors::Event event) = 0;  // the role may be absent
};
using NodeEngineFactory = std::function<std::unique_ptr<NodeEngine>(
    VirtualWorld& world, std::vector<std::unique_ptr<actors::Role>> roles, const VirtualDelays& delays,
    bool coordinates)>;
std::unique_ptr<NodeEngine> make_direct_engine(VirtualWorld& world,
                                               std::vector<std::unique_ptr<actors::Role>> roles,
                                               const VirtualDelays& delays, bool coordinates);

inline constexpr actors::TimeNs kSilenceNs = 2500 * actors::kMillisecond;

class VirtualHost {
 public:
  explicit VirtualHost(VirtualDelays delays = {}, NodeEngineFactory engines = make_direct_engine);
  ~VirtualHost();

  // Adds a node and returns its number, counted from 0. A node that coordinates claims the next epoch of the
  // root; its address is "nodeN". Any other node follows the coordinator that was added last, until it is
  // redirected.
  size_t add_node(const actors::NodeConfig& config, bool coordinates);
  // The trainer of a rank connects and attaches. The returned id identifies its slabs and messages.
  actors::ClientId attach(size_t node, Rank rank, uint32_t world_size);
  MutableByteView add_slab(actors::ClientId client, uint32_t slab_id, uint64_t bytes);
  void from_client(actors::ClientId client, local::LocalMessage message);
  void lose_client(actors::ClientId client);
  // The messages of the node to a client since the last call, in order.
  std::vector<std::shared_ptr<const local::LocalMessage>> take(actors::ClientId client);

  // Drops its roles, timers and running operations; other nodes are not notified yet.
  void kill_node(size_t node);
  // Called at the instant at which a node has carried out an operation. The listener may kill the node.
  using OperationListener = std::function<void(size_t node, const actors::Operation&)>;
  void on_operation(OperationListener listener) { listener_ = std::move(listener); }
  // Changes each message between nodes before it is sent, to simulate a sender with broken memory.
  using Corruption = std::function<void(size_t from, actors::WireMessage& message)>;
  void corrupt_messages(Corruption corruption) { corruption_ = std::move(corruption); }
  // The power fails everywhere. All nodes are gone, and so are the catalog and unsynced changes of the
  // storage. Nodes that are added later find what is left.
  void crash(const MemoryFileSystem::Unsynced& unsynced);
  void cut(size_t node, bool cut_off);  // while cut off, its messages to and from other nodes are lost
  // Pauses or resumes a node, as SIGSTOP and SIGCONT do. Events and timers of a paused node wait until it
  // resumes. Each peer of a node that is dead, cut off or paused for kSilenceNs is notified that the node is
  // lost.
  void pause(size_t node, bool paused);
  // While takes_nothing, messages with a send id for this node stay with their senders, although the node
  // lives. This simulates a peer that reads no bulk data. Otherwise such a message has left its sender when
  // it arrives, or when its dead, cut off or paused receiver is considered lost.
  void set_takes_no_bulk(size_t node, bool takes_nothing);
  // Bytes of the chunks that stay with this node because a receiver does not take them.
  uint64_t untaken_bytes(size_t node) const;
  bool alive(size_t node) const;
  bool retired(size_t node) const;  // its Coordinator has found a later epoch
  void drain(size_t node);          // as a live node that is requested to stop
  void end_trainer(size_t node, Rank rank, const std::string& how);  // as the launcher reports it
  bool drained(size_t node) const;

  actors::TimeNs now() const { return now_; }
  void run_for(actors::TimeNs duration);
  // Runs until nothing happens for `patience`.
  void run_until_quiet(actors::TimeNs patience);

  MemoryFileSystem& file_system() { return file_system_; }
  storage::Storage& storage() { return *storage_; }
  storage::Catalog& catalog() { return *catalog_; }
  const RootId& root_id() const { return root_id_; }
  // One line per message between nodes or to a client, in the order of sending: "node1.shard_writer ->
  // node0.coordinator: ...".
  const std::vector<std::string>& transcript() const { return transcript_; }
  uint64_t wire_bytes() const { return wire_bytes_; }
  uint64_t wire_messages() const { return wire_messages_; }

 private:
  class Node;
  struct Occurrence {
    actors::TimeNs at = 0;
    uint64_t sequence = 0;
    std::function<void()> action;
  };
  struct Later {
    bool operator()(const Occurrence& a, const Occurrence& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };
  struct Client {
    size_t node = 0;
    Rank rank = 0;
    bool connected = true;
    std::vector<std::shared_ptr<const local::LocalMessage>> inbox;
  };

  struct Untaken {
    size_t from = 0, to = 0;
    actors::WireMessage message;
    actors::SendId id = 0;
  };

  void schedule(actors::TimeNs at, std::function<void()> action);
  void step();
  // To each of Planner, ShardWriter and Loader that handles it.
  void deliver_local(size_t node, actors::Event event);
  void send(size_t from, actors::NodeId to, const actors::WireMessage& message, actors::SendId id);
  void send_between(size_t from, size_t to, const actors::WireMessage& message, actors::SendId id);
  void on_left(size_t from, const actors::WireMessage& message, actors::SendId id, actors::TimeNs after);
  void end_session(size_t from, actors::NodeId to);
  void pass_on(size_t from, size_t to, actors::NodeId sender_id, const actors::WireMessage& message,
               bool connected);
  bool reachable(size_t one, size_t other) const;
  bool has_clients(size_t node) const;  // connected clients
  void check_links();
  void connect(size_t node);  // connects a node to the coordinator that it follows
  void lose_coordinator(size_t node);
  void redirect(size_t node, const actors::effect::Redirect& to);
  Nonce next_nonce();
  void open_storage();

  const VirtualDelays delays_;
  const NodeEngineFactory engines_;
  actors::TimeNs now_ = 0;
  uint64_t sequence_ = 0;
  std::priority_queue<Occurrence, std::vector<Occurrence>, Later> heap_;
  size_t coordinator_node_ = 0;  // the last one added
  actors::NodeId last_session_ = actors::kFirstPeerNode;
  std::map<actors::ClientId, Client> clients_;
  actors::ClientId last_client_ = 0;
  uint64_t nonces_ = 0;
  MemoryFileSystem file_system_;
  std::unique_ptr<storage::LocalStorage> storage_;
  // Kept because dead nodes refer to them.
  std::vector<std::unique_ptr<storage::LocalStorage>> lost_storages_;
  std::vector<std::unique_ptr<storage::Catalog>> lost_catalogs_;
  OperationListener listener_;
  Corruption corruption_;
  std::unique_ptr<storage::Catalog> catalog_;
  RootId root_id_;
  std::vector<std::string> transcript_;
  uint64_t wire_bytes_ = 0;
  uint64_t wire_messages_ = 0;
  std::vector<Untaken> untaken_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace shoal::sim
