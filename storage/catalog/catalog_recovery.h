// A catalog that can be trusted: opened, checked and caught up, or made anew from the root's files. It holds
// nothing that the root does not, so that losing it costs time alone. docs/how-to/operations.md, "The
// catalog".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shoal/status.h"
#include "storage/catalog/catalog.h"
#include "storage/storage.h"

namespace shoal::storage {

// The catalog at `path`, every block of it read and checked, and caught up with the root. One that is
// damaged, or that says other than the root, is moved to "PATH.aside" (what stood there is removed), as is
// one of another run where `may_replace_others`; `warn` hears of it, in one line, and a new one takes its
// place. A folder that holds anything but a catalog is never moved: Code::refused. Code::busy while another
// process has it open. nullptr, with a warning, where its disk takes none (Code::io, Code::no_space): a job
// does without.
Result<std::unique_ptr<Catalog>> open_sound_catalog(const std::string& path, bool may_replace_others,
                                                    const RootId& root_id, Storage& storage,
                                                    const std::function<void(const std::string&)>& warn);

struct CatalogRebuild {
  std::vector<CatalogEntry> decided;                   // ascending: all that the new catalog holds
  std::vector<AttemptInfo> undecided;                  // ascending
  std::vector<std::pair<AttemptKey, Status>> damaged;  // decisions that do not read back, with the path
  uint64_t file_bytes = 0;                             // of the committed ones, by their manifests
  enum class Before : uint8_t { absent, sound, damaged, of_another_run } before = Before::absent;
  std::string before_cause;  // where damaged or of another run: one line
};
// Makes a catalog from every decision of the root beside `path`, and puts it in its place when it is whole: a
// crash leaves the old one, none, or the new one. Code::busy while a node has the catalog open; Code::refused
// where another run owns it and `may_replace_others` is not set, or `path` holds anything but a catalog;
// Code::version where a newer program wrote a decision or the catalog. Nothing is replaced then.
Result<CatalogRebuild> rebuild_catalog(const std::string& path, bool may_replace_others,
                                       const RootId& root_id, Storage& storage);

}  // namespace shoal::storage
