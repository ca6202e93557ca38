// FileReads: what a load reads by itself: the client reads from the files that its node names, verifies, and
// places, with no window between storage and tensors. docs/client-node.md, "Loading".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/page_buffer.h"
#include "base/status.h"
#include "client/placing_internal.h"
#include "local/messages.h"

namespace shoal {

inline constexpr unsigned kMaxLoadThreads = 64;

// How many threads a load reads by: as many as asked for, but no more than this process may have processors.
unsigned load_threads_of(unsigned asked_for);

// Of one load. Not thread-safe; has threads of its own while it reads.
class FileReads {
 public:
  // Files are opened under `root`. Each of the 1 to kMaxLoadThreads threads has one digest block of memory.
  FileReads(std::string root, unsigned threads);
  ~FileReads();

  // Reads the batch block by block; a block is held against its digest before any of it reaches a tensor.
  // What could not be opened or read, or differs from its digest, is returned, and nothing of it was placed.
  // Code::corrupt: the node says what cannot be. Other errors are those of the placer.
  Result<std::vector<local::UnreadRange>> read(const local::FilesToRead& batch, Placer& placer);

  // So far: the time of all threads divided by their number.
  uint64_t reading_ns() const { return reading_ns_; }  // digests included
  uint64_t placing_ns() const { return placing_ns_; }

 private:
  struct Block;
  struct Run;
  struct Work;
  class OpenFiles;
  static Status cut(const local::FilesToRead& batch, Work& work);
  void read_runs(Work& work, PageBuffer& buffer);
  void read_run(Work& work, const Run& run, PageBuffer& buffer);
  void announce(Work& work, size_t run);

  const unsigned threads_;
  std::unique_ptr<OpenFiles> files_;
  std::vector<PageBuffer> buffers_;  // of each thread
  uint64_t reading_ns_ = 0, placing_ns_ = 0;
};

}  // namespace shoal
