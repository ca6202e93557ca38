// WriteBehind: writes one file in large aligned chunks. One thread fills a chunk while another writes the
// previous one.
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
inline constexpr size_t kDirectAlignmentBytes = 4096;  // of memory, offsets and lengths; no disk needs more

class WriteBehind {
 public:
  // A thread of this object calls it with one chunk after another, never concurrently. The view is aligned to
  // kDirectAlignmentBytes, its size is a multiple of that, and at most kWriteBehindChunkBytes.
  using Write = std::function<Status(uint64_t offset, ByteView chunk)>;

  // The first appended byte has offset 0. Allocates kBuffers chunks; Code::no_space if there is not enough
  // memory.
  static Result<std::unique_ptr<WriteBehind>> make(Write write);
  ~WriteBehind();  // waits for the running write and drops the rest
  WriteBehind(const WriteBehind&) = delete;

  // One thread calls the following methods. They block while kMostPending chunks are pending. Each returns
  // the error of an earlier write, if there is one. append copies the bytes.
  Status append(ByteView data);
  // The caller keeps the bytes in place and unchanged until drain or until this object is destroyed.
  // Contiguous bytes that are aligned like the file are written without a copy.
  Status append_kept(ByteView data);
  // Waits for all writes. `*rest` receives the bytes that do not fill a chunk, from an aligned address; the
  // caller must write them at `*offset`. `*rest` is valid as long as this object and the kept bytes.
  Status drain(uint64_t* offset, ByteView* rest);

 private:
  // One is being written and one waits, so that the disk is never idle.
  static constexpr size_t kMostPending = 2;
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
  size_t filling_ = 0;   // index in buffers_
  size_t filled_ = 0;    // bytes in that buffer
  ByteView run_;         // contiguous kept bytes; if not empty, the buffer is empty
  uint64_t offset_ = 0;  // file offset of the buffer or of the run

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Chunk> pending_;  // the first one is being written
  bool stopping_ = false;
  Status failed_;  // the first error

  std::thread thread_;
};

}  // namespace shoal::storage
