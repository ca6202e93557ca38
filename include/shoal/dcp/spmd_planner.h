// Planners for state that is sharded as in XLA and JAX: each process has several local shards, on devices.
//
//   dcp::SpmdTensor kernel{"kernel", DType::bf16, {4096, 4096}, sharding, fetch, hand_over};
//   dcp::SpmdSavePlanner planner({kernel});
//   checkpointer->save(step, state, planner);  // `state`: objects and counters on the host
//
// These planners plan sharded tensors by tiles (include/shoal/tile_sharding.h). They handle all other values,
// and tensors that every device holds whole, like the default planners.
//
// Source of the idea: PyTorch/XLA's SPMDSavePlanner and SPMDLoadPlanner
// (torch_xla.experimental.distributed_checkpoint). This is a new implementation for the interface of
// include/shoal/dcp/save_planner.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shoal/dcp/load_planner.h"
#include "shoal/dcp/save_planner.h"

namespace shoal::dcp {

// The local shard of one device, row-major in host memory. Its shape is that of the device's tile
// (TileSharding::box_of), or greater in some dimensions. In a greater shape the tile begins at offset 0, and
// the rest is padding.
struct HostShard {
  Device device = 0;
  Dims shape;
  std::shared_ptr<std::byte> data;  // element_count(shape) elements; null if that is 0
};

struct SpmdTensor {
  std::string fqn;
  DType dtype = DType::f32;
  Dims shape;             // global
  TileSharding sharding;  // its ranks are those of Role; in a process group, positions in the group
  // For saves. Copies the local shards of this rank's devices to the host, all at once; one shard of each
  // distinct tile suffices. Called once per save, when the first bytes are needed, by the thread that needs
  // them.
  std::function<Result<std::vector<HostShard>>()> fetch;
  // For loads. Receives the loaded tensor: one unpadded shard for each device of this rank that the sharding
  // assigns, ascending by device. Devices with equal tiles share memory. Called once per load, when all
  // elements have arrived. For a rank without elements, finish_plan calls it.
  std::function<Status(std::vector<HostShard> shards)> hand_over;
};

// Makes one item for each distinct tile that this rank's devices hold.
class SpmdSavePlanner : public LocalSavePlanner {
 public:
  explicit SpmdSavePlanner(std::vector<SpmdTensor> tensors, DefaultSavePlannerOptions options = {});

  Status set_up_planner(const StateDict& state_dict, const StorageMeta& storage_meta,
                        const Role& role) override;
  Result<SavePlan> create_local_plan() override;
  // Returns the unpadded tile. The planner keeps fetched shards until release(), so that further calls do not
  // fetch again. After a fetch that failed, the next call fetches again.
  Result<Data> resolve_data(const WriteItem& write_item) override;
  void release() override;

 private:
  struct Fetched {
    std::mutex mutex;
    bool is_there = false;
    std::vector<HostShard> shards;
  };
  struct Tile {
    size_t tensor = 0;
    std::vector<Device> devices;  // those of this rank that hold the tile
    Box box;
  };
  Result<Data> cut(const SpmdTensor& tensor, const Tile& tile, const std::vector<HostShard>& shards) const;

  std::vector<SpmdTensor> tensors_;
  const DefaultSavePlannerOptions options_;
  DefaultSavePlanner unsharded_;
  Role role_;
  std::map<MetadataIndex, Tile> tiles_;
  std::vector<std::unique_ptr<Fetched>> fetched_;  // by tensor
};

class SpmdLoadPlanner : public LocalLoadPlanner {
 public:
  explicit SpmdLoadPlanner(std::vector<SpmdTensor> tensors, DefaultLoadPlannerOptions options = {});

  Status set_up_planner(const StateDict& state_dict, const Metadata& metadata, const Role& role) override;
  Result<LoadPlan> create_local_plan() override;
  Result<LoadPlan> finish_plan(LoadPlan central_plan) override;
  Status load_bytes(const ReadItem& read_item, std::string value) override;
  Result<Tensor> resolve_tensor(const ReadItem& read_item) override;
  Status commit_tensor(const ReadItem& read_item, const Tensor& tensor) override;
  // Covers the tensors of SpmdTensor and the values of the state.
  const LoadReport* load_report() const override { return others_.load_report(); }
  const std::vector<std::string>& missing() const { return others_.missing(); }

 private:
  struct Tile {
    Box box;
    std::vector<Device> devices;
    std::shared_ptr<std::byte> data;  // allocated for the first item of the tile
  };
  struct Loading {
    bool is_handed_over = false;
    std::map<Dims, Tile> tiles;  // by offset
    uint64_t items_awaited = 0;
  };
  void plan_tensor(size_t number, const std::string& stored_fqn, LoadPlan& plan);
  Status hand_over(size_t number);
  Result<std::pair<size_t, Tile*>> tile_of(const ReadItem& read_item);

  std::vector<SpmdTensor> tensors_;
  const DefaultLoadPlannerOptions options_;
  DefaultLoadPlanner others_;
  Role role_;
  Metadata metadata_;
  std::map<std::string, size_t> numbers_;  // by fqn
  std::mutex mutex_;
  std::vector<Loading> loading_;  // by tensor
};

}  // namespace shoal::dcp
