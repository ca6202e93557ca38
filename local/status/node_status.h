// NodeStatus: a snapshot of a node and of its job, for `shoal status` and `shoal top`. It does not affect
// saves and loads. The coordinator's node knows what every host reported; any other node knows its own ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/metadata.h"
#include "shoal/roster.h"

namespace shoal::local {

inline constexpr size_t kMaxStatusSaves = 256;     // the newest of those in flight
inline constexpr size_t kMaxStatusErrors = 16;     // the newest
inline constexpr size_t kMaxStatusPeers = 1024;    // further ones are only counted
inline constexpr size_t kMaxStatusSlowCalls = 16;  // the oldest
inline constexpr size_t kMaxStatusRanks = 4096;
inline constexpr size_t kMaxStatusTextBytes = 4096;

enum class SavePhase : uint8_t {
  staging = 0,     // some ranks of this host have not staged yet
  writing = 1,     // all ranks have staged, and the node writes their shards
  waiting = 2,     // this host has written; the node waits for other hosts or for the decision
  committing = 3,  // the coordinator publishes the decision
  planning = 4,    // all ranks have staged, and some need a roster that other ranks have not completed
};
std::string_view phase_name(SavePhase phase);

struct SaveStatus {
  AttemptKey key;
  SavePhase phase = SavePhase::staging;
  uint64_t age_ms = 0;  // since this node first heard of it
  // Numbers of ranks of this host: attached ones, those that have staged, those whose assignment is durable.
  uint32_t ranks_here = 0, ranks_staged = 0, ranks_written = 0;
  uint64_t bytes_staged = 0;    // in slabs of this host
  uint64_t bytes_to_write = 0;  // of the files that this host has started; grows while ranks stage
  // Of these, the payload of the files whose write has ended; durable for the ranks_written ranks.
  uint64_t bytes_written = 0;
  // Totals of the whole job, at the coordinator's node; 0 elsewhere.
  uint32_t ranks_reported = 0;
  uint64_t bytes_reported = 0;
  // Ranks that have not staged; if all have, those that have not written; else those that have not reported.
  // At the coordinator while it plans: those whose layouts are missing. Ascending.
  std::vector<Rank> awaited;
  uint64_t awaited_count = 0;  // number of all of them; `awaited` may be cut
  std::string trouble;         // the first error of this save on this node; empty: none
  friend bool operator==(const SaveStatus&, const SaveStatus&) = default;
};

struct CommitStatus {
  AttemptKey key;
  int64_t unix_time_ns = 0;
  uint64_t duration_ms = 0;  // from the first staged bytes that this node knows of to the decision
  uint64_t payload_bytes = 0;
  std::optional<Rank> slowest_rank;  // the last rank that staged, wrote or reported, as far as the node knows
  friend bool operator==(const CommitStatus&, const CommitStatus&) = default;
};

struct ErrorStatus {
  uint64_t age_ms = 0;
  std::string line;
  friend bool operator==(const ErrorStatus&, const ErrorStatus&) = default;
};

// A call on storage that has not returned (storage/files/call_watch.h).
struct SlowCallStatus {
  std::string what;  // "fsync of /root/step-00000001"
  uint64_t age_ms = 0;
  friend bool operator==(const SlowCallStatus&, const SlowCallStatus&) = default;
};

// A trainer that is attached to the node.
struct TrainerStatus {
  Rank rank = 0;
  int32_t pid = 0;
  bool is_stopped = false;  // by a signal (SIGSTOP) or a debugger: it does nothing until it is continued
  friend bool operator==(const TrainerStatus&, const TrainerStatus&) = default;
};

struct PeerStatus {
  std::string name;  // "host:pid"
  bool coordinates = false;
  friend bool operator==(const PeerStatus&, const PeerStatus&) = default;
};

struct NodeCounts {  // since the node began
  uint64_t saves_begun = 0, saves_committed = 0, saves_aborted = 0;
  uint64_t bytes_staged = 0, bytes_written = 0, bytes_read = 0;  // written and read: of shards
  uint64_t loads_begun = 0, loads_done = 0, loads_failed = 0;
  uint64_t bytes_to_peers = 0, bytes_from_peers = 0;  // of chunks that loads share
  friend bool operator==(const NodeCounts&, const NodeCounts&) = default;
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
  bool read_only = false;               // generation is then the job's number under readers/
  std::vector<Rank> ranks;              // attached here, ascending
  std::vector<TrainerStatus> trainers;  // of these ranks, as far as their process ids are known
  std::vector<PeerStatus> peers;
  uint64_t peers_count = 0;       // number of all peers; `peers` may be cut
  std::vector<SaveStatus> saves;  // in flight, ascending
  uint64_t saves_count = 0;       // number of all saves in flight; `saves` may be cut
  std::optional<CommitStatus> last_commit;
  std::vector<ErrorStatus> errors;         // oldest first
  std::vector<SlowCallStatus> slow_calls;  // oldest first
  NodeCounts counts;
  friend bool operator==(const NodeStatus&, const NodeStatus&) = default;
};

}  // namespace shoal::local
