#include "actors/node/watch/job_json.h"

#include <nlohmann/json.hpp>

namespace shoal::actors {

namespace {

nlohmann::ordered_json json_of_key(const AttemptKey& key) {
  return {{"step", key.step}, {"generation", key.generation}, {"attempt", key.attempt}};
}

nlohmann::ordered_json calls_object(const std::vector<local::SlowCallStatus>& calls) {
  auto out = nlohmann::ordered_json::array();
  for (const local::SlowCallStatus& call : calls)
    out.push_back({{"what", call.what}, {"age_ms", call.age_ms}});
  return out;
}

nlohmann::ordered_json save_object(const local::SaveStatus& save, std::optional<uint64_t> on_disk) {
  nlohmann::ordered_json out = json_of_key(save.key);
  out["phase"] = local::phase_name(save.phase);
  out["age_ms"] = save.age_ms;
  out["ranks_here"] = save.ranks_here;
  out["ranks_staged"] = save.ranks_staged;
  out["ranks_written"] = save.ranks_written;
  out["ranks_reported"] = save.ranks_reported;
  out["bytes_staged"] = save.bytes_staged;
  out["bytes_to_write"] = save.bytes_to_write;
  out["bytes_written"] = save.bytes_written;
  out["bytes_reported"] = save.bytes_reported;
  if (on_disk) out["bytes_on_disk"] = *on_disk;
  out["awaited_ranks"] = save.awaited;
  out["awaited_count"] = save.awaited_count;
  if (!save.trouble.empty()) out["trouble"] = save.trouble;
  return out;
}

nlohmann::ordered_json commit_object(const local::CommitStatus& commit) {
  nlohmann::ordered_json out = json_of_key(commit.key);
  if (commit.unix_time_ns != 0) out["unix_time_ns"] = commit.unix_time_ns;
  out["duration_ms"] = commit.duration_ms;
  out["payload_bytes"] = commit.payload_bytes;
  if (commit.slowest_rank) out["slowest_rank"] = *commit.slowest_rank;
  return out;
}

nlohmann::ordered_json host_object(const local::HostStatus& host) {
  nlohmann::ordered_json out;
  out["host"] = host.host;
  out["pid"] = host.pid;
  out["state"] = local::host_state_name(host.state);
  out["answered_ms_ago"] = host.answered_ms_ago;
  out["coordinates"] = host.coordinates;
  out["is_stopping"] = host.is_stopping;
  out["uptime_ms"] = host.uptime_ms;
  out["restarts"] = host.restarts;
  out["ranks"] = host.ranks;
  out["ranks_count"] = host.ranks_count;
  out["stopped_ranks"] = host.stopped_ranks;
  out["saves"] = nlohmann::ordered_json::array();
  for (const local::SaveStatus& save : host.saves) {
    nlohmann::ordered_json one = save_object(save, {});
    for (const char* of_job : {"ranks_reported", "bytes_reported"}) one.erase(of_job);
    out["saves"].push_back(std::move(one));
  }
  out["saves_count"] = host.saves_count;
  out["last_commit"] = host.last_commit ? commit_object(*host.last_commit) : nlohmann::ordered_json();
  out["slow_calls"] = calls_object(host.slow_calls);
  if (host.last_error) {
    out["last_error"] = {{"age_ms", host.last_error->age_ms}, {"line", host.last_error->line}};
  }
  out["bytes_staged"] = host.bytes_staged;
  out["bytes_written"] = host.bytes_written;
  out["bytes_read"] = host.bytes_read;
  out["saves_committed"] = host.saves_committed;
  out["saves_aborted"] = host.saves_aborted;
  return out;
}

nlohmann::ordered_json wait_object(const local::HostWait& wait) {
  nlohmann::ordered_json out = {
      {"host", wait.host.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(wait.host)},
      {"reason", local::wait_reason_name(wait.reason)},
      {"ranks", wait.ranks},
      {"ranks_count", wait.ranks_count}};
  if (!wait.detail.empty()) out["detail"] = wait.detail;
  return out;
}

nlohmann::ordered_json job_object(const local::JobStatus& job) {
  nlohmann::ordered_json out;
  if (!job.incomplete.empty()) out["incomplete"] = job.incomplete;
  out["gathered_ms_ago"] = job.gathered_ms_ago;
  out["world_size"] = job.world_size;
  out["hosts_count"] = job.hosts_count;
  out["hosts_silent"] = job.hosts_silent;
  out["hosts_lost"] = job.hosts_lost;
  out["saves"] = nlohmann::ordered_json::array();
  for (const local::JobSave& save : job.saves) {
    nlohmann::ordered_json one = save_object(save.save, {});
    one["waits_for"] = nlohmann::ordered_json::array();
    for (const local::HostWait& wait : save.waits) one["waits_for"].push_back(wait_object(wait));
    one["waits_count"] = save.waits_count;
    out["saves"].push_back(std::move(one));
  }
  out["saves_count"] = job.saves_count;
  out["last_commit"] = job.last_commit ? commit_object(*job.last_commit) : nlohmann::ordered_json();
  out["hosts"] = nlohmann::ordered_json::array();
  for (const local::HostStatus& host : job.hosts) out["hosts"].push_back(host_object(host));
  return out;
}

std::string text_of_json(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string calls_json(const std::vector<local::SlowCallStatus>& calls) {
  return text_of_json(calls_object(calls));
}

std::string save_json(const local::SaveStatus& save, std::optional<uint64_t> on_disk) {
  return text_of_json(save_object(save, on_disk));
}

std::string commit_json(const local::CommitStatus& commit) {
  return text_of_json(commit_object(commit));
}

std::string job_json(const local::JobStatus& job) {
  return text_of_json(job_object(job));
}

}  // namespace shoal::actors
