#include "storage/write_behind.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace shoal {

void WriteBehind::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

Result<std::unique_ptr<WriteBehind>> WriteBehind::make(Write write) {
  std::unique_ptr<WriteBehind> made(new WriteBehind(std::move(write)));
  for (auto& chunk : made->chunks_) {
    chunk.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignmentBytes, kWriteBehindChunkBytes)));
    if (!chunk) return Status(Code::no_space, "no memory for chunks to write from");
  }
  try {
    made->thread_ = std::thread([self = made.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return Status(Code::no_space, std::string("no thread to write with: ") + error.what());
  }
  return made;
}

WriteBehind::~WriteBehind() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WriteBehind::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return writing_ || stopping_; });
    if (!writing_) return;
    const ByteView chunk(writing_chunk_, kWriteBehindChunkBytes);
    const uint64_t offset = writing_offset_;
    const bool failed_before = !failed_.ok();
    lock.unlock();
    Status status = failed_before ? ok_status() : write_(offset, chunk);
    lock.lock();
    if (!status.ok() && failed_.ok()) failed_ = std::move(status);
    writing_ = false;
    changed_.notify_all();
  }
}

Status WriteBehind::append(ByteView data) {
  while (!data.empty()) {
    const size_t bytes = std::min(data.size(), kWriteBehindChunkBytes - filled_);
    std::memcpy(chunks_[filling_].get() + filled_, data.data(), bytes);
    filled_ += bytes;
    data = data.subspan(bytes);
    if (filled_ == kWriteBehindChunkBytes) SHOAL_RETURN_IF_ERROR(hand_over());
  }
  return ok_status();
}

Status WriteBehind::hand_over() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !writing_; });
  if (!failed_.ok()) return failed_;
  writing_ = true;
  writing_chunk_ = chunks_[filling_].get();
  writing_offset_ = offset_;
  changed_.notify_all();
  filling_ = 1 - filling_;  // whose write has ended
  filled_ = 0;
  offset_ += kWriteBehindChunkBytes;
  return ok_status();
}

Status WriteBehind::drain(uint64_t* offset, ByteView* rest) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !writing_; });
  *offset = offset_;
  *rest = ByteView(chunks_[filling_].get(), filled_);
  return failed_;
}

}  // namespace shoal
