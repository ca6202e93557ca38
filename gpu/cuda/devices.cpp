#include "gpu/cuda/devices.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace shoal::gpu {

Result<std::unique_ptr<DeviceStreams>> DeviceStreams::make(int device, const DeviceStagerOptions& options) {
  std::unique_ptr<DeviceStreams> made(new DeviceStreams(device, options));
  for (uint32_t i = 0; i < options.streams; ++i) {
    SHOAL_ASSIGN_OR_RETURN(const runtime::Stream stream, runtime::create_stream(device));
    made->streams_.push_back(stream);
  }
  made->rings_.resize(options.streams);
  made->packing_.resize(options.streams);
  return made;
}

DeviceStreams::~DeviceStreams() {
  if (is_abandoned_) return;
  for (const runtime::Event event : unused_) runtime::destroy_event(event);
  for (const Results& results : results_) runtime::free_pinned(results.memory);
  for (std::byte* const ring : rings_) {
    if (ring != nullptr) runtime::free_pinned(ring);
  }
  for (size_t i = 0; i < packing_.size(); ++i) {
    if (std::byte* const memory = packing_[i].value_or(nullptr); memory != nullptr) {
      runtime::free_on_device(memory, streams_[i]);
    }
  }
  for (const runtime::Stream stream : streams_) runtime::destroy_stream(stream);
}

Result<runtime::Event> DeviceStreams::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      const runtime::Event event = unused_.back();
      unused_.pop_back();
      return event;
    }
  }
  return runtime::create_event(device_);
}

void DeviceStreams::give_back(runtime::Event event) {
  std::lock_guard lock(mutex_);
  unused_.push_back(event);
}

Status DeviceStreams::wait_for(void* stream) {
  SHOAL_ASSIGN_OR_RETURN(const runtime::Event ready, take_event());
  Status status = runtime::record(ready, stream, {device_});
  if (status.code() == Code::invalid_argument) {
    status = status.with_context("the caller's stream for memory of device " + std::to_string(device_));
  }
  for (const runtime::Stream own : streams_) {
    if (status.ok()) status = runtime::wait_event(own, ready, {device_});
  }
  give_back(ready);  // the streams wait for what it was recorded for, even if it is recorded again
  return status;
}

Result<runtime::Event> DeviceStreams::record(runtime::Stream stream, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const runtime::Event event, take_event());
  if (Status status = runtime::record(event, stream, {device_, bytes}); !status.ok()) {
    give_back(event);
    return status;
  }
  return event;
}

Result<std::vector<runtime::Event>> DeviceStreams::record_all() {
  std::vector<runtime::Event> events;
  for (const runtime::Stream stream : streams_) {
    Result<runtime::Event> event = record(stream, 0);
    if (!event.ok()) {
      for (const runtime::Event recorded : events) give_back(recorded);
      return event.status();
    }
    events.push_back(*event);
  }
  return events;
}

Result<std::byte*> DeviceStreams::ring_of(size_t stream) {
  std::lock_guard lock(mutex_);
  if (rings_[stream] == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(void* const memory, runtime::allocate_pinned({device_, options_.ring_bytes}));
    rings_[stream] = static_cast<std::byte*>(memory);
  }
  return rings_[stream];
}

std::byte* DeviceStreams::packing_memory_of(size_t stream) {
  std::lock_guard lock(mutex_);
  if (!packing_[stream].has_value()) {
    const Result<void*> memory =
        runtime::allocate_on_device(streams_[stream], {device_, options_.packed_bytes});
    packing_[stream] = memory.ok() ? static_cast<std::byte*>(*memory) : nullptr;
  }
  return *packing_[stream];
}

Result<std::byte*> DeviceStreams::take_results(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (Results& results : results_) {
    if (results.is_taken || results.bytes < bytes) continue;
    results.is_taken = true;
    return results.memory;
  }
  const uint64_t rounded = std::bit_ceil(bytes);  // the next save may need a little more
  SHOAL_ASSIGN_OR_RETURN(void* const memory, runtime::allocate_pinned({device_, rounded}));
  results_.push_back({static_cast<std::byte*>(memory), rounded, true});
  return results_.back().memory;
}

void DeviceStreams::give_back_results(std::byte* memory) {
  std::lock_guard lock(mutex_);
  std::ranges::find(results_, memory, &Results::memory)->is_taken = false;
}

Status DeviceStreams::drain() {
  Status first;
  for (const runtime::Stream stream : streams_) {
    const Status status = runtime::synchronize(stream, {device_});
    if (first.ok()) first = status;
  }
  return first;
}

Devices::Devices(const DeviceStagerOptions& options, int count)
    : options_(options), count_(count), process_(::getpid()) {}

Devices::~Devices() {
  if (check_process().ok()) return;
  for (auto& [device, streams] : by_device_) {
    if (streams != nullptr) streams->abandon();
  }
}

Status Devices::check_process() const {
  if (::getpid() == process_) return ok_status();
  return Status(Code::refused, "process " + std::to_string(::getpid()) + " was forked from process " +
                                   std::to_string(process_) +
                                   ", which uses devices: CUDA does not work in a forked process, so open a "
                                   "Checkpointer in a new one");
}

Status Devices::check_device(int device) const {
  if (device >= 0 && device < count_) return ok_status();
  return Status(Code::invalid_argument, "there is no device " + std::to_string(device) +
                                            ": cudaGetDeviceCount counts " + std::to_string(count_));
}

Result<DeviceStreams*> Devices::streams_of(int device) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<DeviceStreams>& streams = by_device_[device];
  if (streams == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(streams, DeviceStreams::make(device, options_));
  }
  return streams.get();
}

void Devices::drain() {
  std::lock_guard lock(mutex_);
  for (auto& [device, streams] : by_device_) {
    if (streams != nullptr) (void)streams->drain();  // a device that is lost writes nothing any more
  }
}

Status Devices::pin(int device, MutableByteView memory) {
  std::lock_guard lock(mutex_);
  if (options_.pinned_bytes_max != 0 && memory.size() > options_.pinned_bytes_max - pinned_bytes_) {
    return Status(Code::no_space, "pinning " + std::to_string(memory.size()) + " bytes on device " +
                                      std::to_string(device) + ": " + std::to_string(pinned_bytes_) +
                                      " bytes of at most " + std::to_string(options_.pinned_bytes_max) +
                                      " are pinned");
  }
  for (uint64_t at = 0; at < memory.size(); at += options_.register_bytes_max) {
    const uint64_t bytes = std::min<uint64_t>(options_.register_bytes_max, memory.size() - at);
    const Status status = runtime::register_memory(memory.data() + at, {device, bytes});
    if (status.ok()) continue;
    for (uint64_t done = 0; done < at; done += options_.register_bytes_max) {
      runtime::unregister_memory(memory.data() + done);
    }
    return status;
  }
  pinned_[memory.data()] = memory.size();
  pinned_bytes_ += memory.size();
  return ok_status();
}

void Devices::unpin(MutableByteView memory) {
  if (!check_process().ok()) return;
  drain();
  std::lock_guard lock(mutex_);
  pinned_.erase(memory.data());
  pinned_bytes_ -= memory.size();
  for (uint64_t at = 0; at < memory.size(); at += options_.register_bytes_max) {
    runtime::unregister_memory(memory.data() + at);
  }
}

const std::byte* Devices::pinned_part_end(const std::byte* target, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto after = pinned_.upper_bound(target);
  if (after == pinned_.begin()) return nullptr;
  const auto& [begin, size] = *std::prev(after);
  const auto offset = static_cast<uint64_t>(target - begin);
  if (offset >= size || bytes > size - offset) return nullptr;
  const uint64_t part = offset / options_.register_bytes_max;
  return begin + std::min<uint64_t>(size, (part + 1) * options_.register_bytes_max);
}

}  // namespace shoal::gpu
