// What `shoal status` and `shoal top` show: what the nodes of this host say, and what the root tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "admin/root_reader.h"
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
  // Of each save in flight, what lies in its folder now, whoever wrote it; parallel to status.saves.
  std::vector<std::optional<uint64_t>> bytes_on_disk;
};

struct UndecidedView {
  AttemptKey key;
  uint64_t bytes = 0;
};
struct RootView {  // what the files tell, whether a node runs or not
  std::string path;
  size_t attempts = 0, checkpoints = 0;
  std::optional<AttemptKey> latest;
  Status latest_unknown;  // why `latest` cannot be told: a newer decision is damaged
  int64_t latest_unix_time_ns = 0;
  uint64_t latest_payload_bytes = 0;
  std::vector<UndecidedView> undecided;
  std::vector<std::string> damaged;                 // a line each
  std::optional<storage::EpochRecord> coordinator;  // the last that claimed an epoch: it may be gone
};

struct JobView {
  std::vector<NodeView> nodes;
  std::vector<std::pair<std::string, Status>> silent;  // sockets where no node answers, and why
  std::optional<RootView> root;                        // where one root was asked for
  std::vector<std::string> hanging;                    // roots that did not answer within kRootPatience
};

// Storage that hangs must not keep from being seen what the node says of it.
inline constexpr std::chrono::seconds kRootPatience{2};

// Asks once, the node before the root. An error where nothing can be told: no such root.
Result<JobView> look_at(const NodeTarget& target);

nlohmann::ordered_json as_json(const JobView& view);
// `before`: the view of an earlier look, and how long ago that was; rates are shown then.
struct EarlierView {
  const JobView& view;
  double seconds = 0;
};
std::string as_text(const JobView& view, const EarlierView* before = nullptr);

std::string describe_ranks(const std::vector<Rank>& ranks, uint64_t count);  // "0-3, 7 and 12 more"

}  // namespace shoal::cli
