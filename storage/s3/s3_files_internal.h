// An object of S3Storage that is read, and one that is written.
#pragma once

#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "storage/s3/s3_storage.h"

namespace shoal::storage {

// The first bytes come with the request that opens the object: records and the headers of most shards need
// no other. Each later read is one request, which the store rejects if the object was replaced: Code::busy.
class S3ReadFile final : public ReadFile {
 public:
  static Result<std::unique_ptr<S3ReadFile>> open(S3Client& client, const std::string& key);
  uint64_t size() const override { return size_; }
  Status read_at(uint64_t offset, MutableByteView out) override;
  uint64_t read_bytes_best() const override { return uint64_t{16} << 20; }

 private:
  S3ReadFile(S3Client& client, std::string key) : client_(client), key_(std::move(key)) {}
  Status read_range(uint64_t offset, MutableByteView out);

  S3Client& client_;
  const std::string key_;
  std::string etag_;
  uint64_t size_ = 0;
  Bytes first_;
};

class S3WriteFile final : public WriteFile {
 public:
  S3WriteFile(S3Storage& storage, std::string key, uint64_t part_bytes)
      : storage_(storage), key_(std::move(key)), part_bytes_(part_bytes) {}
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
    std::future<Result<std::string>> etag;
  };

  Status add(ByteView data, bool is_kept);
  Status end_part();
  Status start_upload(size_t number, std::shared_ptr<const Part> part);
  Status finish_oldest();
  Result<bool> publish_parts();
  static std::vector<ByteView> body_of(const Part& part);

  S3Storage& storage_;
  const std::string key_;
  const uint64_t part_bytes_;
  const std::string write_id_ = random_128().to_hex();
  std::string upload_;  // "": not begun
  Part part_;           // being filled
  // Complete parts that publish uploads: those which patch may still change.
  std::vector<std::shared_ptr<Part>> held_;
  uint64_t patchable_bytes_ = 0;  // of the first append
  std::vector<std::string> etags_;
  std::deque<Upload> uploads_;
  Status failed_;  // the first failure
  bool is_published_ = false;
};

}  // namespace shoal::storage
