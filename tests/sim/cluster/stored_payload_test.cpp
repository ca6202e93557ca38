// Full payloads: the same roles over stored bytes give the same messages, costs and times as in a counted
// run, and the bytes are read back.
#include "sim/cluster/stored_payload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kState = 5;
constexpr uint32_t kSavingRanks = 16, kLoadingRanks = 8, kRanksPerHost = 4;

std::vector<std::vector<Rank>> hosts_of(uint32_t ranks) {
  std::vector<std::vector<Rank>> nodes(ranks / kRanksPerHost);
  for (Rank rank = 0; rank < ranks; ++rank) nodes[rank / kRanksPerHost].push_back(rank);
  return nodes;
}

// Everything that a run shows.
struct Seen {
  std::vector<std::string> transcript;  // messages between nodes and their sizes in bytes
  std::vector<std::vector<actors::TimeNs>> times;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> trace_hashes;
};

void look_at(VirtualCluster& cluster, Seen& seen) {
  const StorageCounts storage = cluster.storage();
  const CoordinatorCounts coordinator = cluster.coordinator_counts();
  const CoordinatorLoad state = cluster.coordinator_load();
  seen.counts.insert(
      seen.counts.end(),
      {storage.changes, storage.looks, storage.listed, storage.syncs, storage.bytes_written,
       storage.bytes_read, coordinator.messages_in, coordinator.messages_out, coordinator.bytes_in,
       coordinator.bytes_out, coordinator.longest_queue, static_cast<uint64_t>(coordinator.busy_ns),
       cluster.record_bytes(), state.memory_bytes, state.descriptors});
  seen.trace_hashes.push_back(cluster.trace_hash());
}

void write_down(VirtualCluster& cluster, Seen& seen) {
  cluster.on_message([&seen](size_t from, size_t to, const actors::WireMessage& message, uint64_t bytes) {
    seen.transcript.push_back(std::to_string(from) + " -> " + std::to_string(to) + ": " +
                              actors::describe(*message.body) + ", " + std::to_string(bytes));
  });
}

// Two saves of 16 ranks, then a load of the last by 8; `payload`: null in a counted run.
Seen run(SaveMode mode, StoredPayload* payload, const std::string& profile_name = "nvme", uint64_t seed = 1) {
  Seen seen;
  const Profile profile = profile_named(profile_name);
  CountedTrainers::Job job;
  job.layouts = pipeline_job(kSavingRanks, 2, 2);
  job.ranks = kSavingRanks;
  job.ranks_per_host = kRanksPerHost;
  job.options.mode = mode;
  if (mode == SaveMode::rank_local) job.options.dedupe = Dedupe::none;
  job.saves = 2;
  job.interval_ns = 1000 * actors::kMillisecond;
  job.payload = payload;
  EventHeap events;
  VirtualCluster cluster(events, profile, seed,
                         {.mode = mode, .ranks_of_node = hosts_of(kSavingRanks), .world_size = kSavingRanks});
  cluster.counted_root().will_be_loaded();
  if (payload != nullptr) cluster.keep_bytes(payload);
  write_down(cluster, seen);
  CountedTrainers trainers(events, cluster, profile, job, [](uint32_t) {});
  trainers.start();
  while (!trainers.done() && trainers.failure().ok() && !events.empty()) events.run_next();
  EXPECT_TRUE(trainers.failure().ok()) << trainers.failure().to_string();
  for (const TrainerTimings& save : trainers.times()) {
    EXPECT_EQ(save.aborted_ranks, 0u) << save.cause;
    for (const auto& column : {save.plan_received, save.blocked, save.written, save.committed}) {
      seen.times.push_back(column);
    }
    seen.counts.push_back(save.bytes_staged);
  }
  look_at(cluster, seen);

  EventHeap later;
  VirtualCluster restarted(
      later, profile, 2,
      {.mode = mode, .ranks_of_node = hosts_of(kLoadingRanks), .world_size = kLoadingRanks, .generation = 2});
  restarted.counted_root().will_be_loaded();
  restarted.counted_root().continue_from(cluster.counted_root());
  CountedLoads::Job loading;
  loading.layouts = {flat_job(kLoadingRanks, kSavingRanks - 1).front()};  // of the same values
  loading.ranks = kLoadingRanks;
  loading.ranks_per_host = kRanksPerHost;
  if (payload != nullptr) restarted.keep_bytes(payload);
  write_down(restarted, seen);
  CountedLoads loads(later, restarted, profile, loading);
  loads.start();
  while (!loads.done() && loads.failure().ok() && !later.empty()) later.run_next();
  EXPECT_TRUE(loads.done()) << loads.failure().to_string();
  seen.times.push_back(loads.found());
  seen.times.push_back(loads.loaded());
  seen.counts.push_back(loads.bytes_passed());
  look_at(restarted, seen);
  return seen;
}

TEST(AFullRun, SaysCostsAndTakesWhatACountedOneDoes) {
  for (SaveMode mode : kModes) {
    SCOPED_TRACE(mode_name(mode));
    StoredPayload payload;
    const Seen full = run(mode, &payload);
    EXPECT_TRUE(payload.disagreement().ok()) << payload.disagreement().to_string();
    EXPECT_GT(payload.used_bytes(), full.counts[0] + full.counts[1]) << "the bytes of two saves lie there";
    EXPECT_GE(payload.bytes_checked(), 4u * 4 * (96 * 40 + 37 * 24 + 50) + kSimulatedObjectBytes)
        << "all tensors were read back";
    const Seen counted = run(mode, nullptr);
    EXPECT_EQ(full.transcript, counted.transcript);
    EXPECT_EQ(full.times, counted.times);
    EXPECT_EQ(full.counts, counted.counts);
    EXPECT_EQ(full.trace_hashes, counted.trace_hashes);
  }
}

// A node looks before the last manifest exists, and gets the answer when it exists.
TEST(AFullRun, FindsWhatACountedOneFoundWhenItLooked) {
  for (const char* profile : {"lustre", "nvme", "object-store"}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(std::string(profile) + ", seed " + std::to_string(seed));
      StoredPayload payload;
      const Seen full = run(SaveMode::rank_local, &payload, profile, seed);
      ASSERT_TRUE(payload.disagreement().ok()) << payload.disagreement().to_string();
      const Seen counted = run(SaveMode::rank_local, nullptr, profile, seed);
      ASSERT_EQ(full.trace_hashes.front(), counted.trace_hashes.front()) << "of the saves";
    }
  }
}

TEST(KnownBytes, AreThoseOfTheElementWhereverItLies) {
  const Dims shape{7, 5};
  for (uint64_t element_bytes : {1u, 2u, 4u, 8u, 16u}) {
    Bytes all(7 * 5 * element_bytes);
    fill_with_known_bytes(kState, "w", shape, Box{{0, 0}, shape}, element_bytes, 0, all);
    const Box box{{2, 1}, {3, 3}};
    Bytes part((3 * 3 - 2) * element_bytes);  // from its third element on
    fill_with_known_bytes(kState, "w", shape, box, element_bytes, 2 * element_bytes, part);
    for (uint64_t element = 2; element < 9; ++element) {
      const uint64_t at = ((2 + element / 3) * 5 + 1 + element % 3) * element_bytes;
      for (uint64_t byte = 0; byte < element_bytes; ++byte) {
        EXPECT_EQ(part[(element - 2) * element_bytes + byte], all[at + byte]) << element << ", " << byte;
      }
    }
    Bytes other(all.size());
    fill_with_known_bytes(kState, "v", shape, Box{{0, 0}, shape}, element_bytes, 0, other);
    EXPECT_NE(all, other);
    fill_with_known_bytes(kState + 1, "w", shape, Box{{0, 0}, shape}, element_bytes, 0, other);
    EXPECT_NE(all, other) << "of another state";
  }
}

// One piece of 64 bytes, staged and to be written.
actors::operation::WriteShard one_write(StoredPayload& payload) {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {16}, Mesh::contiguous({1}), {Placement::replicate()});
  const LayoutPtr layout = *std::move(builder).build();
  payload.stage(1, 1, {1, 1, 1}, layout, 0, std::vector<local::StagedPiece>{{0, 0, 0, 64, 0}});
  storage::ShardPiece piece;
  piece.key = piece.fqn = "w";
  piece.dtype = DType::f32;
  piece.global_shape = {16};
  piece.box = Box{{0}, {16}};
  piece.bytes = 64;
  actors::operation::WriteShard write;
  write.key = {1, 1, 1};
  write.pieces = std::vector<storage::ShardPiece>{piece};
  write.data = std::vector<actors::SlabRange>{{1, 1, 0, 64}};
  return write;
}

TEST(AFullRun, IsNotBelievedWhereAShardIsOfAnotherSizeThanWasCounted) {
  for (uint64_t too_few : {0u, 1u}) {
    StoredPayload payload;
    const actors::operation::WriteShard write = one_write(payload);
    storage::WrittenShard counted;
    counted.payload_bytes = 64;
    counted.size = *storage::shard_file_bytes(write.pieces.vector()) - too_few;
    EXPECT_TRUE(payload.carry_out(0, false, write, actors::OperationResult(counted), counted.size).ok());
    if (too_few == 0) {
      EXPECT_TRUE(payload.disagreement().ok()) << payload.disagreement().to_string();
    } else {
      EXPECT_THAT(payload.disagreement().message(), HasSubstr("WriteShard: bytes of a shard: counted "));
    }
  }
}

TEST(AFullRun, IsNotBelievedWhereTheCountLetsAnOperationFailThatTheStorageDoes) {
  StoredPayload payload;
  const actors::operation::WriteShard write = one_write(payload);
  EXPECT_TRUE(payload.carry_out(0, false, write, Status(Code::io, "no"), 0).ok());
  EXPECT_THAT(payload.disagreement().message(), HasSubstr("WriteShard: counted: I/O error: no, stored: ok"));
}

TEST(AFullRun, FindsBytesOtherThanThoseThatWereStaged) {
  StoredPayload payload;
  actors::operation::WriteShard write = one_write(payload);
  std::vector<storage::ShardPiece> pieces = write.pieces.vector();
  pieces[0].fqn = "v";  // so that other bytes belong there
  write.pieces = std::move(pieces);
  storage::WrittenShard counted;
  counted.payload_bytes = 64;
  counted.size = *storage::shard_file_bytes(write.pieces.vector());
  auto written = payload.carry_out(0, false, write, actors::OperationResult(counted), counted.size);
  ASSERT_TRUE(written.ok());
  EXPECT_TRUE(payload.disagreement().ok()) << payload.disagreement().to_string();
  auto piece = std::make_shared<actors::operation::PieceRef>();
  piece->key = write.key;
  piece->file_name = shard_file_name(0, 0);
  piece->file_size = counted.size;
  piece->header_digest = std::get<storage::WrittenShard>(*written).header_digest;
  piece->piece_key = "w";
  piece->dtype = DType::f32;
  piece->box = Box{{0}, {16}};
  const actors::operation::ReadBatch batch{1, kSimulatedWindowSlab, {{piece, 0, 64, 0}}};
  EXPECT_TRUE(payload.carry_out(0, false, batch, actors::OperationResult(DamageList{}), 0).ok());
  EXPECT_THAT(payload.disagreement().message(), HasSubstr("ReadBatch: the bytes of v"));
}

TEST(FullPayloads, AreRefusedWhereMemoryOrRanksDoNotSuffice) {
  Scenario scenario;
  scenario.payload = Payload::full;
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("payload full: 2 saves of llama3-405b, 5.17 TiB each, are more than the 12.0 GiB"));
  scenario.model = "gpt2";
  EXPECT_TRUE(validate_scenario(scenario).ok()) << validate_scenario(scenario).to_string();
  scenario.loads = 1;
  scenario.load_ranks = 8192;
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("the job that loads has 8192 ranks, but at most 4096 may have true bytes"));
  scenario.load_ranks = 0;
  scenario.ranks = 8192;
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr("8192 ranks, but at most 4096 may have true bytes"));
  scenario.ranks = 64;
  scenario.mesh = "dp=8,dp_replicate=8,pp=1,tp=1";
  EXPECT_TRUE(validate_scenario(scenario).ok()) << validate_scenario(scenario).to_string();
  scenario.mode = SaveMode::rank_local;  // each rank writes all that it holds: eight copies
  EXPECT_THAT(validate_scenario(scenario).message(), HasSubstr("2 saves of gpt2, 13"));

  EXPECT_THAT(parse_scenario("ranks = 16\npayload = \"half\"\n", "s.toml").status().message(),
              HasSubstr("s.toml:2: payload must be counted or full, not 'half'"));
  EXPECT_THAT(parse_scenario("ranks = 16\npayload = \"full\"\n", "s.toml").status().message(),
              HasSubstr("s.toml:2: payload full: 2 saves of llama3-405b"));
  auto read = parse_scenario("ranks = 16\nmodel = \"gpt2\"\npayload = \"full\"\n", "s.toml");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*parse_scenario(scenario_text(*read), "again.toml"), *read);
}

}  // namespace
}  // namespace shoal::sim
