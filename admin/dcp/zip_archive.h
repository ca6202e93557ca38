// ZipArchive: the records of an archive that torch.save has written. They are stored as they are, so they can
// be used where they lie.
//
// Format: APPNOTE.TXT of PKWARE, 4.3 to 4.5, with the 64-bit fields that large archives need. Libraries such
// as libzip and minizip copy what they read, and do not say where a record lies.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::admin {

class ZipArchive {
 public:
  struct Record {
    std::string_view name;  // without the folder of the archive: "data.pkl", "data/0"
    uint64_t header_at = 0;
    uint64_t bytes = 0;
    uint32_t crc = 0;  // 0: none was written, if the record is not empty
    bool is_stored = false;
  };

  // Reads the directory of an archive that is the whole of `bytes`, which must outlive the object. `where` is
  // for errors. Code::corrupt: it is no archive, is damaged or is truncated.
  static Result<ZipArchive> open(ByteView bytes, std::string where);

  const std::vector<Record>& records() const { return records_; }
  const Record* find(std::string_view name) const;  // nullptr: there is none, or there are several
  // The bytes of a record, whose CRC-32 is verified. Code::corrupt: it is missing, compressed or damaged.
  Result<ByteView> read(std::string_view name) const;

 private:
  struct Directory {
    uint64_t at = 0, bytes = 0, entries = 0;
  };
  ZipArchive(ByteView bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}
  Status corrupt(std::string_view what) const;
  Result<Directory> find_directory() const;
  Result<Directory> find_large_directory(size_t end_at) const;
  // Adds the entry at `at` of the directory, and moves `at` behind it.
  Status add_record(ByteView directory, size_t* at);

  ByteView bytes_;
  std::string where_;
  std::vector<Record> records_;
  uint64_t records_bytes_ = 0;
};

}  // namespace shoal::admin
