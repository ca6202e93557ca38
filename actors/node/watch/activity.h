// Activity: what a live node does, as seen from outside of its roles: from the messages between roles,
// clients and peers, and from operations. It only feeds `shoal status` and the metrics. Roles never see it,
// and saves do not depend on it. All methods may be called on any thread, and are short.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/messages/messages.h"
#include "actors/node/watch/abort_cause.h"
#include "actors/node/watch/job_table.h"
#include "actors/node/watch/save_record.h"
#include "actors/operation.h"
#include "actors/role.h"
#include "local/messages/messages.h"
#include "local/status/node_status.h"

namespace shoal::actors {

inline constexpr size_t kMaxHostsOfRanks = 1 << 15;  // other hosts whose ranks are known
inline constexpr size_t kMaxSavesTracked = 1024;     // in flight; further ones are not shown
// The newest decided saves, so that a late report does not open one again.
inline constexpr size_t kMaxSavesSettled = 4096;
inline constexpr std::array<double, 14> kCommitSecondsBuckets = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                                                 2.5,  5,     10,   30,  60,   120, 300};
inline constexpr std::array<double, 13> kBlockedSecondsBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120};

template <const auto& kBuckets>
struct Durations {
  // Not cumulative; the last counts all longer ones.
  std::array<uint64_t, kBuckets.size() + 1> counts{};
  double sum = 0;
  void add(double seconds) {
    const auto bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds);
    ++counts[static_cast<size_t>(bucket - kBuckets.begin())];
    sum += seconds;
  }
};

struct NewestCheckpoint {
  AttemptKey key;
  int64_t unix_time_ns = 0;
  uint64_t payload_bytes = 0;
};

struct ActivityCounts {
  local::NodeCounts node;
  Durations<kCommitSecondsBuckets> commit_seconds;    // from the first message to the decision
  Durations<kBlockedSecondsBuckets> blocked_seconds;  // for which calls of save held trainers
  double waited_seconds = 0;                          // of these: for earlier saves
  std::array<uint64_t, kAbortCauses> aborted{};       // by AbortCause
  std::array<uint64_t, static_cast<size_t>(kLastCode) + 1> loads_failed{};  // by Code
  uint64_t saves_in_flight = 0;
  uint64_t ranks_attached = 0;
  uint64_t warnings = 0;
  uint64_t catalog_recorded = 0, catalog_errors = 0;
  std::optional<local::CommitStatus> last_commit;  // since the node began
  std::optional<NewestCheckpoint> newest;          // also one that the root had before
};

class Activity {
 public:
  Activity(uint32_t generation, uint32_t world_size) : generation_(generation), world_size_(world_size) {}

  void from_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void client_lost(ClientId client);
  void to_client(TimeNs now, ClientId client, const local::LocalMessage& message);
  void from_peer(TimeNs now, const WireBody& body);
  void operation_began(TimeNs now, const Operation& operation);
  void operation_ended(TimeNs now, const Operation& operation, const Result<OperationResult>& result);
  void warned(TimeNs now, const std::string& line);
  void checkpoint_exists(const NewestCheckpoint& checkpoint);  // as a node finds it when it starts

  ActivityCounts counts() const;
  std::shared_ptr<const JobFacts> job_facts() const;       // the same one until hosts state something new
  std::vector<SaveRecord> save_records(TimeNs now) const;  // the newest decided ones, then those in flight
  // Ranks, saves, errors, counts and the last commit. `coordinates`: reports of other hosts count too.
  void describe(TimeNs now, bool coordinates, local::NodeStatus* status) const;

 private:
  struct RankProgress {  // of a rank of this host
    uint64_t bytes_staged = 0, bytes_begun = 0, bytes_written = 0;
    bool is_planned = false;  // everything that is staged is written
    uint32_t writes_running = 0;
    ClientId client = 0;
    bool is_written = false;
  };
  struct Save {
    TimeNs began = 0;
    std::map<Rank, RankProgress> ranks;
    std::set<Rank> reported;        // of other hosts
    std::set<Rank> layouts_staged;  // ranks that have staged all that they hold, and wait for a roster
    uint64_t bytes_reported = 0;
    std::optional<Rank> last_rank;  // the last rank that staged or reported
    bool is_publishing = false;
    std::optional<TimeNs> staged_at, durable_at;  // the last rank of this host; the last rank that reported
    uint64_t blocked_ns = 0;
    std::string trouble;
  };

  Save* open(TimeNs now, const AttemptKey& key);  // nullptr: decided already, or too many are tracked
  void commit(TimeNs now, const NewestCheckpoint& checkpoint);
  // `outcome`: Code::aborted for an abort; any other error: the node's clients were informed that no decision
  // could be made, or that it is unknown.
  void abort(TimeNs now, const AttemptKey& key, const Status& outcome, AbortCause cause);
  std::optional<Save> settle(const AttemptKey& key);  // nullopt: it was not in flight
  // `is_from_decision`: the time is that of the decision, not that at which this node was informed.
  void see(const NewestCheckpoint& checkpoint, bool is_from_decision);
  void see_decision(const Result<OperationResult>& result);
  void staged(TimeNs now, ClientId client, const local::Staged& staged);
  void freed(TimeNs now, ClientId client, const local::SlabFree& free);
  void notified(TimeNs now, const local::Decided& decided);
  void save_returned(const local::SaveReturned& returned);
  void load_found(TimeNs now, ClientId client, const local::Found& found);
  void load_done(TimeNs now, const local::LoadDone& done);
  void load_failed(TimeNs now, const Status& why);
  void reported(TimeNs now, const wire::ShardsWritten& report);
  static SaveRecord record_of(TimeNs now, const AttemptKey& key, const Save& save);
  void keep_record(SaveRecord record);
  template <class Ranks>
  void place(const std::string& host, const Ranks& ranks);
  void saves_rank_local();
  void publish_ended(TimeNs now, const operation::PublishDecision& publish,
                     const Result<OperationResult>& result);
  void recorded(TimeNs now, const storage::Decision& decision);
  void write_ended(const operation::WriteShard& write, const Result<OperationResult>& result);
  void add_error(TimeNs now, std::string line);
  void add_failure(TimeNs now, const AttemptKey& key,
                   const Status& outcome);  // of a save, unless shown already
  bool is_written(const RankProgress& progress) const;
  static bool awaits_roster(const Save& save);
  local::SaveStatus describe(TimeNs now, bool coordinates, const AttemptKey& key, const Save& save) const;
  void add_reports(const Save& save, const std::set<Rank>& written_here, local::SaveStatus* out) const;
  void name_missing_layouts(const Save& save, local::SaveStatus* out) const;
  // Ranks of the world that none of these sets has.
  void await_all_but(std::initializer_list<const std::set<Rank>*> done, local::SaveStatus* out) const;

  mutable std::mutex mutex_;
  const uint32_t generation_;
  uint32_t world_size_;  // 0: until a client states it
  bool has_roster_ = false;
  std::set<Rank> joined_;  // before the first roster: ranks of other hosts whose layouts their nodes named
  std::map<ClientId, Rank> clients_;
  std::map<ClientId, int32_t> pids_;    // of their processes, as far as the clients stated them
  std::map<ClientId, uint32_t> loads_;  // request ids of the loads for which no checkpoint is chosen yet
  std::map<AttemptKey, Save> saves_;
  std::set<AttemptKey> settled_;
  JobFacts job_;
  mutable std::shared_ptr<const JobFacts> job_copy_;  // null: job_ has changed since it was made
  using RanksOfHosts = std::map<std::string, std::set<Rank>>;
  std::map<Rank, RanksOfHosts::iterator> holders_;  // of each rank of job_.ranks_of_hosts, its host
  std::set<std::string> replaced_;                  // hosts there without a rank
  std::deque<SaveRecord> records_;                  // of decided saves, oldest first
  ActivityCounts counts_;
  struct Error {
    TimeNs at;
    std::string line;
  };
  std::deque<Error> errors_;
};

}  // namespace shoal::actors
