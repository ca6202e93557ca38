// What a trainer may add to a StateDict: const data, scalars without pointers, any container of bytes, and a
// ShardedTensor, which describes a tensor once for the state and for the layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <span>

#include "client/loading/placing.h"
#include "client/staging/staging.h"
#include "client/state_dict.h"
#include "shoal/dcp/load_planner.h"
#include "shoal/state_dict.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

const Mesh kOne = Mesh::single(0);

static_assert(StateScalar<bool> && StateScalar<int> && StateScalar<unsigned long> && StateScalar<long long> &&
              StateScalar<float> && StateScalar<double> && StateScalar<signed char>);
static_assert(!StateScalar<char> && !StateScalar<long double> && !StateScalar<const char*> &&
              !StateScalar<double*> && !StateScalar<DType>);
static_assert(ByteContainer<std::string> && ByteContainer<Bytes> && ByteContainer<std::vector<uint8_t>> &&
              ByteContainer<std::vector<char>>);
static_assert(!ByteContainer<std::vector<int>> && !ByteContainer<std::vector<bool>> &&
              !ByteContainer<std::string_view> && !ByteContainer<std::array<char, 4>>);
static_assert(ByteSequence<std::string_view> && ByteSequence<std::span<const std::byte>> &&
              ByteSequence<std::array<char, 4>> && !ByteSequence<std::span<const int>>);

TEST(MemoryRef, KeepsThePointersConstness) {
  float value = 0;
  const float constant = 0;
  EXPECT_FALSE(MemoryRef(&value).is_const());
  EXPECT_TRUE(MemoryRef(&constant).is_const());
  EXPECT_FALSE(MemoryRef(nullptr).is_const());
  EXPECT_EQ(MemoryRef(&constant).data(), &constant);
  EXPECT_FALSE(MemoryRef());
}

template <class Container>
class AnyContainer : public ::testing::Test {};
using Containers = testing::Types<std::string, Bytes, std::vector<uint8_t>, std::vector<char>>;
TYPED_TEST_SUITE(AnyContainer, Containers);

TYPED_TEST(AnyContainer, IsReadAndReplaced) {
  TypeParam container;
  container.resize(300);
  std::memset(container.data(), 'a', 300);
  const BytesRef object(&container);
  EXPECT_FALSE(object.is_const());
  EXPECT_EQ(as_text(object.view()), std::string(300, 'a'));
  object.reserve(5);
  object.replace("hello");
  EXPECT_EQ(container.size(), 5u);
  EXPECT_EQ(as_text(object.view()), "hello");
  object.replace("");
  EXPECT_EQ(container.size(), 0u);
  const TypeParam& constant = container;
  EXPECT_TRUE(BytesRef(&constant).is_const());
  EXPECT_TRUE(BytesRef(&constant).view().empty());
}

TEST(StateDict, KeepsScalarsOfEveryType) {
  StateDict state;
  state.add_value("lr", 0.1, kOne);
  state.add_value("step", int64_t{-7}, kOne);
  state.add_value("seen", uint64_t{1} << 63, kOne, true);
  state.add_value("scale", 0.5f, kOne);
  state.add_value("warm", true, kOne);
  state.add_value("small", uint8_t{200}, kOne);
  EXPECT_EQ(state.value<double>("lr").value(), 0.1);
  EXPECT_EQ(state.value<int64_t>("step").value(), -7);
  EXPECT_EQ(state.value<uint64_t>("seen").value(), uint64_t{1} << 63);
  EXPECT_EQ(state.value<float>("scale").value(), 0.5f);
  EXPECT_TRUE(state.value<bool>("warm").value());
  EXPECT_EQ(state.value<uint8_t>("small").value(), 200);
  const LayoutPtr layout = BoundState::bind(state, 0).value().layout();
  const auto dtype = [&](const char* fqn) { return layout->entries()[*layout->find(fqn)].dtype; };
  EXPECT_EQ(dtype("lr"), DType::f64);
  EXPECT_EQ(dtype("step"), DType::i64);
  EXPECT_EQ(dtype("seen"), DType::u64);
  EXPECT_EQ(dtype("scale"), DType::f32);
  EXPECT_EQ(dtype("warm"), DType::boolean);
  EXPECT_EQ(dtype("small"), DType::u8);

  ASSERT_TRUE(state.set_value("lr", 0.05).ok());
  const StateDict copy = state;
  EXPECT_EQ(copy.value<double>("lr").value(), 0.05);

  EXPECT_EQ(state.value<float>("lr").status(),
            Status(Code::invalid_argument, "'lr' is F64 in the state, not F32"));
  EXPECT_EQ(state.set_value("lr", 1).code(), Code::invalid_argument);
  double elsewhere = 0;
  state.add_value("pointer", DType::f64, {}, &elsewhere, kOne);
  EXPECT_EQ(state.value<double>("pointer").status(),
            Status(Code::not_found, "the state keeps no scalar 'pointer'"));
}

// The usual call, state.add_value("lr", 0.1), names no group: all else lies on one mesh, which is its.
TEST(StateDict, PutsAScalarWithoutAGroupWhereEverythingElseIs) {
  std::vector<float> weight(8);
  StateDict state;
  state.add_tensor("model.w", DType::f32, {8}, kOne, {Placement::shard(0)}, weight.data());
  state.add_value("lr", 0.1);
  const LayoutPtr layout = BoundState::bind(state, 0).value().layout();
  EXPECT_EQ(layout->meshes()[*mesh_of(layout->entries()[*layout->find("lr")])], kOne);
  StateDict alone;
  alone.add_value("lr", 0.1);
  EXPECT_EQ(BoundState::bind(alone, 0).status().message(),
            "'lr' has no group, and no other value is on a mesh: name its group");
}

TEST(ShardedTensor, SaysWhatARankHoldsAsTheStateDoes) {
  const Mesh mesh = Mesh::contiguous({2, 2});
  const ShardedTensor tensor{DType::u16, {5, 3}, mesh, {Placement::shard(0), Placement::replicate()}};
  EXPECT_EQ(tensor.local(0).value().boxes, std::vector<Box>{(Box{{0, 0}, {3, 3}})});
  EXPECT_EQ(tensor.local_elements(0).value(), 9u);
  EXPECT_EQ(tensor.local_elements(3).value(), 6u);
  EXPECT_EQ(tensor.local_bytes(3).value(), 12u);
  EXPECT_EQ(tensor.local(4).status(), Status(Code::invalid_argument, "rank 4 is not in the tensor's mesh"));
  const ShardedTensor wrong{DType::u16, {5, 3}, mesh, {Placement::shard(0)}};
  EXPECT_EQ(wrong.local_elements(0).status().code(), Code::invalid_argument);
  const ShardedTensor none{DType::u16, {5, 3}, Mesh::contiguous({0}), {Placement::shard(0)}};
  EXPECT_EQ(none.local_elements(0).status().code(), Code::invalid_argument);
  const ShardedTensor huge{
      DType::f64, {uint64_t{1} << 40, uint64_t{1} << 22}, kOne, {Placement::replicate()}};
  EXPECT_EQ(huge.local_bytes(0).status().code(), Code::invalid_argument);

  std::vector<uint16_t> memory(9);
  StateDict once, spelt;
  once.add_tensor("x", tensor, memory.data());
  spelt.add_tensor("x", tensor.dtype, tensor.shape, tensor.mesh, tensor.placements, memory.data());
  EXPECT_EQ(BoundState::bind(once, 1).value().layout()->id(),
            BoundState::bind(spelt, 1).value().layout()->id());
}

class State : public ::testing::Test {
 protected:
  State() {
    options_.root = root_.path();
    options_.job_id = "job";
    options_.start_node = false;
    options_.attach_timeout = std::chrono::milliseconds(1'000);
    checkpointer_ = attach(node_, options_);
  }
  void TearDown() override {
    node_.die();
    checkpointer_.reset();
  }

  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(State, SavesConstData) {
  const std::vector<uint16_t> weight = {1, 2, 3, 4};
  const std::vector<uint8_t> object = {9, 8, 7};
  std::string_view view = "a view";
  const std::span<const uint8_t> span(object);
  StateDict state;
  state.add_object("o", &object, kOne);
  state.add_object("p", &view, kOne);
  state.add_object("q", &span, kOne);
  state.add_value("lr", uint16_t{5}, kOne);
  state.add_tensor("w", {DType::u16, {4}, kOne, {Placement::shard(0)}}, weight.data());
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  (void)node_.expect<local::LayoutUpdate>();
  const auto staged = node_.expect<local::Staged>();
  ASSERT_EQ(staged.pieces.size(), 5u);  // lr, o, p, q, w
  const auto* slab = node_.slab(staged.slab_id);
  EXPECT_EQ(slab[staged.pieces[0].slab_offset], std::byte{5});
  EXPECT_EQ(slab[staged.pieces[1].slab_offset], std::byte{9});
  EXPECT_EQ(staged.pieces[1].bytes, 3u);
  EXPECT_EQ(slab[staged.pieces[2].slab_offset], std::byte{'a'});
  EXPECT_EQ(staged.pieces[3].bytes, 3u);
  EXPECT_EQ(slab[staged.pieces[4].slab_offset + 6], std::byte{4});
}

// Nothing is asked of the node: nothing could have been placed.
TEST_F(State, IsNotLoadedIntoConstData) {
  std::vector<uint32_t> memory(4);
  const std::vector<uint32_t> constant(4);
  const std::string object = "o";
  std::string writable_object;
  const ShardedTensor tensor{DType::u32, {4}, kOne, {Placement::shard(0)}};
  std::string_view view = "o";  // it could not be filled, though the pointer is not const
  StateDict tensors, objects, views, boxes, values, tiles;
  views.add_object("x", &view, kOne);
  tensors.add_tensor("x", tensor, constant.data());
  objects.add_tensor("y", tensor, memory.data());
  objects.add_object("x", &object, kOne);
  boxes.add_tensor_boxes("x", DType::u32, {4}, {{Box{{0}, {4}}, constant.data()}});
  values.add_value("x", DType::u32, {4}, constant.data(), kOne);
  tiles.add_tensor("x", DType::u32, {4}, TileSharding::replicated(*DeviceMap::uniform(1, 2)),
                   {{0, memory.data()}, {1, constant.data()}});
  for (const StateDict* state : {&tensors, &objects, &views, &boxes, &values, &tiles}) {
    for (bool is_known : {false, true}) {
      if (is_known) {
        ASSERT_TRUE(checkpointer_->prepare(*state).ok());
      }
      const Status status = checkpointer_->load(*state).status();
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_THAT(status.message(), HasSubstr("'x': its memory is const, so it can be saved but not loaded"));
    }
  }
}

// A default planner gets this error before anything is placed, for objects too.
TEST(DefaultLoadPlanner, PlansNothingForConstMemory) {
  std::vector<uint32_t> memory(4);
  const std::string object = "o";
  const std::vector<uint32_t> constant(4);
  const ShardedTensor tensor{DType::u32, {4}, kOne, {Placement::shard(0)}};
  Metadata stored;
  stored.state_dict_metadata = {{"o", LayoutEntry::Kind::object, DType::u8, {}},
                                {"x", LayoutEntry::Kind::tensor, DType::u32, {4}}};
  StateDict with_object, with_tensor;
  with_object.add_tensor("x", tensor, memory.data());
  with_object.add_object("o", &object, kOne);
  with_tensor.add_tensor("x", tensor, constant.data());
  dcp::DefaultLoadPlanner first, second;
  ASSERT_TRUE(first.set_up_planner(with_object, dcp::metadata_of(stored), {0, 1, true}).ok());
  EXPECT_THAT(first.create_local_plan().status().message(), HasSubstr("'o': its memory is const"));
  ASSERT_TRUE(second.set_up_planner(with_tensor, dcp::metadata_of(stored), {0, 1, true}).ok());
  auto plan = second.create_local_plan();
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(second.resolve_tensor(plan->items[0]).status().message(),
              HasSubstr("'x': its memory is const"));
}

TEST_F(State, LoadsScalarsThatItKeepsAndAnyContainer) {
  StateDict state;
  Bytes object(100);
  state.add_object("o", &object, kOne);
  state.add_value("lr", 0.5, kOne);
  auto loading = std::async(std::launch::async, [&] { return checkpointer_->load(state); });
  const auto load = node_.expect<local::Load>();
  ASSERT_EQ(load.targets.size(), 2u);
  Metadata stored;
  stored.key = {1, 1, 1};
  stored.state_dict_metadata = {{"lr", LayoutEntry::Kind::tensor, DType::f64, {}},
                                {"o", LayoutEntry::Kind::object, DType::u8, {}}};
  node_.send(local::Found{load.request_id, ok_status(), stored});
  const double lr = 0.25;
  std::memcpy(node_.writable_slab(load.slab_id), &lr, 8);
  std::memcpy(node_.writable_slab(load.slab_id) + 8, "hello", 5);
  node_.send(local::Loaded{load.request_id, 0, {{{0, Box{}, 0, 8, 8}, 0}, {{1, Box{}, 0, 5, 5}, 8}}});
  (void)node_.expect<local::Placed>();
  node_.send(local::LoadDone{load.request_id, ok_status()});
  ASSERT_TRUE(loading.get().ok());
  EXPECT_EQ(state.value<double>("lr").value(), 0.25);
  EXPECT_EQ(as_text(object), "hello");
}

}  // namespace
}  // namespace shoal::client
