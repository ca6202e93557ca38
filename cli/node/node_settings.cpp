#include "cli/node/node_settings.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "actors/node/clients/staging_budget.h"
#include "actors/node/links/relay_tree.h"
#include "client/launch/job_environment.h"
#include "local/messages/messages.h"
#include "transport/transport.h"

namespace shoal::cli {

namespace {

using Value = local::Settings::Value;

// How a setting is written into the options of a node.
struct NodeSetting {
  const char* name;
  Status (*apply)(const Value& value, actors::NodeOptions* node);
};

template <uint32_t actors::Timeouts::*member>
Status apply_time(const Value& value, actors::NodeOptions* node) {
  node->timeouts.*member = static_cast<uint32_t>(value.number);
  return ok_status();
}
template <std::string actors::NodeOptions::*member>
Status apply_text(const Value& value, actors::NodeOptions* node) {
  node->*member = value.text;
  return ok_status();
}
template <auto member>
Status apply_bytes(const Value& value, actors::NodeOptions* node) {
  node->*member = value.number;
  return ok_status();
}
Status apply_transport(const Value& value, actors::NodeOptions* node) {
  SHOAL_ASSIGN_OR_RETURN(node->network.transport, transport::parse_transport_kind(value.text));
  return ok_status();
}
Status apply_interface(const Value& value, actors::NodeOptions* node) {
  node->network.interface = value.text;
  return ok_status();
}
Status apply_ports(const Value& value, actors::NodeOptions* node) {
  SHOAL_ASSIGN_OR_RETURN(node->network.ports, transport::parse_port_range(value.text));
  return ok_status();
}
Status apply_direct_nodes(const Value& value, actors::NodeOptions* node) {
  node->max_direct_nodes = static_cast<uint32_t>(value.number);
  return ok_status();
}
Status apply_keep_last(const Value& value, actors::NodeOptions* node) {
  node->retention.keep_last = static_cast<uint32_t>(value.number);
  return ok_status();
}
Status apply_keep_every(const Value& value, actors::NodeOptions* node) {
  node->retention.keep_every = value.number;
  return ok_status();
}
Status apply_keep_for(const Value& value, actors::NodeOptions* node) {
  node->retention.keep_for_s = value.number;
  return ok_status();
}

// The node renames a new file to this path, which would replace a device and fail at a folder.
Status apply_stats_file(const Value& value, actors::NodeOptions* node) {
  std::error_code error;
  const auto found = std::filesystem::status(value.text, error);
  if (std::filesystem::exists(found) && !std::filesystem::is_regular_file(found)) {
    return Status(Code::invalid_argument, value.text + ": exists and is not a regular file");
  }
  node->stats_file = value.text;
  return ok_status();
}

constexpr NodeSetting kNodeSettings[] = {
    {"transport", apply_transport},
    {"interface", apply_interface},
    {"ports", apply_ports},
    {"max-direct-nodes", apply_direct_nodes},
    {"load-memory", apply_bytes<&actors::RoleSettings::load_memory_bytes>},
    {"staging-memory", apply_bytes<&actors::NodeOptions::staging_memory_bytes>},
    {"catalog", apply_text<&actors::NodeOptions::catalog_dir>},
    {"stats-file", apply_stats_file},
    {"protocol-log", apply_text<&actors::NodeOptions::protocol_log>},
    {"metrics", apply_text<&actors::NodeOptions::metrics>},
    {"status-page", apply_text<&actors::NodeOptions::status_page>},
    {"keep-last", apply_keep_last},
    {"keep-every", apply_keep_every},
    {"keep-for", apply_keep_for},
    {"report-partial-after-ms", apply_time<&actors::Timeouts::report_partial_after_ms>},
    {"attempt-deadline-ms", apply_time<&actors::Timeouts::attempt_deadline_ms>},
    {"node-deadline-ms", apply_time<&actors::Timeouts::node_deadline_ms>},
    {"drain-patience-ms", apply_time<&actors::Timeouts::drain_patience_ms>},
    {"host-lost-ms", apply_time<&actors::Timeouts::host_lost_ms>},
    {"find-coordinator-ms", apply_time<&actors::Timeouts::find_coordinator_ms>},
    {"epoch-check-ms", apply_time<&actors::Timeouts::epoch_check_ms>},
    {"abandoned-after-ms", apply_time<&actors::Timeouts::abandoned_after_ms>},
    {"lease-renew-ms", apply_time<&actors::Timeouts::lease_renew_ms>},
    {"lease-ttl-ms", apply_time<&actors::Timeouts::lease_ttl_ms>},
};
static_assert(local::kLeastHostLostMs == transport::kPeerLostAfterMs);
static_assert(local::kMaxSettingTimeMs <= std::numeric_limits<uint32_t>::max());

const char* type_name_of(local::SettingKind kind) {
  switch (kind) {
    case local::SettingKind::count:
      return "N";
    case local::SettingKind::milliseconds:
      return "MS";
    case local::SettingKind::duration:
      return "TIME";
    case local::SettingKind::bytes:
      return "BYTES";
    case local::SettingKind::choice:
      return "KIND";
    case local::SettingKind::ports:
      return "A-B";
    case local::SettingKind::text:
      return "NAME";
    case local::SettingKind::path:
      return "PATH";
    case local::SettingKind::address:
      return "HOST:PORT";
  }
  return "TEXT";
}

// reads_variable: the command also reads the setting from its environment variable.
void add_setting(CLI::App& command, const local::Setting& setting, local::Settings* settings,
                 bool reads_variable, const std::string& prefix = "") {
  const std::string flag = "--" + prefix + setting.flag().substr(2);
  auto read = [&setting, flag, settings](const std::string& text) {
    const Status status = settings->set(setting.name, text, flag);
    // The message names the flag already, and the parser would add it again.
    if (!status.ok()) throw CLI::ValidationError(status.message());
  };
  CLI::Option* option = command.add_option_function<std::string>(flag, read, setting.help);
  // The parser would print the default after the variable.
  const std::string initially = *setting.initially == '\0' ? "" : fmt::format(" [{}]", setting.initially);
  const std::string variable = reads_variable ? fmt::format(" (Env:{})", setting.variable()) : "";
  option->type_name(fmt::format("{}{}{}", type_name_of(setting.kind), initially, variable));
  option->group(setting.group);
}

bool is_retention(const local::Setting& setting) {
  return std::strncmp(setting.name, "keep-", 5) == 0;
}

}  // namespace

void add_settings(CLI::App& command, local::SettingOf of, local::Settings* settings) {
  for (const local::Setting& setting : local::all_settings()) {
    if (setting.of == of) add_setting(command, setting, settings, true);
  }
}

void add_retention_settings(CLI::App& command, local::Settings* settings, const std::string& prefix) {
  for (const local::Setting& setting : local::all_settings()) {
    if (is_retention(setting)) add_setting(command, setting, settings, false, prefix);
  }
}

void add_waiting_settings(CLI::App& command, local::Settings* settings) {
  for (const char* name : {"lease-ttl-ms", "abandoned-after-ms"}) {
    add_setting(command, *local::find_setting(name), settings, true);
  }
}

Status complete_settings(const std::string& root, local::Settings* settings) {
  SHOAL_RETURN_IF_ERROR(settings->add_variables(client::environment_variable));
  SHOAL_RETURN_IF_ERROR(settings->add_files(root));
  return settings->check();
}

Status apply_settings(const local::Settings& settings, actors::NodeOptions* node) {
  for (const NodeSetting& setting : kNodeSettings) {
    const Value* value = settings.find(setting.name);
    if (value == nullptr) continue;
    if (Status status = setting.apply(*value, node); !status.ok()) return status.with_context(value->source);
  }
  return ok_status();
}

storage::RetentionPolicy retention_of(const local::Settings& settings) {
  storage::RetentionPolicy policy;
  policy.keep_last = static_cast<uint32_t>(settings.number_of("keep-last"));
  policy.keep_every = settings.number_of("keep-every");
  policy.keep_for_s = settings.number_of("keep-for");
  return policy;
}

std::vector<std::string> node_arguments_of(const local::Settings& settings) {
  std::vector<std::string> out{"--settings-sources", local::settings_line(settings)};
  for (const auto& [name, value] : settings.values()) {
    const local::Setting* setting = local::find_setting(name);
    if (setting->of != local::SettingOf::node) continue;
    out.push_back(setting->flag());
    out.push_back(value.text);
  }
  return out;
}

}  // namespace shoal::cli
