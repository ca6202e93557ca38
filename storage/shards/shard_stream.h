// ShardStream: writes a shard file while its bytes arrive.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "storage/shards/shard_header.h"

namespace shoal::storage {

// One thread. The destructor tries to remove an unpublished file.
class ShardStream {
 public:
  // Errors are those of build_shard_header and of Storage::create. If bytes_done is not null, append adds to
  // it what it has passed to the file; it outlives this object.
  static Result<ShardStream> create(Storage& storage, const std::string& path, const Nonce& nonce,
                                    const std::vector<ShardPiece>& pieces,
                                    const UserMetadataPtr& user = nullptr,
                                    std::atomic<uint64_t>* bytes_done = nullptr);

  // Appends the next bytes of the pieces, in file order: whole digest blocks of one piece, of which the last
  // may be its shorter final block. append_kept: the caller keeps the bytes in place and unchanged until
  // publish.
  Status append(ByteView bytes);
  Status append_kept(ByteView bytes);
  // Publishes after all bytes of all pieces. If the name is taken, behaves like write_shard.
  Result<WrittenShard> publish();

 private:
  ShardStream(Storage& storage, std::string path, BuiltShardHeader header)
      : storage_(&storage), path_(std::move(path)), header_(std::move(header)) {}
  Status append(ByteView bytes, bool are_kept);

  Storage* storage_;
  std::string path_;
  BuiltShardHeader header_;
  std::unique_ptr<WriteFile> file_;
  uint64_t digests_ = 0;   // number of digests of the appended blocks
  uint64_t appended_ = 0;  // bytes
  std::atomic<uint64_t>* bytes_done_ = nullptr;
};

}  // namespace shoal::storage
