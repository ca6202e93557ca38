// WriteBehind: one file's bytes in large aligned chunks, filled by one thread while another writes the last.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/status.h"

namespace shoal {

inline constexpr size_t kWriteBehindChunkBytes = size_t{4} << 20;
inline constexpr size_t kDirectAlignmentBytes = 4096;  // of memory, offsets and lengths; no disk wants more

class WriteBehind {
 public:
  // Called by a thread of this object, one call at a time, chunk after chunk; the view is aligned to
  // kDirectAlignmentBytes and has kWriteBehindChunkBytes.
  using Write = std::function<Status(uint64_t offset, ByteView chunk)>;

  // The first byte appended has offset 0. Takes two chunks of memory; Code::no_space where there is none.
  static Result<std::unique_ptr<WriteBehind>> make(Write write);
  ~WriteBehind();  // waits for the write under way; what is left is dropped
  WriteBehind(const WriteBehind&) = delete;

  // The rest by one thread. Copies; blocks while both chunks are on their way. An error is that of a write.
  Status append(ByteView data);
  // Waits for all writes. `rest`: what does not fill a chunk, aligned, valid as long as this object, to be
  // written by the caller from `*offset` on.
  Status drain(uint64_t* offset, ByteView* rest);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  explicit WriteBehind(Write write) : write_(std::move(write)) {}
  void run();
  Status hand_over();

  const Write write_;
  std::unique_ptr<std::byte, Free> chunks_[2];
  size_t filling_ = 0;   // which chunk
  size_t filled_ = 0;    // bytes of it
  uint64_t offset_ = 0;  // of the chunk that is being filled

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool writing_ = false, stopping_ = false;
  uint64_t writing_offset_ = 0;
  const std::byte* writing_chunk_ = nullptr;
  Status failed_;  // the first

  std::thread thread_;
};

}  // namespace shoal
