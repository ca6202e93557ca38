// Scenario: a job to simulate, from flags or from a TOML file (sim/scenarios/). A key that is missing has the
// default of this header.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/links/relay_tree.h"
#include "local/messages/messages.h"
#include "shoal/load_times.h"
#include "shoal/passed_over.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "sim/basics/toml_tree.h"
#include "sim/failures/failure.h"
#include "sim/jobs/model_table.h"
#include "sim/jobs/payload.h"
#include "sim/jobs/role_timeouts.h"
#include "sim/jobs/stragglers.h"

namespace shoal::sim {

inline constexpr uint32_t kMaxSimulatedRanks = 1u << 22;
static_assert(kMaxSimulatedRanks <= kMaxFailureHosts);
inline constexpr uint32_t kMaxSimulatedSaves = 1000;
inline constexpr uint32_t kMaxSimulatedLoads = 100;
inline constexpr uint32_t kMaxSimulatedObjects = 1000;
inline constexpr uint32_t kMaxSimulatedReads = 1000;  // after each save
inline constexpr uint32_t kMaxSimulatedReaders = 100;
inline constexpr uint32_t kMaxSimulatedRestarts = 1000;
inline constexpr uint32_t kDefaultSavesInFlight = 2;  // CheckpointerOptions::max_in_flight
inline constexpr uint32_t kMaxSavesInFlightOfARank = local::kMaxSlabsPerClient - 1;
// As `shoal plan` assumes them.
inline constexpr uint64_t kDefaultDetectMs = 60'000, kDefaultRestartAfterMs = 300'000;
// The maximum time from the begin of a save to the begin of the next one, and to its own end: one virtual
// day.
inline constexpr uint64_t kMaxSimulatedSaveMs = uint64_t{24} * 3600 * 1000;

// Who starts the nodes of a job.
enum class NodeStart : uint8_t {
  launcher,  // as `shoal launch`: nodes know their ranks, refuse others, and hear how a trainer ended
  trainers,  // as under torchrun: nodes learn their ranks as trainers attach, and see connections end
};

enum class CloseWhen : uint8_t {
  never,    // the simulation ends with the outcome of the last save
  decided,  // trainers close their Checkpointers when every save is decided; then the nodes end
  written,  // each trainer closes its Checkpointer as soon as all that it staged is written, and hears
            // nothing more; a node ends when its trainers have closed. No failure may end a node or a trainer
};

struct Scenario {
  uint32_t ranks = 512;
  uint32_t ranks_per_host = 8;
  std::string mesh;                   // "dp=8,tp=8,pp=8"; "": the model's usual mesh, with dp as the rest
  std::string model = "llama3-405b";  // a name of sim/jobs/model_table.h, or a path: sim/jobs/model_files.h
  Optimizer optimizer = Optimizer::adam;
  SaveMode mode = SaveMode::collective_free;
  NodeStart node_start = NodeStart::launcher;
  CloseWhen close_when = CloseWhen::never;
  Payload payload = Payload::counted;
  uint64_t unit_bytes = kDefaultUnitBytes;  // SaveOptions::unit_bytes
  Dedupe dedupe = Dedupe::balanced;         // SaveOptions::dedupe; mode rank-local always has none
  uint32_t saves = 2;
  uint32_t keep_last = 0;         // the coordinator's rule of retention: delete older checkpoints; 0: none
  uint32_t keep_every = 0;        // and keep those whose step is a multiple of this; 0: none
  uint64_t interval_ms = 60'000;  // training time between two saves
  uint64_t arrival_skew_ms = 0;   // each rank calls save up to this much later, drawn again for each save
  uint64_t arrival_skew_us = 0;   // added to arrival_skew_ms
  uint32_t max_in_flight = kDefaultSavesInFlight;  // CheckpointerOptions::max_in_flight
  // The memory that a rank has for each save: it stages one with more bytes in parts. 0: enough for all.
  uint64_t slab_bytes = 0;
  // Of such saves, those that are staged in parts, drawn for each rank and save; for the others memory is
  // found.
  uint32_t parts_permille = 1000;
  uint32_t max_direct_nodes = actors::kDefaultDirectNodes;  // further nodes use relays
  TomlPlace max_direct_nodes_place;
  uint32_t loads = 0;       // number of times that the job restarts and loads after the last save
  uint32_t load_ranks = 0;  // ranks of the restarted job; 0: as many as saved
  LoadMethod load_method = LoadMethod::automatic;
  // What loads do if the newest checkpoint is damaged, also those of a job that starts again.
  LoadFallback load_fallback = LoadFallback::none;
  std::string load_mesh;  // mesh of the restarted job; "": the same, or, with other ranks, as for `mesh`
  // How often the launcher starts the job again when a failure ends a trainer; 0: the other trainers go on
  // saving without it.
  uint32_t max_restarts = 0;
  // From the failure until the launcher has killed all processes of the job. Until then the other trainers
  // wait for the one that has ended, and nodes write what is staged.
  uint64_t detect_ms = kDefaultDetectMs;
  uint64_t restart_after_ms = kDefaultRestartAfterMs;  // from then until the processes of the next run start
  uint32_t restart_ranks = 0;                          // ranks of every later run; 0: as many as before
  std::string restart_mesh;  // mesh of every later run; "": the same, or, with other ranks, as for `mesh`
  // From this save on, the same ranks hold the state by another mesh; 0: never. Counted from 1.
  uint32_t later_mesh_from = 0;
  std::string later_mesh;  // as `mesh`
  // Only the ranks of so many pipeline stages, from the first one, change to it; 0: all. Needs equally many
  // stages in both meshes.
  uint32_t later_mesh_stages = 0;
  // Mode collective: the planner of a random rank makes a global plan of each save.
  bool has_planners = false;
  ReplicaCheck replica_check = ReplicaCheck::off;  // SaveOptions::replica_check
  uint32_t objects = 0;  // objects, such as random states, that the first stage saves besides its tensors
  // After the begin of each save, so many random trainers read checkpoints, each for itself. Needs true
  // bytes.
  uint32_t reads = 0;
  uint32_t readers = 0;  // jobs that only read the root: each loads the newest checkpoint at a random time
  std::string profile = "lustre";
  // Numbers of the profile that the job sets to other values; key `set`.
  std::map<std::string, int64_t> profile_numbers;
  RoleTimeouts timeouts;  // that the job sets to other values; also key `set`
  uint64_t seed = 1;
  Stragglers stragglers;
  std::vector<Failure> failures;  // failures listed in a scenario file
  // Rules for drawn failures in addition (sim/failures/failure_draws.h); key `failures`
  std::string failure_draws;
  // Of the slab through which parts pass, as a node would grant it; 0: no rank stages in parts.
  uint64_t parts_slab_bytes() const;
  uint32_t hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
  uint32_t most_ranks() const;  // of the job and of the runs that follow when it starts again
  uint32_t most_hosts() const { return (most_ranks() + ranks_per_host - 1) / ranks_per_host; }
  friend bool operator==(const Scenario&, const Scenario&) = default;
};

// Errors are "file:line: why", for an unknown key or a size out of range.
Result<Scenario> parse_scenario(std::string_view text, const std::string& file);
// Sets the value of a key of the file from text; a key with a point is a number of the profile,
// or a timeout of the roles.
// Code::invalid_argument. validate_scenario checks all values together.
Status set_value(Scenario& scenario, std::string_view key, std::string_view text);
// The mesh of a scenario. In "dp=8,tp=8", dp defaults to the rest of the ranks, and other missing dimensions
// to 1. For "", tp, pp and ep are the model's usual ones as far as the ranks allow. Code::invalid_argument if
// the product is not the number of ranks, or if the mesh does not fit the model.
Result<MeshShape> resolve_mesh(const Scenario& scenario, const Model& model);
Status validate_scenario(const Scenario& scenario);
// Returns the scenario with all failures in the list, sorted by time, and no rules for drawn failures.
Result<Scenario> with_all_failures(const Scenario& scenario);
// The name of the profile, with the numbers that the job sets: "lustre storage.sync_ns=0".
std::string profile_label(const Scenario& scenario);
// The sum of arrival_skew_ms and arrival_skew_us, in milliseconds: "9", "0.350".
std::string arrival_skew_text(const Scenario& scenario);
// The keys of a scenario file. scenario_text writes each of them, except `replay`, unless it has its default.
std::span<const std::string_view> scenario_keys();
// The scenario as a file that parse_scenario reads back.
std::string scenario_text(const Scenario& scenario);
// The scenario of the run that starts when the job restarts on this number of ranks.
Scenario restarted_job(const Scenario& scenario, uint32_t ranks);
// The scenario of every later run, if max_restarts is set.
Scenario relaunched_job(const Scenario& scenario);
// The same job with its later mesh as its mesh.
Scenario with_later_mesh(const Scenario& scenario);
// The scenario of the job that loads: with its ranks and mesh in place of those of the job that saves.
Scenario loading_job(const Scenario& scenario);

}  // namespace shoal::sim
