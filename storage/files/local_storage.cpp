#include "storage/files/local_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "storage/files/write_behind.h"

namespace shoal::storage {

namespace {

constexpr size_t kWriteBufferBytes = size_t{256} << 10;   // smaller appends are gathered
constexpr uint64_t kWritebackBytes = uint64_t{8} << 20;   // bytes written before write-out starts
constexpr uint64_t kDirectBytesMin = uint64_t{16} << 20;  // larger files bypass the page cache
constexpr size_t kMaxDurableFolders = 4096;               // remembered; beyond this, folders are synced again
constexpr int kMaxWalks = 64;  // tries while other processes remove the empty folders that we create

enum class Access { reading, writing };

Status io_error(int number, const std::string& full_path, std::string_view action, Access access) {
  std::string reason = std::generic_category().message(number);
  Code code = Code::io;
  switch (number) {
    case ENOENT:
      code = Code::not_found;
      break;
    case EEXIST:
      code = Code::already_exists;
      break;
    case ENOTEMPTY:
      code = Code::busy;
      break;
    case ENOSPC:
    case EDQUOT:
      code = Code::no_space;
      reason += " (to free space in a root: shoal gc ROOT)";
      break;
    case ENAMETOOLONG:
      code = Code::invalid_argument;
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::refused;
      reason = (access == Access::writing ? "not writable: " : "not readable: ") + reason;
      break;
    case ELOOP:
    case ENOTDIR:
      code = Code::refused;
      reason += " (symbolic links are not followed)";
      break;
  }
  return Status(code, fmt::format("{}: cannot {}: {}", full_path, action, reason));
}

std::pair<std::string, std::string> split_path(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

// Accepts a path inside a folder, that is any path but the root itself.
Status validate_entry(const std::string& path) {
  if (path.empty()) return validate_component(path);
  return validate_path(path);
}

// Accepts a path under which an object may be published.
Status validate_object(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_entry(path));
  std::string name = split_path(path).second;
  if (is_partial(name)) return Status(Code::invalid_argument, name + " is the name of a partial object");
  return validate_component(name);
}

Status write_all(OpenFile& file, uint64_t offset, ByteView data, const std::string& full_path) {
  while (!data.empty()) {
    size_t done = 0;
    int number = file.write_at(offset, data, &done);
    if (number == 0 && done == 0) number = EIO;
    if (number != 0) return io_error(number, full_path, "write", Access::writing);
    offset += done;
    data = data.subspan(done);
  }
  return ok_status();
}

Status read_all(OpenFile& file, uint64_t offset, MutableByteView out, const std::string& full_path) {
  while (!out.empty()) {
    size_t done = 0;
    int number = file.read_at(offset, out, &done);
    if (number != 0) return io_error(number, full_path, "read", Access::reading);
    if (done == 0) {
      return Status(Code::corrupt, fmt::format("{}: it ends at byte {}, but {} more bytes are expected",
                                               full_path, offset, out.size()));
    }
    offset += done;
    out = out.subspan(done);
  }
  return ok_status();
}

Status open_error(int number, const std::string& full_path) {
  if (number == EINVAL) return Status(Code::corrupt, full_path + ": it is not a regular file");
  return io_error(number, full_path, "open", Access::reading);
}

class LocalReadFile final : public ReadFile {
 public:
  LocalReadFile(std::unique_ptr<OpenFile> file, uint64_t size, std::string full_path)
      : file_(std::move(file)), size_(size), full_path_(std::move(full_path)) {}
  uint64_t size() const override { return size_; }
  Status read_at(uint64_t offset, MutableByteView out) override {
    return read_all(*file_, offset, out, full_path_);
  }
  void will_read(uint64_t offset, uint64_t bytes) override { file_->will_read(offset, bytes); }

 private:
  std::unique_ptr<OpenFile> file_;
  uint64_t size_;
  std::string full_path_;
};

}  // namespace

class LocalWriteFile final : public WriteFile {
 public:
  // Creates the temporary file. An existing file with this nonce is our own leftover and is replaced.
  // Retention of another process may remove an empty folder before our first file is in it; the walk then
  // starts again.
  static Result<std::unique_ptr<LocalWriteFile>> make(LocalStorage& storage, const std::string& path,
                                                      const Nonce& nonce, uint64_t bytes_expected,
                                                      bool make_folders = true) {
    SHOAL_RETURN_IF_ERROR(validate_object(path));
    SHOAL_RETURN_IF_ERROR(storage.check_root());
    std::unique_ptr<LocalWriteFile> made(new LocalWriteFile(storage, path, nonce));
    int number = ENOENT;
    for (int walks = 0; number == ENOENT && walks < kMaxWalks; ++walks) {
      SHOAL_ASSIGN_OR_RETURN(made->chain_, storage.walk(made->folder_path_, make_folders));
      OpenFolder& folder = storage.last(made->chain_);
      number = folder.create_file(made->temporary_, &made->file_);
      if (number == EEXIST && folder.remove_file(made->temporary_) == 0) {
        number = folder.create_file(made->temporary_, &made->file_);
      }
    }
    if (number != 0) return io_error(number, made->full_path_, "create", Access::writing);
    if (bytes_expected >= kDirectBytesMin) SHOAL_RETURN_IF_ERROR(made->begin_direct());
    return made;
  }
  ~LocalWriteFile() override {
    direct_.reset();  // first, because it writes to the file
    if (file_ != nullptr) remove_temporary();
  }

  Status append(ByteView data) override {
    if (direct_) {
      written_ += data.size();
      return direct_->append(data);
    }
    if (data.size() < kWriteBufferBytes) {
      if (buffer_.size() + data.size() > kWriteBufferBytes) SHOAL_RETURN_IF_ERROR(flush());
      buffer_.insert(buffer_.end(), data.begin(), data.end());
      return ok_status();
    }
    SHOAL_RETURN_IF_ERROR(flush());
    return write_out(data);
  }
  Status append_kept(ByteView data) override {
    if (!direct_) return append(data);
    written_ += data.size();
    return direct_->append_kept(data);
  }
  Status patch(uint64_t offset, ByteView data) override {
    SHOAL_RETURN_IF_ERROR(flush());
    SHOAL_CHECK(offset <= written_ && data.size() <= written_ - offset);
    return write_all(*file_, offset, data, full_path_);
  }
  // Replaces whatever has the name.
  Status publish_over() {
    SHOAL_RETURN_IF_ERROR(sync());
    int number = storage_.last(chain_).rename(temporary_, name_);
    file_.reset();
    if (number != 0) remove_temporary();
    if (number != 0) return io_error(number, full_path_, "rename", Access::writing);
    return storage_.sync_chain(chain_, folder_path_);
  }
  Result<bool> publish() override { return publish(false); }
  // may_be_swept: who creates the object under this name may sweep the folder, and with it the temporary
  // file.
  Result<bool> publish(bool may_be_swept) {
    SHOAL_RETURN_IF_ERROR(sync());
    int number = storage_.last(chain_).link(temporary_, name_);
    file_.reset();
    if (number == ENOENT && may_be_swept && exists()) number = EEXIST;
    remove_temporary();
    if (number != 0 && number != EEXIST) return io_error(number, full_path_, "link", Access::writing);
    SHOAL_RETURN_IF_ERROR(storage_.sync_chain(chain_, folder_path_));
    return number == 0;
  }

 private:
  LocalWriteFile(LocalStorage& storage, const std::string& path, const Nonce& nonce)
      : storage_(storage), full_path_(storage.full(path)) {
    std::tie(folder_path_, name_) = split_path(path);
    temporary_ = partial_name(name_, nonce);
  }
  bool exists() {
    std::unique_ptr<OpenFile> file;
    return storage_.last(chain_).open_file(name_, &file) == 0;
  }
  // From here to the first flush, bytes bypass the page cache in large aligned chunks. The disk stays busy
  // while the next chunk is digested, and the training job's page cache is not displaced.
  Status begin_direct() {
    if (file_->set_direct(true) != 0) return ok_status();
    SHOAL_ASSIGN_OR_RETURN(direct_, WriteBehind::make([this](uint64_t offset, ByteView chunk) {
                             return write_direct(offset, chunk);
                           }));
    return ok_status();
  }
  Status write_direct(uint64_t offset, ByteView data) {
    size_t done = 0;
    const int number = file_->write_at(offset, data, &done);
    if (number == 0) data = data.subspan(done), offset += done;
    // The write was short, or the file system needs a larger alignment: use the page cache for the rest.
    if (number == EINVAL || (number == 0 && !data.empty())) {
      const int refused = file_->set_direct(false);
      if (refused != 0) return io_error(refused, full_path_, "write", Access::writing);
      return write_all(*file_, offset, data, full_path_);
    }
    return number == 0 ? ok_status() : io_error(number, full_path_, "write", Access::writing);
  }
  Status end_direct() {
    uint64_t offset = 0;
    ByteView rest;
    Status status = direct_->drain(&offset, &rest);
    const size_t whole = rest.size() / kDirectAlignmentBytes * kDirectAlignmentBytes;
    if (status.ok() && whole > 0) status = write_direct(offset, rest.first(whole));
    if (status.ok()) {
      const int number = file_->set_direct(false);
      if (number != 0) status = io_error(number, full_path_, "write", Access::writing);
    }
    if (status.ok()) status = write_all(*file_, offset + whole, rest.subspan(whole), full_path_);
    direct_.reset();
    return status;
  }
  // Makes the bytes durable, then checks that the root's path still leads to the open root.
  Status sync() {
    SHOAL_RETURN_IF_ERROR(flush());
    int number = file_->sync();
    if (number != 0) return io_error(number, full_path_, "sync", Access::writing);
    return storage_.check_root().with_context(full_path_);
  }
  Status flush() {
    if (direct_) return end_direct();
    if (buffer_.empty()) return ok_status();
    Status status = write_out(buffer_);
    buffer_.clear();
    return status;
  }
  Status write_out(ByteView data) {
    SHOAL_RETURN_IF_ERROR(write_all(*file_, written_, data, full_path_));
    written_ += data.size();
    if (written_ - writeback_ >= kWritebackBytes) {
      file_->start_writeback(writeback_, written_ - writeback_);
      writeback_ = written_;
    }
    return ok_status();
  }
  // A failure is ignored: is_partial recognizes the leftover, and a later sweep removes it.
  void remove_temporary() { (void)storage_.last(chain_).remove_file(temporary_); }

  LocalStorage& storage_;
  std::string full_path_, folder_path_, name_, temporary_;
  LocalStorage::Chain chain_;
  std::unique_ptr<OpenFile> file_;  // null once the temporary name no longer exists
  std::unique_ptr<WriteBehind> direct_;
  Bytes buffer_;
  uint64_t written_ = 0;    // bytes passed to the file system
  uint64_t writeback_ = 0;  // bytes of these whose write-out has started
};

Result<std::unique_ptr<LocalStorage>> LocalStorage::open(FileSystem& file_system, const std::string& root,
                                                         const Nonce& nonce) {
  std::unique_ptr<OpenFolder> folder;
  int number = file_system.open_root(root, &folder);
  if (number == ENOENT) return Status(Code::not_found, fmt::format("root {} does not exist", root));
  if (number == ENOTDIR) return Status(Code::invalid_argument, fmt::format("root {} is not a folder", root));
  if (number != 0) return io_error(number, "root " + root, "open", Access::reading);
  std::string shown = root;
  while (shown.size() > 1 && shown.back() == '/') shown.pop_back();
  std::error_code error;
  std::string absolute = std::filesystem::absolute(root, error).string();
  if (error) absolute = root;
  return std::unique_ptr<LocalStorage>(
      new LocalStorage(file_system, std::move(shown), std::move(absolute), std::move(folder), nonce));
}

Status LocalStorage::check_root() {
  std::unique_ptr<OpenFolder> found;
  int number = file_system_.open_root(lookup_path_, &found);
  if (number == ENOENT || number == ENOTDIR) {
    return Status(Code::unavailable, fmt::format("root {} no longer exists", root_path_));
  }
  if (number != 0) return io_error(number, "root " + root_path_, "open", Access::reading);
  bool same = false;
  number = root_->is_same(*found, &same);
  if (number != 0) return io_error(number, "root " + root_path_, "look it up", Access::reading);
  if (same) return ok_status();
  return Status(
      Code::unavailable,
      fmt::format("root {} is no longer the folder that was opened: it was moved, replaced or unmounted",
                  root_path_));
}

std::string LocalStorage::full(const std::string& path) const {
  return path.empty() ? root_path_ : root_path_ + "/" + path;
}

Result<LocalStorage::Chain> LocalStorage::walk(const std::string& folder, bool make_missing) {
  SHOAL_RETURN_IF_ERROR(validate_path(folder));
  for (int walks = 1;; ++walks) {
    bool vanished = false;
    auto chain = walk_once(folder, make_missing, &vanished);
    if (chain.ok() || !vanished || walks == kMaxWalks) return chain;
  }
}

Result<LocalStorage::Chain> LocalStorage::walk_once(const std::string& folder, bool make_missing,
                                                    bool* vanished) {
  Chain chain;
  for (size_t begin = 0; begin < folder.size();) {
    size_t end = std::min(folder.find('/', begin), folder.size());
    std::string name = folder.substr(begin, end - begin), path = folder.substr(0, end);
    std::unique_ptr<OpenFolder> next;
    int number = last(chain).open_folder(name, &next);
    if (number == ENOENT && make_missing) {
      number = last(chain).make_folder(name);
      *vanished = number == ENOENT && !chain.empty();  // the parent folder is gone
      if (number != 0 && number != EEXIST) {
        return io_error(number, full(path), "make the folder", Access::writing);
      }
      forget_durable(path);
      number = last(chain).open_folder(name, &next);
      *vanished = number == ENOENT;
    }
    if (number != 0) return io_error(number, full(path), "open the folder", Access::reading);
    chain.push_back(std::move(next));
    begin = end + 1;
  }
  return chain;
}

void LocalStorage::forget_durable(const std::string& folder) {
  std::lock_guard lock(mutex_);
  durable_folders_.erase(folder);
}

Status LocalStorage::sync_chain(const Chain& chain, const std::string& folder) {
  int number = last(chain).sync();
  if (number != 0) return io_error(number, full(folder), "sync the folder", Access::writing);
  {
    std::lock_guard lock(mutex_);
    if (durable_folders_.contains(folder)) return ok_status();  // its parents are durable too
  }
  // Sync all of them: another process may have removed a durable folder and created it again.
  std::string path = folder;
  for (size_t depth = chain.size(); depth > 0; --depth) {
    OpenFolder& parent = depth == 1 ? *root_ : *chain[depth - 2];
    std::string parent_path = split_path(path).first;
    number = parent.sync();
    if (number != 0) return io_error(number, full(parent_path), "sync the folder", Access::writing);
    path = parent_path;
  }
  std::lock_guard lock(mutex_);
  if (durable_folders_.size() + chain.size() > kMaxDurableFolders) durable_folders_.clear();
  for (path = folder; !path.empty(); path = split_path(path).first) durable_folders_.insert(path);
  return ok_status();
}

Nonce LocalStorage::next_nonce() {
  Nonce own = nonce_;
  store_le64(own.bytes.data(), load_le64(own.bytes.data()) + temporaries_.fetch_add(1));
  return own;
}

Result<bool> LocalStorage::create_exclusive(const std::string& path, ByteView data) {
  SHOAL_ASSIGN_OR_RETURN(auto file, LocalWriteFile::make(*this, path, next_nonce(), data.size()));
  SHOAL_RETURN_IF_ERROR(file->append(data));
  return file->publish(true);
}

Result<bool> LocalStorage::create_in_folder(const std::string& path, ByteView data) {
  SHOAL_ASSIGN_OR_RETURN(auto file, LocalWriteFile::make(*this, path, next_nonce(), data.size(), false));
  SHOAL_RETURN_IF_ERROR(file->append(data));
  return file->publish(true);
}

Status LocalStorage::replace(const std::string& path, ByteView data) {
  SHOAL_ASSIGN_OR_RETURN(auto file, LocalWriteFile::make(*this, path, next_nonce(), data.size(), false));
  SHOAL_RETURN_IF_ERROR(file->append(data));
  return file->publish_over();
}

Result<std::unique_ptr<WriteFile>> LocalStorage::create(const std::string& path, const Nonce& nonce,
                                                        uint64_t bytes_expected) {
  uint64_t free = 0;
  int number = root_->free_space(&free);
  if (number != 0) return io_error(number, root_path_, "read its free space", Access::reading);
  if (free < bytes_expected) {
    return Status(
        Code::no_space,
        fmt::format("{}: {} are needed, but root {} has only {} left (to free space: shoal gc {})",
                    full(path), human_bytes(bytes_expected), root_path_, human_bytes(free), root_path_));
  }
  SHOAL_ASSIGN_OR_RETURN(auto file, LocalWriteFile::make(*this, path, nonce, bytes_expected));
  return std::unique_ptr<WriteFile>(std::move(file));
}

Result<std::unique_ptr<ReadFile>> LocalStorage::open(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_entry(path));
  auto [folder, name] = split_path(path);
  SHOAL_ASSIGN_OR_RETURN(Chain chain, walk(folder, false));
  std::unique_ptr<OpenFile> file;
  int number = last(chain).open_file(name, &file);
  if (number != 0) return open_error(number, full(path));
  uint64_t size = 0;
  number = file->size(&size);
  if (number != 0) return io_error(number, full(path), "open", Access::reading);
  return std::unique_ptr<ReadFile>(std::make_unique<LocalReadFile>(std::move(file), size, full(path)));
}

Result<Bytes> LocalStorage::read(const std::string& path, uint64_t bytes_max) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ReadFile> file, open(path));
  if (file->size() > bytes_max) {
    return Status(Code::too_large, fmt::format("{}: it has {} bytes, but at most {} are expected", full(path),
                                               file->size(), bytes_max));
  }
  Bytes out(file->size());
  SHOAL_RETURN_IF_ERROR(file->read_at(0, out));
  return out;
}

Result<std::vector<ObjectInfo>> LocalStorage::list(const std::string& folder) {
  SHOAL_ASSIGN_OR_RETURN(Chain chain, walk(folder, false));
  std::vector<FolderEntry> entries;
  int number = last(chain).list(&entries);
  if (number != 0) return io_error(number, full(folder), "list", Access::reading);
  std::vector<ObjectInfo> out;
  for (FolderEntry& entry : entries) {
    if (!is_partial(entry.name) && !validate_component(entry.name).ok()) continue;
    bool is_folder = entry.kind == FolderEntry::Kind::folder;
    out.push_back({std::move(entry.name), is_folder ? 0 : entry.size, is_folder});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

Status LocalStorage::remove(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_entry(path));
  auto [folder, name] = split_path(path);
  auto chain = walk(folder, false);
  if (!chain.ok()) return chain.status().code() == Code::not_found ? ok_status() : chain.status();
  int number = last(*chain).remove_file(name);
  if (number == 0 || number == ENOENT) return ok_status();
  return io_error(number, full(path), "remove", Access::writing);
}

Status LocalStorage::remove_folder(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(validate_entry(path));
  auto [folder, name] = split_path(path);
  auto chain = walk(folder, false);
  if (!chain.ok()) return chain.status().code() == Code::not_found ? ok_status() : chain.status();
  int number = last(*chain).remove_folder(name);
  forget_durable(path);
  if (number == 0 || number == ENOENT) return ok_status();
  if (number == EEXIST) number = ENOTEMPTY;
  return io_error(number, full(path), "remove the folder", Access::writing);
}

Status LocalStorage::move_folder(const std::string& path, const std::string& name) {
  SHOAL_RETURN_IF_ERROR(validate_entry(path));
  SHOAL_RETURN_IF_ERROR(validate_entry(name));
  auto [folder, from] = split_path(path);
  SHOAL_ASSIGN_OR_RETURN(Chain chain, walk(folder, false));
  int number = last(chain).rename(from, name);
  forget_durable(path);
  if (number == EEXIST) number = ENOTEMPTY;
  if (number != 0) return io_error(number, full(path), "rename the folder", Access::writing);
  return sync_chain(chain, folder);
}

Status LocalStorage::sync_folder(const std::string& folder) {
  SHOAL_ASSIGN_OR_RETURN(Chain chain, walk(folder, false));
  return sync_chain(chain, folder);
}

}  // namespace shoal::storage
