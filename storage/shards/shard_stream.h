// ShardStream: a shard file that is written as its bytes come.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/shards/shard_header.h"

namespace shoal::storage {

// One thread. What is not published is removed as well as can be.
class ShardStream {
 public:
  // The header's errors are those of build_shard_header, the others those of Storage::create.
  static Result<ShardStream> create(Storage& storage, const std::string& path, const Nonce& nonce,
                                    const std::vector<ShardPiece>& pieces,
                                    const UserMetadataPtr& user = nullptr);

  // The next bytes of the pieces, in file order: whole digest blocks of one piece, the last of which may be
  // the rest of it. `append_kept`: they stay where they are, unchanged, until publish.
  Status append(ByteView bytes);
  Status append_kept(ByteView bytes);
  // After all bytes of all pieces. If the name is taken, as write_shard says.
  Result<WrittenShard> publish();

 private:
  ShardStream(Storage& storage, std::string path, BuiltShardHeader header)
      : storage_(&storage), path_(std::move(path)), header_(std::move(header)) {}
  Status append(ByteView bytes, bool are_kept);

  Storage* storage_;
  std::string path_;
  BuiltShardHeader header_;
  std::unique_ptr<WriteFile> file_;
  uint64_t digests_ = 0;   // of blocks that were appended
  uint64_t appended_ = 0;  // bytes
};

}  // namespace shoal::storage
