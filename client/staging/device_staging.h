// DeviceStaging: what a Checkpointer does with memory of devices. It makes the stager when a state first
// names such memory, and has a thread that waits for copies.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/staging/slab.h"
#include "client/state_dict.h"
#include "gpu/device_stager.h"

namespace shoal::client {

// One thread may use it.
class DeviceStaging {
 public:
  // `who` begins each line that this object writes to stderr, such as "rank 3".
  DeviceStaging(std::string who, uint64_t pinned_bytes_max);
  // Waits until the functions that when_copied was given have returned.
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Requires state.uses_devices(). Code::unavailable: there is no usable device. Code::invalid_argument: a
  // tensor does not lie on the device that the state names. Every error names a tensor.
  Status check(const BoundState& state);
  // Pins the slab, once. If that fails, writes one line to stderr: copies then go through a ring.
  void pin(MemorySlab& slab);
  // After check(). See gpu::DeviceStager. An upload is nullptr if this rank holds no byte on a device.
  Result<std::shared_ptr<gpu::DeviceWork>> to_host(const std::vector<gpu::DeviceBatch>& batches,
                                                   gpu::NameOfTag name_of);
  Result<std::unique_ptr<gpu::DeviceUpload>> begin_upload();
  // Calls `then` with the outcome of the copies, once they have ended, on a thread of this object. Calls are
  // in the order of their copies.
  void when_copied(std::shared_ptr<gpu::DeviceWork> copies, std::function<void(const Status&)> then);

 private:
  struct Waiting {
    std::shared_ptr<gpu::DeviceWork> copies;
    std::function<void(const Status&)> then;
  };
  struct Tensor {  // of one memory that a state names
    gpu::Queue queue;
    const void* data = nullptr;
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  void wait_for_copies();

  const std::string who_;
  const uint64_t pinned_bytes_max_;
  std::unique_ptr<gpu::DeviceStager> stager_;
  std::vector<Tensor> checked_;            // of the last state, in its order
  const std::byte* not_pinned_ = nullptr;  // the slab that could not be pinned last

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closing_ = false;
  std::deque<Waiting> waiting_;
  std::thread thread_;  // started when it is first needed
};

}  // namespace shoal::client
