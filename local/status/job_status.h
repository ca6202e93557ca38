// JobStatus: a snapshot of a whole job, for `shoal status`, `shoal top` and the status page. The
// coordinator's node makes it from what it knows and from a HostStatus of each node, and only if somebody
// asks. It does not affect saves and loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "local/status/node_status.h"
#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::local {

inline constexpr size_t kMaxHostSaves = 8;        // the oldest of those in flight: the ones that may be stuck
inline constexpr size_t kMaxHostRanks = 256;      // of each list of ranks of a host
inline constexpr size_t kMaxHostSlowCalls = 4;    // the oldest
inline constexpr size_t kMaxHostTextBytes = 512;  // of each text of a host
inline constexpr size_t kMaxStatusHosts = 4096;  // those to look at come first; further ones are only counted
inline constexpr size_t kMaxJobSaves = 32;       // the oldest
inline constexpr size_t kMaxJobWaits = 64;       // hosts that one save waits for
inline constexpr size_t kMaxHostStatusBytes = 64 << 10;
inline constexpr size_t kMaxJobStatusBytes = 64 << 20;
inline constexpr int kJobStatusPatienceMs = 3'000;  // for the coordinator, and for the nodes that it asks

enum class HostState : uint8_t {
  answered = 0,
  silent = 1,  // the coordinator has a session with its node, which did not answer in time
  lost = 2,    // the coordinator knows the host, and has no session with its node
};
std::string_view host_state_name(HostState state);

struct HostStatus {
  std::string host;
  int32_t pid = 0;  // of its node
  HostState state = HostState::answered;
  uint64_t answered_ms_ago = 0;
  bool coordinates = false;
  bool is_stopping = false;
  uint64_t uptime_ms = 0;
  uint32_t restarts = 0;  // nodes of this host that the coordinator has seen before this one
  std::vector<Rank> ranks;
  uint64_t ranks_count = 0;
  std::vector<Rank> stopped_ranks;  // whose trainers are stopped, by a signal (SIGSTOP) or a debugger
  std::vector<SaveStatus> saves;    // as this host sees them; awaited ranks are of this host
  uint64_t saves_count = 0;
  std::optional<CommitStatus> last_commit;  // the last one that this node has seen
  std::vector<SlowCallStatus> slow_calls;   // oldest first
  std::optional<ErrorStatus> last_error;
  uint64_t bytes_staged = 0, bytes_written = 0, bytes_read = 0;  // since the node began
  uint64_t saves_committed = 0, saves_aborted = 0;
  friend bool operator==(const HostStatus&, const HostStatus&) = default;
};

// What a save waits for on a host.
enum class WaitReason : uint8_t {
  staging = 0,    // ranks have not staged
  writing = 1,    // shards are being written
  reporting = 2,  // everything is written, and the coordinator does not have the report yet
  silent = 3,     // the node does not answer
  lost = 4,       // the node is not connected
  deciding = 5,   // the coordinator: all ranks have reported, and the decision is not durable yet
};
std::string_view wait_reason_name(WaitReason reason);
std::string_view wait_reason_text(WaitReason reason);  // "has not staged"

struct HostWait {
  std::string host;  // empty: ranks of no host that is known
  WaitReason reason = WaitReason::staging;
  std::vector<Rank> ranks;
  uint64_t ranks_count = 0;
  std::string detail;  // a call that hangs, a stopped trainer, the first error; empty: nothing known
  friend bool operator==(const HostWait&, const HostWait&) = default;
};

struct JobSave {
  SaveStatus save;  // numbers of all hosts together; phase of the slowest host that answered
  std::vector<HostWait> waits;
  uint64_t waits_count = 0;
  friend bool operator==(const JobSave&, const JobSave&) = default;
};

struct JobStatus {
  uint32_t world_size = 0;  // 0: not known yet
  uint64_t gathered_ms_ago = 0;
  std::vector<HostStatus> hosts;  // by name, unless there are more than kMaxStatusHosts
  uint64_t hosts_count = 0, hosts_silent = 0, hosts_lost = 0;
  std::vector<JobSave> saves;  // in flight, ascending
  uint64_t saves_count = 0;
  std::optional<CommitStatus> last_commit;
  std::string incomplete;  // why only this host is shown; empty: the whole job is
  friend bool operator==(const JobStatus&, const JobStatus&) = default;
};

// What a node says of itself: its status, cut to the bounds above. Keeps of `awaited` only its own ranks.
HostStatus host_status_of(const NodeStatus& status);

Bytes encode_host_status(const HostStatus& status);
Result<HostStatus> decode_host_status(ByteView bytes);  // accepts untrusted bytes
Bytes encode_job_status(const JobStatus& status);       // cuts lists and texts at their bounds
Result<JobStatus> decode_job_status(ByteView bytes);    // accepts untrusted bytes

}  // namespace shoal::local
