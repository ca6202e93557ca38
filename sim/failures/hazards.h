// Hazards: what is wrong with links and disks at this moment; VirtualCluster asks it of every message and of
// every operation. Draws are its own, so that a run without faults draws nothing.
//
// A message that is delayed keeps its place among those of its session; one that is reordered does not.
// Messages that are lost, doubled or reordered within a session are more than the transport allows itself
// (transport/transport.h): roles promise to survive them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/operation.h"
#include "actors/role.h"
#include "sim/basics/random.h"
#include "sim/failures/fault.h"

namespace shoal::sim {

class Hazards {
 public:
  explicit Hazards(uint64_t seed) : random_(seed) {}

  // Of a link or a disk: it holds from now to now + for_ms. What else goes wrong is no business of this.
  void begin(const Fault& fault, actors::TimeNs now);

  bool touches_links(actors::TimeNs now) const { return now < links_until_; }
  struct Passage {
    bool is_lost = false;
    actors::TimeNs leaves = 0;            // not before
    std::optional<actors::TimeNs> again;  // when it leaves a second time
  };
  Passage pass(size_t from, size_t to, actors::TimeNs now);
  bool is_cut(size_t from, size_t to, actors::TimeNs now) const;
  // Since when nothing of the one reaches the other; nothing: it does.
  std::optional<actors::TimeNs> cut_since(size_t from, size_t to, actors::TimeNs now) const;

  // How many times as long a host's requests to the storage take.
  uint64_t slowness(size_t host, actors::TimeNs now) const;
  // Why this operation fails; OK: it is carried out.
  Status try_operation(size_t host, const actors::Operation& operation, actors::TimeNs now);

 private:
  struct Active {
    Fault fault;
    actors::TimeNs since = 0, until = 0;
  };
  static bool holds(uint64_t first, uint64_t count, size_t host) {
    return count == 0 || (host >= first && host < first + count);
  }
  static bool touches(const Active& active, size_t from, size_t to) {
    return holds(active.fault.host, active.fault.hosts, from) &&
           holds(active.fault.to_host, active.fault.to_hosts, to);
  }
  bool happens(const Fault& fault) { return random_.below(kPermille) < fault.permille; }

  Random random_;
  std::vector<Active> links_, disks_;
  actors::TimeNs links_until_ = -1, disks_until_ = -1;
  std::map<std::pair<size_t, size_t>, actors::TimeNs>
      held_until_;  // of delayed messages: none behind leaves before
};

bool is_link_fault(Fault::Kind kind);
bool is_disk_fault(Fault::Kind kind);

}  // namespace shoal::sim
