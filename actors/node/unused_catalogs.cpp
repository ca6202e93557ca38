#include "actors/node/unused_catalogs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "storage/catalog/catalog_recovery.h"

namespace shoal::actors {

namespace {

constexpr size_t kStemDigits = 16;  // of a root's hash (local::node_paths)
// What follows the stem: a catalog, what a node moved aside, and what a rebuild has left.
constexpr std::array<std::string_view, 4> kCatalogEnds = {".catalog", ".catalog.aside", ".catalog.rebuild",
                                                          ".catalog.replaced"};

bool is_default_catalog(std::string_view name) {
  if (name.ends_with(storage::kUnusedEnd)) name.remove_suffix(storage::kUnusedEnd.size());
  const std::string_view stem = name.substr(0, kStemDigits);
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (stem.size() != kStemDigits || !std::ranges::all_of(stem, is_digit)) return false;
  return std::ranges::find(kCatalogEnds, name.substr(kStemDigits)) != kCatalogEnds.end();
}

}  // namespace

Status remove_unused_catalogs(const std::string& folder, const std::string& own_catalog,
                              std::chrono::system_clock::time_point now, std::vector<std::string>* removed) {
  namespace fs = std::filesystem;
  const std::string own_stem = fs::path(own_catalog).filename().string().substr(0, kStemDigits);
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path(), name = entry->path().filename();
    if (!is_default_catalog(name) || name.starts_with(own_stem) || entry->is_symlink(error)) continue;
    SHOAL_ASSIGN_OR_RETURN(const bool is_removed,
                           storage::remove_unused_catalog(path, now - kUnusedCatalogAge));
    if (is_removed) removed->push_back(path);
  }
  if (!error) return ok_status();
  return Status(Code::io, fmt::format("{}: cannot look for unused catalogs: {}", folder, error.message()));
}

}  // namespace shoal::actors
