// SourceDigests: finds host memory of a state that changes while it is copied
// (SaveOptions::verify_unchanged).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpu/stager.h"

namespace shoal::client {

class SourceDigests {
 public:
  // Digests what `tasks` will copy. The tasks must outlive this object.
  explicit SourceDigests(std::span<const gpu::CopyTask> tasks);
  // The tag of the first task whose source differs from what was digested. A change that was undone meanwhile
  // is not seen.
  std::optional<uint32_t> changed() const;

 private:
  std::span<const gpu::CopyTask> tasks_;
  std::vector<uint64_t> digests_;
};

}  // namespace shoal::client
