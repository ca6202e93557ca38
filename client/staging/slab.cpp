#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/owned_fd.h"
#include "client/staging/slab.h"
#include "shoal/bytes.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace shoal::client {

namespace {

constexpr uint64_t kGranuleBytes = uint64_t{2} << 20;  // a huge page
constexpr uint64_t kGrowthParts = 16;

Status failed(const char* what, uint64_t bytes) {
  const Code code = errno == ENOMEM || errno == ENOSPC || errno == EFAULT ? Code::no_space : Code::io;
  return Status(
      code, fmt::format("cannot make a slab of {}: {}: {}", human_bytes(bytes), what, std::strerror(errno)));
}

// The limit of the size of files applies to shared memory too, and the kernel ends a process that exceeds it.
Status check_file_limit(uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur) {
    return ok_status();
  }
  return Status(Code::no_space,
                fmt::format("cannot make a slab of {}: this process may make files of at most {} "
                            "(raise or remove the limit: ulimit -f)",
                            human_bytes(bytes), human_bytes(limit.rlim_cur)));
}

Status fault_in(int fd, std::byte* data, uint64_t bytes) {
  ::madvise(data, bytes, MADV_HUGEPAGE);  // has an effect if the system allows huge pages for shared memory
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return ok_status();
  if (errno != EINVAL) return failed("MADV_POPULATE_WRITE", bytes);
  // For kernels before 5.14: allocating first turns a lack of memory into an error instead of a signal.
  if (int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    errno = error;
    return failed("posix_fallocate", bytes);
  }
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (uint64_t at = 0; at < bytes; at += page) *static_cast<volatile std::byte*>(data + at) = std::byte{0};
  return ok_status();
}

}  // namespace

Result<MemorySlab> MemorySlab::make(uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(MemorySlab slab, make_empty(bytes));
  SHOAL_RETURN_IF_ERROR(fault_in(slab.fd(), slab.data_, bytes));
  return slab;
}

Result<MemorySlab> MemorySlab::make_empty(uint64_t bytes) {
  if (bytes == 0 || bytes > local::kMaxSlabBytes) {
    return Status(Code::too_large,
                  fmt::format("a slab has {} bytes: at most {} are allowed", bytes, local::kMaxSlabBytes));
  }
  MemorySlab slab;
  slab.fd_ = base::OwnedFd(::memfd_create("shoal-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!slab.fd_.valid()) return failed("memfd_create", bytes);
  SHOAL_RETURN_IF_ERROR(check_file_limit(bytes));
  if (::ftruncate(slab.fd(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate", bytes);
  if (::fcntl(slab.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("F_ADD_SEALS", bytes);
  }
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab.fd(), 0);
  if (mapped == MAP_FAILED) return failed("mmap", bytes);
  slab.data_ = static_cast<std::byte*>(mapped);
  slab.bytes_ = bytes;
  return slab;
}

MemorySlab& MemorySlab::operator=(MemorySlab&& other) noexcept {
  if (this == &other) return *this;
  pin_.reset();
  if (data_) ::munmap(data_, bytes_);
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  pin_ = std::move(other.pin_);
  return *this;
}

MemorySlab::~MemorySlab() {
  pin_.reset();
  if (data_) ::munmap(data_, bytes_);
}

uint64_t slab_bytes_for(uint64_t bytes) {
  const uint64_t granule = std::max(kGranuleBytes, std::bit_floor(bytes) / kGrowthParts);
  return std::max<uint64_t>(1, (bytes + granule - 1) / granule) * granule;
}

}  // namespace shoal::client
