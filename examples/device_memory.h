// DeviceMemory: the memory of one CUDA device, as a trainer has it. A framework would provide it.
#pragma once

#include <memory>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::example {

class DeviceMemory {
 public:
  // The device number `rank` modulo the number of devices. Code::unavailable: this program was built without
  // CUDA, or this host has no device.
  static Result<std::unique_ptr<DeviceMemory>> open(uint32_t rank);
  virtual ~DeviceMemory() = default;

  virtual int device() const = 0;
  virtual void* stream() const = 0;  // on which the copies below run
  // The memory is freed with this object.
  virtual Result<void*> allocate(uint64_t bytes) = 0;
  // Both return when the bytes are there.
  virtual Status to_device(void* target, ByteView source) = 0;
  virtual Status to_host(MutableByteView target, const void* source) = 0;
};

}  // namespace shoal::example
