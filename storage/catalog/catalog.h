// Catalog: an index of a run's checkpoints in a transactional database. The files in the root can rebuild it
// at any time. `load` and `latest` read the root and never use the catalog. docs/reference/format.md,
// "Catalog".
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
// Whether `after` changes a catalog that holds `before`. Only a change to deleted is allowed, from a
// checkpoint or from an abort. Any other change of a decision is Code::refused, because the first decision is
// final.
Result<bool> is_catalog_news(const std::optional<CatalogEntry>& before, const CatalogEntry& after);

// Any thread may call any method. After a failed write the catalog refuses all work: later calls return the
// error of that write.
class Catalog {
 public:
  virtual ~Catalog() = default;
  // Writes one synchronous batch: checkpoint, layouts and files. Does nothing if the catalog already holds
  // the decision.
  virtual Status record(const Decision& decision) = 0;
  // Like record, without waiting for the disk. The decisions are durable once sync, or a later record,
  // returns.
  virtual Status record_unsynced(const Decision& decision) = 0;
  virtual Status sync() = 0;
  // Removes the entry and the files of an attempt of which the root has nothing left. Does not wait for the
  // disk: catch_up does it again after a crash.
  virtual Status forget(const AttemptKey& key) = 0;
  virtual Result<std::optional<CatalogEntry>> find(const AttemptKey& key) = 0;
  virtual Result<std::vector<CatalogEntry>> list() = 0;  // by ascending key
  virtual Result<std::vector<FileEntry>> files(
      const AttemptKey& key) = 0;  // As in the manifest. Empty for a deleted checkpoint.
};

// Opens the RocksDB database at `path` for the run `root_id`, and creates it if it does not exist.
// Code::refused if it belongs to another run, Code::busy while another process has it open, Code::version if
// a newer program wrote it.
Result<std::unique_ptr<Catalog>> open_rocksdb_catalog(const std::string& path, const RootId& root_id);
std::unique_ptr<Catalog> make_memory_catalog();  // the same contract, for simulation and tests

// Records every decision of the root that the catalog lacks. Leaves out damaged decisions, which
// list_attempts names. Forgets deleted attempts and checkpoints whose folder is gone. Returns how many
// decisions it recorded or forgot. Code::refused if the catalog contradicts the root, or holds decisions
// newer than any in the root: the caller must then rebuild the catalog.
Result<uint64_t> catch_up(Catalog& catalog, Storage& storage);

}  // namespace shoal::storage
