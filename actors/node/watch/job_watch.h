// JobWatch: gathers the status of the whole job when somebody asks for it (`shoal status`, the status page).
// A node asks the coordinator's node. That one asks every node that is connected, and answers with one table
// for all who asked meanwhile. Nothing is sent unless somebody asks. No save, load or role waits for it.
//
// The load is bounded whatever the number of askers: one gathering at a time, at least kGatherPauseMs between
// two, kHostsAskedPerTick requests a tick, kMaxHostStatusBytes for an answer, and kTablesPerTick tables a
// tick.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/messages/link_messages.h"
#include "actors/node/links/status_events.h"
#include "actors/node/watch/job_table.h"
#include "actors/role.h"
#include "local/status/job_status.h"
#include "transport/transport.h"

namespace shoal::actors {

inline constexpr TimeNs kGatherPauseMs = 500;        // a table that is younger answers everybody
inline constexpr TimeNs kHostAnswerMs = 1'000;       // from the last request; then a host counts as silent
inline constexpr size_t kHostsAskedPerTick = 512;    // of the node's loop
inline constexpr size_t kTablesPerTick = 4;          // that the coordinator sends to other nodes
inline constexpr size_t kMaxJobAskers = 64;          // nodes that wait for a table; further requests are lost
inline constexpr size_t kMaxHostsWatched = 1 << 15;  // further hosts are not shown

class JobWatch final : public StatusEvents {
 public:
  struct Surroundings {
    bool coordinates = false;  // until retired()
    std::function<TimeNs()> now;
    std::function<local::NodeStatus()> status;               // of this node; does not wait for storage
    std::function<std::shared_ptr<const JobFacts>()> facts;  // never null
    std::function<void(NodeId to, const LinkMessage& message)> send;  // drops what cannot be sent
  };
  explicit JobWatch(Surroundings surroundings);

  // Any thread. Waits for the table, at most `patience`. If it does not come, returns what this host knows
  // and why.
  local::JobStatus ask(std::chrono::milliseconds patience);
  // Any thread, at the coordinator's node; never waits. Returns the newest table, null before the first one,
  // and requests a newer one.
  std::shared_ptr<const local::JobStatus> newest();
  void tick();   // the node's loop, every few milliseconds
  void close();  // ask() waits no longer

  // Any thread; never waits.
  void retired();  // the coordinator here has retired: from now on another node has the table
  void peer_up(NodeId node, const transport::Identity& identity);
  void peer_lost(NodeId node);
  void job_status_requested(NodeId from) override;
  void job_status_received(Bytes status) override;
  void host_status_requested() override;
  void host_status_received(NodeId from, Bytes status) override;

 private:
  struct Host {
    int32_t pid = 0;
    Nonce incarnation;
    std::optional<NodeId> node;  // its session; nullopt: it is lost
    uint32_t restarts = 0;
    std::optional<local::HostStatus> last;  // its newest answer
    TimeNs answered_at = 0;
  };
  struct Gathering {
    std::deque<NodeId> to_ask;
    std::set<NodeId> asked;            // no answer yet
    std::map<NodeId, Bytes> answered;  // not decoded yet
    TimeNs asked_at = 0;               // the last request
  };

  bool coordinates() const;
  void tick_gathering();
  void begin_gathering();
  std::vector<local::HostStatus> take_answers(std::map<NodeId, Bytes> answers);
  local::HostStatus describe(const std::string& name, const Host& host, bool has_answered) const;
  void finish_gathering(std::map<NodeId, Bytes> answers);
  void forget(const std::vector<std::string>& replaced);
  void send_tables();
  local::JobStatus alone(const std::string& why) const;
  local::JobStatus with_age(local::JobStatus status) const;

  const Surroundings surroundings_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  bool coordinates_;
  bool is_coordinator_up_ = false;

  // Of a node that asks.
  std::optional<TimeNs> requested_at_;  // since then no table has come
  uint64_t tables_ = 0;                 // received, or gathered here
  Bytes received_;                      // the newest table, not decoded

  bool must_answer_ = false;  // the coordinator has requested the status of this host

  // Of the coordinator's node.
  std::map<std::string, Host> hosts_;
  std::map<NodeId, std::string> names_;
  bool is_wanted_ = false;
  std::set<NodeId> askers_;
  std::optional<Gathering> gathering_;
  std::shared_ptr<const local::JobStatus> newest_;
  TimeNs gathered_at_ = 0;
};

}  // namespace shoal::actors
