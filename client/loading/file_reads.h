// FileReads: direct reads of a load. The client itself reads from the files that its node names, verifies the
// bytes and places them, without the load window. docs/reference/client-node.md, "Loading".
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

// The number of threads with which a load reads: `asked_for`, but at most the number of processors that this
// process may use.
unsigned load_threads_of(unsigned asked_for);

// Direct reads of one load. Not thread-safe. It starts its own threads while it reads.
class FileReads {
 public:
  // One digest block for each thread, allocated when the thread first needs it. They are kept from load to
  // load: a page fault of new memory takes longer than reading into it.
  using Buffers = std::array<PageBuffer, kMaxLoadThreads>;
  // Opens files relative to `root`. `threads`: 1 to kMaxLoadThreads. `buffers` must outlive this object, and
  // no other object may use them meanwhile.
  FileReads(std::string root, unsigned threads, Buffers& buffers);
  ~FileReads();

  // Reads the batch block by block, and verifies each block against its digest before placing it. Returns the
  // ranges that it could not open or read, or that differ from their digest; it places nothing of them.
  // Code::corrupt: the node's message contradicts itself. Other errors are those of the placer.
  Result<std::vector<local::UnreadRange>> read(const local::FilesToRead& batch, Placer& placer);

  // Times so far: the sum over all threads, divided by their number.
  uint64_t reading_ns() const { return reading_ns_; }  // includes digests
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
