// MemoryFileSystem: the fake of storage/files/file_system.h.
//
// Failure model. The machine may lose power (crash): bytes written since a file's last sync, and entries
// added or removed since a folder's last sync, are each kept or lost independently, as a seed decides. The
// process may die (die_at): every later call fails, and nothing is cleaned up. One call may fail with a given
// errno value, or be cut short (a write that accepts fewer bytes). The disk may be full (set_capacity). Not
// modelled, because no program survives it: loss of synced bytes, or a sync that reports success falsely.
//
// The file system numbers its calls, so a test can repeat a scenario with a failure at each of them.
// Deterministic. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shoal/hash.h"
#include "storage/files/file_system.h"

namespace shoal::sim {

class MemoryFileSystem final : public storage::FileSystem {
 public:
  MemoryFileSystem();  // one folder, "/root"
  ~MemoryFileSystem() override;

  int open_root(const std::string& path, std::unique_ptr<storage::OpenFolder>* folder) override;

  // Failures. Calls are numbered from 0 in the order in which they are made. So number operations() + n is
  // the n-th call from now, counted from 0.
  uint64_t operations() const;
  // The numbers of those calls so far that changed something or made it durable. A crash between two of them
  // has the same result wherever it happens.
  std::vector<uint64_t> changes() const;
  void fail_at(uint64_t operation, int error_number);   // that call does nothing and returns the error
  void cut_short_at(uint64_t operation, size_t bytes);  // that write takes at most so many bytes
  void die_at(uint64_t operation);    // that call and all later ones return EIO and do nothing
  void set_capacity(uint64_t bytes);  // of all files together; beyond it, ENOSPC
  void stop_failing();                // clears all failures; handles stay valid

  // The process ends and another one starts on the same machine. Failures are cleared, and older handles
  // return ESTALE. Unsynced changes stay visible, and stay unsynced.
  void restart();

  // What a crash does to unsynced changes.
  struct Unsynced {
    enum class Fate { lost, kept, mixed } fate = Fate::lost;
    uint64_t seed = 0;  // for Fate::mixed
  };
  // The machine loses power and starts again: restart(), and unsynced changes suffer their fate.
  void crash(const Unsynced& unsynced);

  uint64_t used_bytes() const;  // of all files together
  // Hash of all names and bytes, durable or not.
  Hash128 fingerprint() const;

  // Flips a bit of a file, as a failing disk would. The file must exist. `path` is relative to the root:
  // "a/b/c".
  void flip_bit(const std::string& path, uint64_t bit);
  void resize(const std::string& path, uint64_t bytes);  // cuts the file durably, or pads it with zeros
  void lose(const std::string& path);                    // the file is gone, durably

 private:
  struct Node;
  class File;
  class Folder;
  using NodePtr = std::shared_ptr<Node>;

  // Records a change by the current call; the caller holds mutex_.
  void changed() { changes_.push_back(operations_ - 1); }
  // Begins one counted call. Returns 0, or the errno value with which the call fails. The caller holds
  // mutex_.
  int begin_call(uint64_t incarnation);
  NodePtr find(const std::string& path);
  void recount(Node& folder, std::set<Node*>& seen);  // recomputes used_bytes_ and link counts after a crash

  mutable std::mutex mutex_;
  NodePtr root_;
  uint64_t incarnation_ = 0;
  uint64_t operations_ = 0;
  uint64_t used_bytes_ = 0;
  std::optional<uint64_t> capacity_bytes_;
  std::optional<uint64_t> dies_at_;
  std::map<uint64_t, int> failures_;
  std::map<uint64_t, size_t> cuts_;
  std::vector<uint64_t> changes_;
};

}  // namespace shoal::sim
