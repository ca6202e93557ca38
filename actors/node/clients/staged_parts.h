// StagedParts: connects operations that write a save in parts with the client that copies the parts.
// docs/reference/client-node.md, "In parts".
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"
#include "local/messages/messages.h"

namespace shoal::actors {

// A trainer that stages in parts does nothing else. If it has not copied a part after this time, it is
// suspended.
inline constexpr std::chrono::milliseconds kPartPatience{60'000};

class StagedParts {
 public:
  using Send = std::function<void(ClientId client, std::shared_ptr<const local::LocalMessage> message)>;
  explicit StagedParts(Send send, std::chrono::milliseconds patience = kPartPatience)
      : send_(std::move(send)), patience_(patience) {}

  // All methods may be called on any thread.
  //
  // Reserves the slab for this caller, as long as the result exists. Blocks while another caller has it.
  // Code::unavailable: its client has gone.
  Result<std::unique_ptr<PartSource>> open(ClientId client, uint32_t slab_id, const AttemptKey& key);
  void client_attached(ClientId client);
  void answered(ClientId client, const local::PartStaged& received);
  void client_lost(ClientId client);  // ends all waits for this client
  void close();                       // ends all waits

 private:
  class Source;
  struct Asked {
    ClientId client = 0;
    uint32_t slab_id = 0;
    bool is_answered = false;
    Status outcome;
  };
  Status gone(ClientId client) const;  // with the mutex held; OK: the client is here

  const Send send_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::set<ClientId> here_;
  std::set<std::pair<ClientId, uint32_t>> in_use_;  // slabs
  std::map<uint64_t, Asked> asked_;                 // by number
  uint64_t last_number_ = 0;
};

}  // namespace shoal::actors
