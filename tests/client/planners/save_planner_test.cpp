#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

#include "shoal/dcp/save_planner.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using dcp::DefaultSavePlanner;
using dcp::WriteItem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ASavePlanner : public ::testing::Test {
 protected:
  void open() { checkpointer_ = attach(node_, options_); }
  void TearDown() override {
    if (checkpointer_) node_.send(local::Failed{Status(Code::aborted, "the test is over")});
    node_.die();  // otherwise close() would wait for slabs that are never freed
    checkpointer_.reset();
  }
  std::vector<uint16_t> staged_values(const local::Staged& staged, size_t piece) {
    const local::StagedPiece& at = staged.pieces[piece];
    std::vector<uint16_t> out((at.bytes + 1) / 2);  // an object may be odd
    if (!out.empty()) std::memcpy(out.data(), node_.slab(staged.slab_id) + at.slab_offset, at.bytes);
    return out;
  }
  // The node makes a plan for two ranks with this layout on one host, and the client receives it.
  std::shared_ptr<const World> announce_roster(const local::LayoutUpdate& received) {
    auto world = std::make_shared<World>(World{
        Roster::make(std::vector<LayoutId>(2, received.layout->id()), std::vector<uint32_t>{0, 0}).value(),
        {received.layout}});
    node_.send(local::RosterUpdate{world, kRuleVersion, received.options});
    auto asked = std::async(std::launch::async, [&] { return checkpointer_->latest(); });
    node_.send(local::Found{node_.expect<local::Latest>().request_id, ok_status(), {}});
    EXPECT_TRUE(asked.get().ok());
    return world;
  }

  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_ = options_of_two_ranks(root_.path());
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(ASavePlanner, FiltersAndRenamesAndKeepsTheShardingOfWhatStays) {
  open();
  const Mesh world = Mesh::contiguous({2});
  std::vector<uint16_t> weights = numbers(12), bias = numbers(4, 100), lr = numbers(1, 7);
  std::string rng = "random", scratch = "left out";
  StateDict state;
  state.add_tensor("model.weights", DType::u16, {6, 4}, world, {Placement::shard(0)}, weights.data());
  state.add_tensor("model.bias", DType::u16, {4}, world, {Placement::replicate()}, bias.data());
  state.add_value("lr", DType::u16, {}, lr.data(), world, true);
  state.add_rank_object("rng", &rng);
  state.add_object("tmp.scratch", &scratch, world);

  dcp::DefaultSavePlannerOptions rules;
  rules.keys.drop_prefixes = {"tmp."};
  rules.keys.filter = [](std::string_view fqn) { return fqn != "lr"; };
  rules.keys.rename_prefixes = {{"model.", "net."}};
  DefaultSavePlanner planner(rules);
  const SaveHandle saved = checkpointer_->save(10, state, planner).value();
  EXPECT_EQ(saved.stats().bytes_staged, 24u + 8 + 6);

  // The layout of a state that has these names to begin with.
  LayoutBuilder wanted;
  wanted.add_tensor("net.weights", DType::u16, {6, 4}, world, {Placement::shard(0)});
  wanted.add_tensor("net.bias", DType::u16, {4}, world, {Placement::replicate()});
  wanted.add_rank_objects("rng");
  EXPECT_EQ(node_.expect<local::LayoutUpdate>().layout->id(), std::move(wanted).build().value()->id());
  auto staged = node_.expect<local::Staged>();
  ASSERT_EQ(staged.pieces.size(), 3u);
  EXPECT_EQ(staged_values(staged, 0), bias);
  EXPECT_EQ(staged_values(staged, 1), weights);
}

TEST_F(ASavePlanner, StagesWhatThePlainSaveStagesWhateverTheSharding) {
  open();
  std::mt19937_64 random(3);
  const Mesh mesh = Mesh::contiguous({2, 1, 2}), world = Mesh::contiguous({2});
  const DeviceMap devices = *DeviceMap::uniform(2, 2);
  std::deque<std::vector<uint16_t>> memory;
  auto buffer = [&](uint64_t count) {
    return memory.emplace_back(numbers(count, memory.size() * 97)).data();
  };
  std::string object = "an object";
  StateDict state;
  const Dims shape{5, 12, 6};
  for (int i = 0; i < 40; ++i) {
    std::vector<Placement> placements;
    for (int d = 0; d < 3; ++d) {
      const auto dim = static_cast<uint32_t>(random() % 3);
      const uint64_t kind = random() % 3;
      placements.push_back(kind == 0   ? Placement::replicate()
                           : kind == 1 ? Placement::shard(dim)
                                       : Placement::strided_shard(dim, 2 + random() % 2));
    }
    const LocalShards shards = shards_at(shape, mesh, placements, Dims{0, 0, 0});
    state.add_tensor(fmt::format("t{}", i), DType::u16, shape, mesh, placements,
                     buffer(*element_count(shards.local_shape)));
  }
  const TileSharding tiles = *TileSharding::tiled(devices, {2, 2}, {0, 1, 2, 3});
  state.add_tensor("tiles", DType::u16, {3, 3}, tiles, {{0, buffer(4)}, {1, buffer(2)}});
  state.add_tensor("replicas", DType::u16, {3}, TileSharding::replicated(devices),
                   {{0, buffer(3)}, {1, buffer(3)}});
  state.add_tensor_boxes("boxes", DType::u16, {8}, {{Box{{4}, {2}}, buffer(2)}, {Box{{0}, {3}}, buffer(3)}});
  state.add_tensor("empty", DType::u16, {0, 4}, world, {Placement::shard(0)}, nullptr);
  state.add_tensor("short", DType::u16, {1}, *Mesh::from_ranks({2}, {1, 0}), {Placement::shard(0)}, nullptr);
  state.add_value("value", DType::u16, {2}, buffer(2), world);
  state.add_object("object", &object, world);
  state.add_rank_object("own", &object);

  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  const auto layout = node_.expect<local::LayoutUpdate>();
  const auto plain = node_.expect<local::Staged>();
  DefaultSavePlanner planner;
  Result<SaveHandle> saved = checkpointer_->save(2, state, planner);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  const auto planned = node_.expect<local::Staged>();  // no other layout is declared before it
  EXPECT_EQ(planned.layout_id, layout.layout->id());
  ASSERT_EQ(planned.pieces.size(), plain.pieces.size());
  for (size_t i = 0; i < plain.pieces.size(); ++i) {
    const local::StagedPiece &a = plain.pieces[i], &b = planned.pieces[i];
    ASSERT_EQ(std::tie(a.entry, a.local_box, a.local_offset, a.bytes),
              std::tie(b.entry, b.local_box, b.local_offset, b.bytes));
    EXPECT_EQ(staged_values(plain, i), staged_values(planned, i)) << layout.layout->entries()[a.entry].fqn;
  }
}

// Widens values to 32 bits, and counts its calls.
class WidePlanner : public DefaultSavePlanner {
 public:
  Result<dcp::SavePlan> create_local_plan() override {
    SHOAL_ASSIGN_OR_RETURN(dcp::SavePlan plan, DefaultSavePlanner::create_local_plan());
    for (WriteItem& item : plan.items) {
      if (item.tensor_data) item.tensor_data->properties.dtype = DType::u32;
    }
    plan.planner_data = "wide";
    return plan;
  }
  Result<dcp::SavePlan> finish_plan(dcp::SavePlan plan) override {
    EXPECT_EQ(plan.planner_data, "wide");
    final_items = plan.items;
    return plan;
  }
  Result<dcp::Data> resolve_data(const WriteItem& item) override {
    asked.push_back(item.index.fqn);
    SHOAL_ASSIGN_OR_RETURN(dcp::Data narrow, DefaultSavePlanner::resolve_data(item));
    Bytes wide(narrow.bytes.size() * 2);
    for (size_t i = 0; i < narrow.bytes.size() / 2; ++i) {
      std::memcpy(&wide[i * 4], &narrow.bytes[i * 2], 2);
    }
    return dcp::Data::owned(std::move(wide));
  }
  void release() override { ++releases; }
  std::vector<WriteItem> final_items;
  std::vector<std::string> asked;
  int releases = 0;
};

TEST_F(ASavePlanner, IsAskedForTheBytesOfItsRanksAssignmentAlone) {
  options_.save.unit_bytes = 1024;
  open();
  const Mesh world = Mesh::contiguous({2});
  std::vector<uint16_t> large = numbers(4096), small = numbers(4);
  StateDict state;
  state.add_tensor("large", DType::u16, {64, 64}, world, {Placement::replicate()}, large.data());
  for (int i = 0; i < 8; ++i) {
    state.add_value(fmt::format("v{}", i), DType::u16, {4}, small.data(), world);
  }
  WidePlanner planner;
  ASSERT_TRUE(checkpointer_->save(1, state, planner).ok());
  EXPECT_EQ(planner.asked.size(), 9u) << "without a roster everything held is staged";
  const auto layout = node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  const auto roster = announce_roster(layout);

  planner.asked.clear();
  const SaveHandle saved = checkpointer_->save(2, state, planner).value();
  EXPECT_TRUE(saved.stats().with_plan);
  const SavePlan plan = plan_save(*roster, 0, layout.options).value();
  EXPECT_EQ(saved.stats().bytes_staged, plan.tensor_bytes);
  EXPECT_EQ(planner.releases, 2);
  ASSERT_LT(planner.asked.size(), 9u);
  ASSERT_EQ(planner.asked.front(), "large");
  uint64_t elements = 0;
  for (const Box& part : planner.final_items.front().parts) elements += part.elements();
  EXPECT_EQ(elements, 2048u) << "half of it is the other rank's";
  const auto staged = node_.expect<local::Staged>();
  EXPECT_EQ(staged.plan_id, plan.id);
  for (size_t p = 0; p < staged.pieces.size(); ++p) {
    if (staged.pieces[p].entry != 0) continue;
    std::vector<uint16_t> halves = staged_values(staged, p);
    for (size_t i = 0; i < halves.size(); i += 2) {
      ASSERT_EQ(halves[i], large[staged.pieces[p].local_offset / 4 + i / 2]);
    }
  }
}

// A planner written from scratch: two rows of a matrix, an object, a declared replica.
class HandMadePlanner : public dcp::LocalSavePlanner {
 public:
  Status set_up_planner(const StateDict&, const dcp::StorageMeta& meta, const dcp::Role& role) override {
    EXPECT_EQ(meta.checkpoint_id, "step-00000005/g3a1");
    EXPECT_EQ(role.world_size, 2u);
    EXPECT_TRUE(role.is_coordinator);
    return fails_at == "set_up_planner" ? Status(Code::io, "no luck") : ok_status();
  }
  Result<dcp::SavePlan> create_local_plan() override {
    if (fails_at == "create_local_plan") return Status(Code::io, "no luck");
    dcp::SavePlan plan;
    for (uint64_t row : {2, 0}) {
      plan.items.push_back({{"rows", Dims{row, 0}},
                            dcp::WriteItemType::shard,
                            dcp::TensorWriteData{Box{{row, 0}, {1, 4}}, {DType::u16}, {4, 4}}});
    }
    plan.items.push_back({{"step"}, dcp::WriteItemType::byte_io});
    plan.items.push_back({{"bias", Dims{0}},
                          dcp::WriteItemType::tensor,
                          dcp::TensorWriteData{whole(Dims{4}), {DType::u16}, {4}}});
    plan.items.back().replicated = true;
    return plan;
  }
  Result<dcp::SavePlan> finish_plan(dcp::SavePlan plan) override {
    if (fails_at == "finish_plan") return Status(Code::io, "no luck");
    if (fails_at == "finish_plan: the planner") plan.items.pop_back();
    return plan;
  }
  Result<dcp::Data> resolve_data(const WriteItem& item) override {
    if (fails_at == "resolve_data") return Status(Code::io, "no luck");
    if (fails_at == "resolve_data: 'rows': resolve_data returned 6 bytes" && item.index.fqn == "rows") {
      return dcp::Data::owned(std::string(6, 'x'));
    }
    if (item.type == dcp::WriteItemType::byte_io) return dcp::Data::owned(std::string("step five"));
    const auto first = static_cast<uint16_t>(item.index.offset->front() * 4);
    const std::vector<uint16_t> values = numbers(4, first);
    return dcp::Data::owned(std::string(reinterpret_cast<const char*>(values.data()), 8));
  }
  std::string fails_at;
};

TEST_F(ASavePlanner, FromScratchSavesExplicitBoxes) {
  open();
  HandMadePlanner planner;
  Result<SaveHandle> saved = checkpointer_->save(5, StateDict{}, planner);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  LayoutBuilder wanted;
  wanted.add_tensor_boxes("rows", DType::u16, {4, 4}, {{0, {Box{{2, 0}, {1, 4}}, Box{{0, 0}, {1, 4}}}}});
  wanted.add_object("step", Mesh::contiguous({2}));
  wanted.add_tensor_boxes("bias", DType::u16, {4}, {{0, {Box{{0}, {4}}}}}, true);
  EXPECT_EQ(node_.expect<local::LayoutUpdate>().layout->id(), std::move(wanted).build().value()->id());
  const auto staged = node_.expect<local::Staged>();
  ASSERT_EQ(staged.pieces.size(), 4u);  // bias, rows, rows, step
  EXPECT_EQ(staged_values(staged, 0), numbers(4));
  EXPECT_EQ(staged_values(staged, 1), numbers(4, 8));
  EXPECT_EQ(staged_values(staged, 2), numbers(4));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(node_.slab(0)) + staged.pieces[3].slab_offset, 9),
            "step five");
}

// Whichever step fails, the other ranks learn at once that this one takes no part, and why.
class AFailingSavePlanner : public ASavePlanner, public testing::WithParamInterface<const char*> {};

TEST_P(AFailingSavePlanner, FailsTheSaveByTheNameOfTheStep) {
  open();
  HandMadePlanner planner;
  planner.fails_at = GetParam();
  const Status failed = checkpointer_->save(5, StateDict{}, planner).status();
  const std::string name = "rank 0, step 5 (g3a1)";
  EXPECT_THAT(failed.message(), ::testing::StartsWith(name + ": " + GetParam()));
  if (planner.fails_at.find("finish_plan") == 0 || planner.fails_at.find("resolve_data") == 0) {
    (void)node_.expect<local::LayoutUpdate>();
  }
  const auto received = node_.expect<local::NotStaged>();
  EXPECT_EQ(received.step, 5u);
  EXPECT_EQ(received.why.with_context(name), failed);
}

INSTANTIATE_TEST_SUITE_P(AnyStep, AFailingSavePlanner,
                         ::testing::Values("set_up_planner", "create_local_plan", "finish_plan",
                                           "finish_plan: the planner", "resolve_data",
                                           "resolve_data: 'rows': resolve_data returned 6 bytes"),
                         [](const auto& at) { return fmt::format("Nr{}", at.index); });

class GlobalPlanner : public dcp::DefaultGlobalSavePlanner {
 public:
  Result<dcp::GlobalSavePlan> create_global_plan(std::vector<dcp::SavePlan> plans) override {
    return dcp::DefaultGlobalSavePlanner::create_global_plan(std::move(plans));
  }
};

TEST_F(ASavePlanner, WithAGlobalPlanOfItsOwnIsRefusedByName) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local}) {
    options_.save.mode = mode;
    open();
    GlobalPlanner planner;
    const Status refused = checkpointer_->save(1, StateDict{}, planner).status();
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_THAT(refused.message(), HasSubstr("GlobalPlanner overrides create_global_plan"));
    EXPECT_THAT(refused.message(), HasSubstr(fmt::format("a {} save", mode_name(mode))));
    EXPECT_THAT(refused.message(), ::testing::EndsWith(node_.expect<local::NotStaged>().why.message()));
    checkpointer_.reset();
    node_.die();
  }
}

// The node that was to pass it on may have been the only one that had it.
TEST_F(ASavePlanner, ThatMadeTheGlobalPlanSaysSoToTheNextNodeUntilItHasStaged) {
  options_.save.mode = SaveMode::collective;
  options_.attach_timeout = std::chrono::seconds(20);
  open();
  auto values = numbers(4);
  StateDict state;
  state.add_tensor("w", DType::u16, {4}, Mesh::contiguous({2}), {Placement::replicate()}, values.data());
  GlobalPlanner planner;
  auto saving =
      std::async(std::launch::async, [&] { return checkpointer_->save(1, state, planner).status(); });
  auto received = node_.expect<local::PlanGathering>();
  EXPECT_EQ(received.stage, plan::GatherStage::offered);
  received.stage = plan::GatherStage::gathered;
  received.plans.push_back(received.plans.front());
  node_.send(received);
  const auto made = node_.expect<local::PlanGathering>();
  EXPECT_EQ(made.stage, plan::GatherStage::made);
  received.stage = plan::GatherStage::delivered;
  received.plans = {made.plans.front()};
  node_.send(received);
  node_.expect<local::LayoutUpdate>();
  node_.expect<local::PlanRequest>();

  node_.die();
  node_.accept();
  node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  node_.expect<local::LayoutUpdate>();
  const auto again = node_.expect<local::PlanGathering>();
  EXPECT_EQ(again.stage, plan::GatherStage::made);
  ASSERT_EQ(again.plans.size(), 2u);
  EXPECT_EQ(*again.plans[1], *made.plans[1]);
  node_.expect<local::PlanRequest>();
  node_.send(local::Decided{1, 1, Status(Code::aborted, "enough"), {}});
  EXPECT_EQ(saving.get().message(), "rank 0, step 1 (g3a1): enough");
}

dcp::SavePlan plan_of(std::vector<WriteItem> items) {
  return {std::move(items), "", ""};
}

WriteItem shard(std::string fqn, Box chunk, Dims size, DType dtype = DType::f32) {
  return {{std::move(fqn), chunk.offsets},
          dcp::WriteItemType::shard,
          dcp::TensorWriteData{chunk, {dtype}, std::move(size)}};
}

TEST(ALocalPlan, IsRefusedByNameWhereItCannotBeRight) {
  auto message = [](std::vector<WriteItem> items) {
    return dcp::validate_local_plan(plan_of(std::move(items))).message();
  };
  const Box low{{0}, {4}}, high{{4}, {4}}, middle{{3}, {2}};
  EXPECT_EQ(message({shard("x", low, {8}), shard("x", high, {8}), shard("y", low, {4})}), "");
  EXPECT_EQ(message({shard("x", low, {8}), shard("x", low, {8})}), "'x' at [0] is given twice");
  EXPECT_EQ(message({shard("x", low, {8}), shard("x", middle, {8}), shard("x", high, {8})}),
            "'x': chunks [0:4] and [3:5] of this rank overlap");
  EXPECT_THAT(message({shard("x", high, {7})}), HasSubstr("'x': "));
  EXPECT_THAT(message({shard("x", low, {8}), shard("x", high, {9})}), HasSubstr("its items have different"));
  EXPECT_THAT(message({shard("x", low, {8}), shard("x", high, {8}, DType::f16)}),
              HasSubstr("its items have different"));
  EXPECT_THAT(message({shard("x", low, {8}, DType::f4)}), HasSubstr("F4"));
  EXPECT_THAT(message({{{"o"}, dcp::WriteItemType::byte_io}, {{"o"}, dcp::WriteItemType::byte_io}}),
              HasSubstr("'o' is given twice"));
  EXPECT_THAT(message({{{"o"}, dcp::WriteItemType::tensor}}),
              HasSubstr("'o': a tensor must have tensor_data"));
  WriteItem moved = shard("x", high, {8});
  moved.index.offset = Dims{0};
  EXPECT_EQ(message({moved}), "'x': 'x' at [0] is not where its chunk [4:8] begins");
  EXPECT_THAT(message({shard("", low, {8})}), ::testing::Not(""));
}

TEST(ADefaultSavePlanner, ChecksItsPlanUnlessItIsToldNotTo) {
  std::vector<uint16_t> data(8);
  StateDict state;
  state.add_tensor_boxes("x", DType::u16, {8}, {{{{0}, {4}}, data.data()}, {{{3}, {2}}, data.data()}});
  for (bool validate : {true, false}) {
    dcp::DefaultSavePlannerOptions options;
    options.validate = validate;
    dcp::DefaultSavePlanner planner(options);
    ASSERT_TRUE(planner.set_up_planner(state, {{1, 1, 1}, "step"}, {0, 1, true}).ok());
    const auto plan = planner.create_local_plan();
    EXPECT_EQ(plan.ok(), !validate);
    const std::string received = plan.ok() ? "" : plan.status().message();
    EXPECT_EQ(received, validate ? "'x': chunks [0:4] and [3:5] of this rank overlap" : "");
  }
}

// Pairs, each tried against every element of a small tensor.
TEST(ALocalPlan, IsRefusedExactlyWhereTwoChunksMeet) {
  std::mt19937_64 random(17);
  int met = 0;
  for (int round = 0; round < 2000; ++round) {
    const Dims size{6, 5};
    std::vector<WriteItem> items;
    std::vector<int> holders(30, 0);
    for (int i = 0; i < 3; ++i) {
      Box box{{random() % 6, random() % 5}, {}};
      box.sizes = {1 + random() % (6 - box.offsets[0]), 1 + random() % (5 - box.offsets[1])};
      for (uint64_t a = 0; a < box.sizes[0]; ++a) {
        for (uint64_t b = 0; b < box.sizes[1]; ++b) ++holders[(box.offsets[0] + a) * 5 + box.offsets[1] + b];
      }
      items.push_back(shard("x", box, size));
    }
    const bool meets = *std::max_element(holders.begin(), holders.end()) > 1;
    met += meets;
    ASSERT_EQ(dcp::validate_local_plan(plan_of(items)).ok(), !meets) << "round " << round;
  }
  EXPECT_GT(met, 100);
}

TEST(KeyRules, KeepDropAndRenameInThisOrder) {
  dcp::KeyRules rules;
  EXPECT_EQ(rules.stored_name("a"), "a");
  rules.keep_prefixes = {"model.", "optim."};
  rules.drop_prefixes = {"model.tmp"};
  rules.filter = [](std::string_view fqn) { return fqn.find("frozen") == std::string_view::npos; };
  rules.rename_prefixes = {{"model.a.", "b."}, {"model.", ""}};
  EXPECT_EQ(rules.stored_name("model.a.w"), "b.w");
  EXPECT_EQ(rules.stored_name("model.w"), "w");
  EXPECT_EQ(rules.stored_name("optim.w"), "optim.w");
  EXPECT_EQ(rules.stored_name("model.tmp.w"), std::nullopt);
  EXPECT_EQ(rules.stored_name("model.frozen"), std::nullopt);
  EXPECT_EQ(rules.stored_name("other"), std::nullopt);
  rules.rename = [](std::string_view fqn) { return "x/" + std::string(fqn); };
  EXPECT_EQ(rules.stored_name("model.w"), "x/w");
}

TEST(KeyRules, NameThePrefixesWithWhichNoKeyBegins) {
  dcp::KeyRules rules;
  auto check = [&](std::vector<std::string> names) {
    return rules.check_prefixes([&](const std::function<void(std::string_view)>& see) {
      for (const std::string& name : names) see(name);
    });
  };
  EXPECT_TRUE(check({}).ok());
  rules.keep_prefixes = {"model."};
  rules.drop_prefixes = {"modle.tmp."};
  rules.rename_prefixes = {{"module.", ""}, {"model.", "net."}, {"", "x."}};
  const Status unused = check({"net.w", "model.b"});
  EXPECT_EQ(unused.code(), Code::invalid_argument);
  EXPECT_EQ(unused.message(),
            "KeyRules::drop_prefixes has 'modle.tmp.', KeyRules::rename_prefixes has 'module.': no key of "
            "the state or of the checkpoint has this prefix");
  EXPECT_TRUE(check({"model.w", "modle.tmp.a", "module.b"}).ok());
}

}  // namespace
}  // namespace shoal::client
