// Models from files: the tensors of a safetensors folder, read from its headers alone, or the layouts that
// the manifest of a Shoal checkpoint states.
//
// Of a folder: the number of a layer is the first number in a tensor's name ("model.layers.7.mlp..."); what
// has none lies on the first pipeline stage where its name speaks of embeddings, else on the last. tp cuts
// matrices by rows, or by columns where the name is one of those that PyTorch's tensor parallel plans cut so;
// dimension 0 of a stack of experts counts as rows, and ep stays 1.
#pragma once

#include <string>
#include <string_view>

#include "shoal/status.h"
#include "sim/jobs/model_table.h"

namespace shoal::sim {

// Whether `name` is a path and no name of the table: it has a '/', or ends as such files do.
bool is_model_path(std::string_view name);

// From the table, or from files. Code::not_found and Code::invalid_argument name the file, and the tensor;
// so does Code::corrupt. A model without any element is refused.
Result<Model> load_model(const std::string& name, Optimizer optimizer);

}  // namespace shoal::sim
