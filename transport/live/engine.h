// Engine: the code of the transport's one thread. It owns the listener, all connections and all sessions. It
// passes received frames to the sessions, sends the frames of sessions and users, and calls the handler.
//
// Every session begins on a TCP connection with TLS (a stream). A peer that has not proven the token is
// unproven: there are few of these, they are kept for a short time, and they are closed first. A session of
// TransportKind::tcp stays on its stream. A session of TransportKind::ucx moves to a UCX endpoint, and its
// stream is closed.
//
// UCX's callbacks only record what happened and mark the peer. The next round does the work: service() brings
// one marked peer up to date.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/descriptors.h"
#include "base/owned_fd.h"
#include "transport/inbound_turns.h"
#include "transport/live/make_transport.h"
#include "transport/live/peer_states.h"
#include "transport/live/shared.h"
#include "transport/lived_clock.h"
#include "transport/session.h"
#include "transport/tcp/frame_stream.h"
#include "transport/ucx/interfaces.h"
#include "transport/ucx/worker.h"

namespace shoal::transport {

class Engine final : private UcxEvents {
 public:
  Engine(const TransportOptions& options, Shared& shared, TransportHandler& handler);
  ~Engine() override;

  // Must be called on the thread that calls run(). Returns the address on which it listens, or "".
  Result<std::string> open();
  void run();  // returns after it has executed a stop command

 private:
  struct Peer;

  // A data connection. An accepted one has no peer until its first frame identifies the peer.
  struct Endpoint : UcxLink {
    std::shared_ptr<UcxWorker> worker;
    ucp_ep_h handle = nullptr;
    Peer* peer = nullptr;
    bool is_broken = false;
    uint64_t attach_by_ms = 0;  // while it has no peer
    ucs_status_ptr_t closing = nullptr;
  };

  struct Peer {
    PeerId id = 0;
    PeerMachine life{PeerState::proving};
    PathMachine path{PathState::undecided};
    std::unique_ptr<Session> session;
    bool is_connector = false;
    std::string address;           // as passed to connect()
    std::string host;              // address from which a listener's peer comes
    bool awaits_address = false;   // its name is being resolved
    SocketAddress socket_address;  // to which the stream connects, or from which it comes
    std::optional<FrameStream> stream;
    uint32_t stream_interest = 0;                         // events registered with epoll
    bool holds_spare = false;                             // its socket uses the spare descriptor
    bool goes_on = false;                                 // listed in again_
    uint64_t came_at_ms = 0;                              // set on a listener
    std::optional<std::list<PeerId>::iterator> unproven;  // on a listener, until it is proven
    Endpoint* endpoint = nullptr;
    // Worker of the endpoint, once there was one. UCX operations may outlive the endpoint.
    std::shared_ptr<UcxWorker> worker;
    Status link_error;  // not OK: nothing can be sent
    std::string lanes;

    std::deque<Bytes> outbox;
    Bytes bulk;  // the message that is being sent in chunks
    size_t bulk_offset = 0;
    bool chunk_in_progress = false;
    size_t eager_in_progress = 0;
    struct QueuedMessage {
      uint64_t end = 0;  // position in all bytes queued in the stream
      size_t bytes = 0;
    };
    std::deque<QueuedMessage> eager_in_stream;
    size_t chunk_bytes = 0;             // of the chunk in transfer
    size_t operations_in_progress = 0;  // running UCX operations of any kind
    size_t sent_messages = 0;           // not reported with on_sent yet

    void* announced = nullptr;  // chunk that UCX announced and that waits to be fetched
    size_t announced_bytes = 0;
    size_t reserved_bytes = 0;  // reserved of the inbound bound

    uint64_t cut_at_ms = 0;  // while parting: wait until then so that the peer can read the reason
    bool is_marked = false;

    bool is_proven() const {
      return life.is_one_of(PeerState::greeting, PeerState::up, PeerState::parting, PeerState::closing);
    }
    bool is_closing() const { return life.is_one_of(PeerState::closing, PeerState::dropped); }
    bool is_over() const { return life.is(PeerState::parting) || is_closing(); }
    bool stays_on_stream() const { return path.is(PathState::stream); }
  };

  struct Operation : UcxOperation {
    enum class Kind { control, eager, chunk, fetch };
    Kind kind = Kind::control;
    Peer* peer = nullptr;
    FrameHeaderBytes header{};
    Bytes payload;  // for control and eager
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

  // The listener, and peers that have not proven the token (engine_listener.cpp).
  Status open_poll();
  void poll(int timeout_ms);
  void update_listener_interest();
  void shut_listener_until(uint64_t until_ms);
  void accept_visitors();
  bool accept_in_place();
  void add_visitor(Listener::Visitor visitor, bool holds_spare);
  Peer& first_to_go();
  static bool has_offered_key(const Peer& peer);
  uint64_t may_go_at_ms(const Peer& peer) const;
  void make_room(Peer& goes);
  void close_unproven(Peer& peer, const Status& why);
  void close_late_unproven();
  void forget_unproven(Peer& peer);
  void report_flood();
  Status prove(Peer& peer);
  size_t known_peers() const { return peers_.size() - strangers_; }

  // Streams (engine_streams.cpp).
  void begin_stream(Peer& peer, base::OwnedFd socket);
  void watch_stream(Peer& peer);
  void close_stream(Peer& peer);
  void stay_on_stream(Peer& peer);
  void go_on(Peer& peer);
  void go_on_with_streams();
  void progress_stream(Peer& peer);
  Status read_stream(Peer& peer);
  void take_event(Peer& peer, FrameStream::Event event);
  void take_frame(Peer& peer, bool is_malformed);
  void take_announcement(Peer& peer);
  void fetch_from_stream(Peer& peer);
  void push_control(Peer& peer, const OutgoingFrame& frame);
  void pump_stream(Peer& peer);
  void fill_stream(Peer& peer);
  void settle_sent(Peer& peer);
  void count_sent(Peer& peer, size_t bytes, bool is_chunk);
  void count_received(Peer& peer, size_t bytes);

  // UCX: its connections (engine_ucx.cpp).
  bool goes_by_ucx(const Peer& peer) const;
  void offer_data_port(Peer& peer);
  Status open_data_port(const Peer& peer);
  Result<uint16_t> listen_for_data(SocketAddress address);
  void choose_data_path(Peer& peer);  // on a connector
  void connect_data(Peer& peer);
  void adopt(Result<ucp_ep_h> handle, std::unique_ptr<Endpoint> endpoint);
  void accept_requests();
  Peer* attach(Endpoint& endpoint, ByteView header);
  void close_endpoint(Endpoint& endpoint);
  void stop_waiting_for(Peer& peer);

  // UCX: its workers (engine_ucx_workers.cpp). The first session that needs one creates it.
  Status open_worker();
  Status renew_worker(const Peer& peer);
  void retire_idle_workers();
  bool progress_workers();
  bool arm_workers();
  void tidy_links();

  // Peers (engine_peers.cpp).
  Peer* find(PeerId peer);
  Peer& add(PeerId id, bool is_connector, const std::string& remote);
  void begin_connect(PeerId id, const std::string& address);
  void connect_stream(Peer& peer, const SocketAddress& address);
  void mark(Peer& peer);
  void break_link(Peer& peer, const Status& why);
  void service(Peer& peer);
  bool send_control(Peer& peer);
  void report(Peer& peer);
  void report_up(Peer& peer);
  void end_peer(Peer& peer, bool reason_sent);
  void cut(Peer& peer);
  void reap();

  // UCX: data (engine_ucx_data.cpp).
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

  TransportOptions options_;
  Shared& shared_;
  TransportHandler& handler_;
  std::shared_ptr<const Bytes> token_;
  LivedClock clock_;
  InboundTurns turns_;
  uint64_t now_ms_ = 0, next_due_ms_ = 0;

  bool may_use_rdma_ = false;  // as a listener with TransportKind::automatic
  std::shared_ptr<TlsContext> tls_;

  base::OwnedFd poll_fd_, wake_fd_;
  std::atomic<bool> is_woken_ = false;  // wake_fd_ was written
  bool has_been_woken_ = false;         // and read since work was last taken
  std::optional<Listener> listener_;
  base::SpareDescriptor spare_descriptor_;
  SocketAddress listen_address_;
  bool is_listener_watched_ = false;
  // Set if no descriptor was left, or if all unproven peers are too young to close.
  uint64_t listener_shut_until_ms_ = 0;

  size_t strangers_ = 0;        // number of peers_ that never proved the token
  std::list<PeerId> unproven_;  // a listener's sessions that have not proven the token, oldest first
  std::unordered_map<std::string, size_t> unproven_by_host_;
  struct Flood {  // peers closed unproven to make room, since the last report
    std::unordered_map<std::string, uint64_t> by_host;
    uint64_t closed = 0, report_at_ms = 0;
  };
  Flood flood_;

  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, Peer*> by_tag_;  // a listener's proven sessions that wait to be attached
  std::vector<PeerId> marked_;
  std::vector<PeerId> again_;  // streams to continue in the next round without an epoll event
  std::vector<PeerId> closing_;
  // Messages to peers whose connect command was not taken yet, or that are gone.
  std::vector<OutgoingQueues::Batch> early_;

  std::unordered_map<ucp_ep_h, std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Endpoint>> closing_endpoints_;
  std::vector<Endpoint*> unattached_;
  struct ConnectionRequest {
    std::shared_ptr<UcxWorker> worker;
    ucp_conn_request_h handle = nullptr;
  };
  std::vector<ConnectionRequest> requests_;
  uint16_t data_port_ = 0;  // of worker_, while it listens
  std::string data_host_;   // of worker_, while it listens

  enum class Stage { serving, draining, parting, stopped };
  Stage stage_ = Stage::serving;
  uint64_t stop_at_ms_ = 0;  // end of the stage, on the monotonic clock
  uint32_t parting_ms_ = 0;
  Status stop_reason_;

  std::list<Operation> operations_;  // declared before the workers: UCX may still use them
  std::shared_ptr<UcxWorker> worker_;
  InterfaceAddresses interfaces_;  // that existed when worker_ was opened
  std::set<std::string> devices_;  // devices that worker_ may use: those from which sessions came
  uint64_t check_interfaces_at_ms_ = 0;
  struct RetiredWorker {
    std::shared_ptr<UcxWorker> worker;
    uint64_t listens_until_ms = 0;
  };
  std::vector<RetiredWorker> retired_workers_;  // they still have connections made before worker_ was opened
  std::unique_ptr<Resolver> resolver_;          // its answers arrive through shared_
};

}  // namespace shoal::transport
