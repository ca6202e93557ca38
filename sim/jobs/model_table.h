// Models: the tensors of published architectures with the state of mixed-precision Adam, and the layouts of
// these tensors on a mesh of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/layout.h"
#include "shoal/roster.h"
#include "shoal/status.h"

namespace shoal::sim {

// Ranks are numbered as in torchtitan: pp is the outermost dimension, then dp_replicate, dp, cp, tp.
struct MeshShape {
  uint32_t dp_replicate = 1;  // number of replicas
  uint32_t dp = 1;            // parameters and their state are sharded over it (FSDP)
  uint32_t cp = 1;            // context parallel: FSDP shards over it, too
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t ep = 1;  // experts are sharded over a part of dp x cp; ep divides dp x cp

  uint64_t ranks() const { return uint64_t{dp_replicate} * dp * cp * tp * pp; }
};
std::string to_string(const MeshShape& mesh);  // "dp=64,tp=8,pp=8"

enum class Cut : uint8_t {
  none,            // sharded over dp and cp only
  rows,            // tp shards dimension 0
  columns,         // tp shards dimension 1
  expert_rows,     // [expert, ...]: ep shards dimension 0, tp and the rest of dp dimension 1
  expert_columns,  // ep shards dimension 0, the rest of dp dimension 1, tp dimension 2
};
struct Parameter {
  std::string name;
  Dims shape;
  Cut cut = Cut::none;
  DType dtype = DType::bf16;
};
enum class Optimizer : uint8_t {
  // Two moments in f32, and a master copy in f32 of parameters with a smaller type; for floating point only.
  adam,
  none,
};
std::string_view optimizer_name(Optimizer optimizer);
std::optional<Optimizer> optimizer_of_name(std::string_view name);
struct Model {
  std::string name;
  uint32_t layers = 0;
  uint32_t experts = 0;          // 0: dense
  MeshShape usual;               // tp, pp and ep with which it is trained
  std::vector<Parameter> first;  // parameters of the first stage
  std::vector<Parameter> last;   // parameters of the last stage
  std::vector<std::vector<Parameter>> of_layer;
  Optimizer optimizer = Optimizer::adam;
  bool has_whole_names = false;  // names of layers get no prefix "layers.N."
  // If not null, it has all layouts, and all other fields but the name are default.
  std::shared_ptr<const World> world;
  uint32_t objects = 0;  // that all ranks of the first stage hold, such as the state of a data loader
  uint64_t parameters() const;
};

std::vector<std::string_view> model_names();
Result<Model> find_model(std::string_view name);  // Code::not_found lists the existing names

// Checks that a mesh fits the model: at least one layer per stage, and a number of experts that ep divides.
// Code::invalid_argument.
Status check_mesh(const Model& model, const MeshShape& mesh);
// The layout of each pipeline stage: the value of each parameter and its optimizer state. With bf16 and Adam
// these are 14 bytes per parameter. Code::invalid_argument as for check_mesh.
Result<std::vector<LayoutPtr>> layouts_of_stages(const Model& model, const MeshShape& mesh);

}  // namespace shoal::sim
