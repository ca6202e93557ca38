// Digests of the caller's memory, however its boxes lie there.
#include "client/staging/replica_digester.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest/digest.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

// The row-major bytes of a part of a row-major matrix of bytes.
Bytes columns_of(const std::vector<uint8_t>& matrix, uint64_t columns, uint64_t from, uint64_t count) {
  Bytes out;
  for (size_t row = 0; row < matrix.size() / columns; ++row) {
    for (uint64_t i = 0; i < count; ++i) out.push_back(std::byte{matrix[row * columns + from + i]});
  }
  return out;
}

TEST(ReplicaDigester, DigestsTheRowMajorBytesOfEachBlock) {
  constexpr uint64_t kRows = 1024, kLocalColumns = 8192;
  std::vector<uint8_t> local(kRows * kLocalColumns);
  for (size_t i = 0; i < local.size(); ++i) local[i] = static_cast<uint8_t>(i * 2'654'435'761u >> 13);
  std::vector<uint8_t> flat(40'000);
  for (size_t i = 0; i < flat.size(); ++i) flat[i] = static_cast<uint8_t>(i * 7);
  StateDict state;
  const Mesh mesh = Mesh::contiguous({2, 2});
  // Two boxes of 1024 x 4096, side by side in the local tensor: neither is contiguous.
  state.add_tensor("boxes", DType::u8, {kRows, 2 * kLocalColumns}, mesh,
                   {Placement::replicate(), Placement::strided_shard(1, 2)}, local.data());
  state.add_tensor("flat", DType::u8, {40'000}, mesh, {Placement::replicate(), Placement::replicate()},
                   flat.data());
  const BoundState bound = BoundState::bind(state, 1).value();
  const plan::ReplicaBlocks blocks(bound.layout(), 1);
  ASSERT_EQ(blocks.held().size(), 3u);
  std::vector<Bytes> bytes;
  for (uint64_t from : {0u, 4096u}) bytes.push_back(columns_of(local, kLocalColumns, from, 4096));
  bytes.push_back(columns_of(flat, 1, 0, 1));
  ReplicaDigester digester(bound.layout(), 1);
  uint64_t read = 0;
  for (uint32_t window = 0; window < plan::kReplicaWindows; ++window) {
    const auto digests = digester.digest(bound, ReplicaCheck::abort, window, &read).value();
    const std::vector<plan::ReplicaBlock> of_window = blocks.window(window);
    EXPECT_EQ(digests->policy, ReplicaCheck::abort);
    EXPECT_EQ(digests->window, window);
    EXPECT_EQ(digests->blocks, blocks.hash_of(of_window));
    ASSERT_EQ(digests->digests.size(), of_window.size());
    for (size_t i = 0; i < of_window.size(); ++i) {
      const plan::ReplicaBlock& block = of_window[i];
      const ByteView of_block = ByteView(bytes[block.held]).subspan(block.begin, block.end - block.begin);
      EXPECT_EQ(digests->digests[i], base::block_digest(of_block)) << window << ", block " << i;
    }
  }
  EXPECT_EQ(read, blocks.bytes());
}

TEST(ReplicaDigester, RejectsAValueOnADeviceWhateverTheWindow) {
  std::vector<uint8_t> host(100);
  StateDict state;
  const Mesh mesh = Mesh::contiguous({2});
  state.add_tensor("on host", DType::u8, {100}, mesh, {Placement::replicate()}, host.data());
  // Nothing reads this memory.
  state.add_tensor("on device", DType::u8, {100}, mesh, {Placement::replicate()},
                   MemoryRef::on_device(host.data(), 0, nullptr));
  const BoundState bound = BoundState::bind(state, 0).value();
  ReplicaDigester digester(bound.layout(), 0);
  for (uint32_t window = 0; window < plan::kReplicaWindows; ++window) {
    uint64_t read = 0;
    const Status status = digester.digest(bound, ReplicaCheck::warn, window, &read).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("'on device' lies on a device"));
  }
}

TEST(ReplicaDigester, AStateWithoutReplicasDigestsNothing) {
  std::vector<uint8_t> host(100);
  StateDict state;
  state.add_tensor("w", DType::u8, {200}, Mesh::contiguous({2}), {Placement::shard(0)}, host.data());
  const BoundState bound = BoundState::bind(state, 0).value();
  uint64_t read = 0;
  EXPECT_EQ(ReplicaDigester(bound.layout(), 0).digest(bound, ReplicaCheck::warn, 0, &read).value(), nullptr);
  EXPECT_EQ(read, 0u);
}

// --- in a Checkpointer ---

class ReplicasDigested : public ::testing::Test {
 protected:
  void TearDown() override {
    node_.die();
    checkpointer_.reset();
  }
  StateDict state() {
    StateDict state;
    state.add_value("v", DType::u16, {1000}, numbers_.data(), Mesh::contiguous({2}), true);
    return state;
  }
  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_ = options_of_two_ranks(root_.path());
  std::vector<uint16_t> numbers_ = numbers(1000);
  std::unique_ptr<Checkpointer> checkpointer_;
};

TEST_F(ReplicasDigested, TravelWithWhatIsStaged) {
  options_.save.replica_check = ReplicaCheck::warn;
  checkpointer_ = attach(node_, options_);
  const StateDict of_rank = state();
  const SaveHandle saved = checkpointer_->save(10, of_rank).value();
  EXPECT_EQ(saved.stats().replica_bytes, 100u) << "a twentieth of 2,000";
  node_.expect<local::LayoutUpdate>();
  const auto staged = node_.expect<local::Staged>();
  ASSERT_NE(staged.replicas, nullptr);
  EXPECT_EQ(staged.replicas->window, plan::replica_window_of(3, 1));
  EXPECT_EQ(staged.replicas->digests.size(), 1u);

  node_.send(local::SlabFree{staged.slab_id, 10, 1, local::DurableAssignment{{}, {}, {}}});
  checkpointer_->save(11, of_rank).value();  // the client has SlabFree before its slot is free again
  const auto second = node_.expect<local::Staged>();
  EXPECT_EQ(second.replicas->window, plan::replica_window_of(3, 2)) << "windows rotate with each call";
  EXPECT_NE(second.replicas->digests, staged.replicas->digests);
}

TEST_F(ReplicasDigested, NothingIsDigestedUnlessAskedFor) {
  checkpointer_ = attach(node_, options_);
  const SaveHandle saved = checkpointer_->save(10, state()).value();
  EXPECT_EQ(saved.stats().replica_bytes, 0u);
  node_.expect<local::LayoutUpdate>();
  EXPECT_EQ(node_.expect<local::Staged>().replicas, nullptr);
}

TEST_F(ReplicasDigested, TheWarningOfACommitReachesHandleAndCallback) {
  std::promise<std::string> warned;
  options_.on_save_warning = [&](const AttemptKey& key, const std::string& text) {
    warned.set_value(to_string(key) + ": " + text);
  };
  checkpointer_ = attach(node_, options_);
  SaveHandle saved = checkpointer_->save(10, state()).value();
  EXPECT_EQ(saved.warning(), "");
  Metadata metadata;
  metadata.key = saved.key();
  node_.send(
      local::Decided{10, 1, ok_status(), std::make_shared<const Metadata>(metadata), "replicas differ"});
  EXPECT_EQ(warned.get_future().get(), "step 10 (g3a1): replicas differ");
  EXPECT_TRUE(saved.wait_committed().ok());
  EXPECT_EQ(saved.warning(), "replicas differ");
}

TEST_F(ReplicasDigested, ASaveThatChangedNothingCallsTheCallback) {
  std::promise<std::string> warned;
  options_.on_save_warning = [&](const AttemptKey& key, const std::string& text) {
    warned.set_value(to_string(key) + ": " + text);
  };
  checkpointer_ = attach(node_, options_);
  for (uint64_t step : {10, 20}) {
    SaveHandle saved = checkpointer_->save(step, state()).value();
    Metadata metadata;
    metadata.key = saved.key();
    metadata.contents_digest = xxh3_128(std::as_bytes(std::span(numbers_)));
    node_.send(local::Decided{step, 1, ok_status(), std::make_shared<const Metadata>(metadata)});
    EXPECT_TRUE(saved.wait_committed().ok());
  }
  EXPECT_EQ(warned.get_future().get(),
            "step 20 (g3a1): nothing has changed since step 10: all files have the same bytes");
}

}  // namespace
}  // namespace shoal::client
