// A GPT-2-shaped training state. Every element is a known function of its name, its place in the whole
// tensor, and the step, so that every element that a load places can be checked bit for bit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/device_memory.h"
#include "shoal/bytes.h"
#include "shoal/checkpointer.h"

namespace shoal::example {

enum class ShardingKind {
  fsdp,      // one mesh dimension, Shard(0)
  tp,        // Megatron's columns and rows
  fsdp_tp,   // FSDP2 over TP: strided shards
  replicas,  // every rank holds everything
  hsdp,      // replicas of FSDP groups
  pipeline,  // two stages with different names, FSDP within each
};

struct ModelOptions {
  uint32_t layers = 2;
  uint32_t hidden = 256;
  uint32_t vocab = 4096;
  uint32_t context = 256;
  DType dtype = DType::f32;  // of weights; f32 or bf16. Adam's moments are f32, counters i64
  ShardingKind sharding = ShardingKind::fsdp;
  uint32_t inner = 2;      // inner mesh dimension: TP ranks (fsdp_tp) or ranks of one replica (hsdp)
  bool on_device = false;  // tensors lie on a CUDA device; counters and objects on the host
};

class SyntheticState {
 public:
  // Code::invalid_argument: the sharding cannot divide this number of ranks.
  static Result<std::unique_ptr<SyntheticState>> make(const ModelOptions& options, Rank rank,
                                                      uint32_t world_size);
  SyntheticState(const SyntheticState&) = delete;

  const StateDict& state_dict() const { return state_dict_; }
  uint64_t held_bytes() const { return held_bytes_; }  // of tensors on this rank
  void fill(uint64_t step);
  // With on_device: what save reads and load fills lies on the device. put_on_device copies there what fill
  // and clear have made; take_from_device copies back what check compares. Without it both do nothing.
  Status put_on_device();
  Status take_from_device();
  const DeviceMemory* device_memory() const { return device_memory_.get(); }  // nullptr without on_device
  void clear();  // overwrites all values, so that values which a load leaves unchanged are wrong

  struct Check {
    uint64_t elements = 0;  // number of correct elements; each byte of an object counts as one
    std::optional<std::string> first_difference;
  };
  // `saved_world_size`: the checkpoint has no per-rank object of ranks from this number on.
  Check check(uint64_t step, uint32_t saved_world_size) const;

  // Whether a checkpoint of that many ranks correctly lacks this value: a per-rank object of this rank.
  bool may_lack(const std::string& fqn, uint32_t saved_world_size) const;

  // Copies `bytes` bytes of tensors to `to`, which has held_bytes() bytes. This measures the copy of a save.
  void copy_tensors(MutableByteView to, uint64_t bytes) const;

 private:
  struct Tensor {
    std::string fqn;
    DType dtype = DType::f32;
    Dims shape;
    LocalShards shards;
    Bytes data;
    void* on_device = nullptr;
  };

  SyntheticState(const ModelOptions& options, Rank rank, uint32_t world_size)
      : options_(options), rank_(rank), world_size_(world_size) {}
  Status build();
  // A weight with its Adam state. tensor_parallel: how TP alone would place it.
  void add_parameter(const std::string& name, Dims shape, Placement tensor_parallel, bool last_stage = false);
  void add_tensor(std::string fqn, DType dtype, const Dims& shape, const Mesh& mesh,
                  const std::vector<Placement>& placements);
  void add_counter(std::string fqn, const Mesh& mesh);
  std::vector<Placement> placements_of(Placement tensor_parallel) const;

  const ModelOptions options_;
  const Rank rank_;
  const uint32_t world_size_;
  Mesh mesh_ = Mesh::single(0);  // of this rank
  bool is_last_stage_ = true;    // of the pipeline
  bool is_first_stage_ = true;
  std::unique_ptr<DeviceMemory> device_memory_;
  Status allocated_;  // of device memory
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::string random_state_;  // of this rank
  std::string data_loader_;   // of all ranks; its length changes with the step
  uint64_t held_bytes_ = 0;
  StateDict state_dict_;
};

std::optional<ShardingKind> sharding_kind_from_name(std::string_view name);

}  // namespace shoal::example
