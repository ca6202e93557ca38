#include "admin/checkpoint_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "admin/pin_lease.h"
#include "base/helper_threads.h"
#include "base/root_name.h"
#include "shoal/hash.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/open_storage.h"
#include "storage/retention/retention.h"
#include "storage/root/attempt_marks.h"
#include "storage/root/run_claims.h"
#include "storage/shards/shard_file.h"

namespace shoal::admin {

namespace {

constexpr int kWritesAgainMax = 3;  // of a file whose end met another write of its name
constexpr std::string_view kCopyHolder = "shoal copy";
constexpr std::string_view kSettingsFile = "shoal.toml";

// Equal for decisions that commit the same files of the same save, whatever root they are in.
Result<Hash128> content_of(storage::Decision decision) {
  decision.nonce = {};
  decision.root_id = {};
  decision.unix_time_ns = 0;
  SHOAL_ASSIGN_OR_RETURN(const Bytes bytes, storage::encode_decision(decision));
  return xxh3_128(bytes);
}

Result<std::vector<storage::ObjectInfo>> list_or_nothing(storage::Storage& storage,
                                                         const std::string& folder) {
  auto listed = storage.list(folder);
  if (listed.status().code() == Code::not_found) return std::vector<storage::ObjectInfo>();
  return listed;
}

// `listed` ascends by name. nullptr: it has no such name.
const storage::ObjectInfo* find_listed(const std::vector<storage::ObjectInfo>& listed,
                                       const storage::FileEntry& file) {
  const auto found = std::ranges::lower_bound(listed, file.name, {}, &storage::ObjectInfo::name);
  return found != listed.end() && found->name == file.name ? &*found : nullptr;
}

bool has_name(const std::vector<storage::ObjectInfo>& listed, std::string_view name) {
  return std::ranges::any_of(listed, [&](const storage::ObjectInfo& each) { return each.name == name; });
}

// Reads whole blocks of a shard in file order, many at a time, and compares each with its digest.
class VerifiedBlocks {
 public:
  VerifiedBlocks(const storage::ShardReader& shard, storage::ReadFile& file, std::string full_path)
      : shard_(shard),
        file_(file),
        full_path_(std::move(full_path)),
        window_bytes_(file.read_bytes_best() > kCopyWindowBytes ? kStoreCopyWindowBytes : kCopyWindowBytes) {}

  // The next bytes of the file; empty at its end. Valid until the next call.
  Result<ByteView> next() {
    const std::vector<Block> blocks = take();
    if (blocks.empty()) return ByteView();
    const uint64_t begin = shard_.file_offset(blocks.front().piece) + blocks.front().begin;
    const MutableByteView out = MutableByteView(window_).first(taken_bytes_);
    SHOAL_RETURN_IF_ERROR(read(begin, out));
    // One block per call, because kernels shorten longer requests.
    for (uint64_t at = 0; at < window_bytes_; at += base::kDigestBlockBytes) {
      file_.will_read(begin + out.size() + at, base::kDigestBlockBytes);
    }
    uint64_t at = 0;
    for (const Block& block : blocks) {
      SHOAL_RETURN_IF_ERROR(check(block, out.subspan(at, block.end - block.begin)));
      at += block.end - block.begin;
    }
    return ByteView(out);
  }

 private:
  struct Block {
    size_t piece;
    uint64_t begin, end;
  };

  // By several requests at once, if the window is large.
  Status read(uint64_t begin, MutableByteView out) {
    const size_t slices = std::max<size_t>(1, (out.size() + kStoreSliceBytes - 1) / kStoreSliceBytes);
    std::vector<Status> read(slices);
    base::for_each_by_threads(slices, slices, [&](size_t i) {
      const uint64_t at = i * kStoreSliceBytes;
      read[i] = file_.read_at(begin + at, out.subspan(at, std::min(kStoreSliceBytes, out.size() - at)));
    });
    for (const Status& status : read) SHOAL_RETURN_IF_ERROR(status);
    return ok_status();
  }

  // As many of the next blocks as fit the window. Pieces follow one another in the file without a gap.
  std::vector<Block> take() {
    std::vector<Block> blocks;
    taken_bytes_ = 0;
    while (piece_ < shard_.pieces().size()) {
      const uint64_t piece_bytes = shard_.pieces().bytes(piece_);
      const uint64_t end = std::min(piece_bytes, offset_ + base::kDigestBlockBytes);
      if (end > offset_) {
        if (taken_bytes_ + (end - offset_) > window_bytes_) break;
        blocks.push_back({piece_, offset_, end});
        taken_bytes_ += end - offset_;
      }
      const bool is_at_end = end == piece_bytes;
      offset_ = is_at_end ? 0 : end;
      piece_ += is_at_end ? 1 : 0;
    }
    if (window_.size() < taken_bytes_) window_.resize(taken_bytes_);
    return blocks;
  }

  Status check(const Block& block, ByteView bytes) const {
    if (base::block_digest(bytes) == shard_.digests(block.piece, block.begin, block.end).front()) {
      return ok_status();
    }
    const uint64_t at = shard_.file_offset(block.piece) + block.begin;
    return Status(Code::corrupt,
                  fmt::format("{}: block {} of '{}', bytes {} to {} of the file, differs from its digest",
                              full_path_, block.begin / base::kDigestBlockBytes,
                              shard_.pieces().key(block.piece), at, at + bytes.size()));
  }

  const storage::ShardReader& shard_;
  storage::ReadFile& file_;
  const std::string full_path_;
  const uint64_t window_bytes_;
  Bytes window_;
  uint64_t taken_bytes_ = 0;
  size_t piece_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace

Result<uint64_t> free_space_of(storage::FileSystem& file_system, const std::string& folder) {
  std::unique_ptr<storage::OpenFolder> opened;
  uint64_t bytes = 0;
  int number = file_system.open_root(folder, &opened);
  if (number == 0) number = opened->free_space(&bytes);
  if (number == 0) return bytes;
  return Status(Code::io, fmt::format("cannot read the free space of {}: {}", folder,
                                      std::generic_category().message(number)));
}

namespace {

Status check_other_root(storage::FileSystem* file_system, const std::string& source,
                        const std::string& target) {
  const auto same = [&](std::string_view what) {
    return Status(
        Code::invalid_argument,
        fmt::format("{} and {} are the same {}: name another one to copy to", source, target, what));
  };
  if (file_system == nullptr) return source == target ? same("root") : ok_status();
  std::unique_ptr<storage::OpenFolder> a, b;
  bool is_same = false;
  if (file_system->open_root(source, &a) != 0 || file_system->open_root(target, &b) != 0) return ok_status();
  if (a->is_same(*b, &is_same) != 0 || !is_same) return ok_status();
  return same("folder");
}

bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  const auto at = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first;
  return at == outer.end();
}

Status check_empty(storage::Storage& folder) {
  SHOAL_ASSIGN_OR_RETURN(auto listed, folder.list(""));
  for (const storage::ObjectInfo& entry : listed) {
    // What an earlier start of a copy has left before it made a root.
    const bool is_ours = entry.name == storage::kProbesFolder ||
                         (storage::is_partial(entry.name) && entry.name.starts_with("ROOT_ID."));
    if (entry.name == kSettingsFile || is_ours) continue;
    return Status(Code::refused,
                  fmt::format("{} holds {} and no run (it has no ROOT_ID): name a root or an empty {}",
                              folder.describe(), entry.name, folder.has_files() ? "folder" : "prefix"));
  }
  return ok_status();
}

}  // namespace

Status check_lies_outside(const std::string& root, const std::string& other) {
  if (base::is_in_object_store(root) || base::is_in_object_store(other)) return ok_status();
  std::error_code failed;
  const auto a = std::filesystem::weakly_canonical(root, failed);
  const auto b = std::filesystem::weakly_canonical(other, failed);
  if (failed || a == b || (!lies_in(a, b) && !lies_in(b, a))) return ok_status();
  const bool is_inside = lies_in(b, a);
  return Status(Code::invalid_argument, fmt::format("{} lies inside {}: name a folder outside of it",
                                                    is_inside ? other : root, is_inside ? root : other));
}

Result<OpenRoot> open_copy_target(const OpenRoot& source, const std::string& path, bool changes) {
  OpenRoot target;
  SHOAL_RETURN_IF_ERROR(check_lies_outside(source.storage->describe(), path));
  SHOAL_ASSIGN_OR_RETURN(storage::OpenedStorage opened, storage::open_storage(path, random_128()));
  target.file_system = std::move(opened.disk);
  target.storage = std::move(opened.storage);
  SHOAL_RETURN_IF_ERROR(check_other_root(target.file_system.get(), source.storage->describe(),
                                         target.file_system ? path : target.storage->describe()));
  auto id = storage::open_root(*target.storage, false, RootId{});
  const bool is_new = id.status().code() == Code::not_found;
  if (is_new) SHOAL_RETURN_IF_ERROR(check_empty(*target.storage));
  if (!is_new && !id.ok()) return id.status();
  if (!is_new) target.id = *id;
  if (!changes) return target;
  SHOAL_RETURN_IF_ERROR(storage::probe_storage(*target.storage, random_128()));
  SHOAL_ASSIGN_OR_RETURN(target.id, storage::open_root(*target.storage, true, random_128()));
  return target;
}

// The copy of one checkpoint.
struct CheckpointCopier::Work {
  storage::Decision decision;               // as the target gets it
  std::string folder;                       // of the unfinished copy, at the target
  std::vector<storage::ObjectInfo> listed;  // what an earlier copy has left there
  std::atomic<uint64_t>* bytes_done = nullptr;

  std::atomic<bool> stops{false};
  std::mutex mutex;
  // Guarded by the mutex.
  CopyForecast done;
  Status failed;  // the first error
  bool is_failed_at_target = false;

  void fail(const Status& status, bool at_target) {
    std::lock_guard lock(mutex);
    if (failed.ok()) failed = status, is_failed_at_target = at_target;
    stops = true;
  }
};

Result<storage::Decision> CheckpointCopier::read_committed(const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(const storage::AttemptInfo info, storage::inspect_attempt(source_, key));
  SHOAL_ASSIGN_OR_RETURN(storage::AttemptView view, storage::view_attempt(source_, info, {.proves = false}));
  SHOAL_RETURN_IF_ERROR(view.damage);
  const std::string folder = fmt::format("{}/{}", source_.describe(), storage::attempt_folder(key));
  if (!view.decision) return Status(Code::not_found, folder + " is no checkpoint: it has no decision");
  if (!view.committed()) {
    return Status(Code::not_found,
                  fmt::format("{} is {}: {}", folder, view.state_name(), view.decision->tombstone().cause));
  }
  storage::Decision decision = std::move(*view.decision);
  if (view.is_merged) return decision;
  decision.nonce = random_128();
  decision.unix_time_ns = unix_time_now_ns();
  return decision;
}

// Folders of copies of this attempt that have not ended.
Result<std::vector<std::string>> CheckpointCopier::list_unfinished(const AttemptKey& key) {
  const std::string folder = storage::attempt_folder(key);
  if (!target_.moves_folders()) {
    SHOAL_ASSIGN_OR_RETURN(const auto in_place, list_or_nothing(target_, folder));
    const bool is_unfinished = has_name(in_place, storage::kCopyMarkName);
    return is_unfinished ? std::vector<std::string>{folder} : std::vector<std::string>();
  }
  const size_t slash = folder.find('/');
  SHOAL_ASSIGN_OR_RETURN(const auto listed, list_or_nothing(target_, folder.substr(0, slash)));
  std::vector<std::string> found;
  for (const storage::ObjectInfo& entry : listed) {
    const bool is_of_it = entry.name.starts_with(folder.substr(slash + 1) + ".");
    if (is_of_it && entry.is_folder && storage::is_partial(entry.name)) {
      found.push_back(folder.substr(0, slash + 1) + entry.name);
    }
  }
  return found;
}

Result<bool> CheckpointCopier::is_present(const storage::Decision& committed) {
  const AttemptKey& key = committed.key;
  auto info = storage::inspect_attempt(target_, key);
  if (info.status().code() == Code::not_found) return false;
  if (!info.ok()) return info.status();
  const std::string folder = fmt::format("{}/{}", target_.describe(), storage::attempt_folder(key));
  if (info->state == storage::AttemptInfo::State::undecided) {
    if (info->leftover_files == 0) return false;
    return Status(Code::already_exists,
                  folder + " has files and no decision: a save there has not ended; `shoal ls` shows it");
  }
  SHOAL_ASSIGN_OR_RETURN(const storage::Decision there, storage::read_decision(target_, key));
  if (!there.committed()) {
    const bool is_aborted = there.tombstone().reason == storage::Tombstone::Reason::aborted;
    return Status(Code::refused, fmt::format("{} was {} and is never committed again: {}", folder,
                                             is_aborted ? "aborted" : "deleted", there.tombstone().cause));
  }
  SHOAL_ASSIGN_OR_RETURN(const Hash128 content, content_of(committed));
  SHOAL_ASSIGN_OR_RETURN(const Hash128 content_there, content_of(there));
  if (content == content_there) {
    SHOAL_ASSIGN_OR_RETURN(const auto listed, target_.list(storage::attempt_folder(key)));
    SHOAL_RETURN_IF_ERROR(storage::check_files_listed(listed, there.manifest().files, folder));
    return true;
  }
  return Status(Code::already_exists,
                fmt::format("{} is a checkpoint with other content than {}/{}: `shoal diff` compares them",
                            folder, source_.describe(), storage::attempt_folder(key)));
}

CopyForecast whole_copy(const storage::Decision& committed) {
  CopyForecast out;
  out.files = committed.manifest().files.size();
  out.bytes = file_bytes_of(committed.manifest());
  return out;
}

Result<CopyForecast> CheckpointCopier::forecast(const storage::Decision& committed) {
  CopyForecast out = whole_copy(committed);
  SHOAL_ASSIGN_OR_RETURN(out.is_present, is_present(committed));
  if (out.is_present) return out;
  SHOAL_ASSIGN_OR_RETURN(const auto claims, storage::list_generations(target_));
  SHOAL_RETURN_IF_ERROR(storage::check_for_copies(target_, claims, committed.key.generation)
                            .with_context(to_string(committed.key) + " cannot be copied"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> unfinished, list_unfinished(committed.key));
  if (unfinished.empty()) return out;
  SHOAL_ASSIGN_OR_RETURN(const auto listed, list_or_nothing(target_, unfinished.front()));
  for (const storage::FileEntry& file : committed.manifest().files) {
    const storage::ObjectInfo* there = find_listed(listed, file);
    if (there == nullptr || there->size != file.size) continue;
    ++out.files_kept;
    out.bytes_kept += file.size;
  }
  return out;
}

// The mark holds what is copied, so that copies of different checkpoints do not mix. Copies of the same one
// share their files.
Status CheckpointCopier::begin_in_place(Work& work) {
  work.folder = storage::attempt_folder(work.decision.key);
  SHOAL_ASSIGN_OR_RETURN(const Hash128 content, content_of(work.decision));
  const std::string mark = work.folder + "/" + std::string(storage::kCopyMarkName), text = content.to_hex();
  SHOAL_ASSIGN_OR_RETURN(const bool created, target_.create_exclusive(mark, as_view(text)));
  if (!created) {
    const Result<Bytes> there = target_.read(mark, text.size());
    const bool is_gone = there.status().code() == Code::not_found;
    if (!there.ok() && !is_gone) return there.status();
    if (is_gone || as_text(*there) == storage::kRemovedCopyText) {
      return Status(Code::busy,
                    fmt::format("{}/{}: `shoal gc --unfinished-copies` has begun to remove what an "
                                "earlier copy has left there: copy again when it has ended. If it "
                                "was interrupted, run it again first",
                                target_.describe(), work.folder));
    }
    if (as_text(*there) != text) {
      return Status(Code::already_exists,
                    fmt::format("{}/{} is an unfinished copy of another checkpoint with this name: copy to "
                                "another root",
                                target_.describe(), work.folder));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(work.listed, list_or_nothing(target_, work.folder));
  return ok_status();
}

// Takes over what an earlier copy has left, and removes what is of no use of it. Only this copy knows the
// name of its folder; another process that takes the folder renames it.
Status CheckpointCopier::begin(Work& work) {
  if (!target_.moves_folders()) return begin_in_place(work);
  const std::string folder = storage::attempt_folder(work.decision.key);
  const size_t slash = folder.find('/');
  const std::string name = storage::partial_name(folder.substr(slash + 1), random_128());
  work.folder = folder.substr(0, slash + 1) + name;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> unfinished, list_unfinished(work.decision.key));
  for (const std::string& left : unfinished) {
    const Status moved = target_.move_folder(left, name);
    if (moved.ok()) break;
    if (moved.code() != Code::not_found) return moved;  // not_found: another process has taken it
  }
  SHOAL_ASSIGN_OR_RETURN(work.listed, list_or_nothing(target_, work.folder));
  std::set<std::string_view> wanted;
  for (const storage::FileEntry& file : work.decision.manifest().files) wanted.insert(file.name);
  for (const storage::ObjectInfo& entry : work.listed) {
    if (entry.is_folder || wanted.contains(entry.name)) continue;
    SHOAL_RETURN_IF_ERROR(target_.remove(work.folder + "/" + entry.name));
  }
  return ok_status();
}

// OK: the file is complete at the target.
Status CheckpointCopier::keep_file(const Work& work, const storage::FileEntry& file) {
  return storage::ShardReader::open(target_, work.folder + "/" + file.name, &file.header_digest, &file.size)
      .status();
}

// Reads, verifies and writes one file. `*at_target`: whether the error is of the target.
Status CheckpointCopier::write_file(Work& work, const storage::FileEntry& file, bool* at_target) {
  *at_target = false;
  const std::string path = storage::attempt_folder(work.decision.key) + "/" + file.name;
  Bytes header;
  SHOAL_ASSIGN_OR_RETURN(const auto shard,
                         storage::ShardReader::open(source_, path, &file.header_digest, &file.size, &header));
  SHOAL_ASSIGN_OR_RETURN(const auto in, source_.open(path));
  *at_target = true;
  SHOAL_ASSIGN_OR_RETURN(const auto out,
                         target_.create(work.folder + "/" + file.name, random_128(), file.size));
  SHOAL_RETURN_IF_ERROR(out->append(header));
  work.bytes_done->fetch_add(header.size(), std::memory_order_relaxed);
  VerifiedBlocks blocks(*shard, *in, source_.describe() + "/" + path);
  for (;;) {
    *at_target = false;
    if (work.stops) return Status(Code::aborted, "another file of the checkpoint failed");
    if (!options_.keeps_going()) return Status(Code::aborted, "interrupted");
    SHOAL_ASSIGN_OR_RETURN(const ByteView bytes, blocks.next());
    *at_target = true;
    if (bytes.empty()) break;
    SHOAL_RETURN_IF_ERROR(out->append(bytes));
    work.bytes_done->fetch_add(bytes.size(), std::memory_order_relaxed);
  }
  SHOAL_ASSIGN_OR_RETURN(const bool is_ours, out->publish());
  if (is_ours) return ok_status();
  // Another copy may have written it meanwhile.
  if (!target_.moves_folders()) return keep_file(work, file);
  return Status(Code::already_exists, work.folder + "/" + file.name);
}

void CheckpointCopier::copy_file(Work& work, const storage::FileEntry& file) {
  const bool was_listed = find_listed(work.listed, file) != nullptr;
  // Where copies share their files, another one may have written it since.
  if (was_listed || !target_.moves_folders()) {
    const Status there = keep_file(work, file);
    if (there.ok()) {
      if (!was_listed) work.bytes_done->fetch_add(file.size, std::memory_order_relaxed);
      std::lock_guard lock(work.mutex);
      ++work.done.files_kept;
      work.done.bytes_kept += file.size;
      return;
    }
    const bool is_damaged = there.code() == Code::corrupt || there.code() == Code::version;
    if (!is_damaged && there.code() != Code::not_found) return work.fail(there, true);
    const Status removed = is_damaged ? target_.remove(work.folder + "/" + file.name) : ok_status();
    if (!removed.ok()) return work.fail(removed, true);
  }
  bool at_target = false;
  Status status = write_file(work, file, &at_target);
  for (int again = 0; at_target && status.code() == Code::busy && again < kWritesAgainMax; ++again) {
    work.bytes_done->fetch_sub(file.size, std::memory_order_relaxed);
    status = write_file(work, file, &at_target);
  }
  if (!status.ok()) work.fail(status, at_target);
}

void CheckpointCopier::copy_files(Work& work) {
  const std::vector<storage::FileEntry>& files = work.decision.manifest().files;
  // Copies that share their files begin at different ones.
  const bool shares = !target_.moves_folders() && !files.empty();
  const size_t first = shares ? load_le32(random_128().bytes.data()) % files.size() : 0;
  base::for_each_by_threads(files.size(), std::clamp(options_.jobs, 1u, kMaxCopyJobs), [&](size_t i) {
    if (!work.stops) copy_file(work, files[(first + i) % files.size()]);
  });
}

// The manifest comes last, and only if no other decision came first. The mark and what failed writes have
// left are then of no use; retention removes what cannot be removed now.
Status CheckpointCopier::publish_in_place(Work& work, bool* was_present) {
  const storage::Decision& decision = work.decision;
  SHOAL_RETURN_IF_ERROR(storage::check_files_present(target_, decision.key, decision.manifest().files));
  SHOAL_ASSIGN_OR_RETURN(const storage::Decision final,
                         storage::publish_decision_in_folder(target_, decision));
  *was_present = final.nonce != decision.nonce;
  if (*was_present) SHOAL_RETURN_IF_ERROR(is_present(decision).status());
  (void)storage::sweep_attempt(target_, decision.key);
  return ok_status();
}

// Makes the copied files a checkpoint. Code::not_found: another process has taken the folder.
Status CheckpointCopier::publish(Work& work, bool* was_present) {
  if (!target_.moves_folders()) return publish_in_place(work, was_present);
  const storage::Decision& decision = work.decision;
  SHOAL_ASSIGN_OR_RETURN(const Bytes manifest, storage::encode_decision(decision));
  SHOAL_RETURN_IF_ERROR(target_.replace(fmt::format("{}/{}", work.folder, storage::kDecisionName), manifest));
  SHOAL_ASSIGN_OR_RETURN(const auto listed, target_.list(work.folder));
  for (const storage::ObjectInfo& entry : listed) {  // of a write of this copy that failed
    if (!storage::is_partial(entry.name)) continue;
    SHOAL_RETURN_IF_ERROR(target_.remove(work.folder + "/" + entry.name));
  }
  SHOAL_RETURN_IF_ERROR(
      storage::check_files_listed(listed, decision.manifest().files, target_.describe() + "/" + work.folder));
  const Status moved = target_.move_folder(work.folder, attempt_name(decision.key));
  if (moved.code() != Code::busy) return moved;
  // Another copy of this checkpoint was faster, or the name belongs to something else.
  SHOAL_ASSIGN_OR_RETURN(*was_present, is_present(decision));
  return *was_present ? storage::remove_remains(target_, work.folder) : moved;
}

bool CheckpointCopier::is_deleted_there(const AttemptKey& key) {
  auto there = storage::inspect_attempt(target_, key);
  return there.ok() && there->state == storage::AttemptInfo::State::deleted;
}

bool CheckpointCopier::is_gone_at_source(const AttemptKey& key) {
  auto now = storage::inspect_attempt(source_, key);
  if (!now.ok()) return now.status().code() == Code::not_found;
  return now->state == storage::AttemptInfo::State::deleted;
}

// The nonce of the claim says which run this was: by another one, compare_newest would take the two roots for
// those of different runs.
Status CheckpointCopier::claim_run_of(const AttemptKey& key) {
  const auto run = storage::read_generation_record(source_, key.generation);
  const Code code = run.status().code();
  const bool is_lost = code == Code::not_found || code == Code::corrupt || code == Code::too_large;
  if (!run.ok() && !is_lost) return run.status();
  return storage::claim_for_copies(target_, key.generation, run.ok() ? run->nonce : random_128());
}

CopyResult CheckpointCopier::copy(const AttemptKey& key, std::atomic<uint64_t>* bytes_done) {
  CopyResult out;
  Work work;
  const auto end = [&](CopyResult::Outcome outcome, Status status, bool ends_all = false) {
    out.outcome = outcome;
    out.status = std::move(status);
    out.ends_all = ends_all;
    return out;
  };
  // Another copy may have finished meanwhile what it took.
  const auto end_taken = [&] {
    const auto there = is_present(work.decision);
    if (there.ok() && *there) return end(CopyResult::Outcome::present, ok_status());
    return end(
        CopyResult::Outcome::failed,
        Status(Code::busy, fmt::format("another process has taken the unfinished copy of {} in {}: another "
                                       "`shoal copy`, or `shoal gc`; copy again",
                                       to_string(key), target_.describe())));
  };
  auto source_pin = PinLease::take(source_, key, std::string(kCopyHolder));
  out.not_pinned = source_pin.status();
  auto committed = read_committed(key);
  if (!committed.ok()) {
    return end(is_gone_at_source(key) ? CopyResult::Outcome::deleted : CopyResult::Outcome::failed,
               committed.status());
  }
  auto forecast = this->forecast(*committed);
  if (!forecast.ok()) return end(CopyResult::Outcome::failed, forecast.status());
  out.work = *forecast;
  if (forecast->is_present) return end(CopyResult::Outcome::present, ok_status());
  // Keeps retention at the target away from the unfinished copy and, until the copy ends, from the
  // checkpoint.
  auto target_pin = PinLease::take(target_, key, std::string(kCopyHolder));
  if (!target_pin.ok()) return end(CopyResult::Outcome::failed, target_pin.status(), true);

  if (Status claimed = claim_run_of(key); !claimed.ok()) {
    return end(CopyResult::Outcome::failed, claimed.with_context(to_string(key) + " cannot be copied"));
  }
  work.decision = std::move(*committed);
  work.decision.root_id = target_id_;
  work.bytes_done = bytes_done;
  const auto ends_all = [](const Status& status) {
    return status.code() != Code::busy && status.code() != Code::already_exists;
  };
  if (Status begun = begin(work); !begun.ok()) {
    return end(CopyResult::Outcome::failed, begun, ends_all(begun));
  }
  copy_files(work);
  out.work.files_kept = work.done.files_kept;
  out.work.bytes_kept = work.done.bytes_kept;
  if (!work.failed.ok()) {
    if (!work.is_failed_at_target && is_gone_at_source(key)) {
      return end(CopyResult::Outcome::deleted, work.failed);
    }
    if (!target_.moves_folders()) {  // another copy may have ended and removed what this one still wrote
      const auto there = is_present(work.decision);
      if (there.ok() && *there) return end(CopyResult::Outcome::present, ok_status());
    }
    const bool is_taken = work.is_failed_at_target && work.failed.code() == Code::not_found;
    if (is_taken) return end_taken();
    return end(CopyResult::Outcome::failed, work.failed, work.is_failed_at_target || !options_.keeps_going());
  }
  bool was_present = false;
  if (Status published = publish(work, &was_present); !published.ok()) {
    if (published.code() == Code::not_found) return end_taken();
    return end(CopyResult::Outcome::failed, published, ends_all(published));
  }
  return end(was_present ? CopyResult::Outcome::present : CopyResult::Outcome::copied, ok_status());
}

}  // namespace shoal::admin
