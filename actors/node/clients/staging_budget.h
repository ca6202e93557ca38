// StagingBudget: the memory that the slabs of one host's ranks may take together, and who may take how much
// of it. docs/reference/client-node.md, "Slabs".
//
// A rank asks for K slabs of which each holds one of its saves. Where that is no more than its equal share of
// what is free, it is granted at once. Else it waits until every rank of the host has asked or holds a grant,
// or for gather_ms, and all that wait are granted together: as many slabs each as fit for all of them; where
// not even one does, the ranks share what there is, and those whose slab is then too small stage in parts.
// Where that is less than least_bytes() for one of them, all that wait are refused: what the others would
// stage could never be committed.
//
// What was granted and is not yet in memory counts as taken: no two ranks count on the same free memory.
//
// Where one rank holds more than its share and others are short, it is asked to give its slabs back; so is a
// rank that has staged nothing for a while, where the host itself is short of memory.
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

inline constexpr uint64_t kLeastStagingBytes = uint64_t{64} << 20;  // of a host
// Two halves of one digest block: one is written while the other is filled.
inline constexpr uint64_t kLeastPartSlabBytes = uint64_t{2} << 20;
// More would not make a save in parts faster: it ends when all is written.
inline constexpr uint64_t kMostPartSlabBytes = uint64_t{256} << 20;
static_assert(kLeastStagingBytes % kLeastPartSlabBytes == 0);

// What a host has left, as somebody has read it.
struct HostMemory {
  uint64_t free_bytes = 0;
  std::string because;  // which limit that is
};

struct StagingLimits {
  uint64_t bytes_max = 0;         // of all slabs of the host, if not 0
  uint32_t ranks = 0;             // of the host, where that is known; else what clients say, or who attach
  uint32_t gather_ms = 3'000;     // for ranks that have not asked yet
  uint32_t patience_ms = 60'000;  // for ranks that are to give back, or are making what they were granted
  // With less than that left on the host, slabs that were not used for idle_ms are given back.
  uint64_t pressure_bytes = uint64_t{256} << 20;
  uint32_t idle_ms = 10'000;
};

class StagingBudget {
 public:
  explicit StagingBudget(const StagingLimits& limits) : limits_(limits) {}

  void attach(ClientId client, const local::Attach& said);
  // Its slabs stay until forget().
  void lose(ClientId client);
  void forget(ClientId client);
  // Takes the place of an earlier request or grant of it.
  void want(TimeNs now, ClientId client, const local::StagingWanted& wanted);
  // One that has its memory. Those for saves count, not the windows of loads.
  void add_slab(ClientId client, const local::Slab& slab);
  void keep(ClientId client, const local::StagingKept& kept);
  void use(TimeNs now, ClientId client);  // it has staged, or its slab was freed

  struct Decision {
    ClientId client = 0;
    std::optional<local::StagingGranted> granted;  // nothing: it is to give back
    // For people, where it gets less than it wants: once, until it gets another number of slabs.
    std::string news;
  };
  // Who is told what now. To be asked again when something has happened, and every now and then.
  std::vector<Decision> decide(TimeNs now, const HostMemory& memory);
  bool has_waiting() const;
  bool holds_any() const;  // slabs, or grants

  uint64_t least_bytes() const;  // of a rank that stages in parts

 private:
  struct Shortage {  // 0 slabs: none
    bool in_parts = false;
    uint32_t slabs = 0;
    bool operator==(const Shortage&) const = default;
  };
  struct Holder {
    Rank rank = 0;
    bool is_here = true;
    uint64_t granted = 0;  // that its slabs may take together
    uint32_t slabs_wanted = 0;
    std::map<uint32_t, uint64_t> slabs;  // bytes of those that it has, windows of loads among them
    bool in_parts = false;               // what it was granted
    bool is_making = false;              // has been granted something new, and made no slab since
    bool is_giving_back = false;
    TimeNs used = 0;
    std::optional<local::StagingWanted> wanted;  // it waits
    TimeNs since = 0;                            // for so long
    Shortage told;                               // that people were told last
    uint64_t resident() const;
  };
  struct Place {  // of who waits
    ClientId client = 0;
    Holder* holder = nullptr;
  };
  struct Part {
    Place place;
    uint64_t share = 0;
    uint64_t bytes = 0;  // of its slab; 0: the share is too small
  };

  uint64_t free_for_waiting(const HostMemory& memory) const;
  uint32_t ranks() const;
  uint32_t missing() const;  // ranks that neither wait nor hold anything
  std::vector<Place> waiting();
  void grant(TimeNs now, Place place, uint32_t slabs, uint64_t slab_bytes, const HostMemory& memory,
             std::vector<Decision>& out);
  std::vector<Part> parts_of(uint64_t free);
  Status too_little(const Part& part, const HostMemory& memory) const;
  void refuse(Place place, Status why, std::vector<Decision>& out);
  bool grant_shares(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  bool grant_whole(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  bool wait_for_others(TimeNs now, uint64_t free, bool have_parts, std::vector<Decision>& out);
  void grant_parts(TimeNs now, uint64_t free, const HostMemory& memory, std::vector<Decision>& out);
  void relieve(TimeNs now, const HostMemory& memory, std::vector<Decision>& out);

  const StagingLimits limits_;
  uint32_t ranks_said_ = 0;  // of the host, by what clients were told
  std::map<ClientId, Holder> holders_;
};

}  // namespace shoal::actors
