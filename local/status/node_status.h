// NodeStatus: what a node says of itself and of the job, for `shoal status` and `shoal top`. A snapshot:
// nothing waits for it, and nothing follows from it. The coordinator's node knows what every host reported;
// each other node knows its own ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"
#include "shoal/roster.h"

namespace shoal::local {

inline constexpr size_t kMaxStatusSaves = 256;     // newest of those in flight
inline constexpr size_t kMaxStatusErrors = 16;     // newest
inline constexpr size_t kMaxStatusPeers = 1024;    // the rest is counted
inline constexpr size_t kMaxStatusSlowCalls = 16;  // oldest
inline constexpr size_t kMaxStatusRanks = 4096;
inline constexpr size_t kMaxStatusTextBytes = 4096;

enum class SavePhase : uint8_t {
  staging = 0,     // ranks of this host have not staged yet
  writing = 1,     // all have; their shards are being written
  waiting = 2,     // all is written here; other hosts, or the coordinator's word, are awaited
  committing = 3,  // the decision is being published
};
std::string_view phase_name(SavePhase phase);

struct SaveStatus {
  AttemptKey key;
  SavePhase phase = SavePhase::staging;
  uint64_t age_ms = 0;  // since this node first heard of it
  // Ranks of this host: those attached, those that have staged, those whose share is durable.
  uint32_t ranks_here = 0, ranks_staged = 0, ranks_written = 0;
  uint64_t bytes_staged = 0;    // in slabs of this host
  uint64_t bytes_to_write = 0;  // of the files that this host has begun; grows while ranks stage
  uint64_t bytes_written = 0;   // of them, handed to the file system; all of them durable once ranks_written
  // Of the whole job, at the coordinator's node; 0 elsewhere.
  uint32_t ranks_reported = 0;
  uint64_t bytes_reported = 0;
  std::vector<Rank>
      awaited;  // ranks that are behind, ascending: not staged, else not written, else not reported
  uint64_t awaited_count = 0;  // of all, where `awaited` is cut
  std::string trouble;         // the first thing that went wrong with it here; empty: nothing
};

struct CommitStatus {
  AttemptKey key;
  int64_t unix_time_ns = 0;
  uint64_t duration_ms = 0;  // from the first staged bytes that this node heard of to the decision
  uint64_t payload_bytes = 0;
  std::optional<Rank> slowest_rank;  // the last that staged, wrote or reported, as far as this node knows
};

struct ErrorStatus {
  uint64_t age_ms = 0;
  std::string line;
};

// A call on storage that has not returned (storage/files/call_watch.h).
struct SlowCallStatus {
  std::string what;  // "fsync of /root/step-00000001"
  uint64_t age_ms = 0;
};

struct PeerStatus {
  std::string name;  // "host:pid"
  bool coordinates = false;
};

struct NodeCounts {  // since the node began
  uint64_t saves_begun = 0, saves_committed = 0, saves_aborted = 0;
  uint64_t bytes_staged = 0, bytes_written = 0, bytes_read = 0;  // written and read: of shards
  uint64_t loads_begun = 0, loads_done = 0, loads_failed = 0;
  uint64_t bytes_to_peers = 0, bytes_from_peers = 0;  // of chunks that loads share
};

struct NodeStatus {
  std::string version;  // of the program
  std::string host;
  int32_t pid = 0;
  std::string root, root_id, job_id;
  uint32_t generation = 0, epoch = 0;
  bool coordinates = false;
  std::string coordinator;  // HOST:PORT of it
  uint32_t world_size = 0;  // 0: not known yet
  uint64_t uptime_ms = 0;
  bool is_stopping = false;
  bool read_only = false;   // generation is then the job's number under readers/
  std::vector<Rank> ranks;  // attached here, ascending
  std::vector<PeerStatus> peers;
  uint64_t peers_count = 0;       // of all, where `peers` is cut
  std::vector<SaveStatus> saves;  // in flight, ascending
  uint64_t saves_count = 0;       // of all, where `saves` is cut
  std::optional<CommitStatus> last_commit;
  std::vector<ErrorStatus> errors;         // oldest first
  std::vector<SlowCallStatus> slow_calls;  // oldest first
  NodeCounts counts;
};

}  // namespace shoal::local
