// A minimal trainer: continues from the latest checkpoint or starts from the beginning, trains, saves.
// Run it on two ranks: shoal launch -n 2 --root /tmp/run --create -- ./minimal
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "shoal/checkpointer.h"

template <class T>
T must(shoal::Result<T> result) {  // returns the value; prints an error and ends the program
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().to_string().c_str()), std::exit(1);
  return std::move(result).value();
}

int main() {
  using namespace shoal;
  const CheckpointerOptions options = must(CheckpointerOptions::from_environment());  // from the launcher
  const auto checkpointer = must(Checkpointer::open(options));  // finds the node of this host, or starts one

  const Mesh mesh = Mesh::contiguous({options.world_size});
  const ShardedTensor rows{DType::f32, {1000, 64}, mesh, {Placement::shard(0)}};  // by rows, as in FSDP
  std::vector<float> weight(must(rows.local_elements(options.rank)), 0.5f);
  StateDict state;  // names, shardings, and pointers to the memory of this rank
  state.add_tensor("weight", rows, weight.data());

  const auto loaded = must(checkpointer->load_or_start(state));  // the latest, saved on any mesh
  const uint64_t step = loaded ? loaded->metadata.key.step + 1 : 1;
  for (float& value : weight) value += 1;                    // train
  SaveHandle saved = must(checkpointer->save(step, state));  // returns once the bytes are copied
  for (float& value : weight) value += 1;                    // continue to train while the node writes
  must(saved.wait_committed());                              // now the checkpoint exists and is durable
}
