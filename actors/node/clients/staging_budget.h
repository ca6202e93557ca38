// StagingBudget: divides the memory for slabs among the ranks of one host. docs/reference/client-node.md,
// "Slabs".
//
// A rank requests K slabs, each of which holds one of its saves. If that is at most its equal share of the
// free memory, it is granted at once. Otherwise it waits until every rank of the host has a request or a
// grant, or for gather_ms. Then all ranks that wait are granted together: as many slabs each as fit for all
// of them. If not even one slab each fits, the ranks share the free memory, and those whose slab is smaller
// than their save stage in parts. If a share is below least_bytes() for one rank, all requests are rejected:
// what the other ranks staged could never be committed.
//
// Memory that is granted and not allocated yet counts as used, so that no two ranks count on the same memory.
//
// If a rank holds more than its share and others are short of memory, it is requested to give its slabs back.
// If the host itself is short of memory, so is a rank that has staged nothing for a while.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/operation.h"
#include "actors/role.h"
#include "shoal/status.h"

namespace shoal::actors {

inline constexpr uint64_t kLeastStagingBytes = uint64_t{64} << 20;  // for one host
// One digest block for each half of the slab: one half is written while the other is filled.
inline constexpr uint64_t kLeastPartSlabBytes = uint64_t{2} << 20;
// A larger slab makes a save in parts no faster: it ends when everything is written.
inline constexpr uint64_t kMostPartSlabBytes = uint64_t{256} << 20;
static_assert(kLeastStagingBytes % kLeastPartSlabBytes == 0);

// The memory that a host has left.
struct HostMemory {
  uint64_t free_bytes = 0;
  std::string because;  // the limit that determines free_bytes
};

struct StagingLimits {
  uint64_t bytes_max = 0;  // bound of all slabs of the host; 0: none
  // Ranks of the host; 0: as clients state, or the number that attach.
  uint32_t ranks = 0;
  uint32_t gather_ms = 3'000;  // wait for ranks that have not sent a request
  // Wait for ranks that must give back, or that allocate what they were granted.
  uint32_t patience_ms = 60'000;
  // If the host has less memory left than this, slabs that were not used for idle_ms are given back.
  uint64_t pressure_bytes = uint64_t{256} << 20;
  uint32_t idle_ms = 10'000;
};

class StagingBudget {
 public:
  explicit StagingBudget(const StagingLimits& limits) : limits_(limits) {}

  void attach(ClientId client, const local::Attach& message);
  // The client is gone. Its slabs count until forget().
  void lose(ClientId client);
  void forget(ClientId client);
  // Replaces an earlier request or grant of this client.
  void want(TimeNs now, ClientId client, const local::StagingRequest& wanted);
  // A slab of the client is in memory. Only slabs for saves count, not windows of loads.
  void add_slab(ClientId client, const local::Slab& slab);
  void keep(ClientId client, const local::StagingKept& kept);
  void use(TimeNs now, ClientId client);  // the client has staged, or its slab was freed

  struct Decision {
    ClientId client = 0;
    std::optional<local::StagingGranted> granted;  // nullopt: the client must give back
    // Human-readable, if it gets less than requested: once, until its number of slabs changes.
    std::string news;
  };
  // The messages to send now. Call it after each change, and regularly.
  std::vector<Decision> decide(TimeNs now, const HostMemory& memory);
  bool has_waiting() const;
  bool holds_any() const;  // slabs or grants

  uint64_t least_bytes() const;  // least grant of a rank that stages in parts

 private:
  struct Shortage {  // 0 slabs: no shortage
    bool in_parts = false;
    uint32_t slabs = 0;
    bool operator==(const Shortage&) const = default;
  };
  struct Holder {
    Rank rank = 0;
    bool is_here = true;
    uint64_t granted = 0;  // bound of its slabs together
    uint32_t slabs_wanted = 0;
    std::map<uint32_t, uint64_t> slabs;  // sizes of its slabs, including windows of loads
    bool in_parts = false;               // of its grant
    bool is_making = false;              // has a new grant, and has allocated no slab since
    bool is_giving_back = false;
    TimeNs used = 0;
    std::optional<local::StagingRequest> wanted;  // its request, while it waits
    TimeNs since = 0;                             // when it began to wait
    Shortage notified;                            // the shortage that was logged last
    uint64_t resident() const;
  };
  struct Place {  // a client that waits
    ClientId client = 0;
    Holder* holder = nullptr;
  };
  struct Part {
    Place place;
    uint64_t portion = 0;
    uint64_t bytes = 0;  // of its slab; 0: the share is too small
  };

  uint64_t free_for_waiting(const HostMemory& memory) const;
  uint32_t ranks() const;
  uint32_t missing() const;  // ranks without a request or a grant
  std::vector<Place> waiting();
  void grant(TimeNs now, Place place, uint32_t slabs, uint64_t slab_bytes, const HostMemory& memory,
             std::vector<Decision>& out);
  std::vector<Part> parts_of(uint64_t free);
  Status too_little(const Part& part, const HostMemory& memory) const;
  void refuse(Place place, Status why, std::vector<Decision>& out);
  bool grant_portions(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  bool grant_whole(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  bool wait_for_others(TimeNs now, uint64_t free, bool have_parts, std::vector<Decision>& out);
  void grant_parts(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  void relieve(TimeNs now, const HostMemory& memory, std::vector<Decision>& out);

  const StagingLimits limits_;
  uint32_t ranks_stated_ = 0;  // ranks on the host, as clients stated
  std::map<ClientId, Holder> holders_;
};

}  // namespace shoal::actors
