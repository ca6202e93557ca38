#include "actors/node/clients/first_save.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "storage/root/run_root.h"

namespace shoal::actors {

namespace {

// The newest first.
std::string name_some(const std::vector<AttemptKey>& keys) {
  std::vector<std::string> named;
  for (auto key = keys.rbegin(); key != keys.rend() && named.size() < kMaxCheckpointsNamed; ++key) {
    named.push_back(to_string(*key));
  }
  std::string text = fmt::format("{}", fmt::join(named, ", "));
  if (keys.size() > named.size()) text += fmt::format(" and {} more", keys.size() - named.size());
  return text;
}

}  // namespace

Result<std::optional<std::string>> first_save_warning(storage::Storage& storage, const FirstSave& first) {
  SHOAL_ASSIGN_OR_RETURN(const storage::AttemptList list, storage::list_attempt_states(storage));
  SHOAL_ASSIGN_OR_RETURN(const storage::LiveGeneration live, storage::read_live_generation(storage));
  std::optional<AttemptKey> loaded = first.loaded;
  if (live.generation == first.key.generation) {
    for (const AttemptKey& key : live.loaded) loaded = std::max(loaded, std::optional(key));
  }
  std::vector<AttemptKey> above;  // ascending
  for (const storage::AttemptInfo& info : list.attempts) {
    const bool is_earlier = info.key.generation < first.key.generation;
    const bool is_decided = info.state != storage::AttemptInfo::State::undecided;
    if (!is_earlier && is_decided && info.key != first.key) return std::optional<std::string>();
    if (!is_earlier || info.state != storage::AttemptInfo::State::committed) continue;
    if (!loaded || *loaded < info.key) above.push_back(info.key);
  }
  std::sort(above.begin(), above.end());
  if (loaded) std::erase_if(above, [&](const AttemptKey& key) { return key.step <= first.key.step; });
  if (above.empty()) return std::optional<std::string>();
  if (loaded) {
    return std::optional(fmt::format(
        "this run loaded {} and saves step {}, but the root has {}, committed later and not loaded by this "
        "run: this save becomes the latest; if you do not want this, end the job and load the latest",
        to_string(*loaded), first.key.step, name_some(above)));
  }
  return std::optional(fmt::format(
      "this run saves step {} without having loaded a checkpoint, but the root has {}: this save becomes the "
      "latest; if you do not want this, end the job and load the latest, or use another root",
      first.key.step, name_some(above)));
}

FirstSaveWatch::FirstSaveWatch(storage::Storage& storage, uint32_t generation, Warn warn)
    : storage_(storage), generation_(generation), warn_(std::move(warn)) {}

FirstSaveWatch::~FirstSaveWatch() {
  if (looking_.joinable()) looking_.join();
}

void FirstSaveWatch::from_client(ClientId client, const local::LocalMessage& message) {
  std::lock_guard lock(mutex_);
  if (const auto* attach = std::get_if<local::Attach>(&message)) {
    if (attach->rank == 0) rank_0_ = client;
  } else if (const auto* latest = std::get_if<local::Latest>(&message)) {
    asks_latest_[client] = latest->request_id;
  } else if (const auto* staged = std::get_if<local::Staged>(&message)) {
    if (has_looked_ || rank_0_ != client) return;
    has_looked_ = true;
    if (staged->again) return;  // an earlier node has looked when this save was first staged
    try {
      looking_ = std::thread(
          [this, first = FirstSave{{generation_, staged->step, staged->attempt}, loaded_}] { look(first); });
    } catch (const std::exception& error) {
      cannot_look(error);
    }
  }
}

void FirstSaveWatch::to_client(ClientId client, const local::LocalMessage& message) {
  const auto* found = std::get_if<local::Found>(&message);
  if (found == nullptr) return;
  std::lock_guard lock(mutex_);
  const auto asked = asks_latest_.find(client);
  if (asked != asks_latest_.end() && asked->second == found->request_id) {
    asks_latest_.erase(asked);
  } else if (found->outcome.ok()) {
    loaded_ = std::max(loaded_, std::optional(found->checkpoint.key));
  }
}

void FirstSaveWatch::client_lost(ClientId client) {
  std::lock_guard lock(mutex_);
  asks_latest_.erase(client);
  if (rank_0_ == client) rank_0_.reset();
}

void FirstSaveWatch::look(const FirstSave& first) {
  try {
    const Result<std::optional<std::string>> line = first_save_warning(storage_, first);
    if (line.ok() && *line) warn_(**line);
  } catch (const std::bad_alloc& error) {
    cannot_look(error);
  }
}

void FirstSaveWatch::cannot_look(const std::exception& why) {
  warn_(
      fmt::format("cannot check whether this run saves over checkpoints that it has not loaded, for lack of "
                  "memory or threads: {}",
                  why.what()));
}

}  // namespace shoal::actors
