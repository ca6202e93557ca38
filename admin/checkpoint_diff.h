// Compares the values of two checkpoints, whatever their shardings are. Where a tensor is stored in the same
// pieces on both sides, blocks with equal digests count as equal and are not read. All other bytes are read
// and compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/digest.h"
#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/metadata.h"
#include "shoal/status.h"

namespace shoal::admin {

// Elements of each side in memory at a time, where the pieces of the sides differ.
inline constexpr uint64_t kDiffWindowBytes = uint64_t{64} << 20;
// The same where the pieces are equal, and for objects.
inline constexpr uint64_t kDiffBlocksBytes = 8 * base::kDigestBlockBytes;
static_assert(kDiffBlocksBytes <= kDiffWindowBytes);

// Reads the values of one checkpoint. Each call verifies what it reads; an error names file and value.
class CheckpointContents {
 public:
  virtual ~CheckpointContents() = default;
  struct Piece {
    Box box;  // no dimensions for an object
    uint64_t bytes = 0;
    std::vector<uint64_t> digests;  // of its blocks; empty if they are not known
  };
  // The pieces in which a tensor is stored, which tile it, ascending by box; of an object, one piece.
  virtual Result<std::vector<Piece>> pieces(const TensorMetadata& value) = 0;
  // Fills `out` with the elements of these boxes, one box after another, each in row-major order.
  virtual Status read(const TensorMetadata& tensor, const std::vector<Box>& boxes, MutableByteView out) = 0;
  // Fills `out` with bytes of an object. `begin` is the start of a digest block, and `end` the start of one
  // or the end of the object.
  virtual Status read_object(const TensorMetadata& object, uint64_t begin, uint64_t end,
                             MutableByteView out) = 0;
};

struct DiffSide {
  std::vector<TensorMetadata> values;  // ascending by fqn
  Hash128 contents_digest;             // Metadata::contents_digest; zero: not known
  CheckpointContents* contents = nullptr;
};

struct ValueDifference {
  enum class What : uint8_t { only_in_a, only_in_b, kind, dtype, shape, bytes } what = What::bytes;
  std::string fqn;
  TensorMetadata a, b;  // default on the side that lacks the value

  // Of What::bytes. The elements of an object are its bytes. Bytes that only one side has count as different.
  uint64_t elements = 0, different_elements = 0;
  Dims first_index;  // of the first different element, in row-major order
  // Largest absolute difference of two numbers; nullopt: the elements are no numbers, or no pair of different
  // elements has two numbers. It may be infinite.
  std::optional<double> largest_difference;
  uint64_t not_numbers = 0;           // different elements of which at least one is NaN
  uint64_t a_bytes = 0, b_bytes = 0;  // of an object
};
std::string_view difference_name(ValueDifference::What what);  // "only_in_a", ...

struct DiffReport {
  std::vector<ValueDifference> differences;  // ascending by fqn
  uint64_t values = 0;                       // that exist on at least one side
  uint64_t bytes_read = 0;                   // of one side
  uint64_t bytes_known_equal = 0;            // of one side, by digests
  bool same() const { return differences.empty(); }
};

struct DiffOptions {
  std::function<bool()> keeps_going = [] { return true; };  // false ends the comparison: Code::aborted
};

// The bytes of one side that a diff compares or knows to be equal, apart from objects.
uint64_t bytes_to_compare(const DiffSide& a, const DiffSide& b);

// `bytes_done`, of one side, grows meanwhile; any thread may read it. Reads both sides at once, each on one
// thread. Ends at the first value that cannot be read.
Result<DiffReport> compare_checkpoints(const DiffSide& a, const DiffSide& b, const DiffOptions& options,
                                       std::atomic<uint64_t>* bytes_done);

}  // namespace shoal::admin
