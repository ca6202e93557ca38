// A custom planner: saves the weights in half precision under other names, without the optimizer. Any trainer
// can load them without a planner. Run it on any number of ranks:
//   shoal launch -n 2 --root /tmp/run --create -- ./custom_planner
#include <cstdio>
#include <cstring>
#include <vector>

#include "shoal/checkpointer.h"
#include "shoal/dcp/save_planner.h"

namespace {

using namespace shoal;

// The upper half of a float is that float, rounded toward zero to bfloat16.
void truncate(const std::byte* floats, size_t count, std::byte* halves) {
  for (size_t i = 0; i < count; ++i) std::memcpy(halves + i * 2, floats + i * 4 + 2, 2);
}

class HalfPrecisionPlanner : public dcp::DefaultSavePlanner {
 public:
  HalfPrecisionPlanner() : DefaultSavePlanner(rules()) {}

  Result<dcp::SavePlan> create_local_plan() override {
    SHOAL_ASSIGN_OR_RETURN(dcp::SavePlan plan, DefaultSavePlanner::create_local_plan());
    for (dcp::WriteItem& item : plan.items) {
      if (is_float(item)) item.tensor_data->properties.dtype = DType::bf16;
    }
    return plan;
  }

  // Shoal calls it only for items that this rank writes. The item's index identifies the state's value.
  Result<dcp::Data> resolve_data(const dcp::WriteItem& item) override {
    SHOAL_ASSIGN_OR_RETURN(dcp::Data floats, DefaultSavePlanner::resolve_data(item));
    if (!item.tensor_data || item.tensor_data->properties.dtype != DType::bf16) return floats;
    Bytes halves(floats.bytes.size() / 2);
    truncate(floats.bytes.data(), floats.bytes.size() / 4, halves.data());
    return dcp::Data::owned(std::move(halves));
  }

 private:
  static bool is_float(const dcp::WriteItem& item) {
    return item.tensor_data && item.tensor_data->properties.dtype == DType::f32;
  }
  static dcp::DefaultSavePlannerOptions rules() {
    dcp::DefaultSavePlannerOptions options;
    options.keys.drop_prefixes = {"optimizer."};
    options.keys.rename_prefixes = {{"module.", ""}};
    return options;
  }
};

int fail(const Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

}  // namespace

int main() {
  auto options = CheckpointerOptions::from_environment();
  if (!options.ok()) return fail(options.status());
  auto checkpointer = Checkpointer::open(*options);
  if (!checkpointer.ok()) return fail(checkpointer.status());

  const Mesh mesh = Mesh::contiguous({options->world_size});
  const ShardedTensor rows{DType::f32, {1000, 64}, mesh, {Placement::shard(0)}};
  const size_t elements = rows.local_elements(options->rank).value();
  const std::vector<float> weight(elements, 1.5f), moment(elements, 0.25f);
  StateDict state;
  state.add_tensor("module.weight", rows, weight.data());
  state.add_tensor("optimizer.moment", rows, moment.data());

  HalfPrecisionPlanner planner;
  auto saved = (*checkpointer)->save(1, state, planner);
  if (!saved.ok()) return fail(saved.status());
  auto committed = saved->wait_committed();
  if (!committed.ok()) return fail(committed.status());

  std::vector<uint16_t> halves(elements);
  StateDict target;
  target.add_tensor("weight", {DType::bf16, rows.shape, mesh, rows.placements}, halves.data());
  auto loaded = (*checkpointer)->load(target);
  if (!loaded.ok()) return fail(loaded.status());
  for (uint16_t half : halves) {
    if (half != 0x3fc0) return fail(Status(Code::corrupt, "an element is not 1.5"));
  }
  std::printf("rank %u: the checkpoint has %zu values; loaded %llu bytes, all correct\n", options->rank,
              loaded->metadata.state_dict_metadata.size(),
              static_cast<unsigned long long>(loaded->bytes_loaded));
  return loaded->metadata.state_dict_metadata.size() == 1 ? 0 : 1;
}
