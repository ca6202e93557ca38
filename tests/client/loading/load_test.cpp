#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <random>
#include <set>

#include "base/digest/digest.h"
#include "client/loading/placing.h"
#include "client/session/call_counts.h"
#include "shoal/checkpoint_reader.h"
#include "shoal/dcp/load_planner.h"
#include "tests/client/fake_node.h"
#include "tests/client/random_tiles.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

// The value of an element is its row-major number in the tensor.
std::vector<uint32_t> numbers_of(const Box& box, const Dims& shape) {
  std::vector<uint32_t> out;
  for_each_run(box, whole(shape), [&](uint64_t, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<uint32_t>(at + i));
  });
  return out;
}

std::vector<uint32_t> local_tensor(const LocalShards& shards, const Dims& shape) {
  std::vector<uint32_t> out(*element_count(shards.local_shape));
  for (size_t i = 0; i < shards.boxes.size(); ++i) {
    const std::vector<uint32_t> values = numbers_of(shards.boxes[i], shape);
    for_each_run(shards.local[i], whole(shards.local_shape), [&](uint64_t from, uint64_t to, uint64_t count) {
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(from), count,
                  out.begin() + static_cast<ptrdiff_t>(to));
    });
  }
  return out;
}

Placement random_placement(std::mt19937_64& random, size_t dims) {
  const auto dim = static_cast<uint32_t>(random() % dims);
  const uint64_t kind = random() % 3;
  if (kind == 0) return Placement::replicate();
  return kind == 1 ? Placement::shard(dim) : Placement::strided_shard(dim, 2 + random() % 3);
}

// Ranges of one stored piece, cut anywhere, so that most begin and end in the middle of a row.
Status place_in_ranges(Placer& placer, std::mt19937_64& random, const Box& stored, const Dims& shape) {
  const std::vector<uint32_t> values = numbers_of(stored, shape);
  for (uint64_t begin = 0; begin < values.size();) {
    const uint64_t end = begin + 1 + random() % (values.size() - begin);
    Bytes window((end - begin) * 4 + 8);
    std::memcpy(window.data() + 8, values.data() + begin, (end - begin) * 4);
    SHOAL_RETURN_IF_ERROR(
        placer.place({{0, stored, begin * 4, (end - begin) * 4, values.size() * 4}, 8}, window));
    begin = end;
  }
  return ok_status();
}

TEST(Placer, PutsRangesOfAnyStoredShardingIntoAnyOther) {
  std::mt19937_64 random(5);
  const Mesh mesh = Mesh::contiguous({2, 3});
  for (int round = 0; round < 600; ++round) {
    Dims shape(1 + random() % 4);
    for (uint64_t& size : shape) size = 1 + random() % 9;
    std::vector<Placement> stored_as, wanted_as;
    for (int d = 0; d < 2; ++d) {
      stored_as.push_back(random_placement(random, shape.size()));
      wanted_as.push_back(random_placement(random, shape.size()));
    }
    const auto rank = static_cast<Rank>(random() % 6);
    const LocalShards wanted = shards_at(shape, mesh, wanted_as, *mesh.coordinate_of(rank));
    std::vector<uint32_t> memory(*element_count(wanted.local_shape) + 1, 0xdeadbeef);
    StateDict state;
    state.add_tensor("x", DType::u32, shape, mesh, wanted_as, memory.data());
    BoundState bound = BoundState::bind(state, rank).value();
    Placer placer(bound, {0});
    std::vector<Box> placed;  // replicas of a stored box come once
    for (Rank writer = 0; writer < 6; ++writer) {
      for (const Box& box : shards_at(shape, mesh, stored_as, *mesh.coordinate_of(writer)).boxes) {
        if (box.empty() || std::count(placed.begin(), placed.end(), box) > 0) continue;
        placed.push_back(box);
        ASSERT_TRUE(place_in_ranges(placer, random, box, shape).ok());
      }
    }
    ASSERT_TRUE(placer.finish().ok()) << placer.finish().to_string();
    EXPECT_EQ(memory.back(), 0xdeadbeef);
    memory.pop_back();
    ASSERT_EQ(memory, local_tensor(wanted, shape)) << "round " << round;
  }
}

// Three devices a rank, in any order: some hold the same tile, some a short one or nothing.
TEST(Placer, FillsEveryLocalShardOfARank) {
  std::mt19937_64 random(6);
  const DeviceMap devices = *DeviceMap::uniform(4, 3);
  size_t twice = 0;
  for (int round = 0; round < 300; ++round) {
    const Dims shape{1 + random() % 9, 1 + random() % 9};
    const TileSharding tiles = random_tiles(devices, random);
    const auto rank = static_cast<Rank>(random() % 4);
    std::map<Device, std::vector<uint32_t>> memory, expected;
    std::vector<StateDict::DeviceData> shards;
    for (Device device : devices.devices_of(rank)) {
      expected[device] = numbers_of(*tiles.box_of(shape, device), shape);
      memory[device].assign(expected[device].size(), 0xdeadbeef);
      shards.push_back({device, memory[device].data()});
    }
    twice += tiles.boxes_of(shape, rank).size() < shards.size();
    StateDict state;
    state.add_tensor("x", DType::u32, shape, tiles, shards);
    BoundState bound = BoundState::bind(state, rank).value();
    Placer placer(bound, {0});
    const Mesh mesh = Mesh::contiguous({3});
    for (Rank writer = 0; writer < 3; ++writer) {
      for (const Box& box : shards_at(shape, mesh, std::vector{Placement::shard(1)}, Dims{writer}).boxes) {
        ASSERT_TRUE(place_in_ranges(placer, random, box, shape).ok());
      }
    }
    ASSERT_TRUE(placer.finish().ok()) << placer.finish().to_string();
    ASSERT_EQ(memory, expected);
  }
  EXPECT_GT(twice, 50u);
}

TEST(Placer, RefusesWhatNoNodeMaySay) {
  std::vector<uint32_t> memory(8);
  std::string object;
  StateDict state;
  state.add_tensor("x", DType::u32, {8}, Mesh::single(0), {Placement::shard(0)}, memory.data());
  state.add_object("o", &object, Mesh::single(0));
  BoundState bound = BoundState::bind(state, 0).value();
  Placer placer(bound, {0, 1});  // o, x
  Bytes window(64);
  const Box box{{0}, {8}};
  auto expect_corrupt = [&](local::LoadedPiece piece) {
    EXPECT_EQ(placer.place(piece, window).code(), Code::corrupt) << placer.place(piece, window).to_string();
  };
  expect_corrupt({{2, box, 0, 32, 32}, 0});                         // no such target
  expect_corrupt({{1, box, 0, 32, 32}, 40});                        // beyond the window
  expect_corrupt({{1, box, 0, 32, 32}, UINT64_MAX});                //
  expect_corrupt({{1, box, 16, 32, 32}, 0});                        // beyond the piece
  expect_corrupt({{1, box, 2, 4, 32}, 0});                          // cuts an element
  expect_corrupt({{1, box, 0, 16, 16}, 0});                         // its box is longer
  expect_corrupt({{1, Box{{1}, {8}}, 0, 32, 32}, 0});               // outside the shape
  expect_corrupt({{1, Box{{0, 0}, {8, 1}}, 0, 32, 32}, 0});         // of other dimensions
  expect_corrupt({{0, Box{}, 0, 8, local::kMaxSlabBytes + 1}, 0});  // absurdly long
  ASSERT_TRUE(placer.place({{0, Box{}, 0, 4, 8}, 0}, window).ok());
  expect_corrupt({{0, Box{}, 4, 4, 9}, 0});  // another length than before
  EXPECT_EQ(placer.finish().code(), Code::internal);
}

TEST(Placer, CountsWhatArrives) {
  std::vector<uint32_t> memory(8);
  StateDict state;
  state.add_tensor("x", DType::u32, {8}, Mesh::single(0), {Placement::shard(0)}, memory.data());
  BoundState bound = BoundState::bind(state, 0).value();
  Placer placer(bound, {0});
  Bytes window(64);
  ASSERT_TRUE(placer.place({{0, Box{{0}, {8}}, 0, 28, 32}, 0}, window).ok());
  EXPECT_THAT(placer.finish().message(), HasSubstr("'x': 7 of 8 elements arrived"));
  ASSERT_TRUE(placer.place({{0, Box{{0}, {8}}, 24, 8, 32}, 0}, window).ok());
  EXPECT_THAT(placer.finish().message(), HasSubstr("9 of 8"));
}

TEST(CallCounts, GiveEachLoadItsOwnRoundAlsoAcrossSaves) {
  std::set<uint32_t> rounds;
  CallCounts counts{};
  for (counts.saves = 0; counts.saves < 3; ++counts.saves) {
    for (counts.loads = 0; counts.loads < 5; ++counts.loads)
      EXPECT_TRUE(rounds.insert(counts.round()).second);
  }
  counts.loads = 1'000'000;
  EXPECT_LT(counts.round(), (CallCounts{.saves = counts.saves + 1}.round()))
      << "not one of after the next save";
}

class Load : public ::testing::Test {
 protected:
  Load() {
    options_.root = root_.path();
    options_.job_id = "job";
    options_.start_node = false;
    options_.attach_timeout = std::chrono::milliseconds(1'000);
    options_.load_window_bytes = 4 << 20;
    options_.node_silence = std::chrono::milliseconds(3000);
    checkpointer_ = attach(node_, options_);
    state_.add_tensor("x", DType::u32, {2, 2}, Mesh::single(0), {Placement::shard(0)}, memory_.data());
    state_.add_object("o", &object_, Mesh::single(0));
  }
  auto start(LoadOptions options = {}) {
    return std::async(std::launch::async, [this, options] { return checkpointer_->load(state_, options); });
  }
  Metadata stored(std::vector<TensorMetadata> tensors) {
    Metadata metadata;
    metadata.key = {2, 40, 1};
    metadata.state_dict_metadata = std::move(tensors);
    return metadata;
  }
  // One batch of both targets, or of x alone.
  void send_batch(const local::Load& load, uint32_t x, bool with_object) {
    const std::vector<uint32_t> values{1, 2, 3, 4};
    std::memcpy(node_.writable_slab(load.slab_id), values.data(), 16);
    std::memcpy(node_.writable_slab(load.slab_id) + 16, "hello", 5);
    local::Loaded loaded{load.request_id, 0, {{{x, Box{{0, 0}, {2, 2}}, 0, 16, 16}, 0}}};
    if (with_object) loaded.pieces.push_back({{0, Box{}, 0, 5, 5}, 16});
    node_.send(loaded);
    EXPECT_EQ(node_.expect<local::Placed>().batch, 0u);
  }
  const TensorMetadata kX{"x", LayoutEntry::Kind::tensor, DType::u32, {2, 2}};
  const TensorMetadata kO{"o", LayoutEntry::Kind::object, DType::u8, {}};

  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::vector<uint32_t> memory_ = std::vector<uint32_t>(4);
  std::string object_ = "a longer one than what is stored";
  StateDict state_;
};

TEST_F(Load, FillsTheState) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  EXPECT_TRUE(load.latest);
  EXPECT_EQ(load.ordinal, 1u);
  EXPECT_EQ(node_.slab_bytes(load.slab_id), options_.load_window_bytes);
  ASSERT_EQ(load.targets.size(), 2u);
  EXPECT_EQ(load.targets[1].boxes, std::vector<Box>{whole(Dims{2, 2})});
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  LoadResult result = loading.get().value();
  EXPECT_EQ(result.metadata.key.step, 40u);
  EXPECT_EQ(result.bytes_loaded, 21u);
  EXPECT_EQ(memory_, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(object_, "hello");

  // Without a save between them, it is the same choice, whether this rank alone loads again or all do.
  auto again = start();
  load = node_.expect<local::Load>();
  EXPECT_EQ(load.ordinal, 1u);
  node_.send(local::Found{load.request_id, Status(Code::not_found, "there is no checkpoint"), {}});
  EXPECT_EQ(again.get().status().code(), Code::not_found);
}

TEST_F(Load, IntoNoMemoryIsRefusedByName) {
  for (bool is_known : {false, true}) {
    if (is_known) {
      ASSERT_TRUE(checkpointer_->prepare(state_).ok());
    }
    StateDict no_tensor, no_object;
    no_tensor.add_tensor("x", DType::u32, {2, 2}, Mesh::single(0), {Placement::shard(0)}, nullptr);
    no_tensor.add_object("o", &object_, Mesh::single(0));
    EXPECT_THAT(checkpointer_->load(no_tensor).status().message(), HasSubstr("'x': the memory"));
    no_object.add_tensor("x", DType::u32, {2, 2}, Mesh::single(0), {Placement::shard(0)}, memory_.data());
    no_object.add_object("o", nullptr, Mesh::single(0));
    EXPECT_THAT(checkpointer_->load(no_object).status().message(),
                HasSubstr("'o': the object has no container"));
    if (is_known) {
      EXPECT_THAT(checkpointer_->save(1, no_object).status().message(), HasSubstr("'o': the object"));
    }
  }
}

// Regression: each of these ended the process.
TEST_F(Load, OfAStateThatIsNoneIsRefusedByName) {
  Placement of_no_kind;
  of_no_kind.kind = static_cast<Placement::Kind>(7);
  StateDict no_dtype, no_kind, no_value, no_mesh;
  no_dtype.add_tensor("x", static_cast<DType>(99), {2, 2}, Mesh::single(0), {Placement::shard(0)},
                      memory_.data());
  no_kind.add_tensor("x", DType::u32, {2, 2}, Mesh::single(0), {of_no_kind}, memory_.data());
  no_value.add(nullptr);
  no_mesh.add_tensor("x", DType::u32, {2, 2}, Mesh::contiguous({0}), {Placement::shard(0)}, memory_.data());
  for (bool is_known : {false, true}) {
    if (is_known) {
      ASSERT_TRUE(checkpointer_->prepare(state_).ok());
    }
    EXPECT_THAT(checkpointer_->load(no_dtype).status().message(), HasSubstr("'x': dtype number 99"));
    EXPECT_THAT(checkpointer_->load(no_kind).status().message(), HasSubstr("the unknown kind 7"));
    EXPECT_EQ(checkpointer_->load(no_value).status(),
              Status(Code::invalid_argument,
                     "rank 0, load of the latest checkpoint: StateDict::add was given a nullptr"));
    EXPECT_THAT(checkpointer_->load(no_mesh).status().message(),
                HasSubstr("'x': mesh: its shape has 0 ranks"));
  }
}

TEST_F(Load, OfAProcessGroupSharesAmongPlacesInIt) {
  TemporaryRoot root;
  FakeNode node(root.path());
  CheckpointerOptions options = options_;
  options.root = root.path();
  options.world_size = 8;
  options.process_group = {0, 4, 6};
  auto checkpointer = attach(node, options);
  LoadOptions sharing;
  sharing.data_parallel_group = {0, 4};
  EXPECT_EQ(checkpointer->load(state_, sharing).status().message(),
            "rank 0, load of the latest checkpoint: data_parallel_group must have ascending positions in the "
            "process group of 3 ranks, including this "
            "rank's, 0 (this is rank 0 of the world)");
}

TEST_F(Load, OfANamedStepCountsNotAsOneOfTheLatest) {
  LoadOptions options;
  options.step = 40;
  auto loading = start(options);
  auto load = node_.expect<local::Load>();
  EXPECT_FALSE(load.latest);
  EXPECT_EQ(load.step, 40u);
  EXPECT_EQ(load.ordinal, 0u);
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  send_batch(load, 1, false);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  EXPECT_THAT(loading.get().status().to_string(), HasSubstr("'o': the node sent none of its bytes"));
}

TEST_F(Load, LeavesWhatTheCheckpointLacksWhereThatIsAllowed) {
  LoadOptions options;
  options.policies.subtrees["o"] = KeyPolicy::allow_missing;
  const std::string before = object_;
  auto loading = start(options);
  auto first = node_.expect<local::Load>();
  EXPECT_TRUE(first.targets.empty());
  EXPECT_TRUE(first.keeps_open);
  EXPECT_EQ(first.ordinal, 1u);
  node_.send(local::Found{first.request_id, ok_status(), stored({kX})});
  node_.send(local::LoadDone{first.request_id, ok_status()});
  auto second = node_.expect<local::Load>();
  EXPECT_EQ(second.of, first.request_id);
  ASSERT_EQ(second.targets.size(), 1u);
  node_.send(local::Found{second.request_id, ok_status(), stored({})});
  send_batch(second, 0, false);
  node_.send(local::LoadDone{second.request_id, ok_status()});
  EXPECT_EQ(node_.expect<local::Close>().request_id, first.request_id);
  auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->metadata.state_dict_metadata, std::vector<TensorMetadata>{kX});
  EXPECT_EQ(loaded->report.missing, std::vector<std::string>{"o"});
  EXPECT_EQ(memory_[3], 4u);
  EXPECT_EQ(object_, before);
}

TEST_F(Load, TellsAllDifferencesThoughTheNodeNamesAFew) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  const TensorMetadata other_x{"x", LayoutEntry::Kind::tensor, DType::bf16, {4}};
  const TensorMetadata y{"y", LayoutEntry::Kind::tensor, DType::u32, {1}};
  node_.send(local::Found{load.request_id, ok_status(), stored({other_x, y})});
  node_.send(local::LoadDone{load.request_id, Status(Code::invalid_argument, "missing 'o'; and 1 more")});
  const Status refused = loading.get().status();
  EXPECT_EQ(refused.code(), Code::key_mismatch);
  EXPECT_EQ(refused.message(),
            "rank 0, load of step 40 (g2a1): the checkpoint does not have what this load needs: missing 'o'; "
            "'x' is BF16[4] in the checkpoint, and U32[2, 2] in the state");
  const LoadReport& report = checkpointer_->load_report();
  EXPECT_EQ(report.missing, std::vector<std::string>{"o"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"y"});
  EXPECT_EQ(report.mis_typed, (std::vector<LoadReport::Difference>{{kX, other_x}}));
  EXPECT_EQ(report.shape_mismatches, (std::vector<LoadReport::Difference>{{kX, other_x}}));
}

TEST_F(Load, ReadsNothingOfWhatItRefuses) {
  LoadOptions options;
  options.policies.root = KeyPolicy::strict;
  auto loading = start(options);
  auto load = node_.expect<local::Load>();
  EXPECT_TRUE(load.targets.empty());
  const TensorMetadata y{"y", LayoutEntry::Kind::tensor, DType::u32, {1}};
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX, y})});
  node_.send(local::LoadDone{load.request_id, ok_status()});
  (void)node_.expect<local::Close>();
  EXPECT_THAT(loading.get().status().message(), HasSubstr("this load needs: unexpected 'y'"));
}

TEST_F(Load, AsksNotForWhatIsSkipped) {
  LoadOptions options;
  options.policies.subtrees["o"] = KeyPolicy::skip;
  auto loading = start(options);
  auto load = node_.expect<local::Load>();
  ASSERT_EQ(load.targets.size(), 1u);
  EXPECT_EQ(load.targets[0].fqn, "x");
  node_.send(local::Found{load.request_id, ok_status(), stored({kX})});
  send_batch(load, 0, false);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_TRUE(loaded->report.empty());
}

// The load checks whether the checkpoint has such a key before it reads anything, although the policy alone
// does not need it.
TEST_F(Load, ReadsNothingWhereAPolicysSubtreeIsMisspelt) {
  for (const char* subtree : {"frozzen", "frozen"}) {
    LoadOptions options;
    options.policies.subtrees[subtree] = KeyPolicy::skip;
    auto loading = start(options);
    auto load = node_.expect<local::Load>();
    EXPECT_TRUE(load.targets.empty());
    const TensorMetadata frozen{"frozen.w", LayoutEntry::Kind::tensor, DType::u32, {1}};
    node_.send(local::Found{load.request_id, ok_status(), stored({frozen, kO, kX})});
    node_.send(local::LoadDone{load.request_id, ok_status()});
    if (subtree == std::string("frozen")) {
      auto second = node_.expect<local::Load>();
      ASSERT_EQ(second.targets.size(), 2u);
      node_.send(local::Found{second.request_id, ok_status(), stored({})});
      send_batch(second, 1, true);
      node_.send(local::LoadDone{second.request_id, ok_status()});
    }
    (void)node_.expect<local::Close>();
    const Status loaded = loading.get().status();
    if (subtree == std::string("frozen")) {
      EXPECT_EQ(loaded, ok_status());
      continue;
    }
    EXPECT_EQ(loaded.code(), Code::invalid_argument);
    EXPECT_THAT(loaded.message(), HasSubstr("in the subtree 'frozzen' of the policies"));
    EXPECT_THAT(loaded.message(), HasSubstr("(nearest: 'frozen')"));
  }
}

// The node that kept the checkpoint open is gone before it is read.
TEST_F(Load, OpensACheckpointAgainAtTheNextNode) {
  LoadOptions options;
  options.policies.root = KeyPolicy::lenient;
  auto loading = start(options);
  auto first = node_.expect<local::Load>();
  node_.send(local::Found{first.request_id, ok_status(), stored({kX})});
  node_.send(local::LoadDone{first.request_id, ok_status()});
  (void)node_.expect<local::Load>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  auto again = node_.expect<local::Load>();
  EXPECT_TRUE(again.keeps_open);
  EXPECT_FALSE(again.latest);
  EXPECT_EQ(again.step, 40u);
  node_.send(local::Found{again.request_id, ok_status(), stored({kX})});
  node_.send(local::LoadDone{again.request_id, ok_status()});
  auto second = node_.expect<local::Load>();
  EXPECT_EQ(second.of, again.request_id);
  node_.send(local::Found{second.request_id, ok_status(), stored({})});
  send_batch(second, 0, false);
  node_.send(local::LoadDone{second.request_id, ok_status()});
  ASSERT_TRUE(loading.get().ok());
  EXPECT_EQ(memory_[3], 4u);
}

TEST_F(Load, IsAnotherChoiceAfterASaveAndWaitsForItsDecision) {
  SaveHandle saved = checkpointer_->save(7, state_).value();
  (void)node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  auto loading = start();
  (void)node_.expect<local::Ping>();  // and no Load before it
  node_.send(local::Decided{7, 1, Status(Code::aborted, "rank 1 did not report"), {}});
  node_.send(local::SlabFree{staged.slab_id, staged.step, staged.attempt, std::nullopt});
  auto load = node_.expect<local::Load>();
  EXPECT_EQ(load.ordinal, 2u);
  node_.send(local::Found{load.request_id, Status(Code::not_found, "none"), {}});
  EXPECT_EQ(loading.get().status().code(), Code::not_found);
}

TEST_F(Load, ListsWhatTheNodeFinds) {
  auto listing = std::async(std::launch::async, [&] { return checkpointer_->list(7); });
  auto wanted = node_.expect<local::List>();
  EXPECT_EQ(wanted.newest, 7u);
  CheckpointList found;
  found.attempts.push_back({{1, 9, 1}, CheckpointInfo::State::committed, 2, 3, 4096, 77, ""});
  found.attempts.push_back({{1, 10, 1}, CheckpointInfo::State::aborted, 0, 0, 0, 78, "rank 1 is late"});
  found.omitted = 4;
  node_.send(local::Listing{wanted.request_id, ok_status(), std::make_shared<const CheckpointList>(found)});
  auto list = listing.get();
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  ASSERT_EQ(list->attempts.size(), 2u);
  EXPECT_TRUE(list->attempts[0].committed());
  EXPECT_EQ(list->attempts[1].cause, "rank 1 is late");
  EXPECT_EQ(list->omitted, 4u);

  auto failing = std::async(std::launch::async, [&] { return checkpointer_->list(UINT32_MAX); });
  wanted = node_.expect<local::List>();
  EXPECT_EQ(wanted.newest, kMaxListedCheckpoints);
  node_.send(local::Listing{wanted.request_id, Status(Code::io, "the root cannot be read"), nullptr});
  EXPECT_EQ(failing.get().status(), Status(Code::io, "the root cannot be read"));
}

// An evaluation that looks for newer checkpoints repeatedly.
TEST(ReadOnlyLoad, TheNextOneOfTheLatestIsAnotherChoice) {
  TemporaryRoot root;
  FakeNode node(root.path(), "eval");
  CheckpointerOptions options;
  options.root = root.path();
  options.job_id = "eval";
  options.start_node = false;
  options.read_only = true;
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options); });
  node.accept();
  EXPECT_TRUE(node.expect<local::Attach>().read_only);
  node.send(local::Attached{3, FakeNode::kPid});
  const std::unique_ptr<Checkpointer> checkpointer = std::move(opening.get()).value();
  StateDict state;
  std::vector<uint32_t> memory(4);
  state.add_tensor("x", DType::u32, {2, 2}, Mesh::single(0), {Placement::shard(0)}, memory.data());
  auto ordinal_of_load = [&](const Status& outcome, const LoadOptions& load_options = {}) {
    auto loading = std::async(std::launch::async, [&] { return checkpointer->load(state, load_options); });
    const auto load = node.expect<local::Load>();
    node.send(local::Found{load.request_id, outcome, {}});
    EXPECT_EQ(loading.get().status().code(), outcome.code());
    return load.ordinal;
  };
  LoadOptions by_step;
  by_step.step = 4;
  EXPECT_EQ(ordinal_of_load(Status(Code::not_found, "none yet")), 1u);
  EXPECT_EQ(ordinal_of_load(Status(Code::busy, "an earlier load")), 2u) << "none yet is an answer, too";
  EXPECT_EQ(ordinal_of_load(Status(Code::corrupt, "damaged")), 2u) << "the choice was not heard of";
  EXPECT_EQ(ordinal_of_load(Status(Code::not_found, "none"), by_step), 0u);
  EXPECT_EQ(ordinal_of_load(Status(Code::not_found, "none")), 3u);
  EXPECT_EQ(checkpointer->save(1, state).status().code(), Code::refused);
  EXPECT_EQ(ordinal_of_load(Status(Code::not_found, "none")), 4u) << "a save that is refused counts not";
}

TEST_F(Load, ThatMayFallBackAsksForAChoiceOfItsOwnAndIsToldWhatWasPassedOver) {
  LoadOptions options;
  options.fallback = LoadFallback::previous;
  auto loading = start(options);
  const auto load = node_.expect<local::Load>();
  EXPECT_EQ(load.ordinal, kFallbackOrdinal | 1);
  auto passed_over = std::make_shared<PassedOver>();
  passed_over->add({2, 50, 1}, "damaged: manifest.shoal");
  local::Found found{load.request_id, ok_status(), stored({kO, kX})};
  found.passed_over = passed_over;
  node_.send(found);
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  const auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->passed_over, *passed_over);

  auto next = start();  // receives nothing, and does not repeat the outcomes of the previous one
  const auto again = node_.expect<local::Load>();
  EXPECT_EQ(again.ordinal, 1u);
  node_.send(local::Found{again.request_id, ok_status(), stored({kO, kX})});
  send_batch(again, 1, true);
  node_.send(local::LoadDone{again.request_id, ok_status()});
  EXPECT_TRUE(next.get()->passed_over.empty());
}

// Regression: they were dropped without an error.
TEST_F(Load, WithAPlannerRefusesPolicies) {
  LoadOptions options;
  options.policies.root = KeyPolicy::lenient;
  dcp::DefaultLoadPlanner planner;
  const Status refused = checkpointer_->load(state_, planner, options).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_THAT(refused.message(), HasSubstr("LoadOptions::policies do not apply to a load with a planner"));
}

// Regression: two threads took each other's answers, and waited for ever.
TEST_F(Load, IsRefusedToASecondThread) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  const Status second = checkpointer_->latest().status();
  EXPECT_EQ(second.code(), Code::refused);
  EXPECT_THAT(second.message(), HasSubstr("another thread uses this Checkpointer"));
  node_.send(local::Found{load.request_id, Status(Code::not_found, "none"), {}});
  EXPECT_EQ(loading.get().status().code(), Code::not_found);
}

// Regression: before it was refused, the second thread replaced the window, and the first one took the bytes
// of the new window for those of its checkpoint.
TEST_F(Load, IsRefusedToASecondThreadThatNeedsALargerWindow) {
  options_.load_window_bytes = 16 << 20;
  checkpointer_.reset();
  checkpointer_ = attach(node_, options_);
  auto loading = start();
  auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  std::vector<uint8_t> large(8 << 20);
  StateDict larger;
  larger.add_tensor("y", DType::u8, {large.size()}, Mesh::single(0), {Placement::shard(0)}, large.data());
  EXPECT_EQ(checkpointer_->load(larger).status().code(), Code::refused);
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  ASSERT_TRUE(loading.get().ok());
  EXPECT_EQ(memory_, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(object_, "hello");
}

// Regression: ranks that looked before and after a second save of that step was committed loaded different
// ones.
TEST_F(Load, OfAStepWaitsForTheDecisionOfWhatThisRankSaved) {
  SaveHandle saved = checkpointer_->save(7, state_).value();
  (void)node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  LoadOptions options;
  options.step = 7;
  auto loading = start(options);
  (void)node_.expect<local::Ping>();  // and no Load before it
  node_.send(local::Decided{7, 1, Status(Code::aborted, "rank 1 did not report"), {}});
  node_.send(local::SlabFree{staged.slab_id, staged.step, staged.attempt, std::nullopt});
  auto load = node_.expect<local::Load>();
  EXPECT_EQ(load.step, 7u);
  node_.send(local::Found{load.request_id, Status(Code::not_found, "none"), {}});
  EXPECT_EQ(loading.get().status().code(), Code::not_found);
}

TEST_F(Load, UsesTheWindowOfTheOneBefore) {
  auto load_once = [this] {
    auto loading = start();
    auto load = node_.expect<local::Load>();
    node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
    send_batch(load, 1, true);
    node_.send(local::LoadDone{load.request_id, ok_status()});
    EXPECT_TRUE(loading.get().ok());
  };
  load_once();
  load_once();
  EXPECT_EQ(node_.slabs_received(), 1u);
  // The next node knows no window.
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  load_once();
  EXPECT_EQ(node_.slabs_received(), 2u);
}

// What its node still reads for it would land in the window of the next one.
TEST_F(Load, ThatIsGivenUpEndsTheConnection) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  EXPECT_THAT(loading.get().status().message(), HasSubstr("answered one load twice"));
  EXPECT_FALSE(node_.is_connected());
  // Nor does the next one use that memory.
  node_.writable_slab(load.slab_id)[0] = std::byte{0x7e};
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  loading = start();
  load = node_.expect<local::Load>();
  EXPECT_EQ(node_.slab(load.slab_id)[0], std::byte{0});
  node_.die();
  EXPECT_FALSE(loading.get().ok());
}

// Answers that have arrived already need no wait, in which keep_waiting is called. So the first call, in the
// wait for Found, lasts until all answers are sent; only the check between two answers can make the second.
TEST_F(Load, IsInterruptedAlsoIfItNeverWaits) {
  std::atomic<bool> is_loading = false;
  std::promise<void> waits, sent;
  int calls = 0;
  options_.keep_waiting = [&, all_sent = sent.get_future().share()] {
    if (!is_loading) return true;
    if (++calls > 1) return false;
    waits.set_value();
    all_sent.wait();
    return true;
  };
  checkpointer_.reset();
  checkpointer_ = attach(node_, options_);
  is_loading = true;
  auto loading = start();
  auto load = node_.expect<local::Load>();
  waits.get_future().wait();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  node_.send(local::Loaded{load.request_id, 0, {{{1, Box{{0, 0}, {2, 2}}, 0, 16, 16}, 0}}});
  node_.send(local::Loaded{load.request_id, 1, {{{0, Box{}, 0, 5, 5}, 16}}});
  node_.send(local::LoadDone{load.request_id, ok_status()});
  sent.set_value();
  EXPECT_EQ(loading.get().status().code(), Code::busy);
}

TEST_F(Load, ThatWaitsForANodeIsInterrupted) {
  std::atomic<bool> goes_on = true;
  options_.keep_waiting = [&] { return goes_on.load(); };
  checkpointer_.reset();
  checkpointer_ = attach(node_, options_);
  auto loading = start();
  (void)node_.expect<local::Load>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();  // and gets no answer: no node serves
  goes_on = false;
  EXPECT_EQ(loading.get().status().code(), Code::busy);
}

// Regression: the node kept the checkpoint open, and thus pinned, as long as the connection.
TEST_F(Load, ThatIsInterruptedLeavesNoCheckpointOpen) {
  std::atomic<bool> goes_on = true;
  options_.keep_waiting = [&] { return goes_on.load(); };
  checkpointer_.reset();
  checkpointer_ = attach(node_, options_);
  auto opening = std::async(std::launch::async, [&] { return checkpointer_->open_checkpoint().status(); });
  auto load = node_.expect<local::Load>();
  EXPECT_TRUE(load.keeps_open);
  goes_on = false;
  EXPECT_EQ(opening.get().code(), Code::busy);
  EXPECT_EQ(node_.expect<local::Close>().request_id, load.request_id);
}

// Regression: the load whose node had ended gave up the connection to the next node.
TEST_F(Load, LeavesTheConnectionToTheNextNodeAlone) {
  std::promise<void> waits, released;
  std::atomic<bool> holds = false;
  options_.keep_waiting = [&, done = released.get_future().share()] {
    if (holds.exchange(false)) {
      waits.set_value();
      done.wait();
    }
    return true;
  };
  checkpointer_.reset();
  checkpointer_ = attach(node_, options_);
  ASSERT_TRUE(checkpointer_->save(1, state_).ok());
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  node_.send(local::Decided{1, 1, ok_status(), std::make_shared<const Metadata>()});
  auto loading = start();
  (void)node_.expect<local::Load>();
  holds = true;
  waits.get_future().wait();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  (void)node_.expect<local::LayoutUpdate>();  // the client has this connection
  released.set_value();
  const auto load = node_.expect<local::Load>();  // over the same one
  node_.send(local::Found{load.request_id, Status(Code::corrupt, "damaged"), {}});
  EXPECT_EQ(loading.get().status().code(), Code::corrupt);
}

// Regression: the client sent its window without the descriptor, and the node ended the session.
TEST_F(Load, FailsAloneWhereTheProcessHasNoDescriptorLeft) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{std::min<rlim_t>(limit.rlim_cur, 512), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<base::OwnedFd> taken;
  do {
    taken.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  } while (taken.back().valid());
  taken.resize(taken.size() - 2);  // one is left, for the window itself
  const Status failed = checkpointer_->load(state_).status();
  taken.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(failed.code(), Code::io);
  EXPECT_THAT(failed.message(), HasSubstr("cannot duplicate the descriptor of the load window"));
  auto loading = start();
  auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  EXPECT_TRUE(loading.get().ok());
}

TEST_F(Load, PassesOnTheFirstCause) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  node_.send(local::LoadDone{load.request_id, Status(Code::corrupt, "rank-00001.safetensors: block 3")});
  EXPECT_EQ(loading.get().status(),
            Status(Code::corrupt, "rank 0, load of step 40 (g2a1): rank-00001.safetensors: block 3"));
}

// Regression: the error for an unreadable file or a symlink did not name the rank.
TEST_F(Load, SaysWhichRankCouldNotReadWhateverTheCause) {
  const std::vector<std::pair<Code, Code>> notified = {{Code::refused, Code::refused},
                                                       {Code::io, Code::io},
                                                       {Code::version, Code::version},
                                                       {Code::too_large, Code::too_large},
                                                       {Code::not_found, Code::corrupt}};
  for (const auto& [code, expected] : notified) {
    auto loading = start();
    auto load = node_.expect<local::Load>();
    node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
    node_.send(local::LoadDone{load.request_id, Status(code, "a file")});
    EXPECT_EQ(loading.get().status(), Status(expected, "rank 0, load of step 40 (g2a1): a file"));
  }
}

TEST_F(Load, RefusesAWayAndPoliciesThatAreNone) {
  const auto refused = [&](const LoadOptions& options) {
    const Status status = checkpointer_->load(state_, options).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message();
  };
  LoadOptions options;
  options.method = static_cast<LoadMethod>(9);
  EXPECT_THAT(refused(options), ::testing::HasSubstr("LoadOptions::method has the unknown value 9"));
  options = {};
  options.policies.root = static_cast<KeyPolicy>(77);
  EXPECT_THAT(refused(options), ::testing::HasSubstr("the policy of the root has the unknown value 77"));
  options = {};
  options.policies.subtrees = {{"m.", KeyPolicy::skip}};
  EXPECT_THAT(
      refused(options),
      ::testing::HasSubstr("'m.' of the policies has no keys: use 'm' for that key and all keys below it"));
}

TEST_F(Load, SaysWhatItsNodeReadFromCopies) {
  auto loading = start();
  auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  DamageList damaged;
  damaged.add(
      {"x", whole(Dims{4}), 3, "step-00000007/g1a1/rank-00003.safetensors", 4096, 4112, "block 0", "y"});
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status(), LoadTimes(), damaged});
  auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->damaged, damaged);
}

// x and o, one after the other in a file under the root.
class LoadOfFiles : public Load {
 protected:
  // Begins `loading`, and answers that its checkpoint is found.
  local::Load begin(std::future<Result<LoadResult>>& loading) {
    loading = start();
    auto load = node_.expect<local::Load>();
    EXPECT_TRUE(load.reads_files);
    node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
    return load;
  }
  local::FilesToRead write_file(uint32_t request_id) {
    const std::vector<uint32_t> values{1, 2, 3, 4};
    Bytes bytes(21);
    std::memcpy(bytes.data(), values.data(), 16);
    std::memcpy(bytes.data() + 16, "hello", 5);
    std::ofstream(root_.path() + "/shard", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    local::FilesToRead batch{request_id, 5, {"shard"}, {}};
    batch.ranges = {{{1, Box{{0, 0}, {2, 2}}, 0, 16, 16}, 0, 0}, {{0, Box{}, 0, 5, 5}, 0, 16}};
    batch.digests = {base::block_digest(ByteView(bytes).first(16)),
                     base::block_digest(ByteView(bytes).subspan(16))};
    return batch;
  }
};

TEST_F(LoadOfFiles, FillsTheState) {
  std::future<Result<LoadResult>> loading;
  const local::Load load = begin(loading);
  node_.send(write_file(load.request_id));
  const auto received = node_.expect<local::FilesRead>();
  EXPECT_EQ(received.batch, 5u);
  EXPECT_TRUE(received.unread.empty());
  node_.send(local::LoadDone{load.request_id, ok_status()});
  LoadResult result = loading.get().value();
  EXPECT_EQ(result.bytes_loaded, 21u);
  EXPECT_GT(result.times.reading_ns, 0u);
  EXPECT_EQ(memory_, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(object_, "hello");
}

TEST_F(LoadOfFiles, TakesFromTheWindowWhatItCouldNotRead) {
  std::future<Result<LoadResult>> loading;
  const local::Load load = begin(loading);
  local::FilesToRead batch = write_file(load.request_id);
  batch.digests[0] ^= 1;
  node_.send(batch);
  const auto received = node_.expect<local::FilesRead>();
  ASSERT_EQ(received.unread.size(), 1u);
  EXPECT_EQ(received.unread[0].range, 0u);
  EXPECT_EQ(received.unread[0].end, 16u);
  send_batch(load, 1, false);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  EXPECT_TRUE(loading.get().ok());
  EXPECT_EQ(memory_, (std::vector<uint32_t>{1, 2, 3, 4}));
  EXPECT_EQ(object_, "hello");
}

TEST_F(LoadOfFiles, AnswersABatchThatMakesNoSenseAndFailsInTheEnd) {
  std::future<Result<LoadResult>> loading;
  const local::Load load = begin(loading);
  local::FilesToRead batch = write_file(load.request_id);
  batch.digests.pop_back();
  node_.send(batch);
  (void)node_.expect<local::FilesRead>();
  node_.send(write_file(load.request_id));  // later messages are ignored
  (void)node_.expect<local::FilesRead>();
  node_.send(local::LoadDone{load.request_id, ok_status()});
  EXPECT_EQ(loading.get().status().code(), Code::corrupt);
  EXPECT_EQ(memory_, std::vector<uint32_t>(4));
}

TEST_F(Load, WithoutThreadsReadsNoFiles) {
  node_.die();
  checkpointer_.reset();
  options_.load_threads = 0;
  checkpointer_ = attach(node_, options_);
  auto loading = start();
  auto load = node_.expect<local::Load>();
  EXPECT_FALSE(load.reads_files);
  node_.send(local::Found{load.request_id, ok_status(), stored({kO, kX})});
  send_batch(load, 1, true);
  node_.send(local::LoadDone{load.request_id, ok_status()});
  EXPECT_TRUE(loading.get().ok());
}

TEST_F(Load, FailsByNameWhereTheNodeDies) {
  auto loading = start();
  (void)node_.expect<local::Load>();
  node_.die();
  EXPECT_THAT(loading.get().status().message(), HasSubstr("(pid 4242) has ended"));
}

}  // namespace
}  // namespace shoal::client
