#include "python/binding/state.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/binding/binding.h"

namespace shoal::python {

namespace {

DType dtype_of_number(int number) {
  return value_of(dtype_from_number(static_cast<uint8_t>(number)));
}

MemoryRef memory_at(uintptr_t address, bool writable) {
  void* data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return writable ? MemoryRef(data) : MemoryRef(static_cast<const void*>(data));
}

}  // namespace

void State::add_tensor(std::string fqn, int dtype, Dims shape, const Mesh& mesh,
                       const std::vector<PlacementTuple>& placements, uintptr_t address, bool writable) {
  values_.add_tensor(std::move(fqn), dtype_of_number(dtype), std::move(shape), mesh,
                     placements_of_tuples(placements), memory_at(address, writable));
}

void State::add_boxes(std::string fqn, int dtype, Dims shape, const std::vector<BoxAt>& boxes, bool writable,
                      bool replicated) {
  std::vector<StateDict::BoxData> held;
  for (const auto& [offsets, sizes, address] : boxes) {
    held.push_back({Box{offsets, sizes}, memory_at(address, writable)});
  }
  values_.add_tensor_boxes(std::move(fqn), dtype_of_number(dtype), std::move(shape), std::move(held),
                           replicated);
}

void State::add_value(std::string fqn, int dtype, Dims shape, uintptr_t address, bool writable,
                      const Mesh& group, bool replicated) {
  values_.add_value(std::move(fqn), dtype_of_number(dtype), std::move(shape), memory_at(address, writable),
                    group, replicated);
}

void State::add_object(std::string fqn, BytesRef bytes, const Mesh* group) {
  if (group) return values_.add_object(std::move(fqn), bytes, *group);
  values_.add_rank_object(std::move(fqn), bytes);
}

size_t State::add_bytes(std::string fqn, nb::bytes bytes, const Mesh* group) {
  kept_.push_back(bytes);
  views_.emplace_back(bytes.c_str(), bytes.size());
  add_object(std::move(fqn), BytesRef(static_cast<const std::string_view*>(&views_.back())), group);
  return kept_.size() - 1;
}

void State::set_bytes(size_t number, nb::bytes bytes) {
  if (number >= kept_.size()) check(Status(Code::invalid_argument, "no bytes of that number were added"));
  kept_[number] = bytes;
  views_[number] = std::string_view(bytes.c_str(), bytes.size());
}

size_t State::add_slot(std::string fqn, const Mesh* group) {
  slots_.emplace_back();
  add_object(std::move(fqn), BytesRef(&slots_.back()), group);
  return slots_.size() - 1;
}

nb::bytes State::slot(size_t number) const {
  const std::string& bytes = slots_.at(number);
  return nb::bytes(bytes.data(), bytes.size());
}

void bind_state(nb::module_& module) {
  nb::class_<State>(module, "State", "The values of one rank by name, with the addresses of their memory.")
      .def(nb::init<>())
      .def("add_tensor", &State::add_tensor, nb::arg("fqn"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("mesh"), nb::arg("placements"), nb::arg("address"), nb::arg("writable"))
      .def("add_boxes", &State::add_boxes, nb::arg("fqn"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("boxes"), nb::arg("writable"), nb::arg("replicated") = false)
      .def("add_value", &State::add_value, nb::arg("fqn"), nb::arg("dtype"), nb::arg("shape"),
           nb::arg("address"), nb::arg("writable"), nb::arg("group"), nb::arg("replicated") = false)
      .def("add_bytes", &State::add_bytes, nb::arg("fqn"), nb::arg("bytes"), nb::arg("group").none())
      .def("set_bytes", &State::set_bytes, nb::arg("number"), nb::arg("bytes"))
      .def("add_slot", &State::add_slot, nb::arg("fqn"), nb::arg("group").none())
      .def("slot", &State::slot, nb::arg("number"))
      .def("__len__", &State::size);
}

}  // namespace shoal::python
