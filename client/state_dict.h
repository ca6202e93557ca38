// An entry of a StateDict, and the structure of a StateDict on one rank: a layout, and the place of each
// local box in the caller's memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/state_dict.h"

namespace shoal {

struct StateDict::Entry {
  enum class Form { mesh, tiles, boxes, value, object, rank_object };
  Form form = Form::mesh;
  std::string fqn;
  DType dtype = DType::u8;
  Dims shape;
  std::optional<Mesh> mesh;  // of form mesh; or the group
  std::vector<Placement> placements;
  std::optional<TileSharding> tiles;
  std::vector<DeviceData> shards;  // of form tiles, ascending by device
  std::vector<BoxData> boxes;
  bool replicated = false;
  MemoryRef data;               // of forms mesh and value
  std::shared_ptr<Bytes> kept;  // of form value: the memory of `data`, if the state owns it
  BytesRef object;              // of forms object and rank_object
  // If a planner supplies the memory: the place of each local box. It replaces the data of the form.
  struct Place {
    std::byte* data = nullptr;  // of the buffer
    Box whole;                  // of the buffer
    Box box;                    // within `whole`
  };
  std::vector<Place> places;
  bool resolved_later = false;  // the data are set when the plan of this rank is known
  bool is_null = false;         // replaces a nullptr; has no name

  // Whether some of its memory is const.
  bool is_const() const;
  // Whether some of its memory lies on a device.
  bool is_on_device() const;
};

}  // namespace shoal

namespace shoal::client {

// Code::invalid_argument names the value if its memory is const, so that a load must not fill it.
Status check_fillable(const StateDict::Entry& entry);

// Code::invalid_argument names a tensor that lies on a device, which planners and their storages cannot read.
Status check_on_host(const StateDict& state);

using StateEntries = std::vector<std::shared_ptr<const StateDict::Entry>>;

// Whether both have the same layout, whatever the place of their data. Comparing equal pointers is fast.
bool same_structure(const StateEntries& a, const StateEntries& b);

// A StateDict's structure on one rank.
class BoundState {
 public:
  // Code::invalid_argument names the fqn: LayoutBuilder rejects it, its dtype is smaller than a byte, the
  // rank is not in its mesh, or the memory for its bytes is missing.
  static Result<BoundState> bind(const StateDict& state, Rank rank);

  const LayoutPtr& layout() const { return layout_; }
  // The name of an entry on this rank: its fqn, or "x@rank7" for a per-rank value.
  std::string fqn_of(uint32_t layout_entry) const {
    return value_fqn(layout_->entries()[layout_entry], rank_);
  }
  const StateEntries& entries() const { return entries_; }
  struct HeldShards {
    LocalShards shards;  // without a place in the local tensor if the box is the whole local tensor
    // For tiles, by local box: the devices that hold it, as positions in the entry's shards.
    std::vector<std::vector<uint32_t>> copies;
  };
  // One for each entry of the layout: its position in the StateDict, and what this rank holds.
  struct Value {
    uint32_t position = 0;
    uint64_t element_bytes = 1;
    // Never nullptr. Values of the same shape and sharding share it, because a model has many of them.
    std::shared_ptr<const HeldShards> held;
    const LocalShards& shards() const { return held->shards; }
  };
  const std::vector<Value>& values() const { return values_; }
  // Takes the data pointers of `state`, which must have the same structure. Code::invalid_argument: the
  // memory for some bytes is missing; then it takes none.
  Status rebind(const StateDict& state);

  const StateDict::Entry& entry_of(uint32_t layout_entry) const {
    return *entries_[values_[layout_entry].position];
  }
  // The buffer that contains a local box, and the place of the box in it. Its bytes are row-major.
  struct Home {
    std::byte* data = nullptr;
    Box whole;  // of the buffer
    Box box;    // within `whole`
  };
  // The first copy is the one that is saved; a load fills all.
  Home home_of(uint32_t layout_entry, uint32_t local_box, size_t copy = 0) const;
  size_t copies_of(uint32_t layout_entry, uint32_t local_box) const;
  // Whether a tensor of it lies on a device.
  bool uses_devices() const { return uses_devices_; }
  // The memory of home_of, as the caller gave it.
  MemoryRef memory_of(uint32_t layout_entry, uint32_t local_box, size_t copy = 0) const;
  // The data of home_of. A caller that writes there must have called check_fillable.
  std::byte* data_of(uint32_t layout_entry, uint32_t local_box, size_t copy = 0) const;

 private:
  Rank rank_ = 0;
  StateEntries entries_;
  LayoutPtr layout_;
  std::vector<Value> values_;
  bool uses_devices_ = false;
};

}  // namespace shoal::client
