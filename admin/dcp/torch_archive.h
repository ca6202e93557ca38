// What torch.save has written: a tensor, or a plain value, in the archive of one item of a DCP folder.
//
// Format: torch/serialization.py and torch/_utils.py of PyTorch 2.13. The archive has the record `data.pkl`,
// and a record `data/KEY` for each storage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "admin/dcp/pickle.h"
#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/status.h"

namespace shoal::admin {

inline constexpr uint64_t kMaxTensorPickleBytes = uint64_t{1} << 20;  // that of a tensor has some 200 bytes
inline constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 30;        // an object is held in memory

// The dtypes of torch that a checkpoint can hold, "float8_e4m3fn" as F8_E4M3. nullopt: it has no such type.
std::optional<DType> dtype_from_torch(std::string_view name);
bool is_torch_dtype(std::string_view module, std::string_view name);  // also one that no checkpoint can hold
// The sizes of a torch.Size, a tuple or a list of integers; nullopt if it is none.
std::optional<Dims> dims_of(const Pickle& pickle, PickleId id);

// A tensor in an archive, which must outlive it. Offset and strides count elements.
struct ArchivedTensor {
  DType dtype = DType::u8;
  Dims shape, strides;
  uint64_t offset = 0;
  ByteView storage;  // contains all elements
  // The elements if they lie there in row-major order.
  std::optional<ByteView> in_order() const;
  // Copies the elements in row-major order. `out` has room for exactly these.
  void gather(MutableByteView out) const;
  uint64_t bytes() const;
};

// `where` is for errors. Code::corrupt: it is damaged, or no tensor. Code::invalid_argument: it names what
// may run code, or is a tensor that the program cannot read, such as a conjugated view.
Result<ArchivedTensor> read_tensor_archive(ByteView archive, const std::string& where);

// The bytes of an object of Shoal with the value of an archive (python/shoal/_values.py): JSON if the value
// is plain, which includes lists, tuples and dicts. Otherwise the archive itself, if torch.load reads it with
// weights_only=True. Code::invalid_argument: it names anything else. With `allow_pickle`, any archive is
// kept unread.
Result<std::string> read_object_archive(ByteView archive, const std::string& where, bool allow_pickle);

}  // namespace shoal::admin
