// StateItems: a state as the items of one rank, and the bytes of each; what the default planners share.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "client/state_dict_internal.h"
#include "shoal/dcp/key_rules.h"
#include "shoal/dcp/types.h"

namespace shoal::dcp::internal {

class StateItems {
 public:
  // Costs little where the structure is that of the last time.
  Status set_up(const StateDict& state, Rank rank);
  // One item for each box that the rank holds; one without elements where it holds none. Kept by the names
  // that the rules give.
  std::vector<WriteItem> write_items(const KeyRules& keys);
  // Code::not_found: no item of write_items() has this index.
  Result<Data> resolve(const MetadataIndex& index) const;
  // Where the element at `offsets` of the item's chunk lies, in each of the copies that this rank holds, to
  // be filled; and the object to be replaced. Code::invalid_argument: its memory is const.
  Result<std::vector<Tensor>> homes(const MetadataIndex& index, const Dims& offsets) const;
  Result<BytesRef> object(const MetadataIndex& index) const;

 private:
  struct Place {
    uint32_t entry = 0, local_box = 0;
  };
  Result<Place> find(const MetadataIndex& index) const;
  void add_tensor(const std::string& name, uint32_t entry, std::vector<WriteItem>& out);
  void add_object(const std::string& name, uint32_t entry, std::vector<WriteItem>& out);

  std::optional<client::BoundState> bound_;
  Rank rank_ = 0;
  std::map<MetadataIndex, Place> places_;
};

// The sharding that a layout's entry has; of explicit boxes none. `given` is what the entry was made of.
ValueShardingPtr sharding_of(const Layout& layout, const LayoutEntry& entry, const StateDict::Entry& given);

// The elements of `box` of a row-major buffer of shape `whole`, row-major.
Bytes gather(const std::byte* buffer, const Box& whole, const Box& box, uint64_t element_bytes);

}  // namespace shoal::dcp::internal
