// Models from files: their layouts are those of the files, each value held once by the ranks of a mesh.
// Errors for invalid files name the file and the reason.
#include "sim/jobs/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "shoal/bytes.h"
#include "shoal/save_plan.h"
#include "sim/jobs/scenario.h"
#include "sim/simulation.h"
#include "storage/decisions/decision.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;

class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "shoal-model-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  // A safetensors file, its data a hole.
  void write_tensors(const std::string& name, const std::string& header, uint64_t data_bytes) const {
    std::byte length[8];
    store_le64(length, header.size());
    write(name, std::string(reinterpret_cast<const char*>(length), 8) + header);
    std::filesystem::resize_file(path(name), 8 + header.size() + data_bytes);
  }
  std::string refusal(const std::string& model) const {
    auto loaded = load_model(model, Optimizer::adam);
    EXPECT_FALSE(loaded.ok());
    return loaded.status().message();
  }
  std::string refusal_of_header(const std::string& header, uint64_t data_bytes = 64) const {
    write_tensors("bad.safetensors", header, data_bytes);
    const std::string why = refusal(path("bad.safetensors"));
    EXPECT_THAT(why, ::testing::StartsWith(path("bad.safetensors") + ": "));
    return why;
  }

  std::string folder_;
};

constexpr const char* kEmbedding =
    R"({"__metadata__": {"format": "pt"}, "model.embed_tokens.weight": {"dtype": "BF16", "shape": [100, 8], "data_offsets": [0, 1600]}})";

std::string layer_header(int layer) {
  const std::string name = "model.layers." + std::to_string(layer) + ".mlp.";
  return "{\"" + name + R"(up_proj.weight": {"dtype":"BF16","shape":[32,8],"data_offsets":[0,512]}, ")" +
         name + R"(down_proj.weight": {"dtype":"F32","shape":[8,32],"data_offsets":[512,1536]}, ")" + name +
         R"(steps": {"dtype":"I64","shape":[],"data_offsets":[1536,1544]}})";
}

TEST_F(ModelFiles, AreHeldOnceByTheRanksOfAMesh) {
  write_tensors("model-00001.safetensors", kEmbedding, 1600);
  for (int layer = 0; layer < 4; ++layer) {
    write_tensors("model-1000" + std::to_string(layer) + ".safetensors", layer_header(layer), 1544);
  }
  constexpr uint64_t kParameters = 800 + 4 * (256 + 256 + 1);
  for (const auto& [optimizer, bytes] :
       {std::pair(Optimizer::none, uint64_t{1600 + 4 * 1544}),
        // 12 bytes more of bf16, 8 of f32, nothing of a counter
        std::pair(Optimizer::adam, uint64_t{1600 + 4 * 1544 + 12 * (800 + 4 * 256) + 8 * 4 * 256})}) {
    Scenario scenario;
    scenario.model = folder_;
    scenario.optimizer = optimizer;
    scenario.ranks = 16;
    scenario.ranks_per_host = 4;
    scenario.mesh = "dp=4,tp=2,pp=2";
    scenario.saves = 1;
    auto model = load_model(folder_, optimizer);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ(model->layers, 4u);
    EXPECT_EQ(model->parameters(), kParameters);
    auto layouts = layouts_of_stages(*model, *resolve_mesh(scenario, *model));
    ASSERT_TRUE(layouts.ok()) << layouts.status().to_string();
    EXPECT_TRUE((*layouts)[0]->find("model.model.embed_tokens.weight"));
    EXPECT_TRUE((*layouts)[1]->find("model.model.layers.2.mlp.up_proj.weight"));
    EXPECT_EQ((*layouts)[1]->find("optimizer.master.model.layers.2.mlp.down_proj.weight"), std::nullopt);
    std::vector<LayoutId> ids;
    for (Rank rank = 0; rank < 16; ++rank) ids.push_back((*layouts)[rank / 8]->id());
    World world{Roster::make(ids, std::vector<uint32_t>(16, 0)).value(), *layouts};
    EXPECT_TRUE(validate_world(world).ok());
    EXPECT_TRUE(check_coverage(world, {}).ok());
    auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
    auto report = simulate(scenario, *profile);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_EQ(report->saves[0].bytes_staged, bytes);
    EXPECT_EQ(report->saves[0].aborted_ranks, 0u);
  }
}

TEST_F(ModelFiles, OfATableHaveNoStateWithoutAnOptimizer) {
  Scenario scenario;
  scenario.model = "gpt2";
  scenario.ranks = 8;
  ASSERT_TRUE(set_value(scenario, "optimizer", "none").ok());
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  auto report = simulate(scenario, *profile);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->saves[0].bytes_staged, 124'439'808u * 2);
  EXPECT_THAT(set_value(scenario, "optimizer", "sgd").message(), HasSubstr("adam or none, not 'sgd'"));
}

TEST_F(ModelFiles, OfAManifestAreItsLayouts) {
  const std::vector<LayoutPtr> of_rank = pipeline_job(16, 2, 2);
  std::vector<LayoutId> ids;
  for (const LayoutPtr& layout : of_rank) ids.push_back(layout->id());
  World world{Roster::make(ids, std::vector<uint32_t>(16, 0)).value(), {}};
  for (const LayoutId& id : world.roster.layout_ids()) {
    world.layouts.push_back(
        of_rank[static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin())]);
  }
  const size_t layouts = world.layouts.size();
  storage::Manifest manifest;
  manifest.world = std::make_shared<const World>(std::move(world));
  auto bytes = storage::encode_decision({{1, 5, 1}, Nonce{}, RootId{}, 0, manifest});
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  write("manifest.shoal", std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  Scenario scenario;
  scenario.model = folder_;
  scenario.ranks = 16;
  scenario.ranks_per_host = 4;
  auto profile = find_profile("nvme", {std::string(SHOAL_SOURCE_FOLDER) + "/sim/profiles"});
  auto report = simulate(scenario, *profile);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->saves[0].aborted_ranks, 0u) << report->saves[0].cause;
  EXPECT_EQ(report->layouts, layouts);
  EXPECT_TRUE(report->layouts_are_stated);
  scenario.ranks = 8;
  EXPECT_THAT(validate_scenario(scenario).message(),
              HasSubstr(folder_ + "/manifest.shoal has 16 ranks, but the job has 8"));
  scenario.ranks = 16;
  scenario.mesh = "dp=16";
  EXPECT_THAT(validate_scenario(scenario).message(), HasSubstr("leave out the mesh"));

  bytes = storage::encode_decision(
      {{1, 5, 1}, Nonce{}, RootId{}, 0, storage::Tombstone{storage::Tombstone::Reason::aborted, "why"}});
  write("manifest.shoal", std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
  EXPECT_THAT(refusal(folder_), HasSubstr("manifest.shoal: the attempt was not committed"));
  write("manifest.shoal", "short");
  EXPECT_THAT(refusal(folder_), HasSubstr(path("manifest.shoal")));
}

TEST_F(ModelFiles, AreRefusedByFileAndReason) {
  EXPECT_THAT(refusal(path("nowhere")), HasSubstr(path("nowhere") + ": no such file or folder"));
  EXPECT_THAT(refusal(folder_), HasSubstr("it holds neither a .safetensors file nor manifest.shoal"));
  EXPECT_THAT(refusal_of_header("{}"), HasSubstr("the model is empty"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}})"),
              HasSubstr("the model is empty"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
              HasSubstr("tensor 'a'"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
              HasSubstr("its shape takes 12 bytes, but its offsets span 8"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[99],"data_offsets":[0,396]}})"),
              HasSubstr("its bytes lie outside the file"));
  EXPECT_THAT(
      refusal_of_header(R"({"a": {"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
      HasSubstr("its shape is too large"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[-3],"data_offsets":[0,0]}})"),
              HasSubstr("'a'"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F99","shape":[1],"data_offsets":[0,4]}})"),
              HasSubstr("F99"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","shape":[1]}})"),
              HasSubstr("data_offsets are missing"));
  EXPECT_THAT(refusal_of_header(R"({"a": {"dtype":"F32","colour":[1]}})"),
              HasSubstr("'colour' is not a property of a tensor"));
  EXPECT_THAT(
      refusal_of_header(R"({"layers.123456789.a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"),
      HasSubstr("layer 123456789 is too high, at most 10000"));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__": {"DCP_SHARDING_INFO": "{}"}})"),
              HasSubstr("pieces of tensors"));
  EXPECT_THAT(refusal_of_header("nonsense"), HasSubstr("bad.safetensors"));
  write("bad.safetensors", "short");
  EXPECT_THAT(refusal(path("bad.safetensors")), HasSubstr("too short for a safetensors file"));
  write("bad.safetensors", std::string(8, '\x7f') + "{}");
  EXPECT_THAT(refusal(path("bad.safetensors")),
              HasSubstr("its header is announced with 9187201950435737471 bytes"));
  write_tensors("bad.safetensors", kEmbedding, 1600);
  write_tensors("copy.safetensors", kEmbedding, 1600);
  EXPECT_THAT(refusal(folder_),
              HasSubstr("tensor 'model.embed_tokens.weight' is also in " + path("bad.safetensors")));
  EXPECT_THAT(parse_scenario("ranks = 8\nmodel = \"" + path("none/") + "\"\n", "s.toml").status().message(),
              HasSubstr("s.toml:2: " + path("none/") + ": no such file"));
  EXPECT_THAT(parse_scenario("optimizer = \"sgd\"\n", "s.toml").status().message(),
              HasSubstr("s.toml:1: optimizer must be adam or none, not 'sgd'"));
}

}  // namespace
}  // namespace shoal::sim
