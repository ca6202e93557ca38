// Strangers and zombies connect to a live node while others save. Each is rejected with an error that names
// it, and no save fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <random>
#include <thread>

#include "local/socket/socket.h"
#include "schema/wire.capnp.h"
#include "tests/process/listening_places.h"
#include "tests/process/stranger.h"
#include "tests/process/trainer.h"

namespace shoal::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A coordinating node, a follower, and a trainer on each.
class LiveJob : public ::testing::Test {
 protected:
  LiveJob()
      : coordinator_(scratch_.host("a"), {"root=" + scratch_.root(), "job=job-1", "world=2", "name=a"}),
        address_(coordinator_.address()),
        follower_(scratch_.host("b"),
                  {"root=" + scratch_.root(), "job=job-1", "world=2", "name=b", "coordinator=" + address_}) {
    EXPECT_THAT(follower_.first_line(), StartsWith("ready"));
    first_ = std::make_unique<Trainer>(scratch_, "a", 0, 2);
    second_ = std::make_unique<Trainer>(scratch_, "b", 1, 2);
    EXPECT_TRUE(first_->opened.ok() && second_->opened.ok());
  }

  void expect_saves_commit(uint64_t first_step, uint64_t last_step) {
    for (uint64_t step = first_step; step <= last_step; ++step) {
      auto one = first_->save(step), two = second_->save(step);
      ASSERT_TRUE(one.ok() && two.ok()) << one.status().to_string() << two.status().to_string();
      EXPECT_TRUE(one->wait_committed(kPatience).ok()) << one->error().to_string();
      EXPECT_TRUE(two->wait_committed(kPatience).ok()) << two->error().to_string();
    }
  }

  // The identity that a node of this job would send.
  transport::Identity member() const {
    storage::PosixFileSystem files;
    auto storage = storage::LocalStorage::open(files, scratch_.root(), random_128()).value();
    transport::Identity identity;
    identity.root_id = storage::open_root(*storage, false, {}).value();
    identity.job_id = "job-1";
    identity.generation = 1;
    identity.incarnation = random_128();
    identity.name = "stranger";
    return identity;
  }
  std::string socket_of(const std::string& host) const {
    setenv("SHOAL_RUNTIME_DIR", scratch_.host(host).c_str(), 1);
    return local::node_paths(scratch_.root())->socket_file;
  }

  Scratch scratch_;
  NodeChild coordinator_;
  std::string address_;
  NodeChild follower_;
  std::unique_ptr<Trainer> first_, second_;
};

TEST_F(LiveJob, TurnsAwayNodesOfAnotherGenerationSchemaRootOrJob) {
  expect_saves_commit(1, 1);
  transport::Identity past = member(), other_job = member(), other_root = member();
  past.generation = 7;
  other_job.job_id = "job-0";
  other_root.root_id = random_128();
  auto answer = [&](const transport::Identity& identity, uint32_t schema_version) {
    return Stranger::at_address(address_).say_hello(identity, schema_version);
  };
  EXPECT_TRUE(answer(member(), schema::SCHEMA_VERSION).ok()) << "the test speaks the protocol";
  EXPECT_EQ(answer(past, schema::SCHEMA_VERSION).message(),
            "the generations differ: the peer is in 7, but this node is in 1");
  EXPECT_THAT(answer(other_job, schema::SCHEMA_VERSION).message(),
              HasSubstr("jobs differ: the peer belongs to 'job-0'"));
  EXPECT_THAT(answer(other_root, schema::SCHEMA_VERSION).message(), HasSubstr("roots differ"));
  for (uint32_t version : {schema::SCHEMA_VERSION + 1, schema::SCHEMA_VERSION - 1, 0xffffffffu}) {
    Status why = answer(member(), version);
    EXPECT_EQ(why.code(), Code::version) << why.to_string();
    EXPECT_THAT(why.message(), HasSubstr(std::to_string(version)));
  }
  expect_saves_commit(2, 3);
}

TEST_F(LiveJob, SavesOnWhileStrangersSendGarbageToAllItsDoors) {
  expect_saves_commit(1, 1);
  const std::vector<std::string> sockets = {socket_of("a"), socket_of("b")};
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread strangers([&] {
    std::mt19937_64 random(7);
    std::vector<Stranger> lingering;  // these send nothing, or half a message, and stay connected
    while (!stop) {
      Bytes garbage(1 + random() % 100'000);
      for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
      for (int entrance = 0; entrance < 3; ++entrance) {
        auto here = static_cast<size_t>(entrance);
        Stranger stranger =
            entrance == 2 ? Stranger::at_address(address_) : Stranger::at_socket(sockets[here]);
        if (!stranger.connected()) continue;
        // A length that is credible now and then, so that what follows is taken for a message.
        if (random() % 2 == 0) store_le32(garbage.data(), static_cast<uint32_t>(garbage.size() & ~7ull));
        stranger.send(garbage);
        if (lingering.size() < 8) lingering.push_back(std::move(stranger));
      }
      ++rounds;
    }
  });
  expect_saves_commit(2, 12);
  while (rounds < 20) std::this_thread::yield();
  stop = true;
  strangers.join();
  expect_saves_commit(13, 13);
}

TEST_F(LiveJob, EndsWithAClientThatAnnouncesMoreThanItMayAndWithNobodyElse) {
  Stranger huge = Stranger::at_socket(socket_of("a")), empty = Stranger::at_socket(socket_of("a"));
  ASSERT_TRUE(huge.connected() && empty.connected());
  const Bytes all_ones(4, std::byte{0xff}), zeros(4, std::byte{0});
  huge.send(all_ones);
  empty.send(zeros);
  EXPECT_TRUE(huge.wait_closed());
  EXPECT_TRUE(empty.wait_closed());
  expect_saves_commit(1, 2);
}

// Regression: UCX listened on every interface, and aborted the node for any peer that spoke its protocol.
TEST(Strangers, FindNothingOpenBeyondTheLoopbackOfAJobOnOneHostAndAbortNothing) {
  Scratch scratch;
  NodeChild node(scratch.host("a"), {"root=" + scratch.root(), "job=job-1", "world=1"});
  ASSERT_THAT(node.first_line(), StartsWith("ready"));
  const std::set<std::string> places = listening_places(node.pid());
  EXPECT_FALSE(places.empty());
  Bytes words_of_ucx(72, std::byte{0xff});
  store_le64(words_of_ucx.data(), 0xCAFEBABE12345678);
  for (const std::string& place : places) {
    EXPECT_THAT(place, StartsWith(kLoopbackPlace));
    Stranger stranger = Stranger::at_address("127.0.0.1:" + std::to_string(port_of_place(place)));
    ASSERT_TRUE(stranger.connected());
    stranger.send(words_of_ucx);
    EXPECT_TRUE(stranger.wait_closed());
  }
  Trainer trainer(scratch, "a", 0, 1);
  ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
  auto saved = trainer.save(1);
  ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
}

TEST_F(LiveJob, TellsStrangersNothing) {
  transport::Identity stranger = member();
  stranger.job_id = "guess";
  stranger.generation = 0;
  const Status why = Stranger::at_address(address_).say_hello(stranger, schema::SCHEMA_VERSION, "no token");
  EXPECT_EQ(why.code(), Code::refused) << why.to_string();
  EXPECT_THAT(why.message(), HasSubstr("another token"));
  EXPECT_THAT(why.message(), Not(HasSubstr("job-1")));
  expect_saves_commit(1, 1);
}

// The next incarnation of the job has started at the same address, and a node of the previous one lives on.
// Its trainer is notified within the node's own deadline, and nothing of that node reaches the new
// generation.
TEST(ZombieNode, OfAPastGenerationIsRefusedAndHarmsNobody) {
  Scratch scratch;
  auto past = std::make_unique<NodeChild>(
      scratch.host("a"), std::vector<std::string>{"root=" + scratch.root(), "job=job-1", "world=1"});
  std::string address = past->address();
  NodeChild zombie(scratch.host("b"), {"root=" + scratch.root(), "job=job-1", "world=1", "name=b",
                                       "coordinator=" + address, "node_deadline_ms=1500"});
  ASSERT_THAT(zombie.first_line(), StartsWith("ready"));
  Trainer old_trainer(scratch, "b", 0, 1, "job-1");
  auto first = old_trainer.save(1);
  ASSERT_TRUE(first.ok() && first->wait_committed(kPatience).ok());
  past->signal(SIGKILL);
  past->wait();
  NodeChild present(scratch.host("a"),
                    {"root=" + scratch.root(), "job=job-2", "world=1", "listen=" + address});
  ASSERT_EQ(present.address(), address);
  auto late = old_trainer.save(2);
  ASSERT_TRUE(late.ok());
  Trainer trainer(scratch, "a", 0, 1, "job-2");
  ASSERT_TRUE(trainer.opened.ok()) << trainer.opened.status().to_string();
  EXPECT_EQ(trainer.checkpointer().generation(), 2u);
  auto saved = trainer.save(2);
  ASSERT_TRUE(saved.ok() && saved->wait_committed(kPatience).ok());
  Status outcome = late->wait_committed(kPatience).status();
  EXPECT_EQ(outcome.code(), Code::aborted) << outcome.to_string();
  EXPECT_FALSE(decision_of(scratch.root(), {1, 2, 1})->committed());
  EXPECT_TRUE(decision_of(scratch.root(), {2, 2, 1})->committed());
  trainer.forget();
  auto loaded = trainer.checkpointer().load(trainer.state);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  EXPECT_EQ(loaded->metadata.key, (AttemptKey{2, 2, 1}));
  EXPECT_TRUE(trainer.holds(2));
}

}  // namespace
}  // namespace shoal::testing
