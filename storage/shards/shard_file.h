// Shard files: plain safetensors files whose header contains a digest of every block.
// docs/reference/format.md, "Shards".
//
// Format: safetensors (https://github.com/huggingface/safetensors, README "Format"). Shoal puts these keys
// into __metadata__:
//   "format": "pt"
//   "DCP_SHARDING_INFO": PyTorch's key (torch 2.13, distributed/checkpoint/_hf_utils.py), a JSON text with
//       saved_offsets of every key, and Shoal's global_shape and logical_fqn
//   "shoal": a JSON text {"version":1, "objects":[keys]}
//   "shoal_digests": 16 hex digits per digest block, pieces in file order; each piece starts a new
//       block of 1 MiB
//   "shoal_user", if trainers gave metadata: a JSON text of the save's UserMetadata
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/hash.h"
#include "shoal/metadata.h"
#include "shoal/page_buffer.h"
#include "shoal/status.h"
#include "storage/storage.h"

namespace shoal::storage {

inline constexpr uint64_t kMaxShardHeaderBytes = 100'000'000;  // the limit of safetensors
inline constexpr uint64_t kShardDataAlignment = 4096;          // of the file offset of the first data byte
inline constexpr uint32_t kShardFormatVersion = 1;
inline constexpr size_t kMaxShardKeyBytes =
    4096 + 32;  // an fqn, plus a number if one file holds several of its pieces

struct ShardPiece {
  std::string key;  // in the file
  // The value that it belongs to. Equals `key` unless the file holds several pieces of one tensor.
  std::string fqn;
  DType dtype = DType::u8;
  bool is_object = false;
  Dims global_shape;  // empty for an object
  Box box;  // in global coordinates; its sizes are the shape in the file; an object has no dimensions
  uint64_t bytes = 0;
};

// The pieces that a shard's header lists, in file order. Names and numbers are stored in one buffer each,
// because a file may hold a hundred thousand tensors.
class ShardPieces {
 public:
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  ShardPiece operator[](size_t piece) const;  // a copy
  std::string_view key(size_t piece) const;
  uint64_t bytes(size_t piece) const { return end_of(piece) - entries_[piece].offset; }
  uint64_t offset(size_t piece) const { return entries_[piece].offset; }  // from the first data byte
  // Index of the piece's first digest among the digests of the file.
  uint64_t first_digest(size_t piece) const { return entries_[piece].first_digest; }
  std::optional<size_t> find(std::string_view key) const;  // requires sort()
  uint64_t memory_bytes() const;                           // approximate

  // Adds the next piece in file order; it begins where the previous one ends.
  void add(const ShardPiece& piece);
  struct Flat {
    std::string_view key, fqn;
    DType dtype = DType::u8;
    bool is_object = false;
    std::span<const uint64_t> global_shape, box_offsets, box_sizes;
    uint64_t bytes = 0;
  };
  void add(const Flat& piece);
  // Sorts the keys for find(). Returns a key that occurs twice, if there is one.
  std::optional<std::string> sort();
  void shrink();

  class Iterator {
   public:
    Iterator(const ShardPieces* pieces, size_t at) : pieces_(pieces), at_(at) {}
    ShardPiece operator*() const { return (*pieces_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const ShardPieces* pieces_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  struct Entry {
    uint64_t offset = 0;
    uint32_t name_at = 0, numbers_at = 0, first_digest = 0;
    uint16_t key_bytes = 0;
    uint16_t fqn_bytes = 0;  // follow the key; 0: fqn and key are equal
    uint8_t dims = 0;
    DType dtype = DType::u8;
    bool is_object = false;
    bool is_whole = false;  // the box is the whole tensor, so only the shape is stored
  };
  uint64_t end_of(size_t piece) const {
    return piece + 1 < entries_.size() ? entries_[piece + 1].offset : data_bytes_;
  }

  std::string_view text(size_t at, size_t bytes) const { return {names_.data() + at, bytes}; }

  PagedVector<Entry> entries_;
  PagedVector<char> names_;
  PagedVector<uint64_t> numbers_;  // per piece: global shape, then offsets and sizes of its box
  PagedVector<uint32_t> by_key_;   // empty if the file order is already sorted by key
  uint64_t data_bytes_ = 0, digests_ = 0;
};

struct WrittenShard {
  uint64_t size = 0;  // of the whole file
  Hash128 header_digest;
  uint64_t payload_bytes = 0;
};

// A key is 1 to kMaxShardKeyBytes bytes that is_clean_utf8 accepts, and not "__metadata__". Otherwise
// Code::invalid_argument.
Status validate_shard_key(std::string_view key);

// Computes the exact file size from the pieces. Code::too_large if the header exceeds the limit of
// safetensors. Code::invalid_argument if a piece does not fit its box, is not aligned to its element size
// (larger element types come first), or has a duplicate key.
Result<uint64_t> shard_file_bytes(const std::vector<ShardPiece>& pieces,
                                  const UserMetadataPtr& user = nullptr);

// Writes the pieces to `path` in one pass and computes their digests (data[i] has pieces[i].bytes bytes).
// Then patches the digests into the header and publishes the file. If the name is taken, verifies the
// existing file completely and reports it if it equals the new one; otherwise Code::already_exists. Does the
// same if there is no space for the new file. If bytes_done is not null, adds the written bytes to it, while
// the write runs.
Result<WrittenShard> write_shard(Storage& storage, const std::string& path, const Nonce& nonce,
                                 const std::vector<ShardPiece>& pieces, const std::vector<ByteView>& data,
                                 const UserMetadataPtr& user = nullptr,
                                 std::atomic<uint64_t>* bytes_done = nullptr);

// A shard that is open for reading. The header is parsed with bounded memory and, if a digest is given,
// checked against it.
class ShardReader {
 public:
  // Code::corrupt names the file and the defect. Files without Shoal's keys are rejected. `header`, if not
  // null, receives the header as it is in the file.
  static Result<std::unique_ptr<ShardReader>> open(Storage& storage, const std::string& path,
                                                   const Hash128* expected_header_digest,
                                                   const uint64_t* expected_size, Bytes* header = nullptr);
  // Opens a shard whose header is known already. Code::corrupt if the header does not match `digest` or
  // open() would reject it. The file is opened at the first read, which returns Code::corrupt if its size
  // differs. `storage` must outlive the reader.
  static Result<std::unique_ptr<ShardReader>> by_header(Storage& storage, const std::string& path,
                                                        ByteView header, const Hash128& digest,
                                                        uint64_t file_size);
  const ShardPieces& pieces() const { return pieces_; }
  const UserMetadataPtr& user() const { return user_; }
  std::optional<size_t> find(std::string_view key) const { return pieces_.find(key); }
  const Hash128& header_digest() const { return header_digest_; }
  uint64_t file_size() const { return file_size_; }
  const std::string& path() const { return path_; }
  uint64_t memory_bytes() const;
  uint64_t file_offset(size_t piece) const { return data_begin_ + pieces_.offset(piece); }

  // read_verified reads and verifies the digest blocks that cover bytes [begin, end) of a piece. On return
  // out[0] is byte `*first` of the piece (a block boundary). `out` must hold covering_bytes(). Any thread.
  uint64_t covering_bytes(size_t piece, uint64_t begin, uint64_t end) const;
  Status read_verified(size_t piece, uint64_t begin, uint64_t end, MutableByteView out,
                       uint64_t* first) const;
  // The header's digests of the blocks that cover bytes [begin, end) of a piece.
  std::span<const uint64_t> digests(size_t piece, uint64_t begin, uint64_t end) const;

 private:
  ShardReader(Storage& storage, const std::string& path)
      : storage_(storage), path_(path), full_path_(storage.describe() + "/" + path) {}
  Status corrupt(std::string_view what) const;
  Status take_header(ByteView header, const Hash128* expected_digest);
  Result<ReadFile*> file() const;

  Storage& storage_;
  const std::string path_;       // relative to the root
  const std::string full_path_;  // for errors
  mutable std::mutex opening_;
  mutable std::unique_ptr<ReadFile> file_;  // nullptr: not opened yet
  uint64_t file_size_ = 0;
  ShardPieces pieces_;
  uint64_t data_begin_ = 0;  // file offset of the first data byte
  std::vector<uint64_t> digests_;
  UserMetadataPtr user_;
  Hash128 header_digest_;
};

}  // namespace shoal::storage
