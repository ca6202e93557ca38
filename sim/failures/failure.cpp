#include "sim/failures/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace shoal::sim {

namespace {

constexpr int64_t kLatestMs = int64_t{366} * 24 * 3600 * 1000;
constexpr int64_t kNsOfAMs = 1'000'000;
constexpr int64_t kMostHosts = kMaxFailureHosts;
constexpr int64_t kMostFactor = 1'000'000;
constexpr int64_t kMostCheckpoints = 1000;
constexpr int64_t kLastPart = 2;

struct FailureField {
  std::string_view key;
  uint64_t Failure::*value;
  int64_t least, most;
};
constexpr FailureField kFailureFields[] = {{"host", &Failure::host, 0, kMostHosts},
                                           {"hosts", &Failure::hosts, 0, kMostHosts},
                                           {"to_host", &Failure::to_host, 0, kMostHosts},
                                           {"to_hosts", &Failure::to_hosts, 0, kMostHosts},
                                           {"rank", &Failure::rank, 0, kMostHosts},
                                           {"for_ms", &Failure::for_ms, 1, kLatestMs},
                                           {"back_after_ms", &Failure::back_after_ms, 1, kLatestMs},
                                           {"by_ms", &Failure::by_ms, 1, kLatestMs},
                                           {"permille", &Failure::permille, 1, kPermille},
                                           {"factor", &Failure::factor, 2, kMostFactor},
                                           {"ranks", &Failure::ranks, 1, kMostHosts},
                                           {"behind", &Failure::behind, 0, kMostCheckpoints},
                                           {"keep", &Failure::keep, 1, kMostCheckpoints},
                                           {"part", &Failure::part, 0, kLastPart}};

struct Shape {  // the name of a kind, and its keys
  Failure::Kind kind;
  std::string_view name;
  std::string_view needed, allowed;  // keys, each followed by a blank
};
using Kind = Failure::Kind;
constexpr std::string_view kLink = "hosts to_host to_hosts permille ";
constexpr std::array<Shape, Failure::kKinds> kShapes = {{
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
    {Kind::disk_hangs, "disk-hangs", "host for_ms ", "hosts "},
    {Kind::disk_fails, "disk-fails", "host for_ms ", "hosts permille "},
    {Kind::disk_full, "disk-full", "host for_ms ", "hosts "},
    {Kind::reads_fail, "reads-fail", "host for_ms ", "hosts permille "},
    {Kind::disk_loses, "disk-loses", "host for_ms ", "hosts permille "},
    {Kind::sweeps, "sweeps", "host ", ""},
    {Kind::stops, "stops", "host for_ms ", "hosts "},
    {Kind::reconnects, "reconnects", "rank ", "for_ms "},
    {Kind::flips, "flips", "rank ", ""},
    {Kind::job_restarts, "job-restarts", "host hosts for_ms ranks ", ""},
    {Kind::pins, "pins", "host ", "behind for_ms "},
    {Kind::tags, "tags", "host ", "behind for_ms "},
    {Kind::removes, "removes", "host ", "behind "},
    {Kind::collects, "collects", "host keep ", ""},
    {Kind::rots, "rots", "host ", "behind part permille "},
    {Kind::reopens, "reopens", "rank for_ms ", ""},
    {Kind::corrupts, "corrupts", "host for_ms ", "hosts permille "},
    {Kind::twins, "twins", "rank host for_ms ", ""},
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

bool is_for_closed_trainers(Failure::Kind kind) {
  const bool ends_processes = loses_trainers(kind) || kind == Kind::restarts || kind == Kind::coordinates ||
                              kind == Kind::stops || kind == Kind::job_restarts;
  // A reopened Checkpointer, another process of a rank, and a warning that the root does not keep.
  return !ends_processes && kind != Kind::reopens && kind != Kind::twins && kind != Kind::flips;
}

std::string_view failure_kind_name(Kind kind) {
  return shape_of(kind).name;
}

std::string failure_kind_names() {
  std::string names;
  for (const Shape& each : kShapes) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  return names;
}

std::string name_hosts(uint64_t first, uint64_t count) {
  if (count == 0) return "all hosts";
  if (count == 1) return fmt::format("host {}", first);
  return fmt::format("hosts {} to {}", first, first + count - 1);
}

std::string to_string(const Failure& failure) {
  const Shape& shape = shape_of(failure.kind);
  const bool is_rank = names(shape.needed, "rank");
  std::string text =
      (is_rank ? fmt::format("rank {}", failure.rank) : name_hosts(failure.host, failure.hosts)) + " ";
  std::string_view verb = shape.name;
  // "hosts 1 to 5 die", not "dies"
  if (!is_rank && failure.hosts != 1 && verb.ends_with('s')) verb.remove_suffix(1);
  text += fmt::format("{} at {}{} ms", verb, failure.at_ms,
                      failure.at_ns == 0 ? "" : fmt::format(".{:06}", failure.at_ns));
  if (is_link(failure.kind)) text += " to " + name_hosts(failure.to_host, failure.to_hosts);
  if (failure.factor != 1) text += fmt::format(" by {}", failure.factor);
  if (failure.permille != kPermille) text += fmt::format(", {} in 1000", failure.permille);
  if (failure.by_ms != 0) text += fmt::format(", by {} ms", failure.by_ms);
  if (failure.behind != 0) text += fmt::format(" what is {} before the newest", failure.behind);
  if (failure.kind == Kind::twins) text += fmt::format(" on host {}", failure.host);
  if (failure.part != 0) text += failure.part == 1 ? " in a header" : " in the manifest";
  if (failure.keep != 0) text += fmt::format(" and keeps {}", failure.keep);
  if (failure.ranks != 0) text += fmt::format(" on {} ranks", failure.ranks);
  if (failure.for_ms != 0) text += fmt::format(" for {} ms", failure.for_ms);
  if (failure.back_after_ms != 0) text += fmt::format(", its node back after {} ms", failure.back_after_ms);
  return text;
}

std::vector<std::pair<std::string_view, uint64_t>> failure_values(const Failure& failure) {
  const Shape& shape = shape_of(failure.kind);
  static const Failure usual;
  std::vector<std::pair<std::string_view, uint64_t>> values;
  for (const FailureField& field : kFailureFields) {
    const bool is_stated = names(shape.allowed, field.key) && failure.*field.value != usual.*field.value;
    if (is_stated || names(shape.needed, field.key)) values.emplace_back(field.key, failure.*field.value);
  }
  return values;
}

std::string failure_toml(const Failure& failure) {
  std::string text = fmt::format("[[failure]]\nat_ms = {}\n{}kind = \"{}\"\n", failure.at_ms,
                                 failure.at_ns == 0 ? "" : fmt::format("at_ns = {}\n", failure.at_ns),
                                 failure_kind_name(failure.kind));
  for (const auto& [key, value] : failure_values(failure)) text += fmt::format("{} = {}\n", key, value);
  return text;
}

Result<Failure> parse_failure(const TomlTable& message) {
  SHOAL_ASSIGN_OR_RETURN(std::string name, message.text("kind", ""));
  const auto shape =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const Shape& each) { return each.name == name; });
  if (shape == kShapes.end()) {
    return message.error(message.line, fmt::format("kind = '{}' is not a kind of failure; known kinds are {}",
                                                   name, failure_kind_names()));
  }
  std::vector<std::string_view> keys = {"at_ms", "at_ns", "kind"};
  for (const FailureField& field : kFailureFields) {
    const bool is_needed = names(shape->needed, field.key);
    if (is_needed || names(shape->allowed, field.key)) keys.push_back(field.key);
    if (is_needed && message.find(field.key) == nullptr) {
      return message.error(message.line,
                           fmt::format("a failure of kind '{}' needs the key {}", name, field.key));
    }
  }
  SHOAL_RETURN_IF_ERROR(message.allow_only(keys));
  if (message.find("at_ms") == nullptr) return message.error(message.line, "a failure needs the key at_ms");
  Failure failure;
  failure.kind = shape->kind;
  failure.toml_place = message.place(message.line);
  SHOAL_ASSIGN_OR_RETURN(int64_t at, message.integer("at_ms", 0, kLatestMs, 0));
  failure.at_ms = static_cast<uint64_t>(at);
  SHOAL_ASSIGN_OR_RETURN(int64_t at_ns, message.integer("at_ns", 0, kNsOfAMs - 1, 0));
  failure.at_ns = static_cast<uint64_t>(at_ns);
  for (const FailureField& field : kFailureFields) {
    if (message.find(field.key) == nullptr) continue;
    SHOAL_ASSIGN_OR_RETURN(int64_t value, message.integer(field.key, field.least, field.most, 0));
    failure.*field.value = static_cast<uint64_t>(value);
  }
  return failure;
}

Status check_failure(const Failure& failure, uint64_t hosts, uint64_t ranks) {
  auto bad = [&](std::string_view what, uint64_t there_are) {
    return failure.toml_place.error(
        fmt::format("{}: the job has only {} {}", to_string(failure), there_are, what));
  };
  if (names(shape_of(failure.kind).needed, "rank") && failure.rank >= ranks) return bad("ranks", ranks);
  if (failure.host >= hosts || failure.hosts > hosts - failure.host) return bad("hosts", hosts);
  if (failure.to_host >= hosts || failure.to_hosts > hosts - failure.to_host) return bad("hosts", hosts);
  return ok_status();
}

}  // namespace shoal::sim
