// Measured costs: what a save, a load, an aborted save and a start of all ranks cost a job, by short runs of
// the production roles (sim/simulation.h). A renewal simulation of months draws from them
// (sim/lifetime/job_life.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "sim/jobs/scenario.h"
#include "sim/lifetime/job_life.h"
#include "sim/models/profile.h"

namespace shoal::sim {

// A save by the roles. Times of the slowest rank, from the begin of the save.
struct MeasuredSave {
  actors::TimeNs planned = 0;    // until each rank knew what to write
  actors::TimeNs blocked = 0;    // until save() had returned
  actors::TimeNs written = 0;    // until the last byte was durable
  actors::TimeNs committed = 0;  // until all ranks were notified of the commit
};
// All ranks start at once, and load. From the start of the nodes.
struct MeasuredLoad {
  actors::TimeNs found = 0;   // until each rank knew what to read
  actors::TimeNs loaded = 0;  // until each rank had its bytes
};
struct MeasuredCosts {
  Scenario job;
  MeshShape mesh;
  uint64_t parameters = 0, bytes = 0;  // of the model; of a checkpoint
  uint32_t hosts = 0;
  std::vector<MeasuredSave> saves;             // without the first one of each run
  MeasuredSave first_save;                     // of the first run
  std::vector<MeasuredLoad> loads;             // of a job that was killed between two saves
  std::vector<MeasuredLoad> loads_after_save;  // of a job that was killed in the middle of one
  // A host dies in the middle of a save: from then until each living rank is notified of the abort. None: it
  // was not measured, or the save was committed all the same.
  std::optional<actors::TimeNs> abort;
};

inline constexpr uint32_t kMaxRanksOfTwoLoads = 8192;
struct MeasureOptions {
  uint32_t runs = 0;  // of saves; 0: by the size of the job
  // Measure loads. Beyond kMaxRanksOfTwoLoads ranks only one, after a kill in a save, because it takes long.
  bool has_loads = true;
  bool has_abort = true;     // measure an aborted save
  unsigned threads = 0;      // 0: as many as there are processors
  bool (*stop)() = nullptr;  // as in SimulationWatch; Code::aborted
};
// How far a measurement is, for other threads.
struct MeasureProgress {
  std::atomic<uint64_t> runs{0}, ended{0}, events{0};
};
// `scenario`: a job without failures; its seed is that of the first run. Code::aborted if a save of the job
// is not committed without any failure, which names the cause.
Result<MeasuredCosts> measure_costs(const Scenario& scenario, const Profile& profile,
                                    const MeasureOptions& options = {}, MeasureProgress* progress = nullptr);

// How a saver uses what the roles measured.
enum class Saver : uint8_t {
  shoal,        // save() returns when everything is staged, and the node stores it
  synchronous,  // the trainer waits until the checkpoint exists, which takes as long
  background,   // DCP's async_save: the trainer waits for its copy; planning too is in the background
};
JobCosts costs_of(const MeasuredCosts& measured, Saver saver);
// The profile with the planner, the messages and the processor of PyTorch DCP, from its own profile, and
// network, storage and trainer of this one.
Profile with_dcp(const Profile& profile, const Profile& dcp);

}  // namespace shoal::sim
