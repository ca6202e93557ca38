// The implementation of Checkpointer: checkpointer.cpp saves, loading/checkpointer_loads.cpp loads.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/root_name.h"
#include "client/launch/checkpointer_options.h"
#include "client/loading/file_reads.h"
#include "client/loading/load_report.h"
#include "client/loading/placing.h"
#include "client/planners/planned_load.h"
#include "client/planners/planned_save.h"
#include "client/session/call_counts.h"
#include "client/session/session.h"
#include "client/staging/device_staging.h"
#include "client/staging/replica_digester.h"
#include "client/staging/slab.h"
#include "client/staging/staging.h"
#include "gpu/stager.h"
#include "shoal/checkpointer.h"

namespace shoal::client {

// A checkpoint that a node keeps open for this client.
struct OpenedCheckpoint {
  uint32_t request_id = 0;                      // the load that opened it; 0: it is not open any more
  uint64_t link = 0;                            // the connection to the node that has it
  Metadata metadata;                            // without values if `layouts` is set: see listed
  std::optional<local::StoredLayouts> layouts;  // if the caller requested them
  PassedOver passed_over;                       // when it was chosen

  // The metadata with its values. The first call lists them, because listing many values takes as long as
  // decoding their layouts.
  const Metadata& listed() {
    if (layouts && metadata.state_dict_metadata.empty()) {
      metadata.state_dict_metadata = list_values(*layouts->world);
    }
    return metadata;
  }
};

// Ends a request and drops its answers, however the request ends.
class RequestScope {
 public:
  explicit RequestScope(Session& session) : session_(session) {}
  ~RequestScope() { session_.end_request(); }
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

 private:
  Session& session_;
};

inline constexpr int kTries = 3;  // of a request if its node ends

// One thread at a time may load or query. It may call further functions that load, for example in a planner.
class LoadingThread {
 public:
  // As long as it lives, other threads are refused.
  class Turn {
   public:
    explicit Turn(LoadingThread& thread) : thread_(thread.take() ? &thread : nullptr) {}
    ~Turn() {
      if (thread_ != nullptr) thread_->leave();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Status status() const { return thread_ != nullptr ? ok_status() : another_thread_loads(); }

   private:
    LoadingThread* const thread_;  // nullptr: another thread has its turn
  };

 private:
  bool take() {
    std::lock_guard lock(mutex_);
    if (depth_ != 0 && id_ != std::this_thread::get_id()) return false;
    id_ = std::this_thread::get_id();
    ++depth_;
    return true;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    --depth_;
  }

  std::mutex mutex_;
  std::thread::id id_;
  uint32_t depth_ = 0;  // 0: no thread loads
};

}  // namespace shoal::client

namespace shoal {

namespace client {

// The progress of a load, for another thread that displays it.
struct LoadCounts {
  std::atomic<bool> is_loading{false}, is_reading{false};
  std::atomic<uint64_t> bytes_done{0}, bytes_total{0};

  // Counts one load as long as it lives.
  class Scope {
   public:
    explicit Scope(LoadCounts& counts) : counts_(counts) {
      counts_.is_reading = false;
      counts_.bytes_done = 0;
      counts_.bytes_total = 0;
      counts_.is_loading = true;
    }
    ~Scope() { counts_.is_loading = false; }
    Scope(const Scope&) = delete;

   private:
    LoadCounts& counts_;
  };
};

}  // namespace client

struct Checkpointer::Impl {
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point begun) {
    return std::chrono::duration<double>(Clock::now() - begun).count();
  }

  Impl(CheckpointerOptions given, std::unique_ptr<client::Session> attached)
      : options(std::move(given)),
        root(base::absolute_root(options.root)),
        session(std::move(attached)),
        counts(client::call_counts(options, session->generation())),
        stager(gpu::make_host_stager()),
        slabs(options.max_in_flight),
        devices("rank " + std::to_string(client::rank_in_world(options)), options.pinned_bytes_max) {}

  // The state with ranks of the process group; valid until the next call. Without a process group, `state`.
  Result<const StateDict*> of_group(const StateDict& state);
  dcp::Role role() const {
    return {options.rank, options.world_size, options.rank == options.coordinator_rank};
  }

  Status bind(const StateDict& state);
  Status refresh_recipe();
  Status agree_on_recipe(const std::shared_ptr<SaveHandle::State>& save, bool follows_planner);
  // Slabs: checkpointer_staging.cpp.
  struct Place {
    uint32_t slot = 0;
    bool in_parts = false;
  };
  class Filling {  // marks a slot as being filled, until its slab is staged or given up
   public:
    Filling(client::Session& session, uint32_t slot) : session_(session), slot_(slot) {}
    ~Filling() { session_.end_filling(slot_); }
    Filling(const Filling&) = delete;
    Filling& operator=(const Filling&) = delete;

   private:
    client::Session& session_;
    const uint32_t slot_;
  };
  uint64_t held_bytes() const;  // by slabs
  void drop_slab(uint32_t slot);
  void drop_free_slabs();
  void forget_dropped_slabs(const std::vector<uint32_t>& free);
  Status replace_slab(uint32_t slot, uint64_t bytes);
  Status check_ungranted(uint64_t bytes) const;
  Result<std::optional<client::Session::StagingGrant>> request_staging(uint64_t slab_bytes,
                                                                       bool needs_answer);
  Result<std::optional<client::Session::StagingGrant>> grant_for(uint64_t bytes, uint32_t slot);
  bool make_room(uint32_t slot, uint64_t bytes, uint64_t most, const std::vector<uint32_t>& free);
  uint32_t best_slot(uint64_t bytes, const std::vector<uint32_t>& free) const;
  uint32_t slot_of_parts(uint64_t bytes, const std::vector<uint32_t>& free) const;
  Result<Place> place_for(uint64_t bytes, SaveStats* stats);
  Status prepare_slabs(uint64_t bytes);
  // Starts the copies from devices, and makes those from host memory. nullptr: none is in progress.
  Result<std::shared_ptr<gpu::DeviceWork>> begin_copies();
  // Makes the copies of a whole save, as SaveOptions::staging says. nullptr: none is in progress.
  Result<std::shared_ptr<gpu::DeviceWork>> copy_whole(uint32_t slot,
                                                      const client::StageRecipe::Staging& staging);
  void stage_when_copied(const std::shared_ptr<SaveHandle::State>& save, local::Staged staged,
                         std::shared_ptr<gpu::DeviceWork> copies);
  Status stage_in_parts(const std::shared_ptr<SaveHandle::State>& save,
                        const client::StageRecipe::Staging& staging, local::Staged staged);
  // What this rank digests for replica_check in this save; nullptr: nothing.
  Result<plan::ReplicaDigestsPtr> digest_replicas(SaveStats* stats);
  // The threads of the client, and what its locks protect, do not exist in a process that fork has made.
  Status check_process() const;  // Code::refused in such a process
  Status check_open() const;     // likewise, and after close
  Status check_may_save() const;
  // With read_only: a load of the latest has ended, so the next load makes a new choice. If this client has
  // not received a choice, the next load repeats the same one.
  void end_of_latest(const Status& outcome);
  // Whether earlier failures allow another save.
  Status check_failures() const;
  template <class Save>
  Result<SaveHandle> count_save(uint64_t step, Save&& save);
  Result<std::shared_ptr<SaveHandle::State>> begin_save(uint64_t step, uint32_t attempt);
  Result<SaveHandle> save(const std::shared_ptr<SaveHandle::State>& save, const StateDict& state,
                          const SaveAttributes& attributes, client::PlannedSave* planned_save = nullptr);

  // Repeats `ask` if the node has ended.
  template <class Ask>
  auto with_patience(Ask&& ask) {
    auto answer = ask();
    for (int i = 1; i < client::kTries && !answer.ok() && session->was_interrupted(); ++i) answer = ask();
    return answer;
  }
  // The same for an open checkpoint. Opens it again if its node has ended, or does not keep it open any more.
  template <class Ask>
  auto while_open(client::OpenedCheckpoint& opened, Ask&& ask) -> decltype(ask()) {
    for (int tries = client::kTries;; --tries) {
      if (opened.request_id == 0) SHOAL_RETURN_IF_ERROR(reopen(opened));
      auto answer = ask();
      if (answer.ok() || tries == 1) return answer;
      if (session->was_interrupted()) opened.request_id = 0;
      if (opened.request_id != 0) return answer;
    }
  }
  Status check_load_options(const LoadOptions& load_options) const;
  Status check_sharing(const LoadOptions& load_options) const;
  // The checkpoint that a load requests.
  struct WantedCheckpoint {
    std::optional<uint64_t> step;  // nullopt: the latest
    LoadFallback fallback = LoadFallback::none;
  };
  WantedCheckpoint wanted_by(const LoadOptions& load_options) const;
  // Chooses a checkpoint, as load does, and keeps it open at the node.
  Result<client::OpenedCheckpoint> open(const WantedCheckpoint& which, bool wants_layouts);
  Result<client::OpenedCheckpoint> open_chosen(const WantedCheckpoint& which, bool wants_layouts);
  // Rank 0 reports on stderr, once, that a load passed over newer attempts.
  void report_passed_over(const AttemptKey& loaded, const PassedOver& passed_over);
  Result<LoadResult> notified(Result<LoadResult> loaded);
  Status reopen(client::OpenedCheckpoint& opened);
  void close(const client::OpenedCheckpoint& opened);
  struct CloseLater {  // also if a planner throws
    Impl& impl;
    const client::OpenedCheckpoint& opened;
    ~CloseLater() { impl.close(opened); }
  };

  // Loads `state` from the open checkpoint, else from the one that `options` choose.
  struct Wanted {
    const StateDict& state;
    const LoadOptions& options;
    client::OpenedCheckpoint* opened = nullptr;
    // If set, `state` is the state of this planned load, with the checkpoint's names, and load compares no
    // keys.
    client::PlannedLoad* planned = nullptr;
  };
  Result<LoadResult> load(const Wanted& wanted);
  Result<LoadResult> load(const StateDict& given, const LoadOptions& load_options);
  Result<LoadResult> load(const StateDict& given, dcp::LoadPlanner& planner, const LoadOptions& load_options);
  Result<std::optional<LoadResult>> nothing_if_none(Result<LoadResult> loaded) const;
  Result<LoadResult> load_planned(const StateDict& state, const LoadOptions& load_options,
                                  dcp::LoadPlanner& planner, client::OpenedCheckpoint& opened);
  Result<client::BoundState> bound_for_load(const StateDict& state);
  local::Load choice_of(const WantedCheckpoint& which) const;
  // The node's answer to Latest or Load. Records in `choice` whether the node answered that no checkpoint
  // exists.
  Result<local::Found> found_in(Result<local::LocalMessage> answer);
  // Begins a call that returns Code::not_found only if no checkpoint exists.
  void begin_choice() { choice = {}; }
  template <class T>
  Result<T> end_choice(Result<T> result) const {
    if (result.ok() || result.status().code() != Code::not_found || choice.is_none) return result;
    // No node has answered, or the error is about a checkpoint that a node has found.
    return Status(choice.found ? Code::corrupt : Code::unavailable, result.status().message());
  }
  // Errors of a load begin with "rank 0, load of step 7 (g1a1): ". Without an attempt if no node has found
  // one yet. `step`: nullopt for the latest.
  template <class T>
  Result<T> named(std::optional<uint64_t> step, Result<T> loaded) const {
    if (loaded.ok()) return loaded;
    const std::string wanted = step ? "step " + std::to_string(*step) : "the latest checkpoint";
    return loaded.status().with_context(name_load(choice.found ? to_string(*choice.found) : wanted));
  }
  // "rank 0, load of step 7 (g1a1)". `what`: the checkpoint.
  std::string name_load(const std::string& what) const;
  // Requests the placer's targets from the open checkpoint, else from the one that `load` chooses, and places
  // the received pieces. Calls `on_found` with the checkpoint and its values before it places anything.
  using OnFound = std::function<void(const Metadata&)>;
  Result<Metadata> load_targets(client::Placer& placer, local::Load load, client::OpenedCheckpoint* opened,
                                const OnFound& on_found = nullptr);
  Status prepare_window(uint64_t bytes);
  Result<Metadata> receive_load(uint32_t request_id, client::Placer& placer, const OnFound& on_found,
                                bool* ended);
  Status receive_pieces(uint32_t request_id, client::Placer& placer, bool* ended);
  // Reads the ranges of a batch, places them, and answers the node.
  Status read_files(const local::FilesToRead& batch, client::Placer& placer, client::FileReads& files,
                    bool is_required);

  const pid_t process = ::getpid();
  client::LoadingThread loading_thread;
  client::LoadCounts load_counts;
  CheckpointerOptions options;
  const std::string root;  // absolute: a process may change its folder
  std::unique_ptr<client::Session> session;
  std::shared_ptr<client::CallCounts> counts;
  std::optional<SaveHandle> last_save;
  bool is_closed = false;
  std::unique_ptr<gpu::Stager> stager;
  StateDict renumbered;                     // the last result of of_group
  std::optional<client::BoundState> bound;  // with the layout that this generation saves
  SavePlanPtr planned;  // the plan of `recipe`; nullptr: `recipe` copies all that this rank holds
  std::optional<client::StageRecipe> recipe;
  std::optional<client::ReplicaDigester> replicas;  // of the layout of `bound`, or of an earlier one
  std::vector<client::MemorySlab> slabs;            // by slot
  client::DeviceStaging devices;                    // after them: it first waits until nothing copies to them
  client::MemorySlab window;  // of loads; kept for the next load, which then has its pages
  uint64_t window_link = 0;   // the connection whose node knows the window; 0: none
  client::FileReads::Buffers read_buffers;
  std::vector<gpu::CopyTask> tasks;
  std::vector<gpu::DeviceBatch> device_tasks;
  LoadReport report;  // of the last load
  LoadTimes times;    // of the last load
  struct Choice {     // the answers of nodes in this call
    std::optional<AttemptKey> found;
    bool is_none = false;  // there is no checkpoint
    PassedOverPtr passed_over;
  };
  Choice choice;
  std::optional<AttemptKey> reported_passed_over;  // the newest attempt of the last report
};

}  // namespace shoal
