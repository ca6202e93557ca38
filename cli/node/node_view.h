// The data that `shoal status` and `shoal top` show, from the nodes of this host and from the root.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "admin/root_reader.h"
#include "local/status/job_status.h"
#include "local/status/node_status.h"
#include "shoal/status.h"

namespace shoal::cli {

struct NodeTarget {
  std::string root;    // the node that serves this root; empty: see `socket`
  std::string socket;  // this node; both empty: every node that this user runs on this host
};

struct NodeView {
  std::string socket;
  local::NodeStatus status;
  // For each save in flight: bytes in its folder now, from all writers; parallel to status.saves.
  std::vector<std::optional<uint64_t>> bytes_on_disk;
  Result<local::JobStatus> job = local::JobStatus();  // of all hosts, or why it is not known
  std::optional<uint64_t> bytes_free;                 // in the root, for this user; nullopt: unknown
};

struct UndecidedView {
  AttemptKey key;
  uint64_t bytes = 0;
};
struct AbortView {
  AttemptKey key;
  std::string cause;
};
struct RootView {  // contents of the root's files, whether a node runs or not
  std::string path;
  size_t attempts = 0, checkpoints = 0, aborted = 0;
  std::optional<AbortView> last_abort;  // the newest attempt that was aborted
  std::optional<AttemptKey> latest;
  Status latest_unknown;  // why `latest` is unknown: a newer decision is damaged
  int64_t latest_unix_time_ns = 0;
  uint64_t latest_payload_bytes = 0;
  std::optional<uint64_t> bytes_free;  // as in NodeView
  std::vector<UndecidedView> undecided;
  std::vector<std::string> damaged;                 // one line each
  std::optional<storage::EpochRecord> coordinator;  // the last node that claimed an epoch; it may have ended
};

struct JobView {
  std::vector<NodeView> nodes;
  std::vector<std::pair<std::string, Status>> silent;  // sockets that no node answers, and why
  std::optional<RootView> root;                        // set if one root was requested
  std::vector<std::string> hanging;                    // roots that did not answer within kRootPatience
};

// The timeout for looking at a root. Storage that hangs must not hide the state of its node.
inline constexpr std::chrono::seconds kRootPatience{2};

// Queries the node, then the root, once. An error if nothing can be shown, such as for a missing root.
Result<JobView> look_at(const NodeTarget& target);

nlohmann::ordered_json as_json(const JobView& view);
// An earlier view and its age. With it, as_text shows rates.
struct EarlierView {
  const JobView& view;
  double seconds = 0;
};
std::string as_text(const JobView& view, const EarlierView* before = nullptr);

// How many more checkpoints of this size fit into so many bytes; nullopt: the size is 0.
std::optional<uint64_t> checkpoints_that_fit(uint64_t bytes_free, uint64_t payload_bytes);
// As JSON: `bytes_free`, and `checkpoints_fit` if the size of the last checkpoint is known.
void add_space(std::optional<uint64_t> bytes_free, uint64_t payload_bytes, nlohmann::ordered_json* out);
std::string job_text(const local::NodeStatus& node, const Result<local::JobStatus>& job);

std::string describe_ranks(const std::vector<Rank>& ranks, uint64_t count);  // "0-3, 7 and 12 more"

}  // namespace shoal::cli
