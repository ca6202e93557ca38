// What a StateDict holds of a value, and what it amounts to on one rank: a layout, and where each local box
// of it lies in the caller's memory.
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
  std::shared_ptr<Bytes> kept;  // of form value: where `data` lies, if the state keeps it
  BytesRef object;              // of forms object and rank_object
  // Not empty: by local box, where it lies, whatever the form says; as a planner has it.
  struct Place {
    std::byte* data = nullptr;  // of the buffer
    Box whole;                  // of the buffer
    Box box;                    // within `whole`
  };
  std::vector<Place> places;
  bool resolved_later = false;  // data are given, or not, when this rank's share is known
  bool is_null = false;         // in place of a nullptr; without a name

  // Whether some of its memory may be read only.
  bool is_const() const;
  // Whether some of its memory lies on a device.
  bool is_on_device() const;
};

}  // namespace shoal

namespace shoal::client {

// Code::invalid_argument names what a load must not fill, for its memory is const.
Status check_fillable(const StateDict::Entry& entry);

// Code::invalid_argument names a tensor that lies on a device, which planners and their storages cannot read.
Status check_on_host(const StateDict& state);

using StateEntries = std::vector<std::shared_ptr<const StateDict::Entry>>;

// Whether both mean the same layout, wherever their data lie. Equal pointers cost next to nothing.
bool same_structure(const StateEntries& a, const StateEntries& b);

// A StateDict's structure on one rank.
class BoundState {
 public:
  // Code::invalid_argument names the fqn: what LayoutBuilder refuses, a sub-byte type, a rank that a mesh
  // does not hold, or no memory where bytes belong.
  static Result<BoundState> bind(const StateDict& state, Rank rank);

  const LayoutPtr& layout() const { return layout_; }
  // What this rank calls an entry of the layout: its fqn, "x@rank7" of what each rank has of its own.
  std::string fqn_of(uint32_t layout_entry) const {
    return value_fqn(layout_->entries()[layout_entry], rank_);
  }
  const StateEntries& entries() const { return entries_; }
  struct Held {
    LocalShards shards;  // without the place in the local tensor where that is the box itself
    // Of tiles: by local box, the positions in the entry's shards of the devices that hold it.
    std::vector<std::vector<uint32_t>> copies;
  };
  // By the layout's entries: the position in the StateDict, and what this rank holds.
  struct Value {
    uint32_t position = 0;
    uint64_t element_bytes = 1;
    // Never nullptr. A model has many values of one shape and sharding: they share it.
    std::shared_ptr<const Held> held;
    const LocalShards& shards() const { return held->shards; }
  };
  const std::vector<Value>& values() const { return values_; }
  // Takes data pointers from `state`, whose structure is the same. Code::invalid_argument: no memory where
  // bytes belong; nothing is taken.
  Status rebind(const StateDict& state);

  const StateDict::Entry& entry_of(uint32_t layout_entry) const {
    return *entries_[values_[layout_entry].position];
  }
  // Row-major bytes that a local box lies in, and its box there.
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
  // Of its home: as the caller gave it.
  MemoryRef memory_of(uint32_t layout_entry, uint32_t local_box, size_t copy = 0) const;
  // Of its home. Who writes there has asked check_fillable.
  std::byte* data_of(uint32_t layout_entry, uint32_t local_box, size_t copy = 0) const;

 private:
  Rank rank_ = 0;
  StateEntries entries_;
  LayoutPtr layout_;
  std::vector<Value> values_;
  bool uses_devices_ = false;
};

}  // namespace shoal::client
