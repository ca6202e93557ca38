// StorageTrial: whether a node that shares a load would sooner have its bytes from storage.
// docs/reference/protocol.md, "A shared load".
//
// All hosts of a load begin with a few chunks that each reads itself, before any asks another: so fast is
// storage while all read from it. Then they share. Where storage was that much faster than all that has come
// since everybody whom this node asks sends, it reads what is left itself, as long as that is no slower than
// sharing was; once it is, it shares again, for good. Storage that sharing is bound by does not pass for
// faster: it gives no host more than it gives all.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/loader/sharing/chunk_plan.h"
#include "actors/role.h"

namespace shoal::actors {

// Which chunks this node begins with, ascending; none: no trial is worth it. In a group all of whose members
// read, the first of its own part, of which they come to a quarter at most. In larger ones the first of all,
// as long as the trials of all members read no more than an eighth of what one needs.
std::vector<uint32_t> trial_chunks(const ChunkPlan& plan, uint64_t buffer_bytes,
                                   const std::function<bool(uint32_t chunk)>& is_own_part);

class StorageTrial {
 public:
  struct Arrival {  // of a chunk, from storage or from a peer
    uint64_t bytes = 0;
    bool all_send = false;   // every peer that is asked has sent something by now
    bool none_asked = true;  // nothing is awaited from peers
  };
  // `chunks`: that it begins with; 0: it shares, however fast storage is. `needed_bytes`: of the whole load.
  StorageTrial(size_t chunks, uint64_t needed_bytes);

  void begin(TimeNs now) { since_ = now; }
  void came(TimeNs now, const Arrival& arrival);
  void give_up() { phase_ = Phase::over; }  // it shares

  bool is_under_way() const { return phase_ == Phase::trying; }  // nothing is asked of peers yet
  bool waits_for_peers() const { return phase_ == Phase::warming; }
  bool reads_storage() const { return phase_ == Phase::leaving || phase_ == Phase::reading; }

 private:
  enum class Phase : uint8_t { trying, warming, sharing, leaving, reading, over };
  void begin_sample(TimeNs now, Phase phase);

  Phase phase_;
  size_t chunks_left_;  // of the trial
  const uint64_t sample_bytes_;
  TimeNs since_ = 0;  // of this sample, and what has come in it
  uint64_t bytes_ = 0;
  uint64_t look_at_bytes_;  // once that much has
  uint64_t storage_kib_per_s_ = 0, shared_kib_per_s_ = 0;
};

}  // namespace shoal::actors
