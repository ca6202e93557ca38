#include <fmt/format.h>

#include "client/launch/job_environment.h"
#include "client/launch/settings.h"

namespace shoal::client {

namespace {

using Value = local::Settings::Value;
using std::chrono::milliseconds;

// The default of attach_timeout. Several hosts do not start their trainers at the same moment: a node looks
// for its coordinator, and if it gives up, the next node looks for the same time again.
constexpr milliseconds kAttachTimeout{30'000};
constexpr milliseconds kBesideCoordinator{60'000};

constexpr NodeField kNodeFields[] = {
    {"transport", &NodeSettings::transport},
    {"interface", &NodeSettings::interface},
    {"ports", &NodeSettings::ports},
    {"max-direct-nodes", &NodeSettings::max_direct_nodes},
    {"load-memory", &NodeSettings::load_memory_bytes},
    {"staging-memory", &NodeSettings::staging_memory_bytes},
    {"catalog", &NodeSettings::catalog},
    {"stats-file", &NodeSettings::stats_file},
    {"protocol-log", &NodeSettings::protocol_log},
    {"metrics", &NodeSettings::metrics},
    {"status-page", &NodeSettings::status_page},
    {"keep-last", &NodeSettings::keep_last},
    {"keep-every", &NodeSettings::keep_every},
    {"keep-for", &NodeSettings::keep_for_s},
    {"report-partial-after-ms", &NodeSettings::report_partial_after_ms},
    {"attempt-deadline-ms", &NodeSettings::attempt_deadline_ms},
    {"node-deadline-ms", &NodeSettings::node_deadline_ms},
    {"drain-patience-ms", &NodeSettings::drain_patience_ms},
    {"host-lost-ms", &NodeSettings::host_lost_ms},
    {"find-coordinator-ms", &NodeSettings::find_coordinator_ms},
    {"epoch-check-ms", &NodeSettings::epoch_check_ms},
    {"abandoned-after-ms", &NodeSettings::abandoned_after_ms},
    {"lease-renew-ms", &NodeSettings::lease_renew_ms},
    {"lease-ttl-ms", &NodeSettings::lease_ttl_ms},
};

// The table has the values of a choice in the order of the enumerators, except for the mode.
struct TrainerField {
  const char* setting;
  void (*apply)(const Value& value, CheckpointerOptions* options);
};
constexpr TrainerField kTrainerFields[] = {
    {"max-in-flight", [](const Value& v, auto* o) { o->max_in_flight = static_cast<uint32_t>(v.number); }},
    {"on-busy", [](const Value& v, auto* o) { o->on_busy = static_cast<OnBusy>(v.number); }},
    {"on-failed", [](const Value& v, auto* o) { o->on_failed = static_cast<OnFailed>(v.number); }},
    {"max-failed-saves",
     [](const Value& v, auto* o) { o->max_failed_saves = static_cast<uint32_t>(v.number); }},
    {"save-mode", [](const Value& v, auto* o) { o->save.mode = mode_of_name(v.text).value_or(SaveMode{}); }},
    {"save-dedupe", [](const Value& v, auto* o) { o->save.dedupe = static_cast<Dedupe>(v.number); }},
    {"save-unit-bytes", [](const Value& v, auto* o) { o->save.unit_bytes = v.number; }},
    {"save-replica-check",
     [](const Value& v, auto* o) { o->save.replica_check = static_cast<ReplicaCheck>(v.number); }},
    {"load-window-bytes", [](const Value& v, auto* o) { o->load_window_bytes = v.number; }},
    {"load-threads", [](const Value& v, auto* o) { o->load_threads = static_cast<unsigned>(v.number); }},
    {"load-fallback",
     [](const Value& v, auto* o) { o->load_fallback = static_cast<LoadFallback>(v.number); }},
    {"staging-bytes-max", [](const Value& v, auto* o) { o->staging_bytes_max = v.number; }},
    {"attach-timeout-ms", [](const Value& v, auto* o) { o->attach_timeout = milliseconds(v.number); }},
    {"node-silence-ms", [](const Value& v, auto* o) { o->node_silence = milliseconds(v.number); }},
};

std::string text_of(uint64_t value) {
  return std::to_string(value);
}
std::string text_of(const std::string& value) {
  return value;
}

// Adds the fields of NodeSettings that are set to the settings.
Status add_fields(const NodeSettings& node, local::Settings* settings) {
  for (const NodeField& field : kNodeFields) {
    const std::string source = "CheckpointerOptions::" + local::find_setting(field.setting)->field();
    auto add = [&](auto member) {
      return node.*member ? settings->set(field.setting, text_of(*(node.*member)), source) : ok_status();
    };
    SHOAL_RETURN_IF_ERROR(std::visit(add, field.member));
  }
  return ok_status();
}

void take(const Value& value, std::optional<uint64_t>* field) {
  *field = value.number;
}
void take(const Value& value, std::optional<std::string>* field) {
  *field = value.text;
}

}  // namespace

std::span<const NodeField> node_fields() {
  return kNodeFields;
}

void apply_trainer_settings(const local::Settings& settings, CheckpointerOptions* options) {
  for (const TrainerField& field : kTrainerFields) {
    if (const Value* value = settings.find(field.setting)) field.apply(*value, options);
  }
}

Status settle_settings(CheckpointerOptions& options) {
  local::Settings settings;
  SHOAL_RETURN_IF_ERROR(add_fields(options.node, &settings));
  SHOAL_RETURN_IF_ERROR(settings.add_variables(environment_variable));
  SHOAL_RETURN_IF_ERROR(settings.add_files(options.root));
  SHOAL_RETURN_IF_ERROR(settings.check());
  for (const NodeField& field : kNodeFields) {
    const Value* value = settings.find(field.setting);
    if (value) std::visit([&](auto member) { take(*value, &(options.node.*member)); }, field.member);
  }
  options.node.sources = local::settings_line(settings);
  if (options.max_failed_saves == 0) {
    options.max_failed_saves = static_cast<uint32_t>(settings.number_of("max-failed-saves"));
  }
  if (options.attach_timeout == milliseconds(0)) {
    options.attach_timeout =
        options.coordinator.empty() && options.coordinate_at.empty()
            ? kAttachTimeout
            : milliseconds(settings.number_of("find-coordinator-ms")) + kBesideCoordinator;
  }
  return ok_status();
}

std::vector<std::string> node_arguments(const NodeSettings& settings) {
  std::vector<std::string> out;
  auto add = [&](const std::string& flag, const std::string& value) {
    out.push_back(flag);
    out.push_back(value);
  };
  if (!settings.sources.empty()) add("--settings-sources", settings.sources);
  for (const NodeField& field : kNodeFields) {
    auto add_field = [&](auto member) {
      if (settings.*member) add(local::find_setting(field.setting)->flag(), text_of(*(settings.*member)));
    };
    std::visit(add_field, field.member);
  }
  return out;
}

}  // namespace shoal::client
