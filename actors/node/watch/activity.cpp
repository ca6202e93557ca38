#include "actors/node/watch/activity.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "actors/giving_up.h"
#include "base/clock.h"
#include "base/visit.h"
#include "shoal/bytes.h"

namespace shoal::actors {

namespace {

constexpr const char* kAborted = " is aborted: ";

uint64_t ms_between(TimeNs from, TimeNs to) {
  return to > from ? static_cast<uint64_t>((to - from) / kMillisecond) : 0;
}

uint64_t bytes_of(const operation::WriteShard& write) {
  uint64_t bytes = 0;
  for (const storage::ShardPiece& piece : write.pieces) bytes += piece.bytes;
  return bytes;
}

Status aborted(const std::string& cause) {
  return Status(Code::aborted, cause);
}

void note(std::string* trouble, std::string line) {
  if (trouble->empty()) *trouble = std::move(line);
}

}  // namespace

// --- messages of and to clients ---

void Activity::from_client(TimeNs now, ClientId client, const local::LocalMessage& message) {
  std::lock_guard lock(mutex_);
  std::visit(base::Overloaded{
                 [&](const local::Attach& attach) {
                   clients_[client] = attach.rank;
                   if (attach.pid != 0) pids_[client] = attach.pid;
                   if (world_size_ == 0) world_size_ = attach.world_size;
                 },
                 [&](const local::Staged& bytes) { staged(now, client, bytes); },
                 [&](const local::Written& written) {
                   auto found = clients_.find(client);
                   Save* save = open(now, {generation_, written.step, written.attempt});
                   if (save != nullptr && found != clients_.end())
                     save->ranks[found->second].is_written = true;
                 },
                 [&](const base::OneOf<local::PlanRequest, local::PlanGathering> auto& wanted) {
                   open(now, {generation_, wanted.step, wanted.attempt});
                 },
                 [&](const local::NotStaged& missing) {
                   if (Save* save = open(now, {generation_, missing.step, missing.attempt})) {
                     note(&save->trouble, missing.why.to_string());
                   }
                 },
                 [&](const local::Load& load) {
                   ++counts_.node.loads_begun;
                   if (clients_.contains(client)) loads_[client] = load.request_id;
                 },
                 [&](const local::SaveReturned& returned) { save_returned(returned); },
                 [&](const local::LayoutUpdate& layout) {
                   if (layout.options.mode == SaveMode::rank_local) saves_rank_local();
                 },
                 // Shown nowhere.
                 [](const base::OneOf<local::Slab, local::Latest, local::List, local::Placed, local::Close,
                                      local::FilesRead, local::Ping, local::StagingRequest,
                                      local::StagingKept, local::PartStaged, local::Detach,
                                      local::StatusRequest, local::JobStatusRequest> auto&) {},
                 [](const local::OnlyFromNode auto&) {}},
             message);
}

void Activity::staged(TimeNs now, ClientId client, const local::Staged& staged) {
  auto found = clients_.find(client);
  if (found == clients_.end()) return;
  Save* save = open(now, {generation_, staged.step, staged.attempt});
  if (save == nullptr) return;
  RankProgress& progress = save->ranks[found->second];
  progress.client = client;
  progress.is_planned = !staged.roster_id.is_zero();
  uint64_t bytes = 0;
  for (const local::StagedPiece& piece : staged.pieces) bytes += piece.bytes;
  progress.bytes_staged = bytes;
  if (!staged.again) counts_.node.bytes_staged += bytes;
  save->last_rank = found->second;
  save->staged_at = now;
}

void Activity::client_lost(ClientId client) {
  std::lock_guard lock(mutex_);
  clients_.erase(client);
  pids_.erase(client);
  loads_.erase(client);
}

void Activity::to_client(TimeNs now, ClientId client, const local::LocalMessage& message) {
  std::lock_guard lock(mutex_);
  std::visit(
      base::Overloaded{[&](const local::SlabFree& free) { freed(now, client, free); },
                       [&](const local::Decided& decided) { notified(now, decided); },
                       [&](const local::LoadDone& done) { load_done(now, done); },
                       [&](const local::RosterUpdate&) {
                         has_roster_ = true;
                         joined_.clear();
                       },
                       [&](const local::Found& found) { load_found(now, client, found); },
                       // Shown nowhere.
                       [](const base::OneOf<local::Attached, local::Failed, local::Loaded, local::Refused,
                                            local::Pong, local::StatusReport, local::JobStatusReport,
                                            local::PlanUpdate, local::PlanGathering, local::FilesToRead,
                                            local::StagingGranted, local::GiveBack, local::PartRequest,
                                            local::Listing, local::StillWriting> auto&) {},
                       [](const local::OnlyFromClient auto&) {}},
      message);
}

void Activity::freed(TimeNs now, ClientId client, const local::SlabFree& free) {
  auto save = saves_.find({generation_, free.step, free.attempt});
  auto rank = clients_.find(client);
  if (save == saves_.end() || rank == clients_.end() || !free.durable) return;
  save->second.ranks[rank->second].is_written = true;
  save->second.last_rank = rank->second;
  save->second.durable_at = now;
}

void Activity::notified(TimeNs now, const local::Decided& decided) {
  AttemptKey key{generation_, decided.step, decided.attempt};
  if (!decided.outcome.ok()) {
    const bool is_aborted = decided.outcome.code() == Code::aborted;
    return abort(now, key, decided.outcome, is_aborted ? AbortCause::other : AbortCause::undecided);
  }
  const uint64_t payload_bytes = decided.checkpoint ? decided.checkpoint->payload_bytes : 0;
  commit(now, {key, 0, payload_bytes});
  if (payload_bytes == 0) return;
  if (auto& last = counts_.last_commit; last && last->key == key) last->payload_bytes = payload_bytes;
  if (auto& newest = counts_.newest; newest && newest->key == key) newest->payload_bytes = payload_bytes;
  if (!records_.empty() && records_.back().key == key) records_.back().payload_bytes = payload_bytes;
}

void Activity::save_returned(const local::SaveReturned& returned) {
  counts_.blocked_seconds.add(static_cast<double>(returned.blocked_ns) / 1e9);
  counts_.waited_seconds += static_cast<double>(returned.waited_ns) / 1e9;
  const AttemptKey key{generation_, returned.step, returned.attempt};
  if (const auto save = saves_.find(key); save != saves_.end()) {
    save->second.blocked_ns = std::max(save->second.blocked_ns, returned.blocked_ns);
    return;
  }
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {  // decided already
    if (record->key != key) continue;
    record->blocked_ns = std::max(record->blocked_ns, returned.blocked_ns);
    return;
  }
}

// A Found with an error is the only answer to a Load that chose no checkpoint. Latest is also answered by a
// Found, but is not a load.
void Activity::load_found(TimeNs now, ClientId client, const local::Found& found) {
  const auto load = loads_.find(client);
  const bool is_load = load != loads_.end() && load->second == found.request_id;
  if (is_load) loads_.erase(load);
  if (found.outcome.ok()) return;
  if (is_load) return load_failed(now, found.outcome);
  if (found.outcome.code() != Code::not_found) add_error(now, "load: " + found.outcome.to_string());
}

// A job that starts with an empty root loads nothing. `shoal status` shows no failure then.
void Activity::load_failed(TimeNs now, const Status& why) {
  ++counts_.loads_failed[static_cast<size_t>(why.code())];
  if (why.code() == Code::not_found) return;
  ++counts_.node.loads_failed;
  add_error(now, "load: " + why.to_string());
}

void Activity::load_done(TimeNs now, const local::LoadDone& done) {
  if (done.outcome.ok()) {
    ++counts_.node.loads_done;
  } else {
    load_failed(now, done.outcome);
  }
  if (done.damaged.count != 0) add_error(now, "load: " + to_string(done.damaged.named.at(0)));
}

// --- messages of peers ---

void Activity::from_peer(TimeNs now, const WireBody& body) {
  std::lock_guard lock(mutex_);
  std::visit(base::Overloaded{
                 [&](const wire::ShardsWritten& report) { reported(now, report); },
                 [&](const wire::SaveFailed& failed) {
                   if (Save* save = open(now, failed.key)) {
                     note(&save->trouble, failed.rank ? "rank " + std::to_string(*failed.rank) + ": " +
                                                            failure_text(failed.why)
                                                      : host_failure_text(failed.host, failed.why));
                   }
                 },
                 [&](const wire::Decided& decided) {
                   if (decided.committed) return commit(now, {decided.key, 0, 0});
                   abort(now, decided.key, aborted(decided.cause), abort_cause_of(decided.give_up));
                 },
                 [&](const wire::JoinRanks& join) {
                   place(join.host, join.ranks);
                   if (has_roster_) return;
                   for (const wire::RankLayout& rank : join.ranks) joined_.insert(rank.rank);
                 },
                 [&](const wire::LocalPlans& plans) { place(plans.host, plans.ranks); },
                 [&](const wire::RanksEnded& ended) {
                   place(ended.host, ended.here);
                   place(ended.host, ended.expected);
                   if (ended.rank_local) saves_rank_local();
                 },
                 [&](const wire::LayoutsStaged& staged) {
                   Save* save = open(now, staged.key);
                   if (save == nullptr) return;
                   for (const wire::RankLayout& rank : staged.ranks) save->layouts_staged.insert(rank.rank);
                 },
                 // Shown nowhere.
                 [](const base::OneOf<wire::LayoutRequest, wire::Layouts, wire::RosterUpdate,
                                      wire::JoinRejected, wire::Pending, wire::Superseded, wire::Undecided,
                                      wire::AttemptRoster, wire::GlobalPlan, wire::PlanGathering,
                                      wire::JoinLoad, wire::LoadRoster, wire::ChunkRequest, wire::ChunkData,
                                      wire::ChunksUnavailable, wire::ChunksCancelled, wire::ChunksPending,
                                      wire::SaveProgress, wire::ManifestsPublished> auto&) {}},
             body);
}

namespace {
Rank rank_of(const wire::RankLayout& rank) {
  return rank.rank;
}
Rank rank_of(Rank rank) {
  return rank;
}
}  // namespace

// A rank is of the host that claims it last: the one that had it before was replaced.
template <class Ranks>
void Activity::place(const std::string& host, const Ranks& ranks) {
  RanksOfHosts& known = job_.ranks_of_hosts;
  if (host.empty() || ranks.empty()) return;
  if (known.size() >= kMaxHostsOfRanks && !replaced_.empty() && !known.contains(host)) {
    known.erase(*replaced_.begin());
    replaced_.erase(replaced_.begin());
  }
  if (known.size() >= kMaxHostsOfRanks && !known.contains(host)) return;
  const auto claimer = known.try_emplace(host).first;
  for (const auto& each : ranks) {
    const Rank rank = rank_of(each);
    if (claimer->second.contains(rank) || claimer->second.size() >= kMaxRanksPerNode) continue;
    const auto [holder, is_new] = holders_.try_emplace(rank, claimer);
    if (!is_new) {
      const auto before = std::exchange(holder->second, claimer);
      before->second.erase(rank);
      if (before->second.empty()) replaced_.insert(before->first);
    }
    claimer->second.insert(rank);
    replaced_.erase(host);
    job_copy_.reset();
  }
}

void Activity::saves_rank_local() {
  if (std::exchange(job_.is_rank_local, true)) return;
  job_copy_.reset();
}

void Activity::reported(TimeNs now, const wire::ShardsWritten& report) {
  Save* save = open(now, report.key);
  if (save == nullptr) return;
  std::set<Rank> fresh;
  for (const wire::RankPlan& plan : report.plans) {
    if (save->reported.insert(plan.rank).second) fresh.insert(plan.rank);
  }
  for (const wire::WrittenFile& file : report.files) {
    if (fresh.contains(file.rank)) save->bytes_reported += file.payload_bytes;
  }
  if (fresh.empty()) return;
  save->last_rank = *fresh.rbegin();
  save->durable_at = now;
}

// --- operations ---

void Activity::operation_began(TimeNs now, const Operation& operation) {
  std::lock_guard lock(mutex_);
  if (const auto* write = std::get_if<operation::WriteShard>(&operation)) {
    Save* save = open(now, write->key);
    if (save == nullptr) return;
    RankProgress& progress = save->ranks[write->rank];
    progress.bytes_begun += bytes_of(*write);
    ++progress.writes_running;
  } else if (const auto* publish = std::get_if<operation::PublishDecision>(&operation)) {
    auto save = saves_.find(publish->key);
    if (save != saves_.end()) save->second.is_publishing = true;
  }
}

void Activity::operation_ended(TimeNs now, const Operation& operation,
                               const Result<OperationResult>& result) {
  using namespace operation;
  std::lock_guard lock(mutex_);
  std::visit(base::Overloaded{
                 [&](const WriteShard& write) { write_ended(write, result); },
                 [&](const PublishDecision& publish) { publish_ended(now, publish, result); },
                 [&](const base::OneOf<ReadDecision, CompleteAttempt, CompleteRankLocal> auto&) {
                   see_decision(result);
                 },
                 [&](const base::OneOf<ReadBatch, ReadChunk> auto& read) {
                   if (!result.ok()) return;
                   for (const ReadRange& range : read.ranges)
                     counts_.node.bytes_read += range.end - range.begin;
                 },
                 [&](const LocateRanges& locate) {
                   if (!result.ok()) return;
                   const LocatedRanges& located = *std::get<LocateRanges::Answer>(*result);
                   for (size_t i = 0; i < locate.ranges.size(); ++i) {  // the client reads them
                     if (!located.places[i].file) continue;
                     counts_.node.bytes_read += locate.ranges[i].end - locate.ranges[i].begin;
                   }
                 },
                 [&](const RecordDecision& record) {
                   ++(result.ok() ? counts_.catalog_recorded : counts_.catalog_errors);
                   recorded(now, *record.decision);
                 },
                 // Shown nowhere.
                 [](const base::OneOf<RecordStaged, PublishRankManifest, ListMissingManifests, DecodeDecision,
                                      VerifyCheckpoint, CheckFiles, PublishRoster, ReadRoster, ReadEpoch,
                                      ListAttempts, ListNewestAttempts, ListAttemptsOfStep, ListCheckpoints,
                                      InspectAttempt, SweepAttempt, PinAttempt, RenewPin, RemovePin,
                                      PlanRetention, DeleteCheckpoint, RemoveRemains, PublishLoadChoice,
                                      ReadLoadChoice, MeasureObjects, ListenToPeers, CheckChunk, ReadHeader,
                                      CheckHeader, CopyChunk, ReleaseWindow, MeasureWrites> auto&) {}},
             operation);
}

void Activity::publish_ended(TimeNs now, const operation::PublishDecision& publish,
                             const Result<OperationResult>& result) {
  auto save = saves_.find(publish.key);
  if (save != saves_.end()) save->second.is_publishing = false;
  if (!result.ok()) {  // the role that publishes warns of it too
    if (save != saves_.end()) {
      note(&save->second.trouble, "cannot publish a decision: " + result.status().to_string());
    }
    return;
  }
  const storage::Decision& decision = *std::get<operation::PublishDecision::Answer>(*result);
  if (!decision.committed()) {
    const auto* own = std::get_if<storage::Tombstone>(publish.body.get());
    const bool is_own = own != nullptr && own->cause == decision.tombstone().cause;
    if (is_own) open(now, decision.key);  // an attempt of an earlier run, of which there was no message
    return abort(now, decision.key, aborted(decision.tombstone().cause),
                 abort_cause_of(is_own ? publish.give_up : std::nullopt));
  }
  commit(now, {decision.key, decision.unix_time_ns, decision.manifest().payload_bytes});
}

// At the coordinator. If another node or an earlier coordinator has published the decision, there is no other
// sign that the save is decided.
void Activity::recorded(TimeNs now, const storage::Decision& decision) {
  if (decision.committed()) {
    commit(now, {decision.key, decision.unix_time_ns, decision.manifest().payload_bytes});
  } else if (decision.was_committed()) {
    settle(decision.key);  // and deleted meanwhile
  } else {
    abort(now, decision.key, aborted(decision.tombstone().cause), AbortCause::other);
  }
}

// A decision that this node has read: of a save that was decided before this node began, perhaps.
void Activity::see_decision(const Result<OperationResult>& result) {
  if (!result.ok()) return;
  const storage::Decision& decision = *std::get<DecisionPtr>(*result);
  if (!decision.committed()) return;
  see({decision.key, decision.unix_time_ns, decision.manifest().payload_bytes}, true);
}

void Activity::write_ended(const operation::WriteShard& write, const Result<OperationResult>& result) {
  if (result.ok()) counts_.node.bytes_written += std::get<storage::WrittenShard>(*result).payload_bytes;
  auto save = saves_.find(write.key);
  if (save == saves_.end()) return;
  RankProgress& progress = save->second.ranks[write.rank];
  if (progress.writes_running > 0) --progress.writes_running;
  if (result.ok()) {
    progress.bytes_written += std::get<storage::WrittenShard>(*result).payload_bytes;
  } else {
    note(&save->second.trouble, result.status().to_string());
  }
}

void Activity::warned(TimeNs now, const std::string& line) {
  std::lock_guard lock(mutex_);
  ++counts_.warnings;
  add_error(now, line);
}

void Activity::add_failure(TimeNs now, const AttemptKey& key, const Status& outcome) {
  const std::string& cause = outcome.message();
  const bool is_known = std::any_of(errors_.begin(), errors_.end(), [&](const Error& known) {
    return known.line.find(to_string(key)) != std::string::npos &&
           known.line.find(cause) != std::string::npos;
  });
  if (!is_known) add_error(now, to_string(key) + (outcome.code() == Code::aborted ? kAborted : ": ") + cause);
}

// The messages show an abort, and so do the warnings of the roles.
void Activity::add_error(TimeNs now, std::string line) {
  const bool is_known = line.find(kAborted) != std::string::npos &&
                        std::any_of(errors_.begin(), errors_.end(),
                                    [&](const Error& known) { return line.ends_with(known.line); });
  if (is_known) return;
  errors_.push_back({now, std::move(line)});
  if (errors_.size() > local::kMaxStatusErrors) errors_.pop_front();
}

// --- saves ---

Activity::Save* Activity::open(TimeNs now, const AttemptKey& key) {
  if (auto found = saves_.find(key); found != saves_.end()) return &found->second;
  if (settled_.contains(key) || saves_.size() >= kMaxSavesTracked) return nullptr;
  ++counts_.node.saves_begun;
  Save& save = saves_[key];
  save.began = now;
  return &save;
}

std::optional<Activity::Save> Activity::settle(const AttemptKey& key) {
  auto found = saves_.find(key);
  if (found == saves_.end()) return std::nullopt;
  Save save = std::move(found->second);
  saves_.erase(found);
  settled_.insert(key);
  if (settled_.size() > kMaxSavesSettled) settled_.erase(settled_.begin());
  return save;
}

void Activity::abort(TimeNs now, const AttemptKey& key, const Status& outcome, AbortCause cause) {
  const std::optional<Save> save = settle(key);
  if (!save) return;
  SaveRecord record = record_of(now, key, *save);
  record.state = SaveRecord::State::aborted;
  record.abort_cause = cause;
  record.cause = clean_line(outcome.message(), kMaxRecordCauseBytes);
  keep_record(std::move(record));
  ++counts_.node.saves_aborted;
  ++counts_.aborted[static_cast<size_t>(cause)];
  add_failure(now, key, outcome);
}

void Activity::commit(TimeNs now, const NewestCheckpoint& checkpoint) {
  NewestCheckpoint made = checkpoint;
  // Another node published it: take the time at which this one was informed, until it reads the decision.
  const bool is_known = made.unix_time_ns != 0;
  if (!is_known) made.unix_time_ns = base::unix_now_ns();
  see(made, is_known);
  const std::optional<Save> save = settle(made.key);
  if (!save) return;
  SaveRecord record = record_of(now, made.key, *save);
  record.state = SaveRecord::State::committed;
  if (save->durable_at) record.durable_ms = ms_between(save->began, *save->durable_at);
  record.payload_bytes = made.payload_bytes;
  keep_record(std::move(record));
  ++counts_.node.saves_committed;
  counts_.commit_seconds.add(static_cast<double>(now - save->began) / 1e9);
  if (counts_.last_commit && made.key < counts_.last_commit->key) return;
  counts_.last_commit = {made.key, made.unix_time_ns, ms_between(save->began, now), made.payload_bytes,
                         save->last_rank};
}

void Activity::see(const NewestCheckpoint& checkpoint, bool is_from_decision) {
  const auto& newest = counts_.newest;
  const bool is_news = !newest || newest->key < checkpoint.key;
  if (is_news || (is_from_decision && newest->key == checkpoint.key)) counts_.newest = checkpoint;
}

void Activity::checkpoint_exists(const NewestCheckpoint& checkpoint) {
  std::lock_guard lock(mutex_);
  see(checkpoint, true);
}

// --- status ---

ActivityCounts Activity::counts() const {
  std::lock_guard lock(mutex_);
  ActivityCounts out = counts_;
  out.saves_in_flight = saves_.size();
  out.ranks_attached = clients_.size();
  return out;
}

SaveRecord Activity::record_of(TimeNs now, const AttemptKey& key, const Save& save) {
  SaveRecord out;
  out.key = key;
  const uint64_t age_ms = ms_between(save.began, now);
  out.began_unix_ms = base::unix_now_ns() / kMillisecond - static_cast<int64_t>(age_ms);
  if (save.staged_at) out.staged_ms = ms_between(save.began, *save.staged_at);
  out.decided_ms = age_ms;
  out.blocked_ns = save.blocked_ns;
  return out;
}

void Activity::keep_record(SaveRecord record) {
  records_.push_back(std::move(record));
  if (records_.size() > kMaxSaveRecords) records_.pop_front();
}

std::vector<SaveRecord> Activity::save_records(TimeNs now) const {
  std::lock_guard lock(mutex_);
  std::vector<SaveRecord> out(records_.begin(), records_.end());
  size_t left_out = saves_.size() - std::min(saves_.size(), kMaxSaveRecords);
  for (const auto& [key, save] : saves_) {
    if (left_out > 0) {
      --left_out;
      continue;
    }
    out.push_back(record_of(now, key, save));
    out.back().decided_ms.reset();
    if (save.ranks.size() < clients_.size()) out.back().staged_ms.reset();  // some are missing
  }
  return out;
}

std::shared_ptr<const JobFacts> Activity::job_facts() const {
  std::lock_guard lock(mutex_);
  if (job_copy_ == nullptr) job_copy_ = std::make_shared<const JobFacts>(job_);
  return job_copy_;
}

bool Activity::is_written(const RankProgress& progress) const {
  if (progress.is_written) return true;
  // A trainer that ended after staging receives no SlabFree. Its rank counts as written if its writes began
  // and ended well.
  return !clients_.contains(progress.client) && progress.writes_running == 0 && progress.bytes_begun > 0 &&
         progress.bytes_written == progress.bytes_begun;
}

bool Activity::awaits_roster(const Save& save) {
  return std::any_of(save.ranks.begin(), save.ranks.end(), [](const auto& rank) {
    const RankProgress& progress = rank.second;
    return !progress.is_planned && !progress.is_written && progress.bytes_begun == 0;
  });
}

local::SaveStatus Activity::describe(TimeNs now, bool coordinates, const AttemptKey& key,
                                     const Save& save) const {
  local::SaveStatus out;
  out.key = key;
  out.age_ms = ms_between(save.began, now);
  out.trouble = save.trouble;
  std::set<Rank> here, written;
  for (const auto& [client, rank] : clients_) here.insert(rank);
  for (const auto& [rank, progress] : save.ranks) {
    here.insert(rank);
    ++out.ranks_staged;
    out.bytes_staged += progress.bytes_staged;
    out.bytes_to_write +=
        progress.is_planned ? std::max(progress.bytes_staged, progress.bytes_begun) : progress.bytes_begun;
    out.bytes_written += progress.bytes_written;
    if (is_written(progress)) written.insert(rank);
  }
  out.ranks_here = static_cast<uint32_t>(here.size());
  out.ranks_written = static_cast<uint32_t>(written.size());
  out.phase = save.is_publishing                     ? local::SavePhase::committing
              : out.ranks_staged < out.ranks_here    ? local::SavePhase::staging
              : awaits_roster(save)                  ? local::SavePhase::planning
              : out.ranks_written < out.ranks_staged ? local::SavePhase::writing
                                                     : local::SavePhase::waiting;
  for (Rank rank : here) {
    bool is_staged = save.ranks.contains(rank);
    if (out.phase == local::SavePhase::staging ? is_staged : !is_staged || written.contains(rank)) continue;
    if (out.awaited_count++ < local::kMaxStatusRanks) out.awaited.push_back(rank);
  }
  if (coordinates) add_reports(save, written, &out);
  if (coordinates && out.phase == local::SavePhase::planning) name_missing_layouts(save, &out);
  return out;
}

void Activity::add_reports(const Save& save, const std::set<Rank>& written_here,
                           local::SaveStatus* out) const {
  size_t reported = save.reported.size();
  for (Rank rank : written_here) reported += !save.reported.contains(rank);
  out->ranks_reported = static_cast<uint32_t>(reported);
  out->bytes_reported = save.bytes_reported + out->bytes_written;
  if (reported >= world_size_) return;
  // Those of all hosts, instead of those of this host.
  await_all_but({&save.reported, &written_here}, out);
}

void Activity::name_missing_layouts(const Save& save, local::SaveStatus* out) const {
  std::set<Rank> here;
  for (const auto& [rank, progress] : save.ranks) here.insert(rank);
  await_all_but({&save.reported, &save.layouts_staged, &joined_, &here}, out);
}

void Activity::await_all_but(std::initializer_list<const std::set<Rank>*> done,
                             local::SaveStatus* out) const {
  std::vector<bool> is_done(world_size_);
  for (const std::set<Rank>* ranks : done) {
    for (Rank rank : *ranks) {
      if (rank < world_size_) is_done[rank] = true;
    }
  }
  out->awaited.clear();
  out->awaited_count = 0;
  for (Rank rank = 0; rank < world_size_; ++rank) {
    if (is_done[rank]) continue;
    if (out->awaited_count++ < local::kMaxStatusRanks) out->awaited.push_back(rank);
  }
}

void Activity::describe(TimeNs now, bool coordinates, local::NodeStatus* status) const {
  std::lock_guard lock(mutex_);
  status->world_size = world_size_;
  std::set<Rank> ranks;
  std::map<Rank, int32_t> pids;
  for (const auto& [client, rank] : clients_) {
    ranks.insert(rank);
    if (const auto pid = pids_.find(client); pid != pids_.end()) pids[rank] = pid->second;
  }
  for (const auto& [rank, pid] : pids) status->trainers.push_back({rank, pid, false});
  status->ranks.assign(ranks.begin(), ranks.end());
  status->saves_count = saves_.size();
  size_t left_out = saves_.size() - std::min(saves_.size(), local::kMaxStatusSaves);
  for (const auto& [key, save] : saves_) {
    if (left_out > 0) {
      --left_out;
      continue;
    }
    status->saves.push_back(describe(now, coordinates, key, save));
  }
  status->last_commit = counts_.last_commit;
  for (const Error& error : errors_) status->errors.push_back({ms_between(error.at, now), error.line});
  status->counts = counts_.node;
}

}  // namespace shoal::actors
