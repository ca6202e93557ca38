// LocalStorage: Storage on a file system (a local disk, Lustre, CephFS, NFSv4 without attribute caching).
//
// An object gets its name by link(2) from a temporary name "NAME.<32 hex digits>.partial" in the same folder,
// after its bytes are synced; then the folder is synced, and every parent folder whose entry this process has
// not yet synced.
//
// The root is opened once. Before anything is written, and again before it gets its name, the root's path is
// looked up anew: where it names another folder by now, or none (moved, replaced, unmounted), that is
// Code::unavailable, for nobody would look for a checkpoint in the folder that is still held open.
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
  // permission. `file_system` outlives the storage and all that it opened. `nonce`, drawn anew for every
  // process, names the temporaries of create_exclusive.
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
  // A walk down from the root: the folders on the way to `folder`, the root not among them.
  using Chain = std::vector<std::unique_ptr<OpenFolder>>;
  Result<Chain> walk(const std::string& folder, bool make_missing);
  // One try; `vanished`: a folder on the way was removed by somebody while we walked.
  Result<Chain> walk_once(const std::string& folder, bool make_missing, bool* vanished);
  Nonce next_nonce();
  void forget_durable(const std::string& folder);  // it was made anew, or is gone
  OpenFolder& last(const Chain& chain) { return chain.empty() ? *root_ : *chain.back(); }
  // Syncs the last folder of the chain, and its parents as far as their entries are not known to be durable.
  Status sync_chain(const Chain& chain, const std::string& folder);

  FileSystem& file_system_;
  const std::string root_path_;    // as given, for people
  const std::string lookup_path_;  // absolute: a process may change its folder
  const std::unique_ptr<OpenFolder> root_;
  const Nonce nonce_;
  std::atomic<uint64_t> temporaries_{0};
  std::mutex mutex_;
  std::set<std::string> durable_folders_;  // their entry in the parent was synced by this process
};

}  // namespace shoal::storage
