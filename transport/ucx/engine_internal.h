// Engine: what the transport's one thread does. It owns the door, the workers and all sessions, feeds
// sessions with what arrives, sends what they and the users want sent, and calls the handler.
//
// UCX's callbacks only note what happened and mark the peer; everything else happens in the round after:
// service() brings one marked peer up to date.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/descriptors.h"
#include "transport/inbound_turns.h"
#include "transport/lived_clock.h"
#include "transport/session.h"
#include "transport/ucx/door_internal.h"
#include "transport/ucx/interfaces_internal.h"
#include "transport/ucx/shared_internal.h"
#include "transport/ucx/ucx_transport.h"
#include "transport/ucx/worker_internal.h"

namespace shoal {

class Engine final : private UcxEvents {
 public:
  Engine(const UcxTransportOptions& options, Shared& shared, TransportHandler& handler);
  ~Engine() override;

  // On the thread that will call run(). Returns the address listened on, or "".
  Result<std::string> open();
  void run();  // until a stop command has been carried out

 private:
  struct Peer;

  // A data connection. One that was accepted belongs to nobody until its first frame tells whose it is.
  struct Endpoint : UcxLink {
    std::shared_ptr<UcxWorker> worker;
    ucp_ep_h handle = nullptr;
    Peer* peer = nullptr;
    bool is_broken = false;
    uint64_t attach_by_ms = 0;  // while it belongs to nobody
    ucs_status_ptr_t closing = nullptr;
  };

  struct Peer {
    PeerId id = 0;
    std::unique_ptr<Session> session;
    bool is_connector = false;
    std::string address;         // as connect() was given it
    SocketAddress door_address;  // of a connector
    std::optional<DoorConnection> door;
    uint32_t door_interest = 0;  // epoll's events
    Endpoint* endpoint = nullptr;
    std::shared_ptr<UcxWorker> worker;  // of the endpoint, once there was one; operations may outlive that
    Status link_error;                  // not OK: nothing can be sent
    std::string lanes;

    std::deque<Bytes> outbox;
    Bytes bulk;  // the message that goes in chunks
    size_t bulk_offset = 0;
    bool chunk_under_way = false;
    size_t eager_under_way = 0;
    size_t operations_under_way = 0;  // of any kind
    size_t sent_messages = 0;         // not told yet

    void* announced = nullptr;  // chunk that waits to be fetched
    size_t announced_bytes = 0;
    size_t reserved_bytes = 0;  // of the inbound bound

    bool is_expected = false;  // a listener's, proven and not yet attached
    bool was_reported_up = false;
    bool is_over = false;     // reported lost
    uint64_t cut_at_ms = 0;   // when over: wait so long for the peer to have read why
    bool is_closing = false;  // its connections are being closed
    bool is_marked = false;
  };

  struct Operation : UcxOperation {
    enum class Kind { control, eager, chunk, fetch };
    Kind kind = Kind::control;
    Peer* peer = nullptr;
    FrameHeaderBytes header{};
    Bytes payload;  // of control and eager
    size_t bytes = 0;
    std::list<Operation>::iterator self;
  };

  void on_connection_request(UcxWorker& worker, ucp_conn_request_h request) noexcept override;
  void on_frame(ucp_ep_h handle, ByteView header, ByteView payload) noexcept override;
  bool on_announced(ucp_ep_h handle, ByteView header, void* descriptor, size_t bytes) noexcept override;
  void on_endpoint_error(UcxLink& link, ucs_status_t status) noexcept override;
  void on_done(UcxOperation& operation, ucs_status_t status) noexcept override;

  // The loop (engine.cpp).
  bool take_work();
  void put_out(Peer& peer, OutgoingQueues::Batch& batch);
  void carry_out(Command& command);
  void service_marked();
  void tick();
  void sleep();
  bool has_stopped();
  void end_all(const Status& why);

  // Connections: the door and data connections (engine_links.cpp).
  void poll_door(int timeout_ms);
  void accept_visitors();
  void turn_away(FileDescriptor socket, const std::string& from, const Status& why);
  bool turn_away_in_place();
  void update_door_interest();
  void watch(Peer& peer, DoorConnection door);
  void progress_door(Peer& peer);
  void close_door(Peer& peer);
  void offer_data_port(Peer& peer);
  void connect_data(Peer& peer);
  void adopt(Result<ucp_ep_h> handle, std::unique_ptr<Endpoint> endpoint);
  void accept_requests();
  Peer* attach(Endpoint& endpoint, ByteView header);
  void close_endpoint(Endpoint& endpoint);
  void stop_waiting_for(Peer& peer);

  // Workers (engine_workers.cpp).
  Status open_worker();
  void renew_worker();
  void retire_idle_workers();
  bool progress_workers();
  bool arm_workers();
  void tidy_links();

  // Peers (engine_peers.cpp).
  Peer* find(PeerId peer);
  Peer& add(PeerId id, bool is_connector, const std::string& remote);
  void begin_connect(PeerId id, const std::string& address);
  void connect_door(Peer& peer, const SocketAddress& address);
  void mark(Peer& peer);
  void break_link(Peer& peer, const Status& why);
  void service(Peer& peer);
  bool send_control(Peer& peer);
  void report(Peer& peer);
  void report_up(Peer& peer);
  void end_peer(Peer& peer, bool said_why);
  void cut(Peer& peer);
  void reap();

  // Data (engine_data.cpp).
  void pump(Peer& peer);
  void send_eager(Peer& peer, Bytes message);
  void send_chunk(Peer& peer);
  void start_fetches();
  void fetch(Peer& peer);
  void fetched(Peer& peer);
  void submit(Operation::Kind kind, Peer& peer, const FrameHeaderBytes& header, Bytes payload,
              ByteView chunk);
  void done(Operation& operation, const Status& status);
  bool is_idle(const Peer& peer) const;

  UcxTransportOptions options_;
  Shared& shared_;
  TransportHandler& handler_;
  std::shared_ptr<const Bytes> token_;
  LivedClock clock_;
  InboundTurns turns_;
  uint64_t now_ms_ = 0, next_due_ms_ = 0;

  FileDescriptor poll_fd_;
  std::optional<DoorListener> door_listener_;
  SpareDescriptor spare_descriptor_;
  SocketAddress listen_address_;
  bool is_door_open_ = false;        // the listener is watched
  uint64_t door_shut_until_ms_ = 0;  // no descriptor was left

  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, Peer*> by_tag_;  // proven listener's sessions that wait to be attached
  std::vector<PeerId> marked_;
  std::vector<PeerId> closing_;
  // Sent to peers that no command taken yet connects to: the next ones do, or they are gone.
  std::vector<OutgoingQueues::Batch> early_;
  size_t unproven_ = 0;  // listener's sessions that are not up

  std::unordered_map<ucp_ep_h, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_endpoints_;
  std::vector<Endpoint*> unattached_;
  struct ConnectionRequest {
    std::shared_ptr<UcxWorker> worker;
    ucp_conn_request_h handle = nullptr;
  };
  std::vector<ConnectionRequest> requests_;
  uint16_t data_port_ = 0;  // of worker_, while it listens

  enum class Stage { serving, draining, parting, stopped };
  Stage stage_ = Stage::serving;
  uint64_t stop_at_ms_ = 0;  // of the monotonic clock: the end of the stage
  uint32_t parting_ms_ = 0;

  std::list<Operation> operations_;  // outlives the workers: UCX may still know them
  std::shared_ptr<UcxWorker> worker_;
  InterfaceAddresses interfaces_;  // those that worker_ knows
  uint64_t check_interfaces_at_ms_ = 0;
  struct RetiredWorker {
    std::shared_ptr<UcxWorker> worker;
    uint64_t listens_until_ms = 0;
  };
  std::vector<RetiredWorker> retired_workers_;  // they have connections that were made before worker_ was
  std::unique_ptr<Resolver> resolver_;          // its answers come through shared_
};

}  // namespace shoal
