#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "client/loading/placing.h"
#include "client/planners/planned_load.h"
#include "shoal/dcp/load_planner.h"
#include "tests/client/planners/elements.h"

namespace shoal::client {
namespace {

using dcp::ReadItem;
using ::testing::HasSubstr;

dcp::Metadata holding(std::string fqn, Dims shape, DType dtype = DType::u32) {
  shoal::Metadata stored;
  stored.key = {3, 10, 1};
  stored.state_dict_metadata = {{std::move(fqn), LayoutEntry::Kind::tensor, dtype, std::move(shape)}};
  return dcp::metadata_of(stored);
}

// Requests boxes of one stored tensor into its own buffers; the same box twice too.
class BoxesPlanner : public dcp::LocalLoadPlanner {
 public:
  BoxesPlanner(Dims shape, std::vector<Box> boxes) : shape_(std::move(shape)), boxes_(std::move(boxes)) {}
  Status set_up_planner(const StateDict&, const dcp::Metadata&, const dcp::Role&) override {
    return fails_at == "set_up_planner" ? Status(Code::io, "no luck") : ok_status();
  }
  Result<dcp::LoadPlan> create_local_plan() override {
    if (fails_at == "create_local_plan") return Status(Code::io, "no luck");
    dcp::LoadPlan plan;
    for (uint32_t i = 0; i < boxes_.size(); ++i) {
      const Dims zeros(shape_.size(), 0);
      plan.items.push_back({dcp::LoadItemType::tensor,
                            {"dest", boxes_[i].offsets, i},
                            zeros,
                            {"x", zeros},
                            boxes_[i].offsets,
                            boxes_[i].sizes});
    }
    return plan;
  }
  Result<dcp::LoadPlan> finish_plan(dcp::LoadPlan plan) override {
    if (fails_at == "finish_plan") return Status(Code::io, "no luck");
    return plan;
  }
  Status load_bytes(const ReadItem&, std::string) override { return Status(Code::internal, "no object"); }
  Result<dcp::Tensor> resolve_tensor(const ReadItem& item) override {
    if (fails_at == "resolve_tensor") return Status(Code::io, "no luck");
    auto memory = std::make_shared<std::vector<uint32_t>>(*element_count(item.lengths) + 1);
    return dcp::Tensor{reinterpret_cast<std::byte*>(memory->data()), item.lengths, Dims(shape_.size(), 0), 4,
                       memory};
  }
  Status commit_tensor(const ReadItem& item, const dcp::Tensor& tensor) override {
    if (fails_at == "commit_tensor") return Status(Code::io, "no luck");
    const Box box{item.storage_offsets, item.lengths};
    std::vector<uint32_t> got(box.elements());
    std::memcpy(got.data(), tensor.data, got.size() * 4);
    EXPECT_EQ(got, elements_of(box, shape_));
    ++commits;
    return ok_status();
  }
  std::string fails_at;
  size_t commits = 0;

 private:
  const Dims shape_;
  const std::vector<Box> boxes_;
};

Status place_whole(Placer& placer, const Box& stored, const Dims& shape) {
  const std::vector<uint32_t> values = elements_of(stored, shape);
  Bytes window(values.size() * 4);
  std::memcpy(window.data(), values.data(), window.size());
  return placer.place({{0, stored, 0, window.size(), window.size()}, 0}, window);
}

// Stored rows arrive in any order: items are committed with the last that any of them needs, and once, though
// the load is begun again in the middle.
TEST(ALoadPlanner, IsHandedATensorOnceWhenAllOfItHasArrived) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 200; ++round) {
    const Dims shape{1 + random() % 8, 1 + random() % 6};
    std::vector<Box> boxes;
    for (int i = 0; i < 3; ++i) {
      Box box{{random() % shape[0], random() % shape[1]}, {}};
      box.sizes = {1 + random() % (shape[0] - box.offsets[0]), 1 + random() % (shape[1] - box.offsets[1])};
      boxes.push_back(box);
    }
    boxes.push_back(boxes[0]);
    BoxesPlanner planner(shape, boxes);
    PlannedLoad load(planner);
    ASSERT_TRUE(load.plan(StateDict(), holding("x", shape), {0, 1, true}).ok());
    const BoundState bound = BoundState::bind(load.state_dict(), 0).value();
    std::vector<Box> rows;
    for (uint64_t row = 0; row < shape[0]; ++row) rows.push_back(Box{{row, 0}, {1, shape[1]}});
    std::shuffle(rows.begin(), rows.end(), random);
    auto needs = [&](const Box& row) {
      return std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return intersect(box, row); });
    };
    const auto last = std::find_if(rows.rbegin(), rows.rend(), needs).base() - 1;
    for (bool again : {false, true}) {
      Placer placer(bound, {0});
      placer.on_arrival([&](const std::string& fqn) { return load.arrived(fqn); });
      const auto stop =
          again ? rows.end() : rows.begin() + static_cast<ptrdiff_t>(random() % (rows.size() + 1));
      for (auto row = rows.begin(); row != stop; ++row) {
        ASSERT_EQ(planner.commits, row > last || planner.commits > 0 ? boxes.size() : 0u);
        ASSERT_TRUE(place_whole(placer, *row, shape).ok());
        if (row == last) {
          ASSERT_EQ(planner.commits, boxes.size());
        }
      }
      if (again) {
        ASSERT_TRUE(placer.finish().ok());
      }
    }
    ASSERT_TRUE(load.finish().ok());
    ASSERT_EQ(planner.commits, boxes.size());
  }
}

class AFailingLoadPlanner : public ::testing::TestWithParam<const char*> {};

TEST_P(AFailingLoadPlanner, IsNamedByItsStep) {
  const Dims shape{4, 4};
  BoxesPlanner planner(shape, {Box{{0, 0}, {4, 4}}});
  planner.fails_at = GetParam();
  PlannedLoad load(planner);
  Status status = load.plan(StateDict(), holding("x", shape), {0, 1, true});
  if (status.ok()) {
    const BoundState bound = BoundState::bind(load.state_dict(), 0).value();
    Placer placer(bound, {0});
    placer.on_arrival([&](const std::string& fqn) { return load.arrived(fqn); });
    status = place_whole(placer, whole(shape), shape);
  }
  EXPECT_EQ(status, Status(Code::io, fmt::format("{}: no luck", GetParam())));
}

INSTANTIATE_TEST_SUITE_P(AnyStep, AFailingLoadPlanner,
                         ::testing::Values("set_up_planner", "create_local_plan", "finish_plan",
                                           "resolve_tensor", "commit_tensor"),
                         [](const auto& at) { return std::string(at.param); });

TEST(ALoadPlanner, MayNotAskForWhatIsNotThere) {
  auto message = [](const Dims& stored, const Dims& shape, Box box, const char* fqn = "x") {
    BoxesPlanner planner(shape, {std::move(box)});
    PlannedLoad load(planner);
    return load.plan(StateDict(), holding(fqn, stored), {0, 1, true}).message();
  };
  EXPECT_EQ(message({4}, {4}, Box{{1}, {3}}), "");
  EXPECT_THAT(message({4}, {4}, Box{{2}, {3}}), HasSubstr("'x' at [0]: "));
  EXPECT_THAT(message({4, 1}, {4}, Box{{0}, {3}}), HasSubstr("dimensions"));
  EXPECT_EQ(message({4}, {4}, Box{{0}, {4}}, "y"), "'x' at [0]: the checkpoint has no such value");
}

class GlobalLoadPlanner : public dcp::LoadPlanner {
 public:
  Status set_up_planner(const StateDict&, const dcp::Metadata&, const dcp::Role&) override {
    return ok_status();
  }
  Result<dcp::LoadPlan> create_local_plan() override { return dcp::LoadPlan{}; }
  Result<std::vector<dcp::LoadPlan>> create_global_plan(std::vector<dcp::LoadPlan> plans) override {
    EXPECT_EQ(plans.size(), 1u);
    ++calls;
    return plans;
  }
  Status load_bytes(const ReadItem&, std::string) override { return ok_status(); }
  Result<dcp::Tensor> resolve_tensor(const ReadItem&) override { return dcp::Tensor{}; }
  Status commit_tensor(const ReadItem&, const dcp::Tensor&) override { return ok_status(); }
  int calls = 0;
};

TEST(ALoadPlanner, WithAGlobalPlanOfItsOwnIsRefusedByNameWhereThereAreSeveralRanks) {
  GlobalLoadPlanner planner;
  PlannedLoad several(planner), one(planner);
  EXPECT_THAT(several.plan(StateDict(), holding("x", {4}), {1, 2, false}).message(),
              HasSubstr("GlobalLoadPlanner overrides create_global_plan"));
  EXPECT_EQ(planner.calls, 0);
  EXPECT_TRUE(one.plan(StateDict(), holding("x", {4}), {0, 1, true}).ok());
  EXPECT_EQ(planner.calls, 1);
}

TEST(TheDefaultLoadPlanner, NamesAllThatCannotBeLoadedAtOnce) {
  shoal::Metadata stored;
  stored.key = {3, 10, 1};
  stored.state_dict_metadata = {{"net.a", LayoutEntry::Kind::tensor, DType::u32, {4}},
                                {"net.b", LayoutEntry::Kind::tensor, DType::u32, {5}},
                                {"net.c", LayoutEntry::Kind::object, DType::u8, {}}};
  std::vector<uint32_t> memory(8);
  std::vector<float> floats(4);
  StateDict state;
  const Mesh world = Mesh::single(0);
  state.add_tensor("a", DType::f32, {4}, world, {Placement::shard(0)}, floats.data());
  state.add_tensor("b", DType::u32, {4}, world, {Placement::shard(0)}, memory.data());
  state.add_value("c", DType::u32, {1}, memory.data(), world);
  state.add_value("d", DType::u32, {1}, memory.data(), world);
  state.add_value("left.out", DType::u32, {1}, memory.data(), world);
  dcp::DefaultLoadPlannerOptions options;
  options.keys.drop_prefixes = {"left."};
  options.keys.rename = [](std::string_view fqn) { return "net." + std::string(fqn); };
  auto plan = [&] {
    dcp::DefaultLoadPlanner planner(options);
    PlannedLoad load(planner);
    std::string message = load.plan(state, dcp::metadata_of(stored), {0, 1, true}).message();
    EXPECT_THAT(planner.missing(), ::testing::ElementsAre("d"));
    return message;
  };
  EXPECT_EQ(plan(),
            "create_local_plan: step-00000010/g3a1 does not have what this load needs: 'a' is U32[4] in the "
            "checkpoint, and F32[4] in the state; 'b' is U32[5] in the checkpoint, and U32[4] in the state; "
            "'c' is an object in the checkpoint, and U32[1] in the state; missing 'net.d'");
  options.allow_partial_load = true;
  EXPECT_THAT(plan(), ::testing::Not(HasSubstr("missing")));
}

TEST(TheDefaultLoadPlanner, TellsOfKeysByTheNamesThatTheyHave) {
  shoal::Metadata stored;
  stored.key = {3, 10, 1};
  for (const char* fqn : {"net.a", "net.left.out", "net.left.too", "other.x"}) {
    stored.state_dict_metadata.push_back({fqn, LayoutEntry::Kind::tensor, DType::u32, {1}});
  }
  for (const char* fqn : {"net.rng@rank0", "net.rng@rank1"}) {
    stored.state_dict_metadata.push_back({fqn, LayoutEntry::Kind::object, DType::u8, {}});
  }
  std::sort(stored.state_dict_metadata.begin(), stored.state_dict_metadata.end(),
            [](const auto& a, const auto& b) { return a.fqn < b.fqn; });
  uint32_t value = 0;
  std::string rng;
  StateDict state;
  for (const char* fqn : {"a", "b", "left.out"})
    state.add_value(fqn, DType::u32, {1}, &value, Mesh::single(1));
  state.add_rank_object("rng", &rng);
  dcp::DefaultLoadPlannerOptions options;
  options.keys.drop_prefixes = {"left."};
  options.keys.rename = [](std::string_view fqn) { return "net." + std::string(fqn); };
  options.policies.subtrees = {{"b", KeyPolicy::allow_missing}, {"net", KeyPolicy::strict}};
  dcp::DefaultLoadPlanner planner(options);
  PlannedLoad load(planner);
  const Status refused = load.plan(state, dcp::metadata_of(stored), {1, 2, true});
  EXPECT_THAT(refused.message(), ::testing::EndsWith("this load needs: unexpected 'net.left.too'"));
  EXPECT_THAT(planner.load_report()->missing, ::testing::ElementsAre("b"));
  EXPECT_THAT(planner.load_report()->unexpected, ::testing::ElementsAre("net.left.too", "other.x"));
  EXPECT_TRUE(planner.load_report()->mis_typed.empty());
}

// As a custom storage places what it reads.
TEST(FillFromChunk, CopiesWhatAnItemNamesAndNothingElse) {
  const Dims shape{6, 7};
  const Box chunk{{1, 2}, {4, 5}}, part{{2, 3}, {2, 3}};
  std::vector<uint32_t> buffer(5 * 6), stored = elements_of(chunk, shape);
  const dcp::Tensor tensor{reinterpret_cast<std::byte*>(buffer.data()), {5, 6}, {1, 2}, 4, nullptr};
  const ReadItem item{dcp::LoadItemType::tensor, {"x"}, {}, {"x", chunk.offsets}, {1, 1}, part.sizes};
  const ByteView bytes = std::as_bytes(std::span(stored));
  ASSERT_TRUE(dcp::fill_from_chunk(item, chunk.sizes, bytes, tensor).ok());
  size_t filled = 0;
  for (uint32_t value : buffer) filled += value != 0;
  EXPECT_EQ(filled, 6u);
  for (uint64_t row = 0; row < 2; ++row) {
    for (uint64_t column = 0; column < 3; ++column) {
      EXPECT_EQ(buffer[(1 + row) * 6 + 2 + column], (2 + row) * 7 + 3 + column + 1);
    }
  }
  EXPECT_EQ(dcp::fill_from_chunk(item, chunk.sizes, bytes.first(8), tensor).code(), Code::corrupt);
  EXPECT_EQ(dcp::fill_from_chunk(item, {2, 2}, bytes.first(16), tensor).code(), Code::corrupt);
}

}  // namespace
}  // namespace shoal::client
