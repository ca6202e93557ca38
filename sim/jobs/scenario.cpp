#include "sim/jobs/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>

#include "actors/node/clients/staging_budget.h"
#include "base/edit_distance.h"
#include "sim/basics/toml_tree.h"
#include "sim/failures/failure_draws.h"
#include "sim/jobs/model_files.h"
#include "sim/models/profile.h"

namespace shoal::sim {

namespace {

constexpr uint32_t kMaxRanksPerHost = 1024;
constexpr int64_t kLeastUnitBytes = 1024, kMostUnitBytes = int64_t{1} << 40;  // of SaveOptions
constexpr uint64_t kMsOfASave =
    1'000;  // time per save, added to the intervals, in which drawn failures occur
constexpr int64_t kMostMs = int64_t{7} * 24 * 3600 * 1000;
constexpr int64_t kMostUs = 1'000'000;

Status bad(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

struct NamedSize {
  std::string_view name;
  uint32_t MeshShape::*size;
};
constexpr NamedSize kSizes[] = {{"dp_replicate", &MeshShape::dp_replicate},
                                {"dp", &MeshShape::dp},
                                {"cp", &MeshShape::cp},
                                {"tp", &MeshShape::tp},
                                {"pp", &MeshShape::pp},
                                {"ep", &MeshShape::ep}};

// A size is 0 if the text does not name it.
Result<MeshShape> parse_mesh(std::string_view text) {
  MeshShape mesh{0, 0, 0, 0, 0, 0};
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    const NamedSize* found = nullptr;
    for (const NamedSize& each : kSizes) {
      if (each.name == part.substr(0, equals)) found = &each;
    }
    if (equals == std::string_view::npos || found == nullptr) {
      return bad(fmt::format("mesh: '{}' must begin with dp=, tp=, pp=, cp=, ep= or dp_replicate=", part));
    }
    uint32_t size = 0;
    const char* end = part.data() + part.size();
    const auto [stopped, error] = std::from_chars(part.data() + equals + 1, end, size);
    if (error != std::errc() || stopped != end || size == 0 || size > kMaxSimulatedRanks) {
      return bad(fmt::format("mesh: '{}': expected a size from 1 to {}", part, kMaxSimulatedRanks));
    }
    if (mesh.*(found->size) != 0) return bad(fmt::format("mesh: {} is listed twice", found->name));
    mesh.*(found->size) = size;
  }
  return mesh;
}

// Halves the wanted size until it divides `left`.
uint32_t fitted(uint32_t wanted, uint64_t left) {
  while (wanted > 1 && left % wanted != 0) wanted /= 2;
  return wanted;
}

// Checks that a save can end before the simulation stops, after one virtual day.
Status check_times(const Scenario& scenario) {
  if (scenario.interval_ms + scenario.arrival_skew_ms < kMaxSimulatedSaveMs) return ok_status();
  return bad(
      fmt::format("interval_ms = {}, arrival_skew_ms = {}: together they must be less than a virtual day, {} "
                  "ms, because a save must end within it",
                  scenario.interval_ms, scenario.arrival_skew_ms, kMaxSimulatedSaveMs));
}

uint32_t line_of(const TomlTable& parsed, std::string_view key) {
  const TomlTable::Entry* entry = parsed.find(key);
  return entry == nullptr ? 1 : entry->line;
}

// The numbers of a scenario, each within its bounds.
Status parse_numbers(const TomlTable& parsed, Scenario* filled) {
  Scenario& scenario = *filled;
  auto number = [&](std::string_view key, auto* into, int64_t least, int64_t most) -> Status {
    SHOAL_ASSIGN_OR_RETURN(int64_t value, parsed.integer(key, least, most, static_cast<int64_t>(*into)));
    *into = static_cast<std::decay_t<decltype(*into)>>(value);
    return ok_status();
  };
  SHOAL_RETURN_IF_ERROR(number("ranks", &scenario.ranks, 1, kMaxSimulatedRanks));
  SHOAL_RETURN_IF_ERROR(number("ranks_per_host", &scenario.ranks_per_host, 1, kMaxRanksPerHost));
  SHOAL_RETURN_IF_ERROR(number("unit_bytes", &scenario.unit_bytes, kLeastUnitBytes, kMostUnitBytes));
  SHOAL_RETURN_IF_ERROR(number("saves", &scenario.saves, 1, kMaxSimulatedSaves));
  SHOAL_RETURN_IF_ERROR(number("keep_last", &scenario.keep_last, 0, kMaxSimulatedSaves));
  SHOAL_RETURN_IF_ERROR(number("keep_every", &scenario.keep_every, 0, kMaxSimulatedSaves));
  SHOAL_RETURN_IF_ERROR(number("later_mesh_from", &scenario.later_mesh_from, 0, kMaxSimulatedSaves));
  SHOAL_RETURN_IF_ERROR(number("later_mesh_stages", &scenario.later_mesh_stages, 0, kMaxSimulatedRanks));
  SHOAL_RETURN_IF_ERROR(number("max_in_flight", &scenario.max_in_flight, 1, kMaxSavesInFlightOfARank));
  SHOAL_RETURN_IF_ERROR(number("slab_bytes", &scenario.slab_bytes, 0, local::kMaxSlabBytes));
  SHOAL_RETURN_IF_ERROR(number("parts_permille", &scenario.parts_permille, 0, 1000));
  SHOAL_RETURN_IF_ERROR(number("max_direct_nodes", &scenario.max_direct_nodes, 1, actors::kMaxDirectNodes));
  if (const auto* entry = parsed.find("max_direct_nodes")) {
    scenario.max_direct_nodes_place = parsed.place(entry->line);
  }
  SHOAL_RETURN_IF_ERROR(number("loads", &scenario.loads, 0, kMaxSimulatedLoads));
  SHOAL_RETURN_IF_ERROR(number("reads", &scenario.reads, 0, kMaxSimulatedReads));
  SHOAL_RETURN_IF_ERROR(number("readers", &scenario.readers, 0, kMaxSimulatedReaders));
  SHOAL_RETURN_IF_ERROR(number("objects", &scenario.objects, 0, kMaxSimulatedObjects));
  SHOAL_RETURN_IF_ERROR(number("load_ranks", &scenario.load_ranks, 1, kMaxSimulatedRanks));
  SHOAL_RETURN_IF_ERROR(number("max_restarts", &scenario.max_restarts, 0, kMaxSimulatedRestarts));
  SHOAL_RETURN_IF_ERROR(number("detect_ms", &scenario.detect_ms, 0, kMostMs));
  SHOAL_RETURN_IF_ERROR(number("restart_after_ms", &scenario.restart_after_ms, 0, kMostMs));
  SHOAL_RETURN_IF_ERROR(number("restart_ranks", &scenario.restart_ranks, 1, kMaxSimulatedRanks));
  SHOAL_RETURN_IF_ERROR(number("interval_ms", &scenario.interval_ms, 0, kMostMs));
  SHOAL_RETURN_IF_ERROR(number("arrival_skew_ms", &scenario.arrival_skew_ms, 0, kMostMs));
  SHOAL_RETURN_IF_ERROR(number("arrival_skew_us", &scenario.arrival_skew_us, 0, kMostUs));
  SHOAL_RETURN_IF_ERROR(number("seed", &scenario.seed, 0, std::numeric_limits<int64_t>::max()));
  return ok_status();
}

constexpr const char* kNoPlanners = "none";
constexpr const char* kGlobalPlanners = "global";

Status set_planners(std::string_view text, Scenario* scenario) {
  if (text != kNoPlanners && text != kGlobalPlanners) {
    return bad(fmt::format("planners must be {} or {}, not '{}'", kNoPlanners, kGlobalPlanners, text));
  }
  scenario->has_planners = text == kGlobalPlanners;
  return ok_status();
}

// Sets an enum whose values have these names, in its order.
template <class Enum, size_t N>
Status set_named(std::string_view key, const std::array<std::string_view, N>& names, std::string_view text,
                 Enum* into) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) {
    return bad(fmt::format("{} must be {} or {}, not '{}'", key,
                           fmt::join(names.begin(), names.end() - 1, ", "), names.back(), text));
  }
  *into = static_cast<Enum>(found - names.begin());
  return ok_status();
}

constexpr std::array<std::string_view, 3> kReplicaChecks = {"off", "warn", "abort"};
Status set_replica_check(std::string_view text, Scenario* scenario) {
  return set_named("replica_check", kReplicaChecks, text, &scenario->replica_check);
}

constexpr std::array<std::string_view, 2> kFallbacks = {"none", "previous"};
Status set_load_fallback(std::string_view text, Scenario* scenario) {
  return set_named("load_fallback", kFallbacks, text, &scenario->load_fallback);
}

constexpr std::array<std::string_view, 3> kDedupes = {"balanced", "lowest-rank", "none"};
Status set_dedupe(std::string_view text, Scenario* scenario) {
  return set_named("dedupe", kDedupes, text, &scenario->dedupe);
}

constexpr std::array<std::string_view, 2> kNodeStarts = {"launcher", "trainers"};
Status set_node_start(std::string_view text, Scenario* scenario) {
  return set_named("node_start", kNodeStarts, text, &scenario->node_start);
}

constexpr std::array<std::string_view, 3> kCloseWhens = {"never", "decided", "written"};
Status set_close_when(std::string_view text, Scenario* scenario) {
  return set_named("close_when", kCloseWhens, text, &scenario->close_when);
}

std::string_view replica_check_name(ReplicaCheck check) {
  return kReplicaChecks[static_cast<size_t>(check)];
}

Status parse_names(const TomlTable& parsed, Scenario* into) {
  Scenario& scenario = *into;
  SHOAL_ASSIGN_OR_RETURN(std::string method, parsed.text("load_method", "automatic"));
  if (!load_method_of_name(method)) {
    return parsed.error(line_of(parsed, "load_method"),
                        "load_method must be automatic, direct or two-stage, not '" + method + "'");
  }
  scenario.load_method = *load_method_of_name(method);
  SHOAL_ASSIGN_OR_RETURN(std::string optimizer, parsed.text("optimizer", "adam"));
  if (!optimizer_of_name(optimizer)) {
    return parsed.error(line_of(parsed, "optimizer"),
                        "optimizer must be adam or none, not '" + optimizer + "'");
  }
  scenario.optimizer = *optimizer_of_name(optimizer);
  SHOAL_ASSIGN_OR_RETURN(std::string payload, parsed.text("payload", "counted"));
  if (!payload_of_name(payload)) {
    return parsed.error(line_of(parsed, "payload"), "payload must be counted or full, not '" + payload + "'");
  }
  scenario.payload = *payload_of_name(payload);
  const auto read = [&](const char* key, std::string_view otherwise,
                        Status (*set)(std::string_view, Scenario*)) -> Status {
    SHOAL_ASSIGN_OR_RETURN(const std::string text, parsed.text(key, std::string(otherwise)));
    const Status known = set(text, &scenario);
    return known.ok() ? known : parsed.error(line_of(parsed, key), known.message());
  };
  SHOAL_RETURN_IF_ERROR(read("planners", kNoPlanners, set_planners));
  SHOAL_RETURN_IF_ERROR(read("replica_check", kReplicaChecks[0], set_replica_check));
  SHOAL_RETURN_IF_ERROR(read("load_fallback", kFallbacks[0], set_load_fallback));
  SHOAL_RETURN_IF_ERROR(read("dedupe", kDedupes[0], set_dedupe));
  SHOAL_RETURN_IF_ERROR(read("node_start", kNodeStarts[0], set_node_start));
  SHOAL_RETURN_IF_ERROR(read("close_when", kCloseWhens[0], set_close_when));
  return ok_status();
}

}  // namespace

Result<MeshShape> resolve_mesh(const Scenario& scenario, const Model& model) {
  if (model.world) {
    const uint32_t ranks = model.world->roster.world_size();
    if (!scenario.mesh.empty())
      return bad(model.name + " already states which rank holds what: leave out the mesh");
    if (ranks != scenario.ranks) {
      return bad(fmt::format("{} has {} ranks, but the job has {}", model.name, ranks, scenario.ranks));
    }
    return MeshShape{1, ranks, 1, 1, 1, 1};
  }
  SHOAL_ASSIGN_OR_RETURN(MeshShape mesh, parse_mesh(scenario.mesh));
  if (scenario.mesh.empty()) {
    mesh.tp = fitted(model.usual.tp, scenario.ranks);
    mesh.pp = fitted(model.usual.pp, scenario.ranks / mesh.tp);
    mesh.ep = fitted(model.usual.ep, scenario.ranks / mesh.tp / mesh.pp);
  }
  const bool fills = mesh.dp == 0;
  for (const NamedSize& each : kSizes) {
    if (mesh.*(each.size) == 0) mesh.*(each.size) = 1;
  }
  const uint64_t named = mesh.ranks();
  if (fills && named != 0 && scenario.ranks % named == 0) {
    mesh.dp = static_cast<uint32_t>(scenario.ranks / named);
  }
  if (mesh.ranks() != scenario.ranks) {
    return bad(fmt::format("mesh {} has {} ranks, not {}", to_string(mesh), mesh.ranks(), scenario.ranks));
  }
  SHOAL_RETURN_IF_ERROR(check_mesh(model, mesh));
  return mesh;
}

// Precondition: the meshes are valid.
Status check_payload(const Scenario& scenario, const Model& model) {
  if (scenario.payload == Payload::counted) {
    const auto flips_bits = std::ranges::find_if(scenario.failures, [](const Failure& failure) {
      return failure.kind == Failure::Kind::rots || failure.kind == Failure::Kind::corrupts;
    });
    std::string what = scenario.reads != 0 ? "reads" : scenario.readers != 0 ? "readers" : "";
    if (what.empty() && flips_bits != scenario.failures.end()) {
      what = fmt::format("a failure of kind {}", failure_kind_name(flips_bits->kind));
    }
    if (what.empty()) return ok_status();
    return bad(fmt::format("{} needs true bytes: set payload = \"full\"", what));
  }
  if (uint32_t ranks = loading_job(scenario).ranks; ranks > kMaxFullRanks) {
    return Status(
        Code::too_large,
        fmt::format("payload full: the job that loads has {} ranks, but at most {} may have true bytes",
                    ranks, kMaxFullRanks));
  }
  return check_full_payload(model, *resolve_mesh(scenario, model), scenario.mode, scenario.saves);
}

uint64_t Scenario::parts_slab_bytes() const {
  if (slab_bytes == 0) return 0;
  const uint64_t granted = slab_bytes / actors::kLeastPartSlabBytes * actors::kLeastPartSlabBytes;
  return std::clamp(granted, actors::kLeastPartSlabBytes, actors::kMostPartSlabBytes);
}

uint32_t Scenario::most_ranks() const {
  uint64_t most = std::max(ranks, restart_ranks);
  for (const Failure& failure : failures) most = std::max(most, failure.ranks);
  return static_cast<uint32_t>(most);
}

Scenario restarted_job(const Scenario& scenario, uint32_t ranks) {
  Scenario job = scenario;
  job.ranks = ranks;
  if (ranks != scenario.ranks) {
    job.mesh.clear();
    job.later_mesh.clear();
    job.later_mesh_from = job.later_mesh_stages = 0;
  }
  return job;
}

Scenario relaunched_job(const Scenario& scenario) {
  const uint32_t ranks = scenario.restart_ranks == 0 ? scenario.ranks : scenario.restart_ranks;
  Scenario job = restarted_job(scenario, ranks);
  if (scenario.restart_mesh.empty()) return job;
  job.mesh = scenario.restart_mesh;
  job.later_mesh.clear();
  job.later_mesh_from = job.later_mesh_stages = 0;
  return job;
}

Scenario with_later_mesh(const Scenario& scenario) {
  Scenario job = scenario;
  job.mesh = scenario.later_mesh;
  return job;
}

Scenario loading_job(const Scenario& scenario) {
  Scenario job = scenario;
  const bool is_same = scenario.load_ranks == 0 || scenario.load_ranks == scenario.ranks;
  if (scenario.load_ranks != 0) job.ranks = scenario.load_ranks;
  if (!is_same || !scenario.load_mesh.empty()) job.mesh = scenario.load_mesh;
  return job;
}

namespace {

// Describes a job that loads, but does not load.
Status check_loads(const Scenario& scenario) {
  if (scenario.loads != 0) return ok_status();
  const char* key = scenario.load_ranks != 0      ? "load_ranks"
                    : !scenario.load_mesh.empty() ? "load_mesh"
                    : scenario.load_method != LoadMethod::automatic && scenario.max_restarts == 0
                        ? "load_method"
                        : nullptr;
  if (key == nullptr) return ok_status();
  return bad(fmt::format("{} is set, but the job does not load: add --load (loads = 1)", key));
}

// Describes how a job starts again, but the job does not, or in two ways.
Status check_restarts(const Scenario& scenario, const Model& model) {
  if (scenario.max_restarts == 0) {
    const char* key = scenario.restart_ranks != 0                           ? "restart_ranks"
                      : !scenario.restart_mesh.empty()                      ? "restart_mesh"
                      : scenario.detect_ms != kDefaultDetectMs              ? "detect_ms"
                      : scenario.restart_after_ms != kDefaultRestartAfterMs ? "restart_after_ms"
                                                                            : nullptr;
    if (key == nullptr) return ok_status();
    return bad(fmt::format("{} is set, but no failure starts the job again: set max_restarts", key));
  }
  for (const Failure& failure : scenario.failures) {
    if (failure.kind != Failure::Kind::job_restarts) continue;
    return failure.toml_place.error(
        "a failure of kind job-restarts says itself when the job starts again, and max_restarts does so for "
        "all failures: use one of them");
  }
  return resolve_mesh(relaunched_job(scenario), model).status().with_context("the job that starts again");
}

Status check_later_mesh(const Scenario& scenario, const Model& model) {
  if (scenario.later_mesh_from == 0) {
    if (scenario.later_mesh_stages != 0) return bad("later_mesh_stages is set without later_mesh_from");
    return scenario.later_mesh.empty() ? ok_status() : bad("later_mesh is set without later_mesh_from");
  }
  if (model.world != nullptr)
    return bad("later_mesh_from is set, but the checkpoint states each rank's layout");
  const auto later = resolve_mesh(with_later_mesh(scenario), model);
  if (!later.ok()) return later.status().with_context("later_mesh");
  SHOAL_ASSIGN_OR_RETURN(const MeshShape mesh, resolve_mesh(scenario, model));
  if (scenario.later_mesh_stages == 0) return ok_status();
  if (mesh.pp != later->pp) {
    return bad(fmt::format("later_mesh_stages is set, but later_mesh has {} pipeline stages and mesh has {}",
                           later->pp, mesh.pp));
  }
  if (scenario.later_mesh_stages > mesh.pp) {
    return bad(fmt::format("later_mesh_stages is {}, but there are {} pipeline stages",
                           scenario.later_mesh_stages, mesh.pp));
  }
  return ok_status();
}

}  // namespace

Status validate_scenario(const Scenario& scenario) {
  auto outside = [](const char* what, uint64_t value, uint64_t most) {
    return bad(fmt::format("{} = {}: it must lie between 1 and {}", what, value, most));
  };
  if (scenario.ranks == 0 || scenario.ranks > kMaxSimulatedRanks) {
    return outside("ranks", scenario.ranks, kMaxSimulatedRanks);
  }
  if (scenario.ranks_per_host == 0 || scenario.ranks_per_host > kMaxRanksPerHost) {
    return outside("ranks_per_host", scenario.ranks_per_host, kMaxRanksPerHost);
  }
  if (scenario.saves == 0 || scenario.saves > kMaxSimulatedSaves) {
    return outside("saves", scenario.saves, kMaxSimulatedSaves);
  }
  SHOAL_RETURN_IF_ERROR(check_times(scenario));
  SHOAL_RETURN_IF_ERROR(check_role_timeouts(scenario.timeouts));
  if (scenario.most_ranks() > kMaxSimulatedRanks) {
    return outside("ranks", scenario.most_ranks(), kMaxSimulatedRanks);
  }
  const uint32_t hosts = std::max(scenario.most_hosts(), loading_job(scenario).hosts());
  const uint64_t direct = scenario.max_direct_nodes;
  if (hosts - 1 > direct * (direct + 1)) {
    return scenario.max_direct_nodes_place.error(
        fmt::format("max_direct_nodes = {}: at most {} nodes are possible besides the coordinator's, not {}",
                    direct, direct * (direct + 1), hosts - 1));
  }
  for (const Failure& failure : scenario.failures) {
    SHOAL_RETURN_IF_ERROR(check_failure(failure, scenario.most_hosts(), scenario.most_ranks()));
  }
  SHOAL_RETURN_IF_ERROR(parse_failure_rules(scenario.failure_draws).status());
  SHOAL_ASSIGN_OR_RETURN(Model model, load_model(scenario.model, scenario.optimizer));
  SHOAL_RETURN_IF_ERROR(resolve_mesh(scenario, model).status());
  if (scenario.loads > kMaxSimulatedLoads) return outside("loads", scenario.loads, kMaxSimulatedLoads);
  if (scenario.readers > kMaxSimulatedReaders) {
    return outside("readers", scenario.readers, kMaxSimulatedReaders);
  }
  if (scenario.reads > kMaxSimulatedReads) return outside("reads", scenario.reads, kMaxSimulatedReads);
  if (scenario.max_restarts > kMaxSimulatedRestarts) {
    return outside("max_restarts", scenario.max_restarts, kMaxSimulatedRestarts);
  }
  if (scenario.load_ranks > kMaxSimulatedRanks) {
    return outside("load_ranks", scenario.load_ranks, kMaxSimulatedRanks);
  }
  for (const Failure& failure : scenario.failures) {
    if (failure.kind != Failure::Kind::job_restarts) continue;
    const Scenario job = restarted_job(scenario, static_cast<uint32_t>(failure.ranks));
    SHOAL_RETURN_IF_ERROR(resolve_mesh(job, model).status().with_context(to_string(failure)));
  }
  if (scenario.has_planners && scenario.mode != SaveMode::collective) {
    return bad("planners = \"global\" needs mode collective");
  }
  if (scenario.replica_check != ReplicaCheck::off && scenario.mode == SaveMode::rank_local) {
    return bad(
        "replica_check needs another mode than rank-local: there no process sees the digests of all ranks");
  }
  if (scenario.objects > kMaxSimulatedObjects)
    return outside("objects", scenario.objects, kMaxSimulatedObjects);
  if (scenario.objects != 0 && model.world) {
    return bad("objects is set, but the checkpoint states each rank's layout");
  }
  SHOAL_RETURN_IF_ERROR(check_later_mesh(scenario, model));
  SHOAL_RETURN_IF_ERROR(check_loads(scenario));
  SHOAL_RETURN_IF_ERROR(check_restarts(scenario, model));
  SHOAL_RETURN_IF_ERROR(
      resolve_mesh(loading_job(scenario), model).status().with_context("the job that loads"));
  return check_payload(scenario, model);
}

namespace {

// About the end of the last save, of all the runs that the job may have.
uint64_t drawn_until_ms(const Scenario& scenario) {
  const uint64_t run_ms = uint64_t{scenario.saves} * (scenario.interval_ms + kMsOfASave) + kMsOfASave;
  return run_ms + scenario.max_restarts * (run_ms + scenario.detect_ms + scenario.restart_after_ms);
}

}  // namespace

Result<Scenario> with_all_failures(const Scenario& scenario) {
  Scenario whole = scenario;
  SHOAL_ASSIGN_OR_RETURN(std::vector<FailureRule> rules, parse_failure_rules(scenario.failure_draws));
  const DrawnJob job{scenario.hosts(), scenario.ranks, drawn_until_ms(scenario), scenario.seed};
  SHOAL_ASSIGN_OR_RETURN(std::vector<Failure> drawn, draw_failures(rules, job));
  whole.failures.insert(whole.failures.end(), drawn.begin(), drawn.end());
  std::stable_sort(whole.failures.begin(), whole.failures.end(), [](const Failure& a, const Failure& b) {
    return std::pair(a.at_ms, a.at_ns) < std::pair(b.at_ms, b.at_ns);
  });
  whole.failure_draws.clear();
  return whole;
}

std::string profile_label(const Scenario& scenario) {
  std::string label = scenario.profile;
  for (const auto& [key, value] : scenario.profile_numbers) label += fmt::format(" {}={}", key, value);
  for (const auto& [name, value] : scenario.timeouts) {
    label += fmt::format(" {}{}={}", kTimeoutsPrefix, name, value);
  }
  return label;
}

std::string arrival_skew_text(const Scenario& scenario) {
  const uint64_t us = scenario.arrival_skew_ms * 1000 + scenario.arrival_skew_us;
  return us % 1000 == 0 ? fmt::to_string(us / 1000) : fmt::format("{}.{:03}", us / 1000, us % 1000);
}

namespace {

template <class Number, class Quoted>
void print_restart_keys(const Scenario& scenario, const Number& number, const Quoted& quoted) {
  if (scenario.max_restarts != 0) number("max_restarts", scenario.max_restarts);
  if (scenario.detect_ms != kDefaultDetectMs) number("detect_ms", scenario.detect_ms);
  if (scenario.restart_after_ms != kDefaultRestartAfterMs)
    number("restart_after_ms", scenario.restart_after_ms);
  if (scenario.restart_ranks != 0) number("restart_ranks", scenario.restart_ranks);
  quoted("restart_mesh", scenario.restart_mesh);
}

}  // namespace

std::string scenario_text(const Scenario& scenario) {
  std::string text;
  auto number = [&](std::string_view key, uint64_t value) { text += fmt::format("{} = {}\n", key, value); };
  auto quoted = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) text += fmt::format("{} = {}\n", key, toml_string(value));
  };
  number("ranks", scenario.ranks);
  number("ranks_per_host", scenario.ranks_per_host);
  quoted("mesh", scenario.mesh);
  quoted("model", scenario.model);
  if (scenario.payload == Payload::full) quoted("payload", payload_name(scenario.payload));
  if (scenario.optimizer != Optimizer::adam) quoted("optimizer", optimizer_name(scenario.optimizer));
  quoted("mode", mode_name(scenario.mode));
  if (scenario.node_start != NodeStart::launcher) {
    quoted("node_start", kNodeStarts[static_cast<size_t>(scenario.node_start)]);
  }
  if (scenario.close_when != CloseWhen::never)
    quoted("close_when", kCloseWhens[static_cast<size_t>(scenario.close_when)]);
  if (scenario.unit_bytes != kDefaultUnitBytes) number("unit_bytes", scenario.unit_bytes);
  if (scenario.dedupe != Dedupe::balanced) quoted("dedupe", kDedupes[static_cast<size_t>(scenario.dedupe)]);
  number("saves", scenario.saves);
  number("interval_ms", scenario.interval_ms);
  number("arrival_skew_ms", scenario.arrival_skew_ms);
  if (scenario.arrival_skew_us != 0) number("arrival_skew_us", scenario.arrival_skew_us);
  if (scenario.max_in_flight != kDefaultSavesInFlight) number("max_in_flight", scenario.max_in_flight);
  if (scenario.slab_bytes != 0) number("slab_bytes", scenario.slab_bytes);
  if (scenario.parts_permille != 1000) number("parts_permille", scenario.parts_permille);
  if (scenario.loads != 0) number("loads", scenario.loads);
  if (scenario.load_ranks != 0) number("load_ranks", scenario.load_ranks);
  quoted("load_mesh", scenario.load_mesh);
  if (scenario.load_method != LoadMethod::automatic)
    quoted("load_method", load_method_name(scenario.load_method));
  if (scenario.load_fallback != LoadFallback::none) {
    quoted("load_fallback", kFallbacks[static_cast<size_t>(scenario.load_fallback)]);
  }
  print_restart_keys(scenario, number, quoted);
  if (scenario.readers != 0) number("readers", scenario.readers);
  if (scenario.keep_last != 0) number("keep_last", scenario.keep_last);
  if (scenario.keep_every != 0) number("keep_every", scenario.keep_every);
  if (scenario.max_direct_nodes != actors::kDefaultDirectNodes)
    number("max_direct_nodes", scenario.max_direct_nodes);
  if (scenario.later_mesh_from != 0) number("later_mesh_from", scenario.later_mesh_from);
  if (scenario.later_mesh_stages != 0) number("later_mesh_stages", scenario.later_mesh_stages);
  quoted("later_mesh", scenario.later_mesh);
  if (scenario.reads != 0) number("reads", scenario.reads);
  if (scenario.has_planners) quoted("planners", kGlobalPlanners);
  if (scenario.replica_check != ReplicaCheck::off) {
    quoted("replica_check", replica_check_name(scenario.replica_check));
  }
  if (scenario.objects != 0) number("objects", scenario.objects);
  quoted("profile", scenario.profile);
  number("seed", scenario.seed);
  quoted("failures", scenario.failure_draws);
  if (scenario.stragglers != Stragglers()) {
    text += "\n[stragglers]\n";
    number("hosts_permille", scenario.stragglers.hosts_permille);
    number("copy_permille", scenario.stragglers.copy_permille);
    number("network_permille", scenario.stragglers.network_permille);
    number("storage_permille", scenario.stragglers.storage_permille);
  }
  if (!scenario.profile_numbers.empty() || !scenario.timeouts.empty()) text += "\n[set]\n";
  for (const auto& [key, value] : scenario.profile_numbers) text += fmt::format("{} = {}\n", key, value);
  for (const auto& [name, value] : scenario.timeouts) {
    text += fmt::format("{}{} = {}\n", kTimeoutsPrefix, name, value);
  }
  for (const Failure& failure : scenario.failures) text += fmt::format("\n{}", failure_toml(failure));
  return text;
}

namespace {

// A number of the profile, or a timeout of the roles.
Status set_number(std::string_view key, int64_t value, Scenario* scenario) {
  if (key.starts_with(kTimeoutsPrefix)) return set_role_timeout(key, value, &scenario->timeouts);
  SHOAL_RETURN_IF_ERROR(check_number(key, value));
  scenario->profile_numbers[std::string(key)] = value;
  return ok_status();
}

Status set_number(std::string_view key, std::string_view text, Scenario* scenario) {
  std::string digits(text);
  std::erase(digits, '_');
  int64_t value = 0;
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || stopped != digits.data() + digits.size()) {
    return bad(fmt::format("{}: '{}' is not a whole number", key, text));
  }
  return set_number(key, value, scenario);
}

// "storage.sync_ns=0"
Status set_number(std::string_view text, Scenario* scenario) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return bad(fmt::format("set: '{}': write NUMBER=VALUE", text));
  return set_number(text.substr(0, equals), text.substr(equals + 1), scenario);
}

Status unknown_key(std::string_view key) {
  std::vector<std::string> keys;  // but the tables of a file, which have no flags
  for (const std::string_view each : scenario_keys()) {
    if (each != "failure" && each != "replay") keys.emplace_back(each);
  }
  const bool is_table = std::ranges::find(scenario_keys(), key) != scenario_keys().end();
  const auto nearest = is_table ? std::nullopt : base::nearest_name(key, keys);
  return bad(fmt::format("'{}' is not a key of a scenario{}", key,
                         nearest ? fmt::format(": did you mean '{}'?", *nearest) : ""));
}

// storage.sync_ns = 0, with quotes or without, which makes a table `storage`.
Status parse_set(const TomlTable& set, const std::string& prefix, Scenario* scenario) {
  for (const TomlTable::Entry& entry : set.entries) {
    const std::string key = prefix + entry.key;
    const auto* table = std::get_if<std::shared_ptr<const TomlTable>>(&entry.value);
    if (table != nullptr && prefix.empty()) {
      SHOAL_RETURN_IF_ERROR(parse_set(**table, key + ".", scenario));
      continue;
    }
    const auto* value = std::get_if<int64_t>(&entry.value);
    if (value == nullptr) return set.error(entry.line, key + ": expected an integer");
    if (Status known = set_number(key, *value, scenario); !known.ok()) {
      return set.error(entry.line, known.message());
    }
  }
  return ok_status();
}

template <class Number>
Status set_whole(std::string_view key, std::string_view text, uint64_t least, uint64_t most, Number* into) {
  uint64_t value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stopped != text.data() + text.size() || value < least || value > most) {
    return bad(fmt::format("{}: '{}' is not a number from {} to {}", key, text, least, most));
  }
  *into = static_cast<Number>(value);
  return ok_status();
}

// The keys of a job that starts again after a failure.
Status set_restart_value(Scenario& scenario, std::string_view key, std::string_view text) {
  if (key == "max_restarts") return set_whole(key, text, 0, kMaxSimulatedRestarts, &scenario.max_restarts);
  if (key == "detect_ms") return set_whole(key, text, 0, kMostMs, &scenario.detect_ms);
  if (key == "restart_after_ms") return set_whole(key, text, 0, kMostMs, &scenario.restart_after_ms);
  if (key == "restart_ranks") return set_whole(key, text, 1, kMaxSimulatedRanks, &scenario.restart_ranks);
  if (key == "restart_mesh") return scenario.restart_mesh = text, ok_status();
  return unknown_key(key);
}

}  // namespace

Status set_value(Scenario& scenario, std::string_view key, std::string_view text) {
  if (key == "set") return set_number(text, &scenario);
  if (key.find('.') != std::string_view::npos) return set_number(key, text, &scenario);
  auto number = [&](auto* into, uint64_t least, uint64_t most) {
    return set_whole(key, text, least, most, into);
  };
  if (key == "ranks") return number(&scenario.ranks, 1, kMaxSimulatedRanks);
  if (key == "ranks_per_host") return number(&scenario.ranks_per_host, 1, kMaxRanksPerHost);
  if (key == "unit_bytes") return number(&scenario.unit_bytes, kLeastUnitBytes, kMostUnitBytes);
  if (key == "saves") return number(&scenario.saves, 1, kMaxSimulatedSaves);
  if (key == "interval_ms") return number(&scenario.interval_ms, 0, kMostMs);
  if (key == "arrival_skew_ms") return number(&scenario.arrival_skew_ms, 0, kMostMs);
  if (key == "arrival_skew_us") return number(&scenario.arrival_skew_us, 0, kMostUs);
  if (key == "keep_last") return number(&scenario.keep_last, 0, kMaxSimulatedSaves);
  if (key == "keep_every") return number(&scenario.keep_every, 0, kMaxSimulatedSaves);
  if (key == "max_in_flight") return number(&scenario.max_in_flight, 1, kMaxSavesInFlightOfARank);
  if (key == "slab_bytes") return number(&scenario.slab_bytes, 0, local::kMaxSlabBytes);
  if (key == "parts_permille") return number(&scenario.parts_permille, 0, 1000);
  if (key == "seed") return number(&scenario.seed, 0, std::numeric_limits<int64_t>::max());
  if (key == "max_direct_nodes") {
    scenario.max_direct_nodes_place = {};
    return number(&scenario.max_direct_nodes, 1, actors::kMaxDirectNodes);
  }
  if (key == "stragglers") {
    SHOAL_ASSIGN_OR_RETURN(scenario.stragglers, parse_stragglers(text));
    return ok_status();
  }
  if (key == "loads") return number(&scenario.loads, 0, kMaxSimulatedLoads);
  if (key == "planners") return set_planners(text, &scenario);
  if (key == "replica_check") return set_replica_check(text, &scenario);
  if (key == "objects") return number(&scenario.objects, 0, kMaxSimulatedObjects);
  if (key == "load_fallback") return set_load_fallback(text, &scenario);
  if (key == "node_start") return set_node_start(text, &scenario);
  if (key == "close_when") return set_close_when(text, &scenario);
  if (key == "dedupe") return set_dedupe(text, &scenario);
  if (key == "readers") return number(&scenario.readers, 0, kMaxSimulatedReaders);
  if (key == "reads") return number(&scenario.reads, 0, kMaxSimulatedReads);
  if (key == "load_ranks") return number(&scenario.load_ranks, 1, kMaxSimulatedRanks);
  if (key == "load_method") {
    const std::optional<LoadMethod> method = load_method_of_name(text);
    if (!method)
      return bad(fmt::format("load_method must be automatic, direct or two-stage, not '{}'", text));
    return scenario.load_method = *method, ok_status();
  }
  if (key == "load_mesh") return scenario.load_mesh = text, ok_status();
  if (key == "later_mesh") return scenario.later_mesh = text, ok_status();
  if (key == "later_mesh_from") return number(&scenario.later_mesh_from, 0, kMaxSimulatedSaves);
  if (key == "later_mesh_stages") return number(&scenario.later_mesh_stages, 0, kMaxSimulatedRanks);
  if (key == "mesh") return scenario.mesh = text, ok_status();
  if (key == "failures") return scenario.failure_draws = text, parse_failure_rules(text).status();
  if (key == "profile") return scenario.profile = text, ok_status();
  if (key == "model") return scenario.model = text, load_model(scenario.model, scenario.optimizer).status();
  if (key == "optimizer") {
    const std::optional<Optimizer> optimizer = optimizer_of_name(text);
    if (!optimizer) return bad(fmt::format("optimizer must be adam or none, not '{}'", text));
    return scenario.optimizer = *optimizer, ok_status();
  }
  if (key == "payload") {
    const std::optional<Payload> payload = payload_of_name(text);
    if (!payload) return bad(fmt::format("payload must be counted or full, not '{}'", text));
    return scenario.payload = *payload, ok_status();
  }
  if (key != "mode") return set_restart_value(scenario, key, text);
  const std::optional<SaveMode> mode = mode_of_name(text);
  if (!mode)
    return bad(fmt::format("mode must be collective-free, rank-local or collective, not '{}'", text));
  scenario.mode = *mode;
  return ok_status();
}

std::span<const std::string_view> scenario_keys() {
  static constexpr std::string_view kKeys[] = {"ranks",
                                               "ranks_per_host",
                                               "mesh",
                                               "model",
                                               "mode",
                                               "saves",
                                               "profile",
                                               "set",
                                               "interval_ms",
                                               "arrival_skew_ms",
                                               "seed",
                                               "failure",
                                               "max_direct_nodes",
                                               "stragglers",
                                               "failures",
                                               "replay",
                                               "optimizer",
                                               "loads",
                                               "load_ranks",
                                               "load_mesh",
                                               "load_method",
                                               "payload",
                                               "arrival_skew_us",
                                               "unit_bytes",
                                               "keep_last",
                                               "keep_every",
                                               "dedupe",
                                               "later_mesh",
                                               "later_mesh_from",
                                               "later_mesh_stages",
                                               "reads",
                                               "readers",
                                               "load_fallback",
                                               "max_restarts",
                                               "detect_ms",
                                               "restart_after_ms",
                                               "restart_ranks",
                                               "restart_mesh",
                                               "planners",
                                               "replica_check",
                                               "objects",
                                               "node_start",
                                               "close_when",
                                               "max_in_flight",
                                               "slab_bytes",
                                               "parts_permille"};
  return kKeys;
}

Result<Scenario> parse_scenario(std::string_view text, const std::string& file) {
  SHOAL_ASSIGN_OR_RETURN(TomlTable parsed, parse_toml(text, file));
  SHOAL_RETURN_IF_ERROR(parsed.allow_only(scenario_keys()));
  Scenario scenario;
  SHOAL_RETURN_IF_ERROR(parse_numbers(parsed, &scenario));
  SHOAL_ASSIGN_OR_RETURN(auto failures, parsed.tables("failure"));
  for (const auto& each : failures) {
    SHOAL_ASSIGN_OR_RETURN(Failure failure, parse_failure(*each));
    scenario.failures.push_back(failure);
  }
  SHOAL_ASSIGN_OR_RETURN(auto stragglers, parsed.table("stragglers"));
  if (stragglers) {
    SHOAL_ASSIGN_OR_RETURN(scenario.stragglers, parse_stragglers(*stragglers));
  }
  SHOAL_ASSIGN_OR_RETURN(auto set, parsed.table("set"));
  if (set) SHOAL_RETURN_IF_ERROR(parse_set(*set, "", &scenario));
  SHOAL_ASSIGN_OR_RETURN(scenario.mesh, parsed.text("mesh", scenario.mesh));
  SHOAL_ASSIGN_OR_RETURN(scenario.failure_draws, parsed.text("failures", ""));
  if (Status known = parse_failure_rules(scenario.failure_draws).status(); !known.ok()) {
    return parsed.error(parsed.find("failures")->line, known.message());
  }
  SHOAL_ASSIGN_OR_RETURN(scenario.load_mesh, parsed.text("load_mesh", scenario.load_mesh));
  SHOAL_ASSIGN_OR_RETURN(scenario.later_mesh, parsed.text("later_mesh", scenario.later_mesh));
  SHOAL_ASSIGN_OR_RETURN(scenario.restart_mesh, parsed.text("restart_mesh", scenario.restart_mesh));
  SHOAL_ASSIGN_OR_RETURN(scenario.model, parsed.text("model", scenario.model));
  SHOAL_ASSIGN_OR_RETURN(scenario.profile, parsed.text("profile", scenario.profile));
  SHOAL_ASSIGN_OR_RETURN(std::string mode, parsed.text("mode", std::string(mode_name(scenario.mode))));
  const std::optional<SaveMode> named = mode_of_name(mode);
  if (Status ends = check_times(scenario); !ends.ok()) {
    const bool is_interval = scenario.interval_ms >= scenario.arrival_skew_ms;
    return parsed.error(line_of(parsed, is_interval ? "interval_ms" : "arrival_skew_ms"), ends.message());
  }
  if (!named) {
    return parsed.error(line_of(parsed, "mode"),
                        "mode must be collective-free, rank-local or collective, not '" + mode + "'");
  }
  scenario.mode = *named;
  SHOAL_RETURN_IF_ERROR(parse_names(parsed, &scenario));
  auto model = load_model(scenario.model, scenario.optimizer);
  if (!model.ok()) return parsed.error(line_of(parsed, "model"), model.status().message());
  if (auto mesh = resolve_mesh(scenario, *model); !mesh.ok()) {
    return parsed.error(line_of(parsed, "mesh"), mesh.status().message());
  }
  if (Status later = check_later_mesh(scenario, *model); !later.ok()) {
    return parsed.error(line_of(parsed, scenario.later_mesh.empty() ? "later_mesh_from" : "later_mesh"),
                        later.message());
  }
  if (auto mesh = resolve_mesh(loading_job(scenario), *model); !mesh.ok()) {
    return parsed.error(line_of(parsed, "load_mesh"), "the job that loads: " + mesh.status().message());
  }
  if (auto mesh = resolve_mesh(relaunched_job(scenario), *model); !mesh.ok()) {
    return parsed.error(line_of(parsed, "restart_mesh"),
                        "the job that starts again: " + mesh.status().message());
  }
  if (Status fits = check_payload(scenario, *model); !fits.ok()) {
    const bool is_of_reads = scenario.payload == Payload::counted;
    return parsed.error(line_of(parsed, is_of_reads ? "reads" : "payload"), fits.message());
  }
  return scenario;
}

}  // namespace shoal::sim
