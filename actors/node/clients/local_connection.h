// One client's connection to the node: a thread that reads and a thread that writes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/node/clients/local_server.h"

namespace shoal::actors {

class LocalServer::Connection {
 public:
  Connection(LocalServer& server, ClientId id, local::OwnedFd fd);
  ~Connection();  // closes and joins

  bool start();  // false: the connection cannot be served
  void send(std::shared_ptr<const local::LocalMessage> message);
  void fail(const Status& why);  // the last that it is told
  void finish_writing();         // what is queued is sent, then the connection ends
  void close();                  // both threads end soon
  void join();                   // after close
  bool has_ended() const { return has_ended_.load(); }
  // Read since takes_clients_ became false, and found nothing more to read.
  bool is_silent() const { return is_silent_.load(); }

 private:
  void read_loop();
  void write_loop();
  Status attach();
  Status handle(local::ReceivedLocal received);

  LocalServer& server_;
  const ClientId id_;
  local::LocalSocket socket_;
  std::optional<Rank> rank_;  // once attached; of the reading thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const local::LocalMessage>> outgoing_;
  bool is_last_queued_ = false;  // nothing is queued after this; the writer ends when the queue is empty

  std::atomic<bool> has_ended_{false}, is_silent_{false};
  std::thread reader_, writer_;
};

}  // namespace shoal::actors
