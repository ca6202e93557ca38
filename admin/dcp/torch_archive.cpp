#include "admin/dcp/torch_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "admin/dcp/plain_value.h"
#include "admin/dcp/zip_archive.h"

namespace shoal::admin {

namespace {

// torch repeats an element by a stride of 0, so that a small storage may be a large tensor.
constexpr uint64_t kMaxExpansionBytes = uint64_t{1} << 30;
constexpr uint32_t kMaxTensorValues = 10'000;
constexpr uint32_t kMaxObjectValues = 16'000'000;
constexpr char kTorchMarker = '\x03';  // python/shoal/_values.py: what torch.save has written follows

using Name = std::pair<std::string_view, std::string_view>;

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"bool", DType::boolean},
    {"uint8", DType::u8},
    {"int8", DType::i8},
    {"int16", DType::i16},
    {"uint16", DType::u16},
    {"float16", DType::f16},
    {"bfloat16", DType::bf16},
    {"int32", DType::i32},
    {"uint32", DType::u32},
    {"float32", DType::f32},
    {"float64", DType::f64},
    {"int64", DType::i64},
    {"uint64", DType::u64},
    {"complex64", DType::c64},
    {"float8_e4m3fn", DType::f8_e4m3},
    {"float8_e5m2", DType::f8_e5m2},
    {"float8_e8m0fnu", DType::f8_e8m0},
    {"float8_e4m3fnuz", DType::f8_e4m3fnuz},
    {"float8_e5m2fnuz", DType::f8_e5m2fnuz},
};
constexpr std::string_view kOtherDTypes[] = {"complex32", "complex128", "quint8",   "qint8",
                                             "qint32",    "quint4x2",   "quint2x4", "float4_e2m1fn_x2"};

// The storage classes of protocol 2; a tensor of another type has an UntypedStorage and names its dtype.
constexpr std::pair<std::string_view, DType> kStorages[] = {
    {"BFloat16Storage", DType::bf16}, {"BoolStorage", DType::boolean},     {"ByteStorage", DType::u8},
    {"CharStorage", DType::i8},       {"ComplexFloatStorage", DType::c64}, {"DoubleStorage", DType::f64},
    {"FloatStorage", DType::f32},     {"HalfStorage", DType::f16},         {"IntStorage", DType::i32},
    {"LongStorage", DType::i64},      {"ShortStorage", DType::i16},
};
constexpr Name kUntypedStorage{"torch.storage", "UntypedStorage"};

constexpr Name kTensorNames[] = {
    {"collections", "OrderedDict"},         {"torch", "Size"},
    {"torch._utils", "_rebuild_parameter"}, {"torch._utils", "_rebuild_tensor_v2"},
    {"torch._utils", "_rebuild_tensor_v3"}, kUntypedStorage,
};
// What torch.load accepts besides these with weights_only=True, in the names of protocol 2.
constexpr Name kObjectNames[] = {
    {"__builtin__", "bytearray"}, {"__builtin__", "complex"}, {"__builtin__", "set"},
    {"_codecs", "encode"},        {"collections", "Counter"}, {"torch", "device"},
    {"builtins", "bytearray"},    {"builtins", "complex"},    {"builtins", "set"},
};
// Only in plain values: torch.load rejects it.
constexpr Name kPlainNames[] = {{"__builtin__", "bytes"}, {"builtins", "bytes"}};

template <class Names>
bool contains(const Names& names, std::string_view module, std::string_view name) {
  return std::find(std::begin(names), std::end(names), Name(module, name)) != std::end(names);
}

std::optional<DType> dtype_of_storage(std::string_view name) {
  for (const auto& [storage, dtype] : kStorages) {
    if (storage == name) return dtype;
  }
  return std::nullopt;
}

bool is_tensor_name(std::string_view module, std::string_view name) {
  return contains(kTensorNames, module, name) || is_torch_dtype(module, name) ||
         (module == "torch" && dtype_of_storage(name));
}

bool is_object_name(std::string_view module, std::string_view name) {
  return is_tensor_name(module, name) || contains(kObjectNames, module, name);
}

Result<ZipArchive> open_archive(ByteView bytes, const std::string& where) {
  SHOAL_ASSIGN_OR_RETURN(ZipArchive archive, ZipArchive::open(bytes, where));
  if (archive.find("byteorder") != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(const ByteView order, archive.read("byteorder"));
    if (as_text(order) != "little") {
      return Status(Code::invalid_argument, fmt::format("{} was saved on a big-endian machine", where));
    }
  }
  return archive;
}

// ---- tensors ----

// Reads the call of torch that would make a tensor.
class TensorCall {
 public:
  TensorCall(const Pickle& pickle, const ZipArchive& archive, const std::string& where)
      : pickle_(pickle), archive_(archive), where_(where) {}

  Result<ArchivedTensor> read() {
    PickleId call = pickle_.root();
    if (is_call(call, "_rebuild_parameter") && !pickle_.arguments(call).empty()) {
      call = pickle_.arguments(call).front();
    }
    const bool is_v3 = is_call(call, "_rebuild_tensor_v3");
    if (!is_v3 && !is_call(call, "_rebuild_tensor_v2")) return no_tensor();
    const auto arguments = pickle_.arguments(call);
    const size_t needed = is_v3 ? 7 : 4, flags = is_v3 ? 7 : 6;
    if (arguments.size() < needed) return no_tensor();
    ArchivedTensor tensor;
    SHOAL_RETURN_IF_ERROR(set_places(arguments, &tensor));
    SHOAL_RETURN_IF_ERROR(set_storage(arguments[0], is_v3 ? arguments[6] : kNoPickleId, &tensor));
    if (arguments.size() > flags) SHOAL_RETURN_IF_ERROR(check_flags(arguments[flags]));
    SHOAL_RETURN_IF_ERROR(check_bounds(tensor));
    return tensor;
  }

 private:
  Status no_tensor() const { return Status(Code::corrupt, fmt::format("{} is not a tensor", where_)); }
  bool is_call(PickleId id, std::string_view name) const {
    return pickle_.kind(id) == PickleKind::object && pickle_.is_named(id, "torch._utils", name);
  }

  Status set_places(std::span<const PickleId> arguments, ArchivedTensor* tensor) const {
    const auto shape = dims_of(pickle_, arguments[2]), strides = dims_of(pickle_, arguments[3]);
    if (pickle_.kind(arguments[1]) != PickleKind::integer || pickle_.integer(arguments[1]) < 0 || !shape ||
        !strides || shape->size() != strides->size() || shape->size() > kMaxDims || !element_count(*shape)) {
      return no_tensor();
    }
    tensor->offset = static_cast<uint64_t>(pickle_.integer(arguments[1]));
    tensor->shape = *shape;
    tensor->strides = *strides;
    return ok_status();
  }

  // ("storage", class of the storage, key, device, number of elements)
  Status set_storage(PickleId id, PickleId dtype, ArchivedTensor* tensor) const {
    if (pickle_.kind(id) != PickleKind::persistent) return no_tensor();
    const PickleId identity = pickle_.identity(id);
    if (pickle_.kind(identity) != PickleKind::tuple || pickle_.items(identity).size() < 3) return no_tensor();
    const auto parts = pickle_.items(identity);
    if (pickle_.kind(parts[0]) != PickleKind::text || pickle_.text(parts[0]) != "storage" ||
        pickle_.kind(parts[2]) != PickleKind::text) {
      return no_tensor();
    }
    std::optional<DType> found;
    if (dtype == kNoPickleId && pickle_.module(parts[1]) == "torch") {
      found = dtype_of_storage(pickle_.name(parts[1]));
    } else if (dtype == kNoPickleId &&
               Name(pickle_.module(parts[1]), pickle_.name(parts[1])) == kUntypedStorage) {
      found = DType::u8;
    } else if (dtype != kNoPickleId && is_torch_dtype(pickle_.module(dtype), pickle_.name(dtype))) {
      found = dtype_from_torch(pickle_.name(dtype));
    }
    if (!found) return no_tensor();
    tensor->dtype = *found;
    SHOAL_ASSIGN_OR_RETURN(tensor->storage, archive_.read(fmt::format("data/{}", pickle_.text(parts[2]))));
    return ok_status();
  }

  Status check_flags(PickleId flags) const {
    const PickleKind kind = pickle_.kind(flags);
    if (kind == PickleKind::none || (kind == PickleKind::dict && pickle_.entries(flags).empty())) {
      return ok_status();
    }
    return Status(
        Code::invalid_argument,
        fmt::format("{} is a view that conjugates or negates what is stored. Import the folder with "
                    "shoal.torch.import_dcp, which can read that",
                    where_));
  }

  Status check_bounds(const ArchivedTensor& tensor) const {
    const uint64_t size = dtype_bytes(tensor.dtype).value(), stored = tensor.storage.size() / size;
    const uint64_t count = *element_count(tensor.shape);
    if (count == 0) return ok_status();
    if (count > (tensor.storage.size() + kMaxExpansionBytes) / size) {
      return Status(Code::too_large, fmt::format("{}: {} stored bytes are expanded to {} elements", where_,
                                                 tensor.storage.size(), count));
    }
    uint64_t last = tensor.offset;
    bool fits = last < stored;
    for (size_t d = 0; d < tensor.shape.size() && fits; ++d) {
      const uint64_t steps = tensor.shape[d] - 1;
      fits = steps == 0 || tensor.strides[d] <= (stored - 1 - last) / steps;
      if (fits) last += steps * tensor.strides[d];
    }
    if (fits) return ok_status();
    return Status(Code::corrupt, fmt::format("{}: the storage has {} bytes, too few for the shape {}", where_,
                                             tensor.storage.size(), to_string(whole(tensor.shape))));
  }

  const Pickle& pickle_;
  const ZipArchive& archive_;
  const std::string& where_;
};

// ---- objects ----

Result<Pickle> read_object_pickle(ByteView content, const std::string& where, bool is_plain) {
  PickleRules rules;
  rules.where = where;
  rules.allows = [is_plain](std::string_view module, std::string_view name) {
    return is_object_name(module, name) || (is_plain && contains(kPlainNames, module, name));
  };
  rules.instead = "--allow-pickle imports the object unread";
  rules.has_persistent = true;
  rules.values_max = kMaxObjectValues;
  return Pickle::read(content, rules);
}

}  // namespace

std::optional<DType> dtype_from_torch(std::string_view name) {
  for (const auto& [torch_name, dtype] : kDTypes) {
    if (torch_name == name) return dtype;
  }
  return std::nullopt;
}

bool is_torch_dtype(std::string_view module, std::string_view name) {
  if (module != "torch") return false;
  return dtype_from_torch(name) ||
         std::find(std::begin(kOtherDTypes), std::end(kOtherDTypes), name) != std::end(kOtherDTypes);
}

std::optional<Dims> dims_of(const Pickle& pickle, PickleId id) {
  if (id == kNoPickleId) return std::nullopt;
  if (pickle.kind(id) == PickleKind::object) {
    if (!pickle.is_named(id, "torch", "Size") || pickle.arguments(id).size() != 1) return std::nullopt;
    id = pickle.arguments(id).front();
  }
  if (pickle.kind(id) != PickleKind::tuple && pickle.kind(id) != PickleKind::list) return std::nullopt;
  Dims dims;
  for (const PickleId item : pickle.items(id)) {
    if (pickle.kind(item) != PickleKind::integer || pickle.integer(item) < 0) return std::nullopt;
    dims.push_back(static_cast<uint64_t>(pickle.integer(item)));
  }
  return dims;
}

uint64_t ArchivedTensor::bytes() const {
  return *element_count(shape) * dtype_bytes(dtype).value();
}

std::optional<ByteView> ArchivedTensor::in_order() const {
  uint64_t expected = 1;
  if (bytes() == 0) return ByteView();
  for (size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return std::nullopt;
    expected *= shape[d];
  }
  return storage.subspan(offset * dtype_bytes(dtype).value(), bytes());
}

void ArchivedTensor::gather(MutableByteView out) const {
  SHOAL_CHECK(out.size() == bytes());
  const uint64_t size = dtype_bytes(dtype).value();
  std::array<uint64_t, kMaxDims> at{};
  uint64_t source = offset;
  for (size_t done = 0; done < out.size(); done += size) {
    std::memcpy(out.data() + done, storage.data() + source * size, size);
    for (size_t d = shape.size(); d-- > 0;) {
      source += strides[d];
      if (++at[d] < shape[d]) break;
      source -= strides[d] * shape[d];
      at[d] = 0;
    }
  }
}

Result<ArchivedTensor> read_tensor_archive(ByteView bytes, const std::string& where) {
  SHOAL_ASSIGN_OR_RETURN(const ZipArchive archive, open_archive(bytes, where));
  SHOAL_ASSIGN_OR_RETURN(const ByteView content, archive.read("data.pkl"));
  if (content.size() > kMaxTensorPickleBytes) {
    return Status(Code::too_large, fmt::format("{}: the pickle of the tensor has {} bytes: {} is the most",
                                               where, content.size(), kMaxTensorPickleBytes));
  }
  PickleRules rules;
  rules.where = where;
  rules.allows = is_tensor_name;
  rules.has_persistent = true;
  rules.values_max = kMaxTensorValues;
  SHOAL_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::read(content, rules));
  return TensorCall(pickle, archive, where).read();
}

Result<std::string> read_object_archive(ByteView bytes, const std::string& where, bool allow_pickle) {
  if (bytes.size() > kMaxObjectBytes) {
    return Status(Code::too_large,
                  fmt::format("{} is an object of more than {} bytes", where, kMaxObjectBytes));
  }
  SHOAL_ASSIGN_OR_RETURN(const ZipArchive archive, open_archive(bytes, where));
  for (const ZipArchive::Record& record : archive.records()) {
    SHOAL_RETURN_IF_ERROR(archive.read(record.name).status());
  }
  SHOAL_ASSIGN_OR_RETURN(const ByteView content, archive.read("data.pkl"));
  auto pickle = read_object_pickle(content, where, true);
  if (pickle.ok()) {
    constexpr uint64_t kGrowthMax = 8, kSmallBytes = 65536;  // "\u0000" for a byte is the most
    auto plain = encode_plain(*pickle, pickle->root(), kGrowthMax * content.size() + kSmallBytes);
    if (plain) return std::move(*plain);
    pickle = read_object_pickle(content, where, false);
  }
  if (!pickle.ok() && !(allow_pickle && pickle.status().code() == Code::invalid_argument)) {
    return pickle.status();
  }
  return kTorchMarker + std::string(as_text(bytes));
}

}  // namespace shoal::admin
