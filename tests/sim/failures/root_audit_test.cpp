// The audit finds what is wrong with a root that a job has left.
#include "sim/failures/root_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/bytes/memory_file_system.h"
#include "sim/cluster/stored_payload.h"
#include "storage/decisions/decision.h"
#include "storage/files/local_storage.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

constexpr AttemptKey kKey{1, 3, 1};
const Dims kShape{4, 6};

// A committed attempt of one rank that holds one tensor.
class AnAudit : public ::testing::Test {
 protected:
  AnAudit() {
    storage_ = *storage::LocalStorage::open(file_system_, "/root", Nonce{});
    LayoutBuilder builder;
    builder.add_tensor("w", DType::f32, kShape, Mesh::contiguous({1}), {Placement::replicate()});
    layout_ = *std::move(builder).build();
  }

  // Writes rows [0, rows) with the bytes of `state`, and commits.
  void save(uint64_t rows, uint64_t state) {
    storage::ShardPiece piece;
    piece.key = piece.fqn = "w";
    piece.dtype = DType::f32;
    piece.global_shape = kShape;
    piece.box = Box{{0, 0}, {rows, kShape[1]}};
    piece.bytes = rows * kShape[1] * 4;
    Bytes bytes(piece.bytes);
    fill_with_known_bytes(state, "w", kShape, piece.box, 4, 0, bytes);
    auto written = storage::write_shard(*storage_, storage::shard_path(kKey, 0, 0), Nonce{}, {piece},
                                        {ByteView(bytes)}, nullptr, nullptr);
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    auto world = std::make_shared<World>();
    world->layouts = {layout_};
    world->roster = Roster::make(std::vector<LayoutId>{layout_->id()}, std::vector<uint32_t>{0}).value();
    storage::Manifest manifest;
    manifest.world = world;
    manifest.payload_bytes = written->payload_bytes;
    manifest.files = {{shard_file_name(0, 0), written->size, written->header_digest, 0, uint32_t{0}}};
    ASSERT_TRUE(storage::publish_decision(*storage_, {kKey, Nonce{}, RootId{}, 1, manifest}).ok());
  }
  Result<std::set<AttemptKey>> audit() { return audit_root(file_system_, "/root", {{1, {layout_}}}); }

  MemoryFileSystem file_system_;
  std::unique_ptr<storage::LocalStorage> storage_;
  LayoutPtr layout_;
};

TEST_F(AnAudit, AcceptsACheckpointWithTheBytesOfItsStep) {
  save(kShape[0], state_of(kKey));
  const auto committed = audit();
  ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  EXPECT_EQ(*committed, std::set<AttemptKey>{kKey});
}

TEST_F(AnAudit, FindsTheBytesOfAnotherStep) {
  save(kShape[0], state_of({1, 2, 1}));
  EXPECT_THAT(audit().status().message(), HasSubstr("'w' does not have the bytes of step 3"));
}

TEST_F(AnAudit, FindsElementsThatNoFileHas) {
  save(3, state_of(kKey));
  EXPECT_THAT(audit().status().message(), HasSubstr("no file has element 18 of 'w'"));
}

TEST_F(AnAudit, FindsAFileThatWasRemovedOrChanged) {
  save(kShape[0], state_of(kKey));
  file_system_.flip_bit(storage::shard_path(kKey, 0, 0), 8 * 4096 + 3);
  EXPECT_THAT(audit().status().message(), HasSubstr("'w' does not have the bytes of step 3"));
  ASSERT_TRUE(storage_->remove(storage::shard_path(kKey, 0, 0)).ok());
  EXPECT_THAT(audit().status().message(), HasSubstr("rank-00000.safetensors: it does not exist"));
}

TEST_F(AnAudit, IgnoresAnAttemptWithoutADecision) {
  const auto committed = audit();
  ASSERT_TRUE(committed.ok());
  EXPECT_TRUE(committed->empty());
}

}  // namespace
}  // namespace shoal::sim
