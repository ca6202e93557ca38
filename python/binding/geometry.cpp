#include "python/binding/geometry.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "python/binding/binding.h"
#include "shoal/dtype.h"
#include "shoal/state_dict.h"

namespace shoal::python {

std::vector<Placement> placements_of_tuples(const std::vector<PlacementTuple>& tuples) {
  std::vector<Placement> placements;
  placements.reserve(tuples.size());
  for (const auto& [kind, dim, split_factor] : tuples) {
    placements.push_back(kind == 0   ? Placement::replicate()
                         : kind == 1 ? Placement::shard(dim)
                                     : Placement::strided_shard(dim, split_factor));
  }
  return placements;
}

std::vector<BoxPair> pairs_of_boxes(const std::vector<Box>& boxes) {
  std::vector<BoxPair> pairs;
  pairs.reserve(boxes.size());
  for (const Box& box : boxes) pairs.emplace_back(box.offsets, box.sizes);
  return pairs;
}

namespace {

using LocalTuple = std::tuple<Dims, std::vector<BoxPair>, std::vector<BoxPair>>;

LocalTuple local_shards(Dims shape, const Mesh& mesh, const std::vector<PlacementTuple>& placements,
                        Rank rank) {
  const ShardedTensor tensor{DType::u8, std::move(shape), mesh, placements_of_tuples(placements)};
  const LocalShards local = value_of(tensor.local(rank));
  return {local.local_shape, pairs_of_boxes(local.boxes), pairs_of_boxes(local.local)};
}

}  // namespace

void bind_geometry(nb::module_& module) {
  nb::class_<Mesh>(module, "Mesh", "An array of ranks: the DeviceMesh of a DTensor, or a group of ranks.")
      .def_static(
          "from_ranks",
          [](Dims shape, std::vector<Rank> ranks) {
            return value_of(Mesh::from_ranks(std::move(shape), std::move(ranks)));
          },
          nb::arg("shape"), nb::arg("ranks"))
      .def("contains", &Mesh::contains, nb::arg("rank"))
      .def_prop_ro("shape", [](const Mesh& mesh) { return mesh.shape(); })
      .def_prop_ro("ranks", &Mesh::ranks)
      .def("__eq__", [](const Mesh& a, const Mesh& b) { return a == b; });
  module.def("local_shards", &local_shards, nb::arg("shape"), nb::arg("mesh"), nb::arg("placements"),
             nb::arg("rank"),
             "The shape of a rank's local tensor, its boxes in global coordinates, and these boxes in the "
             "local tensor.");
  module.def(
      "dtype_number",
      [](const std::string& name) { return static_cast<int>(value_of(dtype_from_name(name))); },
      nb::arg("name"), "The number of a dtype of the safetensors format, such as 'BF16'.");
}

}  // namespace shoal::python
