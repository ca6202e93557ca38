// MemorySlab: shared memory that the node maps too. It is a memfd, sealed against growing, shrinking and
// unsealing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "shoal/status.h"

namespace shoal::client {

class MemorySlab {
 public:
  // Faults in every page. Code::no_space: the kernel has no memory.
  static Result<MemorySlab> make(uint64_t bytes);
  // Faults in no page: the kernel allocates each when the node first writes to it.
  static Result<MemorySlab> make_empty(uint64_t bytes);
  MemorySlab() = default;
  MemorySlab(MemorySlab&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        pin_(std::move(other.pin_)) {}
  MemorySlab& operator=(MemorySlab&& other) noexcept;
  ~MemorySlab();

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  // Keeps what pins the memory, and destroys it before the memory is unmapped.
  void keep(std::shared_ptr<void> pin) { pin_ = std::move(pin); }
  bool is_pinned() const { return pin_ != nullptr; }

 private:
  base::OwnedFd fd_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::shared_ptr<void> pin_;
};

// The size to allocate for a save of `bytes` bytes. It adds a sixteenth, so that objects whose length changes
// from save to save seldom need a new slab.
uint64_t slab_bytes_for(uint64_t bytes);

}  // namespace shoal::client
