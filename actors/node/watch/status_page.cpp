#include "actors/node/watch/status_page.h"

#include <nlohmann/json.hpp>

#include "actors/node/watch/job_json.h"

namespace shoal::actors {

namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of(SaveRecord::State state) {
  switch (state) {
    case SaveRecord::State::in_flight:
      return "in_flight";
    case SaveRecord::State::committed:
      return "committed";
    case SaveRecord::State::aborted:
      break;
  }
  return "aborted";
}

Json record_object(const SaveRecord& record) {
  Json out = {
      {"step", record.key.step}, {"generation", record.key.generation}, {"attempt", record.key.attempt}};
  out["state"] = name_of(record.state);
  out["began_unix_ms"] = record.began_unix_ms;
  if (record.staged_ms) out["staged_ms"] = *record.staged_ms;
  if (record.durable_ms) out["durable_ms"] = *record.durable_ms;
  if (record.decided_ms) out["decided_ms"] = *record.decided_ms;
  out["payload_bytes"] = record.payload_bytes;
  out["blocked_ms"] = static_cast<double>(record.blocked_ns) / 1e6;
  if (record.abort_cause) out["abort_cause"] = kAbortCauseNames[static_cast<size_t>(*record.abort_cause)];
  if (!record.cause.empty()) out["cause"] = record.cause;
  return out;
}

template <const auto& kBuckets>
Json durations_object(const Durations<kBuckets>& durations) {
  uint64_t count = 0;
  for (uint64_t each : durations.counts) count += each;
  return {{"count", count}, {"seconds", durations.sum}, {"bounds", kBuckets}, {"counts", durations.counts}};
}

}  // namespace

std::string status_page_json(const PageFacts& facts) {
  const local::NodeStatus& node = facts.node;
  Json out;
  out["now_unix_ms"] = facts.now_unix_ms;
  out["host"] = node.host;
  out["version"] = node.version;
  out["root"] = node.root;
  out["job_id"] = node.job_id;
  out["generation"] = node.generation;
  out["epoch"] = node.epoch;
  out["world_size"] = node.world_size;
  out["uptime_ms"] = node.uptime_ms;
  out["is_stopping"] = node.is_stopping;
  if (facts.bytes_free) out["bytes_free"] = *facts.bytes_free;
  if (facts.counts.newest) {
    const NewestCheckpoint& newest = *facts.counts.newest;
    out["newest"] = {{"step", newest.key.step},
                     {"generation", newest.key.generation},
                     {"attempt", newest.key.attempt},
                     {"unix_time_ns", newest.unix_time_ns},
                     {"payload_bytes", newest.payload_bytes}};
    if (facts.bytes_free && newest.payload_bytes > 0) {
      out["checkpoints_fit"] = *facts.bytes_free / newest.payload_bytes;
    }
  }
  out["saves"] = Json::array();
  for (const SaveRecord& record : facts.saves) out["saves"].push_back(record_object(record));
  out["aborted"] = Json::object();
  for (size_t i = 0; i < kAbortCauses; ++i)
    out["aborted"][std::string(kAbortCauseNames[i])] = facts.counts.aborted[i];
  out["saves_committed"] = facts.counts.node.saves_committed;
  out["saves_aborted"] = facts.counts.node.saves_aborted;
  out["commit_seconds"] = durations_object(facts.counts.commit_seconds);
  out["blocked_seconds"] = durations_object(facts.counts.blocked_seconds);
  out["errors"] = Json::array();
  for (const local::ErrorStatus& error : node.errors) {
    out["errors"].push_back({{"age_ms", error.age_ms}, {"line", error.line}});
  }
  out["job"] = facts.job == nullptr ? Json() : Json::parse(job_json(*facts.job));
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace shoal::actors
