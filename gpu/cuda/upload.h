// CudaUpload: the copies of one load to devices, through a bounded window of pinned memory.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu/cuda/devices.h"

namespace shoal::gpu {

class CudaUpload final : public DeviceUpload {
 public:
  explicit CudaUpload(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}
  ~CudaUpload() override;

  Status put(const Queue& queue, std::span<const DeviceCopy> copies) override;
  Status finish() override;

 private:
  struct Part {  // of the window
    std::byte* memory = nullptr;
    DeviceStreams* streams = nullptr;  // whose copies read it; nullptr: none
    runtime::Event end = nullptr;
  };
  class Filling;
  struct Cursor {  // how far the copies of one call have come
    std::span<const DeviceCopy> copies;
    size_t next = 0;
    uint64_t row = 0, in_row = 0;  // of copies[next]
    bool is_at_end() const { return next == copies.size(); }
  };
  static Status fill(Cursor& cursor, Filling& filling);
  runtime::Stream next_stream(const DeviceStreams& streams);
  ThreadOf this_thread() const;
  Status put_all(const Queue& queue, std::span<const DeviceCopy> copies);
  Result<Part> take_part(int device);
  // Waits for the copies that read the part.
  Status await(Part& part);
  void give_back(Part part, const Status& outcome);

  const std::shared_ptr<Devices> devices_;
  const std::thread::id opened_by_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Part> unused_;
  std::deque<Part> in_progress_;
  size_t allocated_ = 0;
  size_t next_stream_ = 0;
  Status first_error_;
};

}  // namespace shoal::gpu
