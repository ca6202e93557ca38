// Checkpointer: the interface that a trainer links. A save costs the trainer one memory copy. A load works on
// any number of ranks and with any sharding.
//
//   auto checkpointer = Checkpointer::open(CheckpointerOptions::from_environment().value());
//   const ShardedTensor rows{DType::f32, {50257, 768}, mesh, {Placement::shard(0)}};
//   StateDict state;                                   // names, shardings, and pointers to this rank's bytes
//   state.add_tensor("wte.weight", rows, local_bytes);
//   SaveHandle saved = (*checkpointer)->save(step, state).value();   // returns when staged
//   ... train ...                                                    // the node persists, digests, commits
//   Metadata metadata = saved.wait_committed().value();
//
// This library links neither CAF nor UCX nor RocksDB; it uses CUDA where it was built with it. One trainer
// thread uses a Checkpointer; any thread may use a SaveHandle. A process that fork has made may use neither:
// calls of the Checkpointer return Code::refused there, and its destructor does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/checkpoint_info.h"
#include "shoal/layout.h"
#include "shoal/load_report.h"
#include "shoal/load_times.h"
#include "shoal/metadata.h"
#include "shoal/node_settings.h"
#include "shoal/passed_over.h"
#include "shoal/progress.h"
#include "shoal/read_damage.h"
#include "shoal/save_plan.h"
#include "shoal/state_dict.h"
#include "shoal/status.h"

namespace shoal {

namespace dcp {  // include/shoal/dcp/save_planner.h, include/shoal/dcp/load_planner.h
class SavePlanner;
class LoadPlanner;
}  // namespace dcp
class CheckpointReader;  // include/shoal/checkpoint_reader.h

// How the ranks agree on a job id when no launcher provides one that is new for each run (torchrun does not).
// Rank 0 creates a job id in `open`. As long as its process lives, it sends the id to the other ranks, which
// request it in their `open`.
struct JobIdExchange {
  std::string address;  // HOST:PORT of rank 0's host; empty: all ranks are on this host
  std::string run;      // the same on all ranks; rank 0 rejects a rank that sends another one
};

enum class OnBusy { wait, decline };     // what save does when max_in_flight saves are in flight
enum class OnFailed { report, refuse };  // what save does after a failure that it has not reported yet

struct CheckpointerOptions {
  std::string root;  // folder of the training run's checkpoints, on storage that every host sees
  Rank rank = 0;
  uint32_t world_size = 1;
  std::string job_id;  // the same on all ranks of one run; never used for another run
  std::optional<JobIdExchange> job_id_exchange;  // used if job_id is empty
  // Used if this process has to start a node: HOST:PORT of the job's coordinator. Empty: the new node
  // coordinates saves itself, for this host alone.
  std::string coordinator;
  // Not empty: a node that this process starts is the job's coordinator and listens at this HOST:PORT.
  std::string coordinate_at;
  std::string node_name;  // name of this host's node, distinct in the job; empty: the host name
  // The `shoal` program that starts a node. If empty, the first of these that is there: $SHOAL_NODE_PROGRAM,
  // `shoal` in the folder of this program, the one installed with this library, the one in PATH.
  std::string node_program;
  NodeSettings node;  // settings of a node that this process starts
  // Start a node if this host has none. SHOAL_START_NODE=0, which `shoal launch` sets, forbids it.
  bool start_node = true;
  // A thread that waits in open, save, a load, wait_all or close calls this function several times a second,
  // without a lock. If it returns false, that call ends with an error: Code::busy, or the last failure to
  // find a node. A program can stop a wait with it when a signal comes. nullptr: nothing ends a wait early.
  std::function<bool()> keep_waiting;
  // This job only loads. It does not affect a job that trains on the same root, since it claims no
  // generation. save and prepare return Code::refused. Must be the same on all ranks; SHOAL_READ_ONLY=1 sets
  // it. docs/how-to/operations.md, "A job that only reads".
  bool read_only = false;
  uint32_t max_in_flight = 2;
  OnBusy on_busy = OnBusy::wait;
  // Applies if an earlier save of this rank failed and no call has returned that failure yet. `report`: save
  // stages, then returns Code::earlier_save_failed once. `refuse`: save stages nothing until wait_all or the
  // failed save's handle has returned the failure. Must be the same on all ranks.
  OnFailed on_failed = OnFailed::report;
  // After this many failed saves in a row, save stages nothing more and `shoal launch` ends the job. 0: the
  // value of SHOAL_MAX_FAILED_SAVES or shoal.toml, and no limit if neither has one.
  uint32_t max_failed_saves = 0;
  // A thread of the Checkpointer calls it for every save that fails after it was staged. It must not wait for
  // the Checkpointer or for a handle, and must not throw.
  std::function<void(const AttemptKey&, const Status&)> on_save_failed;
  // A thread of the Checkpointer calls it, under the same rules, for every save that is committed with a
  // warning: nothing has changed since an earlier step (SaveHandle::unchanged_since), or replicas differ
  // (SaveHandle::warning). nullptr: rank 0 writes one line to stderr.
  std::function<void(const AttemptKey&, const std::string&)> on_save_warning;
  // A subset of the launcher's ranks that saves and loads separately: ascending, the same on all of them.
  // Empty: all ranks. `rank`, `world_size` and the ranks of meshes are those of the launcher's world. In
  // checkpoints, planners, later loads and options(), a rank is its position in the group.
  // docs/how-to/clusters.md, "Some of the ranks".
  std::vector<Rank> process_group;
  // The rank on which planners and storages coordinate, as a position in the group. Must be the same on all
  // ranks.
  Rank coordinator_rank = 0;
  SaveOptions save;  // must be the same on all ranks; mode rank_local implies dedupe none
  uint64_t load_window_bytes = uint64_t{16} << 20;  // at least 4 MiB; kept for further loads
  // Threads with which a load reads files itself; at most the number of processors that this process may use.
  // Each takes 1 MiB. 0: the node reads the files and passes the bytes through the load window.
  unsigned load_threads = 4;
  // The fallback of loads of the latest that leave LoadOptions::fallback unset. Must be the same on all
  // ranks.
  LoadFallback load_fallback = LoadFallback::none;
  uint64_t staging_bytes_max = 0;  // of all slabs; 0: what this process's cgroup and its node leave
  // Of memory that is pinned for copies from devices. Slabs beyond it are filled through a small pinned ring.
  // 0: no limit.
  uint64_t pinned_bytes_max = 0;
  // The number of the job's ranks on this host. The node divides the host's memory among them, even before
  // they attach. 0: unknown; from_environment takes it from the launcher.
  uint32_t ranks_on_host = 0;
  // How long to look for a node that serves this rank, in open and after its node has ended. 0: 30 s if all
  // ranks are on one host. Otherwise the time for which a node looks for its coordinator
  // (node.find_coordinator_ms, 60 s) plus one minute.
  std::chrono::milliseconds attach_timeout{0};
  // After this long without a sign of life from the node, the client reports the node's pid: it is stopped or
  // hangs. A slow disk does not cause that, because the node answers while it writes.
  std::chrono::milliseconds node_silence{30000};

  // Takes the root from SHOAL_ROOT. Takes rank, world size, job id and coordinator from the variables of
  // shoal launch, torchrun, Open MPI or Slurm (docs/how-to/clusters.md). Takes on_busy, save and others from
  // the variables and files of docs/reference/settings.md. Code::invalid_argument names the missing or wrong
  // variable, or the line of a file. The call may look up the coordinator's name.
  static Result<CheckpointerOptions> from_environment();
};

struct SaveStats {
  uint64_t bytes_staged = 0;
  double seconds_blocked = 0;  // the whole call of save
  // Of that: waiting until max_in_flight allows another save, or until an earlier save returns memory for a
  // slab. Not: waiting for the node's first grant of that memory.
  double seconds_waited = 0;
  double seconds_planning = 0;  // of that: waiting for this rank's plan, in mode collective
  double seconds_copying = 0;   // of that: copying, or starting the copies (SaveOptions::staging)
  bool with_plan = false;       // false: there was no roster yet, so this rank staged everything it holds
  // The number of saves of this rank that the host's memory holds at a time. It is less than max_in_flight if
  // memory is short.
  uint32_t in_flight_max = 0;
  // 0: the save was copied at once. Otherwise the host's memory could not hold the save. It was copied in
  // this many parts while the node wrote, and save returned when all of it was durable.
  uint32_t parts = 0;
  uint64_t replica_bytes = 0;    // digested to compare them with replicas (SaveOptions::replica_check)
  double seconds_comparing = 0;  // of seconds_blocked: digesting them
};

// What the caller may add to one save.
struct SaveAttributes {
  // Stored in the checkpoint's manifest and in every shard. wait_committed, latest and load return it
  // (Metadata::user), `shoal ls` and `shoal show` print it. It must be the same on all ranks; otherwise the
  // save aborts and names two ranks and a key that differs. At most kMaxUserKeys keys, and at most
  // kMaxUserMetadataBytes for keys and values together.
  UserMetadata metadata;
};

// One save in flight. Copies of a handle refer to the same save. Destroying a handle does not cancel the
// save. Any thread may use it.
class SaveHandle {
 public:
  AttemptKey key() const;
  const SaveStats& stats() const;
  bool done() const;  // decided, or known to have failed
  // Blocks until the save is committed or has failed. Code::aborted carries the first cause.
  // Code::deadline_exceeded: the save is still undecided after `timeout`. If the checkpoint was deleted in
  // the meantime, the Metadata contain only its key.
  Result<Metadata> wait_committed(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Waits until this save no longer reads the caller's memory. An error: the copies failed, and the save is
  // aborted with a cause that names this rank.
  Status wait_staged();
  // Work that is submitted to `stream`, a cudaStream_t, after this call waits for the copies of this save.
  // The call itself does not wait. nullptr is the default stream of this thread's current device.
  Status wait_staged(void* stream);
  Status error() const;  // OK while in flight and when committed
  // The earliest step since which every checkpoint of this Checkpointer has had the same bytes in the same
  // files as this one: no rank has changed anything, though training went on. nullopt if something has
  // changed, for the first checkpoint, and until this save is committed.
  std::optional<uint64_t> unchanged_since() const;
  // Replicas of this save differ (SaveOptions::replica_check): names tensor, block and ranks. Empty: nothing
  // that the save compared differs, or it is not committed. A save whose coordinator was lost before it
  // decided is not compared.
  std::string warning() const;
  double seconds_to_decision() const;  // from the call of save; 0 while in flight

  struct State;
  explicit SaveHandle(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

struct LoadOptions {
  std::optional<uint64_t> step;  // nullopt: latest
  // Which keys may be missing or unexpected. One error names all other missing and unexpected keys, and all
  // keys whose shape or type differs. It names at most kMaxKeysNamed; Checkpointer::load_report has all of
  // them. A value that may be missing and is missing stays unchanged in the state.
  KeyPolicies policies;
  // How ranks that need the same bytes get them. This and all following options must be the same on all ranks
  // of a load.
  LoadMethod method = LoadMethod::automatic;
  // Ascending: the ranks that share with this rank the bytes that they read. Empty: all ranks that need the
  // same bytes. In a process_group a rank is its position in the group, counted from 0.
  std::vector<Rank> data_parallel_group;
  // Bytes pass from host to host through host memory. false is Code::invalid_argument: no other transfer is
  // implemented.
  bool cpu_transfer = true;
  // For a load of the latest: what to do if the newest checkpoint is damaged. With LoadFallback::previous,
  // one host reads and verifies a whole checkpoint before any rank loads it. If it is damaged, that host
  // tries the one before it; LoadResult::passed_over names the damaged ones. All ranks get the same
  // checkpoint. Code::corrupt: all checkpoints are damaged. A checkpoint that cannot be read for another
  // reason is an error. nullopt: use CheckpointerOptions::load_fallback. Setting it together with `step` is
  // Code::invalid_argument.
  std::optional<LoadFallback> fallback = std::nullopt;
};

struct LoadResult {
  Metadata metadata;
  uint64_t bytes_loaded = 0;
  double seconds = 0;
  LoadReport report;  // missing and unexpected keys that the policies allow
  LoadTimes times;
  // Bytes that were damaged or missing and that the load read from copies instead. Another rank wrote those
  // copies of the same piece (dedupe none). Such a checkpoint needs attention: `shoal verify` names all
  // damage in it.
  DamageList damaged;
  // Attempts newer than this checkpoint that a load of the latest did not use: aborted ones; with
  // LoadFallback::previous damaged ones; in a job that only reads also undecided ones. The same on all ranks.
  // Rank 0 also writes them to stderr once.
  PassedOver passed_over;
};
// Summarizes the times of several ranks, given in the order of their ranks. One line per stage, with the
// least, the median and the greatest time, and the rank that had the greatest.
std::string summarize_load_times(const std::vector<LoadTimes>& by_rank);

class Checkpointer {
 public:
  // Finds the node of this host and run, or starts one, and attaches to it. Code::unavailable names the
  // socket and the node's log. This process may open a rank again; no other process of the same run may.
  static Result<std::unique_ptr<Checkpointer>> open(CheckpointerOptions options);
  // Waits until the node has written the saves in flight (not until they are committed), then detaches.
  // Prints failed saves that no call has returned yet to stderr. Call close to get them as a Status.
  ~Checkpointer();

  // The number of this run in its root. In a job that only reads: its number under readers/.
  uint32_t generation() const;
  const CheckpointerOptions& options() const;  // the options in effect, with the job id of all ranks
  // Optional: registers the layout and faults in the slabs, so that the first save is as fast as later ones.
  Status prepare(const StateDict& state);
  // Stages a save and returns. In mode collective it first waits until all ranks have called it.
  //
  // This process counts attempts: a step that is not greater than the step of the save before it, as after a
  // rollback, starts the next attempt number. `latest` is the committed checkpoint that was saved last.
  //
  // Code::busy: max_in_flight saves, or as many as the host's memory holds, are in flight, and on_busy is
  // `decline`. If the host's memory cannot hold one whole save, save returns once all of it is durable
  // (SaveStats::parts). Code::no_space: the memory does not suffice for that either
  // (docs/how-to/operations.md, "Memory of saves").
  //
  // The layout may change from save to save, on all ranks or on some. A rank with a new layout stages
  // everything it holds once, instead of its assignment. If save fails on this rank, the other ranks' saves
  // abort at once, with this rank and cause. The error begins with rank, step, generation and attempt, as do
  // those of the handle: "rank 3, step 7 (g1a1): ...".
  //
  // Code::earlier_save_failed reports, once, a failed save before this one that no call has returned yet, by
  // step, rank and cause. This save was staged nevertheless, unless on_failed or max_failed_saves prevent it;
  // last_save returns its handle.
  Result<SaveHandle> save(uint64_t step, const StateDict& state, const SaveAttributes& attributes = {});
  // Saves the items that the planner makes from the state. An error of a planner step fails the save, as
  // above, and names the step. A planner with a global plan (SavePlanner::overrides_global_plan) in another
  // mode than collective is Code::invalid_argument.
  Result<SaveHandle> save(uint64_t step, const StateDict& state, dcp::SavePlanner& planner,
                          const SaveAttributes& attributes = {});
  // The handle of the last call of save that staged something; nullopt: no call has.
  std::optional<SaveHandle> last_save() const;
  // The progress of the oldest undecided save, even while save runs. nullopt: no save is in flight. Any
  // thread may call it. It sends a request to the node and takes at most 200 ms: it is meant for displays.
  std::optional<Progress> save_progress() const;
  // The progress of the load that another thread makes. nullopt: no load runs. Any thread may call it.
  std::optional<Progress> load_progress() const;
  // Waits until all saves of this Checkpointer are decided. Returns the first failure that no call has
  // returned yet, with step and rank, and the number of further ones. Its code is that of the save, but
  // Code::earlier_save_failed instead of the following two. Code::deadline_exceeded: some saves are still
  // undecided. Code::busy: so they are, and keep_waiting has ended the wait.
  Status wait_all(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Does wait_all, then detaches; later calls fail. After Code::deadline_exceeded or Code::busy the
  // Checkpointer is still open.
  Status close(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Ends the session without waiting, as if the process had died: the node still writes what is staged, and
  // commits the saves that all ranks have staged. The handles of undecided saves return Code::unavailable.
  // For a program that ends after an error, when other ranks may never come to a save.
  void abandon();
  // Fills the state from a checkpoint. Verifies every byte against its digest before it places the byte.
  // After an error some tensors may be overwritten; objects are unchanged. First waits until the saves of
  // this rank are decided. One thread of a process at a time may load; another one gets Code::refused.
  //
  // Without a step it loads the latest checkpoint. All ranks that load between the same two calls of save get
  // the same checkpoint, however often each of them loads. With read_only, the n-th load of the latest gets
  // the same checkpoint on all ranks; the next load may get a newer one. With a step it loads the newest
  // committed attempt at that step.
  //
  // An error begins with the rank and the checkpoint: "rank 3, load of step 7 (g1a1): ...".
  //
  // Code::not_found: the root has no checkpoint, or none of that step; it has no other cause.
  // Code::key_mismatch: the keys differ (LoadReport). Code::corrupt: damaged bytes or a missing file.
  // Code::unavailable: no node answers, or the checkpoint was deleted after it was chosen.
  Result<LoadResult> load(const StateDict& state, const LoadOptions& options = {});
  // Loads the items that the planner requests into the memory that it names. An error of a planner step ends
  // the load and names the step. The planner decides which keys may be missing: policies in `options` are
  // Code::invalid_argument.
  Result<LoadResult> load(const StateDict& state, dcp::LoadPlanner& planner, const LoadOptions& options = {});
  // Loads the latest checkpoint. Returns nullopt if the root has no checkpoint, and leaves the state
  // unchanged: only then may a run start from the beginning. Every other reason why no checkpoint was loaded
  // is an error. All ranks get the same answer. `options` must not name a step.
  Result<std::optional<LoadResult>> load_or_start(const StateDict& state, const LoadOptions& options = {});
  Result<std::optional<LoadResult>> load_or_start(const StateDict& state, dcp::LoadPlanner& planner,
                                                  const LoadOptions& options = {});
  // The key differences that the last call of load found, even if it failed. Empty if that call did not reach
  // a checkpoint.
  const LoadReport& load_report() const;
  // Opens a checkpoint to examine it and to read single values (include/shoal/checkpoint_reader.h). Chooses
  // the checkpoint as load does, reads only its manifest, and pins it while the reader lives. Destroy the
  // reader before this object. `fallback`: see LoadOptions.
  Result<CheckpointReader> open_checkpoint(std::optional<uint64_t> step = std::nullopt,
                                           std::optional<LoadFallback> fallback = std::nullopt);
  Result<Metadata> latest();
  // Lists the newest attempts of this root: `newest` of them, at most kMaxListedCheckpoints. If none of them
  // is a checkpoint, it continues to the newest checkpoint. Ascending, in the order that defines the latest.
  // The call only reads files of the root. It pins nothing: a listed checkpoint may be deleted before it is
  // loaded.
  Result<CheckpointList> list(uint32_t newest = 100);

 private:
  friend class CheckpointReader;
  struct Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal
