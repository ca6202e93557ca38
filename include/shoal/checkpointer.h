// Checkpointer: what a trainer links. Save costs a memory copy; load works on any number of ranks and any
// sharding.
//
//   auto checkpointer = Checkpointer::open(CheckpointerOptions::from_environment());
//   const ShardedTensor rows{DType::f32, {50257, 768}, mesh, {Placement::shard(0)}};
//   StateDict state;                                   // names, shardings, and pointers to this rank's bytes
//   state.add_tensor("wte.weight", rows, local_bytes);
//   SaveHandle saved = (*checkpointer)->save(step, state).value();   // returns when staged
//   ... train ...                                                    // the node persists, digests, commits
//   Metadata metadata = saved.wait_committed().value();
//
// Links neither CAF nor UCX nor RocksDB. A Checkpointer is used by one trainer thread; a SaveHandle by any.
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

// Where no launcher says a job id that is new for each incarnation of the job (torchrun does not), rank 0
// makes one in `open`, and tells it to the others in theirs for as long as its process lives.
struct JobIdExchange {
  std::string address;  // HOST:PORT of rank 0's host; empty: all ranks are on this host
  std::string run;      // all ranks say the same, or are refused
};

enum class OnBusy { wait, decline };     // what save does when max_in_flight saves are in flight
enum class OnFailed { report, refuse };  // what it does after a failure that nobody was told of

struct CheckpointerOptions {
  std::string root;  // folder of the run, on storage that every host sees
  Rank rank = 0;
  uint32_t world_size = 1;
  std::string job_id;                            // the same on all ranks of one run, never used again
  std::optional<JobIdExchange> job_id_exchange;  // how to come to one where job_id is empty
  // For a node that has to be started. The job's coordinator, HOST:PORT; empty: that node coordinates by
  // itself, for this host alone.
  std::string coordinator;
  // Not empty: that node is the job's coordinator, and listens at this HOST:PORT.
  std::string coordinate_at;
  std::string node_name;     // of this host, distinct in the job; empty: its host name
  std::string node_program;  // `shoal` to start a node with; default: $SHOAL_NODE_PROGRAM, else beside this
                             // program, else installed with this library, else PATH
  NodeSettings node;         // its settings, where it has to be started
  bool start_node = true;  // where none is on this host; SHOAL_START_NODE=0, as of `shoal launch`, forbids it
  // Loads alone, beside a job that trains on this root, which notices nothing: no generation is claimed. save
  // and prepare are Code::refused. Alike on all ranks; SHOAL_READ_ONLY=1 sets it. docs/how-to/operations.md,
  // "A job that only reads".
  bool read_only = false;
  uint32_t max_in_flight = 2;
  OnBusy on_busy = OnBusy::wait;
  // Where an earlier save of this rank failed, and neither its handle nor anything else has told of it: save
  // stages, then returns Code::earlier_save_failed once (report), or stages nothing until wait_all or the
  // handle has told of it (refuse). Alike on all ranks.
  OnFailed on_failed = OnFailed::report;
  // After so many failed saves in a row, save stages nothing any more, and `shoal launch` ends the job. 0:
  // as SHOAL_MAX_FAILED_SAVES or shoal.toml says; if neither does, any number may fail.
  uint32_t max_failed_saves = 0;
  // Called for every save that fails after it was staged, by a thread of the Checkpointer. It may not wait
  // for the Checkpointer or for a handle, and may not throw.
  std::function<void(const AttemptKey&, const Status&)> on_save_failed;
  // A subset of the launcher's ranks that saves and loads by itself: ascending, alike on all of them; empty:
  // all. `rank`, `world_size` and the ranks of meshes are those of the launcher's world; what a checkpoint, a
  // planner, a load elsewhere and options() call a rank is its place in the group. docs/how-to/clusters.md,
  // "Some of the ranks".
  std::vector<Rank> process_group;
  Rank coordinator_rank = 0;  // alike, within the group; which planner and storage are told to coordinate
  SaveOptions save;           // alike on all ranks; mode rank_local implies dedupe none
  uint64_t load_window_bytes = uint64_t{16} << 20;  // at least 4 MiB; kept for further loads
  // By which a load reads files itself, at most as many as this process may have processors; each takes 1
  // MiB. 0: its node reads them, and passes the bytes on through the load window.
  unsigned load_threads = 4;
  // What loads of the latest do that do not say it themselves (LoadOptions::fallback). Alike on all ranks.
  LoadFallback load_fallback = LoadFallback::none;
  uint64_t staging_bytes_max = 0;  // of all slabs; 0: what this process's cgroup and its node leave
  // How many ranks of the job run on this host: its node divides the host's memory among so many, also before
  // they have come. 0: nobody says; from_environment takes it from the launcher.
  uint32_t ranks_on_host = 0;
  // How long to look for a node that serves this rank, in open and wherever its node has ended. 0: 30 s where
  // all ranks are on one host, else as long as a node looks for its coordinator (node.find_coordinator_ms, 60
  // s), and a minute more.
  std::chrono::milliseconds attach_timeout{0};
  // A node that gives no sign of life for that long is reported by its pid: it is stopped, or hangs. A slow
  // disk is neither: the node answers while it writes.
  std::chrono::milliseconds node_silence{30000};

  // ROOT from SHOAL_ROOT; rank, world size, job id and coordinator from the variables of shoal launch,
  // torchrun, Open MPI or Slurm, as docs/how-to/clusters.md says; on_busy, save and others from the variables
  // and files of docs/reference/settings.md. Code::invalid_argument names the variable, or the line of a
  // file, that is missing or wrong. May look up the coordinator's name.
  static Result<CheckpointerOptions> from_environment();
};

struct SaveStats {
  uint64_t bytes_staged = 0;
  double seconds_blocked = 0;   // in save, all of it
  double seconds_waited = 0;    // of that, for a slab (more than max_in_flight saves)
  double seconds_planning = 0;  // of that, in mode collective, until this rank was told its plan
  double seconds_copying = 0;   // of that, copying
  bool with_plan = false;       // false: no roster yet, everything held was staged
  // How many saves of this rank the memory of its host holds at a time; fewer than max_in_flight where memory
  // is short.
  uint32_t in_flight_max = 0;
  // 0: the save was copied at once. Where the memory of the host does not hold it, it was copied in so many
  // parts, while the node wrote, and save returned when all of it was durable.
  uint32_t parts = 0;
};

// What one call of save may say beside its state.
struct SaveAttributes {
  // Stored with the checkpoint, in its manifest and in every shard: returned by wait_committed, latest and
  // load (Metadata::user), shown by `shoal ls` and `shoal show`. Alike on all ranks, or the save aborts and
  // names two ranks and a key that differ. At most kMaxUserKeys keys, and kMaxUserMetadataBytes in all.
  UserMetadata metadata;
};

// One save in flight. Copies share it. Destroying it does not cancel the save.
class SaveHandle {
 public:
  AttemptKey key() const;
  const SaveStats& stats() const;
  bool done() const;  // decided, or known to have failed
  // Blocks until committed or failed. Code::aborted carries the first cause; Code::deadline_exceeded: not
  // yet. Of a checkpoint that was deleted by then, the key alone is told.
  Result<Metadata> wait_committed(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  Status error() const;                // OK while in flight and when committed
  double seconds_to_decision() const;  // from the call of save; 0 while in flight

  struct State;
  explicit SaveHandle(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

struct LoadOptions {
  std::optional<uint64_t> step;  // nullopt: latest
  // Which keys may be missing or unexpected. All that may not be, and all of other shape or type, are named
  // in one error, up to kMaxKeysNamed of them; Checkpointer::load_report has the rest. What may be missing
  // and is stays as it was.
  KeyPolicies policies;
  // How ranks that need the same bytes come by them. Alike on all ranks of a load, as is what follows.
  LoadWay way = LoadWay::automatic;
  // Ascending: the ranks that share with this one what they read. Empty: all that need the same. Of a
  // process_group they are places in it, counted from 0, as coordinator_rank is.
  std::vector<Rank> data_parallel_group;
  // Bytes pass from host to host through host memory. Otherwise Code::invalid_argument: no other way is
  // built.
  bool cpu_transfer = true;
  // Of the latest: what to do where the newest checkpoint is damaged. With LoadFallback::previous somebody
  // reads and verifies all of it before any rank loads it, and goes on to the one before it if it is damaged:
  // LoadResult::passed_over names what was. All ranks get the same. Where all are damaged, Code::corrupt; a
  // checkpoint that cannot be read for another reason is an error. nullopt: as
  // CheckpointerOptions::load_fallback says. Together with `step`: Code::invalid_argument.
  std::optional<LoadFallback> fallback = std::nullopt;
};

struct LoadResult {
  Metadata metadata;
  uint64_t bytes_loaded = 0;
  double seconds = 0;
  LoadReport report;  // missing and unexpected keys that the policies allow
  LoadTimes times;
  // What was damaged or gone and therefore read from copies, which another rank had written of the very same
  // (dedupe none). The checkpoint wants looking after: shoal verify names all that is damaged in it.
  DamageList damaged;
  // Newer attempts than this checkpoint, which load of the latest has passed over: aborted ones; damaged
  // ones, with LoadFallback::previous; of a job that only reads those that are not decided yet. Alike on all
  // ranks. Rank 0 writes them to stderr too, once.
  PassedOver passed_over;
};
// Of all ranks that are given, by rank: a line a stage, with the least, the median and the greatest of it,
// and whose that is.
std::string summarize_load_times(const std::vector<LoadTimes>& by_rank);

class Checkpointer {
 public:
  // Finds the node of this host and run, or starts one; attaches. Code::unavailable names the socket and the
  // node's log. A rank may be opened again by this process, but by no other one in the same run.
  static Result<std::unique_ptr<Checkpointer>> open(CheckpointerOptions options);
  // Waits for the saves in flight to be written by the node (not committed), then detaches. A failed save
  // that nobody was told of is a line on stderr; close returns it.
  ~Checkpointer();

  uint32_t generation() const;                 // of a job that only reads: its number under readers/
  const CheckpointerOptions& options() const;  // as they hold: with the job id that was agreed on
  // Optional: registers the layout and faults in the slabs, so that the first save costs what later ones do.
  Status prepare(const StateDict& state);
  // Returns when staged; in mode collective that waits until all ranks have called it. The attempt is counted
  // by this process: a step that is not above the one saved before it, as after a rollback, begins the next.
  // Of all that was committed, what was saved last is `latest`. Code::busy: as many saves in flight as may
  // be, or as the memory of the host holds, and on_busy = decline. Where that does not hold one save, save
  // returns when all of it is durable (SaveStats::parts). Code::no_space: not even that is possible
  // (docs/how-to/operations.md, "Memory of saves"). The layout may change from save to save, on all ranks or
  // on some: a rank whose layout is new stages all that it holds instead of its share alone, once. A save
  // that fails here is reported, so that it aborts at once on the other ranks too, with this rank and cause.
  //
  // Code::earlier_save_failed tells of a save before this one, by step, rank and cause, once: that one
  // failed, and nobody had asked. This one was staged all the same, unless options say otherwise (on_failed,
  // max_failed_saves); last_save has its handle.
  Result<SaveHandle> save(uint64_t step, const StateDict& state, const SaveAttributes& attributes = {});
  // What the planner makes of the state. An error of one of its steps fails the save, as above, and names the
  // step. A planner with a global plan of its own is refused by name, but in mode collective.
  Result<SaveHandle> save(uint64_t step, const StateDict& state, dcp::SavePlanner& planner,
                          const SaveAttributes& attributes = {});
  // Of the last call of save that staged something; nullopt: none has.
  std::optional<SaveHandle> last_save() const;
  // Waits until all saves of this Checkpointer are decided. The first failure that nobody was told of, with
  // step and rank, and how many more there are. Code::deadline_exceeded: not all are decided yet.
  Status wait_all(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // wait_all, then detaches: what is called later is refused. After Code::deadline_exceeded it is still open.
  Status close(std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  // Fills the state; after an error, tensors may hold some of it, objects are untouched. Every byte is
  // verified against its digest before it is placed. Code::not_found: there is no checkpoint, or none of that
  // step, and nothing else. Code::key_mismatch: its keys differ (LoadReport). A file that is gone is
  // Code::corrupt. Code::unavailable: no node answers, or the checkpoint was deleted after it was chosen.
  // Waits until the saves of this rank are decided. Without a step: the latest, of which all ranks that load
  // between the same two calls of save get the same, however often each of them loads or tries again. With
  // one: the newest committed attempt at it. One thread of a process at a time; Code::refused. With read_only
  // the n-th load of the latest gets the same on all ranks, and the next one what is the newest then.
  Result<LoadResult> load(const StateDict& state, const LoadOptions& options = {});
  // What the planner asks for, to where it says. An error of one of its steps ends the load and names the
  // step. What may be missing is the planner's to say: policies in `options` are Code::invalid_argument.
  Result<LoadResult> load(const StateDict& state, dcp::LoadPlanner& planner, const LoadOptions& options = {});
  // The latest, or nothing where the root has no checkpoint: a run may start afresh then, and only then. The
  // state is untouched where nothing was loaded. Every other reason why no checkpoint is loaded is an error.
  // All ranks are told the same. `options` name no step.
  Result<std::optional<LoadResult>> load_or_start(const StateDict& state, const LoadOptions& options = {});
  Result<std::optional<LoadResult>> load_or_start(const StateDict& state, dcp::LoadPlanner& planner,
                                                  const LoadOptions& options = {});
  // What the last call of load found, also where it failed; empty where it came to no checkpoint.
  const LoadReport& load_report() const;
  // Which checkpoint that is, and what it holds, without reading any of it; its values one by one, later. It
  // is chosen as load chooses one, pinned while it is open, and must be closed before this object is.
  // include/shoal/checkpoint_reader.h.
  // `fallback`: as in LoadOptions.
  Result<CheckpointReader> open_checkpoint(std::optional<uint64_t> step = std::nullopt,
                                           std::optional<LoadFallback> fallback = std::nullopt);
  Result<Metadata> latest();
  // The newest attempts at saving of this root, at most so many and kMaxListedCheckpoints, and where none of
  // them is a checkpoint, as many more as it takes to come to one. Ascending, as `latest` orders. Reads files
  // of the root, decides nothing, and keeps nothing: what is listed may be deleted before it is loaded.
  Result<CheckpointList> list(uint32_t newest = 100);

 private:
  friend class CheckpointReader;
  struct Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal
