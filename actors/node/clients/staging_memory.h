// StagingMemory: grants memory for slabs to the clients of a live node. StagingBudget decides. This class
// reads the memory of the host and the time, and sends the messages.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "actors/node/clients/staging_budget.h"
#include "base/memory_headroom.h"
#include "local/messages/messages.h"

namespace shoal::actors {

class StagingMemory {
 public:
  struct Surroundings {
    std::function<HostMemory()> memory;
    std::function<void(ClientId client, std::shared_ptr<const local::LocalMessage> message)> send;
    std::function<void(const std::string& line)> log;
  };
  StagingMemory(const StagingLimits& limits, Surroundings surroundings);

  // All methods may be called on any thread, and do not block.
  void from_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void to_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void client_lost(TimeNs now, ClientId client);
  void forget_client(ClientId client);  // its slabs are unmapped
  // Call it often: answers requests that have waited long enough, and requests slabs back if memory is short.
  void tick(TimeNs now);

 private:
  void decide(TimeNs now);

  const StagingLimits limits_;
  const Surroundings surroundings_;
  std::mutex mutex_;
  StagingBudget budget_;
  TimeNs looked_ = 0;  // when tick last read the host's memory
};

// The free memory of this process's cgroup and of the machine, less a reserve for everything else on the
// host. The reserve takes nothing of the last kLeastStagingBytes.
HostMemory memory_of_this_host(uint64_t bytes_max, const base::MemoryFiles& files = {});

}  // namespace shoal::actors
