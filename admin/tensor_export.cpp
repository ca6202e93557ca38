#include "admin/tensor_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "gpu/dtype_conversion.h"
#include "shoal/box.h"
#include "shoal/hash.h"
#include "storage/shards/json.h"
#include "storage/shards/shard_file.h"

namespace shoal::admin {

namespace {

constexpr uint64_t kHeaderAlignment = 8;  // of the first element, so that every element is aligned
constexpr std::string_view kWholeName = "model.safetensors";

bool is_in_subtree(std::string_view subtree, std::string_view fqn) {
  if (!fqn.starts_with(subtree)) return false;
  return subtree.empty() || fqn.size() == subtree.size() || subtree.back() == '.' ||
         fqn[subtree.size()] == '.';
}

// The names of tensors that are left: those in `only`, renamed.
class ExportNames {
 public:
  explicit ExportNames(const ExportOptions& options)
      : options_(options), only_used_(options.only.size()), renames_used_(options.renames.size()) {}

  // nullopt: the tensor is not exported.
  std::optional<std::string> of(const std::string& fqn) {
    bool wanted = options_.only.empty();
    for (size_t i = 0; i < options_.only.size(); ++i) {
      if (!is_in_subtree(options_.only[i], fqn)) continue;
      wanted = only_used_[i] = true;
    }
    if (!wanted) return std::nullopt;
    for (size_t i = 0; i < options_.renames.size(); ++i) {
      const auto& [before, after] = options_.renames[i];
      if (!fqn.starts_with(before)) continue;
      renames_used_[i] = true;
      return after + fqn.substr(before.size());
    }
    return fqn;
  }

  Status check_all_used() const {
    for (size_t i = 0; i < only_used_.size(); ++i) {
      if (only_used_[i]) continue;
      return Status(Code::not_found,
                    fmt::format("the checkpoint has no tensor '{0}' or '{0}.*'", options_.only[i]));
    }
    for (size_t i = 0; i < renames_used_.size(); ++i) {
      if (renames_used_[i]) continue;
      const auto& [before, after] = options_.renames[i];
      return Status(Code::invalid_argument,
                    fmt::format("the rename '{}={}' changes nothing: no tensor that is exported begins with "
                                "'{}', or an earlier rename applies to those that do",
                                before, after, before));
    }
    return ok_status();
  }

 private:
  const ExportOptions& options_;
  std::vector<bool> only_used_, renames_used_;
};

Result<ExportedTensor> exported(const TensorMetadata& value, std::string name,
                                const std::optional<DType>& dtype) {
  const auto context = [&](const Status& status) { return status.with_context("'" + value.fqn + "'"); };
  if (Status valid = storage::validate_shard_key(name); !valid.ok()) return context(valid);
  ExportedTensor out{value.fqn, std::move(name), value.dtype, value.dtype, value.shape};
  if (dtype && gpu::converts_between(value.dtype, *dtype)) out.written = *dtype;
  auto element_bytes = dtype_bytes(out.written);
  if (!element_bytes.ok()) return context(element_bytes.status());
  out.elements = whole(value.shape).elements();
  out.bytes = out.elements * *element_bytes;
  return out;
}

// Safetensors' own order, in which every element is aligned.
void sort_for_file(std::vector<ExportedTensor>& tensors) {
  std::ranges::sort(tensors, [](const ExportedTensor& a, const ExportedTensor& b) {
    const unsigned a_bits = dtype_bits(a.written), b_bits = dtype_bits(b.written);
    return a_bits != b_bits ? a_bits > b_bits : a.name < b.name;
  });
}

Status make_header(ExportedFile& file) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (const ExportedTensor& tensor : file.tensors) {
    json += ',';
    storage::append_json_string(&json, tensor.name);
    json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        dtype_name(tensor.written), fmt::join(tensor.shape, ","), at, at + tensor.bytes);
    at += tensor.bytes;
  }
  json += '}';
  json.resize((json.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  if (json.size() > kMaxExportHeaderBytes) {
    return Status(
        Code::too_large,
        fmt::format("{} tensors need a header of {}, and safetensors allows {}: use a smaller "
                    "shard size",
                    file.tensors.size(), human_bytes(json.size()), human_bytes(kMaxExportHeaderBytes)));
  }
  file.header.clear();
  for (unsigned shift = 0; shift < 64; shift += 8) {
    file.header += static_cast<char>(static_cast<uint8_t>(json.size() >> shift));
  }
  file.header += json;
  file.bytes = file.header.size() + at;
  return ok_status();
}

std::string make_index(const ExportPlan& plan) {
  std::map<std::string_view, std::string_view> file_of;
  for (const ExportedFile& file : plan.files) {
    for (const ExportedTensor& tensor : file.tensors) file_of[tensor.name] = file.name;
  }
  std::string out = fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{",
                                plan.tensor_bytes);
  std::string_view separator = "\n";
  for (const auto& [name, file] : file_of) {
    out += separator;
    out += "    ";
    storage::append_json_string(&out, name);
    out += fmt::format(": \"{}\"", file);
    separator = ",\n";
  }
  return out + "\n  }\n}\n";
}

// The exported tensors, ascending by name.
Result<std::map<std::string, ExportedTensor>> named_tensors(const std::vector<TensorMetadata>& values,
                                                            const ExportOptions& options, uint64_t* objects) {
  ExportNames names(options);
  std::map<std::string, ExportedTensor> out;
  for (const TensorMetadata& value : values) {
    if (value.kind != LayoutEntry::Kind::tensor) {
      ++*objects;
      continue;
    }
    std::optional<std::string> name = names.of(value.fqn);
    if (!name) continue;
    SHOAL_ASSIGN_OR_RETURN(ExportedTensor tensor, exported(value, *name, options.dtype));
    const auto [place, is_new] = out.emplace(*name, std::move(tensor));
    if (is_new) continue;
    return Status(Code::invalid_argument, fmt::format("'{}' and '{}' would both have the name '{}'",
                                                      place->second.fqn, value.fqn, *name));
  }
  SHOAL_RETURN_IF_ERROR(names.check_all_used());
  if (out.empty()) return Status(Code::not_found, "the checkpoint has no tensors");
  return out;
}

}  // namespace

Result<ExportPlan> plan_export(const std::vector<TensorMetadata>& values, const ExportOptions& options) {
  ExportPlan plan;
  SHOAL_ASSIGN_OR_RETURN(auto tensors, named_tensors(values, options, &plan.objects_left_out));
  uint64_t used = 0;
  for (auto& [name, tensor] : tensors) {
    const bool is_full = options.is_sharded &&
                         (options.shard_bytes_max < used || tensor.bytes > options.shard_bytes_max - used);
    if (plan.files.empty() || (is_full && !plan.files.back().tensors.empty())) {
      plan.files.emplace_back();
      used = 0;
    }
    used += tensor.bytes;
    ++plan.tensors;
    plan.tensor_bytes += tensor.bytes;
    plan.files.back().tensors.push_back(std::move(tensor));
  }
  if (plan.files.size() > kMaxExportFiles) {
    return Status(Code::too_large, fmt::format("the export would have {} files, more than {}: use a larger "
                                               "shard size",
                                               plan.files.size(), kMaxExportFiles));
  }
  for (size_t i = 0; i < plan.files.size(); ++i) {
    ExportedFile& file = plan.files[i];
    file.name = options.is_sharded ? fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan.files.size())
                                   : std::string(kWholeName);
    sort_for_file(file.tensors);
    SHOAL_RETURN_IF_ERROR(make_header(file));
  }
  if (options.is_sharded) plan.index = make_index(plan);
  return plan;
}

namespace {

// Whether an export may have given a file this name.
bool is_of_export(std::string_view name) {
  if (name == kWholeName || name == kExportIndexName) return true;
  constexpr std::string_view kPattern = "model-#####-of-#####.safetensors";
  return name.size() == kPattern.size() && std::ranges::equal(name, kPattern, [](char c, char expected) {
           return expected == '#' ? c >= '0' && c <= '9' : c == expected;
         });
}

// Whether an export that was killed has left this partial file.
bool is_leftover(std::string_view name) {
  constexpr std::string_view kEnd = ".safetensors.";
  const size_t end = name.find(kEnd);
  return storage::is_partial(name) && end != std::string_view::npos &&
         is_of_export(name.substr(0, end + kEnd.size() - 1));
}

class ExportWriter {
 public:
  ExportWriter(const ExportPlan& plan, TensorReader& reader, storage::Storage& folder,
               std::atomic<uint64_t>* bytes_done)
      : plan_(plan), reader_(reader), folder_(folder), bytes_done_(bytes_done) {}

  Status run(bool force) {
    SHOAL_RETURN_IF_ERROR(make_room(force));
    Status written = write_all();
    if (written.ok()) return written;
    for (const std::string& name : published_) (void)folder_.remove(name);
    return written;
  }

 private:
  Status make_room(bool force) {
    SHOAL_ASSIGN_OR_RETURN(auto entries, folder_.list(""));
    std::erase_if(entries, [force](const storage::ObjectInfo& entry) {
      return !is_of_export(entry.name) && !(force && is_leftover(entry.name));
    });
    if (!force && !entries.empty()) {
      return Status(Code::already_exists, fmt::format("{}/{} exists: export to another folder, or replace it "
                                                      "with --force",
                                                      folder_.describe(), entries.front().name));
    }
    if (entries.empty()) return ok_status();
    SHOAL_RETURN_IF_ERROR(folder_.remove(std::string(kExportIndexName)));
    for (const storage::ObjectInfo& entry : entries) SHOAL_RETURN_IF_ERROR(folder_.remove(entry.name));
    return ok_status();
  }

  Status write_all() {
    for (const ExportedFile& file : plan_.files) SHOAL_RETURN_IF_ERROR(write_file(file));
    if (plan_.index.empty()) return ok_status();
    const std::string name(kExportIndexName);
    SHOAL_ASSIGN_OR_RETURN(const bool created, folder_.create_exclusive(name, as_bytes(plan_.index)));
    return created ? ok_status() : taken(name);
  }

  static ByteView as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }

  Status taken(const std::string& name) const {
    return Status(Code::already_exists,
                  fmt::format("{}/{}: another process has created it meanwhile", folder_.describe(), name));
  }

  Status write_file(const ExportedFile& file) {
    SHOAL_ASSIGN_OR_RETURN(auto out, folder_.create(file.name, random_128(), file.bytes));
    SHOAL_RETURN_IF_ERROR(out->append(as_bytes(file.header)));
    for (const ExportedTensor& tensor : file.tensors) {
      SHOAL_RETURN_IF_ERROR(write_tensor(tensor, *out));
    }
    SHOAL_ASSIGN_OR_RETURN(const bool published, out->publish());
    if (!published) return taken(file.name);
    published_.push_back(file.name);
    return ok_status();
  }

  Status write_tensor(const ExportedTensor& tensor, storage::WriteFile& out) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t stored_bytes, dtype_bytes(tensor.stored));
    SHOAL_ASSIGN_OR_RETURN(const uint64_t written_bytes, dtype_bytes(tensor.written));
    const uint64_t step = window_elements(tensor, std::max(stored_bytes, written_bytes));
    for (uint64_t begin = 0; begin < tensor.elements; begin += step) {
      const uint64_t count = std::min(step, tensor.elements - begin);
      window_.resize(count * stored_bytes);
      SHOAL_RETURN_IF_ERROR(reader_.read(tensor, begin, begin + count, window_));
      ByteView data = window_;
      if (tensor.stored != tensor.written) {
        converted_.resize(count * written_bytes);
        SHOAL_RETURN_IF_ERROR(gpu::convert_elements(tensor.stored, window_, tensor.written, converted_));
        data = converted_;
      }
      SHOAL_RETURN_IF_ERROR(out.append(data));
      bytes_done_->fetch_add(data.size(), std::memory_order_relaxed);
    }
    return ok_status();
  }

  // Whole rows where they fit, so that the pieces of a sharded tensor are read in few long runs.
  static uint64_t window_elements(const ExportedTensor& tensor, uint64_t element_bytes) {
    const uint64_t most = kExportWindowBytes / element_bytes;
    const uint64_t row = tensor.shape.empty() || tensor.shape[0] == 0 ? 1 : tensor.elements / tensor.shape[0];
    return row == 0 || row > most ? most : most / row * row;
  }

  const ExportPlan& plan_;
  TensorReader& reader_;
  storage::Storage& folder_;
  std::atomic<uint64_t>* const bytes_done_;
  Bytes window_, converted_;
  std::vector<std::string> published_;
};

}  // namespace

Status write_export(const ExportPlan& plan, TensorReader& reader, storage::Storage& folder, bool force,
                    std::atomic<uint64_t>* bytes_done) {
  return ExportWriter(plan, reader, folder, bytes_done).run(force);
}

}  // namespace shoal::admin
