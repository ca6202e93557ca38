// NodeSettings: settings of a node that a trainer starts. Environment variables and shoal.toml provide those
// that are not set here. docs/reference/settings.md describes each setting and its values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shoal {

// Must be the same on all ranks: the first rank of a host that finds no node starts one with its settings.
struct NodeSettings {
  std::optional<std::string> transport;  // "auto", "tcp" or "ucx"
  std::optional<std::string> interface;
  std::optional<std::string> ports;  // "7100-7199"
  std::optional<uint64_t> max_direct_nodes;

  std::optional<uint64_t> load_memory_bytes;
  std::optional<uint64_t> staging_memory_bytes;

  std::optional<std::string> catalog;       // a folder
  std::optional<std::string> stats_file;    // the node writes its counters to this file when it ends
  std::optional<std::string> protocol_log;  // a file
  std::optional<std::string> metrics;       // "HOST:PORT"
  std::optional<std::string> status_page;   // "HOST:PORT", at the coordinator's node

  std::optional<uint64_t> keep_last;
  std::optional<uint64_t> keep_every;
  std::optional<uint64_t> keep_for_s;

  std::optional<uint64_t> report_partial_after_ms;
  std::optional<uint64_t> attempt_deadline_ms;
  std::optional<uint64_t> node_deadline_ms;
  std::optional<uint64_t> drain_patience_ms;
  std::optional<uint64_t> host_lost_ms;
  std::optional<uint64_t> find_coordinator_ms;
  std::optional<uint64_t> epoch_check_ms;
  std::optional<uint64_t> abandoned_after_ms;
  std::optional<uint64_t> lease_renew_ms;
  std::optional<uint64_t> lease_ttl_ms;

  // For the node's log: which settings were given, and where. Checkpointer::open fills it.
  std::string sources;
};

}  // namespace shoal
