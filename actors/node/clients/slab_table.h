// SlabTable: the sealed memory of the clients of one node, mapped.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/executor/operation_runner.h"
#include "actors/operation.h"
#include "local/messages/messages.h"
#include "local/socket/socket.h"

namespace shoal::actors {

class StagedParts;

class SlabTable final : public Slabs {
 public:
  // Maps what a client offers; the descriptor is closed. An id that stands is replaced: views of the old
  // mapping stay good. Code::refused or invalid_argument: what check_slab says of it, or one slab too many.
  // Any thread.
  Status add(ClientId client, const local::Slab& slab, local::OwnedFd fd);
  Result<View> find(ClientId client, uint32_t slab_id) override;
  Status release(ClientId client, uint32_t slab_id) override;
  Result<std::unique_ptr<PartSource>> parts_of(ClientId client, uint32_t slab_id,
                                               const AttemptKey& key) override;
  void stage_by(StagedParts& parts);  // once, before anything is staged; it outlives the operations
  // Those of `below` that are not named: their mappings go with the last view.
  void keep_only(ClientId client, uint32_t below, const std::vector<uint32_t>& slab_ids);
  void forget(ClientId client);  // its mappings go with the last view
  bool empty() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<ClientId, uint32_t>, View> slabs_;
  StagedParts* parts_ = nullptr;
};

}  // namespace shoal::actors
