#include "sim/campaign/swarm.h"

#include <fmt/format.h>

#include <array>

#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

template <class T, size_t N>
const T& one_of(const std::array<T, N>& values, Random& random) {
  return values[random.below(N)];
}

Scenario draw_job(uint64_t seed, const SwarmLimits& limits, Random& random) {
  Scenario job;
  job.seed = seed;
  // A rank of the last one writes several files.
  job.model =
      one_of(std::array<const char*, 8>{"tiny", "tiny", "tiny", "tiny", "tiny", "gpt2", "gpt2", "llama3-8b"},
             random);
  job.payload = Payload::counted;
  job.profile = kSwarmProfiles[random.below(std::size(kSwarmProfiles))];
  const SaveMode drawn = static_cast<SaveMode>(random.below(3));
  job.mode = limits.mode.value_or(drawn);
  job.ranks_per_host = one_of(std::array{1u, 2u, 4u}, random);
  job.ranks = job.ranks_per_host * static_cast<uint32_t>(1 + random.below(6));
  job.saves = static_cast<uint32_t>(2 + random.below(7));
  // From saves back to back to saves that find the job recovered from all failures.
  job.interval_ms = one_of(std::array<uint64_t, 6>{1, 20, 150, 600, 3'000, 30'000}, random);
  job.arrival_skew_ms = one_of(std::array<uint64_t, 4>{0, 0, 5, 200}, random);
  if (random.below(3) == 0) {
    job.loads = 1;
    job.load_ranks = static_cast<uint32_t>(1 + random.below(job.ranks + 4));
  }
  if (random.below(4) == 0) job.max_direct_nodes = static_cast<uint32_t>(3 + random.below(3));
  return job;
}

}  // namespace

Result<Scenario> draw_case(uint64_t seed, const SwarmLimits& limits, const ProfileByName& profiles,
                           AimCounts* counts) {
  Random random(stream_seed(seed, Stream::swarm));
  Scenario job = draw_job(seed, limits, random);
  const auto failures = static_cast<uint32_t>(random.below(limits.most_failures + 1));
  const uint32_t by_clock = random.below(3) == 0 ? failures / 2 : 0;
  if (by_clock != 0) {
    const uint64_t until_ms = job.saves * (job.interval_ms + 50) + 100;
    job.failure_draws = fmt::format("mixed:count={},until_ms={}", by_clock, until_ms);
  }
  return aim_failures(job, profiles(job.profile), failures - by_clock, seed, counts);
}

}  // namespace shoal::sim
