// StagingMemory: grants memory for slabs to the clients of a live node. StagingBudget decides; this reads the
// host's memory, knows the time, and passes messages on.
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

  // Any thread; none waits for anybody.
  void from_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void to_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void client_lost(TimeNs now, ClientId client);
  void forget_client(ClientId client);  // its slabs are unmapped
  // Often: requests whose time is over are answered, and slabs asked back where memory is short.
  void tick(TimeNs now);

 private:
  void decide(TimeNs now);

  const StagingLimits limits_;
  const Surroundings surroundings_;
  std::mutex mutex_;
  StagingBudget budget_;
  TimeNs looked_ = 0;  // at the host's memory, by tick
};

// What this process's cgroup and the machine leave, less a reserve for everything else on the host; the
// reserve takes nothing of the last kLeastStagingBytes.
HostMemory memory_of_this_host(uint64_t bytes_max, const base::MemoryFiles& files = {});

}  // namespace shoal::actors
