// Models from files: the tensors of a safetensors folder, read from the headers of its files only, or the
// layouts in the manifest of a Shoal checkpoint.
//
// For a folder, the number of a layer is the first number in a tensor's name ("model.layers.7.mlp..."). A
// tensor without a number belongs to the first pipeline stage if its name mentions embeddings, and otherwise
// to the last one. tp shards matrices by rows, or by columns if PyTorch's tensor parallel plans shard that
// name by columns. Dimension 0 of a stack of experts counts as rows, and ep stays 1.
#pragma once

#include <string>
#include <string_view>

#include "shoal/status.h"
#include "sim/jobs/model_table.h"

namespace shoal::sim {

// Whether `name` is a path, not a name of the table: it contains '/', or ends as such files do.
bool is_model_path(std::string_view name);

// Returns a model of the table or from files. Code::not_found, Code::invalid_argument and Code::corrupt name
// the file and the tensor. A model without any element is an error.
Result<Model> load_model(const std::string& name, Optimizer optimizer);

}  // namespace shoal::sim
