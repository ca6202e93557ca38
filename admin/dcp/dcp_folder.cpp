#include "admin/dcp/dcp_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

#include "admin/dcp/pickle.h"
#include "admin/dcp/torch_archive.h"
#include "shoal/hash.h"
#include "shoal/layout.h"
#include "storage/shards/json.h"

namespace shoal::admin {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMetadataName = ".metadata", kDataSuffix = ".distcp";
constexpr std::string_view kStructurePrefix = "__shoal_tree__";  // python/shoal/_tree.py
constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFileSystemModule = "torch.distributed.checkpoint.filesystem";

bool is_metadata_name(std::string_view module, std::string_view name) {
  constexpr std::string_view kClasses[] = {
      "BytesStorageMetadata",  "ChunkStorageMetadata", "Metadata",
      "MetadataIndex",         "StorageMeta",          "TensorProperties",
      "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"};
  constexpr std::string_view kPaths[] = {"PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"};
  auto is_one_of = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (module == kMetadataModule) return is_one_of(kClasses);
  if (module == kFileSystemModule) return name == "_StorageInfo";
  if (module == "pathlib" || module == "pathlib._local") return is_one_of(kPaths);  // of the checkpoint_id
  if (module == "collections") return name == "OrderedDict";
  if (module == "torch.serialization") return name == "_get_layout";
  return (module == "torch" && name == "Size") || is_torch_dtype(module, name);
}

Status why_no_metadata(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return Status(Code::not_found, fmt::format("the folder {} does not exist", path));
  }
  bool has_data = false;
  const std::string metadata = fmt::format("{}/{}", path, kMetadataName);
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("__") && name.ends_with(kMetadataName)) {
      return Status(
          Code::not_found,
          fmt::format("{} does not exist: this checkpoint was saved with use_collectives=False, which "
                      "leaves one metadata file for each rank. Load it with DCP and save it again",
                      metadata));
    }
    has_data = has_data || name.ends_with(kDataSuffix);
  }
  return Status(Code::not_found, fmt::format("{} does not exist: {}", metadata,
                                             has_data ? "the save that wrote this folder did not finish"
                                                      : "this is not a folder of DCP"));
}

std::string lookup_key(std::string_view fqn, const std::optional<Dims>& offsets) {
  std::string key(fqn);
  key.push_back('\0');
  if (!offsets) return key;
  key.push_back('@');
  for (const uint64_t offset : *offsets) key.append(reinterpret_cast<const char*>(&offset), sizeof offset);
  return key;
}

std::string place_of(std::string_view fqn, const Dims* offsets) {
  if (offsets == nullptr) return fmt::format("'{}'", fqn);
  return fmt::format("'{}' at [{}]", fqn, fmt::join(*offsets, ", "));
}

}  // namespace

// Makes the parts of a DcpFolder from its pickle.
class DcpMetadataReader {
 public:
  DcpMetadataReader(DcpFolder* folder, const Pickle& pickle, std::string where)
      : folder_(*folder), pickle_(pickle), where_(std::move(where)) {}

  Status read();

 private:
  using Kind = PickleKind;

  Status corrupt(std::string_view what) const {
    return Status(Code::corrupt, fmt::format("{}: {}", where_, what));
  }
  Status invalid(std::string_view what) const {
    return Status(Code::invalid_argument, fmt::format("{}: {}", where_, what));
  }
  bool is_object(PickleId id, std::string_view module, std::string_view name) const {
    return id != kNoPickleId && pickle_.kind(id) == Kind::object && pickle_.is_named(id, module, name);
  }
  // An attribute of an object of a dataclass; kNoPickleId: it has none of that name.
  PickleId attribute(PickleId object, std::string_view name) const;
  bool is_dict(PickleId id) const { return id != kNoPickleId && pickle_.kind(id) == Kind::dict; }
  Status index_places(PickleId storage_data);
  Status add_value(PickleId name, PickleId about);
  Status add_chunks(size_t value, PickleId chunks);
  Status add_item(size_t value, const Box* box);
  Status set_dtype(PickleId properties, DcpValue* value) const;
  Result<size_t> file_number(std::string_view name, const std::string& place);
  Status set_structure(PickleId planner_data);
  // The JSON of the path of a value, "["model","w"]", and its keys as text with their types.
  Status add_path(const DcpValue& value, PickleId path, std::string* json,
                  std::vector<std::string>* keys) const;

  DcpFolder& folder_;
  const Pickle& pickle_;
  const std::string where_;
  std::unordered_map<std::string, PickleId> places_;
  std::unordered_map<std::string, size_t> file_numbers_;
};

PickleId DcpMetadataReader::attribute(PickleId object, std::string_view name) const {
  const PickleId state = pickle_.kind(object) == Kind::object ? pickle_.state(object) : kNoPickleId;
  if (!is_dict(state)) return kNoPickleId;
  PickleId found = kNoPickleId;
  const auto entries = pickle_.entries(state);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (pickle_.kind(entries[i]) == Kind::text && pickle_.text(entries[i]) == name) found = entries[i + 1];
  }
  return found;
}

Status DcpMetadataReader::read() {
  const PickleId root = pickle_.root();
  PickleId values = kNoPickleId, places = kNoPickleId;
  if (is_object(root, kMetadataModule, "Metadata")) {
    values = attribute(root, "state_dict_metadata");
    places = attribute(root, "storage_data");
  }
  if (!is_dict(values) || !is_dict(places)) {
    return Status(Code::corrupt,
                  fmt::format("{} is not the metadata of a checkpoint of DCP's FileSystemWriter", where_));
  }
  SHOAL_RETURN_IF_ERROR(index_places(places));
  const auto entries = pickle_.entries(values);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    SHOAL_RETURN_IF_ERROR(add_value(entries[i], entries[i + 1]));
  }
  SHOAL_RETURN_IF_ERROR(set_structure(attribute(root, "planner_data")));
  std::sort(folder_.items_.begin(), folder_.items_.end(), [&](const auto& a, const auto& b) {
    return std::tie(folder_.files_[a.file].name, a.at) < std::tie(folder_.files_[b.file].name, b.at);
  });
  return ok_status();
}

Status DcpMetadataReader::index_places(PickleId storage_data) {
  const auto entries = pickle_.entries(storage_data);
  places_.reserve(entries.size() / 2);
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    const PickleId fqn = attribute(entries[i], "fqn"), offset = attribute(entries[i], "offset");
    const bool has_offset = offset != kNoPickleId && pickle_.kind(offset) != Kind::none;
    const std::optional<Dims> offsets = has_offset ? dims_of(pickle_, offset) : std::nullopt;
    if (!is_object(entries[i], kMetadataModule, "MetadataIndex") || fqn == kNoPickleId ||
        pickle_.kind(fqn) != Kind::text || (has_offset && !offsets)) {
      return corrupt("a key of storage_data is not a MetadataIndex");
    }
    places_.insert_or_assign(lookup_key(pickle_.text(fqn), offsets), entries[i + 1]);
  }
  return ok_status();
}

Status DcpMetadataReader::add_value(PickleId name, PickleId about) {
  if (pickle_.kind(name) != Kind::text) return corrupt("the name of a value is not text");
  DcpValue value;
  value.fqn = pickle_.text(name);
  if (Status valid = validate_fqn(value.fqn); !valid.ok()) return invalid(valid.message());
  if (value.fqn.starts_with(kStructurePrefix))
    return invalid(fmt::format("the name '{}' is reserved", value.fqn));
  const size_t number = folder_.values_.size();
  value.is_object = is_object(about, kMetadataModule, "BytesStorageMetadata");
  if (value.is_object) {
    folder_.values_.push_back(std::move(value));
    return add_item(number, nullptr);
  }
  const bool is_tensor = is_object(about, kMetadataModule, "TensorStorageMetadata");
  const auto shape = is_tensor ? dims_of(pickle_, attribute(about, "size")) : std::nullopt;
  const PickleId chunks = is_tensor ? attribute(about, "chunks") : kNoPickleId;
  if (!shape || chunks == kNoPickleId || pickle_.kind(chunks) != Kind::list) {
    return corrupt(fmt::format("'{}' is neither a tensor nor an object", value.fqn));
  }
  if (shape->size() > kMaxDims || !element_count(*shape)) {
    return invalid(fmt::format("'{}' is larger than a tensor may be", value.fqn));
  }
  value.shape = *shape;
  SHOAL_RETURN_IF_ERROR(set_dtype(attribute(about, "properties"), &value));
  folder_.values_.push_back(std::move(value));
  return add_chunks(number, chunks);
}

Status DcpMetadataReader::set_dtype(PickleId properties, DcpValue* value) const {
  const PickleId state =
      is_object(properties, kMetadataModule, "TensorProperties") ? pickle_.state(properties) : kNoPickleId;
  const bool has_state = state != kNoPickleId && pickle_.kind(state) == Kind::tuple;
  const PickleId dtype = has_state && !pickle_.items(state).empty() ? pickle_.items(state)[0] : kNoPickleId;
  if (dtype == kNoPickleId || !is_torch_dtype(pickle_.module(dtype), pickle_.name(dtype))) {
    return corrupt(fmt::format("'{}' has no dtype", value->fqn));
  }
  const auto found = dtype_from_torch(pickle_.name(dtype));
  if (!found) {
    return invalid(fmt::format("'{}' has the dtype torch.{}, which no checkpoint can hold: convert it",
                               value->fqn, pickle_.name(dtype)));
  }
  value->dtype = *found;
  return ok_status();
}

Status DcpMetadataReader::add_chunks(size_t number, PickleId chunks) {
  const std::string fqn = folder_.values_[number].fqn;
  const Dims shape = folder_.values_[number].shape;
  const bool is_empty = *element_count(shape) == 0;
  std::vector<Box> boxes;
  for (const PickleId chunk : pickle_.items(chunks)) {
    const bool is_chunk = is_object(chunk, kMetadataModule, "ChunkStorageMetadata");
    const auto offsets = is_chunk ? dims_of(pickle_, attribute(chunk, "offsets")) : std::nullopt;
    const auto sizes = is_chunk ? dims_of(pickle_, attribute(chunk, "sizes")) : std::nullopt;
    if (!offsets || !sizes) return corrupt(fmt::format("'{}' has a chunk without offsets and sizes", fqn));
    const Box box{*offsets, *sizes};
    if (Status valid = validate_box(box, shape); !valid.ok()) {
      return corrupt(fmt::format("'{}' has a chunk that does not fit: {}", fqn, valid.message()));
    }
    if (box.empty() && !is_empty) continue;  // a rank that held nothing
    boxes.push_back(box);
    SHOAL_RETURN_IF_ERROR(add_item(number, &box));
    if (is_empty) return ok_status();
  }
  if (boxes.empty()) return corrupt(fmt::format("'{}' has no chunks", fqn));
  if (Status tiles = check_tiling(boxes, shape); !tiles.ok()) {
    return corrupt(fmt::format("the chunks of '{}' are not the whole tensor: {}", fqn, tiles.message()));
  }
  return ok_status();
}

Status DcpMetadataReader::add_item(size_t number, const Box* box) {
  const std::string& fqn = folder_.values_[number].fqn;
  const std::string place = place_of(fqn, box ? &box->offsets : nullptr);
  const auto found = places_.find(lookup_key(fqn, box ? std::optional(box->offsets) : std::nullopt));
  if (found == places_.end()) return corrupt(fmt::format("it does not say where {} is stored", place));
  const PickleId info = found->second;
  const PickleId name = attribute(info, "relative_path"), at = attribute(info, "offset");
  const PickleId bytes = attribute(info, "length"), transforms = attribute(info, "transform_descriptors");
  auto is_count = [&](PickleId id) {
    return id != kNoPickleId && pickle_.kind(id) == Kind::integer && pickle_.integer(id) >= 0;
  };
  if (!is_object(info, kFileSystemModule, "_StorageInfo") || name == kNoPickleId ||
      pickle_.kind(name) != Kind::text || !is_count(at) || !is_count(bytes)) {
    return corrupt(fmt::format("the place of {} is not a file, an offset and a length", place));
  }
  const bool has_transforms = transforms != kNoPickleId && pickle_.kind(transforms) != Kind::none &&
                              !(pickle_.kind(transforms) == Kind::list && pickle_.items(transforms).empty());
  if (has_transforms) {
    return invalid(
        fmt::format("{} was written with extensions, which Shoal cannot read: load the checkpoint with "
                    "DCP and save it without extensions",
                    place));
  }
  DcpFolder::Item item;
  SHOAL_ASSIGN_OR_RETURN(item.file, file_number(pickle_.text(name), place));
  item.value = number;
  item.at = static_cast<uint64_t>(pickle_.integer(at));
  item.bytes = static_cast<uint64_t>(pickle_.integer(bytes));
  if (box) item.box = *box;
  folder_.items_.push_back(std::move(item));
  return ok_status();
}

Result<size_t> DcpMetadataReader::file_number(std::string_view name, const std::string& place) {
  constexpr size_t kMaxNameBytes = 255;
  const bool is_file = !name.empty() && name != "." && name != ".." && name.size() <= kMaxNameBytes &&
                       name.find('/') == std::string_view::npos && is_clean_utf8(name);
  if (!is_file) {
    return invalid(fmt::format("{} is placed in '{}', which is not a file of this folder", place,
                               clean_line(name, kMaxNameBytes)));
  }
  const auto [known, is_new] = file_numbers_.try_emplace(std::string(name), folder_.files_.size());
  if (is_new) folder_.files_.push_back({std::string(name), std::nullopt});
  return known->second;
}

Status DcpMetadataReader::add_path(const DcpValue& value, PickleId path, std::string* json,
                                   std::vector<std::string>* keys) const {
  std::string joined;
  bool is_valid = pickle_.kind(path) == Kind::tuple && !pickle_.items(path).empty();
  for (const PickleId key : is_valid ? pickle_.items(path) : std::span<const PickleId>()) {
    const bool is_number = pickle_.kind(key) == Kind::integer;
    if (!is_number && (pickle_.kind(key) != Kind::text || pickle_.text(key).empty())) is_valid = false;
    if (!is_valid) break;
    const std::string text =
        is_number ? std::to_string(pickle_.integer(key)) : std::string(pickle_.text(key));
    joined += (keys->empty() ? "" : ".") + text;
    *json += keys->empty() ? "" : ",";
    if (is_number) {
      *json += text;
    } else {
      storage::append_json_string(json, text);
    }
    keys->push_back((is_number ? "#" : "'") + text);
  }
  if (is_valid && joined == value.fqn) return ok_status();
  return invalid(
      fmt::format("the path of '{}' in planner_data is not its name, or has an empty key", value.fqn));
}

// {"dcp": {NAME: [[KEY, ...], "object" or "torch"], ...}}, as StorageWriter of shoal.torch writes it.
Status DcpMetadataReader::set_structure(PickleId planner_data) {
  std::unordered_map<std::string_view, PickleId> paths;
  const auto entries = is_dict(planner_data) ? pickle_.entries(planner_data) : std::span<const PickleId>();
  for (size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (pickle_.kind(entries[i]) == Kind::text)
      paths.insert_or_assign(pickle_.text(entries[i]), entries[i + 1]);
  }
  std::string json = "{\"dcp\":{";
  std::set<std::vector<std::string>> leaves;
  for (const DcpValue& value : folder_.values_) {
    std::vector<std::string> keys;
    if (!leaves.empty()) json += ',';
    storage::append_json_string(&json, value.fqn);
    json += ":[[";
    if (const auto path = paths.find(value.fqn); path != paths.end()) {
      SHOAL_RETURN_IF_ERROR(add_path(value, path->second, &json, &keys));
    } else {
      storage::append_json_string(&json, value.fqn);
      keys.push_back("'" + value.fqn);
    }
    json += value.is_object ? "],\"object\"]" : "],\"torch\"]";
    if (!leaves.insert(std::move(keys)).second) return corrupt(fmt::format("'{}' occurs twice", value.fqn));
  }
  json += "}}";
  for (auto leaf = leaves.begin(); leaf != leaves.end() && std::next(leaf) != leaves.end(); ++leaf) {
    const std::vector<std::string>& next = *std::next(leaf);  // in order, it would follow at once
    if (next.size() > leaf->size() && std::equal(leaf->begin(), leaf->end(), next.begin())) {
      return corrupt("a path of planner_data leads through another value");
    }
  }
  const std::string hash = xxh3_128(as_view(json)).to_hex();
  folder_.structure_ = {fmt::format("{}.{}", kStructurePrefix, hash), std::move(json)};
  return ok_status();
}

// ---- DcpFolder ----

Result<DcpFolder> DcpFolder::open(const std::string& path) {
  DcpFolder folder(path);
  const std::string where = fmt::format("{}/{}", path, kMetadataName);
  auto metadata = MappedFile::open(where);
  if (!metadata.ok()) {
    return metadata.status().code() == Code::not_found ? why_no_metadata(path) : metadata.status();
  }
  PickleRules rules;
  rules.where = where;
  rules.allows = is_metadata_name;
  rules.values_max = kMaxDcpMetadataValues;
  SHOAL_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::read(metadata->bytes(), rules));
  SHOAL_RETURN_IF_ERROR(DcpMetadataReader(&folder, pickle, where).read());
  SHOAL_RETURN_IF_ERROR(folder.map_files());
  return folder;
}

uint64_t DcpFolder::archive_bytes() const {
  return std::accumulate(items_.begin(), items_.end(), uint64_t{0},
                         [](uint64_t sum, const Item& item) { return sum + item.bytes; });
}

std::string DcpFolder::describe(const Item& item) const {
  const DcpValue& value = values_[item.value];
  return fmt::format("{} in {}, {} bytes at {}",
                     place_of(value.fqn, value.is_object ? nullptr : &item.box.offsets),
                     path_of(files_[item.file]), item.bytes, item.at);
}

// All files, before anything is imported, so that what is missing is known at once.
Status DcpFolder::map_files() {
  for (const Item& item : items_) {
    File& file = files_[item.file];
    const std::string& fqn = values_[item.value].fqn;
    if (!file.mapped) {
      auto mapped = MappedFile::open(path_of(file));
      if (!mapped.ok() && mapped.status().code() == Code::not_found) {
        return Status(Code::not_found, fmt::format("{} does not exist; {}/{} places '{}' in it",
                                                   path_of(file), path_, kMetadataName, fqn));
      }
      if (!mapped.ok()) return mapped.status();
      file.mapped = std::move(*mapped);
    }
    const uint64_t size = file.mapped->bytes().size();
    if (item.at > size || item.bytes > size - item.at) {
      return Status(Code::corrupt, fmt::format("{} is truncated: it has {} bytes, and '{}' has {} at {}",
                                               path_of(file), size, fqn, item.bytes, item.at));
    }
  }
  return ok_status();
}

ByteView DcpFolder::bytes_of(const Item& item) const {
  return files_[item.file].mapped->bytes().subspan(item.at, item.bytes);
}

Result<ByteView> DcpFolder::read_tensor(const Item& item) {
  const DcpValue& value = values_[item.value];
  const std::string where = describe(item);
  SHOAL_ASSIGN_OR_RETURN(const ArchivedTensor tensor, read_tensor_archive(bytes_of(item), where));
  if (tensor.dtype != value.dtype || tensor.shape != item.box.sizes) {
    return Status(Code::corrupt, fmt::format("{} has the shape [{}] of {}, but the metadata says [{}] of {}",
                                             where, fmt::join(tensor.shape, ", "), dtype_name(tensor.dtype),
                                             fmt::join(item.box.sizes, ", "), dtype_name(value.dtype)));
  }
  if (const auto in_order = tensor.in_order()) return *in_order;
  SHOAL_ASSIGN_OR_RETURN(MappedFile spilled, MappedFile::temporary(tensor.bytes()));
  tensor.gather(spilled.writable_bytes());
  spilled_.push_back(std::move(spilled));
  return spilled_.back().bytes();
}

Result<std::string> DcpFolder::read_object(const Item& item, bool allow_pickle) {
  return read_object_archive(bytes_of(item), describe(item), allow_pickle);
}

}  // namespace shoal::admin
