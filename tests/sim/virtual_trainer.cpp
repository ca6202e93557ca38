#include "tests/sim/virtual_trainer.h"

#include <algorithm>
#include <cstring>

namespace shoal {
namespace {

// Row-major global index of the n-th element of a box.
uint64_t global_index(const Box& box, const Dims& shape, uint64_t n) {
  uint64_t index = 0, stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    index += (box.offsets[d] + n % box.sizes[d]) * stride;
    n /= box.sizes[d];
    stride *= shape[d];
  }
  return index;
}

bool covers(const Box& box, const Dims& shape, uint64_t index) {
  for (size_t d = shape.size(); d-- > 0;) {
    const uint64_t at = index % shape[d];
    index /= shape[d];
    if (at < box.offsets[d] || at >= box.offsets[d] + box.sizes[d]) return false;
  }
  return true;
}

}  // namespace

uint32_t element_value(const std::string& fqn, uint64_t index, uint64_t step) {
  return static_cast<uint32_t>(
      (xxh3_64(fqn) ^ (index * 0x9e3779b97f4a7c15ull) ^ (step * 0xc2b2ae3d27d4eb4full)) >> 17);
}

std::string object_value(const std::string& fqn, uint64_t step) {
  if (step == 0) return "";
  std::string value = fqn + " at step " + std::to_string(step);
  for (uint64_t i = 0; i < step; ++i) value += " and on";
  return value;
}

VirtualTrainer::VirtualTrainer(VirtualHost& host, size_t node, Rank rank, uint32_t world_size,
                               LayoutPtr layout)
    : host_(host), rank_(rank), layout_(std::move(layout)), client_(host.attach(node, rank, world_size)) {}

void VirtualTrainer::declare(const SaveOptions& options) {
  options_ = options;
  host_.from_client(client_, local::LayoutIs{layout_, options});
}

Bytes VirtualTrainer::local_bytes(const LayoutEntry& entry, const Box& box, uint64_t step) const {
  if (entry.kind == LayoutEntry::Kind::object) {
    const std::string value = object_value(value_fqn(entry, rank_), step);
    return Bytes(as_view(value).begin(), as_view(value).end());
  }
  SHOAL_CHECK(entry.dtype == DType::f32 || entry.dtype == DType::u32);
  Bytes bytes(box.elements() * 4);
  for (uint64_t i = 0; i < box.elements(); ++i) {
    store_le32(bytes.data() + i * 4, element_value(entry.fqn, global_index(box, entry.shape, i), step));
  }
  return bytes;
}

void VirtualTrainer::save(uint64_t step, uint32_t attempt) {
  local::Staged staged;
  staged.step = step;
  staged.attempt = attempt;
  staged.layout_id = layout_->id();
  staged.slab_id = next_slab_++;
  SavePlan plan = plan_all_held(*layout_, rank_);
  if (world_ && world_->layout_of(rank_).id() == layout_->id()) {
    plan = *plan_save(*world_, rank_, options_);
    staged.roster_id = plan.roster_id;
    staged.plan_id = plan.id;
  }
  Bytes slab;
  for (const WriteItem& item : plan.items) {
    const LayoutEntry& entry = layout_->entries()[item.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    if (!is_object && item.bytes == 0) continue;
    const LocalShards shards = layout_->shards_of(entry, rank_);
    const Bytes whole = local_bytes(entry, is_object ? Box{} : shards.boxes[item.local_box], step);
    const uint64_t bytes = is_object ? whole.size() : item.bytes;
    staged.pieces.push_back({item.entry, item.local_box, item.local_offset, bytes, slab.size()});
    slab.insert(slab.end(), whole.begin() + static_cast<ptrdiff_t>(item.local_offset),
                whole.begin() + static_cast<ptrdiff_t>(item.local_offset + bytes));
  }
  std::sort(staged.pieces.begin(), staged.pieces.end(), [](const auto& a, const auto& b) {
    return std::tie(a.entry, a.local_box, a.local_offset) < std::tie(b.entry, b.local_box, b.local_offset);
  });
  bytes_staged_ += slab.size();
  Offer& offer = undecided_[{step, attempt}];
  offer = {std::move(staged), std::move(slab), std::nullopt};
  stage(offer);
}

void VirtualTrainer::stage(const Offer& offer) {
  MutableByteView memory = host_.add_slab(client_, offer.staged.slab_id, offer.slab.size());
  std::copy(offer.slab.begin(), offer.slab.end(), memory.begin());
  host_.from_client(client_, offer.staged);
}

void VirtualTrainer::come_back(size_t node, uint32_t world_size) {
  client_ = host_.attach(node, rank_, world_size);
  declare(options_);
  for (auto& [key, offer] : undecided_) {
    if (offer.durable) {
      host_.from_client(client_, local::Written{key.first, key.second, *offer.durable});
    } else {
      offer.staged.again = true;
      stage(offer);
    }
  }
}

void VirtualTrainer::load(std::optional<uint64_t> step, uint32_t ordinal) {
  constexpr uint64_t window_bytes = uint64_t{4} << 20;
  local::Load load;
  load.request_id = ordinal;
  load.latest = !step.has_value();
  load.step = step.value_or(0);
  load.ordinal = ordinal;
  load.slab_id = next_slab_++;
  for (const LayoutEntry& entry : layout_->entries()) {
    const LocalShards shards = layout_->shards_of(entry, rank_);
    if (shards.boxes.empty()) continue;
    local::LoadTarget target{value_fqn(entry, rank_), entry.kind, entry.dtype, entry.shape, {}};
    if (entry.kind == LayoutEntry::Kind::tensor) target.boxes = shards.boxes;
    load.targets.push_back(std::move(target));
  }
  targets_ = load.targets;
  loaded_.clear();
  loaded_objects_.clear();
  load_done_.reset();
  found_.reset();
  window_ = host_.add_slab(client_, load.slab_id, window_bytes);
  host_.from_client(client_, std::move(load));
}

bool VirtualTrainer::listen() {
  auto heard = host_.take(client_);
  for (const auto& message : heard) {
    if (const auto* roster = std::get_if<local::RosterIs>(message.get())) {
      world_ = roster->world;
      options_ = roster->options;
    } else if (const auto* decided = std::get_if<local::Decided>(message.get())) {
      decided_[{decided->step, decided->attempt}] = *decided;
      undecided_.erase({decided->step, decided->attempt});
    } else if (const auto* free = std::get_if<local::SlabFree>(message.get())) {
      ++slabs_freed_;
      auto offer = undecided_.find({free->step, free->attempt});
      if (offer != undecided_.end() && free->durable) offer->second.durable = free->durable;
    } else if (const auto* failed = std::get_if<local::Failed>(message.get())) {
      failed_ = *failed;
    } else if (const auto* refused = std::get_if<local::Refused>(message.get())) {
      refused_ = *refused;
    } else if (const auto* found = std::get_if<local::Found>(message.get())) {
      found_ = *found;
    } else if (const auto* done = std::get_if<local::LoadDone>(message.get())) {
      load_done_ = *done;
    } else if (const auto* loaded = std::get_if<local::Loaded>(message.get())) {
      for (const local::LoadedPiece& piece : loaded->pieces) {
        const local::LoadTarget& target = targets_.at(piece.target);
        const std::byte* bytes = window_.data() + piece.slab_offset;
        if (target.kind == LayoutEntry::Kind::object) {
          std::string& object = loaded_objects_[piece.target];
          object.resize(piece.piece_bytes);
          std::memcpy(object.data() + piece.piece_offset, bytes, piece.bytes);
          continue;
        }
        for (uint64_t i = 0; i < piece.bytes / 4; ++i) {
          const uint64_t index = global_index(piece.box, target.shape, piece.piece_offset / 4 + i);
          loaded_[{piece.target, index}] = load_le32(bytes + i * 4);
        }
      }
      host_.from_client(client_, local::Placed{loaded->request_id, loaded->batch});
    }
  }
  return !heard.empty();
}

std::string VirtualTrainer::check_loaded(uint64_t step) const {
  for (uint32_t t = 0; t < targets_.size(); ++t) {
    const local::LoadTarget& target = targets_[t];
    if (target.kind == LayoutEntry::Kind::object) {
      auto found = loaded_objects_.find(t);
      if (found == loaded_objects_.end()) return target.fqn + " did not arrive";
      if (found->second != object_value(target.fqn, step)) return target.fqn + " is '" + found->second + "'";
      continue;
    }
    const uint64_t elements = element_count(target.shape).value();
    for (uint64_t index = 0; index < elements; ++index) {
      bool wanted = false;
      for (const Box& box : target.boxes) wanted = wanted || covers(box, target.shape, index);
      if (!wanted) continue;
      auto found = loaded_.find({t, index});
      const std::string name = target.fqn + "[" + std::to_string(index) + "]";
      if (found == loaded_.end()) return name + " did not arrive";
      if (found->second != element_value(target.fqn, index, step)) return name + " is wrong";
    }
  }
  return "";
}

VirtualJob VirtualJob::start(VirtualHost& host, const NodeFacts& facts, uint32_t nodes, uint32_t world_size,
                             const std::vector<LayoutPtr>& layout_of_rank) {
  VirtualJob job{host, {}};
  std::vector<size_t> indices;
  for (uint32_t n = 0; n < nodes; ++n) {
    NodeFacts here = facts;
    here.host = "host" + std::to_string(n);
    here.expected_ranks.clear();
    for (Rank rank = 0; rank < world_size; ++rank) {
      if (rank / ((world_size + nodes - 1) / nodes) == n) here.expected_ranks.push_back(rank);
    }
    indices.push_back(host.add_node(here, n == 0));
  }
  for (Rank rank = 0; rank < world_size; ++rank) {
    job.trainers.push_back(std::make_unique<VirtualTrainer>(
        host, indices[rank / ((world_size + nodes - 1) / nodes)], rank, world_size, layout_of_rank[rank]));
  }
  return job;
}

void VirtualJob::run(TimeNs patience) {
  bool anything = true;
  while (anything) {
    host.run_until_quiet(patience);
    anything = false;
    for (auto& trainer : trainers) anything = trainer->listen() || anything;
  }
}

}  // namespace shoal
