#include "gpu/cuda/upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shoal::gpu {

// One part of the window while a thread fills it.
class CudaUpload::Filling {
 public:
  Filling(std::byte* memory, runtime::Stream stream, int device, uint64_t room, uint64_t small_bytes)
      : memory_(memory), stream_(stream), device_(device), room_(room), small_bytes_(small_bytes) {}

  uint64_t room() const { return room_ - used_; }
  // Copies the bytes into the part and starts the copy of one row from there.
  Status add_flat(const std::byte* source, std::byte* target, uint64_t bytes) {
    std::byte* const staged = take(source, bytes);
    if (bytes >= small_bytes_) {
      return runtime::copy(target, staged, runtime::Direction::to_device, stream_, {device_, bytes});
    }
    targets_.push_back(target);
    sources_.push_back(staged);
    sizes_.push_back(bytes);
    return ok_status();
  }
  Status add_rows(const std::byte* source, std::byte* target, uint64_t row_bytes, uint64_t rows,
                  uint64_t target_stride) {
    std::byte* const staged = take(source, row_bytes * rows);
    return runtime::copy_rows(target, staged, {row_bytes, rows, row_bytes, target_stride},
                              runtime::Direction::to_device, stream_, {device_, row_bytes * rows});
  }
  Status flush() {
    if (sizes_.empty()) return ok_status();
    SHOAL_ASSIGN_OR_RETURN(const bool is_copied,
                           runtime::copy_batch(targets_.data(), sources_.data(), sizes_.data(), sizes_.size(),
                                               stream_, {device_, used_}));
    for (size_t i = 0; !is_copied && i < sizes_.size(); ++i) {
      SHOAL_RETURN_IF_ERROR(runtime::copy(targets_[i], sources_[i], runtime::Direction::to_device, stream_,
                                          {device_, sizes_[i]}));
    }
    return ok_status();
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* take(const std::byte* source, uint64_t bytes) {
    std::byte* const staged = memory_ + used_;
    std::memcpy(staged, source, bytes);
    used_ += bytes;
    return staged;
  }

  std::byte* const memory_;
  const runtime::Stream stream_;
  const int device_;
  const uint64_t room_, small_bytes_;
  uint64_t used_ = 0;
  std::vector<void*> targets_;
  std::vector<const void*> sources_;
  std::vector<size_t> sizes_;
};

CudaUpload::~CudaUpload() {
  if (!devices_->check_process().ok()) return;
  (void)finish();
  for (const Part& part : unused_) runtime::free_pinned(part.memory);
}

ThreadOf CudaUpload::this_thread() const {
  return std::this_thread::get_id() == opened_by_ ? ThreadOf::caller : ThreadOf::shoal;
}

Status CudaUpload::await(Part& part) {
  if (part.streams == nullptr) return ok_status();
  const Status status =
      runtime::synchronize(part.end, {part.streams->device(), devices_->options().window_bytes});
  std::exchange(part.streams, nullptr)->give_back(std::exchange(part.end, nullptr));
  return status;
}

void CudaUpload::give_back(Part part, const Status& outcome) {
  std::lock_guard lock(mutex_);
  if (first_error_.ok()) first_error_ = outcome;
  (part.streams == nullptr ? unused_.emplace_back() : in_progress_.emplace_back()) = part;
  changed_.notify_all();
}

Result<CudaUpload::Part> CudaUpload::take_part(int device) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!first_error_.ok()) return first_error_;
    if (!unused_.empty()) {
      const Part part = unused_.back();
      unused_.pop_back();
      return part;
    }
    if (allocated_ < devices_->options().window_parts) {
      Result<void*> memory = runtime::allocate_pinned({device, devices_->options().window_bytes});
      if (memory.ok()) {
        ++allocated_;
        Part part;
        part.memory = static_cast<std::byte*>(*memory);
        return part;
      }
      if (allocated_ == 0) return first_error_ = memory.status();
    }
    if (in_progress_.empty()) {  // other threads fill all of them
      changed_.wait(lock);
      continue;
    }
    Part part = in_progress_.front();
    in_progress_.pop_front();
    lock.unlock();
    const Status status = await(part);
    if (status.ok()) return part;
    give_back(part, status);
    lock.lock();
  }
}

runtime::Stream CudaUpload::next_stream(const DeviceStreams& streams) {
  std::lock_guard lock(mutex_);
  return streams.streams()[next_stream_++ % streams.streams().size()];
}

// Starts copies until the part is full or all are started.
Status CudaUpload::fill(Cursor& cursor, Filling& filling) {
  while (!cursor.is_at_end() && filling.room() > 0) {
    const DeviceCopy& copy = cursor.copies[cursor.next];
    const std::byte* const source = copy.source + cursor.row * copy.row_bytes + cursor.in_row;
    std::byte* const target = copy.target + cursor.row * copy.target_stride + cursor.in_row;
    const bool is_at_row = cursor.in_row == 0 && copy.row_bytes > 0;
    const uint64_t rows = is_at_row && copy.target_stride <= runtime::kStrideMax
                              ? std::min(copy.rows - cursor.row, filling.room() / copy.row_bytes)
                              : 0;
    if (rows > 1) {
      SHOAL_RETURN_IF_ERROR(filling.add_rows(source, target, copy.row_bytes, rows, copy.target_stride));
      cursor.row += rows;
    } else {
      const uint64_t bytes = std::min(copy.row_bytes - cursor.in_row, filling.room());
      if (bytes > 0) SHOAL_RETURN_IF_ERROR(filling.add_flat(source, target, bytes));
      cursor.in_row += bytes;
      if (cursor.in_row == copy.row_bytes) ++cursor.row, cursor.in_row = 0;
    }
    if (cursor.row >= copy.rows) ++cursor.next, cursor.row = 0;
  }
  return filling.flush();
}

Status CudaUpload::put(const Queue& queue, std::span<const DeviceCopy> copies) {
  Status status = put_all(queue, copies);
  if (status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (first_error_.ok()) first_error_ = status;
  changed_.notify_all();
  return status;
}

Status CudaUpload::put_all(const Queue& queue, std::span<const DeviceCopy> copies) {
  SHOAL_RETURN_IF_ERROR(devices_->check_process());
  SHOAL_RETURN_IF_ERROR(devices_->check_device(queue.device));
  const runtime::CurrentDevice current(queue.device, this_thread());
  SHOAL_RETURN_IF_ERROR(current.status());
  SHOAL_ASSIGN_OR_RETURN(DeviceStreams* const streams, devices_->streams_of(queue.device));
  const DeviceStagerOptions& options = devices_->options();
  Cursor cursor{copies};
  while (!cursor.is_at_end()) {
    SHOAL_ASSIGN_OR_RETURN(Part part, take_part(queue.device));
    const runtime::Stream stream = next_stream(*streams);
    Filling filling(part.memory, stream, queue.device, options.window_bytes, options.small_bytes);
    Status status = fill(cursor, filling);
    // Recorded even after an error: some copies may read the part.
    Result<runtime::Event> end = streams->record(stream, filling.used());
    if (end.ok()) {
      part.streams = streams;
      part.end = *end;
    } else {
      (void)runtime::synchronize(stream, {queue.device, filling.used()});
      if (status.ok()) status = end.status();
    }
    give_back(part, status);
    SHOAL_RETURN_IF_ERROR(status);
  }
  return ok_status();
}

Status CudaUpload::finish() {
  SHOAL_RETURN_IF_ERROR(devices_->check_process());
  while (true) {
    Part part;
    {
      std::lock_guard lock(mutex_);
      if (in_progress_.empty()) return first_error_;
      part = in_progress_.front();
      in_progress_.pop_front();
    }
    const Status status = await(part);
    give_back(part, status);
  }
}

}  // namespace shoal::gpu
