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

// Names one attempt at saving one step. Keys are ordered by generation, attempt (AttemptCount) and step: that
// is the order in which attempts were started, and the order that defines the latest checkpoint.
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

// Counts the attempts of one generation; every rank counts for itself. A save whose step is not greater than
// the step before it (a repeated step, or a rollback) starts the next attempt number. Later saves with
// ascending steps keep that number.
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

// Keys and values that a trainer attaches to a save. They are stored with the checkpoint, and `shoal ls` and
// `shoal show` print them; Shoal does not interpret them. They must be the same on all ranks of a save.
using UserMetadata = std::map<std::string, std::string>;
using UserMetadataPtr = std::shared_ptr<const UserMetadata>;  // null: none
inline constexpr size_t kMaxUserKeys = 64;
inline constexpr size_t kMaxUserKeyBytes = 256;
inline constexpr size_t kMaxUserMetadataBytes = size_t{16} << 10;  // keys and values together

// A key is 1 to kMaxUserKeyBytes bytes of UTF-8 without control characters. A value is UTF-8 that may contain
// line breaks and tabs. Code::invalid_argument names the key.
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
  // Of name, size and header digest of each file. Headers contain the digests of all blocks, so that
  // checkpoints with equal digests have the same bytes in the same files. Zero: not known.
  Hash128 contents_digest = {};
};

// The values of a world, ascending by fqn, each once. A per-rank object is listed once for every rank that
// has it. A WorldValues refers to the world, which must outlive it.
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
  std::deque<std::string> names_;  // names that are in no layout, such as "x@rank7"
};
// The same list as copies, which do not refer to the world.
std::vector<TensorMetadata> list_values(const World& world);

}  // namespace shoal
