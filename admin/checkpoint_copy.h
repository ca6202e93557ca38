// Copies checkpoints from one root to another one. docs/reference/format.md, "Unfinished copies".
//
// The files of a copy are written to the folder "gGaA.<32 random hex digits>.partial" beside the one that the
// checkpoint gets. No reader looks there. The manifest is written last. Then the folder gets its name, which
// fails if the name is taken. A reader of the target therefore finds the checkpoint wholly or not at all.
//
// A copy that continues what another one left first renames that folder to a name of its own, and who removes
// it renames it too. So no other process changes the files of a folder that gets its name.
//
// An object store cannot rename a folder. There the files get their own names in the checkpoint's folder,
// which an object marks as an unfinished copy (storage/root/attempt_marks.h), and the manifest comes last.
// Several copies of one checkpoint may run at once and share the files.
//
// A file gets its name in that folder once every block of it was compared with its digest and its bytes are
// durable. So a copy that is continued keeps each file that has its name, its size and the header that the
// manifest states, and does not read its blocks again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "admin/root_reader.h"
#include "base/digest/digest.h"
#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/storage.h"

namespace shoal::admin {

inline constexpr unsigned kMaxCopyJobs = 64;
inline constexpr unsigned kDefaultCopyJobs = 4;
// Read and verified at a time, by each job. A write has up to three buffers of as much
// (storage/files/write_behind.h).
inline constexpr uint64_t kCopyWindowBytes = 4 * base::kDigestBlockBytes;
// The same for files in an object store, read by several requests of kStoreSliceBytes at once.
inline constexpr uint64_t kStoreSliceBytes = 8 * base::kDigestBlockBytes;
inline constexpr uint64_t kStoreCopyWindowBytes = 2 * kStoreSliceBytes;

// The free space of the file system that holds this folder.
Result<uint64_t> free_space_of(storage::FileSystem& file_system, const std::string& folder);

// Code::invalid_argument if one of these folders lies in the other one: what happens to the outer root would
// happen to its copy.
Status check_lies_outside(const std::string& root, const std::string& other);

// Opens the root to copy to. An empty folder, which may hold a shoal.toml, or an empty prefix of a bucket
// becomes a root if `changes` is set; otherwise its `id` stays zero. Code::not_found if the folder or bucket
// does not exist, Code::refused if it holds something else than a run, Code::invalid_argument if it is the
// root of `source`, lies in it, or holds it.
Result<OpenRoot> open_copy_target(const OpenRoot& source, const std::string& path, bool changes);

struct CopyOptions {
  unsigned jobs = kDefaultCopyJobs;                         // files in flight
  std::function<bool()> keeps_going = [] { return true; };  // any thread; false ends a copy: Code::aborted
};

// What a copy would do.
struct CopyForecast {
  bool is_present = false;  // the target has this checkpoint already
  uint64_t files = 0, bytes = 0;
  uint64_t files_kept = 0, bytes_kept = 0;  // of these, what an interrupted copy has left
};

// To a target that has nothing of it.
CopyForecast whole_copy(const storage::Decision& committed);

struct CopyResult {
  enum class Outcome : uint8_t {
    copied,
    present,        // the target has it already, with the same content
    deleted,        // at the source, before it was copied
    deleted_there,  // at the target, where its tombstone stays
    failed,
  } outcome = Outcome::failed;
  CopyForecast work;
  Status status;  // of a failed copy, or why it counts as deleted
  // The target failed, or the copy was interrupted. Another checkpoint would fail too.
  bool ends_all = false;
  Status not_pinned;  // why the source could not be pinned; the copy went on
};

// One checkpoint at a time. The storages must outlive the object.
class CheckpointCopier {
 public:
  CheckpointCopier(storage::Storage& source, storage::Storage& target, const RootId& target_id,
                   CopyOptions options = {})
      : source_(source), target_(target), target_id_(target_id), options_(std::move(options)) {}

  // Reads only. Code::already_exists if the target has the same attempt with other content, or a save that is
  // not decided. Code::refused if the target has deleted or aborted it, or if a run has begun there whose
  // saves would be older than this checkpoint.
  Result<CopyForecast> forecast(const storage::Decision& committed);
  // Whether the target has deleted it, and keeps the tombstone, as an object store does.
  bool is_deleted_there(const AttemptKey& key);
  // Code::busy: another process took the unfinished files, for example another copy of the same checkpoint.
  // Pins the checkpoint at the source while it reads, and at the target while it writes. The bytes of files
  // that are read are added to `bytes_done`.
  CopyResult copy(const AttemptKey& key, std::atomic<uint64_t>* bytes_done);

 private:
  struct Work;
  Result<storage::Decision> read_committed(const AttemptKey& key);
  Result<bool> is_present(const storage::Decision& committed);
  Result<std::vector<std::string>> list_unfinished(const AttemptKey& key);
  Status begin(Work& work);
  Status begin_in_place(Work& work);
  void copy_files(Work& work);
  Status keep_file(const Work& work, const storage::FileEntry& file);
  void copy_file(Work& work, const storage::FileEntry& file);
  Status write_file(Work& work, const storage::FileEntry& file, bool* at_target);
  Status publish(Work& work, bool* was_present);
  Status publish_in_place(Work& work, bool* was_present);
  bool is_gone_at_source(const AttemptKey& key);
  Status claim_run_of(const AttemptKey& key);

  storage::Storage& source_;
  storage::Storage& target_;
  const RootId target_id_;
  const CopyOptions options_;
};

}  // namespace shoal::admin
