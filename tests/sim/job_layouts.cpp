#include "tests/sim/job_layouts.h"

#include <utility>

#include "base/check.h"

namespace shoal {
namespace {

LayoutPtr stage_layout(uint32_t stage, uint32_t stages, uint32_t ranks_per_stage, uint64_t tp) {
  const Mesh mesh = Mesh::contiguous({ranks_per_stage / tp, tp}, stage * ranks_per_stage);
  LayoutBuilder builder;
  auto shard = Placement::shard;
  for (uint32_t layer = stage; layer < 4; layer += stages) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".attn.weight", DType::f32, {96, 40}, mesh,
                       {Placement::strided_shard(0, tp), shard(0)});
    builder.add_tensor(name + ".mlp.weight", DType::f32, {37, 24}, mesh, {shard(0), shard(1)});
    builder.add_tensor(name + ".norm.weight", DType::f32, {50}, mesh, {shard(0), Placement::replicate()});
    builder.add_value(name + ".mlp.weight.step", DType::f32, {}, std::nullopt, true);
  }
  builder.add_tensor("empty" + std::to_string(stage), DType::f32, {0, 4}, mesh,
                     {shard(0), Placement::replicate()});
  builder.add_rank_objects("rng");
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return *layout;
}

}  // namespace

std::vector<LayoutPtr> pipeline_job(uint32_t world_size, uint32_t stages, uint64_t tp) {
  std::vector<LayoutPtr> layouts;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    layouts.insert(layouts.end(), world_size / stages, stage_layout(stage, stages, world_size / stages, tp));
  }
  return layouts;
}

std::vector<LayoutPtr> flat_job(uint32_t world_size, Rank rng_of) {
  const Mesh mesh = Mesh::contiguous({world_size});
  LayoutBuilder builder;
  for (uint32_t layer = 0; layer < 4; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".attn.weight", DType::f32, {96, 40}, mesh, {Placement::shard(1)});
    builder.add_tensor(name + ".mlp.weight", DType::f32, {37, 24}, mesh, {Placement::shard(0)});
    builder.add_tensor(name + ".norm.weight", DType::f32, {50}, mesh, {Placement::replicate()});
    builder.add_value(name + ".mlp.weight.step", DType::f32, {}, mesh, true);
  }
  builder.add_object(rank_fqn("rng", rng_of), mesh, true);
  auto layout = std::move(builder).build();
  SHOAL_CHECK(layout.ok());
  return std::vector<LayoutPtr>(world_size, *layout);
}

}  // namespace shoal
