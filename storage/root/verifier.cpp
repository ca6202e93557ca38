#include "storage/root/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "base/digest/digest.h"
#include "base/helper_threads.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kTurnBytes = 8 * base::kDigestBlockBytes;  // bytes of a file that a thread takes at once

// Keeps the first kMaxDamageReported defects by position, whatever the order in which threads find them. Any
// thread.
class FoundDamage {
 public:
  // file, piece + 1 (0: the file itself), block + 1 (0: the piece itself)
  using Place = std::tuple<size_t, size_t, uint64_t>;
  void add(Place place, Damage damage) {
    std::lock_guard lock(mutex_);
    ++count_;
    unread_ += damage.is_unread();
    found_.emplace(place, std::move(damage));
    if (found_.size() > kMaxDamageReported) found_.erase(std::prev(found_.end()));
  }
  uint64_t count() const { return count_; }
  uint64_t unread() const { return unread_; }
  std::vector<Damage> take() {
    std::vector<Damage> out;
    for (auto& [place, damage] : found_) out.push_back(std::move(damage));
    return out;
  }

 private:
  std::mutex mutex_;
  std::multimap<Place, Damage> found_;
  uint64_t count_ = 0, unread_ = 0;
};

// The index in the whole tensor of the row-major position `element` of a box.
Dims index_of(const Box& box, uint64_t element) {
  Dims index(box.sizes.size());
  for (size_t i = index.size(); i-- > 0;) {
    index[i] = box.offsets[i] + element % box.sizes[i];
    element /= box.sizes[i];
  }
  return index;
}

DamagedBlock locate(const ShardReader& reader, size_t piece, uint64_t begin, uint64_t end) {
  const ShardPiece of = reader.pieces()[piece];
  DamagedBlock block;
  block.number = begin / base::kDigestBlockBytes;
  block.file_begin = reader.file_offset(piece) + begin;
  block.file_end = block.file_begin + (end - begin);
  uint64_t element_bytes = of.is_object ? 1 : dtype_bits(of.dtype) / 8;  // a shard stores whole bytes
  block.element_begin = begin / element_bytes;
  block.element_end = end / element_bytes;
  if (of.is_object) return block;
  block.first_index = index_of(of.box, block.element_begin);
  block.last_index = index_of(of.box, block.element_end - 1);
  return block;
}

// The next read of a thread: bytes [begin, end) of a piece.
struct Range {
  size_t piece;
  uint64_t begin, end;
};

// A file with an intact header. Threads take parts of it in turns.
class OpenFile {
 public:
  OpenFile(size_t its_number, const FileEntry& its_entry, std::unique_ptr<ShardReader> its_reader,
           std::unique_ptr<ReadFile> its_file)
      : number(its_number), entry(its_entry), reader(std::move(its_reader)), file(std::move(its_file)) {}

  // The ranges of the next turn; empty at the end of the file.
  std::vector<Range> deal() {
    std::lock_guard lock(mutex_);
    std::vector<Range> turn;
    uint64_t bytes = 0;
    while (piece_ < reader->pieces().size() && bytes < kTurnBytes) {
      uint64_t piece_bytes = reader->pieces().bytes(piece_);
      uint64_t end = std::min(
          piece_bytes, offset_ + kTurnBytes - bytes / base::kDigestBlockBytes * base::kDigestBlockBytes);
      if (end > offset_) turn.push_back({piece_, offset_, end});
      bytes += end - offset_;
      offset_ = end;
      if (end < piece_bytes) break;
      ++piece_;
      offset_ = 0;
    }
    return turn;
  }

  const size_t number;  // index in the manifest
  const FileEntry& entry;
  const std::unique_ptr<ShardReader> reader;
  const std::unique_ptr<ReadFile> file;  // in an object store; otherwise nullptr

 private:
  std::mutex mutex_;
  size_t piece_ = 0;
  uint64_t offset_ = 0;
};

// Verifies one checkpoint. Each thread opens files, and helps with the files of other threads when none is
// left to open.
class CheckpointVerifier {
 public:
  CheckpointVerifier(Storage& storage, const Decision& decision, RateLimit& rate,
                     std::atomic<uint64_t>* bytes_done)
      : storage_(storage),
        decision_(decision),
        files_(decision.manifest().files),
        rate_(rate),
        bytes_done_(bytes_done) {}

  void work() {
    // In an object store each read costs a round trip, and covers many blocks.
    const bool reads_many = !storage_.has_files();
    Bytes blocks(base::kDigestBlockBytes);
    while (std::shared_ptr<OpenFile> file = next_file()) {
      for (auto turn = file->deal(); !turn.empty(); turn = file->deal()) {
        if (reads_many && verify_at_once(*file, turn, blocks)) continue;
        for (const Range& range : turn) verify_range(*file, range, blocks);
      }
      std::lock_guard lock(mutex_);
      std::erase(open_, file);
    }
  }

  VerifyReport report() {
    const Manifest& manifest = decision_.manifest();
    Status covered = check_coverage(*manifest.world, manifest.options);
    if (covered.ok() && damage_.count() == 0 && payload_bytes_.load() != manifest.payload_bytes) {
      covered =
          Status(Code::corrupt, fmt::format("the manifest lists {} bytes of payload, but its files hold {}",
                                            manifest.payload_bytes, payload_bytes_.load()));
    }
    if (!covered.ok()) {
      std::string path = storage_.describe() + "/" + decision_path(decision_.key);
      damage_.add({0, 0, 0}, {std::string(kDecisionName), "", "", {}, path + ": " + covered.message()});
    }
    const uint64_t count = damage_.count(), unread = damage_.unread();
    return {bytes_.load(), files_.size(), damage_.take(), count, unread};
  }

 private:
  // The next file to open, or an open one with parts left; nullptr at the end.
  std::shared_ptr<OpenFile> next_file() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (next_ < files_.size()) {
        size_t number = next_++;
        ++opening_;
        lock.unlock();
        std::shared_ptr<OpenFile> opened = open(number);
        lock.lock();
        --opening_;
        if (opened) open_.push_back(opened);
        changed_.notify_all();
        if (opened) return opened;
        continue;
      }
      if (!open_.empty()) return open_[helped_++ % open_.size()];
      if (opening_ == 0) return nullptr;
      changed_.wait(lock);
    }
  }

  std::shared_ptr<OpenFile> open(size_t number) {
    const FileEntry& entry = files_[number];
    std::string path = attempt_folder(decision_.key) + "/" + entry.name;
    auto reader = ShardReader::open(storage_, path, &entry.header_digest, &entry.size);
    if (!reader.ok()) {
      damage_.add({number, 0, 0},
                  {entry.name, "", "", {}, reader.status().message(), reader.status().code()});
      return nullptr;
    }
    std::unique_ptr<ReadFile> file;
    if (!storage_.has_files()) {
      auto opened = storage_.open(path);
      if (!opened.ok()) {
        damage_.add({number, 0, 0},
                    {entry.name, "", "", {}, opened.status().message(), opened.status().code()});
        return nullptr;
      }
      file = std::move(*opened);
    }
    Status contents = check_contents(entry, **reader);
    if (!contents.ok()) {
      std::string what = storage_.describe() + "/" + path + ": " + contents.message();
      damage_.add({number, 0, 0}, {entry.name, "", "", {}, std::move(what)});
    }
    uint64_t payload = 0;
    for (size_t i = 0; i < (*reader)->pieces().size(); ++i) payload += (*reader)->pieces().bytes(i);
    payload_bytes_ += payload;
    rate_.take((*reader)->file_size() - payload);
    count((*reader)->file_size() - payload);
    return std::make_shared<OpenFile>(number, entry, std::move(*reader), std::move(file));
  }

  // By one read, because pieces follow one another in the file. false: it is damaged or cannot be read.
  bool verify_at_once(const OpenFile& file, const std::vector<Range>& turn, Bytes& blocks) {
    const ShardReader& reader = *file.reader;
    const uint64_t begin = reader.file_offset(turn.front().piece) + turn.front().begin;
    const uint64_t end = reader.file_offset(turn.back().piece) + turn.back().end;
    if (blocks.size() < end - begin) blocks.resize(end - begin);
    const MutableByteView out = MutableByteView(blocks).first(end - begin);
    rate_.take(out.size());
    if (!file.file->read_at(begin, out).ok()) return false;
    for (const Range& range : turn) {
      const uint64_t in_file = reader.file_offset(range.piece);
      for (uint64_t at = range.begin; at < range.end; at += base::kDigestBlockBytes) {
        const uint64_t block_end = std::min(range.end, at + base::kDigestBlockBytes);
        const ByteView block = ByteView(out).subspan(in_file + at - begin, block_end - at);
        if (base::block_digest(block) != reader.digests(range.piece, at, block_end).front()) return false;
      }
    }
    count(out.size());
    return true;
  }

  void verify_range(const OpenFile& file, const Range& range, Bytes& block) {
    uint64_t first = 0;
    for (uint64_t at = range.begin; at < range.end; at += base::kDigestBlockBytes) {
      uint64_t end = std::min(range.end, at + base::kDigestBlockBytes);
      rate_.take(end - at);
      Status status = file.reader->read_verified(range.piece, at, end, block, &first);
      count(end - at);
      if (status.ok()) continue;
      const ShardPiece piece = file.reader->pieces()[range.piece];
      damage_.add({file.number, range.piece + 1, at / base::kDigestBlockBytes + 1},
                  {file.entry.name, piece.fqn, piece.key, locate(*file.reader, range.piece, at, end),
                   status.message(), status.code()});
    }
  }

  void count(uint64_t bytes) {
    bytes_ += bytes;
    bytes_done_->fetch_add(bytes, std::memory_order_relaxed);
  }

  Status check_contents(const FileEntry& entry, const ShardReader& reader) const {
    if (const auto* listed = std::get_if<std::vector<FilePiece>>(&entry.contents)) {
      for (const FilePiece& piece : *listed) {
        SHOAL_RETURN_IF_ERROR(check_piece(reader, piece.key, piece.fqn, piece.box));
      }
      return check_piece_count(reader, listed->size());
    }
    const Manifest& manifest = decision_.manifest();
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*manifest.world, entry.rank, manifest.options));
    const Layout& layout = manifest.world->layout_of(entry.rank);
    std::vector<std::string> keys = item_keys(layout, plan);
    size_t expected = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const WriteItem& item = plan.items[i];
      if (item.file != std::get<uint32_t>(entry.contents)) continue;
      ++expected;
      SHOAL_RETURN_IF_ERROR(
          check_piece(reader, keys[i], value_fqn(layout.entries()[item.entry], entry.rank), item.box));
    }
    return check_piece_count(reader, expected);
  }

  static Status check_piece_count(const ShardReader& reader, size_t expected) {
    if (expected == reader.pieces().size()) return ok_status();
    return Status(Code::corrupt, fmt::format("it holds {} pieces, but the manifest lists {}",
                                             reader.pieces().size(), expected));
  }

  static Status check_piece(const ShardReader& reader, const std::string& key, const std::string& fqn,
                            const Box& box) {
    std::optional<size_t> found = reader.find(key);
    if (!found) return Status(Code::corrupt, fmt::format("it lacks '{}', which the manifest lists", key));
    const ShardPiece piece = reader.pieces()[*found];
    if (piece.fqn == fqn && piece.box == box) return ok_status();
    return Status(Code::corrupt, fmt::format("'{}' holds {} of '{}', but the manifest lists {} of '{}'", key,
                                             to_string(piece.box), piece.fqn, to_string(box), fqn));
  }

  Storage& storage_;
  const Decision& decision_;
  const std::vector<FileEntry>& files_;
  RateLimit& rate_;
  std::atomic<uint64_t>* const bytes_done_;
  std::atomic<uint64_t> bytes_{0}, payload_bytes_{0};
  FoundDamage damage_;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;     // index of the next file to open
  size_t opening_ = 0;  // number of threads that are opening a file
  size_t helped_ = 0;   // distributes helping threads over the open files
  std::vector<std::shared_ptr<OpenFile>> open_;
};

}  // namespace

void RateLimit::take(uint64_t bytes) {
  if (bytes_per_second_ == 0) return;
  Clock::time_point turn;
  {
    std::lock_guard lock(mutex_);
    turn = free_at_ = std::max(free_at_, Clock::now()) +
                      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                          static_cast<double>(bytes) / static_cast<double>(bytes_per_second_)));
  }
  std::this_thread::sleep_until(turn);
}

Status as_status(const VerifyReport& report) {
  if (report.ok()) return ok_status();
  const auto unread = std::ranges::find_if(report.damage, &Damage::is_unread);
  if (unread != report.damage.end()) return Status(unread->code, unread->what);
  const std::string others =
      report.damage_count > 1 ? fmt::format(" (and {} more)", report.damage_count - 1) : "";
  return Status(Code::corrupt, report.damage.front().what + others);
}

// Two open a file and bring its header.
uint64_t requests_to_verify(const Manifest& manifest) {
  uint64_t requests = 0;
  for (const FileEntry& file : manifest.files) requests += 2 + (file.size + kTurnBytes - 1) / kTurnBytes;
  return requests;
}

VerifyReport verify_checkpoint(Storage& storage, const Decision& decision, unsigned jobs, RateLimit& rate,
                               std::atomic<uint64_t>* bytes_done) {
  CheckpointVerifier verifier(storage, decision, rate, bytes_done);
  const size_t threads = std::clamp(jobs, 1u, kMaxVerifyJobs);
  base::for_each_by_threads(threads, threads, [&](size_t) { verifier.work(); });
  return verifier.report();
}

}  // namespace shoal::storage
