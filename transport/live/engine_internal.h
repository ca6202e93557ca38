// Engine: what the transport's one thread does. It owns the listener, all connections and all sessions, feeds
// sessions with what arrives, sends what they and the users want sent, and calls the handler.
//
// Every session begins on a TCP connection with TLS (a stream). Whoever has not proven the token there is
// unproven: few of those are kept, for a short time, and they are closed first. A session of TransportKind::
// tcp stays on its stream; one of ucx goes on by an endpoint of UCX, and its stream is closed.
//
// UCX's callbacks only note what happened and mark the peer; everything else happens in the round after:
// service() brings one marked peer up to date.
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
#include "transport/inbound_turns.h"
#include "transport/live/make_transport.h"
#include "transport/live/shared_internal.h"
#include "transport/lived_clock.h"
#include "transport/session.h"
#include "transport/tcp/frame_stream.h"
#include "transport/ucx/interfaces_internal.h"
#include "transport/ucx/worker_internal.h"

namespace shoal::transport {

class Engine final : private UcxEvents {
 public:
  Engine(const TransportOptions& options, Shared& shared, TransportHandler& handler);
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
    std::string address;           // as connect() was given it
    std::string host;              // that a listener's comes from
    SocketAddress socket_address;  // that the stream goes to, or comes from
    std::optional<FrameStream> stream;
    uint32_t stream_interest = 0;  // epoll's events
    bool is_proven = false;        // both sides know the token
    bool stays_on_stream = false;  // TransportKind::tcp, once the listener has let the connector in
    bool holds_spare = false;      // its socket took the spare descriptor
    bool goes_on = false;          // in again_
    uint64_t came_at_ms = 0;       // a listener's
    std::optional<std::list<PeerId>::iterator> unproven;  // a listener's, until it is proven
    Endpoint* endpoint = nullptr;
    std::shared_ptr<UcxWorker> worker;  // of the endpoint, once there was one; operations may outlive that
    Status link_error;                  // not OK: nothing can be sent
    std::string lanes;

    std::deque<Bytes> outbox;
    Bytes bulk;  // the message that goes in chunks
    size_t bulk_offset = 0;
    bool chunk_under_way = false;
    size_t eager_under_way = 0;
    struct QueuedMessage {
      uint64_t end = 0;  // of all bytes that were queued in the stream
      size_t bytes = 0;
    };
    std::deque<QueuedMessage> eager_in_stream;
    size_t chunk_bytes = 0;           // of the chunk that is under way
    size_t operations_under_way = 0;  // of UCX, of any kind
    size_t sent_messages = 0;         // not told yet

    void* announced = nullptr;  // by UCX: chunk that waits to be fetched
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

  // Who comes: the listener, and those who have proven nothing yet (engine_door.cpp).
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
  void begin_stream(Peer& peer, FileDescriptor socket);
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
  void choose_data_way(Peer& peer);  // of a connector
  void connect_data(Peer& peer);
  void adopt(Result<ucp_ep_h> handle, std::unique_ptr<Endpoint> endpoint);
  void accept_requests();
  Peer* attach(Endpoint& endpoint, ByteView header);
  void close_endpoint(Endpoint& endpoint);
  void stop_waiting_for(Peer& peer);

  // UCX: its workers (engine_ucx_workers.cpp). There is none before the first session needs it.
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
  void end_peer(Peer& peer, bool said_why);
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

  bool may_use_rdma_ = false;  // as a listener, where nobody chose the transport
  std::shared_ptr<TlsContext> tls_;

  FileDescriptor poll_fd_, wake_fd_;
  std::atomic<bool> is_woken_ = false;  // wake_fd_ was written to
  bool has_been_woken_ = false;         // and read since the work was last taken
  std::optional<Listener> listener_;
  base::SpareDescriptor spare_descriptor_;
  SocketAddress listen_address_;
  bool is_listener_watched_ = false;
  uint64_t listener_shut_until_ms_ = 0;  // no descriptor was left, or all who are unproven are too young

  size_t strangers_ = 0;        // of peers_, those that never proved the token
  std::list<PeerId> unproven_;  // listener's sessions that have not proven the token, in the order they came
  std::unordered_map<std::string, size_t> unproven_by_host_;
  struct Flood {  // who was closed unproven to make room, since it was last reported
    std::unordered_map<std::string, uint64_t> by_host;
    uint64_t closed = 0, report_at_ms = 0;
  };
  Flood flood_;

  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::unordered_map<uint64_t, Peer*> by_tag_;  // proven listener's sessions that wait to be attached
  std::vector<PeerId> marked_;
  std::vector<PeerId> again_;  // streams that go on without a word of epoll
  std::vector<PeerId> closing_;
  // Sent to peers that no command taken yet connects to: the next ones do, or they are gone.
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
  std::string data_host_;   // likewise

  enum class Stage { serving, draining, parting, stopped };
  Stage stage_ = Stage::serving;
  uint64_t stop_at_ms_ = 0;  // of the monotonic clock: the end of the stage
  uint32_t parting_ms_ = 0;

  std::list<Operation> operations_;  // outlives the workers: UCX may still know them
  std::shared_ptr<UcxWorker> worker_;
  InterfaceAddresses interfaces_;  // those that were there when worker_ was opened
  std::set<std::string> devices_;  // that worker_ may use: those by which sessions came
  uint64_t check_interfaces_at_ms_ = 0;
  struct RetiredWorker {
    std::shared_ptr<UcxWorker> worker;
    uint64_t listens_until_ms = 0;
  };
  std::vector<RetiredWorker> retired_workers_;  // they have connections that were made before worker_ was
  std::unique_ptr<Resolver> resolver_;          // its answers come through shared_
};

}  // namespace shoal::transport
