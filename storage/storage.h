// Storage: named byte objects under one root, with the few guarantees that commits rest on. Read this first.
//
// Implementations: LocalStorage (storage/files/local_storage.h) on a file system; an object store later; the
// simulator's fake in sim/. Paths are relative to the root, '/'-separated, of components that
// validate_component accepts: nothing read from a message or a file can name anything outside the root. Every
// error carries the full path. All methods may be called from any thread, on different paths concurrently.
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

// 1 to kMaxComponentBytes of [A-Za-z0-9._-], not starting with a dot. Code::invalid_argument.
Status validate_component(std::string_view component);
// Components, or names of partial objects, joined by '/'. "" (the root itself) is a path.
Status validate_path(std::string_view path);

struct ObjectInfo {
  std::string name;   // one component
  uint64_t size = 0;  // 0 for a folder
  bool is_folder = false;
};

// Positional reads of an object that does not change. Any thread.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  virtual uint64_t size() const = 0;
  // Fills all of `out` or fails (Code::corrupt where the object ends earlier, Code::io).
  virtual Status read_at(uint64_t offset, MutableByteView out) = 0;
  // A hint: these bytes are read next.
  virtual void will_read(uint64_t offset, uint64_t bytes) { (void)offset, (void)bytes; }
};

// One object being written; invisible under its name until publish. One thread at a time. Destroyed
// unpublished: the partial object is removed as well as can be.
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual Status append(ByteView data) = 0;
  // The same of bytes that stay where they are, unchanged, until publish or the end of this object.
  virtual Status append_kept(ByteView data) { return append(data); }
  virtual Status patch(uint64_t offset, ByteView data) = 0;  // overwrites bytes appended before
  // Makes the bytes durable, then gives them their name exclusively, durably, with all parent folders. true:
  // done by this call. false: the name was taken; the existing object stands and its folder has been synced.
  virtual Result<bool> publish() = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;

  virtual std::string describe() const = 0;  // the root, for people

  // Creates `path` with these bytes, if nobody has: complete and durable, folder included, before it returns.
  // false: the name was taken (possibly by an earlier call of one's own whose answer was lost: compare
  // nonces); the folder has been synced, so that what is read there next is durable. Missing parent folders
  // are made, durably.
  virtual Result<bool> create_exclusive(const std::string& path, ByteView data) = 0;
  // The same in a folder that is there: makes none, Code::not_found without it.
  virtual Result<bool> create_in_folder(const std::string& path, ByteView data) = 0;
  // Puts these bytes in the place of what `path` holds, at once and durably: a reader gets the old bytes or
  // the new ones, whole. Nothing need be there, but its folder: Code::not_found.
  virtual Status replace(const std::string& path, ByteView data) = 0;
  // Code::not_found; Code::too_large beyond bytes_max, nothing allocated.
  virtual Result<Bytes> read(const std::string& path, uint64_t bytes_max) = 0;
  virtual Result<std::unique_ptr<ReadFile>> open(const std::string& path) = 0;
  // `nonce` names the partial object, which nobody else shares. bytes_expected: a hint (space is checked:
  // Code::no_space).
  virtual Result<std::unique_ptr<WriteFile>> create(const std::string& path, const Nonce& nonce,
                                                    uint64_t bytes_expected) = 0;
  // By ascending name; partial objects (see is_partial) included; Code::not_found without the folder. Names
  // that are no component are left out: they are not ours.
  virtual Result<std::vector<ObjectInfo>> list(const std::string& folder) = 0;
  virtual Status remove(const std::string& path) = 0;         // OK if it is not there
  virtual Status remove_folder(const std::string& path) = 0;  // an empty one; OK if it is not there
  // Gives a folder another name beside its own, durably. Code::not_found if it is not there; Code::busy where
  // the other is taken.
  virtual Status move_folder(const std::string& path, const std::string& name) = 0;
  virtual Status sync_folder(const std::string& folder) = 0;
};

// What an unfinished write may leave in a folder listing: "NAME.<32 hex digits>.partial". No object is
// published under such a name.
bool is_partial(std::string_view name);
std::string partial_name(std::string_view name, const Nonce& nonce);

}  // namespace shoal::storage
