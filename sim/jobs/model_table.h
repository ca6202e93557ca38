// Models: the tensors of published architectures with the state of mixed-precision Adam, and the layouts that
// a mesh of ranks makes of them.
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

// Ranks as torchtitan numbers them: pp is the outermost dimension, then dp_replicate, dp, cp, tp.
struct MeshShape {
  uint32_t dp_replicate = 1;  // copies
  uint32_t dp = 1;            // parameters and their state are sharded over it (FSDP)
  uint32_t cp = 1;            // context parallel: FSDP shards over it, too
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t ep = 1;  // experts, over a part of dp x cp: it divides that

  uint64_t ranks() const { return uint64_t{dp_replicate} * dp * cp * tp * pp; }
};
std::string to_string(const MeshShape& mesh);  // "dp=64,tp=8,pp=8"

enum class Cut : uint8_t {
  none,            // over dp and cp alone
  rows,            // tp cuts dimension 0
  columns,         // tp cuts dimension 1
  expert_rows,     // [expert, ...]: ep cuts dimension 0, tp and the rest of dp dimension 1
  expert_columns,  // ep cuts dimension 0, the rest of dp dimension 1, tp dimension 2
};
struct Parameter {
  std::string name;
  Dims shape;
  Cut cut = Cut::none;
  DType dtype = DType::bf16;
};
enum class Optimizer : uint8_t {
  adam,  // two moments in f32, and a master copy in f32 of what is held in less; of floating point alone
  none,
};
std::string_view optimizer_name(Optimizer optimizer);
std::optional<Optimizer> optimizer_of_name(std::string_view name);
struct Model {
  std::string name;
  uint32_t layers = 0;
  uint32_t experts = 0;          // 0: dense
  MeshShape usual;               // tp, pp and ep that it is trained with
  std::vector<Parameter> first;  // of the first stage
  std::vector<Parameter> last;   // of the last stage
  std::vector<std::vector<Parameter>> of_layer;
  Optimizer optimizer = Optimizer::adam;
  bool has_whole_names = false;        // those of layers have no "layers.N." put before them
  std::shared_ptr<const World> world;  // where it states all layouts; then all but the name is default
  uint64_t parameters() const;
};

std::vector<std::string_view> model_names();
Result<Model> find_model(std::string_view name);  // Code::not_found names those there are

// Whether a mesh fits the model: a layer for each stage, experts that ep divides. Code::invalid_argument.
Status check_mesh(const Model& model, const MeshShape& mesh);
// What each pipeline stage holds: for every parameter its value, and its optimizer's state: in bf16 with Adam
// 14 bytes a parameter. Code::invalid_argument as check_mesh says.
Result<std::vector<LayoutPtr>> layouts_of_stages(const Model& model, const MeshShape& mesh);

}  // namespace shoal::sim
