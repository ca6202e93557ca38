// FirstSaveWatch: warns if the saves of a run will replace checkpoints that it has not loaded. A save of an
// earlier step than theirs becomes the latest. Without the warning, a run that starts from scratch by mistake
// may be noticed days later.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/operation.h"
#include "local/messages/messages.h"
#include "storage/storage.h"

namespace shoal::actors {

inline constexpr size_t kMaxCheckpointsNamed = 8;  // in the warning

struct FirstSave {
  AttemptKey key;
  std::optional<AttemptKey> loaded;  // the newest checkpoint that clients of this node have loaded
};
// The warning about a run's first save. nullopt: the run continues from the newest checkpoint of earlier
// runs, or has saved before. Reads from the root what other nodes have loaded as the latest. An error: the
// root cannot be listed.
Result<std::optional<std::string>> first_save_warning(storage::Storage& storage, const FirstSave& first);

// Watches the messages of clients. When rank 0 has staged its first save, looks once, on a thread. If there
// is no thread or memory for that, the warning states only this. All methods may be called on any thread.
class FirstSaveWatch {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // `storage` and what `warn` uses outlive the watch. `warn` is called on the watch's thread or on that of
  // the caller.
  FirstSaveWatch(storage::Storage& storage, uint32_t generation, Warn warn);
  ~FirstSaveWatch();  // waits for its thread
  void from_client(ClientId client, const local::LocalMessage& message);
  void to_client(ClientId client, const local::LocalMessage& message);
  void client_lost(ClientId client);

 private:
  void look(const FirstSave& first);
  void cannot_look(const std::exception& why);

  storage::Storage& storage_;
  const uint32_t generation_;
  const Warn warn_;
  std::mutex mutex_;
  std::optional<ClientId> rank_0_;
  std::map<ClientId, uint32_t> asks_latest_;  // request ids of Latest: the answer to one is no load
  std::optional<AttemptKey> loaded_;
  bool has_looked_ = false;
  std::thread looking_;
};

}  // namespace shoal::actors
