// CountedRoot: the operations of a load. The production code for them is in storage/root/attempts.cpp,
// storage/root/run_root.cpp, storage/retention/marks.cpp and actors/executor/open_shards.cpp.
#include <algorithm>
#include <utility>

#include "actors/executor/open_shards.h"
#include "sim/cluster/counted_root.h"
#include "storage/decisions/record.h"

namespace shoal::sim {

namespace {

using StepKind = StorageStep::Kind;

constexpr uint64_t kChoiceBytes = 256, kPinBytes = 256;  // upper bounds, as for other records
constexpr uint64_t kPassedOverBytes = 64;                // of an attempt in a choice, besides its cause

// Jobs that only read number their choices apart.
uint32_t chooser_of(const auto& operation) {
  constexpr uint32_t kReader = uint32_t{1} << 31;
  return operation.of == storage::ChoiceOf::reader ? operation.generation | kReader : operation.generation;
}

uint64_t id_of(const actors::operation::PieceRef& piece) {  // id of the piece's file
  return xxh3_64(to_string(piece.key) + piece.file_name);
}

}  // namespace

void CountedRoot::continue_from(CountedRoot& before) {
  attempts_ = std::move(before.attempts_);
  deleted_ = std::move(before.deleted_);
  pinned_ = std::move(before.pinned_);
  marks_ = std::move(before.marks_);
  rosters_of_ = std::move(before.rosters_of_);
  heads_ = std::move(before.heads_);
  damaged_ = std::move(before.damaged_);
}

CountedRoot::Work CountedRoot::read_choice(const actors::operation::ReadLoadChoice& read) {
  StorageSteps steps{{StepKind::look, 1}};
  const std::pair number(chooser_of(read), read.ordinal);
  if (choices_.contains(number)) steps.push_back({StepKind::read, kChoiceBytes});
  return {std::move(steps), [this, number]() -> Result<actors::OperationResult> {
            auto found = choices_.find(number);
            if (found == choices_.end()) return Status(Code::not_found, "no load has chosen yet");
            return actors::OperationResult(found->second);
          }};
}

CountedRoot::Work CountedRoot::publish_choice(const actors::operation::PublishLoadChoice& publish) {
  uint64_t bytes = kChoiceBytes;
  if (publish.choice.passed_over) {
    for (const PassedOverAttempt& each : publish.choice.passed_over->named) {
      bytes += kPassedOverBytes + each.cause.size();
    }
  }
  StorageSteps steps;
  add_create(steps, bytes);
  return {
      std::move(steps), [this, publish]() -> Result<actors::OperationResult> {
        auto existing = choices_.try_emplace({chooser_of(publish), publish.ordinal}, publish.choice).first;
        return actors::OperationResult(existing->second);
      }};
}

// Lists the root, the folder of each step, and the newest attempts up to the newest committed one. The head
// of a decision shows whether it commits.
CountedRoot::Work CountedRoot::list_newest_attempts() {
  StorageSteps steps{{StepKind::list, attempts_.size()}};
  for (size_t i = 0; i < attempts_.size(); ++i) steps.push_back({StepKind::list, 1});
  auto committed = [](const Attempt& attempt) { return attempt.decision && attempt.decision->committed(); };
  for (auto found = attempts_.rbegin(); found != attempts_.rend(); ++found) {
    steps.push_back({StepKind::list, found->second.entries()});
    if (found->second.decision) add_read(steps, 1, storage::kRecordHeadBytes, 1);
    if (committed(found->second)) break;
  }
  return {std::move(steps), [this, committed]() -> Result<actors::OperationResult> {
            storage::AttemptList list;
            for (auto found = attempts_.rbegin(); found != attempts_.rend(); ++found) {
              if (found->second.entries() != 0) list.attempts.push_back(info_of(found->first, found->second));
              if (committed(found->second)) break;
            }
            std::reverse(list.attempts.begin(), list.attempts.end());
            return actors::OperationResult(std::move(list));
          }};
}

CountedRoot::Work CountedRoot::list_attempts_of_step(const actors::operation::ListAttemptsOfStep& list) {
  StorageSteps steps;
  for (const auto& [key, attempt] : attempts_) {
    if (key.step == list.step) steps.push_back({StepKind::list, attempt.entries()});
  }
  if (steps.empty()) steps.push_back({StepKind::look, 1});
  return {std::move(steps), [this, step = list.step]() -> Result<actors::OperationResult> {
            storage::AttemptList found;
            for (const auto& [key, attempt] : attempts_) {
              if (key.step == step && attempt.entries() != 0) found.attempts.push_back(info_of(key, attempt));
            }
            return actors::OperationResult(std::move(found));
          }};
}

// Counts the requests. What the list says is known to the storage only, and so are the places of ranges.
CountedRoot::Work CountedRoot::list_checkpoints() {
  StorageSteps steps{{StepKind::list, attempts_.size() + 1}};
  for (const auto& [key, attempt] : attempts_) {
    steps.push_back({StepKind::list, attempt.entries()});
    if (attempt.decision) add_read(steps, 1, attempt.decision_bytes, 1);
  }
  return {std::move(steps), []() -> Result<actors::OperationResult> {
            return actors::OperationResult(std::make_shared<const CheckpointList>());
          }};
}

CountedRoot::Work CountedRoot::locate_ranges(const actors::operation::LocateRanges& locate, size_t node) {
  StorageSteps steps;
  for (const actors::operation::ReadRange& range : locate.ranges) open_shard(steps, *range.piece, node);
  return answer(
      std::move(steps),
      actors::OperationResult(actors::LocatedRangesPtr(std::make_shared<const actors::LocatedRanges>())));
}

CountedRoot::Work CountedRoot::verify_checkpoint(const actors::operation::VerifyCheckpoint& verify) {
  const auto found = attempts_.find(verify.key);
  if (found == attempts_.end() || !found->second.decision || !found->second.decision->committed()) {
    return {{{StepKind::look, 1}}, [key = verify.key]() -> Result<actors::OperationResult> {
              return Status(Code::not_found, to_string(key) + " is not committed");
            }};
  }
  StorageSteps steps;
  uint64_t bytes = 0;
  const std::vector<storage::FileEntry>& files = found->second.decision->manifest().files;
  for (const storage::FileEntry& file : files) bytes += file.size;
  add_read(steps, files.size(), bytes, 1);
  return {std::move(steps), [this, key = verify.key]() -> Result<actors::OperationResult> {
            const auto now = attempts_.find(key);
            const bool is_there =
                now != attempts_.end() && now->second.decision && now->second.decision->committed();
            if (!is_there) return Status(Code::not_found, to_string(key) + " is not committed");
            if (damaged_.contains(key)) return Status(Code::corrupt, to_string(key) + ": a bit has flipped");
            return actors::OperationResult(actors::operation::Done{});
          }};
}

CountedRoot::Work CountedRoot::pin_attempt(const actors::operation::PinAttempt& pin) {
  StorageSteps steps;
  add_create(steps, kPinBytes);
  Nonce id;
  store_le64(id.bytes.data(), ++pins_);
  auto mark = std::make_shared<const storage::Mark>(
      storage::Mark{storage::pin_name(id), pin.key, true, 0, pin.holder, 0, id});
  return {std::move(steps), [this, mark] {
            if (!is_stored_) keep_pin(*mark);
            return Result<actors::OperationResult>(mark);
          }};
}

// Read, then replaced under another name.
CountedRoot::Work CountedRoot::renew_pin(const actors::operation::RenewPin& renew) {
  StorageSteps steps;
  add_read(steps, 1, kPinBytes, 1);
  add_create(steps, kPinBytes);
  return {std::move(steps), [this, name = renew.pin->name]() -> Result<actors::OperationResult> {
            if (removed_pins_.contains(name)) return Status(Code::not_found, name + " was removed");
            return actors::OperationResult(actors::operation::Done{});
          }};
}

// Its name, then its folder is synced.
CountedRoot::Work CountedRoot::remove_pin(const actors::operation::RemovePin& remove) {
  return {{{StepKind::change, costs_.is_objects ? 1u : 2u}},
          [this, name = remove.name]() -> Result<actors::OperationResult> {
            if (!name.empty()) removed_pins_.insert(name);
            pinned_.erase(name);
            // A role ends leases only.
            const auto mark = marks_.find(name);
            if (mark != marks_.end() && !wrongly_deleted_) wrongly_deleted_ = mark->second;
            return actors::OperationResult(actors::operation::Done{});
          }};
}

CountedRoot::Work CountedRoot::read_batch(const actors::operation::ReadBatch& read, size_t node) {
  return answer(read_ranges(read.ranges, node), actors::OperationResult(DamageList{}));
}

CountedRoot::Work CountedRoot::read_chunk(const actors::operation::ReadChunk& read, size_t node) {
  auto chunk = std::make_shared<actors::Chunk>();
  for (const actors::operation::ReadRange& range : read.ranges) chunk->size += range.end - range.begin;
  return answer(read_ranges(read.ranges, node), actors::OperationResult(actors::ChunkPtr(std::move(chunk))));
}

CountedRoot::Work CountedRoot::check_chunk(const actors::operation::CheckChunk& check, size_t node) {
  StorageSteps steps;
  for (const actors::operation::ReadRange& range : check.ranges) open_shard(steps, *range.piece, node);
  return answer(std::move(steps), actors::OperationResult(actors::operation::Done{}));
}

CountedRoot::OpenShard& CountedRoot::keep_open(OpenShard shard, size_t node) {
  std::deque<OpenShard>& open = open_shards_[node];
  std::erase_if(open, [&](const OpenShard& each) { return each.id == shard.id; });
  open.push_front(shard);
  if (open.size() > actors::kMaxOpenShards) open.pop_back();
  return open.front();
}

uint64_t CountedRoot::header_bytes(uint64_t shard_id) const {
  auto head = heads_.find(shard_id);
  SHOAL_CHECK(head != heads_.end());  // every file that a manifest lists was written
  return head->second;
}

CountedRoot::OpenShard& CountedRoot::open_shard(StorageSteps& steps, const actors::operation::PieceRef& piece,
                                                size_t node) {
  const std::deque<OpenShard>& open = open_shards_[node];
  const uint64_t id = id_of(piece);
  auto found = std::find_if(open.begin(), open.end(), [&](const OpenShard& each) { return each.id == id; });
  if (found != open.end()) return keep_open(*found, node);
  add_read(steps, 1, header_bytes(id), 1);
  return keep_open({id, true}, node);
}

CountedRoot::Work CountedRoot::read_header(const actors::operation::PieceRef& piece, size_t node) {
  StorageSteps steps;
  const uint64_t bytes = header_bytes(id_of(piece));
  add_read(steps, 1, bytes, 1);
  return {std::move(steps), [this, id = id_of(piece), bytes, node]() -> Result<actors::OperationResult> {
            keep_open({id, true}, node);
            if (bytes > actors::kMaxPassedHeaderBytes)
              return Status(Code::too_large, "a header is too large to be sent to another node");
            auto header = std::make_shared<actors::Chunk>();
            header->size = bytes;
            return actors::OperationResult(actors::ChunkPtr(std::move(header)));
          }};
}

CountedRoot::Work CountedRoot::check_header(const actors::operation::PieceRef& piece, size_t node) {
  return {{}, [this, id = id_of(piece), node]() -> Result<actors::OperationResult> {
            keep_open({id, false}, node);
            return actors::OperationResult(actors::operation::Done{});
          }};
}

CountedRoot::Work CountedRoot::measure_objects(const actors::operation::MeasureObjects& measure,
                                               size_t node) {
  StorageSteps steps;
  for (const auto& piece : measure.pieces) open_shard(steps, *piece, node);
  std::vector<uint64_t> lengths(measure.pieces.size(), kSimulatedObjectBytes);
  return {std::move(steps), [lengths] { return Result<actors::OperationResult>(lengths); }};
}

// Opens each shard, then reads the ranges one after the other.
StorageSteps CountedRoot::read_ranges(const std::vector<actors::operation::ReadRange>& ranges, size_t node) {
  StorageSteps steps;
  auto range = ranges.begin();
  while (range != ranges.end()) {
    const std::string& name = range->piece->file_name;
    OpenShard& shard = open_shard(steps, *range->piece, node);
    // In an object store, this is the request for the bytes.
    if (!std::exchange(shard.has_file, true) && !costs_.is_objects) steps.push_back({StepKind::look, 1});
    uint64_t bytes = 0, count = 0;
    for (; range != ranges.end() && range->piece->file_name == name; ++range, ++count) {
      bytes += range->end - range->begin;
    }
    if (costs_.is_objects) steps.push_back({StepKind::look, count});  // one request each
    steps.push_back({StepKind::read, bytes});
  }
  return steps;
}

bool CountedRoot::has_only_roster(const RosterId& id) const {
  return std::ranges::all_of(rosters_of_, [&](const auto& of_generation) {
    return std::ranges::all_of(of_generation.second, [&](const storage::RosterRecord& record) {
      return record.world->roster.id() == id;
    });
  });
}

void CountedRoot::add_header_bytes(const AttemptKey& key, Rank rank, std::vector<uint64_t>& out) const {
  for (uint32_t file = 0; file < kMaxFilesPerRank; ++file) {
    const std::optional<uint64_t> bytes = file_bytes(key, rank, file);
    if (!bytes) continue;
    const auto head = heads_.find(xxh3_64(to_string(key) + shard_file_name(rank, file)));
    out.insert(out.end(), {file, *bytes, head == heads_.end() ? 0 : head->second});
  }
}

void CountedRoot::keep_head(const AttemptKey& key, Rank rank, uint32_t file, uint64_t bytes) {
  heads_[xxh3_64(to_string(key) + shard_file_name(rank, file))] = bytes;
}

}  // namespace shoal::sim
