#include "storage/catalog/watched_catalog.h"

#include <utility>

#include "storage/catalog/catalog_recovery.h"

namespace shoal::storage {

namespace {

using Call = CallWatch::Call;

class WatchedCatalog final : public Catalog {
 public:
  WatchedCatalog(std::unique_ptr<Catalog> real, std::string path, CallWatch& watch)
      : real_(std::move(real)), path_(std::move(path)), watch_(watch) {}

  Status record(const Decision& decision) override {
    const Call call(watch_, "catalog write", path_);
    return real_->record(decision);
  }
  Status record_unsynced(const Decision& decision) override {
    const Call call(watch_, "catalog write", path_);
    return real_->record_unsynced(decision);
  }
  Status sync() override {
    const Call call(watch_, "catalog sync", path_);
    return real_->sync();
  }
  Status forget(const AttemptKey& key) override {
    const Call call(watch_, "catalog write", path_);
    return real_->forget(key);
  }
  Result<std::optional<CatalogEntry>> find(const AttemptKey& key) override {
    const Call call(watch_, "catalog read", path_);
    return real_->find(key);
  }
  Result<std::vector<CatalogEntry>> list() override {
    const Call call(watch_, "catalog read", path_);
    return real_->list();
  }
  Result<std::vector<FileEntry>> files(const AttemptKey& key) override {
    const Call call(watch_, "catalog read", path_);
    return real_->files(key);
  }

 private:
  const std::unique_ptr<Catalog> real_;
  const std::string path_;
  CallWatch& watch_;
};

}  // namespace

std::unique_ptr<Catalog> make_watched_catalog(std::unique_ptr<Catalog> real, std::string path,
                                              CallWatch& watch) {
  if (real == nullptr) return nullptr;
  return std::make_unique<WatchedCatalog>(std::move(real), std::move(path), watch);
}

Result<std::unique_ptr<Catalog>> open_watched_catalog(const std::string& path, bool may_replace_others,
                                                      const RootId& root_id, Storage& storage,
                                                      CallWatch& watch,
                                                      const std::function<void(const std::string&)>& warn) {
  std::unique_ptr<Catalog> opened;
  {
    const Call call(watch, "catalog opening", path);
    SHOAL_ASSIGN_OR_RETURN(opened, open_sound_catalog(path, may_replace_others, root_id, storage, warn));
  }
  return make_watched_catalog(std::move(opened), path, watch);
}

}  // namespace shoal::storage
