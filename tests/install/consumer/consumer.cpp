// Saves a tensor through an installed node, loads it again, and compares every byte.
// consumer ROOT
#include <shoal/checkpointer.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <base/status.h>
#include <plan/box.h>

namespace {

constexpr uint64_t kRows = 1000, kColumns = 64;

int fail(const char* what, const shoal::Status& status) {
  std::fprintf(stderr, "consumer: %s: %s\n", what, status.to_string().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace shoal;
  if (argc != 2) return std::fprintf(stderr, "usage: consumer ROOT\n"), 2;
  CheckpointerOptions options;
  options.root = argv[1];
  options.job_id = "consumer-1";
  options.rank = 0;
  options.world_size = 1;
  auto checkpointer = Checkpointer::open(options);
  if (!checkpointer.ok()) return fail("open", checkpointer.status());

  std::vector<float> weight(kRows * kColumns);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i);
  const std::vector<float> saved = weight;
  Mesh mesh = Mesh::contiguous({1});
  StateDict state;
  state.add_tensor("weight", DType::f32, {kRows, kColumns}, mesh, {Placement::shard(0)}, weight.data());

  auto handle = (*checkpointer)->save(1, state);
  if (!handle.ok()) return fail("save", handle.status());
  std::fill(weight.begin(), weight.end(), -1.0f);
  auto committed = handle->wait_committed();
  if (!committed.ok()) return fail("commit", committed.status());
  auto loaded = (*checkpointer)->load(state);
  if (!loaded.ok()) return fail("load", loaded.status());
  if (weight != saved) return std::fprintf(stderr, "consumer: what was loaded differs\n"), 1;
  const base::Status status = base::describe(std::to_string(plan::Box{3}.width));
  if (status.text != "the project's own status: 3")
    return std::fprintf(stderr, "consumer: another base/status.h\n"), 1;
  std::printf("step %llu is back, bit for bit\n", static_cast<unsigned long long>(loaded->metadata.key.step));
  return 0;
}
