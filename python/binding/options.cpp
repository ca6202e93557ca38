// CheckpointerOptions. Python sets them by name, so that one signature serves all of them.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <string>

#include "client/launch/environment.h"
#include "client/launch/settings.h"
#include "python/binding/binding.h"
#include "shoal/checkpointer.h"

namespace shoal::python {

namespace {

Status no_choice(const char* option, const std::string& given, const char* choices) {
  return Status(Code::invalid_argument, std::string(option) + " is '" + given + "': " + choices);
}

void set_mode(CheckpointerOptions& options, const std::string& name) {
  const std::optional<SaveMode> mode = mode_of_name(name);
  if (!mode) {
    throw StatusError(no_choice("mode", name, "collective-free, rank-local or collective is needed"));
  }
  options.save.mode = *mode;
}

void set_dedupe(CheckpointerOptions& options, const std::string& name) {
  static const std::map<std::string, Dedupe> kNames{
      {"balanced", Dedupe::balanced}, {"lowest-rank", Dedupe::lowest_rank}, {"none", Dedupe::none}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) {
    throw StatusError(no_choice("dedupe", name, "balanced, lowest-rank or none is needed"));
  }
  options.save.dedupe = found->second;
}

void set_on_busy(CheckpointerOptions& options, const std::string& name) {
  if (name != "wait" && name != "decline") {
    throw StatusError(no_choice("on_busy", name, "wait or decline is needed"));
  }
  options.on_busy = name == "wait" ? OnBusy::wait : OnBusy::decline;
}

void set_on_failed(CheckpointerOptions& options, const std::string& name) {
  if (name != "report" && name != "refuse") {
    throw StatusError(no_choice("on_failed", name, "report or refuse is needed"));
  }
  options.on_failed = name == "report" ? OnFailed::report : OnFailed::refuse;
}

void set_replica_check(CheckpointerOptions& options, const std::string& name) {
  static const std::map<std::string, ReplicaCheck> kNames{
      {"off", ReplicaCheck::off}, {"warn", ReplicaCheck::warn}, {"abort", ReplicaCheck::abort}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) {
    throw StatusError(no_choice("replica_check", name, "off, warn or abort is needed"));
  }
  options.save.replica_check = found->second;
}

// `name` is that of a field of NodeSettings, which the settings' table has with hyphens.
void set_node(CheckpointerOptions& options, const std::string& name, const nb::object& value) {
  for (const client::NodeField& field : client::node_fields()) {
    std::string field_name = field.setting;
    std::ranges::replace(field_name, '-', '_');
    if (field_name != name) continue;
    std::visit(
        [&](auto member) {
          using Kept = std::remove_reference_t<decltype(options.node.*member)>;
          options.node.*member = nb::cast<typename Kept::value_type>(value);
        },
        field.member);
    return;
  }
  throw StatusError(Status(Code::invalid_argument, "the node has no setting '" + name + "'"));
}

double seconds_of(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}
std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

void bind_options(nb::module_& module) {
  using Options = CheckpointerOptions;
  nb::class_<Options>(module, "Options", "The options of a Checkpointer.")
      .def_static(
          "from_environment",
          [](const std::map<std::string, std::string>& instead) {
            const client::Variables variables = [&](const char* name) -> std::optional<std::string> {
              const auto given = instead.find(name);
              if (given == instead.end()) return client::environment_variable(name);
              return given->second;
            };
            CheckpointerOptions options = value_of(unlocked([&] { return client::options_from(variables); }));
            options.on_save_warning = [](const AttemptKey&, const std::string&) {};  // SaveHandle logs them
            return options;
          },
          nb::arg("instead"),
          "Reads the variables of the launcher and the settings. `instead` has values that replace those of "
          "environment variables.")
      .def_rw("root", &Options::root)
      .def_rw("rank", &Options::rank)
      .def_rw("world_size", &Options::world_size)
      .def_rw("job_id", &Options::job_id)
      .def_rw("coordinator", &Options::coordinator)
      .def_rw("coordinate_at", &Options::coordinate_at)
      .def_rw("node_name", &Options::node_name)
      .def_rw("node_program", &Options::node_program)
      .def_rw("start_node", &Options::start_node)
      .def_rw("read_only", &Options::read_only)
      .def_rw("max_in_flight", &Options::max_in_flight)
      .def_rw("max_failed_saves", &Options::max_failed_saves)
      .def_rw("process_group", &Options::process_group)
      .def_rw("coordinator_rank", &Options::coordinator_rank)
      .def_rw("load_window_bytes", &Options::load_window_bytes)
      .def_rw("load_threads", &Options::load_threads)
      .def_rw("staging_bytes_max", &Options::staging_bytes_max)
      .def_rw("ranks_on_host", &Options::ranks_on_host)
      .def_prop_rw(
          "unit_bytes", [](const Options& it) { return it.save.unit_bytes; },
          [](Options& it, uint64_t bytes) { it.save.unit_bytes = bytes; })
      .def_prop_rw(
          "debug_torn", [](const Options& it) { return it.save.verify_unchanged; },
          [](Options& it, bool verify) { it.save.verify_unchanged = verify; })
      .def_prop_rw(
          "attach_timeout", [](const Options& it) { return seconds_of(it.attach_timeout); },
          [](Options& it, double seconds) { it.attach_timeout = milliseconds_of(seconds); })
      .def_prop_rw(
          "node_silence", [](const Options& it) { return seconds_of(it.node_silence); },
          [](Options& it, double seconds) { it.node_silence = milliseconds_of(seconds); })
      .def_prop_rw(
          "mode", [](const Options& it) { return std::string(mode_name(it.save.mode)); }, &set_mode)
      .def("set_dedupe", &set_dedupe)
      .def("set_on_busy", &set_on_busy)
      .def("set_on_failed", &set_on_failed)
      .def("set_replica_check", &set_replica_check)
      .def("set_node", &set_node);
}

}  // namespace shoal::python
