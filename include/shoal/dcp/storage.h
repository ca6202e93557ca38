// StorageWriter and StorageReader: a custom storage in the trainer's process. Shoal still decides whether a
// checkpoint is committed.
//
//   auto saved = dcp::save(*checkpointer, step, state, planner, writer);  // writer.write_data holds it
//   Metadata metadata = saved->wait_committed().value();                  // finish, on coordinator_rank
//   auto loaded = dcp::load(*checkpointer, state, load_planner, reader);
//
// Source of the interface: torch.distributed.checkpoint (2.13), storage.py. docs/how-to/planners.md shows
// line by line how to port a storage.
//
// The storage keeps the bytes. Shoal saves the storage's results (WriteResult) as an ordinary checkpoint, the
// record. The commit of the record commits the whole: before it nothing can be loaded, and a rank that fails
// aborts the save on all ranks.
//
// Every rank writes all items of its planner's plan. If several ranks hold a value, each of them writes it,
// and loads read the copy of the lowest rank. In mode collective the planner's create_global_plan assigns
// each chunk to one rank; a planner without one uses that of DCP's default planner. The chunks of all ranks
// must cover every tensor. Shoal checks this on the gathered results, before finish and in every load.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/dcp/load_planner.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::dcp {

// The trainer's thread calls the methods within save(), in the order below. It calls finish within
// StorageSave::wait_committed, on coordinator_rank alone. A writer may serve several saves, one after the
// other. An error of a step fails the save on all ranks, and its message names the step.
class StorageWriter {
 public:
  virtual ~StorageWriter() = default;

  // A new checkpoint begins. Its id, such as "step-00000010/g3a1", is unique to this attempt.
  virtual Status reset(const std::string& checkpoint_id) = 0;
  virtual Status set_up_storage_writer(const Role& role) = 0;
  // May fill storage_data and reorder the items.
  virtual Result<SavePlan> prepare_local_plan(SavePlan plan) { return plan; }
  // Gets the plans of all ranks, by rank, and returns plans with the same items. Called in mode collective,
  // on coordinator_rank, after the planner's create_global_plan; in other modes if there is a single rank.
  virtual Result<std::vector<SavePlan>> prepare_global_plan(std::vector<SavePlan> plans) { return plans; }
  // If true, a save with several ranks in another mode than collective is Code::invalid_argument, which names
  // the storage. LocalStorageWriter returns false, and its prepare_global_plan is final.
  virtual bool overrides_global_plan() const { return true; }
  // Writes the bytes of planner.resolve_data(item) for each item. Returns when all are durable, with one
  // result for each item.
  virtual Result<std::vector<WriteResult>> write_data(const SavePlan& plan, SavePlanner& planner) = 0;
  // The checkpoint is committed. `results` are those of write_data, by rank.
  virtual Status finish(const Metadata& metadata, const std::vector<std::vector<WriteResult>>& results) = 0;
};

class LocalStorageWriter : public StorageWriter {
 public:
  Result<std::vector<SavePlan>> prepare_global_plan(std::vector<SavePlan> plans) final { return plans; }
  bool overrides_global_plan() const final { return false; }
};

// The trainer's thread calls the methods within load(), in the order below. An error of a step ends the load,
// and its message names the step.
class StorageReader {
 public:
  virtual ~StorageReader() = default;

  virtual Status reset(const std::string& checkpoint_id) = 0;
  // Gets the record of the checkpoint: every value with its chunks, and in storage_data the result of each
  // chunk by its index. A storage that keeps its own metadata may return these instead.
  virtual Result<Metadata> read_metadata(Metadata recorded) { return recorded; }
  virtual Status set_up_storage_reader(const Metadata& metadata, const Role& role) = 0;
  virtual Result<LoadPlan> prepare_local_plan(LoadPlan plan) { return plan; }
  // Called only if there is a single rank.
  virtual Result<std::vector<LoadPlan>> prepare_global_plan(std::vector<LoadPlan> plans) { return plans; }
  // If true, a load with several ranks is Code::invalid_argument, which names the storage.
  virtual bool overrides_global_plan() const { return true; }
  // For an object's item calls planner.load_bytes. For a tensor's item calls resolve_tensor, copies the bytes
  // into the tensor (fill_from_chunk), then calls commit_tensor. The reader must verify the bytes itself:
  // Shoal has no digests of them.
  virtual Status read_data(const LoadPlan& plan, LoadPlanner& planner) = 0;
};

class LocalStorageReader : public StorageReader {
 public:
  Result<std::vector<LoadPlan>> prepare_global_plan(std::vector<LoadPlan> plans) final { return plans; }
  bool overrides_global_plan() const final { return false; }
};

// The sizes of the stored chunk that a tensor's item reads. Code::key_mismatch: there is no such chunk.
Result<Dims> chunk_sizes(const Metadata& metadata, const MetadataIndex& storage_index);

// A save through a custom storage. Only the trainer's thread uses it. Checkpointer and writer must outlive
// it.
class StorageSave {
 public:
  // save() returns a StorageSave. If it returned Code::earlier_save_failed instead, the save was staged:
  // construct one from the handle of Checkpointer::last_save.
  StorageSave(Checkpointer& checkpointer, StorageWriter& writer, SaveHandle handle)
      : checkpointer_(&checkpointer), writer_(&writer), handle_(std::move(handle)) {}
  AttemptKey key() const { return handle_.key(); }
  // The save of the record. Any thread may use the handle.
  SaveHandle& handle() { return handle_; }
  // Blocks like SaveHandle::wait_committed. After the commit, the first call on coordinator_rank reads the
  // results of all ranks and calls the writer's finish. Code::invalid_argument names a tensor that the chunks
  // of all ranks do not cover: finish is not called, and every load of the checkpoint fails.
  Result<shoal::Metadata> wait_committed(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

 private:
  Checkpointer* checkpointer_;
  StorageWriter* writer_;
  SaveHandle handle_;
  std::optional<Result<shoal::Metadata>> finished_;
};

// Returns when this rank's bytes are in the storage and their record is staged. `attributes`: see
// Checkpointer::save.
Result<StorageSave> save(Checkpointer& checkpointer, uint64_t step, const StateDict& state,
                         SavePlanner& planner, StorageWriter& writer, const SaveAttributes& attributes = {});
// Code::invalid_argument: the checkpoint was saved without a StorageWriter.
Result<LoadResult> load(Checkpointer& checkpointer, const StateDict& state, LoadPlanner& planner,
                        StorageReader& reader, const LoadOptions& options = {});

}  // namespace shoal::dcp
