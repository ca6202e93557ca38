// Storage: named byte objects under one root, with the guarantees that commits depend on. Read this header
// first.
//
// Implementations: LocalStorage (storage/files/local_storage.h) for file systems, S3Storage
// (storage/s3/s3_storage.h) for object stores; open_storage (storage/open_storage.h) chooses by the name of
// the root. The simulator replaces what lies below LocalStorage, the FileSystem
// (sim/bytes/memory_file_system.h).
//
// Paths are relative to the root. A path consists of components separated by '/', each of which
// validate_component accepts. A name from a message or a file therefore cannot lead outside the root. Every
// error contains the full path. Any thread may call any method; calls on different paths may run
// concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"

namespace shoal::storage {

inline constexpr size_t kMaxComponentBytes = 200;
inline constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 62;  // no storage holds more

// 1 to kMaxComponentBytes characters of [A-Za-z0-9._-], of which the first is not a dot. Otherwise
// Code::invalid_argument.
Status validate_component(std::string_view component);
// Accepts components and names of partial objects, joined by '/', and "" (the root itself).
Status validate_path(std::string_view path);

struct ObjectInfo {
  std::string name;   // one component
  uint64_t size = 0;  // 0 for a folder
  bool is_folder = false;
};

struct TreeObject {
  std::string path;  // relative to the root
  uint64_t size = 0;
};
// What list_tree returns of a folder: all objects, or at least one, which takes fewer requests.
enum class TreeDepth : uint8_t { objects, names };

// Reads an object, which does not change, at given offsets. Any thread.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  virtual uint64_t size() const = 0;
  // Fills all of `out` or fails: Code::corrupt if the object ends earlier, Code::io if the read fails.
  virtual Status read_at(uint64_t offset, MutableByteView out) = 0;
  // Hints that the caller reads these bytes next.
  virtual void will_read(uint64_t offset, uint64_t bytes) { (void)offset, (void)bytes; }
  // How many bytes one read should request where the caller needs as many. 0: any number.
  virtual uint64_t read_bytes_best() const { return 0; }
};

// An object that is being written. Its name shows nothing until publish. One thread at a time. The destructor
// of an unpublished object tries to remove the partial object; a failure is ignored.
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual Status append(ByteView data) = 0;
  // Like append, but without a copy: the caller keeps the bytes in place and unchanged until publish or until
  // this object is destroyed.
  virtual Status append_kept(ByteView data) { return append(data); }
  virtual Status patch(uint64_t offset, ByteView data) = 0;  // overwrites bytes that were appended before
  // Makes the bytes durable, then creates the name exclusively. The name and all parent folders are durable
  // on return. true: this call published the object. false: the name was taken; the existing object is
  // unchanged, and its folder has been synced.
  virtual Result<bool> publish() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;

  virtual std::string describe() const = 0;  // the root, human-readable
  // Whether other processes can open an object as the file describe() + "/" + its path.
  virtual bool has_files() const { return true; }
  // Whether move_folder works. Otherwise it returns Code::refused.
  virtual bool moves_folders() const { return true; }

  // Creates `path` with these bytes if the name is free. The object and its folder are complete and durable
  // before the call returns. Missing parent folders are created durably.
  //
  // true: this call created the object. false: the name was taken. An earlier call of the same process, whose
  // answer was lost, may have taken it: compare nonces. The folder has been synced, so whatever is then read
  // from it is durable.
  virtual Result<bool> create_exclusive(const std::string& path, ByteView data) = 0;
  // Like create_exclusive, but creates no folders: Code::not_found if the folder does not exist.
  virtual Result<bool> create_in_folder(const std::string& path, ByteView data) = 0;
  // Replaces the contents of `path` atomically and durably: a reader gets either all old bytes or all new
  // ones. `path` need not exist, but its folder must (Code::not_found).
  virtual Status replace(const std::string& path, ByteView data) = 0;
  // Code::not_found if `path` does not exist. Code::too_large, without an allocation, if it holds more than
  // bytes_max.
  virtual Result<Bytes> read(const std::string& path, uint64_t bytes_max) = 0;
  virtual Result<std::unique_ptr<ReadFile>> open(const std::string& path) = 0;
  // `nonce` makes the name of the partial object unique. Code::no_space if the storage has less free
  // space than `bytes_expected`; the object may become smaller or larger.
  virtual Result<std::unique_ptr<WriteFile>> create(const std::string& path, const Nonce& nonce,
                                                    uint64_t bytes_expected) = 0;
  // Entries by ascending name, including partial objects (see is_partial). Leaves out names that are not
  // components: Shoal does not write such names. Code::not_found if the folder does not exist.
  virtual Result<std::vector<ObjectInfo>> list(const std::string& folder) = 0;
  // Whether list_tree works. Otherwise it returns Code::refused.
  virtual bool lists_trees() const { return false; }
  // The objects whose paths begin with `prefix`, at any depth, ascending by path. Their names may be any
  // texts. With TreeDepth::names, at least one of each folder of `prefix_depth` components.
  virtual Result<std::vector<TreeObject>> list_tree(const std::string& prefix, TreeDepth how,
                                                    size_t prefix_depth) {
    (void)how, (void)prefix_depth;
    return Status(Code::refused, describe() + "/" + prefix + ": this storage lists folder by folder");
  }
  virtual Status remove(const std::string& path) = 0;         // OK if it does not exist
  virtual Status remove_folder(const std::string& path) = 0;  // must be empty; OK if it does not exist
  // Renames a folder within its parent folder, durably. Code::not_found if it does not exist, Code::busy if
  // `name` is taken.
  virtual Status move_folder(const std::string& path, const std::string& name) = 0;
  virtual Status sync_folder(const std::string& folder) = 0;
  // Proves by further writes to `path`, which exists, that the storage keeps the rules above: Code::refused
  // names the rule that it breaks. The contents of `path` may then differ.
  virtual Status check_rules(const std::string& path) {
    (void)path;
    return ok_status();
  }
};

// Whether an unfinished write may have left this name in a folder: "NAME.<32 hex digits>.partial". No object
// is published under such a name.
bool is_partial(std::string_view name);
std::string partial_name(std::string_view name, const Nonce& nonce);

}  // namespace shoal::storage
