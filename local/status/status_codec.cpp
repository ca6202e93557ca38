#include <algorithm>

#include "local/status/status_codec_internal.h"
#include "schema/checked_reader_internal.h"
#include "shoal/bytes.h"

namespace shoal::local {

namespace {

uint32_t bounded(size_t size, size_t most) {
  return static_cast<uint32_t>(std::min(size, most));
}

template <class Builder>
void write_ranks(Builder out, const std::vector<Rank>& ranks) {
  for (uint32_t i = 0; i < out.size(); ++i) out.set(i, ranks[i]);
}

void write_status_key(schema::AttemptKey::Builder out, const AttemptKey& key) {
  out.setGeneration(key.generation);
  out.setStep(key.step);
  out.setAttempt(key.attempt);
}

template <class Reader>
Result<std::string> read_text(Reader text, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(text, kMaxStatusTextBytes, what).status());
  return clean_line(schema::view_of(text), kMaxStatusTextBytes);
}

template <class Reader>
Result<std::vector<Rank>> read_ranks(Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxStatusRanks, "ranks of a status").status());
  std::vector<Rank> ranks;
  for (Rank rank : in) ranks.push_back(rank);
  return ranks;
}

template <class Reader>
AttemptKey read_key(Reader in) {
  return {in.getGeneration(), in.getStep(), in.getAttempt()};
}

Status read_texts(schema::NodeStatus::Reader in, NodeStatus* out) {
  SHOAL_ASSIGN_OR_RETURN(out->version, read_text(in.getVersion(), "version"));
  SHOAL_ASSIGN_OR_RETURN(out->host, read_text(in.getHost(), "host"));
  SHOAL_ASSIGN_OR_RETURN(out->root, read_text(in.getRoot(), "root"));
  SHOAL_ASSIGN_OR_RETURN(out->root_id, read_text(in.getRootId(), "root id"));
  SHOAL_ASSIGN_OR_RETURN(out->job_id, read_text(in.getJobId(), "job id"));
  SHOAL_ASSIGN_OR_RETURN(out->coordinator, read_text(in.getCoordinator(), "coordinator"));
  return ok_status();
}

Status read_lists(schema::NodeStatus::Reader in, NodeStatus* out) {
  SHOAL_ASSIGN_OR_RETURN(out->ranks, read_ranks(in.getRanks()));
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getTrainers(), kMaxStatusRanks, "trainers of a status").status());
  for (auto trainer : in.getTrainers()) {
    out->trainers.push_back({trainer.getRank(), trainer.getPid(), trainer.getIsStopped()});
  }
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getPeers(), kMaxStatusPeers, "peers of a status").status());
  for (auto peer : in.getPeers()) {
    SHOAL_ASSIGN_OR_RETURN(std::string name, read_text(peer.getName(), "name of a peer"));
    out->peers.push_back({std::move(name), peer.getCoordinates()});
  }
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getSaves(), kMaxStatusSaves, "saves of a status").status());
  for (auto save_in : in.getSaves()) {
    SHOAL_ASSIGN_OR_RETURN(SaveStatus save, read_save_status(save_in));
    out->saves.push_back(std::move(save));
  }
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getErrors(), kMaxStatusErrors, "errors of a status").status());
  for (auto error : in.getErrors()) {
    SHOAL_ASSIGN_OR_RETURN(std::string line, read_text(error.getLine(), "line of an error"));
    out->errors.push_back({error.getAgeMs(), std::move(line)});
  }
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getSlowCalls(), kMaxStatusSlowCalls, "slow calls of a status").status());
  for (auto call : in.getSlowCalls()) {
    SHOAL_ASSIGN_OR_RETURN(std::string what, read_text(call.getWhat(), "name of a slow call"));
    out->slow_calls.push_back({std::move(what), call.getAgeMs()});
  }
  return ok_status();
}

NodeCounts read_counts(schema::NodeStatus::Reader in) {
  NodeCounts counts;
  counts.saves_begun = in.getSavesBegun();
  counts.saves_committed = in.getSavesCommitted();
  counts.saves_aborted = in.getSavesAborted();
  counts.bytes_staged = in.getBytesStaged();
  counts.bytes_written = in.getBytesWritten();
  counts.bytes_read = in.getBytesRead();
  counts.loads_begun = in.getLoadsBegun();
  counts.loads_done = in.getLoadsDone();
  counts.loads_failed = in.getLoadsFailed();
  counts.bytes_to_peers = in.getBytesToPeers();
  counts.bytes_from_peers = in.getBytesFromPeers();
  return counts;
}

void write_counts(schema::NodeStatus::Builder out, const NodeCounts& counts) {
  out.setSavesBegun(counts.saves_begun);
  out.setSavesCommitted(counts.saves_committed);
  out.setSavesAborted(counts.saves_aborted);
  out.setBytesStaged(counts.bytes_staged);
  out.setBytesWritten(counts.bytes_written);
  out.setBytesRead(counts.bytes_read);
  out.setLoadsBegun(counts.loads_begun);
  out.setLoadsDone(counts.loads_done);
  out.setLoadsFailed(counts.loads_failed);
  out.setBytesToPeers(counts.bytes_to_peers);
  out.setBytesFromPeers(counts.bytes_from_peers);
}

void write_lists(schema::NodeStatus::Builder out, const NodeStatus& status) {
  write_ranks(out.initRanks(bounded(status.ranks.size(), kMaxStatusRanks)), status.ranks);
  auto trainers = out.initTrainers(bounded(status.trainers.size(), kMaxStatusRanks));
  for (uint32_t i = 0; i < trainers.size(); ++i) {
    trainers[i].setRank(status.trainers[i].rank);
    trainers[i].setPid(status.trainers[i].pid);
    trainers[i].setIsStopped(status.trainers[i].is_stopped);
  }
  auto peers = out.initPeers(bounded(status.peers.size(), kMaxStatusPeers));
  for (uint32_t i = 0; i < peers.size(); ++i) {
    peers[i].setName(schema::text_of(clean_line(status.peers[i].name, kMaxStatusTextBytes)));
    peers[i].setCoordinates(status.peers[i].coordinates);
  }
  auto saves = out.initSaves(bounded(status.saves.size(), kMaxStatusSaves));
  for (uint32_t i = 0; i < saves.size(); ++i) write_save_status(saves[i], status.saves[i]);
  auto errors = out.initErrors(bounded(status.errors.size(), kMaxStatusErrors));
  for (uint32_t i = 0; i < errors.size(); ++i) {
    errors[i].setAgeMs(status.errors[i].age_ms);
    errors[i].setLine(schema::text_of(clean_line(status.errors[i].line, kMaxStatusTextBytes)));
  }
  auto calls = out.initSlowCalls(bounded(status.slow_calls.size(), kMaxStatusSlowCalls));
  for (uint32_t i = 0; i < calls.size(); ++i) {
    calls[i].setWhat(schema::text_of(clean_line(status.slow_calls[i].what, kMaxStatusTextBytes)));
    calls[i].setAgeMs(status.slow_calls[i].age_ms);
  }
}

}  // namespace

std::string_view phase_name(SavePhase phase) {
  switch (phase) {
    case SavePhase::staging:
      return "staging";
    case SavePhase::writing:
      return "writing";
    case SavePhase::waiting:
      return "waiting";
    case SavePhase::committing:
      return "committing";
    case SavePhase::planning:
      break;
  }
  return "planning";
}

void write_save_status(schema::SaveStatus::Builder out, const SaveStatus& save) {
  write_status_key(out.initKey(), save.key);
  out.setPhase(static_cast<schema::SaveStatus::Phase>(save.phase));
  out.setAgeMs(save.age_ms);
  out.setRanksHere(save.ranks_here);
  out.setRanksStaged(save.ranks_staged);
  out.setRanksWritten(save.ranks_written);
  out.setBytesStaged(save.bytes_staged);
  out.setBytesToWrite(save.bytes_to_write);
  out.setBytesWritten(save.bytes_written);
  out.setRanksReported(save.ranks_reported);
  out.setBytesReported(save.bytes_reported);
  write_ranks(out.initAwaited(bounded(save.awaited.size(), kMaxStatusRanks)), save.awaited);
  out.setAwaitedCount(save.awaited_count);
  out.setTrouble(schema::text_of(clean_line(save.trouble, kMaxStatusTextBytes)));
}

Result<SaveStatus> read_save_status(schema::SaveStatus::Reader in) {
  SaveStatus save;
  save.key = read_key(in.getKey());
  // A phase that this program does not know, from a newer node, becomes the last known phase.
  save.phase = static_cast<SavePhase>(std::min<uint16_t>(static_cast<uint16_t>(in.getPhase()), 4));
  save.age_ms = in.getAgeMs();
  save.ranks_here = in.getRanksHere();
  save.ranks_staged = in.getRanksStaged();
  save.ranks_written = in.getRanksWritten();
  save.bytes_staged = in.getBytesStaged();
  save.bytes_to_write = in.getBytesToWrite();
  save.bytes_written = in.getBytesWritten();
  save.ranks_reported = in.getRanksReported();
  save.bytes_reported = in.getBytesReported();
  SHOAL_ASSIGN_OR_RETURN(save.awaited, read_ranks(in.getAwaited()));
  save.awaited_count = in.getAwaitedCount();
  SHOAL_ASSIGN_OR_RETURN(save.trouble, read_text(in.getTrouble(), "trouble of a save"));
  return save;
}

void write_commit_status(schema::CommitStatus::Builder out, const CommitStatus& commit) {
  write_status_key(out.initKey(), commit.key);
  out.setUnixTimeNs(commit.unix_time_ns);
  out.setDurationMs(commit.duration_ms);
  out.setPayloadBytes(commit.payload_bytes);
  out.setSlowestRank(commit.slowest_rank ? static_cast<int64_t>(*commit.slowest_rank) : -1);
}

CommitStatus read_commit_status(schema::CommitStatus::Reader in) {
  CommitStatus commit;
  commit.key = read_key(in.getKey());
  commit.unix_time_ns = in.getUnixTimeNs();
  commit.duration_ms = in.getDurationMs();
  commit.payload_bytes = in.getPayloadBytes();
  if (int64_t rank = in.getSlowestRank(); rank >= 0) commit.slowest_rank = static_cast<Rank>(rank);
  return commit;
}

void write_node_status(schema::NodeStatus::Builder out, const NodeStatus& status) {
  auto text = [](const std::string& line) { return clean_line(line, kMaxStatusTextBytes); };
  out.setVersion(schema::text_of(text(status.version)));
  out.setHost(schema::text_of(text(status.host)));
  out.setPid(status.pid);
  out.setRoot(schema::text_of(text(status.root)));
  out.setRootId(schema::text_of(text(status.root_id)));
  out.setJobId(schema::text_of(text(status.job_id)));
  out.setGeneration(status.generation);
  out.setEpoch(status.epoch);
  out.setCoordinates(status.coordinates);
  out.setCoordinator(schema::text_of(text(status.coordinator)));
  out.setWorldSize(status.world_size);
  out.setUptimeMs(status.uptime_ms);
  out.setIsStopping(status.is_stopping);
  out.setReadOnly(status.read_only);
  out.setPeersCount(status.peers_count);
  out.setSavesCount(status.saves_count);
  write_lists(out, status);
  write_counts(out, status.counts);
  if (status.last_commit) write_commit_status(out.initLastCommit(), *status.last_commit);
}

Result<NodeStatus> read_node_status(schema::NodeStatus::Reader in) {
  NodeStatus out;
  SHOAL_RETURN_IF_ERROR(read_texts(in, &out));
  SHOAL_RETURN_IF_ERROR(read_lists(in, &out));
  out.pid = in.getPid();
  out.generation = in.getGeneration();
  out.epoch = in.getEpoch();
  out.coordinates = in.getCoordinates();
  out.world_size = in.getWorldSize();
  out.uptime_ms = in.getUptimeMs();
  out.is_stopping = in.getIsStopping();
  out.read_only = in.getReadOnly();
  out.peers_count = in.getPeersCount();
  out.saves_count = in.getSavesCount();
  out.counts = read_counts(in);
  if (in.hasLastCommit()) out.last_commit = read_commit_status(in.getLastCommit());
  return out;
}

}  // namespace shoal::local
