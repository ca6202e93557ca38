// PieceReader: verified bytes of stored pieces. It reads them from their own files. If these are damaged or
// missing, it reads copies that other ranks have written.
#pragma once

#include <optional>
#include <utility>

#include "actors/executor/open_shards.h"
#include "actors/operation.h"

namespace shoal::actors {

// All methods may be called on any thread.
class PieceReader {
 public:
  explicit PieceReader(storage::Storage& storage) : storage_(storage), shards_(storage) {}

  // Reads the range to its place in the slab. Reads a block that its own file lacks from the first copy that
  // has it, and adds it to `damage`. If the header of the own file is sound, the copy must have the digest in
  // that header. An error names the tensor, the rank that wrote it, the bytes of the file, and the copies
  // that were tried. Code::invalid_argument: begin is after end, or the range is not whole blocks.
  Status read(const operation::ReadRange& range, MutableByteView slab, DamageList* damage);
  // Where the ranges are in files. A range whose own file cannot be used has none; read() returns the cause.
  LocatedRanges locate(const std::vector<operation::ReadRange>& ranges);
  // Whether `bytes`, which another host sent, are those of the range. Compares them with the digests in the
  // header of the range's file, which the manifest proves, or of a copy if that header cannot be read. Reads
  // only headers. Code::corrupt: they differ.
  Status check(const operation::ReadRange& range, ByteView bytes);
  // Read, or accept from another host, the header of the piece's file: see OpenShards.
  Result<Bytes> read_header(const operation::PieceRef& piece, uint64_t bytes_most) {
    return shards_.read_header(piece, bytes_most);
  }
  Status take_header(const operation::PieceRef& piece, ByteView header) {
    return shards_.take_header(piece, header);
  }
  void close(const AttemptKey& key) { shards_.close(key); }
  // Every operation that reads pieces, all of one attempt, holds one.
  OpenShards::Use use(std::optional<AttemptKey> key) { return OpenShards::Use(shards_, std::move(key)); }
  // The length of an object. Does not report damage: a later read does. An error names the copies that were
  // tried.
  Result<uint64_t> measure(const operation::PieceRef& piece);

 private:
  struct Block {
    uint64_t begin = 0, end = 0;  // bytes [begin, end) of the piece
    MutableByteView out;
  };
  Status read_from(const OpenShards::Found& found, const Block& block) const;
  Status read_copy(const Result<OpenShards::Found>& own, const operation::PieceRef& copy, const Block& block);
  Status read_block(const operation::PieceRef& piece, const Result<OpenShards::Found>& own,
                    const Block& block, DamageList* damage);

  storage::Storage& storage_;
  OpenShards shards_;
};

}  // namespace shoal::actors
