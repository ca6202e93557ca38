// State: a StateDict with the bytes that it refers to.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "python/binding/geometry.h"
#include "shoal/state_dict.h"

namespace shoal::python {

// Memory of tensors is given by address. The caller keeps it alive and unchanged until the save or load that
// uses the State has returned. The State itself keeps Python bytes that are to be saved, and the slots that a
// load fills with objects.
class State {
 public:
  using BoxAt = std::tuple<Dims, Dims, uintptr_t>;  // offsets, sizes, address

  void add_tensor(std::string fqn, int dtype, Dims shape, const Mesh& mesh,
                  const std::vector<PlacementTuple>& placements, uintptr_t address, bool writable);
  void add_boxes(std::string fqn, int dtype, Dims shape, const std::vector<BoxAt>& boxes, bool writable,
                 bool replicated);
  void add_value(std::string fqn, int dtype, Dims shape, uintptr_t address, bool writable, const Mesh& group,
                 bool replicated);
  // With a group the object belongs to all its ranks, without one it is this rank's own. Returns its number.
  size_t add_bytes(std::string fqn, nanobind::bytes bytes, const Mesh* group);
  // Replaces the bytes that add_bytes has added under this number. Code::invalid_argument: there is none.
  void set_bytes(size_t number, nanobind::bytes bytes);
  // Adds an object that a load fills, and returns the number of its slot.
  size_t add_slot(std::string fqn, const Mesh* group);
  nanobind::bytes slot(size_t number) const;
  size_t size() const { return values_.entries().size(); }
  const StateDict& values() const { return values_; }

 private:
  void add_object(std::string fqn, BytesRef bytes, const Mesh* group);

  StateDict values_;
  std::vector<nanobind::bytes> kept_;
  std::deque<std::string_view> views_;  // of kept_; a deque does not move them
  std::deque<std::string> slots_;
};

}  // namespace shoal::python
