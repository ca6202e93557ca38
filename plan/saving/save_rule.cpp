#include "plan/saving/save_rule.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace shoal::plan {

// State of one gather: facts shared by many entries of the same mesh.
struct SaveRule::Context {
  struct Group {
    RankSet ranks;
    Bucket* bucket = nullptr;  // set once something is divided
  };
  Rank rank = 0;
  uint32_t layout_number = 0;
  const Layout* layout = nullptr;
  Gathered out;
  // The replica groups of this rank. Key: mesh, layouts, sharded mesh dimensions, and, if the rank is in a
  // mesh more than once, the cell of these dimensions.
  std::map<std::tuple<uint32_t, uint32_t, std::vector<bool>, uint64_t>, Group> groups;

  void add(uint32_t value, uint32_t entry, uint32_t local_box, Box box, bool canonical) {
    out.pieces.push_back({value, entry, local_box, 0, std::move(box), canonical});
  }
  void add_all(uint32_t value, uint32_t entry, HeldPart part, bool canonical) {
    for (uint32_t i = 0; i < part.boxes.size(); ++i) {
      add(value, entry, part.first_box + i, std::move(part.boxes[i]), canonical);
    }
  }
};

SaveRule::SaveRule(const World& world, const SaveOptions& options, FqnIndex index)
    : options_(options), holdings_(world, std::move(index)) {
  SHOAL_CHECK(validate_options(options).ok());
}

Rank SaveRule::box_writer(const ValueHoldings& value, const BoxHoldings& boxes,
                          const BoxHoldings::HeldBox& held) const {
  std::span<const Rank> holders = boxes.holders(held);
  return holders[options_.dedupe == Dedupe::balanced ? value.name_hash % holders.size() : 0];
}

SaveRule::Gathered SaveRule::gather(Rank rank) {
  Context context;
  context.rank = rank;
  context.layout_number = world().roster.layout_of(rank);
  context.layout = world().layouts[context.layout_number].get();
  for (uint32_t entry = 0; entry < context.layout->entries().size(); ++entry) gather_entry(context, entry);
  return std::move(context.out);
}

void SaveRule::gather_entry(Context& context, uint32_t number) {
  const LayoutEntry& entry = context.layout->entries()[number];
  const FqnIndex& index = holdings_.index();
  const uint32_t value =
      number < index.size() && index.fqn(number) == entry.fqn ? number : index.find(entry.fqn).value();
  if (is_per_rank(entry)) return context.add(value, number, 0, Box{}, true);
  const auto* explicit_boxes = std::get_if<BoxSharding>(&entry.sharding);
  if (!holdings_.value(value).whole_writer) {
    return explicit_boxes ? gather_boxes(context, value, number) : gather_mesh(context, value, number);
  }
  const bool is_writer = whole_writer(value) == context.rank;
  const bool is_alternate = options_.dedupe == Dedupe::none && context.layout->holds(entry, context.rank);
  if (!is_writer && !is_alternate) return;
  Box box = entry.kind == LayoutEntry::Kind::object ? Box{} : whole(entry.shape);
  context.add(value, number, 0, std::move(box), is_writer);
}

void SaveRule::gather_mesh(Context& context, uint32_t value, uint32_t number) {
  const LayoutEntry& entry = context.layout->entries()[number];
  const ValueHoldings& held = holdings_.value(value);
  const Instance& instance = *holdings_.instance_of(held, entry, context.layout_number);
  const bool is_chosen = &instance == &held.instance();
  if (!is_chosen && options_.dedupe != Dedupe::none) return;
  const std::vector<bool> sharded = sharded_dims(instance);
  const bool is_group = placements_of(instance).empty();
  for (HeldPart& part : parts_of(entry, *instance.mesh, context.rank)) {
    const uint64_t cell = instance.devices_per_rank > 1 ? cell_of(instance, sharded, part.coordinate) : 0;
    auto [found, is_new] =
        context.groups.try_emplace({instance.mesh_number, instance.layouts_number, sharded, cell});
    Context::Group& group = found->second;
    if (is_new) group.ranks = holdings_.replicas(instance, part.coordinate);
    const bool is_lowest = group.ranks.lowest() == context.rank;
    if (options_.dedupe == Dedupe::none) {
      context.add_all(value, number, std::move(part), is_chosen && is_lowest);
    } else if (options_.dedupe == Dedupe::balanced && is_group && !entry.replicated) {
      if (whole_writer(value) == context.rank) context.add_all(value, number, std::move(part), true);
    } else if (options_.dedupe == Dedupe::lowest_rank || group.ranks.size() == 1) {
      if (is_lowest) context.add_all(value, number, std::move(part), true);
    } else {
      if (!group.bucket) group.bucket = &context.out.buckets[group.ranks];
      group.bucket->add(value, number, std::move(part), *dtype_bytes(entry.dtype));
    }
  }
}

void SaveRule::gather_boxes(Context& context, uint32_t value, uint32_t number) {
  const LayoutEntry& entry = context.layout->entries()[number];
  const ValueHoldings& held = holdings_.value(value);
  const std::vector<Box> boxes = context.layout->shards_of(entry, context.rank).boxes;
  std::vector<uint32_t> order(boxes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return boxes[a] < boxes[b]; });
  for (uint32_t i : order) {
    if (boxes[i].empty()) continue;
    const BoxHoldings& all = holdings_.boxes(value);
    const BoxHoldings::HeldBox* here = all.find(boxes[i]);
    SHOAL_CHECK(here != nullptr);
    if (divides(*here)) {
      std::span<const Rank> holders = all.holders(*here);
      Bucket& bucket = context.out.buckets[RankSet::from_ascending({holders.begin(), holders.end()})];
      bucket.boxes.push_back({value, number, i, *dtype_bytes(entry.dtype), boxes[i]});
      continue;
    }
    const bool is_writer = box_writer(held, all, *here) == context.rank;
    if (is_writer || options_.dedupe == Dedupe::none) context.add(value, number, i, boxes[i], is_writer);
  }
}

void SaveRule::divide_bucket(const RankSet& group, Bucket& bucket) const {
  std::vector<SharedBox> boxes;
  boxes.reserve(bucket.boxes.size());
  for (const Bucket::HeldBox& held : bucket.boxes) boxes.push_back({&held.box, held.element_bytes});
  bucket.members = first_members(group, world().roster, count_units(boxes, options_.unit_bytes));
  bucket.assignments = divide(boxes, group.size(), options_.unit_bytes);
  bucket.divided = true;
}

void append_pieces_of(const Bucket& bucket, Rank rank, std::vector<Piece>& out) {
  auto found = std::find(bucket.members.begin(), bucket.members.end(), rank);
  const auto member = static_cast<uint32_t>(found - bucket.members.begin());
  for (const Assignment& assignment : bucket.assignments) {
    if (assignment.member != member) continue;
    const Bucket::HeldBox& held = bucket.boxes[assignment.box];
    uint64_t offset = assignment.begin;
    for (Box& box : boxes_of_range(held.box, assignment.begin, assignment.end)) {
      const uint64_t elements = box.elements();
      out.push_back({held.value, held.entry, held.local_box, offset, std::move(box), true});
      offset += elements;
    }
  }
}

std::vector<uint32_t> sort_into_files(std::vector<Piece>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.value != b.value ? a.value < b.value : a.box < b.box;
  });
  std::vector<uint32_t> files;
  files.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool same_value = i > 0 && pieces[i].value == pieces[i - 1].value;
    files.push_back(same_value ? std::min(files.back() + 1, kMaxFilesPerRank - 1) : 0);
  }
  return files;
}

}  // namespace shoal::plan
