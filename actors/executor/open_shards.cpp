#include "actors/executor/open_shards.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::actors {

namespace {

std::string meaning(bool is_object, DType dtype, const Box& box) {
  if (is_object) return "an object";
  return fmt::format("{} {}", dtype_name(dtype), to_string(box));
}

bool agree(const operation::PieceRef& rule, const storage::ShardPiece& header) {
  bool is_object = rule.kind == LayoutEntry::Kind::object;
  if (is_object != header.is_object) return false;
  return is_object || (rule.dtype == header.dtype && rule.box == header.box);
}

}  // namespace

Result<OpenShards::Found> OpenShards::find(const operation::PieceRef& piece) {
  SHOAL_ASSIGN_OR_RETURN(ShardPtr shard, open(piece));
  auto corrupt = [&](std::string_view what) {
    return Status(Code::corrupt,
                  fmt::format("{}/{}: '{}': {}", storage_.describe(), shard->path(), piece.piece_key, what));
  };
  std::optional<size_t> index = shard->find(piece.piece_key);
  if (!index) return corrupt("the header lacks this key, which the planning rule requires");
  const storage::ShardPiece header = shard->pieces()[*index];
  if (!agree(piece, header)) {
    return corrupt(fmt::format("the planning rule expects {}, but the header has {}",
                               meaning(piece.kind == LayoutEntry::Kind::object, piece.dtype, piece.box),
                               meaning(header.is_object, header.dtype, header.box)));
  }
  return Found{std::move(shard), *index};
}

Result<OpenShards::ShardPtr> OpenShards::open(const operation::PieceRef& piece) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, path_of(piece));
  auto is_it = [&](const ShardPtr& shard) {
    return shard != nullptr && shard->header_digest() == piece.header_digest &&
           shard->file_size() == piece.file_size;
  };
  std::unique_lock lock(mutex_);
  // One thread opens a file and the others wait. Otherwise each would hold its header, of up to a hundred
  // megabytes.
  while (true) {
    if (ShardPtr kept = cached(path); is_it(kept)) return kept;
    if (opening_.insert(path).second) break;
    opened_.wait(lock);
  }
  lock.unlock();
  // Releases the threads that wait for this file, also if opening it throws: a header may need more memory
  // than there is.
  struct Release {
    OpenShards& shards;
    const std::string& path;
    ~Release() {
      std::lock_guard lock(shards.mutex_);
      shards.opening_.erase(path);
      shards.opened_.notify_all();
    }
  } release{*this, path};
  SHOAL_ASSIGN_OR_RETURN(ShardPtr shard,
                         storage::ShardReader::open(storage_, path, &piece.header_digest, &piece.file_size));
  lock.lock();
  keep(path, shard);
  lock.unlock();
  return shard;
}

Result<Bytes> OpenShards::read_header(const operation::PieceRef& piece, uint64_t bytes_most) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, path_of(piece));
  Bytes header;
  SHOAL_ASSIGN_OR_RETURN(ShardPtr shard, storage::ShardReader::open(storage_, path, &piece.header_digest,
                                                                    &piece.file_size, &header));
  {
    std::lock_guard lock(mutex_);
    keep(path, shard);
  }
  if (header.size() <= bytes_most) return header;
  return Status(Code::too_large,
                fmt::format("{}/{}: a header of {} bytes is too large to be sent to another node",
                            storage_.describe(), path, header.size()));
}

Status OpenShards::take_header(const operation::PieceRef& piece, ByteView header) {
  SHOAL_ASSIGN_OR_RETURN(const std::string path, path_of(piece));
  SHOAL_ASSIGN_OR_RETURN(ShardPtr shard, storage::ShardReader::by_header(
                                             storage_, path, header, piece.header_digest, piece.file_size));
  std::lock_guard lock(mutex_);
  keep(path, shard);
  return ok_status();
}

Result<std::string> OpenShards::path_of(const operation::PieceRef& piece) {
  SHOAL_RETURN_IF_ERROR(storage::validate_component(piece.file_name));
  return storage::attempt_folder(piece.key) + "/" + piece.file_name;
}

OpenShards::Use::Use(OpenShards& shards, std::optional<AttemptKey> key)
    : shards_(shards), key_(std::move(key)) {
  if (!key_) return;
  std::lock_guard lock(shards_.mutex_);
  ++shards_.users_[*key_].operations;
}

OpenShards::Use::~Use() {
  if (!key_) return;
  std::lock_guard lock(shards_.mutex_);
  const auto users = shards_.users_.find(*key_);
  if (--users->second.operations != 0) return;
  if (users->second.must_close) shards_.forget(*key_);
  shards_.users_.erase(users);
}

void OpenShards::close(const AttemptKey& key) {
  std::lock_guard lock(mutex_);
  forget(key);
  if (const auto users = users_.find(key); users != users_.end()) users->second.must_close = true;
}

void OpenShards::forget(const AttemptKey& key) {
  const std::string folder = storage::attempt_folder(key) + "/";
  auto next = by_path_.lower_bound(folder);
  while (next != by_path_.end() && next->first.starts_with(folder)) {
    bytes_ -= next->second->bytes;
    by_use_.erase(next->second);
    next = by_path_.erase(next);
  }
}

OpenShards::ShardPtr OpenShards::cached(const std::string& path) {
  auto found = by_path_.find(path);
  if (found == by_path_.end()) return nullptr;
  by_use_.splice(by_use_.begin(), by_use_, found->second);
  return found->second->shard;
}

void OpenShards::keep(const std::string& path, const ShardPtr& shard) {
  auto found = by_path_.find(path);
  if (found != by_path_.end()) {
    bytes_ -= found->second->bytes;
    by_use_.erase(found->second);
  }
  by_use_.push_front({path, shard, shard->memory_bytes()});
  by_path_[path] = by_use_.begin();
  bytes_ += by_use_.front().bytes;
  while (by_use_.size() > bounds_.most || (bytes_ > bounds_.most_bytes && by_use_.size() > bounds_.least)) {
    bytes_ -= by_use_.back().bytes;
    by_path_.erase(by_use_.back().path);
    by_use_.pop_back();
  }
}

uint64_t OpenShards::kept_bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace shoal::actors
