// Slabs within the node's grant: fewer saves in flight, saves in parts, and slabs that are given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>

#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Granted : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.root = root_.path();
    options_.job_id = "job";
    options_.start_node = false;
    options_.attach_timeout = milliseconds(1'000);
    object_.resize(5 * kMiB + 12'345);
    for (size_t i = 0; i < object_.size(); ++i) object_[i] = static_cast<char>(i * 7 + i / 4096);
    rows_.resize(kRows * kColumns);
    std::iota(rows_.begin(), rows_.end(), 1u);
    // Columns of a matrix: runs of memory with gaps between them.
    state_.add_tensor_boxes("m", DType::u32, {kRows, kColumns},
                            {{Box{{0, 0}, {kRows, kColumns}}, rows_.data()}});
    state_.add_object("o", &object_, Mesh::contiguous({1}));
  }
  void TearDown() override {
    node_.die();
    checkpointer_.reset();
  }
  void open() { checkpointer_ = attach(node_, options_, true); }
  std::future<Result<SaveHandle>> save(uint64_t step) {
    return std::async(std::launch::async, [this, step] { return checkpointer_->save(step, state_); });
  }
  local::StagingRequest grant(uint32_t slabs, uint64_t slab_bytes = 0, bool in_parts = false) {
    const auto wanted = node_.expect<local::StagingRequest>();
    node_.send(local::StagingGranted{slabs, slab_bytes == 0 ? wanted.bytes : slab_bytes, in_parts,
                                     ok_status(), wanted.number});
    return wanted;
  }
  // What was staged, as its pieces are, once the node has had all of it in parts of `part_bytes`.
  std::map<uint32_t, Bytes> take_parts(const local::Staged& staged, uint64_t part_bytes,
                                       uint64_t number = 1) {
    std::map<uint32_t, Bytes> taken;
    for (const local::StagedPiece& piece : staged.pieces) {
      for (uint64_t at = 0; at < piece.bytes; at += part_bytes) {
        const uint64_t bytes = std::min(part_bytes, piece.bytes - at);
        node_.send(local::PartRequest{
            staged.slab_id, staged.step, staged.attempt, number, {{piece.slab_offset + at, bytes, 4096}}});
        const auto received = node_.expect<local::PartStaged>();
        EXPECT_EQ(received.number, number++);
        EXPECT_TRUE(received.outcome.ok()) << received.outcome.to_string();
        const std::byte* from = node_.slab(staged.slab_id) + 4096;
        Bytes& into = taken[piece.entry];
        into.insert(into.end(), from, from + bytes);
      }
    }
    return taken;
  }
  void expect_state(const std::map<uint32_t, Bytes>& taken) {
    ASSERT_EQ(taken.size(), 2u);
    EXPECT_EQ(taken.at(0).size(), rows_.size() * sizeof(uint32_t));
    EXPECT_EQ(std::memcmp(taken.at(0).data(), rows_.data(), taken.at(0).size()), 0);
    EXPECT_EQ(as_text(taken.at(1)), object_);
  }
  local::SlabFree freed(const local::Staged& staged, bool is_durable = true) {
    local::SlabFree received{staged.slab_id, staged.step, staged.attempt, std::nullopt};
    if (is_durable) received.durable = local::DurableAssignment{};
    return received;
  }

  static constexpr uint64_t kRows = 300, kColumns = 700;
  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_;
  std::string object_;
  std::vector<uint32_t> rows_;
  StateDict state_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(Granted, AsksOnceAndNotAgainWhileItsSlabsDo) {
  open();
  auto first = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  const local::StagingRequest wanted = grant(2);
  EXPECT_GE(wanted.bytes, object_.size() + rows_.size() * 4);
  EXPECT_EQ(wanted.slabs, 2u);
  EXPECT_EQ(first.get()->stats().in_flight_max, 2u);
  const auto staged = node_.expect<local::Staged>();
  EXPECT_FALSE(staged.in_parts);
  EXPECT_TRUE(checkpointer_->save(2, state_).ok());  // the node answers nothing
  EXPECT_EQ(node_.expect<local::Staged>().slab_id, 1u);
  node_.send(freed(staged, false));
  EXPECT_EQ(save(3).get()->stats().parts, 0u);
}

TEST_F(Granted, KeepsFewerSavesInFlightThanItMay) {
  options_.max_in_flight = 3;
  open();
  auto first = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1);
  EXPECT_EQ(first.get()->stats().in_flight_max, 1u);
  const auto staged = node_.expect<local::Staged>();
  auto second = save(2);
  grant(1);  // it requests more memory again
  EXPECT_EQ(second.wait_for(milliseconds(30)), std::future_status::timeout);
  node_.send(freed(staged));
  const auto saved = second.get();
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_GT(saved->stats().seconds_waited, 0);
  EXPECT_EQ(node_.expect<local::Staged>().slab_id, staged.slab_id);
  EXPECT_EQ(node_.slabs_received(), 1u);
  auto third = save(3);
  grant(2);
  EXPECT_TRUE(third.get().ok());
  EXPECT_NE(node_.expect<local::Staged>().slab_id, staged.slab_id);
}

// Regression: only the other waits of a save could be interrupted.
TEST_F(Granted, AWaitForMemoryIsInterrupted) {
  std::atomic<bool> goes_on = true;
  options_.keep_waiting = [&] { return goes_on.load(); };
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::StagingRequest>();
  goes_on = false;
  EXPECT_EQ(saving.get().status().code(), Code::busy);
  EXPECT_EQ(node_.expect<local::NotStaged>().why.code(), Code::busy);
}

TEST_F(Granted, DeclinesWhereNoMoreSavesFitAndItMayNotWait) {
  options_.on_busy = OnBusy::decline;
  open();
  auto first = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1);
  EXPECT_TRUE(first.get().ok());
  (void)node_.expect<local::Staged>();
  auto second = save(2);
  grant(1);
  const Status declined = second.get().status();
  EXPECT_EQ(declined.code(), Code::busy);
  EXPECT_THAT(declined.message(), HasSubstr("as many as the staging memory holds"));
  EXPECT_EQ(node_.expect<local::NotStaged>().step, 2u);
}

TEST_F(Granted, StagesInPartsUntilAllIsDurable) {
  open();
  for (uint64_t step : {1, 2}) {
    auto saving = save(step);
    if (step == 1) (void)node_.expect<local::LayoutUpdate>();
    grant(1, 2 * kMiB, true);
    const auto staged = node_.expect<local::Staged>();
    EXPECT_TRUE(staged.in_parts);
    EXPECT_EQ(node_.slab_bytes(staged.slab_id), 2 * kMiB);
    expect_state(take_parts(staged, step == 1 ? kMiB : 12'344));
    EXPECT_EQ(saving.wait_for(milliseconds(20)), std::future_status::timeout) << "not all is durable";
    node_.send(freed(staged));
    const auto saved = saving.get();
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_GE(saved->stats().parts, 7u);
    EXPECT_EQ(saved->stats().in_flight_max, 1u);
    EXPECT_EQ(saved->stats().bytes_staged, object_.size() + rows_.size() * 4);
  }
  EXPECT_EQ(node_.slabs_received(), 1u) << "the second save used the first one's slab";
}

TEST_F(Granted, RefusesAPartThatWasNotStaged) {
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 2 * kMiB, true);
  const auto staged = node_.expect<local::Staged>();
  node_.send(local::PartRequest{staged.slab_id, 1, 1, 7, {{uint64_t{1} << 40, 8, 0}}});
  EXPECT_EQ(node_.expect<local::PartStaged>().outcome.code(), Code::invalid_argument);
  EXPECT_EQ(saving.get().status().code(), Code::invalid_argument);
  EXPECT_EQ(node_.expect<local::NotStaged>().step, 1u);
  // Its trainer copies no more parts, whatever the node requests.
  node_.send(local::PartRequest{staged.slab_id, 1, 1, 8, {{0, 8, 0}}});
  EXPECT_EQ(node_.expect<local::PartStaged>().outcome.code(), Code::aborted);
}

TEST_F(Granted, EndsInPartsWhereTheSaveWasAborted) {
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 2 * kMiB, true);
  const auto staged = node_.expect<local::Staged>();
  node_.send(local::Decided{1, 1, Status(Code::aborted, "rank 1 went away"), {}});
  auto saved = saving.get();
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_THAT(saved->wait_committed().status().message(), HasSubstr("rank 1 went away"));
  node_.send(local::PartRequest{staged.slab_id, 1, 1, 8, {{0, 8, 0}}});
  EXPECT_EQ(node_.expect<local::PartStaged>().outcome.code(), Code::aborted);
}

// The trainer is still in save: the next node gets all of it, from the start, and no answer to what the one
// before had asked for.
TEST_F(Granted, BeginsAgainInPartsWithTheNextNode) {
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 2 * kMiB, true);
  const auto staged = node_.expect<local::Staged>();
  node_.send(local::PartRequest{staged.slab_id, 1, 1, 1, {{0, 8, 0}}});
  (void)node_.expect<local::PartStaged>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid, 0, true});
  (void)node_.expect<local::LayoutUpdate>();
  const auto kept = node_.expect<local::StagingKept>();
  EXPECT_EQ(kept.bytes, 2 * kMiB);
  EXPECT_EQ(kept.slab_ids, std::vector<uint32_t>{staged.slab_id});
  const auto again = node_.expect<local::Staged>();
  EXPECT_TRUE(again.again);
  EXPECT_TRUE(again.in_parts);
  expect_state(take_parts(again, kMiB));
  node_.send(freed(again));
  EXPECT_TRUE(saving.get().ok());
}

TEST_F(Granted, FailsInPartsWhereNoNodeComesAgain) {
  options_.attach_timeout = milliseconds(200);
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 2 * kMiB, true);
  (void)node_.expect<local::Staged>();
  node_.die();
  EXPECT_EQ(saving.get().status().code(), Code::deadline_exceeded);
}

TEST_F(Granted, SaysWhatTheNodeSaysWhereThereIsNoMemory) {
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::StagingRequest>();
  node_.send(local::StagingGranted{0, 0, false, Status(Code::no_space, "60.0 MiB are left")});
  EXPECT_EQ(saving.get().status(), Status(Code::no_space, "rank 0, step 1 (g3a1): 60.0 MiB are left"));
  EXPECT_EQ(node_.expect<local::NotStaged>().why.code(), Code::no_space);
}

// A node that is silent for two seconds, and this process has memory: the save does without an answer. The
// one that comes later is to a request for less than the next save needs.
TEST_F(Granted, TakesNoAnswerToAnEarlierRequest) {
  open();
  auto first = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  node_.answers_pings = false;
  const auto early = node_.expect<local::StagingRequest>();
  const auto staged = node_.expect<local::Staged>();
  node_.answers_pings = true;
  ASSERT_TRUE(first.get().ok());
  node_.send(freed(staged));
  object_.resize(4 * object_.size());
  auto second = save(2);
  const auto late = node_.expect<local::StagingRequest>();
  EXPECT_GT(late.number, early.number);
  EXPECT_GT(late.bytes, 2 * early.bytes);
  node_.send(local::StagingGranted{2, early.bytes, false, ok_status(), early.number});
  node_.send(local::StagingGranted{1, late.bytes, false, ok_status(), late.number});
  const auto bigger = node_.expect<local::Staged>();
  EXPECT_EQ(node_.slab_bytes(bigger.slab_id), late.bytes);
  EXPECT_EQ(second.get()->stats().in_flight_max, 1u);
}

// Not even with all slots free, where no save ends that a wait could be for.
TEST_F(Granted, FailsWhereTheNodeGrantsLessThanASaveAndNoParts) {
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 4096);
  const Status failed = saving.get().status();
  EXPECT_EQ(failed.code(), Code::internal);
  EXPECT_THAT(failed.message(),
              HasSubstr("granted 4.00 KiB of staging memory and does not allow saves in parts"));
}

// A host that swaps lacks memory, and its node answers slowly: exactly then parts are needed.
TEST_F(Granted, WaitsForASilentNodeWhereThisProcessHasNotTheMemory) {
  options_.staging_bytes_max = 3 * kMiB;
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  const auto wanted = node_.expect<local::StagingRequest>();
  EXPECT_EQ(wanted.bytes_max, 3 * kMiB);
  ASSERT_EQ(saving.wait_for(milliseconds(2'500)), std::future_status::timeout) << "longer than kLongestPong";
  node_.send(local::StagingGranted{1, 2 * kMiB, true, ok_status(), wanted.number});
  const auto staged = node_.expect<local::Staged>();
  EXPECT_TRUE(staged.in_parts);
  expect_state(take_parts(staged, kMiB));
  node_.send(freed(staged));
  EXPECT_TRUE(saving.get().ok());
}

TEST_F(Granted, AsksTheNextNodeWhereThisProcessHasNotTheMemory) {
  options_.staging_bytes_max = 3 * kMiB;
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::StagingRequest>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid, 0, true});
  (void)node_.expect<local::LayoutUpdate>();
  grant(1, 2 * kMiB, true);
  const auto staged = node_.expect<local::Staged>();
  expect_state(take_parts(staged, kMiB));
  node_.send(freed(staged));
  EXPECT_TRUE(saving.get().ok());
}

TEST_F(Granted, FailsWhereNoNodeComesAndThisProcessHasNotTheMemory) {
  options_.staging_bytes_max = 3 * kMiB;
  options_.attach_timeout = milliseconds(200);
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  (void)node_.expect<local::StagingRequest>();
  node_.die();
  const Status failed = saving.get().status();
  EXPECT_NE(failed.code(), Code::no_space) << "a node would have granted parts";
  EXPECT_THAT(failed.message(), HasSubstr("has ended"));
}

TEST_F(Granted, LoadsWithTheMemoryOfSavesThatAreDecided) {
  options_.staging_bytes_max = 8 * kMiB;  // a save needs more than half of it, and a window 4 MiB
  options_.node_silence = milliseconds(2'000);
  open();
  auto saving = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(1);
  SaveHandle saved = saving.get().value();
  const auto staged = node_.expect<local::Staged>();
  node_.send(freed(staged));
  auto loading = std::async(std::launch::async, [this] { return checkpointer_->load(state_).status(); });
  auto checkpoint = std::make_shared<Metadata>();
  checkpoint->key = saved.key();
  node_.send(local::Decided{staged.step, staged.attempt, ok_status(), checkpoint});
  (void)node_.expect<local::Load>();
  node_.die();
  EXPECT_NE(loading.get().code(), Code::no_space);
}

TEST_F(Granted, SaysHowManyRanksAreOnItsHost) {
  options_.world_size = 8;
  options_.ranks_on_host = 4;
  auto opening = std::async(std::launch::async, [&] { return Checkpointer::open(options_); });
  node_.accept();
  EXPECT_EQ(node_.expect<local::Attach>().ranks_on_host, 4u);
  node_.send(local::Attached{3, FakeNode::kPid, 0, true});
  EXPECT_TRUE(opening.get().ok());
}

TEST_F(Granted, GivesFreeSlabsBackAtOnceAndOthersWhenTheyAreFree) {
  open();
  auto first = save(1);
  (void)node_.expect<local::LayoutUpdate>();
  grant(2);
  ASSERT_TRUE(first.get().ok());
  const auto of_first = node_.expect<local::Staged>();
  ASSERT_TRUE(checkpointer_->save(2, state_).ok());
  const auto of_second = node_.expect<local::Staged>();
  node_.send(freed(of_first));
  node_.send(local::GiveBack{});
  auto kept = node_.expect<local::StagingKept>();
  while (kept.slab_ids.size() > 1) kept = node_.expect<local::StagingKept>();
  EXPECT_EQ(kept.slab_ids, std::vector<uint32_t>{of_second.slab_id});
  EXPECT_EQ(node_.slab(of_first.slab_id)[0], std::byte{0}) << "its pages are gone";
  EXPECT_NE(node_.slab(of_second.slab_id)[object_.size() - 1], std::byte{0}) << "this one is not written yet";
  node_.send(freed(of_second));
  while (!kept.slab_ids.empty()) kept = node_.expect<local::StagingKept>();
  EXPECT_EQ(kept.bytes, 0u);
  // The next save requests again, and makes its own slab.
  auto third = save(3);
  grant(2);
  ASSERT_TRUE(third.get().ok());
  (void)node_.expect<local::Staged>();
  EXPECT_EQ(node_.slabs_received(), 3u);
}

TEST_F(Granted, PreparesAsManySlabsAsAreGranted) {
  options_.max_in_flight = 3;
  open();
  auto preparing = std::async(std::launch::async, [&] { return checkpointer_->prepare(state_); });
  (void)node_.expect<local::LayoutUpdate>();
  grant(2);
  ASSERT_TRUE(preparing.get().ok());
  ASSERT_TRUE(checkpointer_->save(1, state_).ok());
  (void)node_.expect<local::Staged>();
  EXPECT_EQ(node_.slabs_received(), 2u);
}

}  // namespace
}  // namespace shoal::client
