#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "actors/messages/messages.h"
#include "schema/wire.capnp.h"
#include "storage/decisions/decision.h"
#include "tests/actors/test_ids.h"
#include "tests/random_edit.h"
#include "tests/schema/set_fields.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/test_support.h"
#include "transport/transport.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

WireMessage message_of(WireBody body, RoleKind from = RoleKind::planner,
                       RoleKind to = RoleKind::coordinator) {
  return {from, to, std::make_shared<const WireBody>(std::move(body))};
}

wire::JoinRanks sample_join() {
  return {"host-a",
          8,
          {{2, storage::nonce_of(1)}, {3, storage::nonce_of(1)}, {7, storage::nonce_of(2)}},
          {Dedupe::lowest_rank, 4096}};
}
wire::RosterUpdate sample_roster() {
  return {storage::sample_world(), {Dedupe::none, uint64_t{1} << 20}, kRuleVersion};
}
wire::ShardsWritten sample_written() {
  return {kKey,
          storage::nonce_of(9),
          {{2, storage::nonce_of(10)}, {3, storage::nonce_of(11)}},
          {{2, 0, 5000, storage::nonce_of(12), 904},
           {3, 0, 4096, storage::nonce_of(13), 0},
           {3, 1, 8192, storage::nonce_of(14), 4096}},
          std::make_shared<const UserMetadata>(UserMetadata{{"note", ""}, {"run", "a"}})};
}

plan::ReplicaDigests sample_digests() {
  return {ReplicaCheck::abort, 19, storage::nonce_of(15), {7, 0, UINT64_MAX}};
}
wire::ShardsWritten sample_compared(plan::ReplicaDigests digests = sample_digests()) {
  wire::ShardsWritten written = sample_written();
  written.plans[1].replicas = std::make_shared<const plan::ReplicaDigests>(std::move(digests));
  return written;
}

wire::LocalPlans sample_local_plans() {
  SaveOptions options;
  options.mode = SaveMode::collective;
  return {kKey,
          "host-a",
          8,
          options,
          {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}},
          {storage::nonce_of(5), PlanId{}},
          true};
}
wire::GlobalPlan sample_global_plan() {
  auto plan = std::make_shared<const SavePlan>(*plan_save(*storage::sample_world(), 1, {}));
  return {kKey, plan->roster_id, {{0, nullptr}, {1, plan}}};
}

wire::PlanGathering sample_exchange() {
  auto text = [](const char* plan) { return std::make_shared<const std::string>(plan); };
  return {kKey,
          plan::GatherStage::made,
          "host-a",
          8,
          sample_local_plans().options,
          5,
          {{2, text("a plan")}, {7, text("")}}};
}

constexpr wire::LoadId kSampleLoad = {true, 40, 3, 1, 2};

wire::LoadRoster sample_load_roster() {
  auto passed_over = std::make_shared<PassedOver>();
  passed_over->add({1, 9, 1}, "damaged: manifest.shoal");
  return {kSampleLoad,
          ok_status(),
          kKey,
          {storage::nonce_of(3), storage::nonce_of(4)},
          {"host-a:1", "host-b:2"},
          {{0, 4, 0, 0}, {4, 2, 1, 0}, {8, 1, 1, 1}},
          std::move(passed_over)};
}

wire::ChunkData sample_chunk() {
  auto chunk = std::make_shared<Chunk>();
  chunk->bytes.resize(100, std::byte{7});
  chunk->size = chunk->bytes.size();
  return {kSampleLoad, 99, chunk};
}

// One of every kind, in the order of the variant.
std::vector<WireMessage> samples() {
  RoleKind planner = RoleKind::planner, writer = RoleKind::shard_writer, coordinator = RoleKind::coordinator;
  return {
      message_of(sample_join(), planner, coordinator),
      message_of(wire::LayoutRequest{{storage::nonce_of(1), storage::nonce_of(2)}}, coordinator, planner),
      message_of(wire::Layouts{storage::sample_world()->layouts}, planner, coordinator),
      message_of(sample_roster(), coordinator, planner),
      message_of(wire::JoinRejected{"two hosts are called 'a'"}, coordinator, planner),
      message_of(sample_written(), writer, coordinator),
      message_of(wire::SaveFailed{kKey, 2, Status(Code::no_space, "/root: full"), "host-b"}, writer,
                 coordinator),
      message_of(wire::Pending{kKey}, coordinator, writer),
      message_of(wire::Decided{kKey, false, "rank 2: /root: full", true, GiveUp::deadline}, coordinator,
                 writer),
      message_of(wire::Superseded{7, "host-b:4000"}, coordinator, planner),
      message_of(wire::Undecided{kKey, Status(Code::refused, "/root: read-only")}, coordinator, writer),
      message_of(wire::LayoutsStaged{kKey, {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}}, writer,
                 coordinator),
      message_of(wire::AttemptRoster{kKey, storage::nonce_of(9)}, coordinator, writer),
      message_of(
          wire::RanksEnded{{{2, "exit status 1"}, {3, ""}}, {kKey}, "host-a", {4, 5}, true, true, {6, 7}},
          writer, coordinator),
      message_of(sample_local_plans(), writer, coordinator),
      message_of(sample_global_plan(), coordinator, writer),
      message_of(sample_exchange(), writer, coordinator),
      message_of(
          wire::JoinLoad{
              kSampleLoad, 8, "host-a:1", {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}, 700},
          RoleKind::loader, coordinator),
      message_of(sample_load_roster(), coordinator, RoleKind::loader),
      message_of(wire::ChunkRequest{kSampleLoad, {99, 7}}, RoleKind::loader, RoleKind::loader),
      message_of(sample_chunk(), RoleKind::loader, RoleKind::loader),
      message_of(wire::ChunksUnavailable{kSampleLoad, {7}}, RoleKind::loader, RoleKind::loader),
      message_of(wire::ChunksCancelled{kSampleLoad, {7, 9}}, RoleKind::loader, RoleKind::loader),
      message_of(wire::ChunksPending{kSampleLoad, {7, 8, 9}, 3}, RoleKind::loader, RoleKind::loader),
      message_of(wire::SaveProgress{kKey, 17, true}, writer, coordinator),
      message_of(wire::ManifestsPublished{kKey, 4, 16}, writer, coordinator),
  };
}

// For fields that exclude each other.
std::vector<WireMessage> further_samples() {
  return {message_of(sample_compared()),
          message_of(wire::SaveFailed{kKey, std::nullopt, Status(Code::io, "rejected"), "host-b"}),
          message_of(wire::Decided{kKey, true, "replicas differ"}),
          message_of(
              wire::LoadRoster{{false, 12, 0, 1}, Status(Code::not_found, "no checkpoint"), {}, {}, {}, {}})};
}

TEST(Wire, EveryKindComesBackWithTheSameBytes) {
  std::vector<WireMessage> all = samples();
  ASSERT_EQ(all.size(), std::variant_size_v<WireBody>);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i].body->index(), i) << describe(*all[i].body);
  for (const WireMessage& more : further_samples()) all.push_back(more);
  for (const WireMessage& sample : all) {
    SCOPED_TRACE(describe(*sample.body));
    Bytes bytes = encode_wire(sample);
    Result<WireMessage> back = decode_wire(bytes);
    ASSERT_OK(back.status());
    EXPECT_EQ(back->from, sample.from);
    EXPECT_EQ(back->to, sample.to);
    EXPECT_EQ(back->body->index(), sample.body->index());
    EXPECT_EQ(encode_wire(*back), bytes);
    EXPECT_EQ(describe(*back->body), describe(*sample.body));
  }
}

// So a field that encode.cpp forgets is found here, and one that decode.cpp forgets in the test above.
TEST(Wire, TheSamplesSetEveryField) {
  schema::SetFields<schema::Message> fields;
  for (const WireMessage& message : samples()) fields.add(encode_wire(message));
  for (const WireMessage& message : further_samples()) fields.add(encode_wire(message));
  EXPECT_THAT(fields.unset({"Message.link"}), ::testing::IsEmpty());
}

template <class Body>
Body passed_on(Body body) {
  Result<WireMessage> back = decode_wire(encode_wire(message_of(std::move(body))));
  SHOAL_CHECK(back.ok());
  return std::get<Body>(*back->body);
}

TEST(Wire, ValuesComeBackWhole) {
  wire::JoinRanks join = passed_on(sample_join());
  EXPECT_EQ(join.host, "host-a");
  EXPECT_EQ(join.world_size, 8u);
  EXPECT_EQ(join.ranks, sample_join().ranks);
  EXPECT_EQ(join.options, sample_join().options);
  wire::RosterUpdate roster = passed_on(sample_roster());
  EXPECT_EQ(roster.world->roster.id(), storage::sample_world()->roster.id());
  EXPECT_EQ(roster.world->layouts[0]->entries(), storage::sample_world()->layouts[0]->entries());
  EXPECT_EQ(roster.options, sample_roster().options);
  wire::ShardsWritten written = passed_on(sample_written());
  EXPECT_EQ(written.key, kKey);
  EXPECT_EQ(written.plans[1].plan_id, storage::nonce_of(11));
  EXPECT_EQ(written.files[2].header_digest, storage::nonce_of(14));
  EXPECT_EQ(written.files[2].payload_bytes, 4096u);
  EXPECT_EQ(*written.user, *sample_written().user);
  EXPECT_EQ(written.plans[1].replicas, nullptr);
  written = passed_on(sample_compared());
  EXPECT_EQ(written.key, kKey);
  EXPECT_EQ(written.files.size(), 3u);
  EXPECT_EQ(*written.user, *sample_written().user);
  EXPECT_EQ(written.plans[0].replicas, nullptr);
  ASSERT_NE(written.plans[1].replicas, nullptr);
  EXPECT_EQ(*written.plans[1].replicas, sample_digests());
  wire::SaveFailed failed =
      passed_on(wire::SaveFailed{kKey, 2, Status(Code::no_space, "/root: full"), "host-b"});
  EXPECT_EQ(failed.rank, 2u);
  EXPECT_EQ(failed.host, "host-b");
  EXPECT_EQ(failed.why, Status(Code::no_space, "/root: full"));
  EXPECT_EQ(passed_on(wire::SaveFailed{kKey, std::nullopt, failed.why, "host-b"}).rank, std::nullopt);
  wire::Decided decided = passed_on(wire::Decided{kKey, true, ""});
  EXPECT_TRUE(decided.committed);
  EXPECT_FALSE(decided.is_overdue);
  EXPECT_EQ(passed_on(wire::Decided{kKey, true, "replicas differ"}).cause, "replicas differ");
  decided = passed_on(wire::Decided{kKey, false, "nothing came from rank 1", true, GiveUp::deadline});
  EXPECT_TRUE(decided.is_overdue);
  EXPECT_EQ(decided.give_up, GiveUp::deadline);
  EXPECT_EQ(passed_on(wire::Decided{kKey, false, "an older coordinator", true}).give_up, std::nullopt);
  EXPECT_EQ(give_up_of(static_cast<uint8_t>(kLastGiveUp)), kLastGiveUp);
  EXPECT_EQ(give_up_of(static_cast<uint8_t>(kLastGiveUp) + 1), std::nullopt) << "of a newer program";
  EXPECT_EQ(passed_on(wire::Superseded{7, "host-b:4000"}).address, "host-b:4000");
  wire::Undecided undecided = passed_on(wire::Undecided{kKey, Status(Code::refused, "/root: read-only")});
  EXPECT_EQ(undecided.key, kKey);
  EXPECT_EQ(undecided.why, Status(Code::refused, "/root: read-only"));
  wire::LayoutsStaged staged =
      passed_on(wire::LayoutsStaged{kKey, {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}});
  EXPECT_EQ(staged.key, kKey);
  EXPECT_EQ(staged.ranks,
            (std::vector<wire::RankLayout>{{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}));
  wire::AttemptRoster plan_by = passed_on(wire::AttemptRoster{kKey, storage::nonce_of(9)});
  EXPECT_EQ(plan_by.key, kKey);
  EXPECT_EQ(plan_by.roster_id, storage::nonce_of(9));
  wire::RanksEnded gone = passed_on(wire::RanksEnded{{{2, "exit status 1"}, {3, ""}}, {kKey}});
  ASSERT_EQ(gone.ranks.size(), 2u);
  EXPECT_EQ(gone.ranks[0].rank, 2u);
  EXPECT_EQ(gone.ranks[0].end, "exit status 1");
  EXPECT_EQ(gone.ranks[1].end, "");
  EXPECT_EQ(gone.staged, std::vector<AttemptKey>{kKey});
  EXPECT_FALSE(gone.may_return);
  EXPECT_FALSE(gone.rank_local);
  gone = passed_on(wire::RanksEnded{{}, {}, "host-a", {2, 3}, true, false});
  EXPECT_EQ(gone.host, "host-a");
  EXPECT_EQ(gone.here, (std::vector<Rank>{2, 3}));
  EXPECT_TRUE(gone.may_return);
  EXPECT_TRUE(passed_on(wire::RanksEnded{{}, {}, "host-a", {2}, false, true}).rank_local);
  EXPECT_EQ(passed_on(wire::RanksEnded{{}, {}, "a", {}, false, false, {4, 7}}).expected,
            (std::vector<Rank>{4, 7}));
  wire::LocalPlans local = passed_on(sample_local_plans());
  EXPECT_EQ(local.host, "host-a");
  EXPECT_EQ(local.world_size, 8u);
  EXPECT_EQ(local.options, sample_local_plans().options);
  EXPECT_EQ(local.ranks, sample_local_plans().ranks);
  EXPECT_EQ(local.known, sample_local_plans().known);
  wire::GlobalPlan global = passed_on(sample_global_plan());
  EXPECT_EQ(global.roster_id, storage::sample_world()->roster.id());
  ASSERT_EQ(global.parts.size(), 2u);
  EXPECT_EQ(global.parts[0].plan, nullptr);
  EXPECT_EQ(global.parts[1].plan->items, sample_global_plan().parts[1].plan->items);
  EXPECT_EQ(global.parts[1].plan->id, sample_global_plan().parts[1].plan->id);
  EXPECT_TRUE(local.follows_planner);
  local.follows_planner = false;
  EXPECT_FALSE(passed_on(local).follows_planner);
  wire::PlanGathering exchange = passed_on(sample_exchange());
  EXPECT_EQ(exchange.key, kKey);
  EXPECT_EQ(exchange.stage, plan::GatherStage::made);
  EXPECT_EQ(exchange.host, "host-a");
  EXPECT_EQ(exchange.world_size, 8u);
  EXPECT_EQ(exchange.options, sample_local_plans().options);
  EXPECT_EQ(exchange.coordinator_rank, 5u);
  ASSERT_EQ(exchange.plans.size(), 2u);
  EXPECT_EQ(exchange.plans[0].rank, 2u);
  EXPECT_EQ(*exchange.plans[0].bytes, "a plan");
  EXPECT_EQ(exchange.plans[1].rank, 7u);
  EXPECT_EQ(*exchange.plans[1].bytes, "");
}

TEST(Wire, CausesAreCutAndMadeOneLine) {
  std::string cause = "first line\nsecond " + std::string(2 * storage::kMaxCauseBytes, 'x');
  wire::Decided decided = passed_on(wire::Decided{kKey, false, cause});
  EXPECT_EQ(decided.cause.size(), storage::kMaxCauseBytes);
  EXPECT_THAT(decided.cause, HasSubstr("first line second xxx"));
  EXPECT_EQ(passed_on(wire::JoinRejected{cause}).cause.size(), storage::kMaxCauseBytes);
  EXPECT_EQ(passed_on(wire::SaveFailed{kKey, 0, Status(Code::io, cause)}).why.message().size(),
            storage::kMaxCauseBytes);
}

Status refusal_of(WireBody body) {
  return decode_wire(encode_wire(message_of(std::move(body)))).status();
}

TEST(Wire, WhatNoNodeWouldSayIsRefused) {
  wire::JoinRanks join = sample_join();
  std::swap(join.ranks[0], join.ranks[1]);
  EXPECT_EQ(refusal_of(join).code(), Code::corrupt) << "ranks out of order";
  join = sample_join();
  join.ranks[1].rank = join.ranks[0].rank;
  EXPECT_EQ(refusal_of(join).code(), Code::corrupt) << "a rank twice";
  EXPECT_EQ(
      refusal_of(wire::LayoutsStaged{kKey, {{5, storage::nonce_of(3)}, {2, storage::nonce_of(4)}}}).code(),
      Code::corrupt)
      << "ranks out of order";
  EXPECT_EQ(refusal_of(wire::RanksEnded{{{5, ""}, {2, ""}}, {}}).code(), Code::corrupt)
      << "ranks out of order";
  EXPECT_EQ(refusal_of(wire::RanksEnded{{}, {kKey, kKey}}).code(), Code::corrupt) << "a save twice";
  EXPECT_EQ(refusal_of(wire::RanksEnded{{}, {}, "a", {}, false, false, {7, 7}}).code(), Code::corrupt);
  wire::LocalPlans local = sample_local_plans();
  local.known.pop_back();
  EXPECT_EQ(refusal_of(local).code(), Code::corrupt) << "a rank without its word of what it knows";
  local = sample_local_plans();
  local.world_size = 5;
  EXPECT_EQ(refusal_of(local).message(), "message of a node: rank 5 is outside a world of 5 ranks");
  wire::GlobalPlan global = sample_global_plan();
  global.parts[1].rank = 2;
  EXPECT_EQ(refusal_of(global).code(), Code::corrupt) << "another rank's plan";
  global = sample_global_plan();
  global.roster_id = storage::nonce_of(9);
  EXPECT_EQ(refusal_of(global).code(), Code::corrupt) << "a plan of another roster";
  wire::PlanGathering exchange = sample_exchange();
  std::swap(exchange.plans[0], exchange.plans[1]);
  EXPECT_EQ(refusal_of(exchange).code(), Code::corrupt) << "ranks out of order";
  exchange = sample_exchange();
  exchange.coordinator_rank = 8;
  EXPECT_EQ(refusal_of(exchange).code(), Code::corrupt) << "a coordinator_rank beyond the world";
  exchange = sample_exchange();
  exchange.stage = static_cast<plan::GatherStage>(plan::kGatherStages);
  EXPECT_EQ(refusal_of(exchange).code(), Code::corrupt) << "a stage that there is not";
  join = sample_join();
  join.world_size = 7;
  EXPECT_EQ(refusal_of(join).message(), "message of a node: rank 7 is outside a world of 7 ranks");
  join.world_size = 0;
  EXPECT_EQ(refusal_of(join).code(), Code::corrupt);
  join = sample_join();
  join.options.unit_bytes = 0;
  EXPECT_EQ(refusal_of(join).code(), Code::corrupt) << "options that nobody may choose";
  join = sample_join();
  join.host = "a\nb";
  EXPECT_EQ(refusal_of(join).code(), Code::corrupt) << "a host of two lines";
  join.host = std::string(10'000, 'a');
  EXPECT_EQ(refusal_of(join).code(), Code::too_large);
  EXPECT_EQ(refusal_of(wire::LayoutRequest{std::vector<LayoutId>(kMaxRanksPerNode + 1)}).code(),
            Code::too_large);
  LayoutPtr layout = storage::sample_world()->layouts[0];
  EXPECT_EQ(refusal_of(wire::Layouts{{layout, layout}}).code(), Code::corrupt) << "a layout twice";
  EXPECT_EQ(refusal_of(wire::SaveFailed{kKey, 0, Status()}).code(), Code::corrupt) << "failed, but ok";
}

TEST(Wire, DigestsThatNoRankWouldSendAreRefused) {
  plan::ReplicaDigests digests = sample_digests();
  digests.policy = ReplicaCheck::off;
  EXPECT_EQ(refusal_of(sample_compared(digests)).code(), Code::corrupt);
  digests.policy = static_cast<ReplicaCheck>(3);
  EXPECT_EQ(refusal_of(sample_compared(digests)).code(), Code::corrupt);
  digests = sample_digests();
  digests.window = plan::kReplicaWindows;
  EXPECT_EQ(refusal_of(sample_compared(digests)).code(), Code::corrupt);
  digests = sample_digests();
  digests.digests.clear();
  EXPECT_EQ(refusal_of(sample_compared(digests)).code(), Code::corrupt);
  digests.digests.assign(plan::kMaxReplicaBlocks + 1, 7);
  EXPECT_EQ(refusal_of(sample_compared(digests)).code(), Code::corrupt);
}

TEST(Wire, RostersThatDoNotFitTheirLayoutsAreRefused) {
  World world = *storage::sample_world();
  LayoutBuilder builder;
  builder.add_tensor("other", DType::f32, {4}, Mesh::contiguous({4}), {Placement::shard(0)});
  world.layouts[0] = *std::move(builder).build();
  wire::RosterUpdate roster = sample_roster();
  roster.world = std::make_shared<const World>(world);
  EXPECT_THAT(refusal_of(roster).message(), HasSubstr("a layout does not match its id"));
  world.layouts.clear();
  roster.world = std::make_shared<const World>(world);
  EXPECT_THAT(refusal_of(roster).message(), HasSubstr("0 layouts are given for a roster of 1"));
  roster = sample_roster();
  roster.rule_version = kRuleVersion + 1;
  EXPECT_EQ(refusal_of(roster).code(), Code::version);
}

TEST(Wire, FilesThatNoPlanAccountsForAreRefused) {
  wire::ShardsWritten written = sample_written();
  written.files[0].rank = 1;
  EXPECT_THAT(refusal_of(written).message(),
              HasSubstr("a file of rank 1 came without the plan of that rank"));
  written = sample_written();
  std::swap(written.files[1], written.files[2]);
  EXPECT_EQ(refusal_of(written).code(), Code::corrupt) << "files out of order";
  written = sample_written();
  written.files[2].index = kMaxFilesPerRank;
  EXPECT_EQ(refusal_of(written).code(), Code::corrupt);
  written = sample_written();
  written.files[0].payload_bytes = written.files[0].size + 1;
  EXPECT_EQ(refusal_of(written).code(), Code::corrupt) << "more payload than file";
  written = sample_written();
  written.files[0].size = written.files[1].size = storage::kMaxObjectBytes - 1;
  EXPECT_EQ(refusal_of(written).code(), Code::corrupt) << "sizes whose sum means nothing";
  written = sample_written();
  written.plans[1].rank = written.plans[0].rank;
  EXPECT_EQ(refusal_of(written).code(), Code::corrupt) << "a plan twice";
}

TEST(Wire, UnknownRolesAndKindsAreRefused) {
  Bytes bytes = encode_wire(message_of(wire::Pending{kKey}));
  Bytes role = bytes;  // segment table 8, root pointer 8, then the roles, a byte each
  role[16] = std::byte{kRoleCount};
  EXPECT_EQ(decode_wire(role).status().code(), Code::corrupt);
  Bytes kind = bytes;
  kind[18] = std::byte{200};
  EXPECT_EQ(decode_wire(kind).status().code(), Code::version);
}

TEST(Wire, ReadsBytesAtAnyAddress) {
  Bytes bytes = encode_wire(message_of(sample_written()));
  bytes.insert(bytes.begin(), std::byte{0});
  EXPECT_OK(decode_wire(ByteView(bytes).subspan(1)).status());
}

TEST(Wire, CutMessagesAreRefused) {
  for (const WireMessage& message : samples()) {
    Bytes bytes = encode_wire(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_FALSE(decode_wire(ByteView(bytes).first(size)).ok())
          << describe(*message.body) << " cut at " << size;
    }
  }
}

// Whatever is accepted can be passed on and means the same again; the rest is refused, and nothing crashes.
TEST(Wire, FlippedBitsNeverCrash) {
  std::mt19937_64 random(17);
  int accepted = 0, refused = 0;
  for (const WireMessage& message : samples()) {
    const Bytes good = encode_wire(message);
    for (int round = 0; round < 4000; ++round) {
      Bytes bytes = good;
      edit_at_random(bytes, random);
      Result<WireMessage> back = decode_wire(bytes);
      ++(back.ok() ? accepted : refused);
      if (!back.ok()) continue;
      EXPECT_FALSE(describe(*back->body).empty());
      Bytes again = encode_wire(*back);
      Result<WireMessage> twice = decode_wire(again);
      ASSERT_OK(twice.status());
      ASSERT_EQ(encode_wire(*twice), again);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(Wire, AListOfABillionNothingsCostsNoMemory) {
  // A list of structs without words takes no bytes, whatever length it claims.
  Bytes bytes = encode_wire(message_of(sample_written()));
  for (size_t at = 8; at + 8 <= bytes.size(); at += 8) {
    Bytes forged = bytes;
    store_le64(&forged[at],
               (uint64_t{0x1fffffff} << 35) | 1);  // list pointer: void elements, 2^29 - 1 of them
    Result<WireMessage> back = decode_wire(forged);
    if (!back.ok()) continue;
    EXPECT_LE(std::get<wire::ShardsWritten>(*back->body).plans.size(), kMaxRanksPerNode) << at;
  }
}

TEST(Describe, SaysKindKeysAndCounts) {
  std::vector<std::string> lines;
  for (const WireMessage& message : samples()) lines.push_back(describe(*message.body));
  EXPECT_THAT(
      lines,
      ::testing::ElementsAre(
          "JoinRanks host-a: 3 ranks of 8", "LayoutRequest: 2 layouts", "Layouts: 1 layout",
          "RosterUpdate: 4 ranks, 1 layout", "JoinRejected: two hosts are called 'a'",
          "ShardsWritten step 3 (g1a1): 2 ranks, 3 files",
          "SaveFailed step 3 (g1a1): rank 2: no space: /root: full", "Pending step 3 (g1a1)",
          "Decided step 3 (g1a1): aborted: rank 2: /root: full", "Superseded: epoch 7",
          "Undecided step 3 (g1a1): refused: /root: read-only", "LayoutsStaged step 3 (g1a1): 2 ranks",
          "AttemptRoster step 3 (g1a1)", "RanksEnded: 2 ranks, 1 save staged, 2 ranks here, 2 expected",
          "LocalPlans step 3 (g1a1): 2 ranks of 8, 1 plan known",
          "GlobalPlan step 3 (g1a1): 2 ranks, 1 of them as before",
          "PlanGathering step 3 (g1a1): 2 plans made",
          "JoinLoad latest-3.1: 2 ranks of 8, shares, waits 700 ms",
          "LoadRoster latest-3.1: step 3 (g1a1), 2 hosts", "ChunkRequest latest-3.1: 2 chunks",
          "ChunkData latest-3.1: 100 bytes", "ChunksUnavailable latest-3.1: 1 chunk",
          "ChunksCancelled latest-3.1: 2 chunks", "ChunksPending latest-3.1: 3 chunks",
          "SaveProgress step 3 (g1a1): 17, rank-local", "ManifestsPublished step 3 (g1a1): 4 of 16 ranks"));
  EXPECT_EQ(describe(wire::Decided{kKey, true, ""}), "Decided step 3 (g1a1): committed");
  EXPECT_EQ(role_name(RoleKind::shard_writer), "shard_writer");
}

}  // namespace
}  // namespace shoal::actors
