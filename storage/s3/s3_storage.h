// S3Storage: Storage in a bucket of an object store that speaks the protocol of Amazon S3.
//
// An object's path is the end of its key. The store makes an object durable and visible at once, as a whole,
// and shows it in listings from then on. A folder is what keys have in common: it exists as long as one of
// its objects does, and syncing it does nothing.
//
// Exclusive creation is a PUT, or the completion of a multipart upload, with "If-None-Match: *". Each write
// puts a random number into the object's metadata (x-amz-meta-shoal-write). If the store rejects the
// condition, the number in the existing object tells whether this write took the name, and only its answer
// was lost. check_rules rejects a store that ignores the condition.
//
// An object larger than one part is uploaded in parts, several at once, from the bytes that append_kept was
// given. The first part waits for publish, because patch may change it. An upload itself shows in no listing
// of objects, and some stores cannot list uploads by folder. So a small object notes it before its first part
// comes: the partial object of this name, whose first line is the upload's id. It grows while parts come, so
// that whoever watches the folder sees that somebody writes. Removing it aborts the upload.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/s3/s3_client.h"
#include "storage/storage.h"

namespace shoal::storage {

// Limits of S3 (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html).
inline constexpr uint64_t kS3PutBytesMax = uint64_t{5} << 30;  // of one PUT, and of one part
inline constexpr uint64_t kS3PartBytesMin = uint64_t{5} << 20;
inline constexpr uint64_t kS3PartsMax = 10'000;
inline constexpr uint64_t kS3ObjectBytesMax = uint64_t{5} << 40;

inline constexpr uint64_t kPartBytesDefault = uint64_t{16} << 20;
inline constexpr size_t kPartsInFlight = 4;  // of one object
// Of the object that notes an upload: an id, and a byte for each part.
inline constexpr size_t kUploadNoteBytesMax = 64 << 10;
static_assert(kUploadNoteBytesMax > kS3PartsMax);
static_assert(kPartBytesDefault >= kS3PartBytesMin);

// Bytes that one request reads ahead where reads follow each other, and all that a storage holds of them.
inline constexpr uint64_t kAheadBytes = uint64_t{8} << 20;
inline constexpr int64_t kAheadBytesMax = int64_t{128} << 20;

// The size of the parts of an object. An object that grows to twice the expected size still fits.
uint64_t part_bytes_for(uint64_t bytes_expected);

class S3Storage final : public Storage {
 public:
  // Checks that the bucket exists and can be listed: Code::not_found, Code::refused.
  static Result<std::unique_ptr<S3Storage>> open(S3Settings settings, S3Retries retries = {},
                                                 CallWatch* watch = nullptr);

  std::string describe() const override { return client_.settings().root(); }
  bool has_files() const override { return false; }
  bool moves_folders() const override { return false; }
  Result<bool> create_exclusive(const std::string& path, ByteView data) override;
  Result<bool> create_in_folder(const std::string& path, ByteView data) override;
  Status replace(const std::string& path, ByteView data) override;
  Result<Bytes> read(const std::string& path, uint64_t bytes_max) override;
  Result<std::unique_ptr<ReadFile>> open(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create(const std::string& path, const Nonce& nonce,
                                            uint64_t bytes_expected) override;
  Result<std::vector<ObjectInfo>> list(const std::string& folder) override;
  bool lists_trees() const override { return true; }
  Result<std::vector<TreeObject>> list_tree(const std::string& prefix, TreeDepth how,
                                            size_t prefix_depth) override;
  Status remove(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  Status move_folder(const std::string& path, const std::string& name) override;
  Status sync_folder(const std::string& folder) override;
  Status check_rules(const std::string& path) override;
  uint64_t requests() const { return client_.requests(); }  // sent so far, without repetitions
  std::optional<int64_t> clock_ahead_s() const { return client_.clock_ahead_s(); }

 private:
  friend class S3WriteFile;
  S3Storage(S3Settings settings, S3Retries retries, CallWatch* watch)
      : client_(std::move(settings), std::move(retries), watch) {}

  std::string key_of(const std::string& path) const;
  // One PUT without a condition. `action`: for an error.
  Status put(const std::string& key, ByteView data, std::string_view action);
  // One PUT with the condition. false: another write has the name.
  Result<bool> put_exclusive(const std::string& key, const std::vector<ByteView>& body);
  // After the store rejected the condition: whether the object is the one that this write made.
  // Code::not_found: there is no object.
  Result<bool> is_of_write(const std::string& key, const std::string& write_id);
  // Code::already_exists: another write has the name, or this write was carried out before.
  // Code::busy: the store did not decide between two conditional writes; the upload must begin again.
  struct UploadedPart {
    std::string etag, checksum;  // checksum: "" if the store keeps none
  };
  Status complete(const std::string& key, const std::string& upload, const std::vector<UploadedPart>& parts);
  Result<std::string> begin_upload(const std::string& key, const std::string& write_id);
  Status abort_upload(const std::string& key, const std::string& upload);
  Result<UploadedPart> put_part(const std::string& key, const std::string& upload, size_t number,
                                const std::vector<ByteView>& body);
  struct Page {
    std::vector<ObjectInfo> entries;
    std::string next;  // token of the next page; "": this is the last
  };
  struct Listing {
    std::string prefix;      // of the keys
    std::string token = {};  // of the page; "": the first
    std::string after = {};  // keys up to this one are left out
    int keys_max = 0;        // 0: as the store likes
    bool is_deep = false;    // lists objects, not folders
  };
  // The names of the entries lack the prefix.
  Result<Page> list_page(const Listing& listing);
  std::string folder_prefix(const std::string& folder) const;
  Result<bool> has_folder(const std::string& folder);
  Status remove_partial(const std::string& path);
  Status remove_key(const std::string& key);
  // Writes the note of an upload, of which so many parts have come. Each call changes its size.
  Status write_upload_note(const std::string& note_key, const std::string& upload, size_t parts);

  S3Client client_;
  std::atomic<int64_t> ahead_bytes_left_{kAheadBytesMax};
};

}  // namespace shoal::storage
