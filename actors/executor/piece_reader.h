// PieceReader: verified bytes of stored pieces, from their own files or, where these are damaged or gone,
// from copies that other ranks have written.
#pragma once

#include "actors/executor/open_shards.h"
#include "actors/operation.h"

namespace shoal::actors {

// Any thread.
class PieceReader {
 public:
  explicit PieceReader(storage::Storage& storage) : storage_(storage), shards_(storage) {}

  // Reads the range to its place in the slab. A block that its own file does not give is read from the first
  // copy that does, and added to `damage`; while the file's header is whole, a copy must have the digest that
  // it states. An error names the tensor, the rank that wrote it and the bytes of the file, and the copies
  // that were tried. Code::invalid_argument: the range is none, or not of whole blocks.
  Status read(const operation::ReadRange& range, MutableByteView slab, DamageList* damage);
  // Where the ranges lie. One whose own file cannot be used, for whatever reason, has none: read() names it.
  LocatedRanges locate(const std::vector<operation::ReadRange>& ranges);
  // Whether bytes that came from elsewhere are those of the range: by the digests in its file's header, which
  // the manifest vouches for, or where that header cannot be read, in that of a copy. Nothing but headers is
  // read. Code::corrupt: they are not.
  Status check(const operation::ReadRange& range, ByteView bytes);
  // The header of the piece's file, and what came from elsewhere as such: see OpenShards.
  Result<Bytes> read_header(const operation::PieceRef& piece, uint64_t bytes_most) {
    return shards_.read_header(piece, bytes_most);
  }
  Status take_header(const operation::PieceRef& piece, ByteView header) {
    return shards_.take_header(piece, header);
  }
  void close(const AttemptKey& key) { shards_.close(key); }
  // The length of an object. Reading it tells what is damaged. An error names the copies that were tried.
  Result<uint64_t> measure(const operation::PieceRef& piece);

 private:
  struct Block {
    uint64_t begin = 0, end = 0;  // of the piece
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
