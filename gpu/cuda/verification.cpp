#include "gpu/cuda/verification.h"

#include <algorithm>

#include "base/digest/digest.h"

namespace shoal::gpu {

Result<std::unique_ptr<Verification>> Verification::begin(DeviceStreams& streams,
                                                          std::span<const DeviceBatch* const> batches) {
  std::unique_ptr<Verification> made(new Verification(streams));
  for (const DeviceBatch* batch : batches) {
    for (const DeviceCopy& copy : batch->copies) made->add(copy);
  }
  if (made->blocks_ == 0) return made;
  SHOAL_RETURN_IF_ERROR(made->allocate().with_context("verify_unchanged"));
  SHOAL_RETURN_IF_ERROR(made->digest(made->memory_));
  for (const runtime::Stream stream : streams.streams()) {
    if (stream != made->first()) SHOAL_RETURN_IF_ERROR(made->make_wait(stream, made->first()));
  }
  for (const DeviceBatch* batch : batches) {
    SHOAL_RETURN_IF_ERROR(made->make_wait(batch->queue.stream, made->first()));
  }
  return made;
}

Verification::~Verification() {
  if (memory_ != nullptr) runtime::free_on_device(memory_, first());
  if (results_ != nullptr) streams_.give_back_results(reinterpret_cast<std::byte*>(results_));
}

void Verification::add(const DeviceCopy& copy) {
  if (copy.row_bytes == 0 || copy.rows == 0) return;
  const uint64_t bytes = copy.row_bytes + (copy.rows - 1) * copy.source_stride;
  if (lists_.empty() || lists_.back().count == DigestList::kMost) lists_.emplace_back();
  append_digest_piece({copy.source, nullptr, bytes}, &lists_.back());
  leaves_most_ = std::max(leaves_most_, lists_.back().leaves);
  sources_.push_back({copy.tag, base::digest_count(bytes)});
  blocks_ += sources_.back().blocks;
}

Status Verification::allocate() {
  const uint64_t bytes = result_bytes() + leaves_most_ * sizeof(uint64_t);
  SHOAL_ASSIGN_OR_RETURN(void* const memory,
                         runtime::allocate_on_device(first(), {streams_.device(), bytes}));
  memory_ = static_cast<uint64_t*>(memory);
  SHOAL_ASSIGN_OR_RETURN(std::byte* const results, streams_.take_results(result_bytes()));
  results_ = reinterpret_cast<uint64_t*>(results);
  return ok_status();
}

Status Verification::digest(uint64_t* digests) {
  for (const DigestList& list : lists_) {
    SHOAL_RETURN_IF_ERROR(
        runtime::digest(list, memory_ + 2 * blocks_, digests, first(), {streams_.device()}));
    digests += list.blocks;
  }
  return ok_status();
}

Status Verification::make_wait(void* waiting, runtime::Stream stream) {
  SHOAL_ASSIGN_OR_RETURN(const runtime::Event event, streams_.record(stream, 0));
  const Status status = runtime::wait_event(waiting, event, {streams_.device()});
  streams_.give_back(event);
  return status;
}

Status Verification::end() {
  if (blocks_ == 0) return ok_status();
  for (const runtime::Stream stream : streams_.streams()) {
    if (stream != first()) SHOAL_RETURN_IF_ERROR(make_wait(first(), stream));
  }
  SHOAL_RETURN_IF_ERROR(digest(memory_ + blocks_));
  return runtime::copy(results_, memory_, runtime::Direction::to_host, first(),
                       {streams_.device(), result_bytes()});
}

std::optional<uint32_t> Verification::changed() const {
  const uint64_t* before = results_;
  for (const Source& source : sources_) {
    if (!std::equal(before, before + source.blocks, before + blocks_)) return source.tag;
    before += source.blocks;
  }
  return std::nullopt;
}

}  // namespace shoal::gpu
