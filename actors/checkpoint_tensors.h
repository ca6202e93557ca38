// CheckpointTensors: reads the tensors of a committed checkpoint from its shards, without a node.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
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
  const DamageList& damage() const;  // what was read from copies

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
