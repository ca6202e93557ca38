// OpenCheckpoints: what a Loader knows of checkpoints that it has pinned.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/loader/stored_checkpoint.h"
#include "actors/operation.h"

namespace shoal::actors {

inline constexpr size_t kMaxOpenCheckpoints = 64;  // of one client

class OpenCheckpoints {
 public:
  using RequestKey = std::pair<ClientId, uint32_t>;  // client and its request id

  // What loads in progress or open checkpoints know of this checkpoint; nullptr: none of them does. It is
  // still valid while their pins exist, because each pin existed before the decision was read.
  std::shared_ptr<StoredCheckpoint> known(const AttemptKey& key) const {
    auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }
  // Returns the one that other loads know already, else this one.
  std::shared_ptr<StoredCheckpoint> share(std::shared_ptr<StoredCheckpoint> fresh) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    return known_.try_emplace(fresh->key(), fresh).first->second.lock();
  }

  // The pin passes from the caller to the open checkpoint; close() passes it back.
  void keep(const RequestKey& id, std::shared_ptr<StoredCheckpoint> stored) { kept_[id] = std::move(stored); }
  std::optional<AttemptKey> kept(const RequestKey& id) const {
    auto found = kept_.find(id);
    if (found == kept_.end()) return std::nullopt;
    return found->second->key();
  }
  bool is_full(ClientId client) const {
    return std::distance(kept_.lower_bound({client, 0}), kept_.lower_bound({client + 1, 0})) >=
           static_cast<std::ptrdiff_t>(kMaxOpenCheckpoints);
  }
  std::optional<AttemptKey> close(const RequestKey& id) {
    const std::optional<AttemptKey> key = kept(id);
    if (key) kept_.erase(id);
    return key;
  }
  std::vector<AttemptKey> close_all(ClientId client) {
    std::vector<AttemptKey> keys;
    for (auto it = kept_.lower_bound({client, 0}); it != kept_.end() && it->first.first == client;) {
      keys.push_back(it->second->key());
      it = kept_.erase(it);
    }
    return keys;
  }
  // The pin of this checkpoint has ended: it is no longer open, and the next load reads the root.
  void forget(const AttemptKey& key) {
    std::erase_if(kept_, [&](const auto& entry) { return entry.second->key() == key; });
    known_.erase(key);
  }

 private:
  std::map<RequestKey, std::shared_ptr<StoredCheckpoint>> kept_;
  std::map<AttemptKey, std::weak_ptr<StoredCheckpoint>> known_;
};

}  // namespace shoal::actors
