// Opens a catalog that agrees with the root, or rebuilds it from the root's files. The catalog holds nothing
// that the root lacks, so losing it costs only time. docs/how-to/operations.md, "The catalog".
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/status.h"
#include "storage/catalog/catalog.h"
#include "storage/storage.h"

namespace shoal::storage {

// Opens the catalog at `path`, checks every block of it, and records what it lacks of the root's decisions.
//
// A catalog that is damaged or contradicts the root is moved to "PATH.aside", which replaces an older one
// there. With `may_replace_others` the same happens to a catalog of another run. A new catalog takes its
// place, and `warn` receives one line. A folder that holds anything but a catalog is never moved:
// Code::refused. Code::busy while another process has the catalog open.
//
// Returns nullptr after a warning if the disk of the catalog fails (Code::io, Code::no_space): the job then
// runs without a catalog.
Result<std::unique_ptr<Catalog>> open_sound_catalog(const std::string& path, bool may_replace_others,
                                                    const RootId& root_id, Storage& storage,
                                                    const std::function<void(const std::string&)>& warn);

struct CatalogRebuild {
  std::vector<CatalogEntry> decided;   // ascending; all that the new catalog holds
  std::vector<AttemptInfo> undecided;  // ascending
  // Decisions that cannot be read; each error contains the path.
  std::vector<std::pair<AttemptKey, Status>> damaged;
  uint64_t file_bytes = 0;  // of the committed attempts, from their manifests
  enum class Before : uint8_t { absent, sound, damaged, of_another_run } before = Before::absent;
  std::string before_cause;  // one line, if the old catalog was damaged or belongs to another run
};
// Builds a catalog from every decision of the root, beside `path`, and moves it to `path` once it is
// complete. After a crash `path` holds the old catalog, none, or the new one.
//
// Code::busy while a node has the catalog open. Code::refused if `path` holds anything but a catalog, or a
// catalog of another run without `may_replace_others`. Code::version if a newer program wrote a decision or
// the catalog. None of these errors replaces anything.
Result<CatalogRebuild> rebuild_catalog(const std::string& path, bool may_replace_others,
                                       const RootId& root_id, Storage& storage);

// The end of the name of a catalog that is being removed.
inline constexpr std::string_view kUnusedEnd = ".unused";
// Removes the catalog at `path` if no file in it was changed since `used_until`. false: it stays, because it
// was, because a process has it open, or because the folder is none that Shoal made.
Result<bool> remove_unused_catalog(const std::string& path, std::chrono::system_clock::time_point used_until);

}  // namespace shoal::storage
