// MemoryFileSystem: the fake of storage/files/file_system.h.
//
// Fault model. The machine may lose power (crash): bytes written since a file's last sync, and entries made
// or removed since a folder's last sync, are each kept or lost, independently, by a chosen seed. The process
// may die (die_at): every later call fails and nothing is cleaned up. One call may fail with a chosen errno
// value, or be cut short (a write that takes fewer bytes). The disk may be full (set_capacity). Not modelled,
// because nothing survives it: synced bytes that are lost, or a sync that lies.
//
// Calls are counted, so that a test can repeat a scenario with a fault at each of them. Deterministic; any
// thread.
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

  // Faults. Calls are numbered from 0 in the order they were made; number n - operations() is the n-th from
  // now.
  uint64_t operations() const;
  // Those of the calls so far that changed something or made it durable: between two of them, a crash leaves
  // the same.
  std::vector<uint64_t> changes() const;
  void fail_at(uint64_t operation, int error_number);   // that call does nothing and returns the error
  void cut_short_at(uint64_t operation, size_t bytes);  // that write takes at most so many bytes
  void die_at(uint64_t operation);    // that call and all later ones return EIO and do nothing
  void set_capacity(uint64_t bytes);  // of all files together; beyond it, ENOSPC
  void stop_failing();                // forgets all of these; handles stay good

  // The process is gone and another one comes, on the same machine: faults are forgotten, handles from before
  // return ESTALE, and what was not synced is still there, and still not synced.
  void restart();

  // What a crash makes of the things that were not synced.
  struct Unsynced {
    enum class Fate { lost, kept, mixed } fate = Fate::lost;
    uint64_t seed = 0;  // of mixed
  };
  // The machine goes down and comes up again. As restart, besides.
  void crash(const Unsynced& unsynced);

  uint64_t used_bytes() const;  // of all files together
  // Of all names and bytes, durable ones and others.
  Hash128 fingerprint() const;

  // Changes bytes under a file's name, as a failing disk would. The file must be there. Path from the root,
  // "a/b/c".
  void flip_bit(const std::string& path, uint64_t bit);
  void resize(const std::string& path, uint64_t bytes);  // durably cut, or padded with zeros

 private:
  struct Node;
  class File;
  class Folder;
  using NodePtr = std::shared_ptr<Node>;

  void changed() { changes_.push_back(operations_ - 1); }  // by the call under way. Holds mutex_.
  // Begins one counted call: 0, or the error with which it fails. Holds mutex_.
  int begin_call(uint64_t incarnation);
  NodePtr find(const std::string& path);
  void recount(Node& folder, std::set<Node*>& seen);  // used_bytes_ and links, after a crash

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
