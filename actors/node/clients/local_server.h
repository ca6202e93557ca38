// LocalServer: the node's side of the unix socket. Takes clients in, checks what they must be before a role
// hears of them, maps their slabs, and carries messages both ways. A client that sends garbage, never reads
// or dies harms nobody else.
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

inline constexpr size_t kMaxLocalClients = 1024;        // attached or not; further ones are turned away
inline constexpr size_t kMaxOutgoingPerClient = 4096;   // messages; one that does not read them is closed
inline constexpr uint32_t kAttachTimeoutMs = 10'000;    // from the connection to its Attach
inline constexpr uint32_t kSameRankPatienceMs = 2'000;  // for the end of an earlier client of the same rank

// Called on a client's own reading thread, in the order of what it said.
class LocalEvents {
 public:
  virtual ~LocalEvents() = default;
  // Attach comes first, checked; then whatever else a client may say, a Slab once it is mapped. May block:
  // the client waits then.
  virtual void from_client(ClientId client, std::shared_ptr<const local::LocalMessage> message) = 0;
  virtual void client_lost(ClientId client) = 0;  // last of a client that attached
  // What is told to whoever asks in place of attaching. Never null; must not wait for a role.
  virtual std::shared_ptr<const local::NodeStatus> status() = 0;
};

struct LocalServerOptions {
  std::string socket_file;
  std::string job_id;
  uint32_t world_size = 0;           // 0: that of the first client
  std::vector<Rank> expected_ranks;  // empty: any
  bool read_only = false;            // clients that only read are taken in, no others; they save nothing
  // A client of another run is told to try again, for this node will end: is_wanted_by_another_run.
  bool makes_way = false;
  size_t clients_max = kMaxLocalClients;
  size_t outgoing_max = kMaxOutgoingPerClient;
  uint32_t attach_timeout_ms = kAttachTimeoutMs;
  uint32_t same_rank_patience_ms = kSameRankPatienceMs;
};

class LocalServer {
 public:
  // Listens; nobody is taken in before serve. `slabs` and `events` outlive the server.
  static Result<std::unique_ptr<LocalServer>> listen(LocalServerOptions options, SlabTable& slabs,
                                                     LocalEvents& events);
  ~LocalServer();  // closes every connection; removes the socket file

  void serve();  // once

  // Any thread; never blocks. After local::Failed the connection is closed. Ignored if the client is gone.
  void send(ClientId client, std::shared_ptr<const local::LocalMessage> message);
  size_t clients() const;   // connected now
  size_t attached() const;  // ranks among them
  bool is_attached(Rank rank) const;
  bool is_wanted_by_another_run() const { return is_wanted_by_another_run_.load(); }

  // No more clients from now on: who comes is told why, at once. Those that are here stay.
  void refuse_new(Status why);
  // After refuse_new: waits until all that clients have sent so far was handed on, at most that long.
  bool settle(uint32_t timeout_ms);
  // Everybody hears local::Failed, after what was said before.
  void fail_all(const Status& why);
  // Ends every connection, after trying that long to send what is queued. No event follows its return, and
  // send does nothing from then on.
  void close_all(uint32_t flush_ms);

 private:
  class Connection;
  LocalServer(LocalServerOptions options, std::unique_ptr<local::LocalListener> listener, SlabTable& slabs,
              LocalEvents& events);
  void accept_loop();
  void turn_away_in_place();
  void join_ended();
  Status check_attach(const local::Attach& attach);
  Status refusal(const local::Attach& attach) const;  // OK: clients are taken in
  Status take_rank(const local::Attach& attach, ClientId client);
  Status of_another_kind(const local::Attach& attach) const;
  Status of_another_run(std::string what);
  void release_rank(Rank rank);
  void connection_ended();

  const LocalServerOptions options_;
  SlabTable& slabs_;
  LocalEvents& events_;
  std::unique_ptr<local::LocalListener> listener_;  // of the accepting thread, as is the next
  base::SpareDescriptor spare_descriptor_;
  std::atomic<bool> takes_clients_{true}, is_listening_{true};
  std::atomic<bool> is_wanted_by_another_run_{false};
  mutable std::mutex mutex_;
  Status refusal_;
  std::condition_variable changed_;  // a connection ended, or fell silent
  std::map<ClientId, std::shared_ptr<Connection>> connections_;
  bool is_closed_ = false;
  std::map<Rank, ClientId> ranks_;
  // Each rank's process, which counts its calls of save: another process of that rank is another run's.
  std::map<Rank, Nonce> processes_;
  uint32_t world_size_;
  ClientId next_client_ = 1;
  std::thread accepting_;
};

}  // namespace shoal::actors
