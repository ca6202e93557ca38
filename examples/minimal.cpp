// The least a trainer does: go on from the latest checkpoint or start afresh, train, save.
// Run it on two ranks: shoal launch -n 2 --root /tmp/run --create -- ./minimal
#include <cstdio>
#include <vector>

#include "client/checkpointer.h"

int main() {
  using namespace shoal;
  auto options = CheckpointerOptions::from_environment();  // SHOAL_ROOT, RANK, WORLD_SIZE, SHOAL_JOB_ID
  if (!options.ok()) return std::fprintf(stderr, "%s\n", options.status().to_string().c_str()), 2;
  auto checkpointer = Checkpointer::open(*options);  // finds the node on this host, or starts one
  if (!checkpointer.ok()) return std::fprintf(stderr, "%s\n", checkpointer.status().to_string().c_str()), 1;

  // A tensor of 1000 rows over all ranks, as FSDP shards it: rank r holds rows [r * ceil, (r + 1) * ceil).
  const Mesh mesh = Mesh::contiguous({options->world_size});
  const ShardedTensor rows{DType::f32, {1000, 64}, mesh, {Placement::shard(0)}};
  std::vector<float> weight(rows.local_elements(options->rank).value(), 0.5f);

  StateDict state;
  state.add_tensor("weight", rows, weight.data());
  state.add_value("learning_rate", 0.1, mesh);  // the state keeps it

  auto loaded = (*checkpointer)->load_or_start(state);  // the latest; any number of ranks, any sharding
  if (!loaded.ok()) return std::fprintf(stderr, "%s\n", loaded.status().to_string().c_str()), 1;
  uint64_t step = 0;
  if (*loaded) {  // else the root has no checkpoint, and the run starts afresh
    step = (*loaded)->metadata.key.step;
    std::printf("rank %u: step %llu is back: weight[0] = %g, learning rate %g\n", options->rank,
                static_cast<unsigned long long>(step), static_cast<double>(weight[0]),
                state.value<double>("learning_rate").value());
  }
  for (float& value : weight) value += 1;  // training

  auto saved = (*checkpointer)->save(++step, state);  // returns when the bytes are in shared memory
  if (!saved.ok()) return std::fprintf(stderr, "%s\n", saved.status().to_string().c_str()), 1;
  for (float& value : weight) value += 1;  // training goes on while the node writes

  auto committed = saved->wait_committed();  // now it exists: durable, digested, complete
  if (!committed.ok()) return std::fprintf(stderr, "%s\n", committed.status().to_string().c_str()), 1;
  std::printf("rank %u: step %llu is committed\n", options->rank, static_cast<unsigned long long>(step));
  return 0;
}
