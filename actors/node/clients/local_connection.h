// The connection of one client to the node: one thread reads and one writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/node/clients/local_server.h"
#include "base/owned_fd.h"

namespace shoal::actors {

class LocalServer::Connection {
 public:
  Connection(LocalServer& server, ClientId id, base::OwnedFd fd);
  ~Connection();  // closes, and joins both threads

  bool start();  // false: the connection cannot be served
  void send(std::shared_ptr<const local::LocalMessage> message);
  void fail(const Status& why);  // sends local::Failed as the last message
  void finish_writing();         // sends what is queued, then ends the connection
  void close();                  // makes both threads end soon
  void join();                   // call after close
  bool has_ended() const { return has_ended_.load(); }
  // Whether the thread has read since takes_clients_ became false, and found nothing.
  bool is_silent() const { return is_silent_.load(); }

 private:
  void read_loop();
  void write_loop();
  bool has_failed();
  bool may_attach_again() const;
  Status attach();
  Status handle(local::ReceivedLocal received);

  LocalServer& server_;
  const ClientId id_;
  local::LocalSocket socket_;
  std::optional<Rank> rank_;  // set once attached; used by the reading thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const local::LocalMessage>> outgoing_;
  bool is_last_queued_ = false;  // nothing may be queued after this; the writer ends when the queue is empty
  bool has_failed_ = false;      // Failed is queued or sent

  std::atomic<bool> has_ended_{false}, is_silent_{false};
  std::thread reader_, writer_;
};

}  // namespace shoal::actors
