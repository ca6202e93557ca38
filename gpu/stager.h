// Stager: copies of a rank's bytes into memory that the node will write from. A back end is chosen where the
// tensors lie: gpu/host/ copies between host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shoal/status.h"

namespace shoal::gpu {

// `rows` rows of `row_bytes`, of which each begins `source_stride` bytes after the one before, to contiguous
// bytes: a gather of a box of a row-major tensor. One row: a plain copy.
struct CopyTask {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t row_bytes = 0;
  uint64_t rows = 1;
  uint64_t source_stride = 0;  // unused with one row
};

// One thread submits and waits. Ranges of different tasks that are under way together do not overlap in their
// targets.
class Stager {
 public:
  using Ticket = uint64_t;  // ascending

  virtual ~Stager() = default;
  // Begins the copies; the tasks themselves are not kept. What they point to must live, sources unchanged,
  // until wait() has returned for this ticket or a later one.
  virtual Ticket submit(std::span<const CopyTask> tasks) = 0;
  // Blocks until all copies of this ticket and of earlier ones are done. An error says that targets of these
  // tickets hold nothing of use.
  virtual Status wait(Ticket ticket) = 0;
};

// Host memory to host memory, in the caller's thread: submit copies, wait finds it done.
std::unique_ptr<Stager> make_host_stager();

}  // namespace shoal::gpu
