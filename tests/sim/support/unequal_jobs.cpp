#include "tests/sim/support/unequal_jobs.h"

#include <utility>

namespace shoal::sim {
namespace {

const Placement kReplicate = Placement::replicate();
const Placement kShard0 = Placement::shard(0);
const Placement kShard1 = Placement::shard(1);

LayoutPtr built(LayoutBuilder&& builder) {
  builder.add_rank_objects("rng");
  return std::move(builder).build().value();
}

// Rank 7 holds nothing at all.
LayoutPtr pipeline_stage(Rank rank, size_t) {
  LayoutBuilder builder;
  if (rank == 7) return std::move(builder).build().value();
  const Rank stage = rank / 2;
  const Mesh mesh = stage == 3 ? Mesh::single(6) : Mesh::contiguous({2}, 2 * stage);
  for (Rank layer = 2 * stage; layer < 2 * stage + 2; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    builder.add_tensor(name + ".weight", DType::bf16, {30 + layer, 12}, mesh, {kShard0});
    builder.add_tensor(name + ".norm", DType::f32, {700}, mesh, {kReplicate});
    builder.add_value(name + ".step", DType::i64, {}, std::nullopt, true);
  }
  if (stage == 0) builder.add_tensor("embed", DType::f32, {50, 8}, mesh, {kShard0});
  if (stage == 1) builder.add_tensor("empty", DType::f32, {0, 7}, mesh, {kShard0});
  return built(std::move(builder));
}

// Rank 4 * edp + ep: experts sharded over four, each of them on two ranks, which hold it as replicas, as
// shards, or as a slice of all experts. The router is on all; what each counted is its own.
LayoutPtr expert_parallel(Rank rank, size_t) {
  const Mesh all = Mesh::contiguous({8}), experts = Mesh::contiguous({2, 4});
  const Rank ep = rank % 4;
  const Mesh expert_data = Mesh::affine({2}, ep, {4}).value();
  LayoutBuilder builder;
  builder.add_tensor("router.weight", DType::f32, {24, 40}, all, {kReplicate});
  builder.add_tensor("attn.weight", DType::bf16, {43, 16}, all, {kShard0});
  builder.add_tensor("experts.all.weight", DType::bf16, {8, 24, 10}, experts, {kReplicate, kShard0});
  builder.add_tensor("experts.all.gate", DType::f32, {6, 5}, experts, {kShard1, kShard0});
  for (Rank expert : {2 * ep, 2 * ep + 1}) {
    const std::string name = "experts." + std::to_string(expert);
    builder.add_tensor(name + ".w1", DType::f32, {40, 24}, expert_data, {kReplicate});
    builder.add_tensor(name + ".w2", DType::f8_e4m3, {33, 9}, expert_data, {kShard0});
    builder.add_value(name + ".step", DType::i64, {}, std::nullopt, true);
  }
  builder.add_value("moe.tokens", DType::i32, {600}, all);
  return built(std::move(builder));
}

// FSDP over four, TP over two: what TP does not shard is a value of two meshes under one name.
LayoutPtr norms_under_tp(Rank rank, size_t) {
  const Mesh both = Mesh::contiguous({4, 2});
  const Mesh fsdp = Mesh::affine({4}, rank % 2, {2}).value();
  LayoutBuilder builder;
  builder.add_tensor("attn.weight", DType::f32, {40, 26}, both, {Placement::strided_shard(0, 2), kShard0});
  builder.add_tensor("norm.weight", DType::f32, {333}, fsdp, {kShard0});
  builder.add_tensor("norm.bias", DType::f32, {1000}, fsdp, {kReplicate});
  builder.add_tensor("norm.short", DType::bf16, {3, 5}, fsdp, {kShard0});  // no rows for the last rank
  builder.add_value("norm.count", DType::i64, {}, fsdp, true);
  return built(std::move(builder));
}
Copies copies_by_tp(Rank rank) {
  Copies copies;
  for (const char* name : {"norm.weight", "norm.bias", "norm.short", "norm.count"}) {
    copies[name] = std::string(name) + " of tp " + std::to_string(rank % 2);
  }
  return copies;
}

// The first and the last of four stages hold the same names, sharded alike or not; of one the first holds a
// half only.
LayoutPtr tied_embeddings(Rank rank, size_t) {
  const Rank stage = rank / 2;
  const Mesh mesh = Mesh::contiguous({2}, 2 * stage);
  LayoutBuilder builder;
  builder.add_tensor("layers." + std::to_string(stage), DType::bf16, {20, 20}, mesh, {kShard0});
  if (stage == 0 || stage == 3) {
    builder.add_tensor("embed.weight", DType::f32, {45, 8}, mesh, {kShard0});
    builder.add_tensor("head.weight", DType::f32, {33, 20}, mesh, {stage == 0 ? kShard0 : kShard1});
    builder.add_tensor("head.bias", DType::f32, {900}, mesh, {kReplicate});
    if (rank != 1) builder.add_tensor("half.weight", DType::f32, {40, 3}, mesh, {kShard0});
    if (stage == 0) builder.add_tensor("head.scale", DType::f64, {500}, mesh, {kReplicate});
    if (stage == 3) builder.add_value("head.scale", DType::f64, {500}, mesh);
  }
  return built(std::move(builder));
}
Copies copies_by_stage(Rank rank) {
  Copies copies;
  for (const char* name : {"embed.weight", "head.weight", "head.bias", "half.weight"}) {
    copies[name] = std::string(name) + " of stage " + std::to_string(rank / 2);
  }
  copies["head.scale"] = rank < 2 ? "head.scale of stage 0" : "head.scale of rank " + std::to_string(rank);
  return copies;
}

// Large enough to be cut, were they taken for replicas. Of "ema" ranks 0 to 2 declare that they are.
LayoutPtr differing_buffers(Rank rank, size_t) {
  const Mesh all = Mesh::contiguous({6});
  LayoutBuilder builder;
  builder.add_tensor("bn.weight", DType::f32, {64, 40}, all, {kReplicate});
  builder.add_value("bn.running_mean", DType::f32, {64, 40}, std::nullopt);
  builder.add_value("bn.num_batches", DType::i64, {}, std::nullopt);
  builder.add_value("bn.ema", DType::f32, {700}, std::nullopt, rank < 3);
  builder.add_tensor_boxes("bn.mask", DType::u8, {50, 40}, {{rank, {whole(Dims{50, 40})}}});
  builder.add_object("loader", all);
  return built(std::move(builder));
}
Copies copies_by_rank(Rank rank) {
  Copies copies;
  for (const char* name :
       {"bn.running_mean", "bn.num_batches", "bn.ema", "bn.mask", "loader", "moe.tokens"}) {
    copies[name] = std::string(name) + " of rank " + std::to_string(rank);
  }
  if (rank < 3) copies["bn.ema"] = "bn.ema of ranks 0-2";
  return copies;
}

// At the second save experts 1 have been used, and rank 3 has a buffer that is gone at the third, when
// experts 2 have been used too.
LayoutPtr lazy_optimizer(Rank rank, size_t save) {
  const Mesh both = Mesh::contiguous({4, 2});
  const Rank expert = rank % 4;
  const Mesh expert_data = Mesh::affine({2}, expert, {4}).value();
  const std::string name = "experts." + std::to_string(expert);
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {41, 6}, both, {kShard0, kReplicate});
  builder.add_tensor(name + ".weight", DType::bf16, {21, 30}, expert_data, {kShard0});
  if ((expert == 1 && save >= 1) || (expert == 2 && save >= 2)) {
    builder.add_tensor(name + ".exp_avg", DType::f32, {21, 30}, expert_data, {kShard0});
    builder.add_tensor(name + ".scale", DType::f32, {600}, expert_data, {kReplicate});
    builder.add_value(name + ".step", DType::i64, {}, std::nullopt, true);
  }
  if (rank == 3 && save == 1) builder.add_value("probe", DType::f32, {5}, Mesh::single(rank));
  return built(std::move(builder));
}

// Objects whose length is another at each step, and none at one of them.
LayoutPtr loader_state(Rank, size_t) {
  const Mesh all = Mesh::contiguous({5});
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::bf16, {23, 7}, all, {kShard0});
  builder.add_object("loader", all, true);
  builder.add_object("sampler", Mesh::single(2));
  builder.add_rank_objects("loader.worker");
  return built(std::move(builder));
}

// What the ranks of a host hold as a group of their own: at first by rows, then by columns, with an adapter
// beside it. The second host's change comes with the second save, the first host's with the third.
LayoutPtr joining_ranks(Rank rank, size_t save) {
  const Mesh all = Mesh::contiguous({8});
  const Rank host = rank / 4;
  const Mesh group = Mesh::contiguous({4}, host * 4);
  const std::string name = "host" + std::to_string(host);
  const bool changed = save + host >= 2;
  LayoutBuilder builder;
  builder.add_tensor("weight", DType::f32, {50, 3}, all, {kShard0});
  builder.add_tensor("norm", DType::f32, {1500}, all, {kReplicate});
  builder.add_tensor(name + ".weight", DType::bf16, {18, 22}, group, {changed ? kShard1 : kShard0});
  if (changed) builder.add_tensor(name + ".adapter", DType::f16, {9, 4}, group, {kShard0});
  return built(std::move(builder));
}

}  // namespace

std::vector<UnequalJob> unequal_jobs() {
  return {
      {"PipelineStagesWithDifferentKeys", 8, 3, {1, 2}, pipeline_stage},
      {"ExpertParallelism", 8, 2, {1, 2}, expert_parallel, copies_by_rank},
      {"NormsOnDisjointSubMeshesUnderTp", 8, 2, {1, 2}, norms_under_tp, copies_by_tp},
      {"EmbeddingsTiedOnTheFirstAndLastStage", 8, 4, {1, 2}, tied_embeddings, copies_by_stage},
      {"BuffersThatDifferBetweenReplicas", 6, 2, {1, 2}, differing_buffers, copies_by_rank},
      {"OptimizerStateCreatedLazily", 8, 2, {1, 2, 3}, lazy_optimizer},
      {"ALoaderStateWhoseLengthChanges", 5, 2, {2, 9, 0, 4}, loader_state},
      {"RanksThatJoinWithAChangedLayout",
       8,
       2,
       {1, 2, 3},
       joining_ranks,
       [](Rank) { return Copies{}; },
       true},
  };
}

}  // namespace shoal::sim
