#include "cli/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "gpu/digest.h"
#include "storage/run_root.h"
#include "storage/shard_file.h"

namespace shoal {

namespace {

constexpr uint64_t kWindowBytes = 8 * kDigestBlockBytes;

struct FileReport {
  uint64_t bytes = 0;
  std::vector<Damage> damage;
  uint64_t damage_count = 0;

  void add(Damage one) {
    ++damage_count;
    if (damage.size() < kMaxDamageReported) damage.push_back(std::move(one));
  }
};

// One file at a time of one checkpoint.
class FileVerifier {
 public:
  FileVerifier(Storage& storage, const Decision& decision, std::atomic<uint64_t>* bytes_done)
      : storage_(storage), decision_(decision), bytes_done_(bytes_done), window_(kWindowBytes) {}

  FileReport verify(const FileEntry& entry) {
    FileReport report;
    std::string path = attempt_folder(decision_.key) + "/" + entry.name;
    auto reader = ShardReader::open(storage_, path, &entry.header_digest, &entry.size);
    if (!reader.ok()) {
      report.add({entry.name, "", -1, reader.status().message()});
      return report;
    }
    Status contents = check_contents(entry, **reader);
    if (!contents.ok()) {
      report.add({entry.name, "", -1, storage_.describe() + "/" + path + ": " + contents.message()});
    }
    uint64_t payload = 0;
    for (size_t i = 0; i < (*reader)->pieces().size(); ++i) {
      verify_piece(entry, **reader, i, &report);
      payload += (*reader)->pieces()[i].bytes;
    }
    count(&report, (*reader)->file_size() - payload);
    return report;
  }

 private:
  void count(FileReport* report, uint64_t bytes) {
    report->bytes += bytes;
    bytes_done_->fetch_add(bytes, std::memory_order_relaxed);
  }

  void verify_piece(const FileEntry& entry, const ShardReader& reader, size_t piece, FileReport* report) {
    uint64_t bytes = reader.pieces()[piece].bytes, first = 0;
    for (uint64_t begin = 0; begin < bytes; begin += kWindowBytes) {
      uint64_t end = std::min(bytes, begin + kWindowBytes);
      if (!reader.read_verified(piece, begin, end, window_, &first).ok()) {
        verify_blocks(entry, reader, piece, begin, end, report);
      }
      count(report, end - begin);
    }
  }

  // Block by block, so that each that differs is named.
  void verify_blocks(const FileEntry& entry, const ShardReader& reader, size_t piece, uint64_t begin,
                     uint64_t end, FileReport* report) {
    uint64_t first = 0;
    for (uint64_t at = begin; at < end; at += kDigestBlockBytes) {
      Status status = reader.read_verified(piece, at, std::min(end, at + kDigestBlockBytes), window_, &first);
      if (status.ok()) continue;
      report->add({entry.name, reader.pieces()[piece].key, static_cast<int64_t>(at / kDigestBlockBytes),
                   status.message()});
    }
  }

  Status check_contents(const FileEntry& entry, const ShardReader& reader) const {
    if (const auto* listed = std::get_if<std::vector<FilePiece>>(&entry.contents)) {
      for (const FilePiece& piece : *listed) {
        SHOAL_RETURN_IF_ERROR(check_piece(reader, piece.key, piece.fqn, piece.box));
      }
      return ok_status();
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
      SHOAL_RETURN_IF_ERROR(check_piece(reader, keys[i], layout.entries()[item.entry].fqn, item.box));
    }
    if (expected == reader.pieces().size()) return ok_status();
    return Status(Code::corrupt,
                  fmt::format("holds {} pieces where the plan has {}", reader.pieces().size(), expected));
  }

  static Status check_piece(const ShardReader& reader, const std::string& key, const std::string& fqn,
                            const Box& box) {
    std::optional<size_t> found = reader.find(key);
    if (!found)
      return Status(Code::corrupt, fmt::format("lacks '{}', which the manifest says it holds", key));
    const ShardPiece& piece = reader.pieces()[*found];
    if (piece.fqn == fqn && piece.box == box) return ok_status();
    return Status(Code::corrupt, fmt::format("'{}' holds {} of '{}', the manifest says {} of '{}'", key,
                                             to_string(piece.box), piece.fqn, to_string(box), fqn));
  }

  Storage& storage_;
  const Decision& decision_;
  std::atomic<uint64_t>* bytes_done_;
  Bytes window_;
};

}  // namespace

VerifyReport verify_checkpoint(Storage& storage, const Decision& decision, unsigned threads,
                               std::atomic<uint64_t>* bytes_done) {
  const Manifest& manifest = decision.manifest();
  std::vector<FileReport> of_files(manifest.files.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    FileVerifier verifier(storage, decision, bytes_done);
    for (size_t i; (i = next.fetch_add(1)) < of_files.size();) {
      of_files[i] = verifier.verify(manifest.files[i]);
    }
  };
  std::vector<std::thread> helpers;
  threads = static_cast<unsigned>(
      std::clamp<size_t>(std::min<size_t>(threads, of_files.size()), 1, kMaxVerifyThreads));
  for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();

  FileReport all;
  Status covered = check_coverage(*manifest.world, manifest.options);
  if (!covered.ok()) all.add({std::string(kDecisionName), "", -1, covered.message()});
  for (FileReport& one : of_files) {
    all.bytes += one.bytes;
    all.damage_count += one.damage_count - one.damage.size();
    for (Damage& damage : one.damage) all.add(std::move(damage));
  }
  return {all.bytes, of_files.size(), std::move(all.damage), all.damage_count};
}

}  // namespace shoal
