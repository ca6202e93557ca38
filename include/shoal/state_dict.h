// StateDict: the values of one rank by name, with the memory that save reads and load fills.
//
//   const ShardedTensor rows{DType::f32, {50257, 768}, mesh, {Placement::shard(0)}};
//   std::vector<float> weight(rows.local_elements(rank).value());
//   StateDict state;
//   state.add_tensor("model.wte.weight", rows, weight.data());
//   state.add_value("optimizer.lr", 0.1, mesh);       // the state keeps it: no pointer
//   state.add_object("tokenizer", &vocabulary, mesh); // any container of bytes
//   ... save, load ...
//   double lr = state.value<double>("optimizer.lr").value();
//
// save reads the caller's host memory until it returns; load writes it. Tensors may lie on CUDA devices, each
// on its own (MemoryRef::on_device); objects and what the state keeps lie on the host. Values behind a
// pointer to const can be saved. A load that would have to fill one is Code::invalid_argument, which names
// the key.
#pragma once

#include <climits>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/layout.h"
#include "shoal/status.h"

namespace shoal {

// The caller's memory. A pointer to host memory converts to it and keeps its constness.
class MemoryRef {
 public:
  // Memory of a CUDA device. `stream` is a cudaStream_t of that device, or nullptr for its default stream:
  // save reads the memory after all that the stream was given before the call, and load writes it after that.
  // SaveOptions::staging says until when a save reads it. docs/explanation/gpu-staging.md.
  static MemoryRef on_device(void* data, int device, void* stream) {
    MemoryRef memory(data);
    memory.device_ = device;
    memory.stream_ = stream;
    return memory;
  }
  static MemoryRef on_device(const void* data, int device, void* stream) {
    MemoryRef memory = on_device(const_cast<void*>(data), device, stream);
    memory.is_const_ = data != nullptr;
    return memory;
  }
  MemoryRef() = default;
  MemoryRef(std::nullptr_t) {}
  MemoryRef(void* data) : data_(data) {}
  MemoryRef(const void* data) : data_(data), is_const_(data != nullptr) {}
  const void* data() const { return data_; }
  bool is_const() const { return is_const_; }
  bool is_on_device() const { return device_ != kHost; }
  int device() const { return device_; }  // of CUDA; negative for host memory
  void* stream() const { return stream_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  static constexpr int kHost = INT_MIN;
  const void* data_ = nullptr;
  void* stream_ = nullptr;
  int device_ = kHost;
  bool is_const_ = false;
};

// A contiguous container with elements of one byte, such as std::string_view, std::span<const std::byte> and
// std::array<char, 8>.
template <class C>
concept ByteSequence = requires(const C& constant) {
  { constant.size() } -> std::convertible_to<size_t>;
  {*constant.data()};
  requires sizeof(*constant.data()) == 1;
  requires std::is_trivially_copyable_v<std::remove_cvref_t<decltype(*constant.data())>>;
};
// A ByteSequence that can be resized: std::string, Bytes, std::vector<uint8_t>.
template <class C>
concept ByteContainer = ByteSequence<C> && requires(C& container, size_t size) {
  container.resize(size);
};

// The caller's container of bytes. A pointer to a container converts to it and keeps its constness. A
// container that cannot be resized counts as const: it can be saved, and a load that would have to fill it
// fails.
class BytesRef {
 public:
  BytesRef() = default;
  BytesRef(std::nullptr_t) {}
  template <ByteContainer C>
  BytesRef(C* container) : container_(container), operations_(container ? &kOperations<C> : nullptr) {}
  template <ByteSequence C>
  BytesRef(const C* container)
      : container_(container), operations_(container ? &kOperations<C> : nullptr), is_const_(true) {}

  explicit operator bool() const { return operations_ != nullptr; }
  bool is_const() const { return operations_ && is_const_; }
  ByteView view() const { return operations_ ? operations_->view(container_) : ByteView(); }
  // reserve and replace require a container that is not const. After reserve(n), replace with n bytes
  // allocates no memory.
  void reserve(size_t bytes) const { operations_->reserve(container_, bytes); }
  void replace(std::string bytes) const { operations_->replace(container_, std::move(bytes)); }

 private:
  struct Operations {
    ByteView (*view)(const void* container);
    void (*reserve)(const void* container, size_t bytes);
    void (*replace)(const void* container, std::string bytes);
  };
  template <class C>
  static C& writable(const void* container) {  // the constructor got it as a C*, not as a const C*
    return *static_cast<C*>(const_cast<void*>(container));
  }
  template <class C>
  static constexpr Operations kOperations = {[](const void* container) {
                                               const C& bytes = *static_cast<const C*>(container);
                                               return std::as_bytes(std::span(bytes.data(), bytes.size()));
                                             },
                                             [](const void* container, size_t size) {
                                               if constexpr (ByteContainer<C> &&
                                                             !std::is_same_v<C, std::string> &&
                                                             requires(C & c) { c.reserve(size); }) {
                                                 writable<C>(container).reserve(size);
                                               }
                                             },
                                             [](const void* container, std::string bytes) {
                                               C& out = writable<C>(container);
                                               if constexpr (std::is_same_v<C, std::string>) {
                                                 out = std::move(bytes);
                                               } else if constexpr (ByteContainer<C>) {
                                                 out.resize(bytes.size());
                                                 if (!bytes.empty())
                                                   std::memcpy(out.data(), bytes.data(), bytes.size());
                                               }
                                             }};

  const void* container_ = nullptr;
  const Operations* operations_ = nullptr;
  bool is_const_ = false;
};

// Types of the numbers that a StateDict stores itself. dtype_of has the dtype of each.
template <class T>
concept StateScalar = std::same_as<T, bool> || std::same_as<T, float> || std::same_as<T, double> ||
    (std::integral<T> && !std::same_as<T, char> && !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
     !std::same_as<T, char16_t> && !std::same_as<T, char32_t> && sizeof(T) <= 8);

template <StateScalar T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, bool>) return DType::boolean;
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, double>) return DType::f64;
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? DType::i8 : DType::u8;
  if constexpr (sizeof(T) == 2) return is_signed ? DType::i16 : DType::u16;
  if constexpr (sizeof(T) == 4) return is_signed ? DType::i32 : DType::u32;
  return is_signed ? DType::i64 : DType::u64;
}

// A tensor on a mesh, as in a DTensor. It gives both the size of the caller's buffer and the state's entry.
struct ShardedTensor {
  DType dtype = DType::f32;
  Dims shape;  // global
  Mesh mesh;
  std::vector<Placement> placements;  // one for each dimension of the mesh

  // What `rank` holds. Code::invalid_argument: the placements do not fit the mesh and shape, or the rank is
  // not in the mesh.
  Result<LocalShards> local(Rank rank) const;
  // Elements and bytes of its local tensor, to_local() of a DTensor. Code::invalid_argument, as above.
  Result<uint64_t> local_elements(Rank rank) const;
  Result<uint64_t> local_bytes(Rank rank) const;
};

// The values of one rank: the entries of a LayoutBuilder, with memory. Tensors are row-major and contiguous
// in their local shape. A copy of a StateDict shares its values.
class StateDict {
 public:
  // `data`: the local tensor, of tensor.local_elements(rank) elements (a DTensor's to_local()).
  void add_tensor(std::string fqn, const ShardedTensor& tensor, MemoryRef data);
  void add_tensor(std::string fqn, DType dtype, Dims shape, const Mesh& mesh,
                  std::vector<Placement> placements, MemoryRef data);
  // `shards`: the unpadded local shard of each device of this rank that the sharding assigns. Devices with
  // the same tile hold the same bytes: save reads one of them, load fills all of them.
  struct DeviceData {
    Device device;
    MemoryRef data;  // row-major elements of sharding.box_of(shape, device); unused if that box is empty
  };
  void add_tensor(std::string fqn, DType dtype, Dims shape, const TileSharding& sharding,
                  std::vector<DeviceData> shards);
  struct BoxData {
    Box box;         // global coordinates
    MemoryRef data;  // row-major
  };
  void add_tensor_boxes(std::string fqn, DType dtype, Dims shape, std::vector<BoxData> boxes,
                        bool replicated = false);
  // A value that each rank of `group` holds whole. Without a group it belongs to the mesh of its siblings:
  // see LayoutBuilder::add_value.
  void add_value(std::string fqn, DType dtype, Dims shape, MemoryRef data, std::optional<Mesh> group,
                 bool replicated = false);
  // A scalar that the StateDict stores itself. A load fills it, value() reads it, set_value() changes it.
  template <StateScalar T>
  void add_value(std::string fqn, T value, std::optional<Mesh> group = std::nullopt,
                 bool replicated = false) {
    add_scalar(std::move(fqn), dtype_of<T>(), std::as_bytes(std::span(&value, 1)), std::move(group),
               replicated);
  }
  // value and set_value access the scalars that the StateDict stores. Code::not_found: it stores no scalar of
  // that name. Code::invalid_argument: the scalar has another dtype.
  template <StateScalar T>
  Result<T> value(std::string_view fqn) const {
    SHOAL_ASSIGN_OR_RETURN(const MutableByteView kept, scalar(fqn, dtype_of<T>()));
    T out;
    std::memcpy(&out, kept.data(), sizeof out);
    return out;
  }
  template <StateScalar T>
  Status set_value(std::string_view fqn, T value) {
    SHOAL_ASSIGN_OR_RETURN(const MutableByteView kept, scalar(fqn, dtype_of<T>()));
    std::memcpy(kept.data(), &value, sizeof value);
    return ok_status();
  }
  // An object is bytes of any length, and the length may change from save to save. Load replaces *bytes.
  void add_object(std::string fqn, BytesRef bytes, std::optional<Mesh> group, bool replicated = false);
  // An object that differs on every rank. Each rank's object is a separate value, "fqn@rank7" on rank 7.
  void add_rank_object(std::string fqn, BytesRef bytes);

  struct Entry;  // client/state_dict.h
  // Adds a value of another state, which shares the value's memory. A save or load rejects a state to which a
  // nullptr was added.
  void add(std::shared_ptr<const Entry> entry);
  const std::vector<std::shared_ptr<const Entry>>& entries() const { return entries_; }

 private:
  void add_scalar(std::string fqn, DType dtype, ByteView value, std::optional<Mesh> group, bool replicated);
  Result<MutableByteView> scalar(std::string_view fqn, DType dtype) const;

  std::vector<std::shared_ptr<const Entry>> entries_;
};

}  // namespace shoal
