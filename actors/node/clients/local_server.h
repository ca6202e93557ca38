// LocalServer: the node's side of the unix socket. It accepts clients, checks their Attach before a role sees
// it, maps their slabs, and carries messages both ways. A client that sends garbage, does not read, or dies
// affects no other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/node/clients/slab_table.h"
#include "actors/operation.h"
#include "base/descriptors.h"
#include "local/messages/messages.h"
#include "local/socket/socket.h"
#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::actors {

inline constexpr size_t kMaxLocalClients = 1024;       // attached or not; further ones are rejected
inline constexpr size_t kMaxOutgoingPerClient = 4096;  // messages; a client that does not read them is closed
inline constexpr uint32_t kAttachTimeoutMs = 10'000;   // from the connection to its Attach
// Until an earlier client of the same rank must have ended.
inline constexpr uint32_t kSameRankPatienceMs = 2'000;

// Called on the reading thread of a client, in the order of its messages.
class LocalEvents {
 public:
  virtual ~LocalEvents() = default;
  // Attach comes first, after its checks. Then come all other messages, a Slab once it is mapped. May block:
  // the client then waits.
  virtual void from_client(ClientId client, std::shared_ptr<const local::LocalMessage> message) = 0;
  // The last call for a client that attached. The next client of its rank may have attached before.
  // `process_lives`: event::ClientLost.
  virtual void client_lost(ClientId client, bool process_lives) = 0;
  // The answer to a process that sent statusRequest. Never null. Must not wait for a role.
  virtual std::shared_ptr<const local::NodeStatus> status() = 0;
  // The answer to a process that sent jobStatusRequest. Never null. May wait for other nodes, for
  // kJobStatusPatienceMs at most; the process then waits.
  virtual std::shared_ptr<const local::JobStatus> job_status() = 0;
};

struct LocalServerOptions {
  std::string socket_file;
  std::string job_id;
  uint32_t world_size = 0;           // 0: that of the first client
  std::vector<Rank> expected_ranks;  // empty: any
  bool read_only = false;            // accepts only clients that only read; they save nothing
  // A client of another run is asked to try again, because this node will end (is_requested_by_another_run).
  bool makes_way = false;
  size_t clients_max = kMaxLocalClients;
  size_t outgoing_max = kMaxOutgoingPerClient;
  uint32_t attach_timeout_ms = kAttachTimeoutMs;
  uint32_t same_rank_patience_ms = kSameRankPatienceMs;
};

class LocalServer {
 public:
  // Listens. Accepts no client before serve(). `slabs` and `events` outlive the server.
  static Result<std::unique_ptr<LocalServer>> listen(LocalServerOptions options, SlabTable& slabs,
                                                     LocalEvents& events);
  ~LocalServer();  // closes every connection, and removes the socket file

  void serve();  // call once

  // Any thread; never blocks. Closes the connection after a local::Failed. Does nothing if the client is
  // gone.
  void send(ClientId client, std::shared_ptr<const local::LocalMessage> message);
  size_t clients() const;   // connected now
  size_t attached() const;  // ranks that are attached
  bool is_attached(Rank rank) const;
  // Since a trainer of this run attached last.
  bool is_requested_by_another_run() const { return is_requested_by_another_run_.load(); }

  // From now on rejects new clients at once, with this cause. Clients that are here stay.
  void refuse_new(Status why);
  // Call after refuse_new. Waits, at most timeout_ms, until everything that clients have sent is handled.
  bool settle(uint32_t timeout_ms);
  // Sends local::Failed to all clients, after what was sent before.
  void fail_all(const Status& why);
  // Ends every connection, after at most flush_ms to send what is queued. After it returns, no event follows
  // and send() does nothing.
  void close_all(uint32_t flush_ms);

 private:
  class Connection;
  LocalServer(LocalServerOptions options, std::unique_ptr<local::LocalListener> listener, SlabTable& slabs,
              LocalEvents& events);
  void accept_loop();
  void turn_away_in_place();
  void join_ended();
  Status check_attach(const local::Attach& attach);
  Status refusal(const local::Attach& attach) const;  // OK: clients are accepted
  Status take_rank(const local::Attach& attach, ClientId client);
  Status of_another_kind(const local::Attach& attach) const;
  Status of_another_run(std::string what);
  void release_rank(Rank rank);
  void connection_ended();

  const LocalServerOptions options_;
  SlabTable& slabs_;
  LocalEvents& events_;
  std::unique_ptr<local::LocalListener> listener_;  // used by the accepting thread, as the next member
  base::SpareDescriptor spare_descriptor_;
  std::atomic<bool> takes_clients_{true}, is_listening_{true};
  std::atomic<bool> is_requested_by_another_run_{false};
  mutable std::mutex mutex_;
  Status refusal_;
  std::condition_variable changed_;  // a connection has ended or become silent
  std::map<ClientId, std::shared_ptr<Connection>> connections_;
  bool is_closed_ = false;
  std::map<Rank, ClientId> ranks_;
  // The process of each rank. It counts its calls of save, so another process of the rank belongs to another
  // run.
  std::map<Rank, Nonce> processes_;
  uint32_t world_size_;
  ClientId next_client_ = 1;
  std::thread accepting_;
};

}  // namespace shoal::actors
