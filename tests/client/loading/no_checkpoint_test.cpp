// Code::not_found of a load means only that there is no checkpoint; a trainer that gets it may start from
// step 0. The tests cover other failures that once returned this code and made a job train again from step 0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "shoal/checkpoint_reader.h"
#include "shoal/dcp/load_planner.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;

const Status kNone(Code::not_found, "this root has no committed checkpoint");
constexpr AttemptKey kKey = {2, 40, 1};

class NoCheckpoint : public ::testing::Test {
 protected:
  NoCheckpoint() {
    options_.root = root_.path();
    options_.job_id = "job";
    options_.start_node = false;
    options_.attach_timeout = std::chrono::milliseconds(200);
    checkpointer_ = attach(node_, options_);
    state_.add_tensor("x", DType::u32, {4}, Mesh::single(0), {Placement::shard(0)}, memory_.data());
  }
  template <class Call>
  auto start(Call call) {
    return std::async(std::launch::async, [this, call] { return call(*checkpointer_); });
  }
  static Metadata stored() {
    Metadata metadata;
    metadata.key = kKey;
    metadata.state_dict_metadata = {{"x", LayoutEntry::Kind::tensor, DType::u32, {4}}};
    return metadata;
  }
  void answer_with_checkpoint(const local::Load& load) {
    node_.send(local::Found{load.request_id, ok_status(), stored()});
    node_.send(local::LoadDone{load.request_id, ok_status()});
  }
  // Policies that need the checkpoint's keys first: it is opened, then read.
  static LoadOptions strict() {
    LoadOptions options;
    options.policies.root = KeyPolicy::strict;
    return options;
  }

  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::vector<uint32_t> memory_ = std::vector<uint32_t>(4, 7);
  StateDict state_;
};

// Fails with the code that its own lookup returned.
class FailingPlanner : public dcp::LocalLoadPlanner {
 public:
  Status set_up_planner(const StateDict&, const dcp::Metadata&, const dcp::Role&) override {
    return Status(Code::not_found, "no such key in my table");
  }
  Result<dcp::LoadPlan> create_local_plan() override { return dcp::LoadPlan(); }
  Result<dcp::LoadPlan> finish_plan(dcp::LoadPlan plan) override { return plan; }
  Status load_bytes(const dcp::ReadItem&, std::string) override { return ok_status(); }
  Result<dcp::Tensor> resolve_tensor(const dcp::ReadItem&) override { return dcp::Tensor(); }
  Status commit_tensor(const dcp::ReadItem&, const dcp::Tensor&) override { return ok_status(); }
};

TEST_F(NoCheckpoint, IsToldByLoadLatestAndOpen) {
  auto loading = start([&](Checkpointer& c) { return c.load(state_).status(); });
  node_.send(local::Found{node_.expect<local::Load>().request_id, kNone, {}});
  EXPECT_EQ(loading.get(), kNone.with_context("rank 0, load of the latest checkpoint"));
  auto asking = start([](Checkpointer& c) { return c.latest().status(); });
  node_.send(local::Found{node_.expect<local::Latest>().request_id, kNone, {}});
  EXPECT_EQ(asking.get(), kNone);
  auto opening = start([](Checkpointer& c) { return c.open_checkpoint(7).status(); });
  node_.send(local::Found{node_.expect<local::Load>().request_id, kNone, {}});
  EXPECT_EQ(opening.get(), kNone.with_context("rank 0, load of step 7"));
}

TEST_F(NoCheckpoint, IsNotWhatAPlannerDoesNotFind) {
  FailingPlanner planner;
  auto loading = start([&](Checkpointer& c) { return c.load(state_, planner).status(); });
  answer_with_checkpoint(node_.expect<local::Load>());
  const Status status = loading.get();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("set_up_planner: no such key in my table"));
}

TEST_F(NoCheckpoint, IsNotAFileOfAnOpenedOneThatIsMissing) {
  auto loading = start([&](Checkpointer& c) { return c.load(state_, strict()).status(); });
  const auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored()});
  node_.send(local::LoadDone{load.request_id, Status(Code::not_found, "rank-00000.safetensors")});
  EXPECT_EQ(loading.get(), Status(Code::corrupt, "rank 0, load of step 40 (g2a1): rank-00000.safetensors"));
}

// The node dies between the two requests of a load, and its checkpoint is deleted.
TEST_F(NoCheckpoint, IsNotOneThatWasDeletedWhileItWasOpen) {
  auto loading = start([&](Checkpointer& c) { return c.load_or_start(state_, strict()).status(); });
  answer_with_checkpoint(node_.expect<local::Load>());
  (void)node_.expect<local::Load>();
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  node_.send(local::Found{node_.expect<local::Load>().request_id, kNone, {}});
  EXPECT_EQ(loading.get(), Status(Code::unavailable,
                                  "rank 0, load of step 40 (g2a1): step 40 (g2a1) was deleted while this "
                                  "reader had it open"));
}

// The node dies while it reads. The next one gets the request again, and finds the step deleted.
TEST_F(NoCheckpoint, IsNotOneThatWasFoundBefore) {
  auto loading = start([&](Checkpointer& c) { return c.load_or_start(state_).status(); });
  const auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored()});
  node_.send(local::Loaded{load.request_id, 0, {}});
  (void)node_.expect<local::Placed>();  // it has seen that one was found
  node_.die();
  node_.accept();
  (void)node_.expect<local::Attach>();
  node_.send(local::Attached{3, FakeNode::kPid});
  node_.send(local::Found{node_.expect<local::Load>().request_id, kNone, {}});
  EXPECT_EQ(loading.get().code(), Code::corrupt);
}

TEST_F(NoCheckpoint, IsNotANodeThatCannotBeStarted) {
  TemporaryRoot root;
  FakeNode node(root.path());
  CheckpointerOptions options = options_;
  options.root = root.path();
  options.start_node = true;
  options.node_program = root.folder() + "/no-such-program";
  auto checkpointer = attach(node, options);
  node.stop();
  const Status status = checkpointer->load(state_).status();
  EXPECT_EQ(status.code(), Code::unavailable) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("no-such-program"));
  EXPECT_EQ(checkpointer->latest().status().code(), Code::unavailable);
}

TEST_F(NoCheckpoint, LetsARunStartAfreshAndLeavesItsState) {
  auto loading = start([&](Checkpointer& c) { return c.load_or_start(state_); });
  const auto load = node_.expect<local::Load>();
  EXPECT_TRUE(load.latest);
  node_.send(local::Found{load.request_id, kNone, {}});
  const auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_FALSE(loaded->has_value());
  EXPECT_EQ(memory_, std::vector<uint32_t>(4, 7));
}

// Regression: both were not_found, and a job started from step 0 because a parameter was renamed.
TEST_F(NoCheckpoint, IsNotOneWhoseKeysDiffer) {
  StateDict other;
  other.add_tensor("renamed", DType::u32, {4}, Mesh::single(0), {Placement::shard(0)}, memory_.data());
  auto loading = start([&](Checkpointer& c) { return c.load_or_start(other).status(); });
  const auto load = node_.expect<local::Load>();
  node_.send(local::Found{load.request_id, ok_status(), stored()});
  node_.send(local::LoadDone{load.request_id, Status(Code::key_mismatch, "missing 'renamed'")});
  EXPECT_EQ(loading.get().code(), Code::key_mismatch);
}

TEST_F(NoCheckpoint, IsAskedOfTheLatestAlone) {
  LoadOptions options;
  options.step = 40;
  const Status status = checkpointer_->load_or_start(state_, options).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("LoadOptions::step is 40"));
}

TEST_F(NoCheckpoint, LoadOrStartLoadsWhatThereIs) {
  auto loading = start([&](Checkpointer& c) { return c.load_or_start(StateDict()); });
  answer_with_checkpoint(node_.expect<local::Load>());
  const auto loaded = loading.get();
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  ASSERT_TRUE(loaded->has_value());
  EXPECT_EQ((*loaded)->metadata.key, kKey);
}

}  // namespace
}  // namespace shoal::client
