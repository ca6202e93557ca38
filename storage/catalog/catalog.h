// Catalog: the checkpoints of a run in a transactional index. It can be rebuilt from the files at any time,
// and `load` and `latest` never trust it: they read the root. docs/reference/format.md, "Catalog".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

struct CatalogEntry {
  AttemptKey key;
  AttemptInfo::State state = AttemptInfo::State::undecided;
  uint64_t payload_bytes = 0;
  uint32_t files = 0;
  uint32_t world_size = 0;
  int64_t unix_time_ns = 0;
  std::string cause;  // of an abort or deletion
};

CatalogEntry catalog_entry_of(const Decision& decision);
// Whether `after` is news to a catalog that holds `before`. A checkpoint or an abort may become deleted; any
// other change of what was decided is Code::refused, since the first decision stands for ever.
Result<bool> is_catalog_news(const std::optional<CatalogEntry>& before, const CatalogEntry& after);

// All methods: any thread. A failed write fences the catalog: later calls answer with the first cause.
class Catalog {
 public:
  virtual ~Catalog() = default;
  // One synchronous write batch: checkpoint, layouts, files. Recording again what is there does nothing.
  virtual Status record(const Decision& decision) = 0;
  // The same of many, which are durable once sync, or a later record, has returned: one wait for the disk.
  virtual Status record_unsynced(const Decision& decision) = 0;
  virtual Status sync() = 0;
  virtual Result<std::optional<CatalogEntry>> find(const AttemptKey& key) = 0;
  virtual Result<std::vector<CatalogEntry>> list() = 0;  // ascending by key
  virtual Result<std::vector<FileEntry>> files(
      const AttemptKey& key) = 0;  // as in the manifest; none of what is deleted
};

// RocksDB at `path` (made if absent) for the run `root_id`; Code::refused if it belongs to another run,
// Code::busy while another process has it open, Code::version if a newer program wrote it.
Result<std::unique_ptr<Catalog>> open_rocksdb_catalog(const std::string& path, const RootId& root_id);
std::unique_ptr<Catalog> make_memory_catalog();  // the same contract, for simulation and tests

// Brings the catalog up to date with the root: records every decision that it lacks, but for damaged ones
// (list_attempts names these), and that checkpoints are deleted of which nothing is left. Returns how many.
// Code::refused where the catalog says other than the root, or remembers newer decisions than the root has:
// it is to be made anew.
Result<uint64_t> catch_up(Catalog& catalog, Storage& storage);

}  // namespace shoal::storage
