#include "storage/catalog/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

namespace shoal::storage {

CatalogEntry catalog_entry_of(const Decision& decision) {
  CatalogEntry entry;
  entry.key = decision.key;
  entry.unix_time_ns = decision.unix_time_ns;
  if (decision.committed()) {
    const Manifest& manifest = decision.manifest();
    entry.state = AttemptInfo::State::committed;
    entry.payload_bytes = manifest.payload_bytes;
    entry.files = static_cast<uint32_t>(manifest.files.size());
    entry.world_size = manifest.world->roster.world_size();
    return entry;
  }
  bool aborted = decision.tombstone().reason == Tombstone::Reason::aborted;
  entry.state = aborted ? AttemptInfo::State::aborted : AttemptInfo::State::deleted;
  entry.cause = decision.tombstone().cause;
  return entry;
}

Result<bool> is_catalog_news(const std::optional<CatalogEntry>& before, const CatalogEntry& after) {
  if (!before) return true;
  if (before->state == after.state) return false;
  if (after.state == AttemptInfo::State::deleted) return true;
  return Status(Code::refused,
                fmt::format("the catalog already holds another decision of {}", to_string(after.key)));
}

namespace {

// Normal deletion never removes the newest decision, and a root may use keys above its newest one again. So a
// catalog entry above the root's newest decision belongs to another history of the root.
Status check_same_past(const std::vector<CatalogEntry>& entries, const std::set<AttemptKey>& there,
                       const std::optional<AttemptKey>& newest) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (newest && entry->key <= *newest) break;
    if (entry->state == AttemptInfo::State::deleted || there.contains(entry->key)) continue;
    return Status(Code::refused,
                  fmt::format("it lists {}, which is newer than everything in the root: the root was "
                              "restored from an older copy, or that attempt was removed by hand",
                              to_string(entry->key)));
  }
  return ok_status();
}

// Forgets each checkpoint and each deleted attempt whose folder no longer exists in the root.
Result<uint64_t> forget_gone(Catalog& catalog, const std::vector<CatalogEntry>& entries,
                             const AttemptList& listed) {
  std::set<AttemptKey> there;
  std::optional<AttemptKey> newest;  // among decided attempts
  auto add_decided = [&](const AttemptKey& key) { newest = newest ? std::max(*newest, key) : key; };
  for (const AttemptInfo& info : listed.attempts) {
    there.insert(info.key);
    if (info.state != AttemptInfo::State::undecided) add_decided(info.key);
  }
  std::set<uint64_t> unreadable;  // steps
  for (const auto& [key, why] : listed.damaged) {
    there.insert(key);
    add_decided(key);
    if (key.generation == kUnknownGeneration) unreadable.insert(key.step);
  }
  SHOAL_RETURN_IF_ERROR(check_same_past(entries, there, newest));
  uint64_t forgotten = 0;
  for (const CatalogEntry& entry : entries) {
    if (entry.state == AttemptInfo::State::aborted || there.contains(entry.key)) continue;
    if (unreadable.contains(entry.key.step)) continue;
    SHOAL_RETURN_IF_ERROR(catalog.forget(entry.key));
    ++forgotten;
  }
  return forgotten;
}

}  // namespace

Result<uint64_t> catch_up(Catalog& catalog, Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(AttemptList listed, list_attempt_states(storage));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, catalog.list());
  uint64_t recorded = 0;
  for (const AttemptInfo& info : listed.attempts) {
    if (info.state == AttemptInfo::State::undecided) continue;
    const auto known =
        std::lower_bound(entries.begin(), entries.end(), info.key,
                         [](const CatalogEntry& entry, const AttemptKey& key) { return entry.key < key; });
    if (known != entries.end() && known->key == info.key && known->state == info.state) continue;
    auto decision = read_decision(storage, info.key);
    Code code = decision.status().code();
    if (code == Code::not_found || code == Code::corrupt || code == Code::version) continue;
    if (!decision.ok()) return decision.status();
    SHOAL_RETURN_IF_ERROR(catalog.record_unsynced(*decision));
    ++recorded;
  }
  SHOAL_ASSIGN_OR_RETURN(uint64_t gone, forget_gone(catalog, entries, listed));
  if (recorded + gone != 0) SHOAL_RETURN_IF_ERROR(catalog.sync());
  return recorded + gone;
}

namespace {

class MemoryCatalog final : public Catalog {
 public:
  Status record(const Decision& decision) override {
    std::lock_guard lock(mutex_);
    CatalogEntry entry = catalog_entry_of(decision);
    SHOAL_ASSIGN_OR_RETURN(bool news, is_catalog_news(find_locked(entry.key), entry));
    if (!news) return ok_status();
    Known& known = known_[entry.key];
    known.entry = std::move(entry);
    known.files = decision.committed() ? decision.manifest().files : std::vector<FileEntry>();
    return ok_status();
  }
  Status record_unsynced(const Decision& decision) override { return record(decision); }
  Status sync() override { return ok_status(); }
  Status forget(const AttemptKey& key) override {
    std::lock_guard lock(mutex_);
    known_.erase(key);
    return ok_status();
  }
  Result<std::optional<CatalogEntry>> find(const AttemptKey& key) override {
    std::lock_guard lock(mutex_);
    return find_locked(key);
  }
  Result<std::vector<CatalogEntry>> list() override {
    std::lock_guard lock(mutex_);
    std::vector<CatalogEntry> out;
    for (const auto& [key, known] : known_) out.push_back(known.entry);
    return out;
  }
  Result<std::vector<FileEntry>> files(const AttemptKey& key) override {
    std::lock_guard lock(mutex_);
    auto found = known_.find(key);
    return found == known_.end() ? std::vector<FileEntry>() : found->second.files;
  }

 private:
  struct Known {
    CatalogEntry entry;
    std::vector<FileEntry> files;
  };
  std::optional<CatalogEntry> find_locked(const AttemptKey& key) const {
    auto found = known_.find(key);
    if (found == known_.end()) return std::nullopt;
    return found->second.entry;
  }

  std::mutex mutex_;
  std::map<AttemptKey, Known> known_;
};

}  // namespace

std::unique_ptr<Catalog> make_memory_catalog() {
  return std::make_unique<MemoryCatalog>();
}

}  // namespace shoal::storage
