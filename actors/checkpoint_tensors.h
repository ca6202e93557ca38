// CheckpointTensors: reads the tensors and objects of a committed checkpoint from its shards, without a node.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/layout.h"
#include "shoal/read_damage.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::actors {

// Verifies each block against its digest. Reads a damaged block from a copy that another rank has written, if
// there is one, and notes that. Besides the caller's memory it holds a few digest blocks and the headers of
// open shards. Not thread-safe.
class CheckpointTensors {
 public:
  // `storage` must outlive this object.
  CheckpointTensors(storage::Storage& storage, std::shared_ptr<const storage::Decision> committed);
  ~CheckpointTensors();
  CheckpointTensors(const CheckpointTensors&) = delete;
  CheckpointTensors& operator=(const CheckpointTensors&) = delete;

  // Fills `out` with the elements [begin, end) of a tensor in row-major order. `dtype` and `shape` are those
  // of the checkpoint. Code::corrupt and Code::not_found name the file and the tensor.
  Status read(const std::string& fqn, DType dtype, const Dims& shape, uint64_t begin, uint64_t end,
              MutableByteView out);
  // Fills `out` with the elements of these boxes of a tensor, one box after another, each in row-major order.
  Status read_boxes(const std::string& fqn, DType dtype, const Dims& shape, const std::vector<Box>& boxes,
                    MutableByteView out);
  // Fills `out` with the bytes [begin, end) of an object. `begin` is the start of a digest block, and `end`
  // the start of one or the end of the object.
  Status read_object(const std::string& fqn, uint64_t begin, uint64_t end, MutableByteView out);

  // A canonical piece: where it is in the tensor, and the digests of its blocks.
  struct Piece {
    Box box;  // no dimensions for an object
    uint64_t bytes = 0;
    std::vector<uint64_t> digests;  // empty if the header of its file cannot be read
  };
  // The canonical pieces of a tensor, which tile it, ascending by box; of an object, the one piece that a
  // load reads. Reads headers only.
  Result<std::vector<Piece>> pieces(const std::string& fqn, LayoutEntry::Kind kind, DType dtype,
                                    const Dims& shape);
  const DamageList& damage() const;  // what was read from copies

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
