#include "actors/node/clients/slab_table.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "actors/executor/operation_runner.h"
#include "actors/node/clients/staged_parts.h"
#include "base/owned_fd.h"

namespace shoal::actors {

namespace {

// Slabs up to this size are mapped with all pages at once, at a fifth of the cost of as many page faults.
// Pages of larger ones are mapped when they are touched.
constexpr uint64_t kPopulateBytesMax = uint64_t{64} << 20;
constexpr uint64_t kBlockBytes = 512;  // unit of st_blocks

// A window of loads has no pages when it comes. They are allocated when a load may use them.
bool has_all_pages(int fd, uint64_t bytes) {
  struct stat stat {};
  return fstat(fd, &stat) == 0 && static_cast<uint64_t>(stat.st_blocks) * kBlockBytes >= bytes;
}

Status bad_slab(const local::Slab& slab, std::string_view why) {
  return Status(Code::invalid_argument, fmt::format("slab {}: {}", slab.slab_id, why));
}

}  // namespace

Status SlabTable::add(ClientId client, const local::Slab& slab, base::OwnedFd fd) {
  if (!fd.valid()) return bad_slab(slab, "the client sent no descriptor with it");
  SHOAL_RETURN_IF_ERROR(
      local::check_slab(fd.get(), slab.bytes).with_context(fmt::format("slab {}", slab.slab_id)));
  View view;
  if (size_t size = slab.bytes; size > 0) {
    const int flags =
        MAP_SHARED | (size <= kPopulateBytesMax && has_all_pages(fd.get(), size) ? MAP_POPULATE : 0);
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
    if (address == MAP_FAILED) return bad_slab(slab, fmt::format("mmap: {}", std::strerror(errno)));
    view.keep = std::shared_ptr<void>(address, [size](void* mapped) { munmap(mapped, size); });
    view.bytes = MutableByteView(static_cast<std::byte*>(address), slab.bytes);
  }

  std::lock_guard lock(mutex_);
  auto first = slabs_.lower_bound({client, 0});
  auto last = slabs_.upper_bound({client, std::numeric_limits<uint32_t>::max()});
  bool is_new = slabs_.find({client, slab.slab_id}) == slabs_.end();
  if (is_new && static_cast<size_t>(std::distance(first, last)) >= local::kMaxSlabsPerClient) {
    return bad_slab(slab, fmt::format("a client may have at most {} slabs", local::kMaxSlabsPerClient));
  }
  slabs_[{client, slab.slab_id}] = std::move(view);
  return ok_status();
}

Result<Slabs::View> SlabTable::find(ClientId client, uint32_t slab_id) {
  std::lock_guard lock(mutex_);
  auto it = slabs_.find({client, slab_id});
  if (it == slabs_.end()) return Status(Code::not_found, fmt::format("slab {} was never offered", slab_id));
  return it->second;
}

Status SlabTable::release(ClientId client, uint32_t slab_id) {
  SHOAL_ASSIGN_OR_RETURN(const View view, find(client, slab_id));
  if (view.bytes.empty()) return ok_status();
  if (::madvise(view.bytes.data(), view.bytes.size(), MADV_REMOVE) == 0) return ok_status();
  return Status(Code::io,
                fmt::format("slab {}: its pages cannot be released: {}", slab_id, std::strerror(errno)));
}

Result<std::unique_ptr<PartSource>> SlabTable::parts_of(ClientId client, uint32_t slab_id,
                                                        const AttemptKey& key) {
  if (parts_ == nullptr) return Slabs::parts_of(client, slab_id, key);
  return parts_->open(client, slab_id, key);
}

void SlabTable::stage_by(StagedParts& parts) {
  parts_ = &parts;
}

void SlabTable::keep_only(ClientId client, uint32_t below, const std::vector<uint32_t>& slab_ids) {
  std::lock_guard lock(mutex_);
  for (auto slab = slabs_.lower_bound({client, 0}); slab != slabs_.lower_bound({client, below});) {
    const bool is_kept = std::find(slab_ids.begin(), slab_ids.end(), slab->first.second) != slab_ids.end();
    slab = is_kept ? std::next(slab) : slabs_.erase(slab);
  }
}

void SlabTable::forget(ClientId client) {
  std::lock_guard lock(mutex_);
  slabs_.erase(slabs_.lower_bound({client, 0}),
               slabs_.upper_bound({client, std::numeric_limits<uint32_t>::max()}));
}

bool SlabTable::empty() const {
  std::lock_guard lock(mutex_);
  return slabs_.empty();
}

uint64_t SlabTable::bytes() const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [of, slab] : slabs_) bytes += slab.bytes.size();
  return bytes;
}

}  // namespace shoal::actors
