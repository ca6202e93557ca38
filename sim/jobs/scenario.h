// Scenario: a job to be simulated, by flags or from a TOML file (sim/scenarios/). What it lacks has the value
// here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node/links/relay_tree.h"
#include "shoal/load_times.h"
#include "shoal/save_plan.h"
#include "shoal/status.h"
#include "sim/basics/toml_tree.h"
#include "sim/failures/fault.h"
#include "sim/jobs/model_table.h"
#include "sim/jobs/payload.h"
#include "sim/jobs/stragglers.h"

namespace shoal::sim {

inline constexpr uint32_t kMaxSimulatedRanks = 1u << 20;
inline constexpr uint32_t kMaxSimulatedSaves = 1000;
inline constexpr uint32_t kMaxSimulatedLoads = 100;
// From the begin of a save to that of the next, and to its own end: a virtual day, beyond which none goes on.
inline constexpr uint64_t kMaxSimulatedSaveMs = uint64_t{24} * 3600 * 1000;

struct Scenario {
  uint32_t ranks = 512;
  uint32_t ranks_per_host = 8;
  std::string mesh;  // "dp=8,tp=8,pp=8"; "": what the model is trained with, dp being the rest
  std::string model = "llama3-405b";  // of sim/jobs/model_table.h, or a path: sim/jobs/model_files.h
  Optimizer optimizer = Optimizer::adam;
  SaveMode mode = SaveMode::collective_free;
  Payload payload = Payload::counted;
  uint32_t saves = 2;
  uint64_t interval_ms = 60'000;  // of training, between two saves
  uint64_t arrival_skew_ms = 0;   // each rank comes to a save up to so much later, drawn anew
  uint64_t arrival_skew_us = 0;   // the same, added to it
  uint32_t max_direct_nodes = actors::kDefaultDirectNodes;  // beyond them nodes speak through relays
  SaidAt max_direct_nodes_said_at;
  uint32_t loads = 0;       // after the last save: so many times the job starts again and loads it
  uint32_t load_ranks = 0;  // of the job that starts again; 0: as many as saved
  LoadWay load_way = LoadWay::automatic;
  std::string load_mesh;  // of that one; "": the same, or of other ranks as for `mesh`
  std::string profile = "lustre";
  uint64_t seed = 1;
  Stragglers stragglers;
  std::vector<Fault> failures;  // listed one by one, in a file alone
  std::string failure_draws;  // and drawn besides, by this rule (sim/failures/fault_draws.h); key `failures`
  uint32_t hosts() const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
  friend bool operator==(const Scenario&, const Scenario&) = default;
};

// "file:line: why" of an unknown key or an absurd size.
Result<Scenario> parse_scenario(std::string_view text, const std::string& file);
// Sets the value of a key of the file, as text. Code::invalid_argument; of all values together:
// validate_scenario.
Status set_value(Scenario& scenario, std::string_view key, std::string_view text);
// "dp=8,tp=8": of those that are not named, dp is what is left of the ranks and the others are 1; of "" tp,
// pp and ep are the model's usual ones as far as the ranks allow. Code::invalid_argument where they do not
// multiply to the ranks, or do not fit the model.
Result<MeshShape> resolve_mesh(const Scenario& scenario, const Model& model);
Status validate_scenario(const Scenario& scenario);
// All faults in the list, ascending by time, and none to be drawn.
Result<Scenario> with_all_faults(const Scenario& scenario);
// Of arrival_skew_ms and arrival_skew_us together, in milliseconds: "9", "0.350".
std::string arrival_skew_text(const Scenario& scenario);
// As a file, which parse_scenario reads back.
std::string scenario_text(const Scenario& scenario);
// The job that loads: its ranks and mesh in place of those that save.
Scenario loading_job(const Scenario& scenario);

}  // namespace shoal::sim
