// VirtualCluster: the production roles of many nodes on virtual time, where everything costs: messages pass
// through interfaces (sim/network_model.h), events through each node's processor (sim/cpu_model.h),
// operations through the storage (sim/storage_model.h). What a shard holds is counted, not kept
// (sim/counted_root.h). The sibling of VirtualHost, which keeps every byte and can fail, and where nothing
// costs.
//
// Node 0 coordinates. One thread; equal calls give equal events, and so equal hashes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sim/counted_root.h"
#include "sim/cpu_model.h"
#include "sim/network_model.h"
#include "sim/shared_plans.h"

namespace shoal {

struct HubCounts {  // of the coordinator's node
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t longest_queue = 0;  // of events that waited for its processor
  TimeNs busy_ns = 0;          // its processor
};

class VirtualCluster {
 public:
  using ToClient = std::function<void(ClientId, const LocalMessage&)>;

  // Hears of each message between two nodes as it is sent.
  using MessageListener = std::function<void(size_t from, size_t to, const WireMessage&, uint64_t bytes)>;
  void on_message(MessageListener listener) { listener_ = std::move(listener); }

  // ranks_of_node[n]: those that node n expects.
  VirtualCluster(EventHeap& events, const Profile& profile, uint64_t seed, SaveMode mode,
                 const std::vector<std::vector<Rank>>& ranks_of_node, uint32_t world_size);
  ~VirtualCluster();

  // Every role hears of Started. `to_client` hears what nodes say to clients, when it has arrived.
  void start(ToClient to_client);
  void from_client(size_t node, ClientId client, LocalMessage message);
  PlanSource& plans() { return *plans_; }
  // The host's power fails. Whoever had a session with its node hears of it kSilenceNs later.
  void kill(size_t node);
  void stall(size_t node, TimeNs duration);  // its processor takes nothing in for so long
  void set_items(std::vector<uint32_t> of_rank) { cpu_.set_items(std::move(of_rank)); }

  const HubCounts& hub() const { return hub_; }
  void forget_longest_queue() { hub_.longest_queue = 0; }
  const StorageCounts& storage() const { return storage_.counts(); }
  uint64_t record_bytes() const { return root_.record_bytes(); }
  // Of every event that a role was given: when, where, what.
  uint64_t trace_hash() const { return trace_hash_; }
  uint64_t events() const { return delivered_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Input {
    std::optional<RoleKind> role;  // none: planner, shard writer and loader
    Event event;
    uint64_t wire_bytes = 0;
  };
  struct Pool {  // operations: so many at a time, the others wait
    size_t free = 0;
    std::deque<std::function<void()>> waiting;
  };
  struct Node {
    std::array<std::unique_ptr<Role>, kRoleCount> roles;
    std::deque<Input> inputs;  // the first is being handled while busy
    bool busy = false;
    bool alive = true;
    TimeNs stalled_until = 0;
    std::map<std::pair<RoleKind, TimerId>, uint64_t> timers;  // which setting is in force
    Pool bulk, duty;
  };
  struct Answer {
    RoleKind role = RoleKind::planner;
    Effects effects;
    std::vector<uint64_t> sizes;  // of its Sends, encoded; 0 within the node
  };

  void offer(size_t node, Input input);
  void begin_next(size_t node);
  void handle_next(size_t node);
  void deliver(size_t node, RoleKind role, const Input& input, std::vector<Answer>& answers, TimeNs* takes);
  void note(size_t node, RoleKind role, const Input& input);
  void carry_out(size_t node, Answer& answer);
  void send(size_t node, const effect::Send& send, uint64_t bytes);
  void start_operation(size_t node, RoleKind role, effect::Start start);
  void run_operation(size_t node, Pool Node::*pool, std::function<void()> job);
  void set_timer(size_t node, RoleKind role, const effect::SetTimer& set);
  bool is_local(size_t node, NodeId to) const;

  EventHeap& events_;
  const std::shared_ptr<SharedPlans> plans_;
  const Profile profile_;
  NetworkModel network_;
  StorageModel storage_;
  CpuModel cpu_;
  MessageSizes sizes_;
  CountedRoot root_;
  std::vector<Node> nodes_;
  ToClient to_client_;
  MessageListener listener_;
  HubCounts hub_;
  uint64_t settings_ = 0;
  uint64_t delivered_ = 0;
  uint64_t trace_hash_ = 0;
  std::vector<std::string> warnings_;  // the first few
};

}  // namespace shoal
