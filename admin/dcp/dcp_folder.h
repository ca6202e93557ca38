// DcpFolder: a checkpoint that torch.distributed.checkpoint (DCP) has written.
//
// A folder has `.metadata`, a pickle that says which tensors exist and where their chunks are, and files
// `__0_0.distcp`, each a sequence of archives of torch.save, one for each chunk. Nothing in the folder is
// executed. Format: torch/distributed/checkpoint/{metadata,filesystem}.py of PyTorch 2.13.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "admin/dcp/mapped_file.h"
#include "shoal/box.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/status.h"

namespace shoal::admin {

inline constexpr uint32_t kMaxDcpMetadataValues = 200'000'000;  // some ten million chunks

struct DcpValue {
  std::string fqn;
  bool is_object = false;
  DType dtype = DType::u8;  // of a tensor, like what follows
  Dims shape;
};

class DcpFolder {
 public:
  // Reads the metadata and checks it: the chunks tile each tensor, and lie within files that exist.
  // Code::not_found, Code::corrupt or Code::invalid_argument names the value, the file and what is wrong.
  static Result<DcpFolder> open(const std::string& path);

  struct Item {  // an object, or a chunk of a tensor
    size_t value = 0;
    size_t file = 0;
    uint64_t at = 0, bytes = 0;  // of its archive
    Box box;                     // of a chunk
  };
  const std::vector<DcpValue>& values() const { return values_; }
  const std::vector<Item>& items() const { return items_; }  // in the order of the files
  uint64_t archive_bytes() const;

  // The row-major elements of a chunk. They lie in the folder's files, or in a temporary one, as long as this
  // object lives.
  Result<ByteView> read_tensor(const Item& item);
  // An object of Shoal (read_object_archive).
  Result<std::string> read_object(const Item& item, bool allow_pickle);

  // The object by which the Python package knows the containers of the values: its name and content.
  struct Structure {
    std::string fqn, content;
  };
  const Structure& structure() const { return structure_; }

 private:
  friend class DcpMetadataReader;
  struct File {
    std::string name;
    std::optional<MappedFile> mapped;
  };
  explicit DcpFolder(std::string path) : path_(std::move(path)) {}
  std::string path_of(const File& file) const { return path_ + "/" + file.name; }
  std::string describe(const Item& item) const;
  Status map_files();
  ByteView bytes_of(const Item& item) const;

  std::string path_;
  std::vector<DcpValue> values_;
  std::vector<Item> items_;
  std::vector<File> files_;
  std::vector<MappedFile> spilled_;
  Structure structure_;
};

}  // namespace shoal::admin
