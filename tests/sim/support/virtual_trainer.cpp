#include "tests/sim/support/virtual_trainer.h"

#include <algorithm>
#include <cstring>

#include "base/digest/digest.h"

namespace shoal::sim {
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

uint64_t load_element(const std::byte* bytes, uint64_t element_bytes) {
  uint64_t value = 0;
  for (uint64_t i = 0; i < element_bytes; ++i) value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

uint64_t lowest_bytes(uint64_t value, uint64_t bytes) {
  return bytes >= 8 ? value : value & ((uint64_t{1} << (8 * bytes)) - 1);
}

const std::string& named(const Copies& copies, const std::string& fqn) {
  auto found = copies.find(fqn);
  return found == copies.end() ? fqn : found->second;
}

}  // namespace

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
  host_.from_client(client_, local::LayoutUpdate{layout_, options});
}

Bytes VirtualTrainer::local_bytes(const LayoutEntry& entry, const Box& box, uint64_t step) const {
  if (entry.kind == LayoutEntry::Kind::object) {
    const std::string value = object_value(named(copies_, value_fqn(entry, rank_)), step);
    return Bytes(as_view(value).begin(), as_view(value).end());
  }
  const uint64_t element_bytes = dtype_bytes(entry.dtype).value();
  const std::string& name = named(copies_, entry.fqn);
  const ElementValues values(name, step);
  Bytes bytes(box.elements() * element_bytes);
  for (uint64_t i = 0; i < box.elements(); ++i) {
    const uint64_t value = values[global_index(box, entry.shape, i)];
    for (uint64_t b = 0; b < element_bytes; ++b) {
      bytes[i * element_bytes + b] = static_cast<std::byte>(value >> (8 * b));
    }
  }
  return bytes;
}

void VirtualTrainer::save(uint64_t step, uint32_t attempt) {
  if (coordinator_rank_) return offer_plan(step, attempt);
  if (options_.mode == SaveMode::collective) return ask_for_plan(step, attempt);
  if (world_ && world_->layout_of(rank_).id() == layout_->id()) {
    return stage_by(step, attempt, *plan_save(*world_, rank_, options_), true);
  }
  stage_by(step, attempt, plan_all_held(*layout_, rank_), false);
}

void VirtualTrainer::ask_for_plan(uint64_t step, uint32_t attempt) {
  asked_.emplace(step, attempt);
  const bool knows = told_ && told_->layout_id == layout_->id();
  host_.from_client(
      client_, local::PlanRequest{step, attempt, layout_->id(), knows ? assignment_id_of(*told_) : PlanId{},
                                  sent_by_planner_.contains(step)});
}

std::string VirtualTrainer::offered_by(Rank rank, uint64_t step) {
  return "the plan of rank " + std::to_string(rank) + " at step " + std::to_string(step);
}

std::string VirtualTrainer::made_for(Rank rank, uint64_t step) {
  return "what is left of " + offered_by(rank, step);
}

void VirtualTrainer::offer_plan(uint64_t step, uint32_t attempt) {
  local::PlanGathering received{step, attempt, plan::GatherStage::offered, *coordinator_rank_, options_, {}};
  received.plans.push_back(std::make_shared<const std::string>(offered_by(rank_, step)));
  exchanging_[{step, attempt}] = received;
  host_.from_client(client_, std::move(received));
}

void VirtualTrainer::take_plans(const local::PlanGathering& received) {
  auto asked = exchanging_.find({received.step, received.attempt});
  if (asked == exchanging_.end()) return;
  if (received.stage == plan::GatherStage::delivered) {
    sent_by_planner_[received.step] = *received.plans.at(0);
    exchanging_.erase(asked);
    return ask_for_plan(received.step, received.attempt);
  }
  if (asked->second.stage == plan::GatherStage::made) return;
  SHOAL_CHECK(received.stage == plan::GatherStage::gathered && rank_ == coordinator_rank_);
  if (!makes_plans_) return refuse(received.step, Status(Code::internal, "its planner makes no plans"));
  local::PlanGathering made = asked->second;
  made.stage = plan::GatherStage::made;
  made.plans.clear();
  for (Rank rank = 0; rank < received.plans.size(); ++rank) {
    SHOAL_CHECK(*received.plans[rank] == offered_by(rank, received.step));
    made.plans.push_back(std::make_shared<const std::string>(made_for(rank, received.step)));
  }
  ++plans_made_;
  asked->second = made;
  host_.from_client(client_, std::move(made));
}

void VirtualTrainer::stage_by(uint64_t step, uint32_t attempt, const SavePlan& plan, bool is_notified) {
  local::Staged staged;
  staged.step = step;
  staged.attempt = attempt;
  staged.layout_id = layout_->id();
  staged.slab_id = next_slab_++;
  if (is_notified) {
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

void VirtualTrainer::trainers_return(size_t node, uint32_t world_size) {
  client_ = host_.attach(node, rank_, world_size);
  declare(options_);
  for (const auto& [step, attempt] : asked_) ask_for_plan(step, attempt);
  for (const auto& [key, received] : exchanging_) host_.from_client(client_, received);
  for (auto& [key, offer] : undecided_) {
    if (offer.durable) {
      host_.from_client(client_, local::Written{key.first, key.second, *offer.durable});
    } else if (offer.is_dropped) {
      const Status why(Code::aborted, "a node that has since ended dropped what this rank had staged");
      host_.from_client(client_, local::NotStaged{key.first, key.second, why});
    } else {
      offer.staged.again = true;
      stage(offer);
    }
  }
}

void VirtualTrainer::refuse(uint64_t step, Status why) {
  host_.from_client(client_, local::NotStaged{step, 1, std::move(why)});
}

void VirtualTrainer::load(std::optional<uint64_t> step, uint32_t ordinal) {
  constexpr uint64_t window_bytes = uint64_t{4} << 20;
  local::Load load;
  load.request_id = ordinal;
  load.latest = !step.has_value();
  load.step = step.value_or(0);
  load.ordinal = ordinal;
  load.slab_id = next_slab_++;
  load.reads_files = rank_ % 2 == 1;
  targets_.clear();
  for (const LayoutEntry& entry : layout_->entries()) {
    const LocalShards shards = layout_->shards_of(entry, rank_);
    if (shards.boxes.empty()) continue;
    local::LoadTarget target{value_fqn(entry, rank_), entry.kind, entry.dtype, entry.shape, {}};
    if (entry.kind == LayoutEntry::Kind::tensor) target.boxes = shards.boxes;
    load.targets.push_back(target);
    targets_.push_back(std::move(target));
  }
  loaded_.clear();
  loaded_objects_.clear();
  load_done_.reset();
  found_.reset();
  window_ = host_.add_slab(client_, load.slab_id, window_bytes);
  host_.from_client(client_, std::move(load));
}

bool VirtualTrainer::listen() {
  auto notified = host_.take(client_);
  for (const auto& message : notified) {
    if (const auto* roster = std::get_if<local::RosterUpdate>(message.get())) {
      world_ = roster->world;
      options_ = roster->options;
    } else if (const auto* plan = std::get_if<local::PlanUpdate>(message.get())) {
      if (asked_.erase({plan->step, plan->attempt}) == 0) continue;
      ++(plan->plan ? plans_sent_ : plans_kept_);
      told_ = plan->plan ? plan->plan : under_roster(told_, plan->roster_id);
      if (!only_asks_) stage_by(plan->step, plan->attempt, *told_, true);
    } else if (const auto* plans = std::get_if<local::PlanGathering>(message.get())) {
      take_plans(*plans);
    } else if (const auto* decided = std::get_if<local::Decided>(message.get())) {
      asked_.erase({decided->step, decided->attempt});
      exchanging_.erase({decided->step, decided->attempt});
      decided_[{decided->step, decided->attempt}] = *decided;
      undecided_.erase({decided->step, decided->attempt});
    } else if (const auto* free = std::get_if<local::SlabFree>(message.get())) {
      ++slabs_freed_;
      auto offer = undecided_.find({free->step, free->attempt});
      if (offer == undecided_.end()) continue;
      if (free->durable) offer->second.durable = free->durable;
      offer->second.is_dropped = !offer->second.durable;
    } else if (const auto* failed = std::get_if<local::Failed>(message.get())) {
      failed_ = *failed;
    } else if (const auto* refused = std::get_if<local::Refused>(message.get())) {
      refused_ = *refused;
    } else if (const auto* found = std::get_if<local::Found>(message.get())) {
      found_ = *found;
      if (found->values_of) found_->checkpoint.state_dict_metadata = list_values(*found->values_of);
    } else if (const auto* done = std::get_if<local::LoadDone>(message.get())) {
      load_done_ = *done;
    } else if (const auto* loaded = std::get_if<local::Loaded>(message.get())) {
      for (const local::LoadedPiece& piece : loaded->pieces) {
        place(piece, window_.subspan(piece.slab_offset, piece.bytes));
      }
      host_.from_client(client_, local::Placed{loaded->request_id, loaded->batch});
    } else if (const auto* files = std::get_if<local::FilesToRead>(message.get())) {
      read_files(*files);
    }
  }
  return !notified.empty();
}

// `bytes` begin where the range does.
void VirtualTrainer::place(const local::StoredRange& range, ByteView bytes) {
  const local::LoadTarget& target = targets_.at(range.target);
  if (target.kind == LayoutEntry::Kind::object) {
    std::string& object = loaded_objects_[range.target];
    object.resize(range.piece_bytes);
    if (!bytes.empty()) std::memcpy(object.data() + range.piece_offset, bytes.data(), bytes.size());
    return;
  }
  const uint64_t element_bytes = dtype_bytes(target.dtype).value();
  for (uint64_t i = 0; i < bytes.size() / element_bytes; ++i) {
    const uint64_t index = global_index(range.box, target.shape, range.piece_offset / element_bytes + i);
    loaded_[{range.target, index}] = load_element(bytes.data() + i * element_bytes, element_bytes);
  }
}

// As a client does, block by block.
void VirtualTrainer::read_files(const local::FilesToRead& batch) {
  local::FilesRead received{batch.request_id, batch.batch};
  size_t digest = 0;
  for (uint32_t number = 0; number < batch.ranges.size(); ++number) {
    local::FileRange block = batch.ranges[number];
    const uint64_t end = block.piece_offset + block.bytes;
    auto file = host_.storage().open(batch.files.at(block.file));
    do {
      block.bytes = std::min<uint64_t>(base::kDigestBlockBytes, end - block.piece_offset);
      Bytes bytes(block.bytes);
      const bool is_right = file.ok() && (*file)->read_at(block.file_offset, bytes).ok() &&
                            (bytes.empty() || base::block_digest(bytes) == batch.digests.at(digest));
      if (is_right) {
        place(block, bytes);
      } else {
        received.unread.push_back({number, block.piece_offset, block.piece_offset + block.bytes});
      }
      if (!bytes.empty()) ++digest;
      block.piece_offset += block.bytes;
      block.file_offset += block.bytes;
    } while (block.piece_offset < end);
  }
  SHOAL_CHECK(digest == batch.digests.size());
  host_.from_client(client_, received);
}

std::string VirtualTrainer::check_target(uint32_t number, uint64_t step, const Copies& copies) const {
  const local::LoadTarget& target = targets_[number];
  const std::string& copy = named(copies, target.fqn);
  if (target.kind == LayoutEntry::Kind::object) {
    auto found = loaded_objects_.find(number);
    if (found == loaded_objects_.end() && object_value(copy, step).empty()) return "";
    if (found == loaded_objects_.end()) return target.fqn + " did not arrive";
    if (found->second != object_value(copy, step)) return target.fqn + " is '" + found->second + "'";
    return "";
  }
  const uint64_t elements = element_count(target.shape).value();
  const uint64_t element_bytes = dtype_bytes(target.dtype).value();
  for (uint64_t index = 0; index < elements; ++index) {
    bool wanted = false;
    for (const Box& box : target.boxes) wanted = wanted || covers(box, target.shape, index);
    if (!wanted) continue;
    auto found = loaded_.find({number, index});
    const std::string name = target.fqn + "[" + std::to_string(index) + "]";
    if (found == loaded_.end()) return name + " did not arrive";
    if (found->second != lowest_bytes(element_value(copy, index, step), element_bytes))
      return name + " is wrong";
  }
  return "";
}

std::string VirtualTrainer::check_loaded(uint64_t step, const Copies& copies) const {
  for (uint32_t t = 0; t < targets_.size(); ++t) {
    if (std::string wrong = check_target(t, step, copies); !wrong.empty()) return wrong;
  }
  return "";
}

std::string VirtualTrainer::check_arrived(uint64_t step) const {
  for (const auto& [place, value] : loaded_) {
    const local::LoadTarget& target = targets_[place.first];
    const uint64_t right = element_value(target.fqn, place.second, step);
    if (value != lowest_bytes(right, dtype_bytes(target.dtype).value())) {
      return target.fqn + "[" + std::to_string(place.second) + "] is wrong";
    }
  }
  for (const auto& [number, object] : loaded_objects_) {
    const std::string& fqn = targets_[number].fqn;
    if (object != object_value(fqn, step)) return fqn + " is '" + object + "'";
  }
  return "";
}

std::string VirtualTrainer::check_value(const std::string& fqn, uint64_t step, const Copies& copies) const {
  for (uint32_t t = 0; t < targets_.size(); ++t) {
    if (targets_[t].fqn == fqn) return check_target(t, step, copies);
  }
  return "";
}

actors::NodeConfig facts_of(uint32_t generation) {
  actors::NodeConfig facts;
  facts.generation = generation;
  facts.epoch = generation;
  return facts;
}

VirtualJob VirtualJob::start(VirtualHost& host, const actors::NodeConfig& facts, uint32_t nodes,
                             uint32_t world_size, const std::vector<LayoutPtr>& layout_of_rank) {
  VirtualJob job{host, {}};
  std::vector<size_t> indices;
  for (uint32_t n = 0; n < nodes; ++n) {
    actors::NodeConfig here = facts;
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

void VirtualJob::run(actors::TimeNs patience) {
  bool anything = true;
  while (anything) {
    host.run_until_quiet(patience);
    anything = false;
    for (auto& trainer : trainers) anything = trainer->listen() || anything;
  }
}

}  // namespace shoal::sim
