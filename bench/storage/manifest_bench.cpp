// The size of the manifest of a large job: llama3-405b with Adam's state on TP x PP x DP ranks, with
// parameters and state sharded over DP as in FSDP. bench/peers/dcp_metadata.py makes what PyTorch's DCP
// writes for the same job.
//
//   manifest_bench [TP PP DP]      default: 8 16 128, which are 16,384 ranks
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "shoal/save_plan.h"
#include "storage/decisions/decision.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {
namespace {

// Meta's published shape of Llama 3.1 405B.
constexpr uint32_t kLayers = 126;
constexpr uint64_t kHidden = 16384, kKeyValue = 1024, kFeedForward = 53248, kVocabulary = 128256;

struct Job {
  uint32_t tp = 8, pp = 16, dp = 128;
  uint32_t ranks() const { return tp * pp * dp; }
};

enum class Cut { rows, columns, none };  // sharding over TP

// A parameter and its two moments of Adam.
void add(LayoutBuilder& builder, const std::string& name, const Dims& shape, Cut cut, const Mesh& mesh,
         uint32_t tp) {
  const std::vector<Placement> placements =
      cut == Cut::rows      ? std::vector{Placement::strided_shard(0, tp), Placement::shard(0)}
      : cut == Cut::columns ? std::vector{Placement::shard(0), Placement::shard(1)}
                            : std::vector{Placement::shard(0), Placement::replicate()};
  builder.add_tensor("model." + name, DType::bf16, shape, mesh, placements);
  builder.add_tensor("optimizer.exp_avg." + name, DType::f32, shape, mesh, placements);
  builder.add_tensor("optimizer.exp_avg_sq." + name, DType::f32, shape, mesh, placements);
}

LayoutPtr stage_layout(const Job& job, uint32_t stage) {
  const uint32_t each = (kLayers + job.pp - 1) / job.pp;
  const Mesh mesh = Mesh::contiguous({job.dp, job.tp}, stage * job.dp * job.tp);
  LayoutBuilder builder;
  for (uint32_t layer = stage * each; layer < std::min(kLayers, (stage + 1) * each); ++layer) {
    const std::string name = fmt::format("layers.{}.", layer);
    add(builder, name + "attention.wq.weight", {kHidden, kHidden}, Cut::rows, mesh, job.tp);
    add(builder, name + "attention.wk.weight", {kKeyValue, kHidden}, Cut::rows, mesh, job.tp);
    add(builder, name + "attention.wv.weight", {kKeyValue, kHidden}, Cut::rows, mesh, job.tp);
    add(builder, name + "attention.wo.weight", {kHidden, kHidden}, Cut::columns, mesh, job.tp);
    add(builder, name + "feed_forward.w1.weight", {kFeedForward, kHidden}, Cut::rows, mesh, job.tp);
    add(builder, name + "feed_forward.w2.weight", {kHidden, kFeedForward}, Cut::columns, mesh, job.tp);
    add(builder, name + "feed_forward.w3.weight", {kFeedForward, kHidden}, Cut::rows, mesh, job.tp);
    add(builder, name + "attention_norm.weight", {kHidden}, Cut::none, mesh, job.tp);
    add(builder, name + "ffn_norm.weight", {kHidden}, Cut::none, mesh, job.tp);
  }
  if (stage == 0) add(builder, "tok_embeddings.weight", {kVocabulary, kHidden}, Cut::rows, mesh, job.tp);
  if (stage + 1 == job.pp) {
    add(builder, "norm.weight", {kHidden}, Cut::none, mesh, job.tp);
    add(builder, "output.weight", {kVocabulary, kHidden}, Cut::rows, mesh, job.tp);
  }
  return std::move(builder).build().value();
}

Result<Manifest> manifest_of(const Job& job) {
  std::vector<LayoutPtr> layouts;
  std::vector<LayoutId> ids;
  std::vector<uint32_t> hosts;
  for (uint32_t stage = 0; stage < job.pp; ++stage) layouts.push_back(stage_layout(job, stage));
  for (Rank rank = 0; rank < job.ranks(); ++rank) {
    ids.push_back(layouts[rank / (job.dp * job.tp)]->id());
    hosts.push_back(rank / 8);
  }
  SHOAL_ASSIGN_OR_RETURN(Roster roster, Roster::make(ids, hosts));
  auto world = std::make_shared<World>(World{std::move(roster), layouts});
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  SHOAL_RETURN_IF_ERROR(check_coverage(*world, {}));
  Manifest manifest;
  manifest.world = world;
  for (Rank rank = 0; rank < job.ranks(); ++rank) {
    // Equal in each stage, except that norms go to one of the ranks that hold them: planned rank by rank.
    SHOAL_ASSIGN_OR_RETURN(SavePlan plan, plan_save(*world, rank, {}));
    for (uint32_t file = 0; file < plan.files; ++file) {
      // Any value with the size of a digest.
      const Hash128 digest = xxh3_128(as_view(shard_file_name(rank, file)));
      const uint64_t bytes = file == 0 ? plan.tensor_bytes : 4096;
      manifest.files.push_back({shard_file_name(rank, file), bytes + 4096, digest, rank, file});
    }
    manifest.payload_bytes += plan.tensor_bytes;
  }
  return manifest;
}

}  // namespace
}  // namespace shoal::storage

int main(int argc, char** argv) {
  shoal::storage::Job job;
  if (argc == 4) {
    job.tp = static_cast<uint32_t>(std::atoi(argv[1]));
    job.pp = static_cast<uint32_t>(std::atoi(argv[2]));
    job.dp = static_cast<uint32_t>(std::atoi(argv[3]));
  }
  auto manifest = shoal::storage::manifest_of(job);
  if (!manifest.ok()) {
    fmt::print(stderr, "manifest_bench: {}\n", manifest.status().to_string());
    return 1;
  }
  size_t tensors = 0;
  for (const auto& layout : manifest->world->layouts) tensors += layout->entries().size();
  auto bytes =
      shoal::storage::encode_decision({{1, 1, 1}, shoal::Nonce{}, shoal::RootId{}, 0, *std::move(manifest)});
  if (!bytes.ok()) {
    fmt::print(stderr, "manifest_bench: {}\n", bytes.status().to_string());
    return 1;
  }
  fmt::print("{} ranks, {} tensors: the manifest has {} bytes\n", job.ranks(), tensors, bytes->size());
}
