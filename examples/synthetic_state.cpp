#include "examples/synthetic_state.h"

#include <algorithm>
#include <cstring>

namespace shoal::example {

namespace {

constexpr size_t kRandomStateBytes = 5056;  // as long as PyTorch's CPU generator state
constexpr std::string_view kRandomState = "rng";
constexpr std::string_view kDataLoader = "data_loader";

// FNV-1a of the name. chaos/audit.py computes the same values.
uint64_t seed_of(std::string_view fqn, uint64_t step) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : fqn) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash ^ ((step + 1) * 0xA0761D6478BD642Full);
}

uint64_t mix(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + index) * 0x9E3779B97F4A7C15ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return x ^ (x >> 32);
}

// The bits of an element: finite numbers, since the top bit of the exponent is 0.
template <class Bits>
Bits element_bits(uint64_t seed, uint64_t index) {
  constexpr Bits second_bit = Bits{1} << (8 * sizeof(Bits) - 2);
  return static_cast<Bits>(static_cast<Bits>(mix(seed, index)) & static_cast<Bits>(~second_bit));
}

std::string object_bytes(const std::string& fqn, size_t size, uint64_t step) {
  uint64_t seed = seed_of(fqn, step);
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(mix(seed, i));
  return out;
}
size_t data_loader_bytes(uint64_t step) {
  return 1000 + (step * 37) % 500;
}

// Calls row(index in the whole tensor, index in the local one, count) for each row of each box.
template <class Row>
void for_each_row(std::span<const uint64_t> shape, const LocalShards& shards, Row&& row) {
  for (size_t k = 0; k < shards.boxes.size(); ++k) {
    const Box& global = shards.boxes[k];
    const Box& local = shards.local[k];
    if (global.empty()) continue;
    size_t outer = global.dims() == 0 ? 0 : global.dims() - 1;
    uint64_t count = global.dims() == 0 ? 1 : global.sizes.back();
    Dims at(outer, 0);
    while (true) {
      uint64_t in_global = 0, in_local = 0;
      for (size_t d = 0; d < global.dims(); ++d) {
        uint64_t step = d < outer ? at[d] : 0;
        in_global = in_global * shape[d] + global.offsets[d] + step;
        in_local = in_local * shards.local_shape[d] + local.offsets[d] + step;
      }
      row(in_global, in_local, count);
      size_t d = outer;
      while (d > 0 && ++at[d - 1] == global.sizes[d - 1]) at[--d] = 0;
      if (d == 0) break;
    }
  }
}

template <class Bits>
void fill_row(std::byte* out, uint64_t seed, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Bits bits = element_bits<Bits>(seed, first + i);
    std::memcpy(out + i * sizeof(Bits), &bits, sizeof bits);
  }
}

// The number of correct elements before the first wrong one.
template <class Bits>
uint64_t count_right(const std::byte* data, uint64_t seed, uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * sizeof(Bits), sizeof bits);
    if (bits != element_bits<Bits>(seed, first + i)) return i;
  }
  return count;
}

uint64_t element_bytes(DType dtype) {
  return dtype_bits(dtype) / 8;
}

void check_object(const std::string& fqn, const std::string& bytes, const std::string& expected,
                  SyntheticState::Check* check) {
  if (check->first_difference) return;
  if (bytes == expected) {
    check->elements += bytes.size();
    return;
  }
  auto differs = std::mismatch(bytes.begin(), bytes.end(), expected.begin(), expected.end());
  check->first_difference = fqn + ": byte " + std::to_string(differs.first - bytes.begin()) + " of " +
                            std::to_string(bytes.size()) + " (" + std::to_string(expected.size()) +
                            " expected)";
}

}  // namespace

std::optional<ShardingKind> sharding_kind_from_name(std::string_view name) {
  if (name == "fsdp") return ShardingKind::fsdp;
  if (name == "tp") return ShardingKind::tp;
  if (name == "fsdp+tp") return ShardingKind::fsdp_tp;
  if (name == "replicas") return ShardingKind::replicas;
  if (name == "hsdp") return ShardingKind::hsdp;
  if (name == "pipeline") return ShardingKind::pipeline;
  return std::nullopt;
}

Result<std::unique_ptr<SyntheticState>> SyntheticState::make(const ModelOptions& options, Rank rank,
                                                             uint32_t world_size) {
  std::unique_ptr<SyntheticState> state(new SyntheticState(options, rank, world_size));
  if (options.on_device) {
    SHOAL_ASSIGN_OR_RETURN(state->device_memory_, DeviceMemory::open(rank));
  }
  SHOAL_RETURN_IF_ERROR(state->build());
  SHOAL_RETURN_IF_ERROR(state->allocated_);
  return state;
}

Status SyntheticState::build() {
  switch (options_.sharding) {
    case ShardingKind::fsdp:
    case ShardingKind::tp:
    case ShardingKind::replicas:
      mesh_ = Mesh::contiguous({world_size_});
      break;
    case ShardingKind::fsdp_tp:
    case ShardingKind::hsdp:
      if (options_.inner == 0 || world_size_ % options_.inner != 0) {
        return Status(Code::invalid_argument, "a world of " + std::to_string(world_size_) +
                                                  " ranks is not divisible by " +
                                                  std::to_string(options_.inner));
      }
      mesh_ = Mesh::contiguous({world_size_ / options_.inner, options_.inner});
      break;
    case ShardingKind::pipeline: {
      if (world_size_ % 2 != 0)
        return Status(Code::invalid_argument, "two stages need an even number of ranks");
      uint32_t half = world_size_ / 2;
      is_first_stage_ = rank_ < half;
      is_last_stage_ = !is_first_stage_;
      mesh_ = Mesh::contiguous({half}, is_first_stage_ ? 0 : half);
      break;
    }
  }
  const uint64_t hidden = options_.hidden;
  const Placement whole = Placement::replicate(), rows = Placement::shard(0), columns = Placement::shard(1);
  add_parameter("transformer.wte.weight", {options_.vocab, hidden}, rows);
  add_parameter("transformer.wpe.weight", {options_.context, hidden}, whole);
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    bool last = layer >= (options_.layers + 1) / 2;
    std::string prefix = "transformer.h." + std::to_string(layer) + ".";
    for (const char* norm : {"ln_1", "ln_2"}) {
      add_parameter(prefix + norm + ".weight", {hidden}, whole, last);
      add_parameter(prefix + norm + ".bias", {hidden}, whole, last);
    }
    add_parameter(prefix + "attn.c_attn.weight", {hidden, 3 * hidden}, columns, last);
    add_parameter(prefix + "attn.c_attn.bias", {3 * hidden}, rows, last);
    add_parameter(prefix + "attn.c_proj.weight", {hidden, hidden}, rows, last);
    add_parameter(prefix + "attn.c_proj.bias", {hidden}, whole, last);
    add_parameter(prefix + "mlp.c_fc.weight", {hidden, 4 * hidden}, columns, last);
    add_parameter(prefix + "mlp.c_fc.bias", {4 * hidden}, rows, last);
    add_parameter(prefix + "mlp.c_proj.weight", {4 * hidden, hidden}, rows, last);
    add_parameter(prefix + "mlp.c_proj.bias", {hidden}, whole, last);
  }
  add_parameter("transformer.ln_f.weight", {hidden}, whole, true);
  add_parameter("transformer.ln_f.bias", {hidden}, whole, true);
  state_dict_.add_rank_object(std::string(kRandomState), &random_state_);
  state_dict_.add_object(std::string(kDataLoader), &data_loader_, Mesh::contiguous({world_size_}), true);
  return ok_status();
}

std::vector<Placement> SyntheticState::placements_of(Placement tensor_parallel) const {
  switch (options_.sharding) {
    case ShardingKind::tp:
      return {tensor_parallel};
    case ShardingKind::replicas:
      return {Placement::replicate()};
    case ShardingKind::hsdp:
      return {Placement::replicate(), Placement::shard(0)};
    case ShardingKind::fsdp_tp: {
      bool same_dimension = tensor_parallel == Placement::shard(0);
      return {same_dimension ? Placement::strided_shard(0, options_.inner) : Placement::shard(0),
              tensor_parallel};
    }
    case ShardingKind::fsdp:
    case ShardingKind::pipeline:
      break;
  }
  return {Placement::shard(0)};
}

void SyntheticState::add_parameter(const std::string& name, Dims shape, Placement tensor_parallel,
                                   bool last_stage) {
  if (last_stage ? !is_last_stage_ : !is_first_stage_) return;
  std::vector<Placement> placements = placements_of(tensor_parallel);
  add_tensor("model." + name, options_.dtype, shape, mesh_, placements);
  add_tensor("optimizer.exp_avg." + name, DType::f32, shape, mesh_, placements);
  add_tensor("optimizer.exp_avg_sq." + name, DType::f32, shape, mesh_, placements);
  add_counter("optimizer.step." + name, mesh_);
}

void SyntheticState::add_tensor(std::string fqn, DType dtype, const Dims& shape, const Mesh& mesh,
                                const std::vector<Placement>& placements) {
  auto tensor = std::make_unique<Tensor>();
  tensor->fqn = std::move(fqn);
  tensor->dtype = dtype;
  tensor->shape = shape;
  tensor->shards = shards_at(shape, mesh, placements, *mesh.coordinate_of(rank_));
  uint64_t bytes = element_count(tensor->shards.local_shape).value() * element_bytes(dtype);
  held_bytes_ += bytes;
  tensor->data.resize(bytes);
  MemoryRef memory = tensor->data.data();
  if (device_memory_ != nullptr && bytes > 0) {
    Result<void*> allocated = device_memory_->allocate(bytes);
    if (allocated.ok()) {
      tensor->on_device = *allocated;
      memory = MemoryRef::on_device(*allocated, device_memory_->device(), device_memory_->stream());
    } else if (allocated_.ok()) {
      allocated_ = allocated.status().with_context(tensor->fqn);
    }
  }
  state_dict_.add_tensor(tensor->fqn, dtype, shape, mesh, placements, memory);
  tensors_.push_back(std::move(tensor));
}

void SyntheticState::add_counter(std::string fqn, const Mesh& mesh) {
  auto tensor = std::make_unique<Tensor>();
  tensor->fqn = std::move(fqn);
  tensor->dtype = DType::i64;
  tensor->shards = {{}, {Box{}}, {Box{}}};
  tensor->data.resize(element_bytes(tensor->dtype));
  held_bytes_ += tensor->data.size();
  state_dict_.add_value(tensor->fqn, tensor->dtype, {}, tensor->data.data(), mesh);
  tensors_.push_back(std::move(tensor));
}

void SyntheticState::fill(uint64_t step) {
  for (auto& tensor : tensors_) {
    uint64_t seed = seed_of(tensor->fqn, step), bytes = element_bytes(tensor->dtype);
    auto fill = bytes == 2 ? fill_row<uint16_t> : bytes == 4 ? fill_row<uint32_t> : fill_row<uint64_t>;
    for_each_row(tensor->shape, tensor->shards, [&](uint64_t global, uint64_t local, uint64_t count) {
      fill(tensor->data.data() + local * bytes, seed, global, count);
    });
  }
  random_state_ = object_bytes(rank_fqn(kRandomState, rank_), kRandomStateBytes, step);
  data_loader_ = object_bytes(std::string(kDataLoader), data_loader_bytes(step), step);
}

Status SyntheticState::put_on_device() {
  for (auto& tensor : tensors_) {
    if (tensor->on_device == nullptr) continue;
    SHOAL_RETURN_IF_ERROR(device_memory_->to_device(tensor->on_device, tensor->data));
  }
  return ok_status();
}

Status SyntheticState::take_from_device() {
  for (auto& tensor : tensors_) {
    if (tensor->on_device == nullptr) continue;
    SHOAL_RETURN_IF_ERROR(device_memory_->to_host(tensor->data, tensor->on_device));
  }
  return ok_status();
}

void SyntheticState::clear() {
  for (auto& tensor : tensors_) std::fill(tensor->data.begin(), tensor->data.end(), std::byte{0xFF});
  random_state_.clear();
  data_loader_.clear();
}

SyntheticState::Check SyntheticState::check(uint64_t step, uint32_t saved_world_size) const {
  Check check;
  for (const auto& tensor : tensors_) {
    uint64_t seed = seed_of(tensor->fqn, step), bytes = element_bytes(tensor->dtype);
    auto right = bytes == 2   ? count_right<uint16_t>
                 : bytes == 4 ? count_right<uint32_t>
                              : count_right<uint64_t>;
    for_each_row(tensor->shape, tensor->shards, [&](uint64_t global, uint64_t local, uint64_t count) {
      if (check.first_difference) return;
      uint64_t same = right(tensor->data.data() + local * bytes, seed, global, count);
      check.elements += same;
      if (same < count) check.first_difference = tensor->fqn + ": element " + std::to_string(global + same);
    });
    if (check.first_difference) return check;
  }
  std::string random_fqn = rank_fqn(kRandomState, rank_);
  check_object(random_fqn, random_state_,
               rank_ < saved_world_size ? object_bytes(random_fqn, kRandomStateBytes, step) : "", &check);
  check_object(std::string(kDataLoader), data_loader_,
               object_bytes(std::string(kDataLoader), data_loader_bytes(step), step), &check);
  return check;
}

bool SyntheticState::may_lack(const std::string& fqn, uint32_t saved_world_size) const {
  return rank_ >= saved_world_size && fqn == rank_fqn(kRandomState, rank_);
}

void SyntheticState::copy_tensors(MutableByteView to, uint64_t bytes) const {
  uint64_t done = 0;
  for (const auto& tensor : tensors_) {
    uint64_t part = std::min<uint64_t>(tensor->data.size(), bytes - done);
    if (part > 0) std::memcpy(to.data() + done, tensor->data.data(), part);
    done += part;
  }
}

}  // namespace shoal::example
