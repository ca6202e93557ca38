#include <capnp/message.h>
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>

#include "plan/layout/codec.h"
#include "schema/catalog.capnp.h"
#include "schema/checked_reader_internal.h"
#include "storage/catalog/rocksdb_catalog_internal.h"
#include "storage/decisions/file_entry_internal.h"

namespace shoal::storage {

namespace {

constexpr uint32_t kCatalogFormatVersion = 1;
constexpr size_t kMaxValueBytes = size_t{64} << 20;
enum Family : size_t { kMeta, kCheckpoints, kLayouts, kFiles, kFamilyCount };
constexpr std::array<const char*, kFamilyCount> kFamilyNames = {"default", "checkpoints", "layouts", "files"};

rocksdb::Slice slice_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
rocksdb::Slice slice_of(const Hash128& hash) {
  return slice_of(ByteView(hash.bytes));
}
ByteView value_of(const rocksdb::Slice& slice) {
  return as_view({slice.data(), slice.size()});
}

Status status_of(const rocksdb::Status& status, const std::string& path) {
  if (status.ok()) return ok_status();
  Code code = Code::io;
  if (status.IsNoSpace()) code = Code::no_space;
  if (status.IsCorruption()) code = Code::corrupt;
  if (status.IsBusy() || status.IsTryAgain()) code = Code::busy;
  std::string text = status.ToString();
  // RocksDB has no code for the held lock file of an open database.
  if (status.IsIOError() && text.find("lock") != std::string::npos) code = Code::busy;
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Status(code, fmt::format("catalog {}: {}", path, text));
}

void append_big_endian(std::string* out, uint64_t number, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out->push_back(static_cast<char>(number >> (8 * i)));
}
uint64_t load_big_endian(std::string_view text) {
  uint64_t number = 0;
  for (char c : text) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

// 16 bytes: generation, step, attempt, big-endian.
std::string key_of(const AttemptKey& key) {
  std::string out;
  append_big_endian(&out, key.generation, 4);
  append_big_endian(&out, key.step, 8);
  append_big_endian(&out, key.attempt, 4);
  return out;
}
std::optional<AttemptKey> attempt_of(std::string_view key) {
  if (key.size() != 16) return std::nullopt;
  return AttemptKey{static_cast<uint32_t>(load_big_endian(key.substr(0, 4))),
                    load_big_endian(key.substr(4, 8)),
                    static_cast<uint32_t>(load_big_endian(key.substr(12)))};
}
std::string file_key(const AttemptKey& key, uint32_t index) {
  std::string out = key_of(key);
  append_big_endian(&out, index, 4);
  return out;
}

Bytes encode_entry(const CatalogEntry& entry, const Decision& decision) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::CatalogEntry>();
  root.setState(static_cast<uint8_t>(entry.state));
  root.setPayloadBytes(entry.payload_bytes);
  root.setFiles(entry.files);
  root.setWorldSize(entry.world_size);
  root.setUnixTimeNs(entry.unix_time_ns);
  root.setCause(schema::text_of(entry.cause));
  if (decision.committed()) {
    const auto& layouts = decision.manifest().world->layouts;
    auto ids = root.initLayoutIds(static_cast<unsigned>(layouts.size()));
    for (unsigned i = 0; i < ids.size(); ++i) ids.set(i, schema::data_of(layouts[i]->id()));
  }
  return schema::canonical_framed_bytes(root);
}

Result<CatalogEntry> decode_entry(std::string_view key, ByteView value) {
  std::optional<AttemptKey> attempt = attempt_of(key);
  if (!attempt) return Status(Code::corrupt, "a key does not name an attempt");
  return schema::read_checked<schema::CatalogEntry>(
      value, schema::ReadLimits{kMaxValueBytes, 1},
      [&](schema::CatalogEntry::Reader reader) -> Result<CatalogEntry> {
        CatalogEntry entry;
        entry.key = *attempt;
        if (reader.getState() < 1 || reader.getState() > 3)
          return Status(Code::corrupt, "a state is not known");
        entry.state = static_cast<AttemptInfo::State>(reader.getState());
        entry.payload_bytes = reader.getPayloadBytes();
        entry.files = reader.getFiles();
        entry.world_size = reader.getWorldSize();
        entry.unix_time_ns = reader.getUnixTimeNs();
        entry.cause = schema::view_of(reader.getCause());
        return entry;
      });
}
static_assert(static_cast<int>(AttemptInfo::State::committed) == 1 &&
              static_cast<int>(AttemptInfo::State::deleted) == 3);

// The first write error, from a caller or from RocksDB in the background. After it the catalog trusts
// nothing.
class Fence final : public rocksdb::EventListener {
 public:
  explicit Fence(std::string path) : path_(std::move(path)) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override {
    (void)close(status_of(*status, path_));
  }
  Status close(const Status& cause) {
    std::lock_guard lock(mutex_);
    if (cause_.ok()) cause_ = cause.with_context("the catalog was closed after an error");
    return cause_;
  }
  Status check() const {
    std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  const std::string path_;
  mutable std::mutex mutex_;
  Status cause_;
};

// Disables RocksDB's own log file. RocksDB would continue to write it after a failed write, and one of its
// assertions would then end the node on a full disk. Important errors are returned as a Status.
class NoLog final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

// Number of tables kept open; about a dozen logs and folders add to it.
constexpr int kMaxCatalogFiles = 64;

// The log is replaced by tables when it has grown to this size. A commit adds some hundred bytes.
constexpr uint64_t kLogBytes = uint64_t{2} << 20;

class RocksDbCatalog final : public Catalog {
 public:
  static Result<std::unique_ptr<Catalog>> open(rocksdb::Env* env, const std::string& path,
                                               const RootId& root_id) {
    std::unique_ptr<RocksDbCatalog> catalog(new RocksDbCatalog(path));
    rocksdb::Options options;
    options.env = env;
    options.create_if_missing = true;
    options.create_missing_column_families = true;
    options.compression = rocksdb::kNoCompression;
    options.max_open_files = kMaxCatalogFiles;
    options.write_buffer_size = kLogBytes;
    options.max_total_wal_size = kLogBytes;
    options.info_log = std::make_shared<NoLog>();
    options.max_bgerror_resume_count = 0;  // after an error the fence stays closed
    options.stats_dump_period_sec = 0;
    options.stats_persist_period_sec = 0;
    options.listeners.push_back(catalog->fence_);
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const char* name : kFamilyNames) families.emplace_back(name, rocksdb::ColumnFamilyOptions(options));
    rocksdb::DB* db = nullptr;
    rocksdb::Status opened = rocksdb::DB::Open(options, path, families, &catalog->families_, &db);
    if (!opened.ok()) return status_of(opened, path);
    catalog->db_.reset(db);
    SHOAL_RETURN_IF_ERROR(catalog->claim(root_id));
    // Checks all blocks now. Otherwise a damaged block would be found only when it is read, possibly during a
    // commit.
    SHOAL_RETURN_IF_ERROR(status_of(db->VerifyChecksum(), path));
    return std::unique_ptr<Catalog>(std::move(catalog));
  }

  ~RocksDbCatalog() override {
    if (db_ == nullptr) return;
    // Flushes, so that the next start has no log to replay. After an error the log stays, because only it is
    // trusted.
    if (fence_->check().ok()) (void)db_->Flush(rocksdb::FlushOptions(), families_);
    for (rocksdb::ColumnFamilyHandle* family : families_) (void)db_->DestroyColumnFamilyHandle(family);
    (void)db_->Close();
  }

  Status record(const Decision& decision) override { return record(decision, true); }
  Status record_unsynced(const Decision& decision) override { return record(decision, false); }
  Status sync() override {
    std::lock_guard lock(writing_);
    SHOAL_RETURN_IF_ERROR(fence_->check());
    const rocksdb::Status status = db_->FlushWAL(true);
    return status.ok() ? ok_status() : fence_->close(status_of(status, path_));
  }

  Status forget(const AttemptKey& key) override {
    std::lock_guard lock(writing_);
    rocksdb::WriteBatch batch;
    rocksdb::Status status = batch.Delete(families_[kCheckpoints], key_of(key));
    if (status.ok())
      status = batch.DeleteRange(families_[kFiles], file_key(key, 0), file_key(key, ~uint32_t{0}));
    return write(status, &batch, false);
  }

  Result<std::optional<CatalogEntry>> find(const AttemptKey& key) override {
    SHOAL_RETURN_IF_ERROR(fence_->check());
    std::string name = key_of(key);
    rocksdb::PinnableSlice value;
    rocksdb::Status status = db_->Get({}, families_[kCheckpoints], name, &value);
    if (status.IsNotFound()) return std::optional<CatalogEntry>();
    if (!status.ok()) return status_of(status, path_);
    auto entry = decode_entry(name, value_of(value));
    if (!entry.ok()) return damaged(entry.status());
    return std::optional<CatalogEntry>(std::move(*entry));
  }

  Result<std::vector<CatalogEntry>> list() override {
    SHOAL_RETURN_IF_ERROR(fence_->check());
    std::vector<CatalogEntry> out;
    std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}, families_[kCheckpoints]));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      auto entry = decode_entry(at->key().ToStringView(), value_of(at->value()));
      if (!entry.ok()) return damaged(entry.status());
      out.push_back(std::move(*entry));
    }
    SHOAL_RETURN_IF_ERROR(status_of(at->status(), path_));
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return out;
  }

  Result<std::vector<FileEntry>> files(const AttemptKey& key) override {
    SHOAL_RETURN_IF_ERROR(fence_->check());
    std::vector<FileEntry> out;
    std::string prefix = key_of(key);
    std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}, families_[kFiles]));
    for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
      auto file = schema::read_checked<schema::FileEntry>(
          value_of(at->value()), schema::ReadLimits{kMaxValueBytes, 1}, read_file_entry);
      if (!file.ok()) return damaged(file.status());
      out.push_back(std::move(*file));
    }
    SHOAL_RETURN_IF_ERROR(status_of(at->status(), path_));
    return out;
  }

 private:
  explicit RocksDbCatalog(const std::string& path) : path_(path), fence_(std::make_shared<Fence>(path)) {}

  Status damaged(const Status& what) const {
    return Status(Code::corrupt,
                  fmt::format("catalog {}: {}; remove it, and a node rebuilds it", path_, what.message()));
  }

  // Checks which run the catalog belongs to, and marks a new one as ours.
  Status claim(const RootId& root_id) {
    std::string format, owner;
    rocksdb::Status status = db_->Get({}, families_[kMeta], "format", &format);
    if (status.IsNotFound()) {
      rocksdb::WriteBatch batch;
      std::string version;
      append_big_endian(&version, kCatalogFormatVersion, 4);
      status = batch.Put(families_[kMeta], "format", version);
      if (status.ok()) status = batch.Put(families_[kMeta], "root_id", slice_of(root_id));
      return write(status, &batch, true);
    }
    if (status.ok()) status = db_->Get({}, families_[kMeta], "root_id", &owner);
    if (!status.ok()) return status_of(status, path_);
    uint64_t version = load_big_endian(format);
    if (format.size() != 4 || version == 0) return damaged(Status(Code::corrupt, "it has no format number"));
    if (version > kCatalogFormatVersion) {
      return Status(Code::version,
                    fmt::format("catalog {}: it has format {}, but this program reads only formats up to {}",
                                path_, version, kCatalogFormatVersion));
    }
    if (rocksdb::Slice(owner) == slice_of(root_id)) return ok_status();
    return Status(Code::refused, fmt::format("catalog {}: it belongs to the run {}, not {}", path_,
                                             hex_encode(as_view(owner)), root_id.to_hex()));
  }

  rocksdb::Status add_manifest(const Decision& decision, rocksdb::WriteBatch* batch) {
    const Manifest& manifest = decision.manifest();
    rocksdb::Status status;
    for (size_t i = 0; status.ok() && i < manifest.world->layouts.size(); ++i) {
      const Layout& layout = *manifest.world->layouts[i];
      rocksdb::PinnableSlice known;
      status = db_->Get({}, families_[kLayouts], slice_of(layout.id()), &known);
      if (status.IsNotFound())
        status =
            batch->Put(families_[kLayouts], slice_of(layout.id()), slice_of(plan::encode_layout(layout)));
    }
    for (uint32_t i = 0; status.ok() && i < manifest.files.size(); ++i) {
      capnp::MallocMessageBuilder message;
      auto root = message.initRoot<schema::FileEntry>();
      write_file_entry(root, manifest.files[i]);
      status = batch->Put(families_[kFiles], file_key(decision.key, i),
                          slice_of(schema::canonical_framed_bytes(root)));
    }
    return status;
  }

  Status record(const Decision& decision, bool is_synced) {
    std::lock_guard lock(writing_);
    CatalogEntry entry = catalog_entry_of(decision);
    SHOAL_ASSIGN_OR_RETURN(std::optional<CatalogEntry> before, find(entry.key));
    SHOAL_ASSIGN_OR_RETURN(bool news, is_catalog_news(before, entry));
    if (!news) return ok_status();
    rocksdb::WriteBatch batch;
    std::string key = key_of(entry.key);
    rocksdb::Status status = batch.Put(families_[kCheckpoints], key, slice_of(encode_entry(entry, decision)));
    if (status.ok() && before) {
      status =
          batch.DeleteRange(families_[kFiles], file_key(entry.key, 0), file_key(entry.key, ~uint32_t{0}));
    }
    if (status.ok() && decision.committed()) status = add_manifest(decision, &batch);
    return write(status, &batch, is_synced);
  }

  // Writes the batch, unless it could not be built.
  Status write(rocksdb::Status made, rocksdb::WriteBatch* batch, bool is_synced) {
    SHOAL_RETURN_IF_ERROR(fence_->check());
    rocksdb::WriteOptions options;
    options.sync = is_synced;
    if (made.ok()) made = db_->Write(options, batch);
    if (made.ok()) return ok_status();
    return fence_->close(status_of(made, path_));
  }

  const std::string path_;
  const std::shared_ptr<Fence> fence_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  std::mutex writing_;  // find, decide, write: one caller at a time
};

}  // namespace

Result<std::unique_ptr<Catalog>> open_rocksdb_catalog_in(rocksdb::Env* env, const std::string& path,
                                                         const RootId& root_id) {
  return RocksDbCatalog::open(env, path, root_id);
}

Result<std::unique_ptr<Catalog>> open_rocksdb_catalog(const std::string& path, const RootId& root_id) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    return Status(Code::io, fmt::format("catalog {}: cannot make the folder: {}", path, error.message()));
  return open_rocksdb_catalog_in(rocksdb::Env::Default(), path, root_id);
}

}  // namespace shoal::storage
