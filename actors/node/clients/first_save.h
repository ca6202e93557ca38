// FirstSaveWatch: warns of a run whose saves take the place of checkpoints that it has not loaded. A save of
// an earlier step than they have becomes `latest` over them, and a run that starts afresh by mistake is
// noticed days later otherwise.
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
  std::optional<AttemptKey> loaded;  // the newest that clients of this node have loaded
};
// What is to be said of a run's first save; nothing where the run goes on from the newest checkpoint of
// earlier runs, or has saved before. What other nodes have loaded as the latest is read from the root. An
// error: the root cannot be listed.
Result<std::optional<std::string>> first_save_warning(storage::Storage& storage, const FirstSave& first);

// Watches what clients of a node say, and looks once, beside all else, when rank 0 has staged its first save.
// Where there is no thread or no memory to look with, it says that alone. Any thread.
class FirstSaveWatch {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // Both outlive the watch. `warn` is called by a thread of the watch, or by the one that calls it.
  FirstSaveWatch(storage::Storage& storage, uint32_t generation, Warn warn);
  ~FirstSaveWatch();  // waits until it has looked
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
  std::map<ClientId, uint32_t> asks_latest_;  // by which request: its answer is no load
  std::optional<AttemptKey> loaded_;
  bool has_looked_ = false;
  std::thread looking_;
};

}  // namespace shoal::actors
