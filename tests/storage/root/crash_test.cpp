// The result of a crash at every primitive call of the file system: the old state or the new one, never a
// torn file under a final name. Nothing that was reported is lost.
#include <gmock/gmock.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "storage/root/run_root.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/shards/shard_samples.h"

namespace shoal::storage {
namespace {

using Fate = sim::MemoryFileSystem::Unsynced::Fate;

std::vector<sim::MemoryFileSystem::Unsynced> fates() {
  std::vector<sim::MemoryFileSystem::Unsynced> out = {{Fate::lost, 0}, {Fate::kept, 0}};
  for (uint64_t seed = 1; seed <= 12; ++seed) out.push_back({Fate::mixed, seed});
  return out;
}

// `act` returns whether the call reported success. `check` runs in a process started after the crash.
struct Scenario {
  std::function<void(Storage&)> prepare = [](Storage&) {};
  std::function<bool(Storage&)> act;
  std::function<void(Storage&, bool notified)> check;
};

// How many calls `act` makes when nothing fails.
uint64_t calls_of(const Scenario& scenario) {
  MemoryStorage memory;
  scenario.prepare(*memory);
  uint64_t before = memory.files.operations();
  EXPECT_TRUE(scenario.act(*memory));
  return memory.files.operations() - before;
}

void crash_at_every_call(const Scenario& scenario) {
  uint64_t calls = calls_of(scenario);
  ASSERT_GT(calls, 5u);
  for (uint64_t call = 0; call <= calls; ++call) {
    for (const auto& fate : fates()) {
      SCOPED_TRACE("death at call " + std::to_string(call) + ", fate " +
                   std::to_string(static_cast<int>(fate.fate)) + ", seed " + std::to_string(fate.seed));
      MemoryStorage memory;
      scenario.prepare(*memory);
      memory.files.die_at(memory.files.operations() + call);
      bool notified = scenario.act(*memory);
      EXPECT_TRUE(call < calls || notified);
      memory.files.crash(fate);
      scenario.check(*memory.opened(2), notified);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// One call fails and the process lives on; then the machine crashes.
void fail_every_call(const Scenario& scenario) {
  uint64_t calls = calls_of(scenario);
  for (int error : {EIO, ENOSPC}) {
    for (uint64_t call = 0; call < calls; ++call) {
      for (const auto& fate : fates()) {
        SCOPED_TRACE("error " + std::to_string(error) + " at call " + std::to_string(call));
        MemoryStorage memory;
        scenario.prepare(*memory);
        memory.files.fail_at(memory.files.operations() + call, error);
        bool notified = scenario.act(*memory);
        memory.files.crash(fate);
        scenario.check(*memory.opened(2), notified);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

Scenario creates() {
  static const Bytes content = random_bytes(3000, 9);
  Scenario scenario;
  scenario.act = [](Storage& storage) {
    auto created = storage.create_exclusive("a/b/c", content);
    return created.ok() && *created;
  };
  scenario.check = [](Storage& storage, bool notified) {
    auto read = storage.read("a/b/c", 10'000);
    EXPECT_TRUE(read.ok() || (!notified && read.status().code() == Code::not_found))
        << read.status().to_string();
    EXPECT_TRUE(!read.ok() || *read == content) << "a torn file under a final name";
    auto again = storage.create_exclusive("a/b/c", as_view("second"));
    ASSERT_OK(again.status());
    EXPECT_EQ(*again, !read.ok());
  };
  return scenario;
}

TEST(CrashOfCreateExclusive, LeavesAllOrNothing) {
  crash_at_every_call(creates());
}
TEST(ErrorInCreateExclusive, LeavesAllOrNothing) {
  fail_every_call(creates());
}

Scenario writes_shard() {
  Scenario scenario;
  static constexpr char path[] = "step-00000001/g1a1/rank-00000.safetensors";
  scenario.act = [](Storage& storage) {
    SampleShard sample = small_sample();
    return write_shard(storage, path, nonce_of(1), sample.pieces, sample.views()).ok();
  };
  scenario.check = [](Storage& storage, bool notified) {
    auto reader = ShardReader::open(storage, path, nullptr, nullptr);
    EXPECT_TRUE(reader.ok() || (!notified && reader.status().code() == Code::not_found))
        << reader.status().to_string();
    SampleShard sample = small_sample();
    for (size_t i = 0; reader.ok() && i < sample.pieces.size(); ++i) {
      Bytes out(sample.pieces[i].bytes);
      uint64_t first = 0;
      EXPECT_OK((*reader)->read_verified(i, 0, out.size(), out, &first));
      EXPECT_EQ(out, sample.data[i]);
    }
    EXPECT_OK(write_shard(storage, path, nonce_of(2), sample.pieces, sample.views()).status())
        << "a restarted node";
  };
  return scenario;
}

TEST(CrashOfWriteShard, LeavesAllOrNothing) {
  crash_at_every_call(writes_shard());
}
TEST(ErrorInWriteShard, LeavesAllOrNothing) {
  fail_every_call(writes_shard());
}

// The coordinator commits; after the crash another process aborts. Every answer that was given stays right.
Scenario commits() {
  Scenario scenario;
  scenario.act = [](Storage& storage) {
    auto decision = publish_decision(storage, sample_manifest(kKey, 1));
    return decision.ok() && decision->committed();
  };
  scenario.check = [](Storage& storage, bool notified) {
    auto before = read_decision(storage, kKey);
    EXPECT_TRUE(before.ok() || before.status().code() == Code::not_found) << before.status().to_string();
    EXPECT_TRUE(!notified || (before.ok() && before->committed()));
    auto decided = publish_decision(storage, sample_tombstone(kKey, 2));
    ASSERT_OK(decided.status());
    EXPECT_EQ(decided->committed(), before.ok()) << "the first decision stands, whoever wrote it";
  };
  return scenario;
}

TEST(CrashOfPublishDecision, ContradictsNobodyWhoWasTold) {
  crash_at_every_call(commits());
}
TEST(ErrorInPublishDecision, ContradictsNobodyWhoWasTold) {
  fail_every_call(commits());
}

Scenario claims() {
  Scenario scenario;
  scenario.prepare = [](Storage& storage) {
    EXPECT_OK(claim_generation(storage, "old", nonce_of(1)).status());
  };
  scenario.act = [](Storage& storage) { return claim_generation(storage, "job", nonce_of(2)).ok(); };
  scenario.check = [](Storage& storage, bool notified) {
    auto listed = list_generations(storage);
    ASSERT_OK(listed.status());
    ASSERT_GE(listed->size(), 1u);
    ASSERT_LE(listed->size(), 2u);
    EXPECT_TRUE(!notified || listed->size() == 2);
    EXPECT_EQ(claim_generation(storage, "job", nonce_of(2))->generation, 2u) << "tried again, it is the same";
  };
  return scenario;
}

TEST(CrashOfClaimGeneration, LeavesItClaimedOrFree) {
  crash_at_every_call(claims());
}
TEST(ErrorInClaimGeneration, LeavesItClaimedOrFree) {
  fail_every_call(claims());
}

// The writer dies anywhere and the machine lives on; a reader answers from what it sees; then the power
// fails.
TEST(CrashAfterReadDecision, DoesNotUndoWhatTheReaderTold) {
  uint64_t calls = calls_of(commits());
  size_t answered = 0;
  for (uint64_t call = 0; call <= calls; ++call) {
    for (const auto& fate : fates()) {
      MemoryStorage memory;
      memory.files.die_at(memory.files.operations() + call);
      (void)publish_decision(*memory, sample_manifest(kKey, 1));
      memory.files.restart();
      auto seen = read_decision(*memory.opened(2), kKey);
      ASSERT_TRUE(seen.ok() || seen.status().code() == Code::not_found) << seen.status().to_string();
      memory.files.crash(fate);
      auto after = read_decision(*memory.opened(3), kKey);
      if (!seen.ok()) continue;
      ++answered;
      ASSERT_OK(after.status()) << "death at call " << call;
      ASSERT_EQ(after->nonce, seen->nonce);
    }
  }
  EXPECT_GT(answered, 0u);
}

// The loser of a race receives the winner's decision, which the winner may not have made durable yet.
TEST(CrashAfterLosingARace, DoesNotUndoTheWinner) {
  uint64_t calls = calls_of(commits());
  for (uint64_t call = 0; call <= calls; ++call) {
    MemoryStorage memory;
    memory.files.die_at(memory.files.operations() + call);
    (void)publish_decision(*memory, sample_manifest(kKey, 1));
    memory.files.restart();
    auto notified = publish_decision(*memory.opened(2), sample_tombstone(kKey, 2));
    ASSERT_OK(notified.status());
    memory.files.crash({Fate::lost, 0});
    auto after = read_decision(*memory.opened(3), kKey);
    ASSERT_OK(after.status()) << "death at call " << call;
    ASSERT_EQ(after->nonce, notified->nonce);
  }
}

// Another process made the folders and died before it synced their parents.
TEST(CrashAfterWritingIntoForeignFolders, DoesNotLoseThem) {
  uint64_t calls = calls_of(creates());
  for (uint64_t call = 0; call <= calls; ++call) {
    MemoryStorage memory;
    memory.files.die_at(memory.files.operations() + call);
    (void)memory->create_exclusive("a/b/c", as_view("1"));
    memory.files.restart();
    auto created = memory.opened(2)->create_exclusive("a/b/d", as_view("2"));
    ASSERT_TRUE(created.ok() && *created);
    memory.files.crash({Fate::lost, 0});
    auto read = memory.opened(3)->read("a/b/d", 10);
    ASSERT_OK(read.status()) << "death at call " << call;
  }
}

TEST(ShortWritesOfAShard, ChangeNothing) {
  SampleShard sample = small_sample();
  MemoryStorage memory;
  uint64_t from = memory.files.operations();
  for (uint64_t i = 0; i < 200; ++i) memory.files.cut_short_at(from + i, 100);
  auto written = write_shard(*memory, "x", nonce_of(1), sample.pieces, sample.views());
  ASSERT_OK(written.status());
  EXPECT_OK(ShardReader::open(*memory, "x", &written->header_digest, &written->size).status());
}

}  // namespace
}  // namespace shoal::storage
