// Hazards: the current failures of links and disks. VirtualCluster asks it about every message and every
// operation. It has its own random stream, and a run without failures draws nothing.
//
// A delayed message keeps its order among the messages of its session; a reordered message does not. Within a
// session the transport never loses, doubles or reorders messages (transport/transport.h). The simulator does
// so nevertheless, because roles must survive it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/operation.h"
#include "actors/role.h"
#include "sim/basics/random.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

class Hazards {
 public:
  explicit Hazards(uint64_t seed) : random_(seed) {}

  // Begins a failure of a link or a disk. It is active from now to now + for_ms.
  void begin(const Failure& failure, actors::TimeNs now);

  bool touches_links(actors::TimeNs now) const { return now < links_until_; }
  struct Passage {
    bool is_lost = false;
    actors::TimeNs leaves = 0;            // earliest time at which the message leaves
    std::optional<actors::TimeNs> again;  // time at which a doubled message leaves again
  };
  Passage pass(size_t from, size_t to, actors::TimeNs now);
  bool is_cut(size_t from, size_t to, actors::TimeNs now) const;
  // The time since which no message from one host reaches the other; none: the link is not cut.
  std::optional<actors::TimeNs> cut_since(size_t from, size_t to, actors::TimeNs now) const;

  // The factor by which storage requests of a host are slower.
  uint64_t slowness(size_t host, actors::TimeNs now) const;
  // Since when the writes of shards of a host hang, and until when; none: they do not hang.
  struct Hang {
    actors::TimeNs since = 0, until = 0;
  };
  std::optional<Hang> hang(size_t host, actors::TimeNs now) const;
  // The error with which this operation fails. OK: it does not fail.
  Status try_operation(size_t host, const actors::Operation& operation, actors::TimeNs now);
  // What becomes of a shard that this host writes now, although the write reports success. None: it stays.
  enum class LostWrite : uint8_t { missing, too_short };
  std::optional<LostWrite> lost_write(size_t host, actors::TimeNs now);
  // Whether a bit flips in a chunk that this host sends now, and which one, of so many; none: no bit.
  std::optional<uint64_t> corrupt_bit(size_t host, uint64_t bits, actors::TimeNs now);

 private:
  struct Active {
    Failure failure;
    actors::TimeNs since = 0, until = 0;
  };
  static bool touches(const Active& active, size_t from, size_t to) {
    return is_one_of_hosts(from, active.failure.host, active.failure.hosts) &&
           is_one_of_hosts(to, active.failure.to_host, active.failure.to_hosts);
  }
  bool happens(const Failure& failure) { return random_.below(kPermille) < failure.permille; }

  Random random_;
  std::vector<Active> links_, disks_;
  actors::TimeNs links_until_ = -1, disks_until_ = -1;
  // By link: messages behind a delayed one leave no earlier than this.
  std::map<std::pair<size_t, size_t>, actors::TimeNs> held_until_;
};

}  // namespace shoal::sim
