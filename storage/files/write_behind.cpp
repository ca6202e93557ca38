#include "storage/files/write_behind.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "shoal/check.h"

namespace shoal::storage {

namespace {

// A shorter run is copied together with the next bytes, which is cheaper than a separate write.
constexpr size_t kRunBytesMin = size_t{256} << 10;

bool is_aligned(const std::byte* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kDirectAlignmentBytes == 0;
}

}  // namespace

void WriteBehind::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

Result<std::unique_ptr<WriteBehind>> WriteBehind::make(Write write) {
  std::unique_ptr<WriteBehind> made(new WriteBehind(std::move(write)));
  for (auto& buffer : made->buffers_) {
    buffer.reset(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignmentBytes, kWriteBehindChunkBytes)));
    if (!buffer) return Status(Code::no_space, "no memory for write buffers");
  }
  try {
    made->thread_ = std::thread([self = made.get()] { self->run(); });
  } catch (const std::exception& error) {
    return Status(Code::no_space, std::string("cannot start a thread for writing: ") + error.what());
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
    changed_.wait(lock, [&] { return !pending_.empty() || stopping_; });
    if (stopping_) return;
    const Chunk chunk = pending_.front();
    const bool failed_before = !failed_.ok();
    lock.unlock();
    Status status = failed_before ? ok_status() : write_(chunk.offset, chunk.bytes);
    lock.lock();
    if (!status.ok() && failed_.ok()) failed_ = std::move(status);
    pending_.pop_front();
    changed_.notify_all();
  }
}

Status WriteBehind::append(ByteView data) {
  SHOAL_RETURN_IF_ERROR(end_run());
  while (!data.empty()) {
    const size_t bytes = std::min(data.size(), kWriteBehindChunkBytes - filled_);
    std::memcpy(buffers_[filling_].get() + filled_, data.data(), bytes);
    filled_ += bytes;
    data = data.subspan(bytes);
    if (filled_ == kWriteBehindChunkBytes) SHOAL_RETURN_IF_ERROR(hand_over_buffer());
  }
  return ok_status();
}

Status WriteBehind::append_kept(ByteView data) {
  if (data.empty()) return ok_status();
  if (!run_.empty() && run_.data() + run_.size() == data.data()) {
    run_ = ByteView(run_.data(), run_.size() + data.size());
  } else {
    SHOAL_RETURN_IF_ERROR(end_run());
    if (!may_begin_run(data)) return append(data);
    if (filled_ > 0) SHOAL_RETURN_IF_ERROR(hand_over_buffer());
    run_ = data;
  }
  while (run_.size() >= kWriteBehindChunkBytes) {
    SHOAL_RETURN_IF_ERROR(hand_over(run_.first(kWriteBehindChunkBytes)));
    run_ = run_.subspan(kWriteBehindChunkBytes);
  }
  return ok_status();
}

// Whether a run may start with these bytes. A header before the first run justifies a separate write, however
// short the first piece is, because the run may grow to the whole file.
bool WriteBehind::may_begin_run(ByteView data) const {
  if (!is_aligned(data.data()) || filled_ % kDirectAlignmentBytes != 0) return false;
  return filled_ == 0 || offset_ == 0 || data.size() >= kRunBytesMin;
}

// Ends the run, because the next bytes do not follow it in memory.
Status WriteBehind::end_run() {
  if (run_.empty()) return ok_status();
  const size_t whole = run_.size() / kDirectAlignmentBytes * kDirectAlignmentBytes;
  if (whole >= kRunBytesMin) {
    SHOAL_RETURN_IF_ERROR(hand_over(run_.first(whole)));
    run_ = run_.subspan(whole);
  }
  SHOAL_CHECK(filled_ == 0);
  if (!run_.empty()) std::memcpy(buffers_[filling_].get(), run_.data(), run_.size());
  filled_ = run_.size();
  run_ = {};
  return ok_status();
}

Status WriteBehind::hand_over_buffer() {
  SHOAL_RETURN_IF_ERROR(hand_over(ByteView(buffers_[filling_].get(), filled_)));
  filling_ = (filling_ + 1) % kBuffers;  // at most kMostPending of the other buffers are pending
  filled_ = 0;
  return ok_status();
}

Status WriteBehind::hand_over(ByteView chunk) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.size() < kMostPending; });
  if (!failed_.ok()) return failed_;
  pending_.push_back({offset_, chunk});
  changed_.notify_all();
  offset_ += chunk.size();
  return ok_status();
}

Status WriteBehind::drain(uint64_t* offset, ByteView* rest) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pending_.empty(); });
  *offset = offset_;
  *rest = run_.empty() ? ByteView(buffers_[filling_].get(), filled_) : run_;
  return failed_;
}

}  // namespace shoal::storage
