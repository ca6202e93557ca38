// SlabTable: maps the sealed memory files of the clients of one node.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"
#include "base/owned_fd.h"
#include "local/messages/messages.h"
#include "local/socket/socket.h"

namespace shoal::actors {

class StagedParts;

class SlabTable final : public Slabs {
 public:
  // Maps what a client offers, and closes the descriptor. Replaces a slab with the same id; views of the old
  // mapping stay valid. Code::refused or invalid_argument: check_slab rejects it, or the client has too many.
  // Any thread.
  Status add(ClientId client, const local::Slab& slab, base::OwnedFd fd);
  Result<View> find(ClientId client, uint32_t slab_id) override;
  Status release(ClientId client, uint32_t slab_id) override;
  Result<std::unique_ptr<PartSource>> parts_of(ClientId client, uint32_t slab_id,
                                               const AttemptKey& key) override;
  void stage_by(StagedParts& parts);  // call once, before anything is staged; outlives the operations
  // Removes the client's slabs with ids below `below` that slab_ids does not name. A mapping ends with its
  // last view.
  void keep_only(ClientId client, uint32_t below, const std::vector<uint32_t>& slab_ids);
  void forget(ClientId client);  // mappings end with their last view
  bool empty() const;
  uint64_t bytes() const;  // of all slabs, of saves and of load windows

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<ClientId, uint32_t>, View> slabs_;
  StagedParts* parts_ = nullptr;
};

}  // namespace shoal::actors
