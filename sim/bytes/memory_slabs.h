// MemorySlabs: the fake of Slabs (actors/operation.h), over plain memory.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"

namespace shoal::sim {

// Any thread. A view keeps its memory alive after the slab is removed, as a mapping does.
class MemorySlabs final : public actors::Slabs {
 public:
  // Adds a slab of zeros. Replaces a slab with the same id.
  MutableByteView add(actors::ClientId client, uint32_t slab_id, uint64_t bytes) {
    auto memory = std::make_shared<Bytes>(bytes);
    std::lock_guard lock(mutex_);
    slabs_[{client, slab_id}] = memory;
    return *memory;
  }
  void forget(actors::ClientId client) {
    std::lock_guard lock(mutex_);
    slabs_.erase(slabs_.lower_bound({client, 0}), slabs_.lower_bound({client + 1, 0}));
  }

  Result<View> find(actors::ClientId client, uint32_t slab_id) override {
    std::lock_guard lock(mutex_);
    auto found = slabs_.find({client, slab_id});
    if (found == slabs_.end()) {
      return Status(Code::not_found,
                    "client " + std::to_string(client) + " has no slab " + std::to_string(slab_id));
    }
    return View{found->second, *found->second};
  }
  Status release(actors::ClientId client, uint32_t slab_id) override {
    SHOAL_ASSIGN_OR_RETURN(const View view, find(client, slab_id));
    std::fill(view.bytes.begin(), view.bytes.end(), std::byte{0});
    return ok_status();
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<actors::ClientId, uint32_t>, std::shared_ptr<Bytes>> slabs_;
};

}  // namespace shoal::sim
