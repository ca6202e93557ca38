// The counts of a node in the text format of Prometheus, version 0.0.4.
// https://prometheus.io/docs/instrumenting/exposition_formats/. docs/reference/metrics.md has every name.
#pragma once

#include <cstdint>
#include <string>

#include "actors/node/watch/activity.h"
#include "actors/node/watch/stats.h"

namespace shoal::actors {

struct NodeMetrics {
  std::string version, host, job_id, root_id;
  bool coordinates = false;
  uint32_t generation = 0, epoch = 0;
  int64_t start_unix_time_ms = 0;
  uint64_t peers = 0;                  // nodes connected now
  int64_t storage_oldest_call_ns = 0;  // 0: no call is in progress
  bool read_only = false;              // the job commits nothing, so there is no last commit
  uint64_t slab_bytes = 0;             // shared memory that trainers gave to this node, now
  ActivityCounts activity;
  NodeStats stats;
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

std::string format_metrics(const NodeMetrics& metrics);

}  // namespace shoal::actors
