#include "sim/jobs/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "shoal/bytes.h"
#include "storage/decisions/decision.h"
#include "storage/shards/json.h"
#include "storage/shards/shard_file.h"

namespace shoal::sim {

namespace {

constexpr uint64_t kMostLayers = 10'000;
constexpr uint64_t kMostElements = uint64_t{1} << 56;  // maximum number of elements of a model
constexpr size_t kMostTextBytes = size_t{64} << 20;    // maximum size of a value of __metadata__
constexpr size_t kMostTensors = size_t{1} << 20;

struct FileTensor {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
};

Status in_file(const std::string& path, const std::string& what) {
  return Status(Code::invalid_argument, fmt::format("{}: {}", path, what));
}

Status read_numbers(storage::JsonReader& json, Dims* numbers) {
  SHOAL_RETURN_IF_ERROR(json.expect('['));
  for (bool more = !json.take(']'); more;) {
    uint64_t number = 0;
    SHOAL_RETURN_IF_ERROR(json.read_unsigned(&number));
    if (numbers->size() == kMaxDims) return json.error(fmt::format("more than {} dimensions", kMaxDims));
    numbers->push_back(number);
    SHOAL_RETURN_IF_ERROR(json.next(']', &more));
  }
  return ok_status();
}

// {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}
Status read_tensor(storage::JsonReader& json, uint64_t data_bytes, FileTensor* tensor) {
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  Dims offsets;
  SHOAL_RETURN_IF_ERROR(json.expect('{'));
  for (bool more = !json.take('}'); more;) {
    std::string key;
    SHOAL_RETURN_IF_ERROR(json.read_string(&key, kMaxFqnBytes));
    SHOAL_RETURN_IF_ERROR(json.expect(':'));
    if (key == "dtype") {
      std::string name;
      SHOAL_RETURN_IF_ERROR(json.read_string(&name, kMaxFqnBytes));
      SHOAL_ASSIGN_OR_RETURN(dtype, dtype_from_name(name));
    } else if (key == "shape") {
      SHOAL_RETURN_IF_ERROR(read_numbers(json, &shape.emplace()));
    } else if (key == "data_offsets") {
      SHOAL_RETURN_IF_ERROR(read_numbers(json, &offsets));
    } else {
      return json.error(fmt::format("'{}' is not a property of a tensor", key));
    }
    SHOAL_RETURN_IF_ERROR(json.next('}', &more));
  }
  if (!dtype || !shape || offsets.size() != 2)
    return json.error("its dtype, shape or data_offsets are missing");
  tensor->dtype = *dtype;
  tensor->shape = std::move(*shape);
  SHOAL_ASSIGN_OR_RETURN(const uint64_t each, dtype_bytes(tensor->dtype));
  const std::optional<uint64_t> elements = element_count(tensor->shape);
  if (!elements || *elements > kMostElements) return json.error("its shape is too large");
  if (offsets[0] > offsets[1] || offsets[1] > data_bytes) return json.error("its bytes lie outside the file");
  if (offsets[1] - offsets[0] != *elements * each) {
    return json.error(fmt::format("its shape takes {} bytes, but its offsets span {}", *elements * each,
                                  offsets[1] - offsets[0]));
  }
  return ok_status();
}

Status skip_metadata(storage::JsonReader& json, bool* is_piece) {
  SHOAL_RETURN_IF_ERROR(json.expect('{'));
  for (bool more = !json.take('}'); more;) {
    std::string key, value;
    SHOAL_RETURN_IF_ERROR(json.read_string(&key, kMaxFqnBytes));
    SHOAL_RETURN_IF_ERROR(json.expect(':'));
    SHOAL_RETURN_IF_ERROR(json.read_string(&value, kMostTextBytes));
    *is_piece = *is_piece || key == "DCP_SHARDING_INFO";
    SHOAL_RETURN_IF_ERROR(json.next('}', &more));
  }
  return ok_status();
}

Status parse_header(std::string_view text, uint64_t data_bytes, std::vector<FileTensor>* tensors) {
  storage::JsonReader json(text);
  SHOAL_RETURN_IF_ERROR(json.expect('{'));
  for (bool more = !json.take('}'); more;) {
    FileTensor tensor;
    SHOAL_RETURN_IF_ERROR(json.read_string(&tensor.name, kMaxFqnBytes));
    SHOAL_RETURN_IF_ERROR(json.expect(':'));
    if (tensor.name == "__metadata__") {
      bool is_piece = false;
      SHOAL_RETURN_IF_ERROR(skip_metadata(json, &is_piece));
      if (is_piece) {
        return Status(Code::invalid_argument,
                      "it holds pieces of tensors, and its header does not give the shapes of the tensors; "
                      "name the manifest of a Shoal checkpoint instead");
      }
    } else {
      SHOAL_RETURN_IF_ERROR(validate_fqn(tensor.name));
      if (Status fits = read_tensor(json, data_bytes, &tensor); !fits.ok()) {
        return Status(fits.code(), fmt::format("tensor '{}': {}", tensor.name, fits.message()));
      }
      if (tensors->size() == kMostTensors) {
        return Status(Code::too_large, fmt::format("more than {} tensors", kMostTensors));
      }
      tensors->push_back(std::move(tensor));
    }
    SHOAL_RETURN_IF_ERROR(json.next('}', &more));
  }
  return json.expect_end();
}

Status read_header(const std::string& path, std::vector<FileTensor>* tensors) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Status(Code::not_found, path + ": cannot read this file");
  const auto size = static_cast<uint64_t>(file.tellg());
  std::byte length_bytes[8];
  file.seekg(0);
  if (size < 8 || !file.read(reinterpret_cast<char*>(length_bytes), 8)) {
    return in_file(path, "it is too short for a safetensors file");
  }
  const uint64_t length = load_le64(length_bytes);
  if (length > storage::kMaxShardHeaderBytes || length > size - 8) {
    return in_file(path,
                   fmt::format("its header is announced with {} bytes, but the file has {}", length, size));
  }
  std::string text(length, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(length)))
    return in_file(path, "cannot read this file");
  const Status parsed = parse_header(text, size - 8 - length, tensors);
  return parsed.ok() ? parsed : Status(parsed.code(), fmt::format("{}: {}", path, parsed.message()));
}

std::optional<uint64_t> layer_of(std::string_view name) {
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    if (part.empty() || part.size() > 9 || part.find_first_not_of("0123456789") != part.npos) continue;
    return std::stoull(std::string(part));
  }
  return std::nullopt;
}

bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != name.npos; });
}

Cut cut_of(const FileTensor& tensor) {
  if (tensor.shape.size() < 2) return Cut::none;
  const bool columns = has_any(tensor.name, {"o_proj.", "down_proj.", ".wo.", ".w2.", "c_proj.", "out_proj.",
                                             "dense_4h_to_h.", "attention.dense."});
  return columns ? Cut::columns : Cut::rows;
}

Result<Model> model_of_files(const std::string& path, const std::vector<std::string>& files) {
  Model model;
  model.name = path;
  model.has_whole_names = true;
  std::map<std::string, std::string> file_of;
  for (const std::string& file : files) {
    std::vector<FileTensor> tensors;
    SHOAL_RETURN_IF_ERROR(read_header(file, &tensors));
    for (FileTensor& tensor : tensors) {
      const auto [other, is_new] = file_of.emplace(tensor.name, file);
      if (!is_new) {
        return in_file(file, fmt::format("tensor '{}' is also in {}", tensor.name, other->second));
      }
      const std::optional<uint64_t> layer = layer_of(tensor.name);
      if (layer && *layer >= kMostLayers) {
        return in_file(file, fmt::format("tensor '{}': layer {} is too high, at most {} are possible",
                                         tensor.name, *layer, kMostLayers));
      }
      if (layer && model.of_layer.size() <= *layer) model.of_layer.resize(*layer + 1);
      auto& stage = layer                                                           ? model.of_layer[*layer]
                    : has_any(tensor.name, {"embed", "wte", "wpe", "embd", "tok_"}) ? model.first
                                                                                    : model.last;
      const Cut cut = cut_of(tensor);
      stage.push_back({std::move(tensor.name), std::move(tensor.shape), cut, tensor.dtype});
    }
  }
  if (model.of_layer.empty()) model.of_layer.emplace_back();
  model.layers = static_cast<uint32_t>(model.of_layer.size());
  return model;
}

Result<Model> model_of_manifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Status(Code::not_found, path + ": cannot read this file");
  const auto size = static_cast<uint64_t>(file.tellg());
  if (size > storage::kMaxDecisionBytes) return in_file(path, "it is too large for a manifest");
  Bytes bytes(size);
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return in_file(path, "cannot read this file");
  }
  SHOAL_ASSIGN_OR_RETURN(storage::Decision decision, storage::decode_decision(bytes, path));
  if (!decision.committed())
    return in_file(path, "the attempt was not committed, so its decision has no layouts");
  Model model;
  model.name = path;
  model.world = decision.manifest().world;
  return model;
}

Result<Model> model_of_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(path, error)) return Status(Code::not_found, path + ": no such file or folder");
  if (!fs::is_directory(path, error)) {
    return path.ends_with(".shoal") ? model_of_manifest(path) : model_of_files(path, {path});
  }
  const std::string manifest = (fs::path(path) / storage::kDecisionName).string();
  if (fs::exists(manifest, error)) return model_of_manifest(manifest);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  if (error) return in_file(path, error.message());
  if (files.empty()) {
    return in_file(path, fmt::format("it holds neither a .safetensors file nor {}", storage::kDecisionName));
  }
  std::sort(files.begin(), files.end());
  return model_of_files(path, files);
}

}  // namespace

bool is_model_path(std::string_view name) {
  return name.find('/') != name.npos || name.ends_with(".safetensors") || name.ends_with(".shoal");
}

Result<Model> load_model(const std::string& name, Optimizer optimizer) {
  SHOAL_ASSIGN_OR_RETURN(Model model, is_model_path(name) ? model_of_path(name) : find_model(name));
  model.optimizer = optimizer;
  const uint64_t parameters = model.parameters();
  if (parameters == 0) return in_file(name, "the model is empty: no tensor has an element");
  if (parameters > kMostElements) return in_file(name, "the model is too large");
  return model;
}

}  // namespace shoal::sim
