// Encodes and decodes plans that are sent between processes, and checks a received plan before a rank writes
// by it.
#include <capnp/message.h>
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "plan/layout/codec.h"
#include "plan/saving/options_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/layout.capnp.h"
#include "shoal/save_plan.h"

namespace shoal {

namespace {

Status malformed(std::string_view what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

void set_numbers(capnp::List<uint64_t>::Builder out, const Dims& numbers) {
  for (uint32_t i = 0; i < numbers.size(); ++i) out.set(i, numbers[i]);
}

Result<Dims> read_numbers(capnp::List<uint64_t>::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxDims, "dimensions of a box").status());
  Dims out;
  out.reserve(in.size());
  for (uint64_t number : in) out.push_back(number);
  return out;
}

Result<WriteItem> read_item(schema::SavePlan::Item::Reader in) {
  WriteItem item;
  item.entry = in.getEntry();
  item.local_box = in.getLocalBox();
  item.local_offset = in.getLocalOffset();
  item.bytes = in.getBytes();
  item.file = in.getFile();
  item.canonical = !in.getIsAlternate();
  SHOAL_ASSIGN_OR_RETURN(item.box.offsets, read_numbers(in.getBox().getOffsets()));
  SHOAL_ASSIGN_OR_RETURN(item.box.sizes, read_numbers(in.getBox().getSizes()));
  if (item.box.offsets.size() != item.box.sizes.size()) return malformed("box of a plan");
  if (item.file >= kMaxFilesPerRank) return malformed("file of a plan");
  return item;
}

Result<SavePlanPtr> read_plan(schema::SavePlan::Reader in) {
  auto plan = std::make_shared<SavePlan>();
  plan->rank = in.getRank();
  if (plan->rank >= kMaxWorldSize) return malformed("rank of a plan");
  SHOAL_ASSIGN_OR_RETURN(plan->layout_id, Hash128::from_bytes(schema::view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(plan->roster_id, Hash128::from_bytes(schema::view_of(in.getRosterId())));
  SHOAL_ASSIGN_OR_RETURN(plan->options, plan::read_options(in.getOptions()));
  for (auto item_in : in.getItems()) {
    SHOAL_ASSIGN_OR_RETURN(WriteItem item, read_item(item_in));
    if (item.bytes > UINT64_MAX - plan->tensor_bytes) return malformed("bytes of a plan");
    plan->tensor_bytes += item.bytes;
    plan->files = std::max(plan->files, item.file + 1);
    plan->items.push_back(std::move(item));
  }
  plan->id = plan_id_of(*plan);
  return SavePlanPtr(std::move(plan));
}

// The part of an item that identifies its value and its place in it. `boxes`: the boxes that the rank holds
// of the value.
Status check_item(const WriteItem& item, const LayoutEntry& entry, const std::vector<Box>& boxes,
                  bool is_held) {
  auto wrong = [&](std::string_view what) {
    return Status(Code::invalid_argument,
                  fmt::format("plan item '{}' {} {}", entry.fqn, to_string(item.box), what));
  };
  const bool is_object = entry.kind == LayoutEntry::Kind::object;
  if (is_object || whole(entry.shape).empty()) {
    const Box all = is_object ? Box{} : whole(entry.shape);
    if (!is_held || item.box != all || item.local_box != 0 || item.local_offset != 0 || item.bytes != 0) {
      return wrong("differs from what this rank holds");
    }
    return ok_status();
  }
  if (item.local_box >= boxes.size()) return wrong("belongs to a box that this rank does not hold");
  if (Status fits = validate_box(item.box, entry.shape); !fits.ok())
    return wrong("is not a part of that tensor: " + fits.message());
  const Box& held = boxes[item.local_box];
  const uint64_t element_bytes = *dtype_bytes(entry.dtype);
  if (item.box.empty() || !contains(held, item.box))
    return wrong("is outside of the box that this rank holds");
  const std::optional<uint64_t> offset = contiguous_offset(held, item.box);
  if (!offset || *offset * element_bytes != item.local_offset ||
      item.box.elements() * element_bytes != item.bytes) {
    return wrong("has the wrong offset or length");
  }
  return ok_status();
}

}  // namespace

Bytes plan::encode_plan(const SavePlan& plan) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schema::SavePlan>();
  out.setRank(plan.rank);
  out.setLayoutId(schema::data_of(plan.layout_id));
  out.setRosterId(schema::data_of(plan.roster_id));
  plan::write_options(out.initOptions(), plan.options);
  auto items = out.initItems(static_cast<uint32_t>(plan.items.size()));
  for (uint32_t i = 0; i < items.size(); ++i) {
    const WriteItem& item = plan.items[i];
    items[i].setEntry(item.entry);
    items[i].setLocalBox(item.local_box);
    items[i].setLocalOffset(item.local_offset);
    items[i].setBytes(item.bytes);
    items[i].setFile(item.file);
    items[i].setIsAlternate(!item.canonical);
    auto box = items[i].initBox();
    set_numbers(box.initOffsets(static_cast<uint32_t>(item.box.dims())), item.box.offsets);
    set_numbers(box.initSizes(static_cast<uint32_t>(item.box.dims())), item.box.sizes);
  }
  return schema::framed_bytes(message);
}

Result<SavePlanPtr> plan::decode_plan(ByteView bytes) {
  schema::ReadLimits limits;
  limits.bytes_max = plan::kMaxEncodedPlanBytes;
  Result<SavePlanPtr> plan = schema::read_checked<schema::SavePlan>(bytes, limits, read_plan);
  if (!plan.ok()) {
    const Code code = plan.status().code() == Code::invalid_argument ? Code::corrupt : plan.status().code();
    return Status(code, plan.status().message()).with_context("plan");
  }
  return plan;
}

Status check_plan(const SavePlan& plan, const Layout& layout) {
  if (plan.layout_id != layout.id()) {
    return Status(Code::invalid_argument,
                  fmt::format("the plan is for layout {}, and this rank has layout {}",
                              plan.layout_id.short_hex(), layout.id().short_hex()));
  }
  std::vector<Box> boxes;
  bool is_held = false;
  const WriteItem* before = nullptr;
  auto place_of = [&](const WriteItem& item) {
    const LayoutEntry& entry = layout.entries()[item.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    return std::tuple(item.file, is_object, is_object ? 0u : 64 - dtype_bits(entry.dtype), item.entry,
                      std::tie(item.box));
  };
  for (const WriteItem& item : plan.items) {
    if (item.entry >= layout.entries().size()) {
      return Status(Code::invalid_argument,
                    fmt::format("the plan names entry {}, and the layout has {} entries", item.entry,
                                layout.entries().size()));
    }
    const LayoutEntry& entry = layout.entries()[item.entry];
    if (before == nullptr || before->entry != item.entry) {
      boxes = layout.shards_of(entry, plan.rank).boxes;
      is_held = layout.holds(entry, plan.rank);
    }
    SHOAL_RETURN_IF_ERROR(check_item(item, entry, boxes, is_held));
    if (before != nullptr && !(place_of(*before) < place_of(item))) {
      return Status(Code::invalid_argument,
                    fmt::format("plan item '{}' {} is out of order", entry.fqn, to_string(item.box)));
    }
    before = &item;
  }
  return ok_status();
}

}  // namespace shoal
