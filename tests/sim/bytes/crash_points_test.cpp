// A whole job on two hosts, with production roles and operations over a file system in memory. It crashes or
// fails at every call to that file system. What was reported lasts, what is not committed is invisible, an
// attempt has one decision, and the next save commits or aborts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <set>

#include "storage/decisions/completion.h"
#include "storage/root/run_root.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {
namespace {

using Fate = MemoryFileSystem::Unsynced::Fate;

constexpr actors::TimeNs kShortly = 1000 * actors::kMillisecond;
constexpr actors::TimeNs kQuiet =
    4'000 * actors::kMillisecond;  // shorter than what recurs: a pin's renewal, a look at the epoch
constexpr actors::TimeNs kBeyondAllDeadlines = 330'000 * actors::kMillisecond;
constexpr uint64_t kFirstStep = 1, kAbortedStep = 2, kLastStep = 3, kNextStep = 10;

actors::NodeConfig patient_facts_of(uint32_t generation) {
  actors::NodeConfig config = facts_of(generation);
  config.timeouts.epoch_check_ms = 100'000;  // each look is a call more to fail
  return config;
}

// Two hosts with two ranks each. The first save goes out before any roster is known; in the second a trainer
// ends before it staged, so that it aborts and is swept; the third commits again.
class Scene {
 public:
  explicit Scene(std::vector<LayoutPtr> layouts = pipeline_job(4, 1, 2))
      : layouts_(std::move(layouts)), job_(VirtualJob::start(host, patient_facts_of(1), 2, 4, layouts_)) {}

  // Each save is given `duration`, in which everything happens that will, deadlines included.
  void play(actors::TimeNs duration) {
    for (auto& trainer : job_.trainers) trainer->declare();
    for (auto& trainer : job_.trainers) trainer->save(kFirstStep);
    run(duration);
    for (Rank rank : {0u, 1u, 2u}) job_.trainers[rank]->save(kAbortedStep);
    job_.trainers[3]->end();
    run(duration);
    job_.trainers.push_back(std::make_unique<VirtualTrainer>(host, 1, 3, 4, layouts_[3]));
    job_.trainers.back()->declare();
    run(kShortly);
    for (size_t rank : {0, 1, 2, 4}) job_.trainers[rank]->save(kLastStep);
    run(duration);
  }

  // The outcome that ranks received for an attempt. Fails if two ranks received different ones.
  std::map<AttemptKey, bool> notified() const {
    std::map<AttemptKey, bool> out;
    for (const auto& trainer : job_.trainers) {
      for (const auto& [attempt, decided] : trainer->decided()) {
        const AttemptKey key{1, attempt.first, attempt.second};
        const bool committed = decided.outcome.ok();
        // The answer says that nothing is decided.
        if (!committed && decided.outcome.code() != Code::aborted) continue;
        auto [found, is_new] = out.emplace(key, committed);
        EXPECT_EQ(found->second, committed) << "ranks were told different things about " << to_string(key);
      }
    }
    return out;
  }
  const VirtualTrainer& trainer(size_t index) const { return *job_.trainers[index]; }

  VirtualHost host;

 private:
  void run(actors::TimeNs duration) {
    host.run_for(duration);
    for (auto& trainer : job_.trainers) trainer->listen();
  }

  const std::vector<LayoutPtr> layouts_;
  VirtualJob job_;
};

// The decisions in the root, by attempt.
std::map<AttemptKey, storage::Decision> standing(VirtualHost& host) {
  auto listed = storage::list_attempts(host.storage());
  EXPECT_TRUE(listed.ok()) << listed.status().to_string();
  EXPECT_TRUE(listed->damaged.empty()) << listed->damaged[0].second.to_string();
  std::map<AttemptKey, storage::Decision> out;
  for (const storage::AttemptInfo& attempt : listed->attempts) {
    auto decision = storage::read_decision(host.storage(), attempt.key);
    EXPECT_EQ(decision.ok(), attempt.state != storage::AttemptInfo::State::undecided)
        << decision.status().to_string();
    if (decision.ok()) out.emplace(attempt.key, *decision);
  }
  return out;
}

// Ranks of the next generation, which get all attempts decided, load and save.
class NextGeneration {
 public:
  explicit NextGeneration(VirtualHost& host, std::vector<LayoutPtr> layouts = flat_job(2, 3))
      : host_(host), job_(VirtualJob::start(host, patient_facts_of(2), 1, 2, std::move(layouts))) {}

  void expect_sound(const std::map<AttemptKey, bool>& notified) {
    const std::map<AttemptKey, storage::Decision> before = standing(host_);
    for (const auto& [key, committed] : notified) {
      ASSERT_TRUE(before.contains(key)) << to_string(key) << " was told, and its decision is gone";
      EXPECT_EQ(before.at(key).committed(), committed) << to_string(key);
    }
    for (auto& trainer : job_.trainers) trainer->load(std::nullopt);
    job_.run(kQuiet);
    const std::map<AttemptKey, storage::Decision> after = standing(host_);
    for (const auto& [key, decision] : before) {
      EXPECT_EQ(after.at(key).nonce, decision.nonce) << "the first decision stands: " << to_string(key);
    }
    std::optional<AttemptKey> latest;
    for (const auto& [key, decision] : after) {
      if (decision.committed()) latest = key;
    }
    for (auto& trainer : job_.trainers) {
      ASSERT_TRUE(trainer->found().has_value());
      ASSERT_EQ(trainer->found()->outcome.ok(), latest.has_value()) << trainer->found()->outcome.to_string();
      if (!latest) continue;
      EXPECT_EQ(trainer->found()->checkpoint.key, *latest);
      ASSERT_TRUE(trainer->load_done().has_value());
      EXPECT_EQ(trainer->load_done()->outcome, ok_status());
      EXPECT_EQ(trainer->check_loaded(latest->step), "");
    }
    const storage::AttemptList listed = storage::list_attempts(host_.storage()).value();
    for (const storage::AttemptInfo& attempt : listed.attempts) {
      EXPECT_NE(attempt.state, storage::AttemptInfo::State::undecided) << to_string(attempt.key);
      EXPECT_TRUE(attempt.state == storage::AttemptInfo::State::committed || attempt.leftover_files == 0)
          << to_string(attempt.key) << " is not swept";
    }
    expect_next_save_commits();
  }
  // What expect_sound has loaded as latest.
  AttemptKey loaded() const {
    const auto& found = job_.trainers.front()->found();
    return found.has_value() ? found->checkpoint.key : AttemptKey{};
  }

 private:
  void expect_next_save_commits() {
    for (auto& trainer : job_.trainers) trainer->declare();
    for (auto& trainer : job_.trainers) trainer->save(kNextStep);
    job_.run(kQuiet);
    for (auto& trainer : job_.trainers) {
      ASSERT_TRUE(trainer->decided().contains({kNextStep, 1}));
      EXPECT_EQ(trainer->decided().at({kNextStep, 1}).outcome, ok_status());
    }
  }

  VirtualHost& host_;
  VirtualJob job_;
};

// Where a run of the scene that meets no failure changes something, counted from its first call; and how many
// calls it makes, each save given `duration`.
struct Calls {
  std::vector<uint64_t> changes;
  uint64_t count = 0;

  explicit Calls(actors::TimeNs duration, const std::vector<LayoutPtr>& layouts = pipeline_job(4, 1, 2)) {
    Scene scene(layouts);
    const uint64_t begin = scene.host.file_system().operations();
    scene.play(duration);
    count = scene.host.file_system().operations() - begin;
    for (uint64_t change : scene.host.file_system().changes()) {
      if (change >= begin) changes.push_back(change - begin);
    }
    const auto notified = scene.notified();
    EXPECT_TRUE(notified.at({1, kFirstStep, 1}) && !notified.at({1, kAbortedStep, 1}) &&
                notified.at({1, kLastStep, 1}));
  }
};

std::string line_of(const std::map<AttemptKey, bool>& notified) {
  std::string line;
  for (const auto& [key, committed] : notified) line += to_string(key) + (committed ? " yes " : " no ");
  return line;
}

// A crash between two changing calls has the same result wherever it happens, so equal results are checked
// once.
void crash_whole_job(const std::vector<LayoutPtr>& layouts, const std::vector<LayoutPtr>& next) {
  const Calls calls(kShortly, layouts);
  std::vector<uint64_t> points = calls.changes;
  points.push_back(calls.count);
  std::set<std::string> seen;
  size_t looked_at = 0, with_commit = 0, with_nothing = 0;
  for (uint64_t point : points) {
    for (const MemoryFileSystem::Unsynced& fate : std::vector<MemoryFileSystem::Unsynced>{
             {Fate::lost, 0}, {Fate::kept, 0}, {Fate::mixed, 2 * point}, {Fate::mixed, 2 * point + 1}}) {
      SCOPED_TRACE("power fails at call " + std::to_string(point) + ", fate " +
                   std::to_string(static_cast<int>(fate.fate)) + ", seed " + std::to_string(fate.seed));
      Scene scene(layouts);
      MemoryFileSystem& files = scene.host.file_system();
      const uint64_t dies_at = files.operations() + point;
      files.die_at(dies_at);
      scene.host.on_operation([&](size_t, const actors::Operation&) {
        if (files.operations() <= dies_at) return;
        for (size_t node : {0, 1}) scene.host.kill_node(node);
      });
      scene.play(kShortly);
      const auto notified = scene.notified();
      scene.host.on_operation(nullptr);
      scene.host.crash(fate);
      with_nothing += notified.empty();
      with_commit += notified.contains({1, kLastStep, 1});
      if (!seen.insert(files.fingerprint().to_hex() + line_of(notified)).second) continue;
      ++looked_at;
      NextGeneration(scene.host, next).expect_sound(notified);
      if (::testing::Test::HasFailure()) return;
    }
  }
  std::printf("%llu calls, %zu crash points, %zu different remains\n",
              static_cast<unsigned long long>(calls.count), points.size(), looked_at);
  EXPECT_GT(points.size(), 100u);
  EXPECT_GT(looked_at, 80u);
  EXPECT_GT(with_commit, 0u);
  EXPECT_GT(with_nothing, 0u);
}

TEST(CrashOfAWholeJob, AtEveryCallLosesNothingThatWasToldAndCommitsTheNextSave) {
  crash_whole_job(pipeline_job(4, 1, 2), flat_job(2, 3));
}
TEST(CrashOfAWholeJob, MostOfWhoseRanksWriteNothingLosesNothingEither) {
  crash_whole_job(replicated_job(4), replicated_job(2));
}

// A save all of whose shards are in the root is never aborted. Whether an abort has committed it instead.
bool expect_not_thrown_away(storage::Storage& storage, const actors::Operation& operation) {
  const auto* publish = std::get_if<actors::operation::PublishDecision>(&operation);
  if (publish == nullptr || !std::holds_alternative<storage::Tombstone>(*publish->body)) return false;
  auto existing = storage::read_decision(storage, publish->key);
  if (!existing.ok()) return false;
  EXPECT_TRUE(existing->committed() || !storage::prove_complete(storage, publish->key).ok())
      << to_string(publish->key) << ": " << existing->tombstone().cause;
  return existing->committed();
}

// One node dies during an operation. The other host lives on, and its ranks receive the outcome of every
// attempt within the deadlines, whichever node died.
void crash_node(const std::vector<LayoutPtr>& layouts, const std::vector<LayoutPtr>& next) {
  const Calls calls(kBeyondAllDeadlines, layouts);
  size_t coordinators = 0, others = 0, completed = 0;
  for (uint64_t point : calls.changes) {
    SCOPED_TRACE("a node dies at call " + std::to_string(point));
    Scene scene(layouts);
    MemoryFileSystem& files = scene.host.file_system();
    const uint64_t dies_at = files.operations() + point;
    files.die_at(dies_at);
    std::optional<size_t> dead;
    scene.host.on_operation([&](size_t node, const actors::Operation& operation) {
      if (dead) completed += expect_not_thrown_away(scene.host.storage(), operation);
      if (dead || files.operations() <= dies_at) return;
      files.stop_failing();
      scene.host.kill_node(node);
      dead = node;
    });
    scene.play(kBeyondAllDeadlines);
    ASSERT_TRUE(dead.has_value());
    (*dead == 0 ? coordinators : others) += 1;
    const size_t survivor = *dead == 0 ? 2 : 0;  // the first rank of the other host
    for (uint64_t step : {kFirstStep, kAbortedStep, kLastStep}) {
      EXPECT_TRUE(scene.trainer(survivor).decided().contains({step, 1})) << "step " << step;
    }
    const auto notified = scene.notified();
    for (size_t node : {0, 1}) scene.host.kill_node(node);
    NextGeneration(scene.host, next).expect_sound(notified);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("%zu deaths of the coordinator's node, %zu of the other; %zu saves completed\n", coordinators,
              others, completed);
  EXPECT_GT(completed, 0u);
  EXPECT_GT(coordinators, 50u);
  EXPECT_GT(others, 20u);
}

TEST(CrashOfANode, AtEveryCallLeavesTheOtherHostADecisionOfEveryAttempt) {
  crash_node(pipeline_job(4, 1, 2), flat_job(2, 3));
}
TEST(CrashOfANode, OfAJobMostOfWhoseRanksWriteNothingLeavesADecisionToo) {
  crash_node(replicated_job(4), replicated_job(2));
}

constexpr AttemptKey kLastAttempt{1, kLastStep, 1};

// Regression: the next job put a tombstone over such a save, deleted its shards and loaded an older step.
TEST(DeathOfAllNodes, AfterTheLastShardLosesNoSave) {
  auto writes_last_step = [](const actors::Operation& operation) {
    const auto* write = std::get_if<actors::operation::WriteShard>(&operation);
    return write != nullptr && write->key == kLastAttempt;
  };
  auto checks_last_step = [](const actors::Operation& operation) {
    const auto* check = std::get_if<actors::operation::CheckFiles>(&operation);
    return check != nullptr && check->key == kLastAttempt;
  };
  size_t writes = 0;
  {
    Scene scene;
    scene.host.on_operation(
        [&](size_t, const actors::Operation& operation) { writes += writes_last_step(operation); });
    scene.play(kShortly);
  }
  ASSERT_GE(writes, 4u);
  for (bool has_been_reported : {false, true}) {
    for (Fate fate : {Fate::lost, Fate::kept}) {
      SCOPED_TRACE(has_been_reported ? "the coordinator was about to commit" : "nobody has reported");
      Scene scene;
      size_t left = writes;
      bool has_ended = false;
      scene.host.on_operation([&](size_t, const actors::Operation& operation) {
        left -= writes_last_step(operation);
        if (has_ended || (has_been_reported ? !checks_last_step(operation) : left != 0)) return;
        has_ended = true;
        for (size_t node : {0, 1}) scene.host.kill_node(node);
      });
      scene.play(kShortly);
      ASSERT_TRUE(has_ended);
      scene.host.on_operation(nullptr);
      const auto notified = scene.notified();
      ASSERT_FALSE(notified.contains(kLastAttempt));
      scene.host.crash({fate, 0});
      NextGeneration next(scene.host);
      next.expect_sound(notified);
      EXPECT_EQ(next.loaded(), kLastAttempt);
    }
  }
}

// The manifest of the newest checkpoint is removed, with and without a catalog that has it.
TEST(ALostManifest, OfTheNewestCheckpointIsWrittenAgainByTheNextJob) {
  for (bool has_catalog : {false, true}) {
    Scene scene;
    scene.play(kShortly);
    auto notified = scene.notified();
    ASSERT_TRUE(notified.at(kLastAttempt));
    notified.erase(kLastAttempt);
    for (size_t node : {0, 1}) scene.host.kill_node(node);
    const storage::Decision before = storage::read_decision(scene.host.storage(), kLastAttempt).value();
    ASSERT_TRUE(scene.host.storage().remove(storage::decision_path(kLastAttempt)).ok());
    if (!has_catalog) scene.host.crash({Fate::kept, 0});
    NextGeneration next(scene.host);
    next.expect_sound(notified);
    EXPECT_EQ(next.loaded(), kLastAttempt);
    storage::Decision after = storage::read_decision(scene.host.storage(), kLastAttempt).value();
    after.nonce = before.nonce;
    after.unix_time_ns = before.unix_time_ns;
    EXPECT_EQ(storage::encode_decision(after).value(), storage::encode_decision(before).value());
  }
}

// Regression: the next job aborted such a save, because a rank that writes nothing left no trace.
TEST(ALostManifest, OfAJobMostOfWhoseRanksWriteNothingIsWrittenAgain) {
  Scene scene(replicated_job(4));
  scene.play(kShortly);
  auto notified = scene.notified();
  ASSERT_TRUE(notified.at(kLastAttempt));
  notified.erase(kLastAttempt);
  for (size_t node : {0, 1}) scene.host.kill_node(node);
  ASSERT_TRUE(scene.host.storage().remove(storage::decision_path(kLastAttempt)).ok());
  scene.host.crash({Fate::lost, 0});
  NextGeneration next(scene.host, replicated_job(2));
  next.expect_sound(notified);
  EXPECT_EQ(next.loaded(), kLastAttempt);
}

// One shard is gone too. Nothing proves the save, and the load chooses an older one, but not silently.
TEST(ALostManifest, WithALostShardIsAnAbortThatNamesTheShard) {
  Scene scene;
  scene.play(kShortly);
  for (size_t node : {0, 1}) scene.host.kill_node(node);
  ASSERT_TRUE(scene.host.storage().remove(storage::decision_path(kLastAttempt)).ok());
  ASSERT_TRUE(scene.host.storage().remove(storage::shard_path(kLastAttempt, 2, 0)).ok());
  scene.host.crash({Fate::kept, 0});
  NextGeneration next(scene.host);
  next.expect_sound({});
  EXPECT_EQ(next.loaded(), (AttemptKey{1, kFirstStep, 1}));
  const storage::Decision decision = storage::read_decision(scene.host.storage(), kLastAttempt).value();
  ASSERT_FALSE(decision.committed());
  EXPECT_THAT(decision.tombstone().cause, ::testing::HasSubstr("there is no shard of rank 2"));
}

// One call fails, and every process lives on. A save commits or aborts for all ranks, an abort has the error
// of the call as its cause, and after the failure the next save of the same job commits.
void fail_every_call(int error, const std::string& words,
                     const std::vector<LayoutPtr>& layouts = pipeline_job(4, 1, 2),
                     const std::vector<LayoutPtr>& next = flat_job(2, 3)) {
  const Calls calls(kBeyondAllDeadlines, layouts);
  size_t aborts = 0, named = 0;
  for (uint64_t point = 0; point < calls.count; ++point) {
    SCOPED_TRACE("call " + std::to_string(point) + " fails: " + words);
    Scene scene(layouts);
    MemoryFileSystem& files = scene.host.file_system();
    const uint64_t begin = files.operations();
    files.fail_at(begin + point, error);
    scene.play(kBeyondAllDeadlines);
    const auto notified = scene.notified();
    for (uint64_t step : {kFirstStep, kAbortedStep, kLastStep}) {
      for (size_t rank : {0, 1, 2}) {
        ASSERT_TRUE(scene.trainer(rank).decided().contains({step, 1}))
            << "step " << step << ", rank " << rank;
      }
    }
    const Status& first = scene.trainer(0).decided().at({kFirstStep, 1}).outcome;
    const Status& last = scene.trainer(0).decided().at({kLastStep, 1}).outcome;
    EXPECT_TRUE(first.ok() || last.ok())
        << "one failure, and two saves abort: " << first.to_string() << "; " << last.to_string();
    for (const Status* outcome : {&first, &last}) {
      if (outcome->ok()) continue;
      ++aborts;
      named += outcome->message().find(words) != std::string::npos;
    }
    for (size_t node : {0, 1}) scene.host.kill_node(node);
    NextGeneration(scene.host, next).expect_sound(notified);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("%llu calls failed, %zu saves aborted, %zu of them with the words of the call\n",
              static_cast<unsigned long long>(calls.count), aborts, named);
  EXPECT_GT(calls.count, 250u);
  EXPECT_GT(aborts, 20u);
  EXPECT_EQ(named, aborts);
}

TEST(AFailingCall, OfIOAbortsOneSaveByNameAtMost) {
  fail_every_call(EIO, "Input/output error");
}
TEST(AFailingCall, OfAJobMostOfWhoseRanksWriteNothingAbortsOneSaveByNameAtMost) {
  fail_every_call(EIO, "Input/output error", replicated_job(4), replicated_job(2));
}
TEST(AFailingCall, ForWantOfSpaceAbortsOneSaveByNameAtMost) {
  fail_every_call(ENOSPC, "No space left");
}

TEST(ShortWrites, AtEveryCallChangeNothing) {
  const Calls calls(kShortly);
  size_t points = 0;
  for (size_t bytes : {1, 100}) {
    Scene scene;
    MemoryFileSystem& files = scene.host.file_system();
    const uint64_t begin = files.operations();
    for (uint64_t call = 0; call < calls.count * 4; ++call)
      files.cut_short_at(begin + call, bytes + call % 7);
    scene.play(kShortly);
    points += files.operations() - begin;
    const auto notified = scene.notified();
    EXPECT_TRUE(notified.at({1, kFirstStep, 1}));
    EXPECT_TRUE(notified.at({1, kLastStep, 1}));
    for (size_t node : {0, 1}) scene.host.kill_node(node);
    files.stop_failing();
    NextGeneration(scene.host).expect_sound(notified);
  }
  EXPECT_GT(points, calls.count * 2) << "writes were cut";
}

// A disk of so many bytes; when there is room again, the next save commits.
TEST(AFullDisk, OfAnySizeAbortsByNameAndTakesTheNextSaveOnceThereIsRoom) {
  uint64_t all_bytes = 0;
  {
    Scene scene;
    const uint64_t begin = scene.host.file_system().used_bytes();
    scene.play(kShortly);
    all_bytes = scene.host.file_system().used_bytes() - begin;
  }
  size_t sizes = 0, named = 0;
  for (uint64_t room = 0; room < all_bytes; room += all_bytes / 97 + 1) {
    SCOPED_TRACE("room for " + std::to_string(room) + " bytes");
    Scene scene;
    MemoryFileSystem& files = scene.host.file_system();
    files.set_capacity(files.used_bytes() + room);
    scene.play(kBeyondAllDeadlines);
    files.stop_failing();
    for (uint64_t step : {kFirstStep, kLastStep}) {
      const auto& decided = scene.trainer(0).decided();
      ASSERT_TRUE(decided.contains({step, 1})) << "step " << step;
      const Status& outcome = decided.at({step, 1}).outcome;
      if (!outcome.ok())
        named += outcome.message().find("no space") != std::string::npos ||
                 outcome.message().find("No space") != std::string::npos;
    }
    for (size_t node : {0, 1}) scene.host.kill_node(node);
    NextGeneration(scene.host).expect_sound(scene.notified());
    ++sizes;
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("%zu disk sizes up to %llu bytes, %zu saves told that there is no space\n", sizes,
              static_cast<unsigned long long>(all_bytes), named);
  EXPECT_GT(sizes, 80u);
  EXPECT_GT(named, 80u);
}

}  // namespace
}  // namespace shoal::sim
