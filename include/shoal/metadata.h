// Metadata: what a checkpoint holds, as `wait_committed`, `load` and `latest` return it.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "shoal/page_buffer.h"
#include "shoal/roster.h"

namespace shoal {

// One attempt at saving one step, in one incarnation of the job. In the order in which they were begun,
// which is that of `latest`: generation, attempt (AttemptCount), step.
struct AttemptKey {
  uint32_t generation = 0;
  uint64_t step = 0;
  uint32_t attempt = 0;
  friend bool operator==(const AttemptKey&, const AttemptKey&) = default;
  friend std::strong_ordering operator<=>(const AttemptKey& a, const AttemptKey& b) {
    return std::tie(a.generation, a.attempt, a.step) <=> std::tie(b.generation, b.attempt, b.step);
  }
};
std::string to_string(const AttemptKey& key);  // "step 1000 (g3a1)"

// The attempts of a generation's saves, as every rank counts them for itself: a save whose step is not above
// the one before it (the same again, or after a rollback) begins the next number, which later steps keep.
class AttemptCount {
 public:
  uint32_t next(uint64_t step) {
    if (!before_ || step <= *before_) ++attempt_;
    before_ = step;
    return attempt_;
  }

 private:
  std::optional<uint64_t> before_;
  uint32_t attempt_ = 0;
};

struct TensorMetadata {
  std::string fqn;
  LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
  DType dtype = DType::u8;
  Dims shape;
  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
};

// What a trainer says of a save in its own words: it is stored with the checkpoint, shown by `shoal ls` and
// `shoal show`, and means nothing to Shoal. Alike on all ranks of a save.
using UserMetadata = std::map<std::string, std::string>;
using UserMetadataPtr = std::shared_ptr<const UserMetadata>;  // null: none
inline constexpr size_t kMaxUserKeys = 64;
inline constexpr size_t kMaxUserKeyBytes = 256;
inline constexpr size_t kMaxUserMetadataBytes = size_t{16} << 10;  // keys and values together

// A key is 1 to kMaxUserKeyBytes of UTF-8 without control characters; a value is UTF-8 that may have line
// breaks and tabs. Code::invalid_argument names the key.
Status validate_user_metadata(const UserMetadata& user);
// Code::invalid_argument names both ranks and the first key that differs.
Status check_same_user_metadata(Rank a, const UserMetadata& of_a, Rank b, const UserMetadata& of_b);
inline UserMetadata or_none(const UserMetadataPtr& user) {
  return user ? *user : UserMetadata();
}

struct Metadata {
  AttemptKey key;
  uint32_t world_size = 0;
  uint64_t payload_bytes = 0;
  uint32_t files = 0;
  std::vector<TensorMetadata> state_dict_metadata;  // ascending by fqn
  UserMetadata user;                                // SaveAttributes::metadata
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
