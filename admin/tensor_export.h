// Writes the tensors of a checkpoint as plain safetensors files, in the layout that Hugging Face's libraries
// read: whole tensors under their names, in files of a bounded size, with an index.
//
// Formats: safetensors (https://github.com/huggingface/safetensors, README "Format"), and the index of
// sharded models (transformers, "Big models": model.safetensors.index.json).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest/digest.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/storage.h"

namespace shoal::admin {

// Elements in memory at a time. With --dtype there are as many again in the other type.
inline constexpr uint64_t kExportWindowBytes = uint64_t{64} << 20;
static_assert(kExportWindowBytes >= base::kDigestBlockBytes, "a window holds a digest block");
inline constexpr uint64_t kExportShardBytes = uint64_t{5} << 30;  // the default of --shard-size
inline constexpr uint64_t kMaxExportHeaderBytes = 100'000'000;    // the limit of safetensors
inline constexpr size_t kMaxExportFiles = 99'999;                 // names have five digits
inline constexpr std::string_view kExportIndexName = "model.safetensors.index.json";

struct ExportOptions {
  bool is_sharded = true;                        // Hugging Face's layout; false: one file, model.safetensors
  uint64_t shard_bytes_max = kExportShardBytes;  // of tensors in a file; a larger tensor has its own file
  // OLD, NEW: the first pair whose OLD is the beginning of a name replaces it.
  std::vector<std::pair<std::string, std::string>> renames;
  std::vector<std::string> only;  // subtrees: "model" is the value model, and all that begin with "model."
  std::optional<DType> dtype;     // for all tensors that gpu::converts_between can convert to it
};

struct ExportedTensor {
  std::string fqn;   // in the checkpoint
  std::string name;  // in the file
  DType stored = DType::u8, written = DType::u8;
  Dims shape;
  uint64_t elements = 0;
  uint64_t bytes = 0;  // as written
};
struct ExportedFile {
  std::string name;
  std::vector<ExportedTensor> tensors;  // in file order: larger element types first, then by name
  std::string header;                   // with its length; a multiple of 8 bytes
  uint64_t bytes = 0;                   // of the whole file
};
struct ExportPlan {
  std::vector<ExportedFile> files;
  std::string index;  // empty: there is none
  uint64_t tensors = 0, tensor_bytes = 0, objects_left_out = 0;
};

// Code::not_found: no tensor is in a subtree of `only`, or there is no tensor. Code::invalid_argument names
// the tensor or the rename: a rename that matches nothing, two tensors of one name, a name that safetensors
// cannot have, a type of less than a byte. Code::too_large: a header beyond the limit, or too many files.
Result<ExportPlan> plan_export(const std::vector<TensorMetadata>& values, const ExportOptions& options);

// Reads verified elements of a checkpoint's tensors.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // Fills `out` with the elements [begin, end) of a tensor, in row-major order. An error names file and
  // tensor.
  virtual Status read(const ExportedTensor& tensor, uint64_t begin, uint64_t end, MutableByteView out) = 0;
};

// Writes the files of a plan into `folder`, each under a temporary name until it is complete and durable. The
// index is written last. Code::already_exists names a file of an earlier export, unless `force` is set: then
// the files of earlier exports are removed, the index first, and partial files that a killed one has left.
// After an error none of the new files is left. `bytes_done`, of tensors as written, grows meanwhile; any
// thread may read it.
Status write_export(const ExportPlan& plan, TensorReader& reader, storage::Storage& folder, bool force,
                    std::atomic<uint64_t>* bytes_done);

}  // namespace shoal::admin
