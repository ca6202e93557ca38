#include "sim/campaign/swarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

template <class T, size_t N>
const T& one_of(const std::array<T, N>& values, Random& random) {
  return values[random.below(N)];
}

// "": dp alone. Else also tp, pp and copies, as far as they divide the ranks.
std::string draw_mesh(uint32_t ranks, Random& random) {
  if (random.below(2) == 0) return "";
  std::string mesh;
  for (const char* name : {"tp", "pp", "dp_replicate"}) {
    if (ranks % 2 != 0 || random.below(2) == 0) continue;
    ranks /= 2;
    mesh += fmt::format("{}{}=2", mesh.empty() ? "" : ",", name);
  }
  return mesh;
}

bool has_two_stages(const std::string& mesh) {
  return mesh.find("pp=2") != std::string::npos;
}

// Shorter timeouts, so that what they bound happens in a run of seconds. Leases end while a checkpoint is
// kept open, hosts are lost while others still save, and saves are given up while a disk hangs.
void draw_timeouts(Random& random, Scenario* job) {
  if (random.below(2) == 0) {
    job->timeouts["lease_renew_ms"] = 200;
    job->timeouts["lease_ttl_ms"] = 2'000;
  }
  if (random.below(3) == 0) job->timeouts["report_partial_after_ms"] = 50;
  if (random.below(3) == 0) job->timeouts["epoch_check_ms"] = 500;
  if (random.below(3) == 0) job->timeouts["chunk_deadline_ms"] = 300;
  if (random.below(3) == 0) job->timeouts["resend_first_ms"] = 50;
  if (random.below(3) == 0) {
    job->timeouts["host_lost_ms"] = 4'000;
    if (random.below(2) == 0) {  // as many times as long as by default
      job->timeouts["attempt_deadline_ms"] = 32'000;
      job->timeouts["node_deadline_ms"] = 80'000;
    }
  }
}

// The bytes of tiny-blocks take time, and more ranks would hold less than a digest block each.
constexpr uint32_t kRanksOfBlocks = 4;

Scenario draw_job(uint64_t seed, SaveMode mode, Random& random) {
  Scenario job;
  job.seed = seed;
  job.model = "tiny";
  job.payload = Payload::full;
  // Mostly few tensors, because a run then takes less time.
  job.optimizer = random.below(4) == 0 ? Optimizer::adam : Optimizer::none;
  job.profile = kSwarmProfiles[random.below(std::size(kSwarmProfiles))];
  job.mode = mode;
  job.ranks_per_host = one_of(std::array{1u, 2u, 4u}, random);
  job.ranks = job.ranks_per_host * static_cast<uint32_t>(1 + random.below(6));
  job.mesh = draw_mesh(job.ranks, random);
  if (job.ranks <= kRanksOfBlocks && random.below(20) == 0) job.model = "tiny-blocks";
  // With the least unit, ranks that share a tensor write several files.
  const bool has_copies = job.mesh.find("dp_replicate") != std::string::npos;
  if (random.below(4) == 0 || (has_copies && random.below(4) != 0)) job.unit_bytes = 1024;
  job.saves = static_cast<uint32_t>(2 + random.below(7));
  // From saves back to back to saves that find the job recovered from all failures.
  job.interval_ms = one_of(std::array<uint64_t, 6>{1, 20, 150, 600, 3'000, 30'000}, random);
  job.arrival_skew_ms = one_of(std::array<uint64_t, 4>{0, 0, 5, 200}, random);
  if (random.below(3) == 0) {
    job.loads = 1;
    job.load_ranks = static_cast<uint32_t>(1 + random.below(job.ranks + 4));
    job.load_mesh = draw_mesh(job.load_ranks, random);
    job.load_method =
        one_of(std::array{LoadMethod::automatic, LoadMethod::direct, LoadMethod::two_stage}, random);
  }
  if (random.below(3) == 0) job.keep_last = static_cast<uint32_t>(1 + random.below(3));
  if (random.below(2) == 0) draw_timeouts(random, &job);
  if (random.below(4) == 0) job.max_direct_nodes = static_cast<uint32_t>(3 + random.below(3));
  if (random.below(3) == 0) job.reads = static_cast<uint32_t>(1 + random.below(3));
  if (random.below(4) == 0) job.objects = 1;
  if (random.below(2) == 0) job.load_fallback = LoadFallback::previous;
  if (random.below(4) == 0) job.readers = static_cast<uint32_t>(1 + random.below(3));
  if (mode != SaveMode::rank_local && has_copies && random.below(2) == 0) {
    job.replica_check = random.below(2) == 0 ? ReplicaCheck::warn : ReplicaCheck::abort;
  }
  job.has_planners = mode == SaveMode::collective && random.below(3) == 0;
  if (random.below(5) == 0) {
    job.later_mesh_from = static_cast<uint32_t>(2 + random.below(job.saves - 1));
    job.later_mesh = draw_mesh(job.ranks, random);
    if (has_two_stages(job.mesh) && random.below(2) == 0) {
      job.later_mesh_stages = 1;
      while (!has_two_stages(job.later_mesh)) job.later_mesh = draw_mesh(job.ranks, random);
    }
  }
  return job;
}

// How many saves of a rank may be in flight, and whether ranks stage in parts: one part a file, except of
// tiny-blocks. Drawn apart, so that the rest of a job does not depend on it.
void draw_staging(uint64_t seed, Scenario* job) {
  Random random(stream_seed(seed, Stream::staging));
  if (random.below(3) == 0) job->max_in_flight = one_of(std::array{1u, 3u, 4u}, random);
  if (random.below(job->model == "tiny-blocks" ? 2 : 6) != 0) return;
  job->slab_bytes = one_of(std::array<uint64_t, 4>{1, 1, 4096, 16'384}, random);
  job->parts_permille = one_of(std::array{1000u, 1000u, 500u}, random);
}

// Which kinds the failures of one job are of, besides restarts of the job.
enum class Theme : uint8_t {
  all,       // any
  some,      // a group of kinds, or one to three: such a job shows what other failures would excuse
  harmless,  // brief failures that a save must survive
  replicas,  // bits that flip in one of several copies in memory; no other failure hides them
  damage,    // bits that flip on the disk and on the way to peers, then a restart of the job, which loads
  deletion,  // checkpoints are deleted while nodes that are late still look at them
  late,      // a write hangs, its trainer is away for a while, and the save is aborted meanwhile
};

constexpr std::array kHarmless = {
    Failure::Kind::stalls, Failure::Kind::restarts, Failure::Kind::coordinates, Failure::Kind::cut,
    Failure::Kind::delays, Failure::Kind::doubles,  Failure::Kind::reorders,    Failure::Kind::reads_fail,
    Failure::Kind::sweeps, Failure::Kind::stops,    Failure::Kind::reopens,     Failure::Kind::twins,
};

// Kinds that belong together: trainers, nodes, links, disks.
const std::array<std::vector<Failure::Kind>, 8> kGroups = {{
    {Failure::Kind::ends, Failure::Kind::vanishes, Failure::Kind::disk_slow},
    {Failure::Kind::reconnects},
    {Failure::Kind::ends, Failure::Kind::vanishes, Failure::Kind::reconnects, Failure::Kind::reopens},
    {Failure::Kind::dies, Failure::Kind::stalls, Failure::Kind::restarts, Failure::Kind::coordinates,
     Failure::Kind::stops},
    {Failure::Kind::cut, Failure::Kind::loses, Failure::Kind::delays, Failure::Kind::doubles,
     Failure::Kind::reorders},
    {Failure::Kind::twins, Failure::Kind::reconnects, Failure::Kind::reopens, Failure::Kind::delays},
    {Failure::Kind::disk_hangs, Failure::Kind::reconnects, Failure::Kind::dies, Failure::Kind::restarts},
    {Failure::Kind::disk_slow, Failure::Kind::disk_hangs, Failure::Kind::disk_fails, Failure::Kind::disk_full,
     Failure::Kind::reads_fail, Failure::Kind::disk_loses},
}};

// That any aim may have in a job whose trainers close without hearing outcomes.
constexpr std::array kForClosedTrainers = {
    Failure::Kind::stalls,     Failure::Kind::cut,       Failure::Kind::loses,      Failure::Kind::delays,
    Failure::Kind::doubles,    Failure::Kind::reorders,  Failure::Kind::disk_slow,  Failure::Kind::disk_hangs,
    Failure::Kind::disk_fails, Failure::Kind::disk_full, Failure::Kind::reads_fail, Failure::Kind::disk_loses,
    Failure::Kind::reconnects, Failure::Kind::sweeps,
};

constexpr std::array kOfOperators = {Failure::Kind::pins,     Failure::Kind::tags,    Failure::Kind::removes,
                                     Failure::Kind::collects, Failure::Kind::sweeps,  Failure::Kind::rots,
                                     Failure::Kind::rots,     Failure::Kind::corrupts};

// A third of the jobs have operators, or disks and networks in which bits flip. They excuse nothing, so any
// job may have them.
std::vector<Aim> draw_operators(Random& random) {
  std::vector<Aim> acts;
  if (random.below(3) != 0) return acts;
  const uint64_t count = 1 + random.below(4);
  for (uint64_t i = 0; i < count; ++i) acts.push_back({{one_of(kOfOperators, random)}});
  return acts;
}

Aim draw_aim(Theme theme, Random& random) {
  Aim aim;
  if (theme == Theme::harmless) {
    aim.kinds.assign(kHarmless.begin(), kHarmless.end());
    aim.is_brief = true;
  }
  if (theme == Theme::replicas) return {{Failure::Kind::flips}};
  if (theme == Theme::damage) return {{Failure::Kind::rots, Failure::Kind::corrupts}};
  if (theme == Theme::deletion) {
    aim.kinds = {Failure::Kind::collects, Failure::Kind::removes,   Failure::Kind::stalls,
                 Failure::Kind::delays,   Failure::Kind::disk_slow, Failure::Kind::reconnects};
    return aim;
  }
  if (theme == Theme::some && random.below(2) == 0) return {one_of(kGroups, random)};
  const uint64_t some = theme == Theme::some ? 1 + random.below(3) : 0;
  for (uint64_t i = 0; i < some; ++i) {
    aim.kinds.push_back(static_cast<Failure::Kind>(random.below(Failure::kMixedKinds)));
  }
  return aim;
}

// As the job that saved, unless it loads already.
void load_once(Scenario* job) {
  if (job->loads != 0) return;
  job->loads = 1;
  job->load_ranks = job->ranks;
  job->load_mesh = job->mesh;
}

// How the job ends. Trainers that hear no outcome rule out some failures.
void draw_end(Random& random, Scenario* job, std::vector<Aim>* aims) {
  job->close_when = one_of(std::array{CloseWhen::never, CloseWhen::decided, CloseWhen::decided,
                                      CloseWhen::decided, CloseWhen::written},
                           random);
  if (job->close_when != CloseWhen::written) return;
  job->failure_draws.clear();
  job->replica_check = ReplicaCheck::off;
  for (Aim& aim : *aims) {
    if (aim.kinds.empty()) aim.kinds.assign(kForClosedTrainers.begin(), kForClosedTrainers.end());
    std::erase_if(aim.kinds, [](Failure::Kind kind) { return !is_for_closed_trainers(kind); });
  }
  std::erase_if(*aims, [](const Aim& aim) { return aim.kinds.empty(); });
}

// A job of its own.
Result<Scenario> draw_plain_case(uint64_t seed, SaveMode mode, const SwarmLimits& limits,
                                 const ProfileByName& profiles, AimCounts* counts) {
  Random random(stream_seed(seed, Stream::swarm));
  Scenario job = draw_job(seed, mode, random);
  draw_staging(seed, &job);
  const auto failures = static_cast<uint32_t>(random.below(limits.most_failures + 1));
  Theme theme = one_of(std::array{Theme::all, Theme::all, Theme::all, Theme::some, Theme::some,
                                  Theme::harmless, Theme::harmless, Theme::damage},
                       random);
  if (random.below(8) == 0) theme = one_of(std::array{Theme::deletion, Theme::late}, random);
  if (theme == Theme::deletion) job.keep_last = 1;
  if (theme == Theme::damage) load_once(&job);
  if (job.has_planners && random.below(2) == 0) theme = Theme::harmless;  // other failures abort its saves
  if (job.replica_check != ReplicaCheck::off && random.below(2) == 0) theme = Theme::replicas;
  const uint32_t by_clock = theme == Theme::all && random.below(3) == 0 ? failures / 2 : 0;
  if (by_clock != 0) {
    const uint64_t until_ms = job.saves * (job.interval_ms + 50) + 100;
    job.failure_draws = fmt::format("mixed:count={},until_ms={}", by_clock, until_ms);
  }
  const uint32_t aimed = failures - by_clock;
  const uint32_t drawn = std::min(aimed, one_of(std::array{0u, 0u, 0u, 1u, 1u, 2u}, random));
  const uint32_t restarts =
      theme == Theme::harmless || theme == Theme::replicas || theme == Theme::late ? 0 : drawn;
  std::vector<Aim> aims(aimed - restarts, draw_aim(theme, random));
  if (theme == Theme::late && aimed != 0) {
    aims = {{.kinds = {Failure::Kind::disk_hangs}, .moment = "node: WriteShard"},
            {.kinds = {Failure::Kind::reconnects}, .is_near = true},
            {.kinds = {Failure::Kind::ends, Failure::Kind::vanishes, Failure::Kind::dies}}};
  }
  if (theme == Theme::damage && aimed != 0) {
    aims.push_back({{Failure::Kind::job_restarts}});
    if (random.below(2) == 0) job.load_method = LoadMethod::two_stage;
  }
  for (uint32_t i = 0; i < restarts; ++i) {
    aims.insert(aims.begin() + static_cast<ptrdiff_t>(random.below(aims.size() + 1)),
                Aim{{Failure::Kind::job_restarts}});
  }
  if (random.below(2) == 0) job.node_start = NodeStart::trainers;
  if (limits.most_failures != 0) {
    for (Aim& act : draw_operators(random)) {
      aims.insert(aims.begin() + static_cast<ptrdiff_t>(random.below(aims.size() + 1)), std::move(act));
    }
  }
  // With copies, a load may read a damaged block from another file.
  if (mode != SaveMode::rank_local && random.below(4) == 0) {
    job.dedupe = random.below(4) == 0 ? Dedupe::lowest_rank : Dedupe::none;
  }
  if (theme != Theme::deletion && random.below(6) == 0) {
    job.keep_every = static_cast<uint32_t>(2 + random.below(2));
  }
  // The run that starts again loads among failures. So few ranks share a load only if they are told to.
  if (restarts != 0 && random.below(3) == 0) {
    load_once(&job);
    job.load_method = LoadMethod::two_stage;
  }
  if (limits.also) aims.push_back(*limits.also);
  draw_end(random, &job, &aims);
  return aim_failures(job, profiles(job.profile), aims, seed, counts);
}

// The seed of a job of this mode that takes a rare path. Each rare path is equally likely.
std::optional<uint64_t> draw_rare_seed(const RareSeeds& rare, SaveMode mode, Random& random) {
  std::vector<const std::vector<uint64_t>*> of_mode;
  for (const auto& [key, seeds] : rare) {
    if (key.mode == mode && !seeds.empty()) of_mode.push_back(&seeds);
  }
  if (of_mode.empty()) return std::nullopt;
  const std::vector<uint64_t>& seeds = *of_mode[random.below(of_mode.size())];
  return seeds[random.below(seeds.size())];
}

}  // namespace

Result<Scenario> draw_case(uint64_t seed, const SwarmLimits& limits, const ProfileByName& profiles,
                           AimCounts* counts) {
  Random random(stream_seed(seed, Stream::continued));
  const SaveMode drawn = static_cast<SaveMode>(random.below(3));
  const SaveMode mode = limits.mode.value_or(drawn);
  const bool continues = limits.rare != nullptr && limits.most_failures != 0 && random.below(3) == 0;
  const auto rare = continues ? draw_rare_seed(*limits.rare, mode, random) : std::nullopt;
  if (!rare) return draw_plain_case(seed, mode, limits, profiles, counts);
  AimCounts of_other;
  SwarmLimits of_rare = limits;
  of_rare.also.reset();
  SHOAL_ASSIGN_OR_RETURN(Scenario other, draw_plain_case(*rare, mode, of_rare, profiles, &of_other));
  std::vector<Aim> aims(1 + random.below(2), draw_aim(Theme::all, random));
  if (other.close_when == CloseWhen::written)
    other.close_when = CloseWhen::decided;  // any failure may follow
  if (limits.also) aims.push_back(*limits.also);
  return aim_failures(other, profiles(other.profile), aims, seed, counts);
}

}  // namespace shoal::sim
