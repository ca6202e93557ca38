#include "actors/executor/part_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "actors/executor/operation_runner.h"
#include "base/digest/digest.h"
#include "storage/shards/shard_stream.h"

namespace shoal::actors {

namespace {

constexpr uint64_t kHalves = 2;

}  // namespace

std::vector<local::PartRange> PartCursor::next(uint64_t slab_offset) {
  std::vector<local::PartRange> ranges;
  uint64_t used = 0;
  while (piece_ < data_.size() && ranges.size() < local::kMaxPartRanges) {
    const uint64_t left = data_[piece_].bytes - done_;
    if (left == 0) {
      ++piece_;
      done_ = 0;
      continue;
    }
    const uint64_t room = part_bytes_ - std::min(used, part_bytes_);
    const uint64_t bytes = left <= room ? left : room / base::kDigestBlockBytes * base::kDigestBlockBytes;
    if (bytes == 0) break;
    ranges.push_back({data_[piece_].offset + done_, bytes, slab_offset + used});
    used += (bytes + kPartAlignmentBytes - 1) / kPartAlignmentBytes * kPartAlignmentBytes;
    done_ += bytes;
  }
  return ranges;
}

Result<storage::WrittenShard> write_shard_in_parts(storage::Storage& storage, const std::string& path,
                                                   const Nonce& nonce, const operation::WriteShard& write,
                                                   ByteView slab, PartSource& source,
                                                   std::atomic<uint64_t>* bytes_done) {
  const uint64_t half = slab.size() / kHalves / base::kDigestBlockBytes * base::kDigestBlockBytes;
  if (half == 0) {
    return Status(Code::invalid_argument,
                  fmt::format("a slab of {} bytes is too small to stage in parts", slab.size()));
  }
  SHOAL_ASSIGN_OR_RETURN(
      storage::ShardStream stream,
      storage::ShardStream::create(storage, path, nonce, write.pieces.vector(), write.user, bytes_done));
  struct Part {
    std::vector<local::PartRange> ranges;
    uint64_t number = 0;
  };
  PartCursor cursor(write.data.vector(), half);
  std::array<Part, kHalves> parts;
  auto ask = [&](size_t which) {
    parts[which].ranges = cursor.next(which * half);
    if (!parts[which].ranges.empty()) parts[which].number = source.ask(parts[which].ranges);
  };
  for (size_t which = 0; which < kHalves; ++which) ask(which);
  for (size_t which = 0; !parts[which].ranges.empty(); which = (which + 1) % kHalves) {
    SHOAL_RETURN_IF_ERROR(source.wait(parts[which].number));
    for (const local::PartRange& range : parts[which].ranges) {
      SHOAL_RETURN_IF_ERROR(stream.append(slab.subspan(range.slab_offset, range.bytes)));
    }
    ask(which);
  }
  return stream.publish();
}

}  // namespace shoal::actors
