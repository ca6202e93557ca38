#include <capnp/message.h>

#include <algorithm>

#include "local/status/job_status.h"
#include "local/status/status_codec_internal.h"
#include "schema/checked_reader_internal.h"

namespace shoal::local {

namespace {

constexpr int kLastHostState = 2;
constexpr int kLastWaitReason = 5;

std::string host_text(const std::string& text) {
  return clean_line(text, kMaxHostTextBytes);
}

template <class T>
uint32_t count_within(const std::vector<T>& all, size_t most) {
  return static_cast<uint32_t>(std::min(all.size(), most));
}

template <class Builder>
void write_host_ranks(Builder out, const std::vector<Rank>& ranks) {
  for (uint32_t i = 0; i < out.size(); ++i) out.set(i, ranks[i]);
}

template <class Reader>
Result<std::vector<Rank>> read_host_ranks(Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxHostRanks, "ranks of a host").status());
  std::vector<Rank> ranks;
  for (Rank rank : in) ranks.push_back(rank);
  return ranks;
}

Result<std::string> read_host_text(capnp::Text::Reader in, const char* what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxHostTextBytes, what).status());
  return host_text(std::string(schema::view_of(in)));
}

// An enumerator that this program does not know, from a newer node, becomes the last known one.
template <class Enum, class Number>
Enum known_enum(Number number, int last) {
  return static_cast<Enum>(std::min(static_cast<int>(number), last));
}

void write_slow_calls(schema::HostStatus::Builder out, const HostStatus& status) {
  auto calls = out.initSlowCalls(count_within(status.slow_calls, kMaxHostSlowCalls));
  for (uint32_t i = 0; i < calls.size(); ++i) {
    calls[i].setWhat(schema::text_of(host_text(status.slow_calls[i].what)));
    calls[i].setAgeMs(status.slow_calls[i].age_ms);
  }
}

SaveStatus within_bounds_of_host(SaveStatus save) {
  save.trouble = host_text(save.trouble);
  save.awaited.resize(std::min(save.awaited.size(), kMaxHostRanks));
  return save;
}

void write_host_status(schema::HostStatus::Builder out, const HostStatus& status) {
  out.setHost(schema::text_of(host_text(status.host)));
  out.setPid(status.pid);
  out.setState(static_cast<schema::HostStatus::State>(status.state));
  out.setAnsweredMsAgo(status.answered_ms_ago);
  out.setCoordinates(status.coordinates);
  out.setIsStopping(status.is_stopping);
  out.setUptimeMs(status.uptime_ms);
  out.setRestarts(status.restarts);
  write_host_ranks(out.initRanks(count_within(status.ranks, kMaxHostRanks)), status.ranks);
  out.setRanksCount(status.ranks_count);
  write_host_ranks(out.initStoppedRanks(count_within(status.stopped_ranks, kMaxHostRanks)),
                   status.stopped_ranks);
  auto saves = out.initSaves(count_within(status.saves, kMaxHostSaves));
  for (uint32_t i = 0; i < saves.size(); ++i) {
    write_save_status(saves[i], within_bounds_of_host(status.saves[i]));
  }
  out.setSavesCount(status.saves_count);
  if (status.last_commit) write_commit_status(out.initLastCommit(), *status.last_commit);
  write_slow_calls(out, status);
  if (status.last_error) {
    auto error = out.initLastError();
    error.setLine(schema::text_of(host_text(status.last_error->line)));
    error.setAgeMs(status.last_error->age_ms);
  }
  out.setBytesStaged(status.bytes_staged);
  out.setBytesWritten(status.bytes_written);
  out.setBytesRead(status.bytes_read);
  out.setSavesCommitted(status.saves_committed);
  out.setSavesAborted(status.saves_aborted);
}

Status read_host_lists(schema::HostStatus::Reader in, HostStatus* out) {
  SHOAL_ASSIGN_OR_RETURN(out->ranks, read_host_ranks(in.getRanks()));
  SHOAL_ASSIGN_OR_RETURN(out->stopped_ranks, read_host_ranks(in.getStoppedRanks()));
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getSaves(), kMaxHostSaves, "saves of a host").status());
  for (auto save_in : in.getSaves()) {
    SHOAL_RETURN_IF_ERROR(
        schema::bounded_size(save_in.getAwaited(), kMaxHostRanks, "awaited ranks of a host").status());
    SHOAL_ASSIGN_OR_RETURN(SaveStatus save, read_save_status(save_in));
    out->saves.push_back(within_bounds_of_host(std::move(save)));
  }
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getSlowCalls(), kMaxHostSlowCalls, "slow calls of a host").status());
  for (auto call : in.getSlowCalls()) {
    SHOAL_ASSIGN_OR_RETURN(std::string what, read_host_text(call.getWhat(), "name of a slow call"));
    out->slow_calls.push_back({std::move(what), call.getAgeMs()});
  }
  return ok_status();
}

Result<HostStatus> read_host_status(schema::HostStatus::Reader in) {
  HostStatus out;
  SHOAL_ASSIGN_OR_RETURN(out.host, read_host_text(in.getHost(), "name of a host"));
  out.pid = in.getPid();
  out.state = known_enum<HostState>(in.getState(), kLastHostState);
  out.answered_ms_ago = in.getAnsweredMsAgo();
  out.coordinates = in.getCoordinates();
  out.is_stopping = in.getIsStopping();
  out.uptime_ms = in.getUptimeMs();
  out.restarts = in.getRestarts();
  SHOAL_RETURN_IF_ERROR(read_host_lists(in, &out));
  out.ranks_count = in.getRanksCount();
  out.saves_count = in.getSavesCount();
  if (in.hasLastCommit()) out.last_commit = read_commit_status(in.getLastCommit());
  if (in.hasLastError()) {
    SHOAL_ASSIGN_OR_RETURN(std::string line, read_host_text(in.getLastError().getLine(), "error of a host"));
    out.last_error = ErrorStatus{in.getLastError().getAgeMs(), std::move(line)};
  }
  out.bytes_staged = in.getBytesStaged();
  out.bytes_written = in.getBytesWritten();
  out.bytes_read = in.getBytesRead();
  out.saves_committed = in.getSavesCommitted();
  out.saves_aborted = in.getSavesAborted();
  return out;
}

void write_job_save(schema::JobSave::Builder out, const JobSave& save) {
  write_save_status(out.initSave(), within_bounds_of_host(save.save));
  auto waits = out.initWaits(count_within(save.waits, kMaxJobWaits));
  for (uint32_t i = 0; i < waits.size(); ++i) {
    const HostWait& wait = save.waits[i];
    waits[i].setHost(schema::text_of(host_text(wait.host)));
    waits[i].setReason(static_cast<schema::HostWait::Reason>(wait.reason));
    write_host_ranks(waits[i].initRanks(count_within(wait.ranks, kMaxHostRanks)), wait.ranks);
    waits[i].setRanksCount(wait.ranks_count);
    waits[i].setDetail(schema::text_of(host_text(wait.detail)));
  }
  out.setWaitsCount(save.waits_count);
}

Result<JobSave> read_job_save(schema::JobSave::Reader in) {
  JobSave out;
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getSave().getAwaited(), kMaxHostRanks, "awaited ranks of a save").status());
  SHOAL_ASSIGN_OR_RETURN(out.save, read_save_status(in.getSave()));
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getWaits(), kMaxJobWaits, "hosts that a save waits for").status());
  for (auto wait_in : in.getWaits()) {
    HostWait wait;
    SHOAL_ASSIGN_OR_RETURN(wait.host, read_host_text(wait_in.getHost(), "name of a host"));
    wait.reason = known_enum<WaitReason>(wait_in.getReason(), kLastWaitReason);
    SHOAL_ASSIGN_OR_RETURN(wait.ranks, read_host_ranks(wait_in.getRanks()));
    wait.ranks_count = wait_in.getRanksCount();
    SHOAL_ASSIGN_OR_RETURN(wait.detail, read_host_text(wait_in.getDetail(), "what a save waits for"));
    out.waits.push_back(std::move(wait));
  }
  out.waits_count = in.getWaitsCount();
  return out;
}

}  // namespace

std::string_view host_state_name(HostState state) {
  switch (state) {
    case HostState::answered:
      return "answered";
    case HostState::silent:
      return "silent";
    case HostState::lost:
      break;
  }
  return "lost";
}

std::string_view wait_reason_name(WaitReason reason) {
  switch (reason) {
    case WaitReason::staging:
      return "staging";
    case WaitReason::writing:
      return "writing";
    case WaitReason::reporting:
      return "reporting";
    case WaitReason::silent:
      return "silent";
    case WaitReason::lost:
      return "lost";
    case WaitReason::deciding:
      break;
  }
  return "deciding";
}

std::string_view wait_reason_text(WaitReason reason) {
  switch (reason) {
    case WaitReason::staging:
      return "has not staged";
    case WaitReason::writing:
      return "writes";
    case WaitReason::reporting:
      return "has written and not reported";
    case WaitReason::silent:
      return "its node does not answer";
    case WaitReason::lost:
      return "its node is not connected";
    case WaitReason::deciding:
      break;
  }
  return "decides";
}

void write_job_status(schema::JobStatus::Builder out, const JobStatus& status) {
  out.setWorldSize(status.world_size);
  out.setGatheredMsAgo(status.gathered_ms_ago);
  auto hosts = out.initHosts(count_within(status.hosts, kMaxStatusHosts));
  for (uint32_t i = 0; i < hosts.size(); ++i) write_host_status(hosts[i], status.hosts[i]);
  out.setHostsCount(status.hosts_count);
  out.setHostsSilent(status.hosts_silent);
  out.setHostsLost(status.hosts_lost);
  auto saves = out.initSaves(count_within(status.saves, kMaxJobSaves));
  for (uint32_t i = 0; i < saves.size(); ++i) write_job_save(saves[i], status.saves[i]);
  out.setSavesCount(status.saves_count);
  if (status.last_commit) write_commit_status(out.initLastCommit(), *status.last_commit);
  out.setIncomplete(schema::text_of(host_text(status.incomplete)));
}

Result<JobStatus> read_job_status(schema::JobStatus::Reader in) {
  JobStatus out;
  out.world_size = in.getWorldSize();
  out.gathered_ms_ago = in.getGatheredMsAgo();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getHosts(), kMaxStatusHosts, "hosts of a job").status());
  for (auto host_in : in.getHosts()) {
    SHOAL_ASSIGN_OR_RETURN(HostStatus host, read_host_status(host_in));
    out.hosts.push_back(std::move(host));
  }
  out.hosts_count = in.getHostsCount();
  out.hosts_silent = in.getHostsSilent();
  out.hosts_lost = in.getHostsLost();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getSaves(), kMaxJobSaves, "saves of a job").status());
  for (auto save_in : in.getSaves()) {
    SHOAL_ASSIGN_OR_RETURN(JobSave save, read_job_save(save_in));
    out.saves.push_back(std::move(save));
  }
  out.saves_count = in.getSavesCount();
  if (in.hasLastCommit()) out.last_commit = read_commit_status(in.getLastCommit());
  SHOAL_ASSIGN_OR_RETURN(out.incomplete, read_host_text(in.getIncomplete(), "why a status is incomplete"));
  return out;
}

Bytes encode_host_status(const HostStatus& status) {
  capnp::MallocMessageBuilder builder;
  write_host_status(builder.initRoot<schema::HostStatus>(), status);
  return schema::framed_bytes(builder);
}

Result<HostStatus> decode_host_status(ByteView bytes) {
  schema::ReadLimits limits;
  limits.bytes_max = kMaxHostStatusBytes;
  return schema::read_checked<schema::HostStatus>(bytes, limits, read_host_status);
}

Bytes encode_job_status(const JobStatus& status) {
  capnp::MallocMessageBuilder builder;
  write_job_status(builder.initRoot<schema::JobStatus>(), status);
  return schema::framed_bytes(builder);
}

Result<JobStatus> decode_job_status(ByteView bytes) {
  schema::ReadLimits limits;
  limits.bytes_max = kMaxJobStatusBytes;
  return schema::read_checked<schema::JobStatus>(bytes, limits, read_job_status);
}

HostStatus host_status_of(const NodeStatus& status) {
  HostStatus out;
  out.host = host_text(status.host);
  out.pid = status.pid;
  out.coordinates = status.coordinates;
  out.is_stopping = status.is_stopping;
  out.uptime_ms = status.uptime_ms;
  out.ranks = status.ranks;
  out.ranks_count = status.ranks.size();
  for (const TrainerStatus& trainer : status.trainers) {
    if (trainer.is_stopped) out.stopped_ranks.push_back(trainer.rank);
  }
  for (const SaveStatus& save : status.saves) {
    if (out.saves.size() == kMaxHostSaves) break;
    SaveStatus& kept = out.saves.emplace_back(save);
    // At the coordinator's node the awaited ranks are those of all hosts.
    std::erase_if(kept.awaited, [&](Rank rank) {
      return !std::binary_search(status.ranks.begin(), status.ranks.end(), rank);
    });
    kept.awaited_count = kept.awaited.size();
    kept.ranks_reported = 0;
    kept.bytes_reported = 0;
    kept = within_bounds_of_host(std::move(kept));
  }
  out.saves_count = status.saves_count;
  out.last_commit = status.last_commit;
  for (const SlowCallStatus& call : status.slow_calls) {
    if (out.slow_calls.size() < kMaxHostSlowCalls)
      out.slow_calls.push_back({host_text(call.what), call.age_ms});
  }
  if (!status.errors.empty()) {
    out.last_error = ErrorStatus{status.errors.back().age_ms, host_text(status.errors.back().line)};
  }
  out.bytes_staged = status.counts.bytes_staged;
  out.bytes_written = status.counts.bytes_written;
  out.bytes_read = status.counts.bytes_read;
  out.saves_committed = status.counts.saves_committed;
  out.saves_aborted = status.counts.saves_aborted;
  out.ranks.resize(std::min(out.ranks.size(), kMaxHostRanks));
  out.stopped_ranks.resize(std::min(out.stopped_ranks.size(), kMaxHostRanks));
  return out;
}

}  // namespace shoal::local
