// FileReads: what a load reads by itself: the client reads from the files that its node names, verifies, and
// places, with no window between storage and tensors. docs/reference/client-node.md, "Loading".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/loading/placing.h"
#include "local/messages/messages.h"
#include "shoal/page_buffer.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr unsigned kMaxLoadThreads = 64;

// How many threads a load reads by: as many as asked for, but no more than this process may have processors.
unsigned load_threads_of(unsigned asked_for);

// Of one load. Not thread-safe; has threads of its own while it reads.
class FileReads {
 public:
  // What is read lies in: a digest block a thread, made when it is first needed. Kept from load to load, for
  // memory that is fresh from the system takes longer to fill than to read.
  using Buffers = std::array<PageBuffer, kMaxLoadThreads>;
  // Files are opened under `root`, by 1 to kMaxLoadThreads threads. `buffers` outlive this, and are its
  // alone.
  FileReads(std::string root, unsigned threads, Buffers& buffers);
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
  Buffers& buffers_;  // of each thread
  uint64_t reading_ns_ = 0, placing_ns_ = 0;
};

}  // namespace shoal::client
