// OpenShards: shards of decided checkpoints kept open for reading, checked against what the manifest says of
// them.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/operation.h"

namespace shoal {

inline constexpr size_t kMaxOpenShards = 64;  // kept; those in use by others live on besides

// Any thread.
class OpenShards {
 public:
  explicit OpenShards(Storage& storage) : storage_(storage) {}

  struct Found {
    std::shared_ptr<const ShardReader> shard;
    size_t piece = 0;  // into shard->pieces()
  };
  // The piece, in its file. Code::corrupt, naming file and key, where the file is not the one that the
  // manifest lists, or its header says anything else of the piece.
  Result<Found> find(const operation::PieceRef& piece);

 private:
  using ShardPtr = std::shared_ptr<const ShardReader>;
  struct Entry {
    std::string path;
    ShardPtr shard;
  };

  Result<ShardPtr> open(const operation::PieceRef& piece);
  ShardPtr cached(const std::string& path);
  void keep(const std::string& path, const ShardPtr& shard);

  Storage& storage_;
  std::mutex mutex_;
  std::list<Entry> by_use_;  // the latest first
  std::map<std::string, std::list<Entry>::iterator> by_path_;
};

}  // namespace shoal
