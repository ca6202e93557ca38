// Devices: what the back end keeps of each device, and the host memory that it has pinned.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/runtime.h"
#include "gpu/device_stager.h"

namespace shoal::gpu {

// The streams of one device, its unused events, and its part of the ring. Thread-safe.
class DeviceStreams {
 public:
  // The device must be current.
  static Result<std::unique_ptr<DeviceStreams>> make(int device, const DeviceStagerOptions& options);
  ~DeviceStreams();
  DeviceStreams(const DeviceStreams&) = delete;
  DeviceStreams& operator=(const DeviceStreams&) = delete;

  int device() const { return device_; }
  const std::vector<runtime::Stream>& streams() const { return streams_; }
  // All streams wait for what `stream` of the caller has been given so far. The device must be current.
  Status wait_for(void* stream);
  // Records where all streams are now: one event for each. The device must be current.
  Result<std::vector<runtime::Event>> record_all();
  // The device must be current. `bytes`: what the event is recorded for.
  Result<runtime::Event> record(runtime::Stream stream, uint64_t bytes);
  void give_back(runtime::Event event);
  // Pinned memory of options.ring_bytes for the targets of one stream that are not pinned.
  Result<std::byte*> ring_of(size_t stream);
  // Memory of options.packed_bytes on the device, for what one stream packs; nullptr: the device has none to
  // spare. The device must be current.
  std::byte* packing_memory_of(size_t stream);
  // Returns pinned memory of at least `bytes` bytes, for results that a device computes.
  Result<std::byte*> take_results(uint64_t bytes);
  void give_back_results(std::byte* memory);
  // Waits until every stream is empty. Returns the first error.
  Status drain();
  // For a forked process: from now on this object does not call the CUDA Runtime.
  void abandon() { is_abandoned_ = true; }

 private:
  DeviceStreams(int device, const DeviceStagerOptions& options) : device_(device), options_(options) {}
  Result<runtime::Event> take_event();

  const int device_;
  const DeviceStagerOptions options_;
  bool is_abandoned_ = false;
  std::vector<runtime::Stream> streams_;
  std::vector<std::byte*> rings_;  // by stream; nullptr: not needed yet
  std::mutex mutex_;
  std::vector<std::optional<std::byte*>> packing_;  // by stream; nullopt: not needed yet
  std::vector<runtime::Event> unused_;
  struct Results {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    bool is_taken = false;
  };
  std::vector<Results> results_;
};

// Shared by a stager and by all that it returned. Thread-safe.
class Devices {
 public:
  explicit Devices(const DeviceStagerOptions& options, int count);
  ~Devices();

  const DeviceStagerOptions& options() const { return options_; }
  // Code::refused in a process that was forked from the one that made this object.
  Status check_process() const;
  // Code::invalid_argument: there is no such device. The device must be current, if it exists.
  Result<DeviceStreams*> streams_of(int device);
  Status check_device(int device) const;
  // Waits until no copy is in progress.
  void drain();

  Status pin(int device, MutableByteView memory);
  void unpin(MutableByteView memory);
  // The end of the part of pinned memory that `target` lies in; nullptr: the bytes from `target` are not all
  // pinned.
  const std::byte* pinned_part_end(const std::byte* target, uint64_t bytes) const;

 private:
  const DeviceStagerOptions options_;
  const int count_;
  const pid_t process_;
  mutable std::mutex mutex_;
  std::map<int, std::unique_ptr<DeviceStreams>> by_device_;
  std::map<const std::byte*, uint64_t> pinned_;  // bytes, by begin
  uint64_t pinned_bytes_ = 0;
};

}  // namespace shoal::gpu
