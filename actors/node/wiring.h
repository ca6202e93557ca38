// NodeWiring: connects clients, peers and roles of a live node. Messages of clients and peers become events
// of roles; effects of roles go to clients, peers and storage.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "actors/caf/caf_host.h"
#include "actors/executor/operation_runner.h"
#include "actors/node/clients/first_save.h"
#include "actors/node/clients/local_server.h"
#include "actors/node/clients/slab_table.h"
#include "actors/node/clients/staged_parts.h"
#include "actors/node/clients/staging_memory.h"
#include "actors/node/links/peer_links.h"
#include "actors/node/links/sharing_links.h"
#include "actors/node/watch/activity.h"
#include "actors/node/watch/job_watch.h"
#include "actors/node/watch/log.h"
#include "actors/node/watch/protocol_log.h"
#include "actors/node/watch/rejection_lines.h"
#include "actors/node/watch/report.h"
#include "actors/node/watch/stats.h"

namespace shoal::actors {

class NodeWiring final : public HostServices, public LocalEvents, public PeerEvents {
 public:
  // All arguments outlive the wiring.
  NodeWiring(OperationRunner& runner, PeerLinks& links, SlabTable& slabs, NodeLog& log, Activity& activity,
             const NodeReport& report,
             std::function<void(std::string_view operation, bool is_done)> around_operation = nullptr);
  // Called once, before clients or peers are served. Both outlive all calls into the wiring.
  void connect(CafHost& host, LocalServer& server);

  // Called on the transport's thread with what other hosts state when they join. If it returns an error, no
  // roster can be made: the coordinator rejects all hosts with it. Set before peers are served.
  using CheckJoin = std::function<Status(const std::string& host, uint32_t ranks, uint32_t world_size)>;
  void check_joins(CheckJoin check);
  void keep(std::unique_ptr<ProtocolLog> log);  // before peers are served
  void share(SharingLinks& links);              // before peers are served; outlives the CafHost
  // Before clients are served; both outlive the CafHost.
  void stage_by(StagingMemory& memory, StagedParts& parts);

  void watch(FirstSaveWatch& first_save);  // before clients are served
  void watch(JobWatch& job);               // likewise, and before peers are served
  void warn(const std::string& line);      // to the log and the status of the node

  bool wait_drained(RoleKind role, std::chrono::milliseconds timeout);
  void refuse_clients();                   // threads that read from clients no longer wait for a full mailbox
  void add_stats(NodeStats* stats) const;  // adds the counts of saves
  std::optional<storage::EpochRecord> superseded_by() const;  // by which the coordinator here was superseded

  TimeNs now() override;
  void send(NodeId to, const WireMessage& message, SendId id) override;
  void send_to(const std::string& address, const WireMessage& message) override;
  void to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) override;
  void forget_client(ClientId client) override;
  Result<OperationResult> run(const Operation& operation) override;
  void redirect(const effect::Redirect& to) override;
  void end_session(NodeId node, const Status& why) override;
  void retired(const storage::EpochRecord& by) override;
  void drained(RoleKind role) override;
  void log(RoleKind role, const effect::Log& log) override;

  void from_client(ClientId client, std::shared_ptr<const local::LocalMessage> message) override;
  void client_lost(ClientId client, bool process_lives) override;
  std::shared_ptr<const local::NodeStatus> status() override;
  std::shared_ptr<const local::JobStatus> job_status() override;

  bool received(NodeId from, WireMessage message, size_t encoded_bytes) override;
  void on_left(SendId id);  // for messages from one Loader to another
  void peer_up(NodeId node, const transport::Identity& identity) override;
  void peer_lost(NodeId node, const Status& why) override;
  void peer_refused(const std::string& address, const Status& why) override;

 private:
  Result<OperationResult> carry_out(const Operation& operation);
  void post_from_client(RoleKind role, ClientId client,
                        const std::shared_ptr<const local::LocalMessage>& message);

  OperationRunner& runner_;
  PeerLinks& links_;
  SlabTable& slabs_;
  NodeLog& log_;
  Activity& activity_;
  const NodeReport& report_;
  const std::function<void(std::string_view operation, bool is_done)> around_operation_;
  CheckJoin check_join_;
  std::unique_ptr<ProtocolLog> protocol_;  // null: no log
  RejectionLines rejections_;
  SharingLinks* sharing_ = nullptr;
  StagingMemory* staging_ = nullptr;
  StagedParts* parts_ = nullptr;
  FirstSaveWatch* first_save_ = nullptr;
  JobWatch* job_ = nullptr;
  std::atomic<CafHost*> host_{nullptr};
  std::atomic<LocalServer*> server_{nullptr};
  std::atomic<bool> refuses_clients_{false};
  std::atomic<uint64_t> committed_{0}, aborted_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<RoleKind> drained_;
  std::map<NodeId, std::string> peer_names_;  // "host:pid", of nodes that are up
  std::optional<storage::EpochRecord> superseded_by_;
};

}  // namespace shoal::actors
