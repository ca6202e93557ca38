// StateItems: the items of one rank's state, and the bytes of each. The default planners share it.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "client/state_dict.h"
#include "shoal/dcp/key_rules.h"
#include "shoal/dcp/types.h"

namespace shoal::dcp::internal {

class StateItems {
 public:
  // Cheap if the structure of the state is that of the call before.
  Status set_up(const StateDict& state, Rank rank);
  // One item for each box that the rank holds of each value that the rules keep. A value of which the rank
  // holds no element gives one item without elements.
  std::vector<WriteItem> write_items(const KeyRules& keys);
  // Code::not_found: no item of write_items() has this index.
  Result<Data> resolve(const MetadataIndex& index) const;
  // homes: the place of the element at `offsets` of the item's chunk, in each copy that this rank holds, for
  // a load. object: the object to replace. Code::invalid_argument: the memory is const.
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

// The sharding of a layout's entry; nullptr for explicit boxes. The entry was made from `given`.
ValueShardingPtr sharding_of(const Layout& layout, const LayoutEntry& entry, const StateDict::Entry& given);

// The row-major elements of `box`, from a row-major buffer that has the elements of `whole`.
Bytes gather(const std::byte* buffer, const Box& whole, const Box& box, uint64_t element_bytes);

}  // namespace shoal::dcp::internal
