// Measures a root in an object store by what a node calls when it starts.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "cli/doctor/measure_facts.h"
#include "shoal/hash.h"
#include "storage/root/run_root.h"
#include "storage/s3/s3_storage.h"

namespace shoal::cli {

namespace {

constexpr int kBucketTries = 3;  // of a request: nobody waits for a job here
constexpr uint32_t kBucketRaces = 16;
constexpr uint64_t kBucketRateBytes = uint64_t{8} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto begun = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

// Two threads create each name at about the same moment.
RootFacts::Race race_in(storage::Storage& storage, const std::string& folder) {
  RootFacts::Race race;
  for (uint32_t i = 0; i < kBucketRaces && race.failed.ok(); ++i) {
    const std::string path = fmt::format("{}/race-{}", folder, i);
    Result<bool> created[2] = {Result<bool>(false), Result<bool>(false)};
    std::thread other([&] { created[1] = storage.create_exclusive(path, as_view("b")); });
    created[0] = storage.create_exclusive(path, as_view("a"));
    other.join();
    for (const Result<bool>& each : created) {
      if (!each.ok() && race.failed.ok()) race.failed = each.status();
    }
    if (!race.failed.ok()) break;
    ++race.names;
    race.with_two_creators += *created[0] && *created[1];
    race.without_creator += !*created[0] && !*created[1];
    if (Status removed = storage.remove(path); !removed.ok()) race.failed = removed;
  }
  return race;
}

RootFacts::Rate rate_in(storage::Storage& storage, const std::string& folder) {
  RootFacts::Rate rate;
  const std::string path = folder + "/rate";
  const Bytes data(kBucketRateBytes);
  rate.bytes = data.size();
  rate.write_seconds = seconds_of([&] { rate.failed = storage.create_exclusive(path, data).status(); });
  if (!rate.failed.ok()) return rate;
  rate.read_seconds = seconds_of([&] { rate.failed = storage.read(path, data.size()).status(); });
  const Status removed = storage.remove(path);
  if (rate.failed.ok()) rate.failed = removed;
  return rate;
}

}  // namespace

BucketFacts measure_bucket(const std::string& root, const std::function<bool()>& is_stopped) {
  BucketFacts facts;
  facts.root = root;
  auto settings = storage::find_s3_settings(root, storage::process_environment());
  facts.settings = settings.status();
  if (!settings.ok()) return facts;
  facts.endpoint = settings->endpoint;
  facts.region = settings->region;
  facts.credentials = settings->credentials().status();
  if (!facts.credentials.ok()) return facts;
  storage::S3Retries retries;
  retries.tries_max = kBucketTries;
  auto opened = storage::S3Storage::open(std::move(*settings), retries);
  facts.listing = opened.status();
  if (!opened.ok()) return facts;
  storage::S3Storage& storage = **opened;
  const auto id = storage::open_root(storage, false, RootId{});
  facts.identity = id.status();
  if (id.ok()) facts.run = id->to_hex();
  const std::string folder = std::string(storage::kProbesFolder) + "/doctor-" + random_128().to_hex();
  if (!is_stopped()) facts.probe = storage::probe_storage(storage, random_128());
  if (facts.probe.ok() && !is_stopped()) facts.race = race_in(storage, folder);
  if (facts.probe.ok() && !is_stopped()) facts.rate = rate_in(storage, folder);
  facts.clock_ahead_s = storage.clock_ahead_s();
  return facts;
}

}  // namespace shoal::cli
