#include "sim/cluster/shared_plans.h"

#include <algorithm>
#include <span>
#include <utility>

#include "shoal/bytes.h"
#include "storage/shards/shard_header.h"

namespace shoal::sim {

namespace {

PlanId name_of(const RosterId& roster, Rank rank) {
  std::byte name[20];
  std::copy(roster.bytes.begin(), roster.bytes.end(), name);
  store_le32(name + 16, rank);
  return xxh3_128(name);
}

int64_t digits_of(const Dims& offsets) {
  int64_t digits = 0;
  for (uint64_t offset : offsets) {
    for (++digits; offset >= 10; offset /= 10) ++digits;
  }
  return digits;
}

Hash128 hash_of(const local::LoadTargets& targets) {
  std::vector<uint64_t> numbers;
  local::LoadTarget target;
  for (size_t i = 0; i < targets.size(); ++i) {
    targets.read(i, target);
    numbers.insert(numbers.end(),
                   {xxh3_64(std::as_bytes(std::span(target.fqn))), static_cast<uint64_t>(target.kind),
                    static_cast<uint64_t>(target.dtype), target.shape.size(), target.boxes.size()});
    numbers.insert(numbers.end(), target.shape.begin(), target.shape.end());
    for (const Box& box : target.boxes) {
      numbers.insert(numbers.end(), box.offsets.begin(), box.offsets.end());
      numbers.insert(numbers.end(), box.sizes.begin(), box.sizes.end());
    }
  }
  return xxh3_128(std::as_bytes(std::span(numbers)));
}

}  // namespace

SharedPlans::OfRoster& SharedPlans::of(const World& world, const SaveOptions& options) {
  SHOAL_CHECK(rosters_.empty() || options == options_);  // a job has one set of options
  options_ = options;
  std::unique_ptr<OfRoster>& roster = rosters_[world.roster.id()];
  if (!roster) roster = std::make_unique<OfRoster>(world, options, geometries_);
  return *roster;
}

std::unique_ptr<actors::WorldPlans> SharedPlans::plans_of(std::shared_ptr<const World> world,
                                                          const SaveOptions& options) {
  struct OfWorld final : actors::WorldPlans {
    OfWorld(SharedPlans& made_by, std::shared_ptr<const World> of, const SaveOptions& by)
        : source(made_by), world(std::move(of)), options(by) {}
    Result<SavePlanPtr> plan(Rank rank) override { return source.plan(*world, rank, options); }
    SharedPlans& source;
    const std::shared_ptr<const World> world;
    const SaveOptions options;
  };
  return std::make_unique<OfWorld>(*this, std::move(world), options);
}

Result<SavePlanPtr> SharedPlans::plan(const World& world, Rank rank, const SaveOptions& options) {
  SHOAL_RETURN_IF_ERROR(validate_options(options));
  SHOAL_CHECK(rank < world.roster.world_size());
  OfRoster& roster = of(world, options);
  if (each_its_own_) {
    SavePlanPtr& own = roster.own_plans[rank];
    if (!own) {
      SHOAL_ASSIGN_OR_RETURN(own, actors::PlanSource::plan(world, rank, options));
    }
    return own;
  }
  auto [of_rank, is_new] = roster.ranks.try_emplace(rank);
  if (!is_new) return of_rank->second.plan;
  const plan::PlanClasses::Place place = roster.classes.place_of(rank);
  of_rank->second.text = place.text;
  SavePlanPtr& known = roster.plans[place.plan];
  if (!known) {
    known = std::make_shared<const SavePlan>(roster.classes.plan_of(rank));
    if (!known->items.empty()) known_[known->items.data()] = {&roster, known};
  }
  auto plan = std::make_shared<SavePlan>(*known);
  plan->rank = rank;
  plan->id = name_of(plan->roster_id, rank);
  plan->assignment_id = name_of(plan->layout_id, rank);
  of_rank->second.plan = std::move(plan);
  return of_rank->second.plan;
}

Result<std::shared_ptr<const World>> SharedPlans::world_of_one_rank(const LayoutPtr& layout,
                                                                    uint32_t world_size) {
  std::shared_ptr<const World>& known = rank_local_worlds_[layout->id()];
  if (!known) {
    SHOAL_ASSIGN_OR_RETURN(known, rank_local_world(layout, world_size));
  }
  return known;
}

SavePlanPtr SharedPlans::moved(const SavePlanPtr& plan, const RosterId& roster_id) {
  if (each_its_own_) return actors::PlanSource::moved(plan, roster_id);
  if (plan->roster_id == roster_id) return plan;
  auto moved = std::make_shared<SavePlan>(*plan);
  moved->roster_id = roster_id;
  moved->id = name_of(roster_id, plan->rank);
  return moved;
}

// Does not check plans that SharedPlans made: they were checked then, and their items may have the offsets of
// another rank.
Status SharedPlans::check(const SavePlan& plan, const Layout& layout) {
  if (plan.items.empty() || known_.contains(plan.items.data())) return ok_status();
  return check_plan(plan, layout);
}

Result<std::vector<actors::operation::WriteShard>> SharedPlans::writes(const Layout& layout,
                                                                       const SavePlan& plan,
                                                                       const AttemptKey& key,
                                                                       actors::ClientId client,
                                                                       const local::Staged& staged) {
  auto known = known_.find(plan.items.data());
  const bool fits =
      staged.layout_id == layout.id() && (staged.roster_id.is_zero() || staged.roster_id == plan.roster_id);
  if (known == known_.end() || !fits) return actors::PlanSource::writes(layout, plan, key, client, staged);
  std::unique_ptr<Writes>& made = writes_[plan.items.data()][std::as_const(staged.pieces).data()];
  if (!made) {
    SHOAL_ASSIGN_OR_RETURN(auto writes, actors::PlanSource::writes(layout, plan, key, client, staged));
    made = std::make_unique<Writes>(
        Writes{known->second.first, known->second.second, std::move(writes), {}, {}});
    kept_.push_back(staged);
    for (const actors::operation::WriteShard& write : made->writes) {
      SHOAL_ASSIGN_OR_RETURN(storage::BuiltShardHeader header,
                             storage::build_shard_header(write.pieces.vector()));
      while (header.bytes.back() == std::byte{' '}) header.bytes.pop_back();
      made->headers.push_back(header.bytes.size());
      made->payloads.push_back(header.payload_bytes);
      of_pieces_[write.pieces.data()] = made.get();
    }
  }
  std::vector<actors::operation::WriteShard> out = made->writes;
  for (actors::operation::WriteShard& write : out) {
    write.key = key;
    write.rank = plan.rank;
    write.in_parts = staged.in_parts;
    if (!staged.in_parts) continue;
    std::vector<actors::SlabRange> data = write.data.vector();
    for (actors::SlabRange& range : data) range.client = client, range.slab_id = staged.slab_id;
    write.data = std::move(data);
  }
  return out;
}

const std::vector<int64_t>& SharedPlans::further_digits(const Writes& of, Rank rank) {
  const auto known = of.roster->ranks.find(rank);
  const Hash128 text =
      known == of.roster->ranks.end() ? of.roster->classes.place_of(rank).text : known->second.text;
  auto [found, is_new] = of.roster->further_digits.try_emplace(text);
  if (!is_new) return found->second;
  found->second.resize(of.plan->files);
  const std::vector<WriteItem> items = of.roster->classes.moved(*of.plan, rank);
  for (size_t i = 0; i < items.size(); ++i) {
    found->second[items[i].file] +=
        digits_of(items[i].box.offsets) - digits_of(of.plan->items[i].box.offsets);
  }
  return found->second;
}

Result<SharedPlans::ShardBytes> SharedPlans::shard_bytes(const actors::operation::WriteShard& write) {
  auto known = of_pieces_.find(write.pieces.data());
  if (known == of_pieces_.end()) {
    ShardBytes bytes;
    for (const storage::ShardPiece& piece : write.pieces) bytes.payload += piece.bytes;
    SHOAL_ASSIGN_OR_RETURN(bytes.file, storage::shard_file_bytes(write.pieces.vector(), write.user));
    return bytes;
  }
  const Writes& writes = *known->second;
  const uint64_t payload = writes.payloads[write.file];
  const auto header =
      writes.headers[write.file] + static_cast<uint64_t>(further_digits(writes, write.rank)[write.file]);
  return ShardBytes{(header + storage::kShardDataAlignment - 1) / storage::kShardDataAlignment *
                            storage::kShardDataAlignment +
                        payload,
                    payload};
}

std::shared_ptr<const Metadata> SharedPlans::metadata(const storage::Decision& decision) {
  if (newest_.first != &decision || newest_.second->key != decision.key)
    newest_ = {&decision, actors::PlanSource::metadata(decision)};
  return newest_.second;
}

std::shared_ptr<actors::StoredCheckpoint> SharedPlans::stored(
    std::shared_ptr<const storage::Decision> committed) {
  if (each_its_own_) return actors::PlanSource::stored(std::move(committed));
  std::shared_ptr<actors::StoredCheckpoint>& known = stored_[committed.get()];
  if (!known) known = actors::PlanSource::stored(std::move(committed));
  return known;
}

void SharedPlans::will_be_shared(const local::LoadTargets& targets) {
  shared_targets_.try_emplace(targets.identity(), targets, hash_of(targets));
}

Result<std::shared_ptr<const actors::ReadPlan>> SharedPlans::reads(actors::StoredCheckpoint& stored,
                                                                   const local::LoadTargets& targets) {
  if (each_its_own_) return actors::PlanSource::reads(stored, targets);
  const auto shared = shared_targets_.find(targets.identity());
  const Hash128 hash = shared == shared_targets_.end() ? hash_of(targets) : shared->second.second;
  std::shared_ptr<const actors::ReadPlan>& known = reads_[{&stored, hash}];
  if (!known) {
    SHOAL_ASSIGN_OR_RETURN(known, actors::PlanSource::reads(stored, targets));
  } else if (known->pieces) {
    known->pieces->hold_refs();  // only where ranks share the table: references take most of its memory
  }
  return known;
}

// Each load makes its own plans to read objects, so these plans are not kept.
std::shared_ptr<const actors::ReadBatches> SharedPlans::batches(std::shared_ptr<const actors::ReadPlan> plan,
                                                                uint64_t part_bytes) {
  if (each_its_own_ || !plan->objects.empty())
    return actors::PlanSource::batches(std::move(plan), part_bytes);
  std::shared_ptr<const actors::ReadBatches>& known = batches_[{plan.get(), part_bytes}];
  if (!known) known = actors::PlanSource::batches(std::move(plan), part_bytes);
  return known;
}

std::shared_ptr<const actors::ChunkPlan> SharedPlans::chunks(const std::vector<actors::UserReads>& users) {
  const bool are_known =
      std::ranges::all_of(users, [](const actors::UserReads& user) { return user.plan->objects.empty(); });
  if (each_its_own_ || !are_known) return actors::PlanSource::chunks(users);
  std::unordered_map<const std::vector<uint32_t>*, uint64_t> groups{{nullptr, 0}};
  std::vector<uint64_t> numbers;
  for (const actors::UserReads& user : users) {
    numbers.insert(numbers.end(),
                   {reinterpret_cast<uintptr_t>(user.plan.get()), user.part_bytes, user.own_bytes});
    for (const actors::HostGroup& hosts : user.hosts) {
      auto [group, is_new] = groups.try_emplace(hosts.get());
      if (is_new) group->second = xxh3_64(std::as_bytes(std::span(*hosts)));
      numbers.push_back(group->second);
    }
  }
  std::shared_ptr<const actors::ChunkPlan>& known = chunks_[xxh3_128(std::as_bytes(std::span(numbers)))];
  if (!known) {
    known = actors::PlanSource::chunks(users);
    if (known->pieces) known->pieces->hold_refs();
  }
  return known;
}

}  // namespace shoal::sim
