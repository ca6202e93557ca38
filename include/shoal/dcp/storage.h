// StorageWriter and StorageReader: a storage of one's own, in the trainer's process, under Shoal's decisions.
//
//   auto saved = dcp::save(*checkpointer, step, state, planner, writer);  // writer.write_data holds it
//   Metadata metadata = saved->wait_committed().value();                  // finish, on coordinator_rank
//   auto loaded = dcp::load(*checkpointer, state, load_planner, reader);
//
// Source of the interface: torch.distributed.checkpoint (2.13), storage.py; docs/how-to/planners.md says line
// by line how one is ported. The storage keeps the bytes. What it answers for them (WriteResult) is saved as
// an ordinary checkpoint of Shoal's, whose commit is that of the whole: until then nothing of it is loadable,
// and a rank that fails aborts it for all.
//
// Every rank writes all that its planner's plan has: values that several ranks hold are written by each of
// them, and the copy of the lowest rank is read. In mode collective the planner's create_global_plan, that of
// DCP's default planner where it has none of its own, gives each chunk to one. That the chunks of all ranks
// cover every tensor is checked when the results have come together: before finish, and by every load.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/dcp/load_planner.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::dcp {

// Called from the trainer's thread within save(), in the order of its methods; finish within
// StorageSave::wait_committed, on coordinator_rank alone. One writer serves one save after the other. An
// error of any step fails the save under its name, on all ranks.
class StorageWriter {
 public:
  virtual ~StorageWriter() = default;

  // A new checkpoint begins. The name is of this attempt alone: "step-00000010/g3a1".
  virtual Status reset(const std::string& checkpoint_id) = 0;
  virtual Status set_up_storage_writer(const Role& role) = 0;
  // May put bytes of its own into storage_data, and order the items.
  virtual Result<SavePlan> prepare_local_plan(SavePlan plan) { return plan; }
  // The plans of all ranks, by rank, to plans of the same items. Called in mode collective, on
  // coordinator_rank, after the planner's create_global_plan, and where there is one rank alone.
  virtual Result<std::vector<SavePlan>> prepare_global_plan(std::vector<SavePlan> plans) { return plans; }
  // Such a writer is refused by name where there are several ranks, but in mode collective. Not so
  // LocalStorageWriter, whose prepare_global_plan is final.
  virtual bool overrides_global_plan() const { return true; }
  // Returns when all items are durable, with one result for each. Bytes are planner.resolve_data(item)'s.
  virtual Result<std::vector<WriteResult>> write_data(const SavePlan& plan, SavePlanner& planner) = 0;
  // The checkpoint is committed. `results` by rank, as write_data returned them.
  virtual Status finish(const Metadata& metadata, const std::vector<std::vector<WriteResult>>& results) = 0;
};

class LocalStorageWriter : public StorageWriter {
 public:
  Result<std::vector<SavePlan>> prepare_global_plan(std::vector<SavePlan> plans) final { return plans; }
  bool overrides_global_plan() const final { return false; }
};

// Called from the trainer's thread within load(), in the order of its methods. An error of any step ends the
// load under its name.
class StorageReader {
 public:
  virtual ~StorageReader() = default;

  virtual Status reset(const std::string& checkpoint_id) = 0;
  // What the commit recorded: every value with its chunks, and in storage_data the result of each chunk, by
  // its index. A storage with metadata of its own may return those.
  virtual Result<Metadata> read_metadata(Metadata recorded) { return recorded; }
  virtual Status set_up_storage_reader(const Metadata& metadata, const Role& role) = 0;
  virtual Result<LoadPlan> prepare_local_plan(LoadPlan plan) { return plan; }
  // Called where there is one rank alone, as above.
  virtual Result<std::vector<LoadPlan>> prepare_global_plan(std::vector<LoadPlan> plans) { return plans; }
  virtual bool overrides_global_plan() const { return true; }
  // For each item: load_bytes; or resolve_tensor, the bytes into it (fill_from_chunk), commit_tensor. What it
  // reads it has to check by itself: Shoal has no digests of it.
  virtual Status read_data(const LoadPlan& plan, LoadPlanner& planner) = 0;
};

class LocalStorageReader : public StorageReader {
 public:
  Result<std::vector<LoadPlan>> prepare_global_plan(std::vector<LoadPlan> plans) final { return plans; }
  bool overrides_global_plan() const final { return false; }
};

// The sizes of the stored chunk that a tensor's item reads from. Code::key_mismatch: there is no such chunk.
Result<Dims> chunk_sizes(const Metadata& metadata, const MetadataIndex& storage_index);

// A save through a storage. Used by the trainer's thread; checkpointer and writer outlive it.
class StorageSave {
 public:
  // For a save whose call returned Code::earlier_save_failed, with Checkpointer::last_save: save makes it
  // otherwise.
  StorageSave(Checkpointer& checkpointer, StorageWriter& writer, SaveHandle handle)
      : checkpointer_(&checkpointer), writer_(&writer), handle_(std::move(handle)) {}
  AttemptKey key() const { return handle_.key(); }
  // The record's own save: may be asked by any thread.
  SaveHandle& handle() { return handle_; }
  // Blocks until committed or failed, as SaveHandle::wait_committed; then, on coordinator_rank, reads the
  // results of all ranks and runs the writer's finish, the first time. Code::invalid_argument: the chunks of
  // all ranks do not cover a tensor, by name; finish is not called, and no load of it succeeds.
  Result<shoal::Metadata> wait_committed(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

 private:
  Checkpointer* checkpointer_;
  StorageWriter* writer_;
  SaveHandle handle_;
  std::optional<Result<shoal::Metadata>> finished_;
};

// Returns when this rank's bytes are in the storage and their record is staged. `attributes` as in
// Checkpointer::save.
Result<StorageSave> save(Checkpointer& checkpointer, uint64_t step, const StateDict& state,
                         SavePlanner& planner, StorageWriter& writer, const SaveAttributes& attributes = {});
// Code::invalid_argument where the checkpoint was saved without a StorageWriter.
Result<LoadResult> load(Checkpointer& checkpointer, const StateDict& state, LoadPlanner& planner,
                        StorageReader& reader, const LoadOptions& options = {});

}  // namespace shoal::dcp
