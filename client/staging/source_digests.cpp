#include "client/staging/source_digests.h"

#include <bit>

#include "shoal/hash.h"

namespace shoal::client {

namespace {

uint64_t digest_of(const gpu::CopyTask& task) {
  uint64_t digest = 0;
  for (uint64_t row = 0; row < task.rows; ++row) {
    const std::span bytes(task.source + row * task.source_stride, task.row_bytes);
    digest = std::rotl(digest, 1) ^ xxh3_64(bytes);
  }
  return digest;
}

}  // namespace

SourceDigests::SourceDigests(std::span<const gpu::CopyTask> tasks) : tasks_(tasks) {
  digests_.reserve(tasks.size());
  for (const gpu::CopyTask& task : tasks) digests_.push_back(digest_of(task));
}

std::optional<uint32_t> SourceDigests::changed() const {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (digest_of(tasks_[i]) != digests_[i]) return tasks_[i].tag;
  }
  return std::nullopt;
}

}  // namespace shoal::client
