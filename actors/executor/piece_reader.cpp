#include "actors/executor/piece_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/digest/digest.h"

namespace shoal::actors {

namespace {

operation::PieceRef at_place(const operation::PieceRef& piece, const operation::PiecePlace& place) {
  return {place, piece.key, piece.fqn, piece.kind, piece.dtype, piece.box, {}};
}

std::string path_of(const operation::PieceRef& piece) {
  return storage::attempt_folder(piece.key) + "/" + piece.file_name;
}

std::string name_of(const operation::PieceRef& piece) {
  std::string name = fmt::format("'{}'", piece.fqn);
  if (piece.kind == LayoutEntry::Kind::tensor) name += fmt::format(" {}", to_string(piece.box));
  return fmt::format("{}, written by rank {}", name, piece.rank);
}

std::string nor_copy(const operation::PiecePlace& place, const Status& why) {
  return fmt::format("; the copy of rank {} cannot be used either: {}", place.rank, why.message());
}

bool states(const OpenShards::Found& found, const operation::ReadRange& range,
            const std::vector<uint64_t>& digests) {
  if (range.end > found.shard->pieces().bytes(found.piece)) return false;
  return std::ranges::equal(found.shard->digests(found.piece, range.begin, range.end), digests);
}

}  // namespace

Status PieceReader::read(const operation::ReadRange& range, MutableByteView slab, DamageList* damage) {
  if (range.begin > range.end || range.begin % base::kDigestBlockBytes != 0) {
    return Status(Code::invalid_argument, fmt::format("{}: bytes {} to {} are not whole digest blocks",
                                                      name_of(*range.piece), range.begin, range.end));
  }
  const uint64_t bytes = range.end - range.begin;
  if (range.slab_offset > slab.size() || bytes > slab.size() - range.slab_offset) {
    return Status(Code::invalid_argument,
                  fmt::format("{}: bytes {} to {} do not fit at {} of a slab of {} bytes",
                              name_of(*range.piece), range.begin, range.end, range.slab_offset, slab.size()));
  }
  const MutableByteView out = slab.subspan(range.slab_offset, bytes);
  auto own = shards_.find(*range.piece);
  if (own.ok()) {
    Status all = read_from(*own, {range.begin, range.end, out});
    if (all.ok() || all.code() == Code::invalid_argument) return all;
  } else if (own.status().code() == Code::invalid_argument) {
    return own.status();
  }
  // Reads block by block: sound blocks come from the file, and each damaged one is reported.
  uint64_t begin = range.begin;
  do {
    const uint64_t end = std::min(range.end, begin + base::kDigestBlockBytes);
    const Block block{begin, end, out.subspan(begin - range.begin, end - begin)};
    SHOAL_RETURN_IF_ERROR(read_block(*range.piece, own, block, damage));
    begin = end;
  } while (begin < range.end);
  return ok_status();
}

LocatedRanges PieceReader::locate(const std::vector<operation::ReadRange>& ranges) {
  LocatedRanges located;
  located.places.reserve(ranges.size());
  std::unordered_map<std::string, uint32_t> numbers;  // number of each file
  for (const operation::ReadRange& range : ranges) {
    LocatedRanges::Place& place = located.places.emplace_back();
    const auto found = shards_.find(*range.piece);
    if (!found.ok()) continue;
    const uint64_t piece_bytes = found->shard->pieces().bytes(found->piece);
    const bool is_whole = range.begin % base::kDigestBlockBytes == 0 &&
                          (range.end % base::kDigestBlockBytes == 0 || range.end == piece_bytes);
    if (range.begin > range.end || range.end > piece_bytes || !is_whole) continue;
    const auto [number, is_new] = numbers.try_emplace(found->shard->path(), located.files.size());
    if (is_new) located.files.push_back(found->shard->path());
    place = {number->second, found->shard->file_offset(found->piece) + range.begin};
    const auto digests = found->shard->digests(found->piece, range.begin, range.end);
    located.digests.insert(located.digests.end(), digests.begin(), digests.end());
  }
  return located;
}

Status PieceReader::check(const operation::ReadRange& range, ByteView bytes) {
  const operation::PieceRef& piece = *range.piece;
  std::vector<uint64_t> digests;
  base::digest_blocks(bytes, &digests);
  const auto own = shards_.find(piece);
  bool is_so = own.ok() && states(*own, range, digests);
  bool is_known = own.ok();
  for (size_t i = 0; !own.ok() && !is_so && i < piece.copies.size(); ++i) {
    const auto copy = shards_.find(at_place(piece, piece.copies[i]));
    is_known = is_known || copy.ok();
    is_so = copy.ok() && states(*copy, range, digests);
  }
  if (!is_known) return own.status().with_context(name_of(piece));
  if (is_so) return ok_status();
  return Status(Code::corrupt, fmt::format("{}: bytes {} to {} differ from those of {}", name_of(piece),
                                           range.begin, range.end, path_of(piece)));
}

Result<uint64_t> PieceReader::measure(const operation::PieceRef& piece) {
  auto found = shards_.find(piece);
  const Status own = found.status();
  std::string others;
  for (size_t i = 0; !found.ok() && i < piece.copies.size(); ++i) {
    found = shards_.find(at_place(piece, piece.copies[i]));
    if (!found.ok()) others += nor_copy(piece.copies[i], found.status());
  }
  if (!found.ok()) {
    return Status(own.code(), fmt::format("{}: {}{}", name_of(piece), own.message(), others));
  }
  return found->shard->pieces().bytes(found->piece);
}

Status PieceReader::read_from(const OpenShards::Found& found, const Block& block) const {
  const storage::ShardPieces& pieces = found.shard->pieces();
  auto invalid = [&](std::string_view what) {
    return Status(Code::invalid_argument,
                  fmt::format("{}/{}: '{}': bytes {} to {} {}", storage_.describe(), found.shard->path(),
                              pieces.key(found.piece), block.begin, block.end, what));
  };
  const uint64_t piece_bytes = pieces.bytes(found.piece);
  if (block.end > piece_bytes) return invalid(fmt::format("lie beyond a piece of {} bytes", piece_bytes));
  if (block.end % base::kDigestBlockBytes != 0 && block.end != piece_bytes) {
    return invalid("are not whole digest blocks");
  }
  uint64_t first = 0;
  SHOAL_RETURN_IF_ERROR(found.shard->read_verified(found.piece, block.begin, block.end, block.out, &first));
  SHOAL_CHECK(first == block.begin);
  return ok_status();
}

// Rejects a copy whose rank wrote other bytes, although the layouts declare it equal.
Status PieceReader::read_copy(const Result<OpenShards::Found>& own, const operation::PieceRef& copy,
                              const Block& block) {
  SHOAL_ASSIGN_OR_RETURN(OpenShards::Found found, shards_.find(copy));
  if (!own.ok()) return read_from(found, block);
  const bool as_long = own->shard->pieces().bytes(own->piece) == found.shard->pieces().bytes(found.piece);
  const auto stated = own->shard->digests(own->piece, block.begin, block.end);
  if (as_long && std::ranges::equal(stated, found.shard->digests(found.piece, block.begin, block.end))) {
    return read_from(found, block);
  }
  return Status(Code::corrupt,
                fmt::format("{}/{}: block {} of '{}' differs from the digest in {}", storage_.describe(),
                            found.shard->path(), block.begin / base::kDigestBlockBytes, copy.piece_key,
                            own->shard->path()));
}

Status PieceReader::read_block(const operation::PieceRef& piece, const Result<OpenShards::Found>& own,
                               const Block& block, DamageList* damage) {
  const Status why = own.ok() ? read_from(*own, block) : own.status();
  if (why.ok() || why.code() == Code::invalid_argument) return why;
  ReadDamage found{piece.fqn, piece.box,     piece.rank, path_of(piece),         0,
                   0,         why.message(), "",         block.end - block.begin};
  std::string name = name_of(piece);
  if (own.ok()) {
    found.begin = own->shard->file_offset(own->piece) + block.begin;
    found.end = found.begin + (block.end - block.begin);
    name += fmt::format(", bytes {} to {} of the file", found.begin, found.end);
  }
  std::string others;
  for (const operation::PiecePlace& place : piece.copies) {
    const operation::PieceRef copy = at_place(piece, place);
    const Status status = read_copy(own, copy, block);
    if (status.ok()) {
      found.read_instead = path_of(copy);
      damage->add(std::move(found));
      return ok_status();
    }
    others += nor_copy(place, status);
  }
  return Status(why.code(), fmt::format("{}: {}{}", name, why.message(), others));
}

}  // namespace shoal::actors
