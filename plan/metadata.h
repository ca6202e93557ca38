// Metadata: what a checkpoint holds, as `wait_committed`, `load` and `latest` return it.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/page_buffer.h"
#include "plan/roster.h"

namespace shoal {

// One attempt at saving one step, in one incarnation of the job. Ordered as `latest` orders: generation,
// step, attempt.
struct AttemptKey {
  uint32_t generation = 0;
  uint64_t step = 0;
  uint32_t attempt = 0;
  friend auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};
std::string to_string(const AttemptKey& key);  // "step 1000 (g3a1)"

struct TensorMetadata {
  std::string fqn;
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Dims shape;
  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
};

struct Metadata {
  AttemptKey key;
  uint32_t world_size = 0;
  uint64_t payload_bytes = 0;
  uint32_t files = 0;
  std::vector<TensorMetadata> state_dict_metadata;  // ascending by fqn
};

// The values of a world, ascending by fqn, each once; what each rank has of its own under every rank's name.
// They lie in the world, which outlives this.
class WorldValues {
 public:
  explicit WorldValues(const World& world);
  WorldValues(const WorldValues&) = delete;
  WorldValues& operator=(const WorldValues&) = delete;
  struct Value {
    const std::string* fqn = nullptr;
    const LayoutEntry* entry = nullptr;
  };
  size_t size() const { return values_.size(); }
  const Value& operator[](size_t at) const { return values_[at]; }

 private:
  PagedVector<Value> values_;
  std::deque<std::string> names_;  // that stand in no layout
};
// The same by themselves.
std::vector<TensorMetadata> list_values(const World& world);

}  // namespace shoal
