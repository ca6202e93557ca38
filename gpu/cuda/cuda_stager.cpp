#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "gpu/cuda/devices.h"
#include "gpu/cuda/submission.h"
#include "gpu/cuda/upload.h"
#include "gpu/cuda/verification.h"
#include "gpu/device_stager.h"

namespace shoal::gpu {

namespace {

class CudaWork final : public DeviceWork {
 public:
  CudaWork(std::shared_ptr<Devices> devices, NameOfTag name_of)
      : devices_(std::move(devices)), name_of_(std::move(name_of)) {}
  ~CudaWork() override { (void)wait(ThreadOf::shoal); }

  // Before any other thread has this object.
  void add(DeviceStreams* streams, std::vector<runtime::Event> ends, uint64_t bytes,
           std::vector<std::unique_ptr<RingCopies>> ring_copies, std::unique_ptr<Verification> verification) {
    for (const runtime::Event end : ends) ends_.push_back({streams, end, bytes});
    for (auto& copies : ring_copies) ring_copies_.push_back(std::move(copies));
    if (verification != nullptr) verifications_.push_back(std::move(verification));
  }

  Status wait(ThreadOf thread) override {
    std::lock_guard waiting(wait_mutex_);
    {
      std::lock_guard lock(mutex_);
      if (is_ended_) return outcome_;
    }
    SHOAL_RETURN_IF_ERROR(devices_->check_process());
    Status first;
    for (const End& end : ends_) {
      const runtime::CurrentDevice current(end.streams->device(), thread);
      const Status status = runtime::synchronize(end.event, {end.streams->device(), end.bytes});
      if (first.ok()) first = status;
    }
    std::lock_guard lock(mutex_);
    for (const End& end : ends_) end.streams->give_back(end.event);
    ends_.clear();
    is_ended_ = true;
    for (const auto& verification : verifications_) {
      if (!first.ok()) break;
      if (const std::optional<uint32_t> tag = verification->changed()) {
        first = Status(Code::invalid_argument, name_of_(*tag) + " changed while it was copied from device " +
                                                   std::to_string(verification->device()));
      }
    }
    verifications_.clear();
    return outcome_ = first;
  }

  Status make_wait(void* stream, int device) override {
    SHOAL_RETURN_IF_ERROR(devices_->check_process());
    std::optional<runtime::CurrentDevice> current;
    if (device != kCurrentDevice) {
      current.emplace(device);
      SHOAL_RETURN_IF_ERROR(current->status());
    }
    std::lock_guard lock(mutex_);
    for (const End& end : ends_) {
      SHOAL_RETURN_IF_ERROR(runtime::wait_event(stream, end.event, {end.streams->device(), end.bytes}));
    }
    return outcome_;
  }

 private:
  struct End {
    DeviceStreams* streams = nullptr;
    runtime::Event event = nullptr;
    uint64_t bytes = 0;
  };

  const std::shared_ptr<Devices> devices_;
  const NameOfTag name_of_;  // empty: what is copied is not verified
  std::mutex wait_mutex_;    // locked before mutex_
  std::mutex mutex_;
  std::vector<End> ends_;  // changes only while both are locked
  bool is_ended_ = false;
  Status outcome_;
  std::vector<std::unique_ptr<RingCopies>> ring_copies_;
  std::vector<std::unique_ptr<Verification>> verifications_;
};

class Pin {
 public:
  Pin(std::shared_ptr<Devices> devices, MutableByteView memory)
      : devices_(std::move(devices)), memory_(memory) {}
  ~Pin() { devices_->unpin(memory_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  const std::shared_ptr<Devices> devices_;
  const MutableByteView memory_;
};

class CudaStager final : public DeviceStager {
 public:
  CudaStager(const DeviceStagerOptions& options, int count)
      : devices_(std::make_shared<Devices>(options, count)) {}

  Status check_memory(const Queue& queue, const void* memory, uint64_t bytes) override {
    SHOAL_RETURN_IF_ERROR(check(queue.device));
    const runtime::CurrentDevice current(queue.device);
    SHOAL_RETURN_IF_ERROR(current.status());
    return runtime::check_pointer(memory, {queue.device, bytes});
  }

  Result<std::shared_ptr<void>> pin(int device, MutableByteView memory) override {
    SHOAL_RETURN_IF_ERROR(check(device));
    const runtime::CurrentDevice current(device);
    SHOAL_RETURN_IF_ERROR(current.status());
    SHOAL_RETURN_IF_ERROR(devices_->pin(device, memory));
    return std::shared_ptr<void>(std::make_shared<Pin>(devices_, memory));
  }

  Result<std::shared_ptr<DeviceWork>> to_host(std::span<const DeviceBatch> batches,
                                              NameOfTag name_of) override {
    SHOAL_RETURN_IF_ERROR(devices_->check_process());
    const bool verify_unchanged = name_of != nullptr;
    auto work = std::make_shared<CudaWork>(devices_, std::move(name_of));
    std::map<int, std::vector<const DeviceBatch*>> by_device;
    for (const DeviceBatch& batch : batches) by_device[batch.queue.device].push_back(&batch);
    for (const auto& [device, of_device] : by_device) SHOAL_RETURN_IF_ERROR(check(device));
    for (const auto& [device, of_device] : by_device) {
      if (Status started = start(device, of_device, verify_unchanged, *work); !started.ok()) {
        devices_->drain();
        return started;
      }
    }
    return std::shared_ptr<DeviceWork>(std::move(work));
  }

  Result<std::unique_ptr<DeviceUpload>> begin_upload(std::span<const Queue> queues) override {
    SHOAL_RETURN_IF_ERROR(devices_->check_process());
    for (const Queue& queue : std::set<Queue>(queues.begin(), queues.end())) {
      SHOAL_RETURN_IF_ERROR(check(queue.device));
      const runtime::CurrentDevice current(queue.device);
      SHOAL_RETURN_IF_ERROR(current.status());
      SHOAL_ASSIGN_OR_RETURN(DeviceStreams* const streams, devices_->streams_of(queue.device));
      SHOAL_RETURN_IF_ERROR(streams->wait_for(queue.stream));
    }
    return std::unique_ptr<DeviceUpload>(std::make_unique<CudaUpload>(devices_));
  }

 private:
  Status check(int device) const {
    SHOAL_RETURN_IF_ERROR(devices_->check_process());
    return devices_->check_device(device);
  }

  // Starts the copies from one device. After an error some may be in progress.
  Status start(int device, const std::vector<const DeviceBatch*>& batches, bool verify_unchanged,
               CudaWork& work) {
    const runtime::CurrentDevice current(device);
    SHOAL_RETURN_IF_ERROR(current.status());
    SHOAL_ASSIGN_OR_RETURN(DeviceStreams* const streams, devices_->streams_of(device));
    std::set<void*> callers;
    for (const DeviceBatch* batch : batches) callers.insert(batch->queue.stream);
    for (void* const stream : callers) SHOAL_RETURN_IF_ERROR(streams->wait_for(stream));
    std::unique_ptr<Verification> verification;
    if (verify_unchanged) {
      SHOAL_ASSIGN_OR_RETURN(verification, Verification::begin(*streams, batches));
    }
    uint64_t gap_bytes = UINT64_MAX;
    for (const DeviceBatch* batch : batches) gap_bytes = std::min(gap_bytes, batch->gap_bytes);
    Submission submission(*devices_, *streams, gap_bytes);
    Status status;
    for (const DeviceBatch* batch : batches) {
      for (const DeviceCopy& copy : batch->copies) {
        if (status.ok()) status = submission.add(copy);
      }
    }
    if (status.ok()) status = submission.flush();
    if (status.ok() && verification != nullptr) status = verification->end();
    std::vector<runtime::Event> ends;
    if (status.ok()) {
      Result<std::vector<runtime::Event>> recorded = streams->record_all();
      status = recorded.status();
      if (recorded.ok()) ends = std::move(*recorded);
    }
    // The work keeps what the streams read, even after an error.
    work.add(streams, std::move(ends), submission.bytes(), submission.take_ring_copies(),
             std::move(verification));
    return status;
  }

  const std::shared_ptr<Devices> devices_;
};

}  // namespace

Result<std::unique_ptr<DeviceStager>> make_device_stager(const DeviceStagerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const int count, runtime::device_count());
  return std::unique_ptr<DeviceStager>(std::make_unique<CudaStager>(options, count));
}

}  // namespace shoal::gpu
