// What saves, loads and listings return.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "python/binding/binding.h"
#include "shoal/checkpointer.h"

namespace shoal::python {

namespace {

// (name, whether it is an object, dtype, shape)
using ValueTuple = std::tuple<std::string, bool, std::string, Dims>;

ValueTuple tuple_of(const TensorMetadata& value) {
  return {value.fqn, value.kind == LayoutEntry::Kind::object, std::string(dtype_name(value.dtype)),
          value.shape};
}

std::vector<ValueTuple> values_of(const Metadata& metadata) {
  std::vector<ValueTuple> values;
  values.reserve(metadata.state_dict_metadata.size());
  for (const TensorMetadata& value : metadata.state_dict_metadata) values.push_back(tuple_of(value));
  return values;
}

std::vector<std::tuple<ValueTuple, ValueTuple>> differences(
    const std::vector<LoadReport::Difference>& listed) {
  std::vector<std::tuple<ValueTuple, ValueTuple>> out;
  for (const LoadReport::Difference& each : listed) {
    out.emplace_back(tuple_of(each.wanted), tuple_of(each.stored));
  }
  return out;
}

}  // namespace

void bind_results(nb::module_& module) {
  nb::class_<Metadata>(module, "Metadata", "A committed checkpoint: its key, its size and its values.")
      .def_prop_ro("step", [](const Metadata& it) { return it.key.step; })
      .def_prop_ro("generation", [](const Metadata& it) { return it.key.generation; })
      .def_prop_ro("attempt", [](const Metadata& it) { return it.key.attempt; })
      .def_ro("world_size", &Metadata::world_size)
      .def_ro("bytes", &Metadata::payload_bytes)
      .def_ro("files", &Metadata::files)
      .def_ro("user", &Metadata::user)
      .def_prop_ro("values", &values_of);
  nb::class_<CheckpointInfo>(module, "CheckpointInfo", "One attempt to save a step, and its state.")
      .def_prop_ro("step", [](const CheckpointInfo& it) { return it.key.step; })
      .def_prop_ro("generation", [](const CheckpointInfo& it) { return it.key.generation; })
      .def_prop_ro("attempt", [](const CheckpointInfo& it) { return it.key.attempt; })
      .def_prop_ro("state", [](const CheckpointInfo& it) { return std::string(state_name(it.state)); })
      .def_ro("world_size", &CheckpointInfo::world_size)
      .def_ro("bytes", &CheckpointInfo::payload_bytes)
      .def_ro("files", &CheckpointInfo::files)
      .def_ro("unix_time_ns", &CheckpointInfo::unix_time_ns)
      .def_ro("cause", &CheckpointInfo::cause);
  nb::class_<LoadReport>(module, "LoadReport", "Which keys of the state and of the checkpoint differ.")
      .def_ro("missing", &LoadReport::missing)
      .def_ro("unexpected", &LoadReport::unexpected)
      .def_prop_ro("shape_mismatches", [](const LoadReport& it) { return differences(it.shape_mismatches); })
      .def_prop_ro("mis_typed", [](const LoadReport& it) { return differences(it.mis_typed); });
  nb::class_<LoadResult>(module, "LoadResult", "What a load has read.")
      .def_ro("metadata", &LoadResult::metadata)
      .def_ro("bytes", &LoadResult::bytes_loaded)
      .def_ro("seconds", &LoadResult::seconds)
      .def_ro("report", &LoadResult::report)
      .def_prop_ro("passed_over", [](const LoadResult& it) { return to_string(it.passed_over); });
  nb::class_<SaveStats>(module, "SaveStats", "What one call of save has cost.")
      .def_ro("bytes_staged", &SaveStats::bytes_staged)
      .def_ro("seconds_blocked", &SaveStats::seconds_blocked)
      .def_ro("seconds_waited", &SaveStats::seconds_waited)
      .def_ro("seconds_planning", &SaveStats::seconds_planning)
      .def_ro("seconds_copying", &SaveStats::seconds_copying)
      .def_ro("with_plan", &SaveStats::with_plan)
      .def_ro("in_flight_max", &SaveStats::in_flight_max)
      .def_ro("parts", &SaveStats::parts)
      .def_ro("replica_bytes", &SaveStats::replica_bytes)
      .def_ro("seconds_comparing", &SaveStats::seconds_comparing);
}

}  // namespace shoal::python
