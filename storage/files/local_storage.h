// LocalStorage: Storage on a file system (a local disk, Lustre, CephFS, NFSv4 without attribute caching).
//
// To publish an object, LocalStorage writes it under the temporary name "NAME.<32 hex digits>.partial" in the
// same folder and syncs it. Then link(2) creates its name. Last it syncs the folder, and every parent folder
// whose entry this process has not synced before.
//
// LocalStorage opens the root once. Before each write and again before each publish it looks up the root's
// path. If the path now names another folder or none (moved, replaced, unmounted), the call fails with
// Code::unavailable: no reader would find a checkpoint in the folder that is still held open.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/files/file_system.h"
#include "storage/storage.h"

namespace shoal::storage {

class LocalStorage final : public Storage {
 public:
  // Opens the root, which must exist: Code::not_found "root /x is not there", Code::refused without
  // permission. `file_system` must outlive the storage and everything that it opened. `nonce` names the
  // temporaries of create_exclusive; each process draws a new one.
  static Result<std::unique_ptr<LocalStorage>> open(FileSystem& file_system, const std::string& root,
                                                    const Nonce& nonce);

  std::string describe() const override { return root_path_; }
  Result<bool> create_exclusive(const std::string& path, ByteView data) override;
  Result<bool> create_in_folder(const std::string& path, ByteView data) override;
  Status replace(const std::string& path, ByteView data) override;
  Result<Bytes> read(const std::string& path, uint64_t bytes_max) override;
  Result<std::unique_ptr<ReadFile>> open(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create(const std::string& path, const Nonce& nonce,
                                            uint64_t bytes_expected) override;
  Result<std::vector<ObjectInfo>> list(const std::string& folder) override;
  Status remove(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Status move_folder(const std::string& path, const std::string& name) override;
  Status sync_folder(const std::string& folder) override;

 private:
  friend class LocalWriteFile;
  LocalStorage(FileSystem& file_system, std::string root_path, std::string lookup_path,
               std::unique_ptr<OpenFolder> root, const Nonce& nonce)
      : file_system_(file_system),
        root_path_(std::move(root_path)),
        lookup_path_(std::move(lookup_path)),
        root_(std::move(root)),
        nonce_(nonce) {}

  std::string full(const std::string& path) const;
  // Whether the root's path still names the folder that was opened.
  Status check_root();
  // The open folders from the root down to `folder`, without the root.
  using Chain = std::vector<std::unique_ptr<OpenFolder>>;
  Result<Chain> walk(const std::string& folder, bool make_missing);
  // One attempt of walk. `vanished`: another process removed a folder on the way during the walk.
  Result<Chain> walk_once(const std::string& folder, bool make_missing, bool* vanished);
  Nonce next_nonce();
  void forget_durable(const std::string& folder);  // the folder was created again, or is gone
  OpenFolder& last(const Chain& chain) { return chain.empty() ? *root_ : *chain.back(); }
  // Syncs the last folder of the chain, and each parent whose entry is not known to be durable.
  Status sync_chain(const Chain& chain, const std::string& folder);

  FileSystem& file_system_;
  const std::string root_path_;    // as given, for messages
  const std::string lookup_path_;  // absolute, because a process may change its working folder
  const std::unique_ptr<OpenFolder> root_;
  const Nonce nonce_;
  std::atomic<uint64_t> temporaries_{0};
  std::mutex mutex_;
  std::set<std::string> durable_folders_;  // this process has synced their entries in their parents
};

}  // namespace shoal::storage
