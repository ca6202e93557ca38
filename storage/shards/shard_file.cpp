#include "storage/shards/shard_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/digest/digest.h"
#include "shoal/page_buffer.h"
#include "storage/shards/shard_header.h"
#include "storage/shards/shard_stream.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kReadAheadBlocks = 4;  // being read from the disk while one is digested
constexpr uint64_t kVerifyWindowBytes =
    4 * base::kDigestBlockBytes;  // read at a time to verify an existing file

// OK if the file under this name equals the described one: header byte for byte, data block for block.
Status verify_existing(Storage& storage, const std::string& path, const WrittenShard& expected) {
  SHOAL_ASSIGN_OR_RETURN(auto reader,
                         ShardReader::open(storage, path, &expected.header_digest, &expected.size));
  Bytes window(kVerifyWindowBytes);
  for (size_t i = 0; i < reader->pieces().size(); ++i) {
    uint64_t bytes = reader->pieces().bytes(i);
    for (uint64_t begin = 0; begin < bytes; begin += kVerifyWindowBytes) {
      uint64_t end = std::min(bytes, begin + kVerifyWindowBytes), first = 0;
      SHOAL_RETURN_IF_ERROR(reader->read_verified(i, begin, end, window, &first));
    }
  }
  return ok_status();
}

WrittenShard described(const BuiltShardHeader& header) {
  return {header.bytes.size() + header.payload_bytes, xxh3_128(header.bytes), header.payload_bytes};
}

Result<WrittenShard> write_new(Storage& storage, const std::string& path, const Nonce& nonce,
                               const std::vector<ShardPiece>& pieces, const std::vector<ByteView>& data,
                               const UserMetadataPtr& user, std::atomic<uint64_t>* bytes_done) {
  SHOAL_ASSIGN_OR_RETURN(ShardStream stream,
                         ShardStream::create(storage, path, nonce, pieces, user, bytes_done));
  for (ByteView piece : data) SHOAL_RETURN_IF_ERROR(stream.append_kept(piece));
  return stream.publish();
}

// The file as write_new would write it, if the storage has it. It is durable then: the error of write_new may
// be that of its last step.
Result<WrittenShard> find_written(Storage& storage, const std::string& path,
                                  const std::vector<ShardPiece>& pieces, const std::vector<ByteView>& data,
                                  const UserMetadataPtr& user) {
  SHOAL_RETURN_IF_ERROR(storage.open(path).status());
  SHOAL_ASSIGN_OR_RETURN(BuiltShardHeader header, build_shard_header(pieces, user));
  uint64_t digests = 0;
  for (ByteView piece : data) {
    for (; !piece.empty(); piece = piece.subspan(std::min(piece.size(), base::kDigestBlockBytes))) {
      const ByteView block = piece.first(std::min(piece.size(), base::kDigestBlockBytes));
      put_digest(&header, digests++, base::block_digest(block));
    }
  }
  const WrittenShard expected = described(header);
  SHOAL_RETURN_IF_ERROR(verify_existing(storage, path, expected));
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(std::string(path, 0, path.find_last_of('/'))));
  return expected;
}

}  // namespace

Result<uint64_t> shard_file_bytes(const std::vector<ShardPiece>& pieces, const UserMetadataPtr& user) {
  SHOAL_ASSIGN_OR_RETURN(BuiltShardHeader header, build_shard_header(pieces, user));
  return header.bytes.size() + header.payload_bytes;
}

Result<WrittenShard> write_shard(Storage& storage, const std::string& path, const Nonce& nonce,
                                 const std::vector<ShardPiece>& pieces, const std::vector<ByteView>& data,
                                 const UserMetadataPtr& user, std::atomic<uint64_t>* bytes_done) {
  if (data.size() != pieces.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("{} buffers were given for {} shard pieces", data.size(), pieces.size()));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    if (data[i].size() == pieces[i].bytes) continue;
    return Status(Code::invalid_argument,
                  fmt::format("shard piece '{}': {} bytes were given, but {} announced", pieces[i].key,
                              data[i].size(), pieces[i].bytes));
  }
  Result<WrittenShard> written = write_new(storage, path, nonce, pieces, data, user, bytes_done);
  if (written.ok() || written.status().code() != Code::no_space) return written;
  // An earlier node may have written this file, and another file may have filled the disk since.
  Result<WrittenShard> earlier = find_written(storage, path, pieces, data, user);
  return earlier.ok() ? earlier : written;
}

Result<ShardStream> ShardStream::create(Storage& storage, const std::string& path, const Nonce& nonce,
                                        const std::vector<ShardPiece>& pieces, const UserMetadataPtr& user,
                                        std::atomic<uint64_t>* bytes_done) {
  SHOAL_ASSIGN_OR_RETURN(BuiltShardHeader header, build_shard_header(pieces, user));
  ShardStream stream(storage, path, std::move(header));
  stream.bytes_done_ = bytes_done;
  const uint64_t bytes = stream.header_.bytes.size() + stream.header_.payload_bytes;
  SHOAL_ASSIGN_OR_RETURN(stream.file_, storage.create(path, nonce, bytes));
  SHOAL_RETURN_IF_ERROR(stream.file_->append(stream.header_.bytes));
  return stream;
}

Status ShardStream::append(ByteView bytes) {
  return append(bytes, false);
}

Status ShardStream::append_kept(ByteView bytes) {
  return append(bytes, true);
}

// Works block by block, so that the write finds in cache what the digest has read.
Status ShardStream::append(ByteView bytes, bool are_kept) {
  appended_ += bytes.size();
  while (!bytes.empty()) {
    const ByteView block = bytes.first(std::min(bytes.size(), base::kDigestBlockBytes));
    SHOAL_CHECK(digests_ < header_.digests);
    put_digest(&header_, digests_++, base::block_digest(block));
    SHOAL_RETURN_IF_ERROR(are_kept ? file_->append_kept(block) : file_->append(block));
    if (bytes_done_ != nullptr) bytes_done_->fetch_add(block.size(), std::memory_order_relaxed);
    bytes = bytes.subspan(block.size());
  }
  return ok_status();
}

Result<WrittenShard> ShardStream::publish() {
  SHOAL_CHECK(digests_ == header_.digests && appended_ == header_.payload_bytes);
  SHOAL_RETURN_IF_ERROR(file_->patch(0, header_.bytes));
  const WrittenShard written = described(header_);
  SHOAL_ASSIGN_OR_RETURN(bool ours, file_->publish());
  if (ours) return written;
  Status same = verify_existing(*storage_, path_, written);
  if (same.ok()) return written;
  if (same.code() != Code::corrupt) return same;
  return Status(Code::already_exists, "another file has this name: " + same.message());
}

uint64_t ShardReader::memory_bytes() const {
  uint64_t bytes = pieces_.memory_bytes() + digests_.capacity() * sizeof(uint64_t);
  if (!user_) return bytes;
  for (const auto& [key, value] : *user_)
    bytes += key.size() + value.size() + sizeof(UserMetadata::value_type);
  return bytes;
}

Status ShardReader::corrupt(std::string_view what) const {
  return Status(Code::corrupt, fmt::format("{}: {}", full_path_, what));
}

Result<std::unique_ptr<ShardReader>> ShardReader::open(Storage& storage, const std::string& path,
                                                       const Hash128* expected_header_digest,
                                                       const uint64_t* expected_size, Bytes* header) {
  std::unique_ptr<ShardReader> reader(new ShardReader(storage, path));
  SHOAL_ASSIGN_OR_RETURN(reader->file_, storage.open(path));
  const uint64_t size = reader->file_size_ = reader->file_->size();
  if (expected_size != nullptr && size != *expected_size) {
    return reader->corrupt(fmt::format("has {} bytes, but {} are expected", size, *expected_size));
  }
  if (size < kLengthPrefixBytes)
    return reader->corrupt(fmt::format("{} bytes are too few for a shard", size));
  std::byte prefix[kLengthPrefixBytes];
  SHOAL_RETURN_IF_ERROR(reader->file_->read_at(0, prefix));
  uint64_t json_bytes = load_le64(prefix);
  if (json_bytes > kMaxShardHeaderBytes || json_bytes > size - kLengthPrefixBytes) {
    return reader->corrupt(
        fmt::format("it announces a header of {} bytes, but the file has {} and the limit is {}", json_bytes,
                    size, kMaxShardHeaderBytes));
  }
  const PageBuffer read(kLengthPrefixBytes + json_bytes);
  SHOAL_RETURN_IF_ERROR(reader->file_->read_at(0, read.bytes()));
  SHOAL_RETURN_IF_ERROR(reader->take_header(read.bytes(), expected_header_digest));
  if (header != nullptr) header->assign(read.bytes().begin(), read.bytes().end());
  return reader;
}

Result<std::unique_ptr<ShardReader>> ShardReader::by_header(Storage& storage, const std::string& path,
                                                            ByteView header, const Hash128& digest,
                                                            uint64_t file_size) {
  std::unique_ptr<ShardReader> reader(new ShardReader(storage, path));
  reader->file_size_ = file_size;
  if (header.size() < kLengthPrefixBytes || header.size() > file_size) {
    return reader->corrupt(
        fmt::format("{} bytes cannot be the header of a file of {} bytes", header.size(), file_size));
  }
  SHOAL_RETURN_IF_ERROR(reader->take_header(header, &digest));
  return reader;
}

Status ShardReader::take_header(ByteView header, const Hash128* expected_digest) {
  header_digest_ = xxh3_128(header);
  if (expected_digest != nullptr && header_digest_ != *expected_digest) {
    return corrupt("the header differs from its digest");
  }
  data_begin_ = header.size();
  if (data_begin_ % kShardDataAlignment != 0) {
    return corrupt(fmt::format("the data begins at byte {}, which is not a multiple of {}", data_begin_,
                               kShardDataAlignment));
  }
  auto parsed = parse_shard_header(as_text(header).substr(kLengthPrefixBytes), file_size_ - data_begin_);
  if (!parsed.ok()) return parsed.status().with_context(full_path_ + ": header");
  pieces_ = std::move(parsed->pieces);
  digests_ = std::move(parsed->digests);
  if (!parsed->user.empty()) user_ = std::make_shared<const UserMetadata>(std::move(parsed->user));
  return ok_status();
}

Result<ReadFile*> ShardReader::file() const {
  std::lock_guard lock(opening_);
  if (file_ != nullptr) return file_.get();
  SHOAL_ASSIGN_OR_RETURN(auto file, storage_.open(path_));
  if (file->size() != file_size_) {
    return corrupt(fmt::format("has {} bytes, but {} are expected", file->size(), file_size_));
  }
  file_ = std::move(file);
  return file_.get();
}

namespace {
struct Cover {
  uint64_t begin, end;
};
// The blocks that contain bytes [begin, end) of a piece.
Cover cover_of(uint64_t begin, uint64_t end, uint64_t piece_bytes) {
  if (begin == end)
    return {begin / base::kDigestBlockBytes * base::kDigestBlockBytes,
            begin / base::kDigestBlockBytes * base::kDigestBlockBytes};
  return {begin / base::kDigestBlockBytes * base::kDigestBlockBytes,
          std::min(base::digest_count(end) * base::kDigestBlockBytes, piece_bytes)};
}
}  // namespace

uint64_t ShardReader::covering_bytes(size_t piece, uint64_t begin, uint64_t end) const {
  SHOAL_CHECK(piece < pieces_.size() && begin <= end && end <= pieces_.bytes(piece));
  Cover cover = cover_of(begin, end, pieces_.bytes(piece));
  return cover.end - cover.begin;
}

std::span<const uint64_t> ShardReader::digests(size_t piece, uint64_t begin, uint64_t end) const {
  SHOAL_CHECK(piece < pieces_.size() && begin <= end && end <= pieces_.bytes(piece));
  const Cover cover = cover_of(begin, end, pieces_.bytes(piece));
  return std::span(digests_).subspan(pieces_.first_digest(piece) + cover.begin / base::kDigestBlockBytes,
                                     base::digest_count(cover.end - cover.begin));
}

Status ShardReader::read_verified(size_t piece, uint64_t begin, uint64_t end, MutableByteView out,
                                  uint64_t* first) const {
  SHOAL_CHECK(piece < pieces_.size() && begin <= end && end <= pieces_.bytes(piece));
  Cover cover = cover_of(begin, end, pieces_.bytes(piece));
  SHOAL_CHECK(out.size() >= cover.end - cover.begin);
  out = out.first(cover.end - cover.begin);
  *first = cover.begin;
  SHOAL_ASSIGN_OR_RETURN(ReadFile* const from, file());
  const uint64_t file_begin = data_begin_ + pieces_.offset(piece);
  auto announce = [&](uint64_t at) {  // one block per call, because kernels shorten longer requests
    if (at < cover.end) from->will_read(file_begin + at, std::min(base::kDigestBlockBytes, cover.end - at));
  };
  for (uint64_t block = 1; block < kReadAheadBlocks; ++block) {
    announce(cover.begin + block * base::kDigestBlockBytes);
  }
  // A file is read in windows that stay in cache between the read and the digest. Where a read costs a round
  // trip, it covers many blocks.
  const uint64_t read_bytes = std::max<uint64_t>(
      from->read_bytes_best() / base::kDigestBlockBytes * base::kDigestBlockBytes, base::kDigestBlockBytes);
  for (uint64_t at = cover.begin; at < cover.end; at += base::kDigestBlockBytes) {
    MutableByteView block =
        out.subspan(at - cover.begin, std::min<uint64_t>(base::kDigestBlockBytes, cover.end - at));
    announce(at + kReadAheadBlocks * base::kDigestBlockBytes);
    if ((at - cover.begin) % read_bytes == 0) {
      SHOAL_RETURN_IF_ERROR(from->read_at(
          file_begin + at, out.subspan(at - cover.begin, std::min(read_bytes, cover.end - at))));
    }
    uint64_t index = at / base::kDigestBlockBytes;
    if (base::block_digest(block) == digests_[pieces_.first_digest(piece) + index]) continue;
    return corrupt(fmt::format("block {} of '{}' differs from its digest", index, pieces_.key(piece)));
  }
  return ok_status();
}

}  // namespace shoal::storage
