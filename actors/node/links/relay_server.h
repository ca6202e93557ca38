// RelayServer: serves children while this node is a relay. It has its own listener, and authenticates
// children by the job's token like any node. It passes their messages to the coordinator in order, and back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/messages/link_messages.h"
#include "actors/node/links/relay_queue.h"
#include "actors/node/watch/rejection_lines.h"
#include "transport/live/make_transport.h"
#include "transport/transport.h"

namespace shoal::actors {

struct RelayCounts {
  size_t children = 0;  // connected now
  uint64_t messages_up = 0, messages_down = 0;
  uint64_t dropped = 0;  // because there was no room
};

class RelayServer final : private transport::TransportHandler {
 public:
  struct Settings {
    transport::TransportOptions transport;              // identity and token; RelayServer sets the address
    uint64_t trainers = 0;                              // of this host, for the number of descriptors
    std::function<void(const std::string& line)> log;   // any thread
    std::function<void(const std::string& line)> warn;  // any thread; not set: as log
  };
  // To the coordinator. Code::busy: try again; any other error: the session is gone.
  using SendUp = std::function<Status(Bytes message)>;

  RelayServer(Settings settings, SendUp send_up);
  ~RelayServer() override;  // children receive the cause that the node stops

  // Any thread; neither blocks. Serves at an address of the interface on the route to `coordinator`, and
  // sends it RelayReady or RelayFailed. `followed`: its identity in the session that requested this. Call
  // close() when that session ends: it ends the sessions of the children, which look for the coordinator
  // themselves.
  void open(const std::string& coordinator, const transport::Identity& followed, uint32_t children_max);
  void close();
  void to_child(uint64_t child, Bytes message);
  void drop_child(uint64_t child, const Status& why);
  RelayCounts counts() const;

 private:
  struct Grant {
    std::string coordinator;
    transport::Identity followed;
    uint32_t children_max = 0;
    uint64_t number = 0;
  };
  void on_peer_up(transport::PeerId child, const transport::Identity& identity) override;
  void on_message(transport::PeerId child, Bytes message) override;
  void on_peer_lost(transport::PeerId child, const Status& why) override;
  void on_refused(const std::string& address, const Status& why) override;

  void run();
  void change(std::unique_lock<std::mutex>& lock);
  Result<LinkMessage> start_listening(const Grant& grant, std::unique_ptr<transport::Transport>* transport);
  void pump(std::unique_lock<std::mutex>& lock);
  void notify(uint64_t child, const LinkMessage& message, bool must_go);

  const Settings settings_;
  const SendUp send_up_;
  RejectionLines rejections_{"the listener of the relay"};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Grant> wanted_;
  uint64_t grants_ = 0;
  uint64_t opened_ = 0;  // number of the grant that transport_ serves; 0: none
  std::unique_ptr<transport::Transport> transport_;
  RelayQueue queue_;
  RelayCounts counts_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace shoal::actors
