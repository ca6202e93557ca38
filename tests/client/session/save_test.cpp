#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <future>
#include <random>

#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class Save : public ::testing::Test {
 protected:
  void open() { checkpointer_ = attach(node_, options_); }
  void TearDown() override {
    node_.die();  // otherwise close() would wait for slabs that are never freed
    checkpointer_.reset();
  }
  template <class T>
  std::vector<T> staged_values(const local::Staged& staged, size_t piece) {
    const local::StagedPiece& at = staged.pieces[piece];
    std::vector<T> out(at.bytes / sizeof(T));
    std::memcpy(out.data(), node_.slab(staged.slab_id) + at.slab_offset, at.bytes);
    return out;
  }

  // One value of eight numbers, the same on both ranks.
  StateDict eight_numbers() {
    StateDict state;
    state.add_value("v", DType::u16, {8}, numbers_.data(), Mesh::contiguous({2}));
    return state;
  }

  // Begins a call of latest(), and returns the id of its request.
  uint32_t latest_request() {
    asked_ = std::async(std::launch::async, [this] { return checkpointer_->latest(); });
    return node_.expect<local::Latest>().request_id;
  }

  std::vector<uint16_t> numbers_ = numbers(8);
  std::future<Result<Metadata>> asked_;
  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_ = options_of_two_ranks(root_.path());
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(Save, StagesEverythingHeldWhereNoRosterIsKnown) {
  open();
  const Mesh world = Mesh::contiguous({2});
  std::vector<uint16_t> weights = numbers(12), counter = numbers(1, 77);
  std::string object = "any bytes";
  StateDict state;
  state.add_tensor("weights", DType::u16, {6, 4}, world, {Placement::shard(0)}, weights.data());
  state.add_value("counter", DType::u16, {}, counter.data(), world, true);
  state.add_tensor("empty", DType::u16, {0, 4}, world, {Placement::shard(0)}, nullptr);
  state.add_rank_object("rng", &object);

  SaveHandle saved = checkpointer_->save(10, state).value();
  EXPECT_EQ(saved.key(), (AttemptKey{3, 10, 1}));
  EXPECT_FALSE(saved.stats().with_plan);
  EXPECT_EQ(saved.stats().bytes_staged, 24u + 2 + 9);
  auto layout = node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  EXPECT_EQ(staged.layout_id, layout.layout->id());
  EXPECT_TRUE(staged.roster_id.is_zero());
  ASSERT_EQ(staged.pieces.size(), 4u);  // counter, empty, rng@rank0, weights
  EXPECT_EQ(staged_values<uint16_t>(staged, 0), counter);
  EXPECT_EQ(staged.pieces[1].bytes, 0u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(node_.slab(0)) + staged.pieces[2].slab_offset, 9),
            object);
  EXPECT_EQ(staged_values<uint16_t>(staged, 3), weights);

  // What the trainer does next changes nothing that was staged.
  std::fill(weights.begin(), weights.end(), uint16_t{0});
  EXPECT_EQ(staged_values<uint16_t>(staged, 3), numbers(12));
}

TEST_F(Save, StagesTheAssignmentOfThePlanOnceARosterCame) {
  options_.save.unit_bytes = 1024;
  open();
  const Mesh world = Mesh::contiguous({2});
  std::vector<uint16_t> values = numbers(4096);
  StateDict state;
  state.add_tensor("x", DType::u16, {64, 64}, world, {Placement::replicate()}, values.data());
  ASSERT_TRUE(checkpointer_->prepare(state).ok());
  auto layout = node_.expect<local::LayoutUpdate>();
  const std::vector<LayoutId> ids(2, layout.layout->id());
  auto world_known =
      std::make_shared<World>(World{Roster::make(ids, std::vector<uint32_t>{0, 0}).value(), {layout.layout}});
  node_.send(local::RosterUpdate{world_known, kRuleVersion, layout.options});
  // latest() is answered after the roster: then the plan is made.
  auto asked = std::async(std::launch::async, [&] { return checkpointer_->latest(); });
  node_.send(local::Found{node_.expect<local::Latest>().request_id, ok_status(), {}});
  ASSERT_TRUE(asked.get().ok());

  SaveHandle saved = checkpointer_->save(1, state).value();
  EXPECT_TRUE(saved.stats().with_plan);
  auto staged = node_.expect<local::Staged>();
  SavePlan plan = plan_save(*world_known, 0, layout.options).value();
  EXPECT_EQ(staged.plan_id, plan.id);
  EXPECT_EQ(staged.roster_id, world_known->roster.id());
  EXPECT_EQ(saved.stats().bytes_staged, plan.tensor_bytes);
  EXPECT_EQ(plan.tensor_bytes, 4096u);
  ASSERT_EQ(staged.pieces.size(), plan.items.size());
  const local::StagedPiece& piece = staged.pieces[0];
  EXPECT_EQ(staged_values<uint16_t>(staged, 0),
            numbers(piece.bytes / 2, static_cast<uint16_t>(piece.local_offset / 2)));
}

TEST_F(Save, ReportsForHowLongItHeldTheTrainerToANodeThatCountsIt) {
  checkpointer_ = attach(node_, options_, false, true);
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(1, state).value();
  node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(node_.expect<local::Staged>().step, 1u);
  const auto returned = node_.expect<local::SaveReturned>();
  EXPECT_EQ(returned.step, 1u);
  EXPECT_EQ(returned.attempt, 1u);
  EXPECT_EQ(returned.blocked_ns, static_cast<uint64_t>(saved.stats().seconds_blocked * 1e9));
  EXPECT_EQ(returned.waited_ns, static_cast<uint64_t>(saved.stats().seconds_waited * 1e9));
}

// A node of an older version would end the connection.
TEST_F(Save, ReportsNothingOfThatToANodeThatDoesNotKnowTheMessage) {
  open();
  const StateDict state = eight_numbers();
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  ASSERT_TRUE(checkpointer_->save(2, state).ok());
  node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(node_.expect<local::Staged>().step, 1u);
  EXPECT_EQ(node_.expect<local::Staged>().step, 2u) << "the next message is the next save";
}

TEST_F(Save, RefusesToPlanByAnotherRule) {
  open();
  std::vector<uint16_t> values = numbers(4);
  StateDict state;
  state.add_tensor("x", DType::u16, {4}, Mesh::contiguous({2}), {Placement::replicate()}, values.data());
  ASSERT_TRUE(checkpointer_->prepare(state).ok());
  auto layout = node_.expect<local::LayoutUpdate>();
  auto world = std::make_shared<World>(
      World{Roster::make(std::vector<LayoutId>(2, layout.layout->id()), std::vector<uint32_t>{0, 0}).value(),
            {layout.layout}});
  node_.send(local::RosterUpdate{world, kRuleVersion + 1, layout.options});
  auto asked = std::async(std::launch::async, [&] { return checkpointer_->latest(); });
  node_.send(local::Found{node_.expect<local::Latest>().request_id, ok_status(), {}});
  ASSERT_TRUE(asked.get().ok());
  EXPECT_EQ(checkpointer_->save(1, state).status().code(), Code::version);
}

// Strided shards lie in pieces in the local tensor and are gathered row by row.
TEST_F(Save, GathersEachLocalBoxOfAnyShardingAsItsOwnRowMajorBytes) {
  open();
  std::mt19937_64 random(11);
  const Mesh mesh = Mesh::contiguous({2, 2});
  const Dims shape{5, 12, 6};
  std::vector<std::vector<uint16_t>> memory;
  std::vector<std::pair<std::string, LocalShards>> expected;
  StateDict state;
  for (int i = 0; i < 40; ++i) {
    std::vector<Placement> placements;
    for (int d = 0; d < 2; ++d) {
      const auto dim = static_cast<uint32_t>(random() % 3);
      const uint64_t kind = random() % 3;
      placements.push_back(kind == 0   ? Placement::replicate()
                           : kind == 1 ? Placement::shard(dim)
                                       : Placement::strided_shard(dim, 2 + random() % 2));
    }
    LocalShards shards = shards_at(shape, mesh, placements, Dims{0, 0});
    memory.push_back(numbers(*element_count(shards.local_shape), static_cast<uint16_t>(i * 100)));
    const std::string fqn = fmt::format("t{}", 100 + i);
    state.add_tensor(fqn, DType::u16, shape, mesh, placements, memory.back().data());
    expected.emplace_back(fqn, std::move(shards));
  }
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  (void)node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  size_t several = 0;
  for (size_t p = 0; p < staged.pieces.size(); ++p) {
    const LocalShards& shards = expected[staged.pieces[p].entry].second;
    const Box& local = shards.local[staged.pieces[p].local_box];
    several += shards.boxes.size() > 1;
    std::vector<uint16_t> wanted;
    for (uint64_t a = 0; a < local.sizes[0]; ++a) {
      for (uint64_t b = 0; b < local.sizes[1]; ++b) {
        for (uint64_t c = 0; c < local.sizes[2]; ++c) {
          const uint64_t at = ((local.offsets[0] + a) * shards.local_shape[1] + local.offsets[1] + b) *
                                  shards.local_shape[2] +
                              local.offsets[2] + c;
          wanted.push_back(memory[staged.pieces[p].entry][at]);
        }
      }
    }
    EXPECT_EQ(staged_values<uint16_t>(staged, p), wanted) << expected[staged.pieces[p].entry].first;
  }
  EXPECT_GT(several, 0u);
}

// One of the local shards that hold a tile is read, whatever the others hold; tiles come by ascending box.
TEST_F(Save, TakesEachTileOfARankOnce) {
  open();
  const DeviceMap devices = *DeviceMap::make({{5, 0}, {6, 0}, {7, 0}, {8, 1}});
  const TileSharding tiles = *TileSharding::tiled(devices, {2, 2}, {7, 8, 5, 6}, true);
  std::vector<uint16_t> a = numbers(2, 10), b = numbers(2, 20), c = numbers(3, 30);
  StateDict state;
  state.add_tensor("x", DType::u16, {5}, tiles, {{7, c.data()}, {5, a.data()}, {6, b.data()}});
  const SaveHandle saved = checkpointer_->save(1, state).value();
  EXPECT_EQ(saved.stats().bytes_staged, 10u);
  (void)node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  ASSERT_EQ(staged.pieces.size(), 2u);
  EXPECT_EQ(staged_values<uint16_t>(staged, 0), c);
  EXPECT_EQ(staged_values<uint16_t>(staged, 1), a);
}

TEST_F(Save, RefusesLocalShardsThatAreNotThoseOfItsDevices) {
  open();
  const DeviceMap devices = *DeviceMap::uniform(2, 3);
  const TileSharding tiles = *TileSharding::tiled(devices, {4}, {0, 1, 3, 4});
  uint16_t memory[8] = {};
  auto message = [&](std::vector<StateDict::DeviceData> shards, Dims shape = {8}) {
    StateDict state;
    state.add_tensor("x", DType::u16, std::move(shape), tiles, std::move(shards));
    return checkpointer_->save(1, state).status().message();
  };
  EXPECT_EQ(message({{0, memory}}), "rank 0, step 1 (g3a1): 'x': the local shard of device 1 is missing");
  EXPECT_EQ(message({{0, memory}, {1, nullptr}}),
            "rank 0, step 1 (g3a2): 'x': the memory for the local shard of device 1 is missing");
  EXPECT_THAT(message({{0, memory}, {1, memory}, {1, memory}}),
              HasSubstr("'x': device 1 has two local shards"));
  EXPECT_THAT(message({{0, memory}, {1, memory}, {2, memory}}),
              HasSubstr("'x': device 2 is not in the tile assignment"));
  EXPECT_THAT(message({{0, memory}, {1, memory}, {3, memory}}),
              HasSubstr("'x': device 3 does not belong to rank 0"));
  EXPECT_THAT(message({{0, memory}, {1, memory}}, {8, 2}),
              HasSubstr("'x': a tile assignment of [4] does not fit"));
  EXPECT_EQ(message({{0, memory}, {1, nullptr}}, {1}), "") << "it holds no element";
}

TEST_F(Save, ReusesASlabThatIsFreeAndWaitsForOneWhereNoneIs) {
  options_.max_in_flight = 2;
  open();
  const StateDict state = eight_numbers();
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  (void)node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(node_.expect<local::Staged>().slab_id, 0u);
  ASSERT_TRUE(checkpointer_->save(2, state).ok());
  EXPECT_EQ(node_.expect<local::Staged>().slab_id, 1u);
  auto third = std::async(std::launch::async, [&] { return checkpointer_->save(3, state); });
  EXPECT_EQ(third.wait_for(milliseconds(30)), std::future_status::timeout);
  node_.send(local::SlabFree{1, 2, 1, std::nullopt});
  EXPECT_TRUE(third.get().ok());
  EXPECT_EQ(node_.expect<local::Staged>().slab_id, 1u);
  EXPECT_EQ(node_.slabs_received(), 2u);
}

// Regression: SlabFree freed whatever was in the slab, and the next save overwrote it.
TEST_F(Save, KeepsItsSlabWhateverIsSaidOfEarlierSaves) {
  options_.max_in_flight = 1;
  options_.on_busy = OnBusy::decline;
  open();
  const StateDict state = eight_numbers();
  SaveHandle first = checkpointer_->save(1, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  node_.send(local::SlabFree{0, 1, 1, std::nullopt});
  node_.send(local::Decided{1, 1, ok_status(), std::make_shared<const Metadata>()});
  ASSERT_TRUE(first.wait_committed().ok());
  SaveHandle second = checkpointer_->save(2, state).value();
  (void)node_.expect<local::Staged>();
  node_.send(local::SlabFree{0, 1, 1, std::nullopt});  // once more
  node_.send(local::SlabFree{0, 7, 1, std::nullopt});  // of a save that this client does not know
  node_.send(local::Found{latest_request(), Status(Code::not_found, "none"), {}});
  EXPECT_EQ(asked_.get().status().code(), Code::not_found);
  EXPECT_EQ(checkpointer_->save(3, state).status().code(), Code::busy);
  node_.send(local::SlabFree{0, 2, 1, std::nullopt});
  node_.send(local::Decided{2, 1, Status(Code::aborted, "rank 1: full"), nullptr});
  EXPECT_FALSE(second.wait_committed().ok());
  EXPECT_TRUE(checkpointer_->save(4, state).ok());
}

// Regression: what a connection had brought before the client gave it up freed the slab of a later save. The
// callback holds the thread that receives, as a busy machine may.
TEST_F(Save, KeepsItsSlabWhateverAnEarlierConnectionSaid) {
  options_.max_in_flight = 1;
  options_.on_busy = OnBusy::decline;
  std::promise<void> held, released;
  options_.on_save_failed = [&, done = released.get_future().share()](const AttemptKey&, const Status&) {
    held.set_value();
    done.wait();
  };
  std::atomic<bool> goes_on = true;
  options_.keep_waiting = [&] { return goes_on.load(); };
  open();
  StateDict state = eight_numbers();
  SaveHandle first = checkpointer_->save(1, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  node_.send(local::Decided{1, 1, Status(Code::aborted, "rank 1: full"), nullptr});
  held.get_future().wait();
  EXPECT_FALSE(first.wait_committed().ok());
  auto loading = std::async(std::launch::async, [&] { return checkpointer_->load(state); });
  (void)node_.expect<local::Load>();
  node_.send(local::SlabFree{0, 1, 1, std::nullopt});
  goes_on = false;
  EXPECT_EQ(loading.get().status().code(), Code::busy);  // it gives up the connection
  goes_on = true;
  SaveHandle second = checkpointer_->save(2, state).value();
  released.set_value();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  (void)node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(node_.expect<local::Staged>().step, 2u);
  EXPECT_EQ(checkpointer_->save(3, state).status().code(), Code::busy);
  node_.send(local::SlabFree{0, 2, 1, std::nullopt});
}

TEST_F(Save, DeclinesWhereItMayNotWait) {
  options_.max_in_flight = 1;
  options_.on_busy = OnBusy::decline;
  open();
  const StateDict state = eight_numbers();
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  EXPECT_EQ(checkpointer_->save(2, state).status().code(), Code::busy);
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  auto declined = node_.expect<local::NotStaged>();  // so that the other ranks need not wait for a deadline
  EXPECT_EQ(declined.step, 2u);
  EXPECT_EQ(declined.attempt, 1u);
  EXPECT_EQ(declined.why.code(), Code::busy);
  node_.send(local::Refused{1, 1, Status(Code::no_space, "the disk is full")});  // frees the slab too
  auto asked = std::async(std::launch::async, [&] { return checkpointer_->latest(); });
  node_.send(local::Found{node_.expect<local::Latest>().request_id, Status(Code::not_found, "none"), {}});
  EXPECT_EQ(asked.get().status().code(), Code::not_found);
  // A call that was declined counts, as it does on the other ranks.
  // no call had requested the outcome
  EXPECT_EQ(checkpointer_->save(2, state).status().code(), Code::earlier_save_failed);
  EXPECT_EQ(checkpointer_->last_save()->key(), (AttemptKey{3, 2, 2}));
}

TEST_F(Save, ReplacesASlabThatBecameTooSmall) {
  options_.max_in_flight = 1;
  open();
  std::string object(1000, 'a');
  StateDict state;
  state.add_object("o", &object, Mesh::contiguous({2}));
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  node_.send(local::SlabFree{0, 1, 1, std::nullopt});
  object.assign(size_t{5} << 20, 'b');
  ASSERT_TRUE(checkpointer_->save(2, state).ok());
  auto staged = node_.expect<local::Staged>();
  EXPECT_EQ(staged.slab_id, 0u);
  EXPECT_EQ(node_.slabs_received(), 2u);
  EXPECT_EQ(staged.pieces[0].bytes, object.size());
  EXPECT_EQ(node_.slab(0)[object.size() - 1], std::byte{'b'});
}

TEST_F(Save, TellsWhatWasDecided) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle first = checkpointer_->save(5, state).value();
  SaveHandle second = checkpointer_->save(5, state).value();
  EXPECT_EQ(second.key().attempt, 2u);
  EXPECT_FALSE(first.done());
  EXPECT_EQ(first.wait_committed(milliseconds(0)).status().code(), Code::deadline_exceeded);
  Metadata metadata;
  metadata.key = first.key();
  node_.send(local::Decided{5, 1, ok_status(), std::make_shared<const Metadata>(metadata)});
  node_.send(local::Decided{5, 2, Status(Code::aborted, "rank 1 did not report"), {}});
  EXPECT_EQ(first.wait_committed().value().key, first.key());
  EXPECT_EQ(second.wait_committed().status(),
            Status(Code::aborted, "rank 0, step 5 (g3a2): rank 1 did not report"));
  EXPECT_GT(first.seconds_to_decision(), 0);
}

TEST_F(Save, SaysSinceWhenNothingHasChanged) {
  options_.max_in_flight = 4;
  open();
  const StateDict state = eight_numbers();
  std::vector<SaveHandle> saves;
  for (uint64_t step : {10, 20, 30, 40}) saves.push_back(checkpointer_->save(step, state).value());
  const auto commit = [&](size_t i, std::string_view contents) {
    EXPECT_EQ(saves[i].unchanged_since(), std::nullopt) << "undecided";
    Metadata metadata;
    metadata.key = saves[i].key();
    metadata.contents_digest = xxh3_128(std::as_bytes(std::span(contents)));
    node_.send(local::Decided{saves[i].key().step, saves[i].key().attempt, ok_status(),
                              std::make_shared<const Metadata>(metadata)});
    EXPECT_TRUE(saves[i].wait_committed().ok());
    return saves[i].unchanged_since();
  };
  EXPECT_EQ(commit(1, "a"), std::nullopt) << "no earlier one is known yet";
  EXPECT_EQ(commit(2, "a"), 20u);
  EXPECT_EQ(commit(0, "a"), std::nullopt);  // decided late
  EXPECT_EQ(saves[1].unchanged_since(), 10u);
  EXPECT_EQ(saves[2].unchanged_since(), 10u) << "since the first of them";
  EXPECT_EQ(commit(3, "b"), std::nullopt);
}

TEST_F(Save, TakesUnknownContentsForChanged) {
  open();
  const StateDict state = eight_numbers();
  for (uint64_t step : {1, 2}) {
    SaveHandle save = checkpointer_->save(step, state).value();
    auto metadata = std::make_shared<Metadata>();
    metadata->key = save.key();
    node_.send(local::Decided{step, 1, ok_status(), metadata});
    EXPECT_TRUE(save.wait_committed().ok());
    EXPECT_EQ(save.unchanged_since(), std::nullopt);
  }
}

TEST_F(Save, FailsByNameOnceTheNodeIsGone) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(5, state).value();
  node_.die();
  // Another node could have taken its place, within attach_timeout.
  EXPECT_THAT(saved.wait_committed().status().message(),
              HasSubstr("the node of this host (pid 4242) has ended"));
  const std::string of_5 = "rank 0, step 5 (g3a1): ", of_6 = "rank 0, step 6 (g3a1): ";
  const std::string refused = checkpointer_->save(6, state).status().message();
  ASSERT_THAT(refused, ::testing::StartsWith(of_6));
  EXPECT_EQ(saved.error().message(), of_5 + refused.substr(of_6.size()));
  EXPECT_THAT(checkpointer_->latest().status().message(), HasSubstr("(pid 4242) has ended"));
}

TEST_F(Save, FailsWhereTheNodeGivesNoSignOfLife) {
  options_.node_silence = milliseconds(300);
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(5, state).value();
  // A node that answers may take its time with the disk.
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  for (int i = 0; i < 20; ++i) {
    (void)node_.expect<local::Ping>();
    node_.send(local::Pong{});
  }
  EXPECT_FALSE(saved.done());
  Status stopped = saved.wait_committed().status();  // from here on it is silent
  EXPECT_EQ(stopped.code(), Code::deadline_exceeded);
  EXPECT_THAT(stopped.message(), HasSubstr("pid 4242"));
  EXPECT_THAT(stopped.message(), HasSubstr("sent nothing for"));
}

TEST_F(Save, PassesOnWhyTheNodeGaveUp) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(5, state).value();
  node_.send(local::Failed{Status(Code::refused, "another job runs here")});
  EXPECT_THAT(saved.wait_committed().status().to_string(), HasSubstr("another job runs here"));
}

TEST_F(Save, WithAChangedLayoutSaysSoAndStagesEverything) {
  open();
  std::vector<uint16_t> values = numbers(8);
  auto state_of = [&](Dims shape, const char* last) {
    StateDict state;
    state.add_value("a", DType::u16, {8}, values.data(), Mesh::contiguous({2}));
    state.add_value(last, DType::u16, std::move(shape), values.data(), Mesh::contiguous({2}));
    return state;
  };
  ASSERT_TRUE(checkpointer_->save(1, state_of({8}, "b")).ok());
  const LayoutId before = node_.expect<local::LayoutUpdate>().layout->id();
  EXPECT_EQ(node_.expect<local::Staged>().layout_id, before);
  ASSERT_TRUE(checkpointer_->save(2, state_of({4}, "b")).ok());
  const LayoutId after = node_.expect<local::LayoutUpdate>().layout->id();
  EXPECT_NE(after, before);
  const local::Staged staged = node_.expect<local::Staged>();
  EXPECT_EQ(staged.layout_id, after);
  EXPECT_TRUE(staged.roster_id.is_zero());
  ASSERT_EQ(staged.pieces.size(), 2u);
  EXPECT_EQ(staged.pieces[0].bytes + staged.pieces[1].bytes, 24u);
}

// Only this client has the layout of a save that the node before was planning.
TEST_F(Save, ThatIsUndecidedHasItsLayoutDeclaredToTheNextNode) {
  options_.attach_timeout = std::chrono::seconds(20);
  open();
  StateDict two = eight_numbers();
  std::vector<uint16_t> more = numbers(4);
  two.add_value("more", DType::u16, {4}, more.data(), Mesh::contiguous({2}));
  ASSERT_TRUE(checkpointer_->save(1, eight_numbers()).ok());
  const auto first = node_.expect<local::LayoutUpdate>();
  node_.expect<local::Staged>();
  ASSERT_TRUE(checkpointer_->save(2, two).ok());
  const auto second = node_.expect<local::LayoutUpdate>();
  node_.expect<local::Staged>();
  ASSERT_NE(first.layout->id(), second.layout->id());

  node_.die();
  node_.accept();
  node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  EXPECT_EQ(node_.expect<local::LayoutUpdate>().layout->id(), first.layout->id());
  EXPECT_EQ(node_.expect<local::LayoutUpdate>().layout->id(), second.layout->id());
  EXPECT_EQ(node_.expect<local::Staged>().layout_id, first.layout->id());
  EXPECT_EQ(node_.expect<local::Staged>().layout_id, second.layout->id());
}

TEST_F(Save, OfObjectsThatHaveAnotherLengthEachTimeKeepsTheLayout) {
  options_.max_in_flight = 3;
  open();
  std::vector<uint16_t> values = numbers(8);
  LayoutId first;
  for (uint64_t step = 1; step <= 3; ++step) {
    std::string loader(step == 1 ? 3 : step == 2 ? 900'000 : 0, 'x'), rng(step, 'y');
    StateDict state;  // made again, as a trainer does
    state.add_value("a", DType::u16, {8}, values.data(), Mesh::contiguous({2}), true);
    state.add_object("loader", &loader, Mesh::contiguous({2}), true);
    state.add_rank_object("rng", &rng);
    ASSERT_TRUE(checkpointer_->save(step, state).ok());
    if (step == 1) first = node_.expect<local::LayoutUpdate>().layout->id();
    const auto staged = node_.expect<local::Staged>();  // nothing is said before it
    EXPECT_EQ(staged.layout_id, first);
    ASSERT_EQ(staged.pieces.size(), 3u);
    EXPECT_EQ(staged.pieces[1].bytes, loader.size());
    EXPECT_EQ(staged.pieces[2].bytes, step);
  }
}

TEST_F(Save, RefusesWhatCannotBeAState) {
  open();
  const Mesh world = Mesh::contiguous({2});
  std::vector<uint16_t> values = numbers(8);
  StateDict twice, sub_byte, absent, elsewhere;
  twice.add_value("a", DType::u16, {8}, values.data(), world);
  twice.add_value("a", DType::u16, {8}, values.data(), world);
  sub_byte.add_value("a", DType::f4, {8}, values.data(), world);
  absent.add_value("a", DType::u16, {8}, nullptr, world);
  elsewhere.add_value("a", DType::u16, {8}, values.data(), Mesh::single(1));
  for (const StateDict* state : {&twice, &sub_byte, &absent, &elsewhere}) {
    Status status = checkpointer_->save(1, *state).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("'a'"));
  }
}

TEST_F(Save, StopsAtItsBudget) {
  options_.staging_bytes_max = 3 << 20;
  open();
  const StateDict state = eight_numbers();
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  Status second = checkpointer_->save(2, state).status();
  EXPECT_EQ(second.code(), Code::no_space);
  EXPECT_THAT(second.message(), HasSubstr("staging_bytes_max is 3.00 MiB"));
}

TEST_F(Save, IsWaitedForWhenTheCheckpointerCloses) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(1, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  auto staged = node_.expect<local::Staged>();
  auto closing = std::async(std::launch::async, [&] { checkpointer_.reset(); });
  EXPECT_EQ(closing.wait_for(milliseconds(30)), std::future_status::timeout);
  node_.send(local::SlabFree{staged.slab_id, staged.step, staged.attempt, std::nullopt});
  (void)node_.expect<local::Detach>();
  closing.get();
  EXPECT_EQ(saved.wait_committed().status().code(), Code::unavailable);
}

// Regression: an interrupted close ended the session and returned OK, although nobody knew the outcome.
TEST_F(Save, IsUndecidedAfterAWaitThatWasInterrupted) {
  std::atomic<bool> goes_on = true;
  options_.keep_waiting = [&] { return goes_on.load(); };
  open();
  const StateDict state = eight_numbers();
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  goes_on = false;
  EXPECT_EQ(checkpointer_->wait_all().code(), Code::busy);
  const Status closed = checkpointer_->close();
  EXPECT_EQ(closed.code(), Code::busy);
  EXPECT_THAT(closed.message(), HasSubstr("the Checkpointer is still open"));
  goes_on = true;
  node_.send(local::Decided{1, 1, Status(Code::aborted, "rank 1: full"), nullptr});
  EXPECT_THAT(checkpointer_->close().message(), HasSubstr("rank 1: full"));
}

// A trainer that is suspended between its connection and its Attach.
TEST_F(Save, IsOfferedAgainToANodeThatWaitedForItsAttachInVain) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(1, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Failed{Status(Code::deadline_exceeded, "the client sent no Attach in time")});
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  (void)node_.expect<local::LayoutUpdate>();
  EXPECT_TRUE(node_.expect<local::Staged>().again);
  node_.send(local::Decided{1, 1, Status(Code::aborted, "rank 1: full"), nullptr});
  EXPECT_THAT(saved.wait_committed().status().message(), HasSubstr("rank 1: full"));
}

// Regression: a child that ended by exit() waited for threads that it does not have.
TEST_F(Save, IsNoMatterOfAForkedChild) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(1, state).value();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);  // a hang is a signal
    bool is_good = checkpointer_->save(2, state).status().code() == Code::refused;
    is_good = is_good && checkpointer_->close().code() == Code::refused;
    checkpointer_.reset();
    ::_exit(is_good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  node_.send(local::Decided{1, 1, Status(Code::aborted, "rank 1: full"), nullptr});
  EXPECT_THAT(saved.wait_committed().status().message(), HasSubstr("rank 1: full"));
}

TEST_F(Save, IsNotWaitedForWhenTheCheckpointerIsAbandoned) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(1, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::Staged>();
  checkpointer_->abandon();
  EXPECT_FALSE(node_.is_connected());  // without Detach: the node takes the trainer for dead
  EXPECT_EQ(saved.wait_committed().status().code(), Code::unavailable);
  EXPECT_EQ(checkpointer_->save(2, state).status().code(), Code::refused);
  checkpointer_->abandon();
  checkpointer_.reset();
}

TEST_F(Save, GoesOnWhileItsNodeReportsProgress) {
  open();
  const StateDict state = eight_numbers();
  SaveHandle saved = checkpointer_->save(5, state).value();
  (void)node_.expect<local::LayoutUpdate>();
  const auto staged = node_.expect<local::Staged>();
  node_.send(local::StillWriting{staged.step, staged.attempt});
  node_.send(local::StillWriting{77, 1});  // of a save that the client does not know
  node_.send(local::Decided{staged.step, staged.attempt, Status(Code::aborted, "rank 1: full"), nullptr});
  EXPECT_THAT(saved.wait_committed().status().message(), HasSubstr("rank 1: full"));
}

TEST_F(Save, PassesItsMetadataOnAndOffersItAgain) {
  open();
  const StateDict state = eight_numbers();
  const UserMetadata user = {{"run", "a"}, {"note", "x\ny"}};
  SaveHandle written = checkpointer_->save(5, state, {user}).value();
  (void)node_.expect<local::LayoutUpdate>();
  const auto staged = node_.expect<local::Staged>();
  ASSERT_NE(staged.user, nullptr);
  EXPECT_EQ(*staged.user, user);
  local::SlabFree freed{staged.slab_id, staged.step, staged.attempt, local::DurableAssignment{}};
  node_.send(freed);
  ASSERT_TRUE(checkpointer_->save(6, state, {{{"run", "b"}}}).ok());
  EXPECT_EQ(node_.expect<local::Staged>().user->at("run"), "b");
  // An earlier node made one assignment durable and had the other one. The next node receives both facts.
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid, 0, false});
  (void)node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(*node_.expect<local::Written>().user, user);
  EXPECT_EQ(node_.expect<local::Staged>().user->at("run"), "b");
  // The decision arrives with it.
  auto checkpoint = std::make_shared<Metadata>();
  checkpoint->key = {3, 5, 1};
  checkpoint->user = user;
  node_.send(local::Decided{5, 1, ok_status(), checkpoint});
  EXPECT_EQ(written.wait_committed()->user, user);
}

TEST_F(Save, RefusesMetadataBeyondItsBounds) {
  open();
  const StateDict state = eight_numbers();
  const Status refused = checkpointer_->save(5, state, {{{"k", std::string(1 << 20, 'x')}}}).status();
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_THAT(refused.message(), HasSubstr("at most 16384 are allowed"));
  EXPECT_EQ(node_.expect<local::NotStaged>().step, 5u) << "the other ranks hear of it";
}

TEST_F(Save, OfManyTensorsIsOneShortMessage) {
  open();
  constexpr uint32_t kTensors = 20'000;
  std::vector<uint16_t> values = numbers(kTensors);
  StateDict state;
  for (uint32_t i = 0; i < kTensors; ++i) {
    state.add_value(fmt::format("t{}", i), DType::u16, {1}, &values[i], Mesh::contiguous({2}));
  }
  auto reading = std::async(std::launch::async, [&] {
    (void)node_.expect<local::LayoutUpdate>();
    return node_.expect<local::Staged>();
  });
  ASSERT_TRUE(checkpointer_->save(1, state).ok());
  EXPECT_EQ(reading.get().pieces.size(), kTensors);
}

}  // namespace
}  // namespace shoal::client
