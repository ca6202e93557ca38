// OpenShards: shards of decided checkpoints kept open for reading, checked against what the manifest says of
// them.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "actors/operation.h"

namespace shoal::actors {

inline constexpr size_t kMaxOpenShards = 64;
// What is kept; those in use by others live on besides.
struct OpenShardBounds {
  size_t most = kMaxOpenShards;
  // Of their headers, parsed, in memory, about. A header may have 100 MB, and grows with the tensors of a
  // file.
  uint64_t most_bytes = uint64_t{64} << 20;
  size_t least = 8;  // whatever they take, so that loads side by side do not parse each other's files anew
};

// Any thread.
class OpenShards {
 public:
  explicit OpenShards(storage::Storage& storage, OpenShardBounds bounds = {})
      : storage_(storage), bounds_(bounds) {}

  struct Found {
    std::shared_ptr<const storage::ShardReader> shard;
    size_t piece = 0;  // into shard->pieces()
  };
  // The piece, in its file. Code::corrupt, naming file and key, where the file is not the one that the
  // manifest lists, or its header says anything else of the piece.
  Result<Found> find(const operation::PieceRef& piece);
  // The header of the piece's file, which is kept open then. Code::too_large: it has more than bytes_most;
  // the file is kept open all the same.
  Result<Bytes> read_header(const operation::PieceRef& piece, uint64_t bytes_most);
  // Keeps the piece's file open by a header that came from elsewhere. Nothing is read. Code::corrupt: it is
  // not the one that the manifest vouches for.
  Status take_header(const operation::PieceRef& piece, ByteView header);
  // Those of the attempt are kept open no longer: they may be deleted, and take room while they are open.
  void close(const AttemptKey& key);
  uint64_t kept_bytes() const;  // about

 private:
  using ShardPtr = std::shared_ptr<const storage::ShardReader>;
  struct Entry {
    std::string path;
    ShardPtr shard;
    uint64_t bytes = 0;
  };

  Result<ShardPtr> open(const operation::PieceRef& piece);
  static Result<std::string> path_of(const operation::PieceRef& piece);
  // With the mutex held.
  ShardPtr cached(const std::string& path);
  void keep(const std::string& path, const ShardPtr& shard);

  storage::Storage& storage_;
  const OpenShardBounds bounds_;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  std::set<std::string> opening_;  // paths
  std::list<Entry> by_use_;        // the latest first
  uint64_t bytes_ = 0;             // of all of them
  std::map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace shoal::actors
