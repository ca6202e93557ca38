// OpenShards: keeps shards of committed checkpoints open for reading, checked against the manifest.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "actors/operation.h"

namespace shoal::actors {

inline constexpr size_t kMaxOpenShards = 64;
// Bounds of the shards that are kept. Shards that callers still hold exist besides.
struct OpenShardBounds {
  size_t most = kMaxOpenShards;
  // Bound of the memory of their parsed headers, an estimate. A header may take 100 MB; it grows with the
  // number of tensors in a file.
  uint64_t most_bytes = uint64_t{64} << 20;
  size_t least = 8;  // kept whatever memory they take, so that parallel loads do not parse files again
};

// All methods may be called on any thread.
class OpenShards {
 public:
  explicit OpenShards(storage::Storage& storage, OpenShardBounds bounds = {})
      : storage_(storage), bounds_(bounds) {}

  struct Found {
    std::shared_ptr<const storage::ShardReader> shard;
    size_t piece = 0;  // index into shard->pieces()
  };
  // The piece in its file. Code::corrupt, with file and key: the file is not the one in the manifest, or its
  // header contradicts `piece`.
  Result<Found> find(const operation::PieceRef& piece);
  // The header of the piece's file, which is kept open. Code::too_large: it has more than bytes_most bytes;
  // the file is kept open all the same.
  Result<Bytes> read_header(const operation::PieceRef& piece, uint64_t bytes_most);
  // Keeps the piece's file open with a header that another host sent, and reads nothing. Code::corrupt: its
  // digest differs from the manifest's.
  Status take_header(const operation::PieceRef& piece, ByteView header);
  // While it exists, an operation reads this attempt; nullopt: none.
  class Use {
   public:
    Use(OpenShards& shards, std::optional<AttemptKey> key);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    OpenShards& shards_;
    const std::optional<AttemptKey> key_;
  };
  // Closes the shards of this attempt: it may be deleted, and an open shard keeps its space on disk in use.
  // If operations still read it, for a load that has ended, also what they open, after the last one.
  void close(const AttemptKey& key);
  uint64_t kept_bytes() const;  // an estimate

 private:
  using ShardPtr = std::shared_ptr<const storage::ShardReader>;
  struct Entry {
    std::string path;
    ShardPtr shard;
    uint64_t bytes = 0;
  };

  Result<ShardPtr> open(const operation::PieceRef& piece);
  static Result<std::string> path_of(const operation::PieceRef& piece);
  struct Users {
    size_t operations = 0;
    bool must_close = false;  // after the last one
  };
  // Call these with the mutex held.
  void forget(const AttemptKey& key);
  ShardPtr cached(const std::string& path);
  void keep(const std::string& path, const ShardPtr& shard);

  storage::Storage& storage_;
  const OpenShardBounds bounds_;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  std::set<std::string> opening_;  // paths of files that a thread is opening
  std::map<AttemptKey, Users> users_;
  std::list<Entry> by_use_;  // the last used first
  uint64_t bytes_ = 0;       // of all entries
  std::map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace shoal::actors
