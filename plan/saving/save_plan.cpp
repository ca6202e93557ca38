#include "shoal/save_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "plan/layout/canonical_bytes.h"
#include "plan/saving/save_rule.h"

namespace shoal {

namespace {

constexpr uint64_t kMinUnitBytes = uint64_t{1} << 10;
constexpr uint64_t kMaxUnitBytes = uint64_t{1} << 40;

PlanId hash_plan(const SavePlan& plan, const RosterId& roster_id) {
  plan::CanonicalBytes bytes;
  bytes.reserve(64 + plan.items.size() * 96);
  bytes.hash(roster_id);
  bytes.u32(plan.rank);
  bytes.u32(kRuleVersion);
  bytes.u8(static_cast<uint8_t>(plan.options.dedupe));
  bytes.u64(plan.options.unit_bytes);
  // The mode is appended only if it is not the first one, so that older ids stay the same.
  if (plan.options.mode != SaveMode::collective_free) bytes.u8(static_cast<uint8_t>(plan.options.mode));
  bytes.u64(plan.items.size());
  for (const WriteItem& item : plan.items) {
    bytes.u32(item.entry);
    bytes.u32(item.file);
    bytes.u8(item.canonical ? 1 : 0);
    bytes.u32(item.local_box);
    bytes.u64(item.local_offset);
    bytes.u64(item.bytes);
    bytes.u32(static_cast<uint32_t>(item.box.dims()));
    for (uint64_t offset : item.box.offsets) bytes.u64(offset);
    for (uint64_t size : item.box.sizes) bytes.u64(size);
  }
  return bytes.hash_128();
}

// Converts pieces with their files to items in the order of the bytes.
void fill_items(const Layout& layout, std::vector<plan::Piece> pieces, const std::vector<uint32_t>& files,
                SavePlan& plan) {
  std::vector<WriteItem> items;
  items.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    plan::Piece& piece = pieces[i];
    const LayoutEntry& entry = layout.entries()[piece.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    const uint64_t element_bytes = *dtype_bytes(entry.dtype);
    WriteItem item;
    item.entry = piece.entry;
    item.local_box = piece.local_box;
    item.local_offset = piece.local_offset * element_bytes;
    item.bytes = is_object ? 0 : piece.box.elements() * element_bytes;
    item.box = std::move(piece.box);
    item.file = files[i];
    item.canonical = piece.canonical;
    plan.tensor_bytes += item.bytes;
    plan.files = std::max(plan.files, item.file + 1);
    items.push_back(std::move(item));
  }
  auto rank_of = [&](const WriteItem& item) {
    const LayoutEntry& entry = layout.entries()[item.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    // Wide elements come first, so that aligning them needs no gap.
    return std::tuple(item.file, is_object, is_object ? 0u : 64 - dtype_bits(entry.dtype), item.entry);
  };
  // Pieces arrive sorted by (entry, box), and a stable sort keeps this.
  std::stable_sort(items.begin(), items.end(),
                   [&](const WriteItem& a, const WriteItem& b) { return rank_of(a) < rank_of(b); });
  plan.items = std::move(items);
}

}  // namespace

std::string_view mode_name(SaveMode mode) {
  switch (mode) {
    case SaveMode::rank_local:
      return "rank-local";
    case SaveMode::collective:
      return "collective";
    case SaveMode::collective_free:
      break;
  }
  return "collective-free";
}

std::optional<SaveMode> mode_of_name(std::string_view name) {
  for (SaveMode mode : {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective}) {
    if (mode_name(mode) == name) return mode;
  }
  return std::nullopt;
}

Status validate_options(const SaveOptions& options) {
  if (options.unit_bytes < kMinUnitBytes || options.unit_bytes > kMaxUnitBytes) {
    return Status(Code::invalid_argument,
                  fmt::format("unit_bytes is {}: it must be from 1 KiB to 1 TiB", options.unit_bytes));
  }
  if (options.dedupe != Dedupe::balanced && options.dedupe != Dedupe::lowest_rank &&
      options.dedupe != Dedupe::none) {
    return Status(Code::invalid_argument, "dedupe is not one of balanced, lowest_rank, none");
  }
  if (options.mode > SaveMode::collective) {
    return Status(Code::invalid_argument, "mode is not one of collective-free, rank-local, collective");
  }
  if (options.mode == SaveMode::rank_local && options.dedupe != Dedupe::none) {
    return Status(Code::invalid_argument,
                  "a rank-local save writes everything that a rank holds: set dedupe to none");
  }
  if (options.replica_check > ReplicaCheck::abort) {
    return Status(Code::invalid_argument, "replica_check is not one of off, warn, abort");
  }
  if (options.mode == SaveMode::rank_local && options.replica_check != ReplicaCheck::off) {
    return Status(
        Code::invalid_argument,
        "replica_check needs mode collective-free or collective: in mode rank-local no process sees "
        "the digests of all ranks");
  }
  return ok_status();
}

PlanId plan_id_of(const SavePlan& plan) {
  return hash_plan(plan, plan.roster_id);
}

PlanId assignment_id_of(const SavePlan& plan) {
  if (!plan.assignment_id.is_zero()) return plan.assignment_id;
  return hash_plan(plan, RosterId{});
}

SavePlanPtr under_roster(const SavePlanPtr& plan, const RosterId& roster_id) {
  if (plan->roster_id == roster_id) return plan;
  auto moved = std::make_shared<SavePlan>(*plan);
  moved->roster_id = roster_id;
  moved->id = plan_id_of(*moved);
  return moved;
}

SavePlan plan::plan_with(plan::SaveRule& rule, Rank rank) {
  plan::SaveRule::Gathered gathered = rule.gather(rank);
  for (auto& [group, bucket] : gathered.buckets) {
    rule.divide_bucket(group, bucket);
    plan::append_pieces_of(bucket, rank, gathered.pieces);
  }
  std::vector<uint32_t> files = plan::sort_into_files(gathered.pieces);
  const Layout& layout = rule.world().layout_of(rank);
  SavePlan plan;
  plan.rank = rank;
  plan.layout_id = layout.id();
  plan.roster_id = rule.world().roster.id();
  plan.options = rule.options();
  fill_items(layout, std::move(gathered.pieces), files, plan);
  plan.id = plan_id_of(plan);
  return plan;
}

Result<SavePlan> plan_save(const World& world, Rank rank, const SaveOptions& options) {
  SHOAL_RETURN_IF_ERROR(validate_options(options));
  if (rank >= world.roster.world_size()) {
    return Status(Code::invalid_argument,
                  fmt::format("rank {} is not in a world of {}", rank, world.roster.world_size()));
  }
  plan::SaveRule rule(world, options, plan::FqnIndex::of_layout(world, world.roster.layout_of(rank)));
  return plan::plan_with(rule, rank);
}

Result<std::shared_ptr<const World>> rank_local_world(const LayoutPtr& layout, uint32_t world_size) {
  const std::vector<LayoutId> ids(world_size, layout->id());
  const std::vector<uint32_t> hosts(world_size, 0);
  SHOAL_ASSIGN_OR_RETURN(Roster roster, Roster::make(ids, hosts));
  auto world = std::make_shared<World>(World{std::move(roster), {layout}});
  SHOAL_RETURN_IF_ERROR(validate_world(*world));
  return std::shared_ptr<const World>(std::move(world));
}

SavePlan plan_all_held(const Layout& layout, Rank rank) {
  std::vector<plan::Piece> pieces;
  for (uint32_t i = 0; i < layout.entries().size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    if (entry.kind == LayoutEntry::Kind::tensor && whole(entry.shape).empty()) {
      if (layout.holds(entry, rank)) pieces.push_back({i, i, 0, 0, whole(entry.shape), true});
      continue;
    }
    std::vector<Box> boxes = layout.shards_of(entry, rank).boxes;
    for (uint32_t k = 0; k < boxes.size(); ++k) {
      if (!boxes[k].empty()) pieces.push_back({i, i, k, 0, std::move(boxes[k]), true});
    }
  }
  plan::sort_into_files(pieces);
  SavePlan plan;
  plan.rank = rank;
  plan.layout_id = layout.id();
  const std::vector<uint32_t> files(pieces.size(), 0);
  fill_items(layout, std::move(pieces), files, plan);
  plan::CanonicalBytes bytes;
  bytes.hash(layout.id());
  bytes.u32(rank);
  plan.id = bytes.hash_128();
  return plan;
}

std::string shard_file_name(Rank rank, uint32_t file) {
  constexpr size_t kLeastDigits = 5;
  const fmt::format_int digits(rank);  // not a format string, for speed: a manifest has a name for each rank
  std::string name = "rank-";
  name.append(kLeastDigits - std::min(kLeastDigits, digits.size()), '0');
  name.append(digits.data(), digits.size());
  if (file != 0) name += fmt::format("-{}", file);
  return name += ".safetensors";
}

std::vector<std::string> item_keys(const Layout& layout, const SavePlan& plan) {
  std::vector<std::string> keys;
  keys.reserve(plan.items.size());
  std::set<std::pair<uint32_t, std::string>> names;  // fqns by file; needed once one of them has a number
  auto is_name = [&](uint32_t file, const std::string& key) {
    if (names.empty()) {
      for (const WriteItem& item : plan.items) {
        names.emplace(item.file, value_fqn(layout.entries()[item.entry], plan.rank));
      }
    }
    return names.contains({file, key});
  };
  uint32_t number = 0;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const WriteItem& item = plan.items[i];
    std::string fqn = value_fqn(layout.entries()[item.entry], plan.rank);
    if (i == 0 || plan.items[i - 1].entry != item.entry || plan.items[i - 1].file != item.file) {
      number = 0;
      keys.push_back(std::move(fqn));
      continue;
    }
    std::string key;
    do {
      key = fmt::format("{}#{}", fqn, ++number);
    } while (is_name(item.file, key));
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace shoal
