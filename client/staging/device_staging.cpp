#include "client/staging/device_staging.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "shoal/bytes.h"
#include "shoal/check.h"

namespace shoal::client {

DeviceStaging::DeviceStaging(std::string who, uint64_t pinned_bytes_max)
    : who_(std::move(who)), pinned_bytes_max_(pinned_bytes_max) {}

DeviceStaging::~DeviceStaging() {
  {
    std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Status DeviceStaging::check(const BoundState& state) {
  std::vector<Tensor> tensors;
  tensors.reserve(checked_.size());
  size_t known = 0;  // as many as the last state named too
  for (uint32_t entry = 0; entry < state.values().size(); ++entry) {
    const BoundState::Value& value = state.values()[entry];
    const std::string& fqn = state.entry_of(entry).fqn;
    for (uint32_t box = 0; box < value.shards().boxes.size(); ++box) {
      if (value.shards().boxes[box].empty()) continue;
      for (size_t copy = 0; copy < state.copies_of(entry, box); ++copy) {
        const MemoryRef memory = state.memory_of(entry, box, copy);
        if (!memory.is_on_device()) continue;
        const Tensor tensor{{memory.device(), memory.stream()}, memory.data()};
        if (known < checked_.size() && checked_[known] == tensor) {
          ++known;
          tensors.push_back(tensor);
          continue;
        }
        if (stager_ == nullptr) {
          gpu::DeviceStagerOptions options;
          options.pinned_bytes_max = pinned_bytes_max_;
          auto made = gpu::make_device_stager(options);
          if (!made.ok()) {
            return made.status().with_context(fmt::format("'{}' lies on device {}", fqn, memory.device()));
          }
          stager_ = std::move(*made);
        }
        const uint64_t bytes = state.home_of(entry, box, copy).whole.elements() * value.element_bytes;
        SHOAL_RETURN_IF_ERROR(
            stager_->check_memory(tensor.queue, tensor.data, bytes).with_context(fmt::format("'{}'", fqn)));
        tensors.push_back(tensor);
      }
    }
  }
  checked_ = std::move(tensors);
  return ok_status();
}

void DeviceStaging::pin(MemorySlab& slab) {
  if (slab.is_pinned() || slab.data() == nullptr || not_pinned_ == slab.data() || checked_.empty()) return;
  Result<std::shared_ptr<void>> pin =
      stager_->pin(checked_.front().queue.device, MutableByteView(slab.data(), slab.bytes()));
  if (pin.ok()) return slab.keep(std::move(*pin));
  not_pinned_ = slab.data();
  fmt::print(
      stderr,
      "shoal: {}: a slab is not pinned, so saves copy from devices through a ring of {} a stream, which "
      "is slower: {}\n",
      who_, human_bytes(gpu::DeviceStagerOptions{}.ring_bytes), pin.status().to_string());
}

Result<std::shared_ptr<gpu::DeviceWork>> DeviceStaging::to_host(const std::vector<gpu::DeviceBatch>& batches,
                                                                gpu::NameOfTag name_of) {
  SHOAL_CHECK(stager_ != nullptr);
  return stager_->to_host(batches, std::move(name_of));
}

Result<std::unique_ptr<gpu::DeviceUpload>> DeviceStaging::begin_upload() {
  if (checked_.empty()) return std::unique_ptr<gpu::DeviceUpload>();
  std::vector<gpu::Queue> queues;
  for (const Tensor& tensor : checked_) queues.push_back(tensor.queue);
  return stager_->begin_upload(queues);
}

void DeviceStaging::when_copied(std::shared_ptr<gpu::DeviceWork> copies,
                                std::function<void(const Status&)> then) {
  if (!thread_.joinable()) thread_ = std::thread([this] { wait_for_copies(); });
  std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(copies), std::move(then)});
  changed_.notify_all();
}

void DeviceStaging::wait_for_copies() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next.then(next.copies->wait(gpu::ThreadOf::shoal));
    lock.lock();
  }
}

}  // namespace shoal::client
