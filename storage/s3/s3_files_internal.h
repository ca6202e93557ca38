// An object of S3Storage that is read, and one that is written.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/s3/s3_storage.h"

namespace shoal::storage {

// The first bytes come with the request that opens the object: records and the headers of most shards need
// no other. A later request is rejected by the store if the object was replaced: Code::busy. A read that
// follows another one, as those of the small pieces of a shard do, also fetches what lies behind it.
class S3ReadFile final : public ReadFile {
 public:
  // `ahead_bytes_left`: how many bytes the files of a storage may hold besides; it must outlive the file.
  static Result<std::unique_ptr<S3ReadFile>> open(S3Client& client, const std::string& key,
                                                  std::atomic<int64_t>& ahead_bytes_left);
  ~S3ReadFile() override;
  uint64_t size() const override { return size_; }
  Status read_at(uint64_t offset, MutableByteView out) override;
  uint64_t read_bytes_best() const override { return uint64_t{16} << 20; }

 private:
  S3ReadFile(S3Client& client, std::string key, std::atomic<int64_t>& ahead_bytes_left)
      : client_(client), key_(std::move(key)), ahead_bytes_left_(ahead_bytes_left) {}
  Status read_range(uint64_t offset, MutableByteView out);
  struct Ahead {
    uint64_t begin = 0;
    Bytes data;
    bool contains(uint64_t offset) const { return offset >= begin && offset < begin + data.size(); }
  };
  // Copies what was read ahead at this offset, and returns how much that is.
  size_t take_ahead(uint64_t offset, MutableByteView out);
  // Whether a read just ended here or shortly before. Notes that one will end at `end`.
  bool follows_another(uint64_t offset, uint64_t end);
  Status read_and_ahead(uint64_t offset, MutableByteView out);
  void drop(std::list<Ahead>::iterator ahead);  // under the mutex

  S3Client& client_;
  const std::string key_;
  std::string etag_;
  uint64_t size_ = 0;
  Bytes first_;
  std::atomic<int64_t>& ahead_bytes_left_;
  std::mutex mutex_;
  std::list<Ahead> aheads_;         // the newest first
  std::deque<uint64_t> last_ends_;  // of reads, the newest first
};

class S3WriteFile final : public WriteFile {
 public:
  S3WriteFile(S3Storage& storage, std::string key, const Nonce& nonce, uint64_t part_bytes)
      : storage_(storage),
        key_(std::move(key)),
        note_key_(partial_name(key_, nonce)),
        part_bytes_(part_bytes) {}
  ~S3WriteFile() override;
  Status append(ByteView data) override;
  Status append_kept(ByteView data) override;
  Status patch(uint64_t offset, ByteView data) override;
  Result<bool> publish() override;

 private:
  struct Piece {
    Bytes own;      // of append
    ByteView kept;  // of append_kept
    ByteView view() const { return own.empty() ? kept : ByteView(own); }
  };
  struct Part {
    uint64_t begin = 0, bytes = 0;
    std::vector<Piece> pieces;
  };
  struct Upload {  // in progress
    size_t number;
    std::future<Result<S3Storage::UploadedPart>> part;
  };

  Status add(ByteView data, bool is_kept);
  Status end_part();
  Status start_upload(size_t number, std::shared_ptr<const Part> part);
  Status finish_oldest();
  void end_upload();
  Result<bool> publish_parts();
  Status upload_again();
  static std::vector<ByteView> body_of(const Part& part);
  // Whether the part waits for publish, because patch may change it.
  bool is_held(const Part& part) const { return part.begin == 0 || part.begin < patchable_bytes_; }
  size_t number_of(const Part& part) const { return static_cast<size_t>(part.begin / part_bytes_) + 1; }

  S3Storage& storage_;
  const std::string key_;
  const std::string note_key_;  // of the object that notes the upload
  const uint64_t part_bytes_;
  const std::string write_id_ = random_128().to_hex();
  std::string upload_;  // "": not begun
  size_t parts_done_ = 0;
  std::chrono::steady_clock::time_point noted_at_;
  Part part_;  // being filled
  // Complete parts that publish uploads: those which patch may still change.
  std::vector<std::shared_ptr<Part>> held_;
  uint64_t patchable_bytes_ = 0;  // of the first append
  std::vector<S3Storage::UploadedPart> uploaded_;
  // What an upload that begins again needs: the parts whose bytes the caller keeps.
  std::vector<std::shared_ptr<const Part>> kept_;
  std::deque<Upload> uploads_;
  Status failed_;  // the first failure
  bool is_published_ = false;
};

}  // namespace shoal::storage
