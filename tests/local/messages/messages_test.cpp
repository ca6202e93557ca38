#include "local/messages/messages.h"
#include "plan/layout/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "schema/local.capnp.h"
#include "shoal/roster.h"
#include "tests/local/status/some_status.h"
#include "tests/schema/set_fields.h"

namespace shoal::local {
namespace {

LayoutPtr some_layout() {
  LayoutBuilder builder;
  builder.add_tensor("w", DType::f32, {8, 6}, Mesh::contiguous({2}), {Placement::shard(0)});
  builder.add_object("o", Mesh::contiguous({2}), true);
  return std::move(builder).build().value();
}

std::shared_ptr<const World> some_world() {
  LayoutPtr layout = some_layout();
  const std::vector<LayoutId> ids{layout->id(), layout->id()};
  const std::vector<uint32_t> hosts{0, 0};
  return std::make_shared<World>(World{Roster::make(ids, hosts).value(), {layout}});
}

Metadata some_metadata() {
  Metadata metadata;
  metadata.key = {3, 1000, 2};
  metadata.world_size = 2;
  metadata.payload_bytes = uint64_t{1} << 50;
  metadata.files = 7;
  metadata.contents_digest = xxh3_128(as_view("files"));
  metadata.user = {{"run", "a"}};
  metadata.state_dict_metadata = {{"o", LayoutEntry::Kind::object, DType::u8, {}},
                                  {"w", LayoutEntry::Kind::tensor, DType::f32, {8, 6}}};
  return metadata;
}

local::DurableAssignment some_durable_assignment() {
  return {some_world()->roster.id(),
          xxh3_128(as_view("a plan")),
          {{0, 1000, xxh3_128(as_view("one")), 900}, {1, 500, xxh3_128(as_view("two")), 400}}};
}

DamageList some_damage() {
  DamageList damage;
  damage.add({"x", Box{{0, 8}, {4, 8}}, 7, "step-00000001/g1a1/rank-00007.safetensors", 4096, 8192,
              "block 0 differs", "step-00000001/g1a1/rank-00003.safetensors"});
  damage.add({"o", Box{}, 7, "step-00000001/g1a1/rank-00007.safetensors", 0, 0, "gone", "elsewhere",
              uint64_t{1} << 40});
  damage.count = 300;
  return damage;
}

SavePlanPtr some_plan() {
  return std::make_shared<const SavePlan>(plan_save(*some_world(), 1, {}).value());
}

local::PlanGathering exchange_of(plan::GatherStage stage, const std::vector<std::string>& plans) {
  local::PlanGathering received{9, 4, stage, 1, SaveOptions{}, {}};
  for (const std::string& plan : plans) received.plans.push_back(std::make_shared<const std::string>(plan));
  return received;
}

PassedOverPtr some_passed_over() {
  auto passed_over = std::make_shared<PassedOver>();
  for (uint64_t step = 20; step > 8; --step) passed_over->add({1, step, 1}, "aborted: too late");
  return passed_over;
}

local::Found found_with_layouts() {
  local::Found found{4, ok_status(), {}, local::StoredLayouts{some_world(), 7, SaveOptions{}}};
  found.checkpoint.key = {1, 9, 1};
  found.checkpoint.world_size = some_world()->roster.world_size();
  return found;
}

CheckpointList some_listing() {
  using State = CheckpointInfo::State;
  return {{{{1, 9, 1}, State::committed, 2, 3, 4096, 77, ""},
           {{1, 10, 1}, State::aborted, 0, 0, 0, 78, "rank 1 is late"},
           {{1, 11, 1}, State::undecided, 0, 0, 0, 0, ""},
           {{1, 12, 1}, State::damaged, 0, 0, 0, 0, "block 3 differs"}},
          5};
}

plan::ReplicaDigestsPtr some_digests() {
  return std::make_shared<const plan::ReplicaDigests>(
      plan::ReplicaDigests{ReplicaCheck::warn, 3, xxh3_128(as_view("blocks")), {7, 0, UINT64_MAX}});
}

std::vector<LocalMessage> one_of_each() {
  local::Staged staged;
  staged.step = 9;
  staged.attempt = 1;
  staged.layout_id = some_layout()->id();
  staged.roster_id = some_world()->roster.id();
  staged.plan_id = some_plan()->id;
  staged.slab_id = 3;
  staged.pieces = {{0, 0, 0, 48, 0}, {0, 1, 48, 48, 64}, {1, 0, 0, 0, 128}};
  staged.user = std::make_shared<const UserMetadata>(UserMetadata{{"run", "a"}, {"text", "1\n2"}});
  local::Staged compared = staged;
  compared.replicas = some_digests();
  compared.again = compared.in_parts = true;
  local::Load load;
  load.request_id = 4;
  load.step = 3;
  load.attempt = 2;
  load.ordinal = 1;
  load.slab_id = 2;
  load.targets = {{"w", LayoutEntry::Kind::tensor, DType::f32, {8, 6}, {Box{{4, 0}, {4, 6}}}},
                  {"o", LayoutEntry::Kind::object, DType::u8, {}, {}}};
  load.sharing = local::Load::Sharing{LoadMethod::two_stage, 1, 2, 7, some_layout(), {0, 1}};
  local::Load opening;
  opening.request_id = 5;
  opening.of = 4;
  opening.latest = false;
  opening.step = 9;
  opening.keeps_open = opening.wants_layouts = opening.reads_files = true;
  return {
      local::Attach{kLocalSchemaVersion, 1, 2, "job", 77, xxh3_128(as_view("process")), 2, true},
      local::Attached{3, 78, 300'000, true, true},
      local::Failed{Status(Code::refused, "another job")},
      local::LayoutUpdate{some_layout(), SaveOptions{Dedupe::lowest_rank, 1 << 20, SaveMode::collective}},
      local::RosterUpdate{some_world(), kRuleVersion, SaveOptions{}},
      local::Slab{1, 4096},
      staged,
      compared,
      local::SlabFree{1, 9, 1, std::nullopt},
      local::SlabFree{1, 9, 2, some_durable_assignment()},
      local::Decided{9, 1, ok_status(), std::make_shared<const Metadata>(some_metadata())},
      local::Decided{9, 1, ok_status(), std::make_shared<const Metadata>(some_metadata()), "replicas differ"},
      local::Decided{9, 2, Status(Code::aborted, "rank 1 is late"), {}},
      local::Latest{5},
      load,
      opening,
      local::Found{4, ok_status(), some_metadata()},
      local::Found{4, ok_status(), some_metadata(), std::nullopt, nullptr, some_passed_over()},
      local::Found{4, Status(Code::not_found, "no checkpoint"), {}},
      found_with_layouts(),
      local::Close{4},
      local::Loaded{4, 2, {{{1, Box{{0, 0}, {8, 6}}, 12, 24, 192}, 1024}}},
      local::Placed{4, 2},
      local::FilesToRead{
          4,
          1,
          {"step-00000003/g1a1/rank-00000.safetensors", "step-00000003/g1a1/rank-00001.safetensors"},
          {{{0, Box{{0, 0}, {8, 6}}, 0, 192, 192}, 0, 4096}, {{1, Box{}, 1, 4, 5}, 1, 4288}},
          {7, UINT64_MAX}},
      local::FilesRead{4, 1, {{1, 64, 192}}},
      local::LoadDone{4, Status(Code::corrupt, "block 3 differs"), LoadTimes{true, 1, 2, 3, 4, 5, 6, 7, 8}},
      local::LoadDone{4, ok_status(), LoadTimes{}, some_damage()},
      local::Refused{9, 1, Status(Code::no_space, "the disk is full")},
      local::Detach{},
      local::Written{9, 2, some_durable_assignment()},
      local::Written{9, 2, some_durable_assignment(), staged.user},
      local::Written{9, 2, some_durable_assignment(), staged.user, some_digests()},
      local::NotStaged{9, 3, Status(Code::busy, "2 saves are in flight")},
      local::Ping{},
      local::Pong{},
      local::StillWriting{9, 3},
      local::StatusRequest{},
      local::StatusReport{std::make_shared<const NodeStatus>(some_status())},
      local::JobStatusRequest{},
      local::JobStatusReport{std::make_shared<const JobStatus>(some_job_status())},
      local::PlanRequest{9, 4, some_layout()->id(), xxh3_128(as_view("a share"))},
      local::PlanRequest{9, 4, some_layout()->id(), {}},
      local::PlanUpdate{9, 4, some_world()->roster.id(), some_plan()},
      local::PlanUpdate{9, 4, some_world()->roster.id(), nullptr},
      local::PlanRequest{9, 4, some_layout()->id(), {}, true},
      exchange_of(plan::GatherStage::offered, {"a plan"}),
      exchange_of(plan::GatherStage::gathered, {"a plan", "", "another"}),
      local::StagingRequest{uint64_t{1} << 30, 2, uint64_t{3} << 30, "staging_bytes_max", 7},
      local::StagingGranted{1, uint64_t{32} << 20, true, ok_status(), 7},
      local::StagingGranted{0, 0, false, Status(Code::no_space, "60.0 MiB are left"), 8},
      local::StagingKept{4096, {0, 1}, 2},
      local::GiveBack{},
      local::PartRequest{1, 9, 4, 7, {{0, 100, 0}, {128, 64, 128}}},
      local::PartStaged{1, 7, ok_status()},
      local::PartStaged{1, 8, Status(Code::aborted, "the save has ended")},
      local::List{8, 100},
      local::Listing{8, ok_status(), std::make_shared<const CheckpointList>(some_listing())},
      local::Listing{9, Status(Code::io, "the root cannot be read"), nullptr},
      local::SaveReturned{9, 4, 2'000'000, 1'000}};
}

TEST(LocalMessages, SurviveEncodingAndDecoding) {
  for (const LocalMessage& message : one_of_each()) {
    const Bytes bytes = encode_local(message);
    Result<LocalMessage> again = decode_local(bytes);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(encode_local(*again), bytes) << "message " << message.index();
  }
}

// So a field that encode.cpp forgets is found here, and one that decode.cpp forgets in the test above.
TEST(LocalMessages, AreSampledWithEveryFieldSet) {
  schema::SetFields<schema::LocalMessage> fields;
  for (const LocalMessage& message : one_of_each()) fields.add(encode_local(message));
  const std::set<std::string> unused = {"TensorInfo.bytes"};  // no program writes or reads it
  EXPECT_THAT(fields.unset(unused), ::testing::IsEmpty());
}

TEST(LocalMessages, BringTheAttemptsOfAListing) {
  const CheckpointList sent = some_listing();
  const auto got = decode_local(
      encode_local(local::Listing{8, ok_status(), std::make_shared<const CheckpointList>(sent)}));
  const auto& list = *std::get<local::Listing>(*got).list;
  EXPECT_EQ(list.omitted, sent.omitted);
  ASSERT_EQ(list.attempts.size(), sent.attempts.size());
  for (size_t i = 0; i < sent.attempts.size(); ++i) {
    EXPECT_EQ(list.attempts[i].key, sent.attempts[i].key);
    EXPECT_EQ(list.attempts[i].state, sent.attempts[i].state);
    EXPECT_EQ(list.attempts[i].world_size, sent.attempts[i].world_size);
    EXPECT_EQ(list.attempts[i].files, sent.attempts[i].files);
    EXPECT_EQ(list.attempts[i].payload_bytes, sent.attempts[i].payload_bytes);
    EXPECT_EQ(list.attempts[i].unix_time_ns, sent.attempts[i].unix_time_ns);
    EXPECT_EQ(list.attempts[i].cause, sent.attempts[i].cause);
  }
}

TEST(LocalMessages, BringTheDigestsOfReplicasAndTheWarningOfACommit) {
  local::Staged staged;
  staged.replicas = some_digests();
  auto message = decode_local(encode_local(staged));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  EXPECT_EQ(*std::get<local::Staged>(*message).replicas, *some_digests());
  message =
      decode_local(encode_local(local::Written{9, 2, some_durable_assignment(), nullptr, some_digests()}));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  EXPECT_EQ(*std::get<local::Written>(*message).replicas, *some_digests());
  message = decode_local(encode_local(local::Decided{
      9, 1, ok_status(), std::make_shared<const Metadata>(some_metadata()), "replicas differ: 'w'"}));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  EXPECT_EQ(std::get<local::Decided>(*message).warning, "replicas differ: 'w'");
}

TEST(LocalMessages, BringThePlansOfPlanners) {
  auto message = decode_local(encode_local(exchange_of(plan::GatherStage::made, {"a plan", "", "another"})));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  const auto& made = std::get<local::PlanGathering>(*message);
  EXPECT_EQ(made.stage, plan::GatherStage::made);
  EXPECT_EQ(made.coordinator_rank, 1u);
  ASSERT_EQ(made.plans.size(), 3u);
  EXPECT_EQ(*made.plans[0], "a plan");
  EXPECT_EQ(*made.plans[1], "");
  EXPECT_EQ(*made.plans[2], "another");
  for (plan::GatherStage of_one : {plan::GatherStage::offered, plan::GatherStage::delivered}) {
    EXPECT_FALSE(decode_local(encode_local(exchange_of(of_one, {"a plan", "another"}))).ok());
    EXPECT_FALSE(decode_local(encode_local(exchange_of(of_one, {}))).ok());
  }
}

TEST(LocalMessages, CarryAStatusAsItIs) {
  auto failed = decode_local(encode_local(local::Failed{Status(Code::refused, "another job")}));
  EXPECT_EQ(std::get<local::Failed>(*failed).why, Status(Code::refused, "another job"));
  const std::string endless(2 * kMaxLocalCauseBytes, 'x');
  auto cut = decode_local(encode_local(local::Failed{Status(Code::io, endless)}));
  EXPECT_EQ(std::get<local::Failed>(*cut).why.message().size(), kMaxLocalCauseBytes);
}

TEST(LocalMessages, BringAWholeWorld) {
  auto message = decode_local(encode_local(local::RosterUpdate{some_world(), kRuleVersion, SaveOptions{}}));
  const auto& roster = std::get<local::RosterUpdate>(*message);
  EXPECT_EQ(roster.world->roster.id(), some_world()->roster.id());
  EXPECT_EQ(roster.world->layout_of(1).id(), some_layout()->id());
}

// Its roster and layouts as they lie in a manifest.
struct Encodings {
  explicit Encodings(const World& world) : roster(plan::encode_roster(world.roster)) {
    for (const LayoutPtr& layout : world.layouts) layouts.push_back(plan::encode_layout(*layout));
  }
  std::shared_ptr<const plan::EncodedWorld> view() const {
    return std::make_shared<const plan::EncodedWorld>(
        plan::EncodedWorld{roster, {layouts.begin(), layouts.end()}});
  }
  Bytes roster;
  std::vector<Bytes> layouts;
};

TEST(LocalMessages, PassLayoutsOnAsTheyStandInAManifest) {
  local::Found found = found_with_layouts();
  const Bytes fresh = encode_local(found);
  const Encodings encodings(*found.layouts->world);
  found.layouts->encoded = encodings.view();
  found.layouts->world = nullptr;
  EXPECT_EQ(encode_local(found), fresh);
}

TEST(LocalMessages, PassLargeLayoutsOnToo) {
  LayoutBuilder builder;
  for (uint32_t i = 0; i < 3000; ++i) {
    builder.add_tensor("layer" + std::to_string(i), DType::f32, {i, 2}, Mesh::contiguous({2}),
                       {Placement::shard(0)});
  }
  const LayoutPtr large = std::move(builder).build().value();
  std::vector<LayoutId> ids{some_layout()->id(), large->id()};
  World world{Roster::make(ids, std::vector<uint32_t>{0, 0}).value(), {some_layout(), large}};
  const Encodings encodings(world);
  local::Found found{4, ok_status(), some_metadata(), local::StoredLayouts{}};
  found.checkpoint.state_dict_metadata.clear();
  found.checkpoint.world_size = 2;
  found.layouts->encoded = encodings.view();
  auto message = decode_local(encode_local(found));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  const auto& notified = std::get<local::Found>(*message);
  ASSERT_TRUE(notified.outcome.ok()) << notified.outcome.to_string();
  EXPECT_EQ(notified.layouts->world->layouts[1]->id(), large->id());
  EXPECT_EQ(list_values(*notified.layouts->world).size(), list_values(world).size());
}

// The node passes them on before it looks into them: what is wrong with them ends the request, not the
// connection.
TEST(LocalMessages, SayWhatIsWrongWithLayoutsThatWerePassedOn) {
  local::Found found = found_with_layouts();
  Encodings encodings(*found.layouts->world);
  encodings.layouts[0][8] ^= std::byte{1};
  found.layouts->encoded = encodings.view();
  auto message = decode_local(encode_local(found));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  const auto& notified = std::get<local::Found>(*message);
  EXPECT_EQ(notified.outcome.code(), Code::corrupt);
  EXPECT_THAT(notified.outcome.message(), ::testing::HasSubstr(to_string(found.checkpoint.key)));
  EXPECT_FALSE(notified.layouts);
}

TEST(LocalMessages, ListTheValuesOfAWorldAsTheyAreEncoded) {
  local::Found found{4, ok_status(), some_metadata()};
  found.checkpoint.state_dict_metadata = list_values(*some_world());
  const Bytes listed = encode_local(found);
  found.checkpoint.state_dict_metadata.clear();
  EXPECT_NE(encode_local(found), listed);
  found.values_of = some_world();
  EXPECT_EQ(encode_local(found), listed);
}

TEST(LocalMessages, BringLayoutsFromWhichValuesFollow) {
  auto message = decode_local(encode_local(found_with_layouts()));
  ASSERT_TRUE(message.ok()) << message.status().to_string();
  const auto& found = std::get<local::Found>(*message);
  ASSERT_TRUE(found.layouts);
  EXPECT_EQ(found.layouts->world->roster.id(), some_world()->roster.id());
  EXPECT_EQ(found.layouts->rule_version, 7u);
  EXPECT_TRUE(found.checkpoint.state_dict_metadata.empty());  // listed where they are asked for
  EXPECT_EQ(list_values(*found.layouts->world), list_values(*some_world()));
  local::Found other_world = found_with_layouts();
  ++other_world.checkpoint.world_size;
  EXPECT_EQ(decode_local(encode_local(other_world)).status().code(), Code::corrupt);
}

void expect_refused(const LocalMessage& message, std::string_view part_of_why) {
  Result<LocalMessage> decoded = decode_local(encode_local(message));
  ASSERT_FALSE(decoded.ok());
  EXPECT_NE(decoded.status().message().find(part_of_why), std::string::npos) << decoded.status().to_string();
}

TEST(LocalMessages, ThatMakeNoSenseAreRefused) {
  expect_refused(local::Attach{1, 2, 2, "job", 1, {}}, "rank 2 is not in a world of 2");
  expect_refused(local::Attach{1, 1, 2, "job", 1, {}, 3}, "3 ranks on one host, in a world of 2");
  expect_refused(local::Slab{0, kMaxSlabBytes + 1}, "slab");
  expect_refused(local::Failed{ok_status()}, "has no error");
  CheckpointList of_no_state = some_listing(), too_long = some_listing(), cause = some_listing();
  of_no_state.attempts[0].state = static_cast<CheckpointInfo::State>(5);
  too_long.attempts.resize(kMaxListedCheckpoints + 1);
  cause.attempts[0].cause.assign(kMaxListedCauseBytes + 1, 'x');
  for (const auto& [list, why] : {std::pair{of_no_state, "state of an attempt"},
                                  {too_long, "attempts of a listing"},
                                  {cause, "cause of an attempt"}}) {
    expect_refused(local::Listing{8, ok_status(), std::make_shared<const CheckpointList>(list)}, why);
  }
  expect_refused(local::LayoutUpdate{some_layout(), SaveOptions{Dedupe::none, 1}}, "unit_bytes");
  local::Staged staged;
  staged.pieces = {{1, 0, 0, 8, 0}, {0, 0, 0, 8, 8}};
  expect_refused(staged, "not in ascending order");
  staged.pieces = {{0, 0, 0, 8, kMaxSlabBytes}};
  expect_refused(staged, "exceed the largest slab");
  local::Written written{9, 2, some_durable_assignment()};
  written.assignment.files[1].index = 0;
  expect_refused(written, "not numbered from 0");
  written.assignment.files[1] = {1, 500, xxh3_128(as_view("two")), 501};
  expect_refused(written, "payload");
  written.assignment.files.resize(kMaxFilesPerRank + 1);
  expect_refused(written, "files of an assignment");
  expect_refused(local::NotStaged{9, 3, ok_status()}, "has no error");
  local::Load load;
  load.targets = {{"w", LayoutEntry::Kind::tensor, DType::f32, {8, 6}, {Box{{5, 0}, {4, 6}}}}};
  expect_refused(load, "w");
  load.targets = {{"w", LayoutEntry::Kind::tensor, DType::f32, {uint64_t{1} << 60, 1 << 20}, {}}};
  expect_refused(load, "overflows");
  load.targets = {{"a\n", LayoutEntry::Kind::tensor, DType::f32, {1}, {}}};
  expect_refused(load, "fqn");
  expect_refused(local::Loaded{1, 0, {{{0, Box{}, 5, 4, 8}, 0}}}, "exceed the stored piece");
  expect_refused(local::Loaded{1, 0, {{{0, Box{{0}, {}}, 0, 4, 8}, 0}}},
                 "the numbers of offsets and sizes differ");
  const std::string file = "step-00000003/g1a1/rank-00000.safetensors";
  for (const std::string& path :
       std::vector<std::string>{"", "/etc/passwd", "a//b", "a/", "../a", "a/../b", "a/.b", "./a",
                                std::string(kMaxLocalPathBytes + 1, 'a')}) {
    expect_refused(local::FilesToRead{1, 0, {path}, {}, {}}, "path of a file");
  }
  const local::StoredRange range{0, Box{{0}, {8}}, 0, 8, 8};
  expect_refused(local::FilesToRead{1, 0, {file}, {{range, 1, 0}}, {7}}, "not in the list");
  expect_refused(local::FilesToRead{1, 0, {file}, {{range, 0, kMaxLocalFileBytes}}, {7}},
                 "exceeds the largest file");
  expect_refused(local::FilesToRead{1, 0, {file}, {{{0, Box{}, 5, 4, 8}, 0, 0}}, {7}}, "the stored piece");
  expect_refused(local::FilesRead{1, 0, {{0, 2, 1}}}, "left unread");
  expect_refused(local::StagingRequest{4096, 0}, "0 slabs of 4096 bytes");
  expect_refused(local::StagingRequest{kMaxSlabBytes + 1, 1}, "1 slabs of");
  expect_refused(local::StagingGranted{1, 0}, "1 slabs of 0 bytes");
  expect_refused(local::PartRequest{1, 9, 4, 7, {{kMaxSlabBytes, 1, 0}}}, "exceed the largest slab");
}

TEST(LocalMessages, SurviveNoFlipOfABitBadly) {
  std::mt19937_64 random(7);
  for (const LocalMessage& message : one_of_each()) {
    const Bytes bytes = encode_local(message);
    for (int round = 0; round < 400; ++round) {
      Bytes bad = bytes;
      for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
        bad[random() % bad.size()] ^= std::byte{1} << (random() % 8);
      }
      if (random() % 4 == 0) bad.resize(random() % bad.size());
      Result<LocalMessage> decoded = decode_local(bad);
      if (!decoded.ok()) {
        EXPECT_EQ(decoded.status().message().find('\n'), std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::local
