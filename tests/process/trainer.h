// A trainer for tests: a real client with a small state. Every element is a known function of name, index and
// step.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "shoal/checkpointer.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/root/run_root.h"
#include "tests/process/node_child.h"

namespace shoal::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr std::chrono::seconds kPatience{60};
// The timeout of a client that should give up soon if no node answers. The first node must answer within it
// too, and is about ten times slower under a sanitizer.
#if defined(SHOAL_THREAD_SANITIZER) || defined(SHOAL_ADDRESS_SANITIZER)
inline constexpr std::chrono::milliseconds kShortPatience{5000};
#else
inline constexpr std::chrono::milliseconds kShortPatience{500};
#endif
inline constexpr uint64_t kRows = 64, kColumns = 33;

// Element i of "w" at a step; it does not depend on the rank.
inline float value_at(uint64_t i, uint64_t step) {
  return static_cast<float>(i) + 10'000.0f * static_cast<float>(step);
}

// One trainer: "w" sharded by rows over the world, "b" replicated, and a per-rank object.
struct Trainer {
  Trainer(const Scratch& scratch, const std::string& host, Rank rank_in, uint32_t world_in,
          const std::string& job = "job-1", const std::function<void(CheckpointerOptions&)>& change = nullptr)
      : rank(rank_in), world(world_in), rows(kRows / world_in) {
    setenv("SHOAL_RUNTIME_DIR", scratch.host(host).c_str(), 1);
    CheckpointerOptions options;
    options.root = scratch.root();
    options.rank = rank;
    options.world_size = world;
    options.job_id = job;
    options.start_node = false;
    if (change) change(options);
    opened = Checkpointer::open(options);
    w.resize(rows * kColumns);
    b.resize(kColumns);
    Mesh mesh = Mesh::contiguous({world});
    state.add_tensor("w", DType::f32, {kRows, kColumns}, mesh, {Placement::shard(0)}, w.data());
    state.add_tensor("b", DType::f32, {kColumns}, mesh, {Placement::replicate()}, b.data());
    state.add_rank_object("rng", &rng);
  }
  Checkpointer& checkpointer() { return **opened; }
  void fill(uint64_t step) {
    for (uint64_t i = 0; i < w.size(); ++i) w[i] = value_at(rank * rows * kColumns + i, step);
    for (uint64_t i = 0; i < b.size(); ++i) b[i] = -value_at(i, step);
    rng = fmt::format("rng of {} at {}", rank, step);
  }
  bool holds(uint64_t step) const {
    for (uint64_t i = 0; i < w.size(); ++i) {
      if (w[i] != value_at(rank * rows * kColumns + i, step)) return false;
    }
    for (uint64_t i = 0; i < b.size(); ++i) {
      if (b[i] != -value_at(i, step)) return false;
    }
    return rng == fmt::format("rng of {} at {}", rank, step);
  }
  void forget() {
    std::fill(w.begin(), w.end(), 0.0f);
    std::fill(b.begin(), b.end(), 0.0f);
    rng.clear();
  }
  Result<SaveHandle> save(uint64_t step) {
    fill(step);
    return checkpointer().save(step, state, attributes);
  }

  const Rank rank;
  const uint32_t world;
  const uint64_t rows;
  std::vector<float> w, b;
  std::string rng;
  StateDict state;
  SaveAttributes attributes;
  Result<std::unique_ptr<Checkpointer>> opened = Status(Code::internal, "not opened");
};

inline Result<storage::Decision> decision_of(const std::string& root, const AttemptKey& key) {
  storage::PosixFileSystem file_system;
  SHOAL_ASSIGN_OR_RETURN(auto storage, storage::LocalStorage::open(file_system, root, random_128()));
  return storage::read_decision(*storage, key);
}

// Names the parameter of tests that run in several modes: "RankLocal".
inline std::string mode_test_name(const ::testing::TestParamInfo<SaveMode>& mode) {
  switch (mode.param) {
    case SaveMode::collective_free:
      return "CollectiveFree";
    case SaveMode::rank_local:
      return "RankLocal";
    case SaveMode::collective:
      return "Collective";
  }
  return "Unknown";
}

// Calls `act` for each trainer, each on its own thread, and returns the results. Ranks need this because a
// collective save waits for the others.
template <class Actor, class Act>
auto together(std::vector<std::unique_ptr<Actor>>& trainers, Act act) {
  std::vector<std::future<decltype(act(*trainers.front()))>> acting;
  for (auto& trainer : trainers) {
    acting.push_back(std::async(std::launch::async, [&act, &trainer] { return act(*trainer); }));
  }
  std::vector<decltype(act(*trainers.front()))> answers;
  for (auto& each : acting) answers.push_back(each.get());
  return answers;
}

// Each trainer saves this step, one after the other. Waits until all saves are committed.
template <class Actor>
void save_and_commit(std::vector<std::unique_ptr<Actor>>& trainers, uint64_t step) {
  std::vector<SaveHandle> saves;
  for (auto& trainer : trainers) {
    auto saved = trainer->save(step);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    saves.push_back(*saved);
  }
  for (SaveHandle& save : saves) {
    auto committed = save.wait_committed(kPatience);
    ASSERT_TRUE(committed.ok()) << step << ": " << committed.status().to_string();
  }
}

}  // namespace shoal::testing
