// Stager: copies a rank's bytes into the memory from which the node writes them. A back end is chosen by
// where the tensors are: gpu/host/ copies between host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shoal/status.h"

namespace shoal::gpu {

// Copies `rows` rows of `row_bytes` bytes to contiguous memory: it gathers a box of a row-major tensor. In
// the source each row begins `source_stride` bytes after the row before it. One row is a plain copy.
struct CopyTask {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t source_stride = 0;  // unused with one row
  uint32_t tag = 0;            // of the caller, to name what the copy is of
};

// Only one thread may submit and wait. The targets of tasks in progress must not overlap.
class Stager {
 public:
  using Ticket = uint64_t;  // ascending

  virtual ~Stager() = default;
  // Starts the copies. The stager does not keep `tasks`. The memory that they point to must be valid, and the
  // sources unchanged, until wait() has returned for this ticket or a later one.
  virtual Ticket submit(std::span<const CopyTask> tasks) = 0;
  // Blocks until all copies of this ticket and of earlier ones are done. After an error the targets of these
  // tickets have undefined contents.
  virtual Status wait(Ticket ticket) = 0;
};

// Copies from host memory to host memory on the caller's thread: submit copies at once, wait does nothing.
std::unique_ptr<Stager> make_host_stager();

}  // namespace shoal::gpu
