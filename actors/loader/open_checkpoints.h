// OpenCheckpoints: what a Loader knows of checkpoints while somebody holds a pin on them.
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

inline constexpr size_t kMaxOpenCheckpoints = 64;  // that one client keeps open

class OpenCheckpoints {
 public:
  using RequestKey = std::pair<ClientId, uint32_t>;  // client and its request id

  // What loads that are under way, or what is kept open, know of it: while their pins stand, which stood
  // before the decision was read, what that said is still so. nullptr: nobody does.
  std::shared_ptr<StoredCheckpoint> known(const AttemptKey& key) const {
    auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }
  // The one that others know already, else this one.
  std::shared_ptr<StoredCheckpoint> share(std::shared_ptr<StoredCheckpoint> fresh) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    return known_.try_emplace(fresh->key(), fresh).first->second.lock();
  }

  // The caller's pin passes to what is kept, and back to the caller when it is closed.
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
  // Its pin has ended: nobody keeps it any more, and who asks next looks at the root.
  void forget(const AttemptKey& key) {
    std::erase_if(kept_, [&](const auto& entry) { return entry.second->key() == key; });
    known_.erase(key);
  }

 private:
  std::map<RequestKey, std::shared_ptr<StoredCheckpoint>> kept_;
  std::map<AttemptKey, std::weak_ptr<StoredCheckpoint>> known_;
};

}  // namespace shoal::actors
