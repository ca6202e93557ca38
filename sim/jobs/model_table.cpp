#include "sim/jobs/model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace shoal::sim {

namespace {

Parameter rows(std::string name, Dims shape) {
  return {std::move(name), std::move(shape), Cut::rows, DType::bf16};
}
Parameter columns(std::string name, Dims shape) {
  return {std::move(name), std::move(shape), Cut::columns, DType::bf16};
}
Parameter whole(std::string name, Dims shape) {
  return {std::move(name), std::move(shape), Cut::none, DType::bf16};
}

void add_feed_forward(std::vector<Parameter>& layer, const std::string& prefix, uint64_t hidden,
                      uint64_t inner) {
  layer.push_back(rows(prefix + "w1.weight", {inner, hidden}));
  layer.push_back(columns(prefix + "w2.weight", {hidden, inner}));
  layer.push_back(rows(prefix + "w3.weight", {inner, hidden}));
}

void add_experts(std::vector<Parameter>& layer, uint64_t experts, uint64_t hidden, uint64_t inner) {
  layer.push_back({"moe.experts.w1", {experts, inner, hidden}, Cut::expert_rows, DType::bf16});
  layer.push_back({"moe.experts.w2", {experts, hidden, inner}, Cut::expert_columns, DType::bf16});
  layer.push_back({"moe.experts.w3", {experts, inner, hidden}, Cut::expert_rows, DType::bf16});
  layer.push_back(whole("moe.router.gate.weight", {experts, hidden}));
}

void add_grouped_attention(std::vector<Parameter>& layer, uint64_t hidden, uint64_t key_value) {
  layer.push_back(rows("attention.wq.weight", {hidden, hidden}));
  layer.push_back(rows("attention.wk.weight", {key_value, hidden}));
  layer.push_back(rows("attention.wv.weight", {key_value, hidden}));
  layer.push_back(columns("attention.wo.weight", {hidden, hidden}));
}

void add_norms(std::vector<Parameter>& layer, uint64_t hidden) {
  layer.push_back(whole("attention_norm.weight", {hidden}));
  layer.push_back(whole("ffn_norm.weight", {hidden}));
}

void add_ends(Model& model, uint64_t vocabulary, uint64_t hidden) {
  model.first.push_back(rows("tok_embeddings.weight", {vocabulary, hidden}));
  model.last.push_back(whole("norm.weight", {hidden}));
  model.last.push_back(rows("output.weight", {vocabulary, hidden}));
}

// GPT-2 small: 12 layers of 768, a vocabulary of 50,257, 1,024 positions, output tied to the embedding.
// https://huggingface.co/openai-community/gpt2/blob/main/config.json
Model gpt2() {
  constexpr uint64_t hidden = 768;
  Model model{"gpt2", 12, 0, {}, {}, {}, {}};
  model.first = {rows("wte.weight", {50257, hidden}), whole("wpe.weight", {1024, hidden})};
  model.last = {whole("ln_f.weight", {hidden}), whole("ln_f.bias", {hidden})};
  for (uint32_t i = 0; i < model.layers; ++i) {
    model.of_layer.push_back(
        {rows("attn.c_attn.weight", {3 * hidden, hidden}), rows("attn.c_attn.bias", {3 * hidden}),
         columns("attn.c_proj.weight", {hidden, hidden}), whole("attn.c_proj.bias", {hidden}),
         rows("mlp.c_fc.weight", {4 * hidden, hidden}), rows("mlp.c_fc.bias", {4 * hidden}),
         columns("mlp.c_proj.weight", {hidden, 4 * hidden}), whole("mlp.c_proj.bias", {hidden}),
         whole("ln_1.weight", {hidden}), whole("ln_1.bias", {hidden}), whole("ln_2.weight", {hidden}),
         whole("ln_2.bias", {hidden})});
  }
  return model;
}

// No published model: a few kilobytes, so that a campaign can keep the bytes of thousands of runs. A row of
// positions is longer than the smallest unit of a save, so ranks that share rows write several files.
Model tiny() {
  Model model{"tiny", 4, 0, {}, {}, {}, {}};
  model.first = {rows("embedding.weight", {96, 16}), whole("positions.weight", {6, 520})};
  model.last = {whole("norm.weight", {16}), whole("norm.bias", {16})};
  for (uint32_t i = 0; i < model.layers; ++i) {
    model.of_layer.push_back({rows("up.weight", {32, 16}), rows("up.bias", {32}),
                              columns("down.weight", {16, 32}), whole("norm.weight", {16})});
  }
  return model;
}

// The same with a tensor of three digest blocks, so that the pieces of few ranks have several blocks.
Model tiny_blocks() {
  Model model = tiny();
  model.name = "tiny-blocks";
  model.first.push_back(rows("blocks.weight", {1536, 1024}));
  return model;
}

// Llama 3: "The Llama 3 Herd of Models", table 3 (https://arxiv.org/abs/2407.21783): 8 key-value heads of
// 128, a vocabulary of 128,256 (https://huggingface.co/meta-llama/Llama-3.1-405B/blob/main/config.json). tp
// and pp of the largest: the paper's table 4.
Model llama3(std::string name, uint32_t layers, uint64_t hidden, uint64_t inner, const MeshShape& usual) {
  Model model{std::move(name), layers, 0, usual, {}, {}, {}};
  add_ends(model, 128256, hidden);
  for (uint32_t i = 0; i < layers; ++i) {
    auto& layer = model.of_layer.emplace_back();
    add_grouped_attention(layer, hidden, 1024);
    add_feed_forward(layer, "feed_forward.", hidden, inner);
    add_norms(layer, hidden);
  }
  return model;
}

// Mixtral 8x22B: 56 layers of 6,144, 8 key-value heads of 128, 8 experts of 16,384, a vocabulary of 32,000.
// https://huggingface.co/mistralai/Mixtral-8x22B-v0.1/blob/main/config.json
Model mixtral_8x22b() {
  constexpr uint64_t hidden = 6144;
  Model model{"mixtral-8x22b", 56, 8, {1, 1, 1, 4, 4, 8}, {}, {}, {}};
  add_ends(model, 32000, hidden);
  for (uint32_t i = 0; i < model.layers; ++i) {
    auto& layer = model.of_layer.emplace_back();
    add_grouped_attention(layer, hidden, 1024);
    add_experts(layer, model.experts, hidden, 16384);
    add_norms(layer, hidden);
  }
  return model;
}

// DeepSeek-V3: 61 layers of 7,168, the first three dense with 18,432; 256 routed experts and a shared one of
// 2,048; latent attention of 128 heads with ranks 1,536 and 512; a vocabulary of 129,280. Without the layer
// for multi-token prediction. PP 16, EP 64, no TP: https://arxiv.org/abs/2412.19437, sections 3.2 and 4.2;
// https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
Model deepseek_v3() {
  constexpr uint64_t hidden = 7168, heads = 128, query_rank = 1536, key_value_rank = 512;
  constexpr uint64_t nope = 128, rope = 64, value = 128, expert_inner = 2048;
  Model model{"deepseek-v3", 61, 256, {1, 1, 1, 1, 16, 64}, {}, {}, {}};
  add_ends(model, 129280, hidden);
  for (uint32_t i = 0; i < model.layers; ++i) {
    auto& layer = model.of_layer.emplace_back();
    layer = {whole("attention.wq_a.weight", {query_rank, hidden}),
             whole("attention.q_norm.weight", {query_rank}),
             rows("attention.wq_b.weight", {heads * (nope + rope), query_rank}),
             whole("attention.wkv_a.weight", {key_value_rank + rope, hidden}),
             whole("attention.kv_norm.weight", {key_value_rank}),
             rows("attention.wkv_b.weight", {heads * (nope + value), key_value_rank}),
             columns("attention.wo.weight", {hidden, heads * value})};
    if (i < 3) {
      add_feed_forward(layer, "feed_forward.", hidden, 18432);
    } else {
      add_experts(layer, model.experts, hidden, expert_inner);
      layer.push_back(whole("moe.expert_bias", {model.experts}));
      add_feed_forward(layer, "moe.shared_experts.", hidden, expert_inner);
    }
    add_norms(layer, hidden);
  }
  return model;
}

struct Named {
  std::string_view name;
  Model (*make)();
};
constexpr Named kModels[] = {
    {"gpt2", gpt2},
    {"llama3-8b", [] { return llama3("llama3-8b", 32, 4096, 14336, {}); }},
    {"llama3-70b",
     [] {
       return llama3("llama3-70b", 80, 8192, 28672, {1, 1, 1, 8, 4, 1});
     }},
    {"llama3-405b",
     [] {
       return llama3("llama3-405b", 126, 16384, 53248, {1, 1, 1, 8, 16, 1});
     }},
    {"mixtral-8x22b", mixtral_8x22b},
    {"deepseek-v3", deepseek_v3},
    {"tiny", tiny},
    {"tiny-blocks", tiny_blocks},
};

// The ranks of a stage as meshes, and the placements of parameters on them.
class Stage {
 public:
  Stage(const MeshShape& shape, uint32_t stage, Optimizer optimizer)
      : shape_(shape),
        optimizer_(optimizer),
        base_(static_cast<Rank>(stage * (shape.ranks() / shape.pp))),
        dense_(Mesh::contiguous({shape.dp_replicate, uint64_t{shape.dp} * shape.cp, shape.tp}, base_)),
        expert_(Mesh::contiguous(
            {shape.dp_replicate, uint64_t{shape.dp} * shape.cp / shape.ep, shape.ep, shape.tp}, base_)) {}

  void add(const Parameter& parameter, const std::string& prefix) {
    const auto shard = Placement::shard;
    const auto copies = Placement::replicate();
    const uint64_t tp = shape_.tp;
    switch (parameter.cut) {
      case Cut::none:
        return add(prefix, parameter, dense_, {copies, shard(0), copies});
      case Cut::rows:
        return add(prefix, parameter, dense_, {copies, Placement::strided_shard(0, tp), shard(0)});
      case Cut::columns:
        return add(prefix, parameter, dense_, {copies, shard(0), shard(1)});
      case Cut::expert_rows:
        return add(prefix, parameter, expert_, {copies, Placement::strided_shard(1, tp), shard(0), shard(1)});
      case Cut::expert_columns:
        return add(prefix, parameter, expert_, {copies, shard(1), shard(0), shard(2)});
    }
  }
  void add_object(std::string name) { builder_.add_object(std::move(name), dense_); }
  Result<LayoutPtr> build() && { return std::move(builder_).build(); }

 private:
  void add(const std::string& prefix, const Parameter& parameter, const Mesh& mesh,
           const std::vector<Placement>& placements) {
    const std::string name = prefix + parameter.name;
    // A scalar has no dimension to shard.
    const std::vector<Placement> whole(placements.size(), Placement::replicate());
    auto add_one = [&](const char* kind, DType dtype) {
      builder_.add_tensor(kind + name, dtype, parameter.shape, mesh,
                          parameter.shape.empty() ? whole : placements);
    };
    add_one("model.", parameter.dtype);
    if (optimizer_ == Optimizer::none || !is_floating(parameter.dtype)) return;
    if (dtype_bits(parameter.dtype) < 32) add_one("optimizer.master.", DType::f32);
    add_one("optimizer.exp_avg.", DType::f32);
    add_one("optimizer.exp_avg_sq.", DType::f32);
  }

  static bool is_floating(DType dtype) {
    static constexpr DType kOthers[] = {DType::boolean, DType::u8,  DType::i8,  DType::i16, DType::u16,
                                        DType::i32,     DType::u32, DType::i64, DType::u64};
    return std::find(std::begin(kOthers), std::end(kOthers), dtype) == std::end(kOthers);
  }

  const MeshShape shape_;
  const Optimizer optimizer_;
  const Rank base_;
  const Mesh dense_, expert_;
  LayoutBuilder builder_;
};

uint64_t elements_of(const std::vector<Parameter>& parameters) {
  uint64_t sum = 0;
  for (const Parameter& parameter : parameters) {
    uint64_t product = 1;
    for (uint64_t size : parameter.shape) product *= size;
    sum += product;
  }
  return sum;
}

// The sum over all tensors, each counted once.
uint64_t elements_of(const World& world) {
  std::map<std::string_view, uint64_t> tensors;
  for (const LayoutPtr& layout : world.layouts) {
    for (const LayoutEntry& entry : layout->entries()) {
      if (entry.kind == LayoutEntry::Kind::object) continue;
      tensors.emplace(entry.fqn, element_count(entry.shape).value_or(0));
    }
  }
  uint64_t sum = 0;
  for (const auto& [name, elements] : tensors) sum += elements;
  return sum;
}

}  // namespace

std::string_view optimizer_name(Optimizer optimizer) {
  return optimizer == Optimizer::adam ? "adam" : "none";
}
std::optional<Optimizer> optimizer_of_name(std::string_view name) {
  if (name == "adam") return Optimizer::adam;
  return name == "none" ? std::optional(Optimizer::none) : std::nullopt;
}

std::string to_string(const MeshShape& mesh) {
  std::string out;
  auto add = [&](const char* name, uint32_t size, bool always) {
    if (size != 1 || always) out += fmt::format("{}{}={}", out.empty() ? "" : ",", name, size);
  };
  add("dp_replicate", mesh.dp_replicate, false);
  add("dp", mesh.dp, true);
  add("cp", mesh.cp, false);
  add("tp", mesh.tp, true);
  add("pp", mesh.pp, true);
  add("ep", mesh.ep, false);
  return out;
}

uint64_t Model::parameters() const {
  if (world) return elements_of(*world);
  uint64_t sum = elements_of(first) + elements_of(last);
  for (const auto& layer : of_layer) sum += elements_of(layer);
  return sum;
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const Named& each : kModels) names.push_back(each.name);
  return names;
}

Result<Model> find_model(std::string_view name) {
  for (const Named& each : kModels) {
    if (each.name == name) return each.make();
  }
  return Status(Code::not_found,
                fmt::format("no model '{}'; known models are {}", name, fmt::join(model_names(), ", ")));
}

Status check_mesh(const Model& model, const MeshShape& mesh) {
  auto bad = [](std::string what) { return Status(Code::invalid_argument, std::move(what)); };
  if (mesh.pp > model.layers) {
    return bad(fmt::format("pp={}: {} has only {} layers", mesh.pp, model.name, model.layers));
  }
  if (mesh.ep > 1 && model.experts == 0) return bad(model.name + " has no experts: ep must be 1");
  if (mesh.ep > 1 && model.experts % mesh.ep != 0) {
    return bad(fmt::format("ep={} does not divide the {} experts of {}", mesh.ep, model.experts, model.name));
  }
  if (uint64_t{mesh.dp} * mesh.cp % mesh.ep != 0) {
    return bad(fmt::format("ep={} does not divide dp x cp = {}", mesh.ep, uint64_t{mesh.dp} * mesh.cp));
  }
  return ok_status();
}

Result<std::vector<LayoutPtr>> layouts_of_stages(const Model& model, const MeshShape& mesh) {
  if (model.world) return model.world->layouts;
  SHOAL_RETURN_IF_ERROR(check_mesh(model, mesh));
  std::vector<LayoutPtr> layouts;
  for (uint32_t number = 0; number < mesh.pp; ++number) {
    Stage stage(mesh, number, model.optimizer);
    if (number == 0) {
      for (const Parameter& parameter : model.first) stage.add(parameter, "");
      for (uint32_t i = 0; i < model.objects; ++i) stage.add_object(fmt::format("extra.{}", i));
    }
    const uint64_t begin = uint64_t{number} * model.layers / mesh.pp;
    const uint64_t end = (uint64_t{number} + 1) * model.layers / mesh.pp;
    for (uint64_t layer = begin; layer < end; ++layer) {
      const std::string prefix = model.has_whole_names ? "" : fmt::format("layers.{}.", layer);
      for (const Parameter& parameter : model.of_layer[layer]) stage.add(parameter, prefix);
    }
    if (number + 1 == mesh.pp) {
      for (const Parameter& parameter : model.last) stage.add(parameter, "");
    }
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, std::move(stage).build());
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace shoal::sim
