#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>

#include "client/state_dict.h"

namespace shoal {

namespace {

using Entry = StateDict::Entry;

Status bad(const std::string& fqn, std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("'{}': {}", fqn, what));
}

bool same_entry(const Entry& a, const Entry& b) {
  auto same_box = [](const StateDict::BoxData& x, const StateDict::BoxData& y) { return x.box == y.box; };
  auto same_device = [](const StateDict::DeviceData& x, const StateDict::DeviceData& y) {
    return x.device == y.device;
  };
  auto same_place = [](const Entry::Place& x, const Entry::Place& y) {
    return x.whole == y.whole && x.box == y.box;
  };
  return a.form == b.form && a.is_null == b.is_null && a.resolved_later == b.resolved_later &&
         a.fqn == b.fqn && a.dtype == b.dtype && a.shape == b.shape && a.replicated == b.replicated &&
         a.placements == b.placements && a.mesh == b.mesh && a.tiles == b.tiles &&
         std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(), same_device) &&
         std::equal(a.boxes.begin(), a.boxes.end(), b.boxes.begin(), b.boxes.end(), same_box) &&
         std::equal(a.places.begin(), a.places.end(), b.places.begin(), b.places.end(), same_place);
}

bool device_less(const StateDict::DeviceData& shard, Device device) {
  return shard.device < device;
}

// The name of the entry in this rank's layout.
std::string fqn_on(const Entry& entry, Rank rank) {
  return entry.form == Entry::Form::rank_object ? rank_fqn(entry.fqn, rank) : entry.fqn;
}

// Checks that there is one local shard for each device of this rank that the sharding assigns.
Status check_devices(const Entry& entry, Rank rank) {
  const TileSharding& tiles = *entry.tiles;
  if (Status status = tiles.validate_for(entry.shape); !status.ok()) {
    return status.with_context(fmt::format("'{}'", entry.fqn));
  }
  for (size_t i = 0; i < entry.shards.size(); ++i) {
    const Device device = entry.shards[i].device;
    if (i > 0 && device == entry.shards[i - 1].device) {
      return bad(entry.fqn, fmt::format("device {} has two local shards", device));
    }
    if (tiles.device_map().rank_of(device) != rank) {
      return bad(entry.fqn, fmt::format("device {} does not belong to rank {}", device, rank));
    }
    if (!tiles.box_of(entry.shape, device)) {
      return bad(entry.fqn, fmt::format("device {} is not in the tile assignment", device));
    }
  }
  for (Device device : tiles.device_map().devices_of(rank)) {
    auto given = std::lower_bound(entry.shards.begin(), entry.shards.end(), device, device_less);
    if (given != entry.shards.end() && given->device == device) continue;
    if (!tiles.box_of(entry.shape, device)) continue;
    return bad(entry.fqn, fmt::format("the local shard of device {} is missing", device));
  }
  return ok_status();
}

Status check_entry(const Entry& entry, Rank rank) {
  if (entry.is_null) return Status(Code::invalid_argument, "StateDict::add was given a nullptr");
  SHOAL_RETURN_IF_ERROR(validate_fqn(entry.fqn));
  SHOAL_RETURN_IF_ERROR(validate_fqn(fqn_on(entry, rank)));
  if (entry.form == Entry::Form::object || entry.form == Entry::Form::rank_object) {
    if (!entry.object) return bad(entry.fqn, "the object has no container of bytes");
  } else if (Result<uint64_t> bytes = dtype_bytes(entry.dtype); !bytes.ok()) {
    return bytes.status().with_context(fmt::format("'{}'", entry.fqn));
  }
  if (entry.mesh) {
    SHOAL_RETURN_IF_ERROR(entry.mesh->status().with_context(fmt::format("'{}'", entry.fqn)));
  }
  if (entry.mesh && !entry.mesh->contains(rank)) {
    return bad(entry.fqn, fmt::format("rank {} is not in the mesh", rank));
  }
  return entry.tiles ? check_devices(entry, rank) : ok_status();
}

void add_to(LayoutBuilder& builder, const Entry& entry, Rank rank) {
  switch (entry.form) {
    case Entry::Form::mesh:
      return builder.add_tensor(entry.fqn, entry.dtype, entry.shape, *entry.mesh, entry.placements);
    case Entry::Form::tiles:
      return builder.add_tensor(entry.fqn, entry.dtype, entry.shape, *entry.tiles);
    case Entry::Form::boxes: {
      RankBoxes held{rank, {}};
      for (const StateDict::BoxData& box : entry.boxes) held.boxes.push_back(box.box);
      return builder.add_tensor_boxes(entry.fqn, entry.dtype, entry.shape, {std::move(held)},
                                      entry.replicated);
    }
    case Entry::Form::value:
      return builder.add_value(entry.fqn, entry.dtype, entry.shape, entry.mesh, entry.replicated);
    case Entry::Form::object:
      return builder.add_object(entry.fqn, entry.mesh, entry.replicated);
    case Entry::Form::rank_object:
      return builder.add_rank_objects(entry.fqn);
  }
}

// By local box, the indices of the shards that hold it.
std::vector<std::vector<uint32_t>> find_copies(const Entry& entry, const std::vector<Box>& boxes, Rank rank) {
  std::vector<std::vector<uint32_t>> copies(boxes.size());
  for (TileSharding::HeldBox& held : entry.tiles->boxes_of(entry.shape, rank)) {
    auto box = std::lower_bound(boxes.begin(), boxes.end(), held.box);
    SHOAL_CHECK(box != boxes.end() && *box == held.box);
    for (Device device : held.devices) {
      auto shard = std::lower_bound(entry.shards.begin(), entry.shards.end(), device, device_less);
      copies[static_cast<size_t>(box - boxes.begin())].push_back(
          static_cast<uint32_t>(shard - entry.shards.begin()));
    }
  }
  return copies;
}

// A value needs memory if and only if the rank holds an element of it.
Status check_memory(const Entry& entry, const client::BoundState::Value& value) {
  if (entry.resolved_later) return ok_status();
  const LocalShards& shards = value.shards();
  if (!entry.places.empty()) {
    for (size_t i = 0; i < shards.boxes.size(); ++i) {
      if (shards.boxes[i].empty() || entry.places[i].data) continue;
      return bad(entry.fqn, "the memory for what this rank holds is missing");
    }
    return ok_status();
  }
  for (const std::vector<uint32_t>& copies : value.held->copies) {
    for (uint32_t i : copies) {
      if (entry.shards[i].data) continue;
      return bad(entry.fqn, fmt::format("the memory for the local shard of device {} is missing",
                                        entry.shards[i].device));
    }
  }
  if (entry.form == Entry::Form::tiles) return ok_status();
  if (entry.form == Entry::Form::object || entry.form == Entry::Form::rank_object) {
    return entry.object ? ok_status() : bad(entry.fqn, "the object has no container of bytes");
  }
  for (size_t i = 0; i < shards.boxes.size(); ++i) {
    if (shards.boxes[i].empty()) continue;
    const MemoryRef data = entry.form == Entry::Form::boxes ? entry.boxes[i].data : entry.data;
    if (!data) return bad(entry.fqn, "the memory for what this rank holds is missing");
  }
  return ok_status();
}

}  // namespace

void StateDict::add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                           std::vector<Placement> placements, MemoryRef data) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::mesh;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->mesh = mesh;
  entry->placements = std::move(placements);
  entry->data = data;
  entries_.push_back(std::move(entry));
}

void StateDict::add_tensor(std::string fqn, DType dtype, Dims shape, const TileSharding& sharding,
                           std::vector<DeviceData> shards) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::tiles;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->tiles = sharding;
  entry->shards = std::move(shards);
  std::sort(entry->shards.begin(), entry->shards.end(),
            [](const DeviceData& a, const DeviceData& b) { return a.device < b.device; });
  entries_.push_back(std::move(entry));
}

void StateDict::add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<BoxData> boxes,
                                 bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::boxes;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->boxes = std::move(boxes);
  entry->replicated = replicated;
  entries_.push_back(std::move(entry));
}

void StateDict::add_value(std::string fqn, DType dtype, Dims shape, MemoryRef data, std::optional<Mesh> group,
                          bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::value;
  entry->fqn = std::move(fqn);
  entry->dtype = dtype;
  entry->shape = std::move(shape);
  entry->mesh = std::move(group);
  entry->replicated = replicated;
  entry->data = data;
  entries_.push_back(std::move(entry));
}

void StateDict::add_object(std::string fqn, BytesRef bytes, std::optional<Mesh> group, bool replicated) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::object;
  entry->fqn = std::move(fqn);
  entry->mesh = std::move(group);
  entry->replicated = replicated;
  entry->object = bytes;
  entries_.push_back(std::move(entry));
}

void StateDict::add_rank_object(std::string fqn, BytesRef bytes) {
  auto entry = std::make_shared<Entry>();
  entry->form = Entry::Form::rank_object;
  entry->fqn = std::move(fqn);
  entry->object = bytes;
  entries_.push_back(std::move(entry));
}

void StateDict::add(std::shared_ptr<const Entry> entry) {
  if (entry == nullptr) {
    auto none = std::make_shared<Entry>();
    none->is_null = true;
    entry = std::move(none);
  }
  entries_.push_back(std::move(entry));
}

bool StateDict::Entry::is_const() const {
  const auto given_const = [](const auto& part) { return part.data.is_const(); };
  return data.is_const() || object.is_const() || std::ranges::any_of(shards, given_const) ||
         std::ranges::any_of(boxes, given_const);
}

bool StateDict::Entry::is_on_device() const {
  const auto given_there = [](const auto& part) { return part.data.is_on_device(); };
  return data.is_on_device() || std::ranges::any_of(shards, given_there) ||
         std::ranges::any_of(boxes, given_there);
}

Status client::check_on_host(const StateDict& state) {
  for (const auto& entry : state.entries()) {
    if (entry->is_on_device()) {
      return bad(entry->fqn, "it lies on a device: a planner takes tensors in host memory only");
    }
  }
  return ok_status();
}

Status client::check_fillable(const StateDict::Entry& entry) {
  if (!entry.is_const()) return ok_status();
  return bad(entry.fqn,
             "its memory is const, so it can be saved but not loaded: add it with a pointer that is not "
             "const, or give its key the policy skip");
}

bool client::same_structure(const client::StateEntries& a, const client::StateEntries& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !same_entry(*a[i], *b[i])) return false;
  }
  return true;
}

namespace {

// The positions of values in a state, by their names on one rank.
class Positions {
 public:
  Positions(Positions&&) = default;  // no copy constructor: a copy would refer to names in this object
  // Refers to the names in `entries`. Code::invalid_argument: a name is there twice.
  static Result<Positions> of(const client::StateEntries& entries, Rank rank) {
    Positions out;
    out.by_name_.reserve(entries.size());
    for (uint32_t i = 0; i < entries.size(); ++i) {
      std::string name = fqn_on(*entries[i], rank);
      const bool is_its_fqn = name == entries[i]->fqn;
      out.by_name_.emplace_back(is_its_fqn ? entries[i]->fqn : out.made_.emplace_back(std::move(name)), i);
    }
    std::sort(out.by_name_.begin(), out.by_name_.end());
    const auto twice = std::ranges::adjacent_find(
        out.by_name_, [](const Named& a, const Named& b) { return a.first == b.first; });
    if (twice == out.by_name_.end()) return out;
    return Status(Code::invalid_argument, fmt::format("'{}' is given twice", twice->first));
  }
  uint32_t at(std::string_view name) const {
    const auto found = std::ranges::lower_bound(by_name_, name, {}, &Named::first);
    SHOAL_CHECK(found != by_name_.end() && found->first == name);
    return found->second;
  }

 private:
  using Named = std::pair<std::string_view, uint32_t>;
  Positions() = default;
  std::vector<Named> by_name_;
  std::deque<std::string> made_;  // names that are not an entry's fqn
};

// Shares equal HeldShards objects. Keeps the first kMostKnown different ones for comparison.
class SharedHoldings {
 public:
  std::shared_ptr<const client::BoundState::HeldShards> of(client::BoundState::HeldShards held) {
    auto fresh = std::make_shared<const client::BoundState::HeldShards>(std::move(held));
    if (const auto found = known_.find(fresh); found != known_.end()) return *found;
    if (known_.size() < kMostKnown) known_.insert(fresh);
    return fresh;
  }

 private:
  static constexpr size_t kMostKnown = 4096;
  struct Less {
    bool operator()(const std::shared_ptr<const client::BoundState::HeldShards>& a,
                    const std::shared_ptr<const client::BoundState::HeldShards>& b) const {
      return std::tie(a->shards.boxes, a->shards.local, a->shards.local_shape, a->copies) <
             std::tie(b->shards.boxes, b->shards.local, b->shards.local_shape, b->copies);
    }
  };
  std::set<std::shared_ptr<const client::BoundState::HeldShards>, Less> known_;
};

// Most often there is one box, which is the whole local tensor. Then `local` stays empty, and home_of handles
// that case.
void drop_plain_place(LocalShards& shards) {
  if (shards.local.size() != 1 || shards.local.front() != whole(shards.boxes.front().sizes)) return;
  if (shards.local_shape != shards.boxes.front().sizes) return;
  shards.local = std::vector<Box>();
  shards.local_shape = Dims();
}

}  // namespace

Result<client::BoundState> client::BoundState::bind(const StateDict& state, Rank rank) {
  client::BoundState out;
  out.entries_ = state.entries();
  LayoutBuilder builder;
  out.rank_ = rank;
  for (const auto& entry : out.entries_) {
    SHOAL_RETURN_IF_ERROR(check_entry(*entry, rank));
    add_to(builder, *entry, rank);
  }
  SHOAL_ASSIGN_OR_RETURN(const Positions positions, Positions::of(out.entries_, rank));
  SHOAL_ASSIGN_OR_RETURN(out.layout_, std::move(builder).build());
  out.values_.reserve(out.layout_->entries().size());
  SharedHoldings shared;
  for (const LayoutEntry& entry : out.layout_->entries()) {
    Value value;
    value.position = positions.at(value_fqn(entry, rank));
    SHOAL_ASSIGN_OR_RETURN(value.element_bytes, dtype_bytes(entry.dtype));
    HeldShards held{out.layout_->shards_of(entry, rank), {}};
    const Entry& given = *out.entries_[value.position];
    if (given.form == Entry::Form::value && held.shards.boxes.empty() && !whole(entry.shape).empty()) {
      return bad(entry.fqn, fmt::format("rank {} is not in the group of its siblings", rank));
    }
    drop_plain_place(held.shards);
    if (given.tiles) held.copies = find_copies(given, held.shards.boxes, rank);
    value.held = shared.of(std::move(held));
    SHOAL_RETURN_IF_ERROR(check_memory(given, value));
    out.uses_devices_ = out.uses_devices_ || given.is_on_device();
    out.values_.push_back(std::move(value));
  }
  return out;
}

Status client::BoundState::rebind(const StateDict& state) {
  bool uses_devices = false;
  for (const Value& value : values_) {
    const Entry& entry = *state.entries()[value.position];
    SHOAL_RETURN_IF_ERROR(check_memory(entry, value));
    uses_devices = uses_devices || entry.is_on_device();
  }
  uses_devices_ = uses_devices;
  entries_ = state.entries();
  return ok_status();
}

namespace {

// Of an entry that no planner has placed.
MemoryRef memory_in(const Entry& entry, const client::BoundState::Value& value, uint32_t local_box,
                    size_t copy) {
  if (entry.form == Entry::Form::boxes) return entry.boxes[local_box].data;
  if (entry.form == Entry::Form::tiles) return entry.shards[value.held->copies[local_box][copy]].data;
  return entry.data;
}

}  // namespace

size_t client::BoundState::copies_of(uint32_t layout_entry, uint32_t local_box) const {
  const Value& value = values_[layout_entry];
  return value.held->copies.empty() ? 1 : value.held->copies[local_box].size();
}

std::byte* client::BoundState::data_of(uint32_t layout_entry, uint32_t local_box, size_t copy) const {
  const Value& value = values_[layout_entry];
  const Entry& entry = *entries_[value.position];
  if (!entry.places.empty()) return entry.places[local_box].data;
  const MemoryRef data = memory_in(entry, value, local_box, copy);
  return static_cast<std::byte*>(const_cast<void*>(data.data()));
}

MemoryRef client::BoundState::memory_of(uint32_t layout_entry, uint32_t local_box, size_t copy) const {
  const Value& value = values_[layout_entry];
  const Entry& entry = *entries_[value.position];
  if (!entry.places.empty()) return MemoryRef(entry.places[local_box].data);
  return memory_in(entry, value, local_box, copy);
}

client::BoundState::Home client::BoundState::home_of(uint32_t layout_entry, uint32_t local_box,
                                                     size_t copy) const {
  const Value& value = values_[layout_entry];
  const Entry& entry = *entries_[value.position];
  if (!entry.places.empty()) {
    const Entry::Place& place = entry.places[local_box];
    return {place.data, place.whole, place.box};
  }
  std::byte* data = data_of(layout_entry, local_box, copy);
  const LocalShards& shards = value.shards();
  if (shards.local.empty()) {  // explicit boxes, tiles, and a box that is its whole local tensor
    const Box itself = whole(shards.boxes[local_box].sizes);
    return {data, itself, itself};
  }
  return {data, whole(shards.local_shape), shards.local[local_box]};
}

}  // namespace shoal
