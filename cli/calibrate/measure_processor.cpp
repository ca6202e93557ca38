#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "actors/messages/messages.h"
#include "cli/calibrate/measure.h"
#include "gpu/stager.h"
#include "plan/saving/rank_plans.h"
#include "shoal/layout.h"
#include "shoal/save_plan.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kProcessorSeconds = 1.0;  // seconds of each measurement
constexpr uint32_t kTensors = 2000;
constexpr size_t kCopyBytes = size_t{256} << 20;
constexpr int kLocalRoundTrips = 2000;

// The median time of one call in seconds, over as many calls as there is time for.
template <class Call>
double median_of(Call&& call) {
  std::vector<double> times;
  const Clock::time_point begun = Clock::now();
  while (times.size() < 5 || (times.size() < 1000 && seconds_since(begun) < kProcessorSeconds)) {
    const Clock::time_point one = Clock::now();
    call();
    times.push_back(seconds_since(one));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// The report of a node for 64 ranks.
int64_t codec_rate() {
  actors::wire::ShardsWritten report;
  report.key = {1, 1000, 1};
  for (Rank rank = 0; rank < 64; ++rank) {
    report.plans.push_back({rank, PlanId{}});
    report.files.push_back({rank, 0, 5120, Hash128{}, 1024});
  }
  const actors::WireMessage message{actors::RoleKind::shard_writer, actors::RoleKind::coordinator,
                                    std::make_shared<const actors::WireBody>(std::move(report))};
  const Bytes bytes = actors::encode_wire(message);
  bool is_sound = true;
  const double seconds = median_of([&] {
    const Bytes encoded = actors::encode_wire(message);
    is_sound = is_sound && actors::decode_wire(encoded).ok();
  });
  SHOAL_CHECK(is_sound);
  return static_cast<int64_t>(2 * static_cast<double>(bytes.size()) / seconds);
}

// Times of plan_save for a rank of an FSDP x TP job with kTensors tensors, in seconds.
struct PlanTimings {
  double single = 0;    // plan of a single rank
  double of_class = 0;  // plan of a rank whose class has a plan already
};
PlanTimings plan_seconds() {
  const Mesh mesh = Mesh::contiguous({16, 8});
  LayoutBuilder builder;
  for (uint32_t i = 0; i < kTensors; ++i) {
    builder.add_tensor(fmt::format("layers.{}.weight", i), DType::bf16, {4096, 4096}, mesh,
                       {Placement::shard(0), Placement::shard(1)});
  }
  const LayoutPtr layout = std::move(builder).build().value();
  const auto world = rank_local_world(layout, 128).value();
  plan::RankPlans plans(world, {});
  SHOAL_CHECK(plans.plan(0).ok());
  Rank rank = 0;
  return {median_of([&] { SHOAL_CHECK(plan_save(*world, 5, {}).ok()); }),
          median_of([&] { SHOAL_CHECK(plans.plan(++rank % 128).ok()); })};
}

// A round trip of one byte between two threads, over a Unix socket.
double local_round_trip() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  std::thread answers([&] {
    char byte = 0;
    while (::read(ends[1], &byte, 1) == 1 && ::write(ends[1], &byte, 1) == 1) {
    }
  });
  char byte = 1;
  bool is_sound = true;
  const Clock::time_point begun = Clock::now();
  for (int i = 0; i < kLocalRoundTrips; ++i) {
    is_sound = is_sound && ::write(ends[0], &byte, 1) == 1 && ::read(ends[0], &byte, 1) == 1;
  }
  const double seconds = seconds_since(begun) / kLocalRoundTrips;
  ::shutdown(ends[0], SHUT_RDWR);
  answers.join();
  ::close(ends[0]);
  ::close(ends[1]);
  return is_sound ? seconds : 0;
}

double copy_seconds() {
  const std::unique_ptr<gpu::Stager> stager = gpu::make_host_stager();
  std::vector<std::byte> source(kCopyBytes, std::byte{1}), target(kCopyBytes);
  const gpu::CopyTask task{source.data(), target.data(), kCopyBytes, 1, 0};
  return median_of([&] { SHOAL_CHECK(stager->wait(stager->submit({&task, 1})).ok()); });
}

}  // namespace

MeasuredNumbers measure_processor() {
  const PlanTimings times = plan_seconds();
  const double plan = times.single / kTensors;
  return {
      {"cpu.codec_bytes_per_s", codec_rate(), true, "a report of 64 ranks encoded and decoded"},
      {"cpu.event_ns", 2000, false, "a mailbox, a lookup and an answer"},
      {"cpu.local_latency_ns", nanoseconds(local_round_trip() / 2), true,
       fmt::format("half of a round trip between two threads over a unix socket, of {}", kLocalRoundTrips)},
      {"cpu.plan_item_ns", nanoseconds(plan), true, fmt::format("a rank's plan of {} tensors", kTensors)},
      {"cpu.check_item_ns", nanoseconds(times.of_class / kTensors), true,
       "that of a rank that writes like another, as a coordinator plans it"},
      {"cpu.write_item_ns", nanoseconds(2 * plan), false, "plan_item_ns, doubled"},
      {"trainer.copy_bytes_per_s", static_cast<int64_t>(static_cast<double>(kCopyBytes) / copy_seconds()),
       true, "256 MiB copied from memory to memory by one thread"},
  };
}

}  // namespace shoal::cli
