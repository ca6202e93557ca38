// WriteBehind: one file's bytes in large aligned chunks, given by one thread while another writes the last.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::storage {

inline constexpr size_t kWriteBehindChunkBytes = size_t{4} << 20;
inline constexpr size_t kDirectAlignmentBytes = 4096;  // of memory, offsets and lengths; no disk wants more

class WriteBehind {
 public:
  // Called by a thread of this object, one call at a time, chunk after chunk; the view is aligned to
  // kDirectAlignmentBytes and has a multiple of them, at most kWriteBehindChunkBytes.
  using Write = std::function<Status(uint64_t offset, ByteView chunk)>;

  // The first byte appended has offset 0. Takes kBuffers chunks of memory; Code::no_space where there is
  // none.
  static Result<std::unique_ptr<WriteBehind>> make(Write write);
  ~WriteBehind();  // waits for the write under way; what is left is dropped
  WriteBehind(const WriteBehind&) = delete;

  // The rest by one thread. Blocks while kMostPending chunks are on their way. An error is that of a write.
  Status append(ByteView data);  // copies
  // The bytes stay where they are, unchanged, until drain or the end of this object: what lies in one piece,
  // aligned as the file is, is written from there.
  Status append_kept(ByteView data);
  // Waits for all writes. `rest`: what does not fill a chunk, aligned, valid as long as this object and what
  // was kept, to be written by the caller from `*offset` on.
  Status drain(uint64_t* offset, ByteView* rest);

 private:
  static constexpr size_t kMostPending = 2;  // one is written, the next one waits: the disk does not
  static constexpr size_t kBuffers = kMostPending + 1;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Chunk {
    uint64_t offset;
    ByteView bytes;
  };
  explicit WriteBehind(Write write) : write_(std::move(write)) {}
  void run();
  bool may_begin_run(ByteView data) const;
  Status end_run();
  Status hand_over_buffer();
  Status hand_over(ByteView chunk);

  const Write write_;
  std::array<std::unique_ptr<std::byte, Free>, kBuffers> buffers_;
  size_t filling_ = 0;   // which buffer
  size_t filled_ = 0;    // bytes of it
  ByteView run_;         // kept bytes that follow each other; not empty: nothing is in the buffer
  uint64_t offset_ = 0;  // of what is in the buffer or the run

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Chunk> pending_;  // the first is being written
  bool stopping_ = false;
  Status failed_;  // the first

  std::thread thread_;
};

}  // namespace shoal::storage
