// RelayServer: a node's side towards its children, while it serves as a relay. A listener of its own lets
// them in, by the job's token as any node does; what they say goes to the coordinator in order, and back.
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
#include "actors/node/watch/refusal_lines.h"
#include "transport/live/make_transport.h"
#include "transport/transport.h"

namespace shoal::actors {

struct RelayCounts {
  size_t children = 0;  // now
  uint64_t messages_up = 0, messages_down = 0;
  uint64_t dropped = 0;  // for which there was no room
};

class RelayServer final : private transport::TransportHandler {
 public:
  struct Settings {
    transport::TransportOptions transport;              // identity and token; where it listens is found out
    uint64_t trainers = 0;                              // of this host, for the count of descriptors
    std::function<void(const std::string& line)> log;   // any thread
    std::function<void(const std::string& line)> warn;  // any thread; not set: as log
  };
  // To the coordinator: Code::busy, try again; anything else that is not OK, it is gone.
  using SendUp = std::function<Status(Bytes message)>;

  RelayServer(Settings settings, SendUp send_up);
  ~RelayServer() override;  // children are told that the node stops

  // Any thread; neither blocks. Serves at an address of the interface by which `coordinator` is reached; the
  // coordinator hears RelayReady or RelayFailed. `followed`: its identity, of the session that this was asked
  // in. Until close, when that session ends: the children are let go, and look for the coordinator
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
  void say(uint64_t child, const LinkMessage& message, bool must_go);

  const Settings settings_;
  const SendUp send_up_;
  RefusalLines refusals_{"the relay's door"};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Grant> wanted_;
  uint64_t grants_ = 0;
  uint64_t opened_ = 0;  // the grant that transport_ serves; 0: none
  std::unique_ptr<transport::Transport> transport_;
  RelayQueue queue_;
  RelayCounts counts_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace shoal::actors
