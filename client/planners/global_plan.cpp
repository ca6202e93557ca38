#include "shoal/dcp/global_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace shoal::dcp {

namespace {

struct Copy {
  Rank rank = 0;
  size_t item = 0;  // in that rank's plan
};

// All copies of one chunk, ascending by rank.
struct Chunk {
  const WriteItem* item = nullptr;
  uint64_t bytes = 0;
  std::vector<Copy> copies;
};

// One value over all ranks.
struct Value {
  const WriteItem* first = nullptr;
  Rank rank = 0;                // of `first`
  std::map<Box, Chunk> chunks;  // an object has one, with a box without dimensions
};

std::string name_on(const WriteItem& item, Rank rank) {
  return item.per_rank ? rank_fqn(item.index.fqn, rank) : item.index.fqn;
}

Status check_agreement(const std::string& name, const Value& value, const WriteItem& item, Rank rank) {
  const WriteItem& first = *value.first;
  auto disagree = [&](std::string_view on) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}': ranks {} and {} disagree on its {}", name, value.rank, rank, on));
  };
  if (first.tensor_data.has_value() != item.tensor_data.has_value()) return disagree("type");
  if (!item.tensor_data) return ok_status();
  if (first.tensor_data->properties != item.tensor_data->properties) return disagree("dtype");
  return first.tensor_data->size == item.tensor_data->size ? ok_status() : disagree("shape");
}

using Values = std::map<std::string, Value>;

Result<Values> collect(const std::vector<SavePlan>& plans) {
  Values values;
  for (Rank rank = 0; rank < plans.size(); ++rank) {
    if (Status status = validate_local_plan(plans[rank]); !status.ok()) {
      return status.with_context(fmt::format("the plan of rank {}", rank));
    }
    for (size_t i = 0; i < plans[rank].items.size(); ++i) {
      const WriteItem& item = plans[rank].items[i];
      const std::string name = name_on(item, rank);
      Value& value = values[name];
      if (!value.first) value.first = &item, value.rank = rank;
      SHOAL_RETURN_IF_ERROR(check_agreement(name, value, item, rank));
      Chunk& chunk = value.chunks[item.tensor_data ? item.tensor_data->chunk : Box{}];
      if (!chunk.item) chunk.item = &item, chunk.bytes = item.chunk_bytes();
      chunk.copies.push_back({rank, i});
    }
  }
  return values;
}

Status check_values(const Values& values) {
  for (const auto& [name, value] : values) {
    if (!value.first->tensor_data) continue;
    std::vector<Box> boxes;
    for (const auto& [box, chunk] : value.chunks) boxes.push_back(box);
    if (Status status = check_tiling(boxes, value.first->tensor_data->size); !status.ok()) {
      return status.with_context(fmt::format("'{}'", name));
    }
  }
  return ok_status();
}

// Whether the checkpoint has the chunk: it has a chunk without elements only if the whole tensor has none.
bool counts(const Value& value, const Box& box) {
  return !value.first->tensor_data || !box.empty() || whole(value.first->tensor_data->size).empty();
}

// By rank and item: whether the plan keeps the item.
using Kept = std::vector<std::vector<bool>>;

Kept deal(const Values& values, const std::vector<SavePlan>& plans, GlobalDedupe dedupe) {
  Kept kept;
  for (const SavePlan& plan : plans) kept.emplace_back(plan.items.size(), false);
  std::vector<uint64_t> loads(plans.size(), 0);
  auto keep = [&](const Chunk& chunk, const Copy& copy) {
    kept[copy.rank][copy.item] = true;
    loads[copy.rank] += chunk.bytes;
  };
  std::vector<std::pair<const std::string*, const Chunk*>> shared;
  for (const auto& [name, value] : values) {
    bool has_empty = false;
    for (const auto& [box, chunk] : value.chunks) {
      if (!counts(value, box)) continue;
      if (value.first->tensor_data && box.empty() && std::exchange(has_empty, true)) continue;
      if (chunk.copies.size() == 1 || dedupe == GlobalDedupe::lowest_rank) {
        keep(chunk, chunk.copies[0]);
      } else {
        shared.emplace_back(&name, &chunk);
      }
    }
  }
  // Chunks are ordered by (name, offset), and the stable sort keeps that order.
  std::stable_sort(shared.begin(), shared.end(),
                   [](const auto& a, const auto& b) { return a.second->bytes > b.second->bytes; });
  for (const auto& [name, chunk] : shared) {
    keep(*chunk,
         *std::min_element(chunk->copies.begin(), chunk->copies.end(),
                           [&](const Copy& a, const Copy& b) { return loads[a.rank] < loads[b.rank]; }));
  }
  return kept;
}

Metadata describe(const Values& values) {
  Metadata metadata;
  for (const auto& [name, value] : values) {
    if (!value.first->tensor_data) {
      metadata.state_dict_metadata.emplace(name, BytesStorageMetadata{});
      continue;
    }
    TensorStorageMetadata tensor{value.first->tensor_data->properties, value.first->tensor_data->size, {}};
    for (const auto& [box, chunk] : value.chunks) {
      if (counts(value, box) && (!box.empty() || tensor.chunks.empty())) tensor.chunks.push_back(box);
    }
    metadata.state_dict_metadata.emplace(name, std::move(tensor));
  }
  return metadata;
}

}  // namespace

Result<GlobalSavePlan> default_global_plan(std::vector<SavePlan> all_plans, GlobalDedupe dedupe) {
  SHOAL_ASSIGN_OR_RETURN(const Values values, collect(all_plans));
  SHOAL_RETURN_IF_ERROR(check_values(values));
  const Kept kept = deal(values, all_plans, dedupe);
  GlobalSavePlan out;
  out.metadata = describe(values);
  for (Rank rank = 0; rank < all_plans.size(); ++rank) {
    SavePlan plan{{}, all_plans[rank].storage_data, all_plans[rank].planner_data};
    for (size_t i = 0; i < kept[rank].size(); ++i) {
      if (kept[rank][i]) plan.items.push_back(all_plans[rank].items[i]);
    }
    out.plans.push_back(std::move(plan));
  }
  return out;
}

}  // namespace shoal::dcp
