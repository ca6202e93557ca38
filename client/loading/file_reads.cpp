#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/digest/digest.h"
#include "base/owned_fd.h"
#include "base/read_ahead.h"
#include "client/loading/file_reads.h"
#include "local/socket/socket.h"

namespace shoal::client {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOpenFiles = 64;                     // for each load
constexpr size_t kReadAheadRuns = 24;                    // announced to the kernel before they are read
constexpr uint64_t kRunBytes = base::kDigestBlockBytes;  // bytes of one read call
constexpr uint64_t kBytesAThread = uint64_t{4} << 20;    // fewer bytes are not worth a thread

uint64_t ns_since(Clock::time_point begun) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun).count());
}

// False: a read failed, or the file ends earlier.
bool read_all(int fd, uint64_t offset, MutableByteView out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

unsigned load_threads_of(unsigned asked_for) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // The call fails if there are more processors than the set holds: then there are enough.
  const int known =
      ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : CPU_SETSIZE;
  return std::min({asked_for, static_cast<unsigned>(std::max(known, 1)), kMaxLoadThreads});
}

// A cache of the files that a load used last. Any thread.
class FileReads::OpenFiles {
 public:
  using File = std::shared_ptr<const base::OwnedFd>;
  explicit OpenFiles(std::string root) : root_(std::move(root)) {}

  File find(const std::string& path) {  // nullptr: it cannot be opened
    std::lock_guard lock(mutex_);
    for (auto file = by_use_.begin(); file != by_use_.end(); ++file) {
      if (file->first != path) continue;
      by_use_.splice(by_use_.begin(), by_use_, file);
      return file->second;
    }
    base::OwnedFd opened(::open((root_ + "/" + path).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!opened.valid()) return nullptr;
    by_use_.emplace_front(path, std::make_shared<const base::OwnedFd>(std::move(opened)));
    if (by_use_.size() > kMaxOpenFiles) by_use_.pop_back();
    return by_use_.front().second;
  }

 private:
  const std::string root_;
  std::mutex mutex_;
  std::list<std::pair<std::string, File>> by_use_;  // the most recently used first
};

struct FileReads::Block {  // a digest block of a range
  uint32_t range = 0;
  uint64_t begin = 0, bytes = 0;  // of the stored piece
  uint64_t digest = 0;
  bool is_placed = false;
  uint64_t arrived = 0;  // elements
};

struct FileReads::Run {  // adjacent blocks of a file
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  size_t first = 0, count = 0;  // indices of its blocks
};

struct FileReads::Work {
  const local::FilesToRead& batch;
  Placer& placer;
  std::vector<Block> blocks = {};
  std::vector<Run> runs = {};
  uint64_t bytes = 0;
  std::atomic<size_t> next{0};  // index of the next run
  std::atomic<uint64_t> reading_ns{0}, placing_ns{0};
};

FileReads::FileReads(std::string root, unsigned threads, Buffers& buffers)
    : threads_(std::clamp(threads, 1u, kMaxLoadThreads)),
      files_(std::make_unique<OpenFiles>(std::move(root))),
      buffers_(buffers) {}

FileReads::~FileReads() = default;

Status FileReads::cut(const local::FilesToRead& batch, Work& work) {
  auto corrupt = [](const char* what) {
    return Status(Code::corrupt, std::string("the node sent ranges to read ") + what);
  };
  size_t digest = 0;
  for (uint32_t number = 0; number < batch.ranges.size(); ++number) {
    const local::FileRange& range = batch.ranges[number];
    const uint64_t end = range.piece_offset + range.bytes;
    if (range.piece_offset % base::kDigestBlockBytes != 0 ||
        (end % base::kDigestBlockBytes != 0 && end != range.piece_bytes)) {
      return corrupt("that cut a digest block");
    }
    if (batch.digests.size() - digest < base::digest_count(range.bytes))
      return corrupt("without their digests");
    for (uint64_t begin = range.piece_offset; begin < end; begin += base::kDigestBlockBytes) {
      const uint64_t bytes = std::min<uint64_t>(base::kDigestBlockBytes, end - begin);
      const uint64_t offset = range.file_offset + (begin - range.piece_offset);
      Run* last = work.runs.empty() ? nullptr : &work.runs.back();
      const bool goes_on = last != nullptr && last->file == range.file &&
                           last->offset + last->bytes == offset && last->bytes + bytes <= kRunBytes;
      if (!goes_on) last = &work.runs.emplace_back(Run{range.file, offset, 0, work.blocks.size(), 0});
      last->bytes += bytes;
      ++last->count;
      work.bytes += bytes;
      work.blocks.push_back({number, begin, bytes, batch.digests[digest++]});
    }
  }
  return digest == batch.digests.size() ? ok_status() : corrupt("with too many digests");
}

Result<std::vector<local::UnreadRange>> FileReads::read(const local::FilesToRead& batch, Placer& placer) {
  Work work{batch, placer};
  SHOAL_RETURN_IF_ERROR(cut(batch, work));
  for (const local::FileRange& range : batch.ranges) SHOAL_RETURN_IF_ERROR(placer.expect(range));

  for (size_t run = 1; run < kReadAheadRuns; ++run) announce(work, run);
  const uint64_t useful = std::max<uint64_t>(1, work.bytes / kBytesAThread);
  const auto threads = static_cast<unsigned>(std::min<uint64_t>(threads_, useful));
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) {
    try {
      others.emplace_back([this, &work, i] { read_runs(work, buffers_[i]); });
    } catch (const std::exception&) {  // no thread, or no memory for one
      break;                           // fewer threads do the work
    }
  }
  read_runs(work, buffers_[0]);
  for (std::thread& other : others) other.join();
  reading_ns_ += work.reading_ns / (others.size() + 1);
  placing_ns_ += work.placing_ns / (others.size() + 1);

  std::vector<local::UnreadRange> unread;
  for (const Block& block : work.blocks) {
    if (block.is_placed) {
      SHOAL_RETURN_IF_ERROR(placer.arrived(batch.ranges[block.range].target, block.arrived));
    } else if (!unread.empty() && unread.back().range == block.range && unread.back().end == block.begin) {
      unread.back().end += block.bytes;
    } else {
      unread.push_back({block.range, block.begin, block.begin + block.bytes});
    }
  }
  return unread;
}

void FileReads::announce(Work& work, size_t number) {
  if (number >= work.runs.size()) return;
  const Run& run = work.runs[number];
  const OpenFiles::File file = files_->find(work.batch.files[run.file]);
  if (file == nullptr) return;
  base::read_ahead(file->get(), run.offset, run.bytes);
}

void FileReads::read_runs(Work& work, PageBuffer& buffer) {
  try {
    if (buffer.size() == 0) buffer = PageBuffer(kRunBytes);
    for (size_t run = work.next++; run < work.runs.size(); run = work.next++) {
      announce(work, run + kReadAheadRuns);
      read_run(work, work.runs[run], buffer);
    }
  } catch (const std::bad_alloc&) {  // the remaining runs stay unread
  }
}

void FileReads::read_run(Work& work, const Run& run, PageBuffer& buffer) {
  Clock::time_point begun = Clock::now();
  const OpenFiles::File file = files_->find(work.batch.files[run.file]);
  if (file == nullptr) return;
  const MutableByteView bytes = buffer.bytes().first(run.bytes);
  if (!read_all(file->get(), run.offset, bytes)) return;
  uint64_t at = 0;
  std::vector<ByteView> good(run.count);
  for (size_t i = 0; i < run.count; ++i) {
    const Block& block = work.blocks[run.first + i];
    const ByteView of_block = bytes.subspan(at, block.bytes);
    if (base::block_digest(of_block) == block.digest) good[i] = of_block;
    at += block.bytes;
  }
  work.reading_ns += ns_since(begun);
  begun = Clock::now();
  for (size_t i = 0; i < run.count; ++i) {
    if (good[i].empty()) continue;
    Block& block = work.blocks[run.first + i];
    block.arrived = work.placer.copy(work.batch.ranges[block.range], block.begin, good[i]);
    block.is_placed = true;
  }
  work.placing_ns += ns_since(begun);
}

}  // namespace shoal::client
