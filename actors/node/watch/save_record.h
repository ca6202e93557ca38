// SaveRecord: the course of one save as the node saw it, for the status page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/node/watch/abort_cause.h"
#include "shoal/metadata.h"

namespace shoal::actors {

inline constexpr size_t kMaxSaveRecords = 200;  // the newest decided saves
inline constexpr size_t kMaxRecordCauseBytes = 1024;

struct SaveRecord {
  enum class State : uint8_t { in_flight, committed, aborted };
  AttemptKey key;
  State state = State::in_flight;
  int64_t began_unix_ms = 0;
  // Since it began: the last rank of this host has staged; of a commit, the last rank of the job, as far as
  // this node knows, has reported durable files; the decision.
  std::optional<uint64_t> staged_ms, durable_ms, decided_ms;
  uint64_t payload_bytes = 0;  // of a commit
  uint64_t blocked_ns = 0;     // for which `save` held a trainer of this host; the longest
  std::optional<AbortCause> abort_cause;
  std::string cause;  // of an abort
};

}  // namespace shoal::actors
