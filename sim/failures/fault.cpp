#include "sim/failures/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace shoal::sim {

namespace {

constexpr int64_t kLatestMs = int64_t{366} * 24 * 3600 * 1000;
constexpr int64_t kNsOfAMs = 1'000'000;
constexpr int64_t kMostHosts = int64_t{1} << 20;
constexpr int64_t kMostFactor = 1'000'000;

struct Field {
  std::string_view key;
  uint64_t Fault::*value;
  int64_t least, most;
};
constexpr Field kFields[] = {{"host", &Fault::host, 0, kMostHosts},
                             {"hosts", &Fault::hosts, 0, kMostHosts},
                             {"to_host", &Fault::to_host, 0, kMostHosts},
                             {"to_hosts", &Fault::to_hosts, 0, kMostHosts},
                             {"rank", &Fault::rank, 0, kMostHosts},
                             {"for_ms", &Fault::for_ms, 1, kLatestMs},
                             {"back_after_ms", &Fault::back_after_ms, 1, kLatestMs},
                             {"by_ms", &Fault::by_ms, 1, kLatestMs},
                             {"permille", &Fault::permille, 1, kPermille},
                             {"factor", &Fault::factor, 2, kMostFactor}};

struct Shape {  // the name of a kind, and its keys
  Fault::Kind kind;
  std::string_view name;
  std::string_view needed, allowed;  // keys, each followed by a blank
};
using Kind = Fault::Kind;
constexpr std::string_view kLink = "hosts to_host to_hosts permille ";
constexpr std::array<Shape, Fault::kKinds> kShapes = {{
    {Kind::dies, "dies", "host ", "hosts back_after_ms "},
    {Kind::stalls, "stalls", "host for_ms ", "hosts "},
    {Kind::restarts, "restarts", "host for_ms ", "hosts "},
    {Kind::coordinates, "coordinates", "host ", ""},
    {Kind::ends, "ends", "rank ", ""},
    {Kind::vanishes, "vanishes", "rank ", ""},
    {Kind::cut, "cut", "host for_ms ", "hosts to_host to_hosts "},
    {Kind::loses, "loses", "host for_ms ", kLink},
    {Kind::delays, "delays", "host for_ms by_ms ", kLink},
    {Kind::doubles, "doubles", "host for_ms by_ms ", kLink},
    {Kind::reorders, "reorders", "host for_ms by_ms ", kLink},
    {Kind::disk_slow, "disk-slow", "host for_ms factor ", "hosts "},
    {Kind::disk_fails, "disk-fails", "host for_ms ", "hosts permille "},
    {Kind::disk_full, "disk-full", "host for_ms ", "hosts "},
    {Kind::stops, "stops", "host for_ms ", "hosts "},
}};

const Shape& shape_of(Kind kind) {
  return kShapes[static_cast<size_t>(kind)];
}

bool names(std::string_view keys, std::string_view key) {
  return fmt::format(" {}", keys).find(fmt::format(" {} ", key)) != std::string::npos;
}

bool is_link(Kind kind) {
  return names(shape_of(kind).allowed, "to_hosts");
}

}  // namespace

std::string_view fault_kind_name(Kind kind) {
  return shape_of(kind).name;
}

std::string name_hosts(uint64_t first, uint64_t count) {
  if (count == 0) return "all hosts";
  if (count == 1) return fmt::format("host {}", first);
  return fmt::format("hosts {} to {}", first, first + count - 1);
}

std::string to_string(const Fault& fault) {
  const Shape& shape = shape_of(fault.kind);
  const bool is_rank = names(shape.needed, "rank");
  std::string text =
      (is_rank ? fmt::format("rank {}", fault.rank) : name_hosts(fault.host, fault.hosts)) + " ";
  std::string_view verb = shape.name;
  // "hosts 1 to 5 die", not "dies"
  if (!is_rank && fault.hosts != 1 && verb.ends_with('s')) verb.remove_suffix(1);
  text += fmt::format("{} at {}{} ms", verb, fault.at_ms,
                      fault.at_ns == 0 ? "" : fmt::format(".{:06}", fault.at_ns));
  if (is_link(fault.kind)) text += " to " + name_hosts(fault.to_host, fault.to_hosts);
  if (fault.factor != 1) text += fmt::format(" by {}", fault.factor);
  if (fault.permille != kPermille) text += fmt::format(", {} in 1000", fault.permille);
  if (fault.by_ms != 0) text += fmt::format(", by {} ms", fault.by_ms);
  if (fault.for_ms != 0) text += fmt::format(" for {} ms", fault.for_ms);
  if (fault.back_after_ms != 0) text += fmt::format(", its node back after {} ms", fault.back_after_ms);
  return text;
}

std::vector<std::pair<std::string_view, uint64_t>> fault_values(const Fault& fault) {
  const Shape& shape = shape_of(fault.kind);
  static const Fault usual;
  std::vector<std::pair<std::string_view, uint64_t>> values;
  for (const Field& field : kFields) {
    const bool is_stated = names(shape.allowed, field.key) && fault.*field.value != usual.*field.value;
    if (is_stated || names(shape.needed, field.key)) values.emplace_back(field.key, fault.*field.value);
  }
  return values;
}

std::string fault_toml(const Fault& fault) {
  std::string text = fmt::format("[[failure]]\nat_ms = {}\n{}kind = \"{}\"\n", fault.at_ms,
                                 fault.at_ns == 0 ? "" : fmt::format("at_ns = {}\n", fault.at_ns),
                                 fault_kind_name(fault.kind));
  for (const auto& [key, value] : fault_values(fault)) text += fmt::format("{} = {}\n", key, value);
  return text;
}

Result<Fault> parse_fault(const TomlTable& message) {
  SHOAL_ASSIGN_OR_RETURN(std::string name, message.text("kind", ""));
  const auto shape =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& each) { return each.name == name; });
  if (shape == kShapes.end()) {
    std::string known;
    for (const Shape& each : kShapes) known += fmt::format("{}{}", known.empty() ? "" : ", ", each.name);
    return message.error(
        message.line, fmt::format("kind = '{}' is not a kind of failure; known kinds are {}", name, known));
  }
  std::vector<std::string_view> keys = {"at_ms", "at_ns", "kind"};
  for (const Field& field : kFields) {
    const bool is_needed = names(shape->needed, field.key);
    if (is_needed || names(shape->allowed, field.key)) keys.push_back(field.key);
    if (is_needed && message.find(field.key) == nullptr) {
      return message.error(message.line,
                           fmt::format("a failure of kind '{}' needs the key {}", name, field.key));
    }
  }
  SHOAL_RETURN_IF_ERROR(message.allow_only(keys));
  if (message.find("at_ms") == nullptr) return message.error(message.line, "a failure needs the key at_ms");
  Fault fault;
  fault.kind = shape->kind;
  fault.toml_place = message.place(message.line);
  SHOAL_ASSIGN_OR_RETURN(int64_t at, message.integer("at_ms", 0, kLatestMs, 0));
  fault.at_ms = static_cast<uint64_t>(at);
  SHOAL_ASSIGN_OR_RETURN(int64_t at_ns, message.integer("at_ns", 0, kNsOfAMs - 1, 0));
  fault.at_ns = static_cast<uint64_t>(at_ns);
  for (const Field& field : kFields) {
    if (message.find(field.key) == nullptr) continue;
    SHOAL_ASSIGN_OR_RETURN(int64_t value, message.integer(field.key, field.least, field.most, 0));
    fault.*field.value = static_cast<uint64_t>(value);
  }
  return fault;
}

Status check_fault(const Fault& fault, uint64_t hosts, uint64_t ranks) {
  auto bad = [&](std::string_view what, uint64_t there_are) {
    return fault.toml_place.error(
        fmt::format("{}: the job has only {} {}", to_string(fault), there_are, what));
  };
  if (names(shape_of(fault.kind).needed, "rank")) {
    return fault.rank < ranks ? ok_status() : bad("ranks", ranks);
  }
  if (fault.host >= hosts || fault.hosts > hosts - fault.host) return bad("hosts", hosts);
  if (fault.to_host >= hosts || fault.to_hosts > hosts - fault.to_host) return bad("hosts", hosts);
  return ok_status();
}

}  // namespace shoal::sim
