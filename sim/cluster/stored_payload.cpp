#include "sim/cluster/stored_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

#include "actors/executor/operation_runner.h"
#include "actors/node/clients/staged_parts.h"
#include "actors/operation_traits.h"
#include "base/visit.h"
#include "shoal/dtype.h"
#include "sim/basics/integer_math.h"
#include "sim/cluster/client_ids.h"
#include "storage/retention/readers.h"

namespace shoal::sim {

namespace {

// The records whose counted size is only an upper bound (counted_root.cpp): rosters, tombstones, choices,
// pins.
bool may_write_less_than_counted(const actors::Operation& operation) {
  using namespace actors::operation;
  return std::visit(
      base::Overloaded{
          [](const base::OneOf<WriteShard, PublishRankManifest, CompleteRankLocal, CompleteAttempt> auto&) {
            return false;
          },
          [](const PublishDecision& publish) {
            return !std::holds_alternative<storage::Manifest>(*publish.body);
          },
          // These create small records, or nothing.
          [](const base::OneOf<
              RecordStaged, ListMissingManifests, ReadDecision, DecodeDecision, VerifyCheckpoint, CheckFiles,
              RecordDecision, PublishRoster, ReadRoster, ReadEpoch, ListAttempts, ListNewestAttempts,
              ListAttemptsOfStep, ListCheckpoints, InspectAttempt, SweepAttempt, PinAttempt, RenewPin,
              RemovePin, PlanRetention, DeleteCheckpoint, RemoveRemains, PublishLoadChoice, ReadLoadChoice,
              MeasureObjects, ReadBatch, LocateRanges, ListenToPeers, ReadChunk, CheckChunk, ReadHeader,
              CheckHeader, CopyChunk, ReleaseWindow, MeasureWrites> auto&) { return true; }},
      operation);
}

void put_element(uint64_t name, uint64_t index, uint64_t bytes, std::byte* out) {
  for (uint64_t done = 0; done < bytes; done += 8) {
    const uint64_t word = mix64(name ^ (index + (done << 56)));
    std::memcpy(out + done, &word, std::min<uint64_t>(8, bytes - done));
  }
}

uint64_t element_bytes_of(const storage::ShardPiece& piece) {
  return piece.is_object ? 1 : dtype_bytes(piece.dtype).value();
}

// The box of an object or of a tensor, as fill_with_known_bytes needs it.
std::pair<Dims, Box> place_of(const storage::ShardPiece& piece) {
  if (!piece.is_object) return {piece.global_shape, piece.box};
  const Dims bytes{piece.bytes};
  return {bytes, Box{{0}, bytes}};
}

uint64_t bytes_of_window(const actors::operation::ReadBatch& batch) {
  uint64_t bytes = 0;
  for (const actors::operation::ReadRange& range : batch.ranges) {
    bytes = std::max(bytes, range.slab_offset + (range.end - range.begin));
  }
  return bytes;
}

}  // namespace

uint64_t state_of(const AttemptKey& key) {
  return mix64(mix64(mix64(key.generation) + key.attempt) + key.step);
}

void fill_with_known_bytes(uint64_t state, std::string_view fqn, const Dims& shape, const Box& box,
                           uint64_t element_bytes, uint64_t offset, MutableByteView out) {
  SHOAL_CHECK(offset % element_bytes == 0 && box.sizes.size() == shape.size());
  const uint64_t name = xxh3_64(fqn) ^ state;
  const size_t dims = shape.size();
  // The coordinates of the current element within the box.
  std::vector<uint64_t> at(dims);
  uint64_t rest = offset / element_bytes;
  for (size_t d = dims; d-- > 0;) {
    at[d] = rest % box.sizes[d];
    rest /= box.sizes[d];
  }
  std::byte* next = out.data();
  std::byte* const end = next + out.size();
  while (next != end) {
    uint64_t index = 0;  // index of the element in the tensor
    for (size_t d = 0; d < dims; ++d) index = index * shape[d] + box.offsets[d] + at[d];
    const uint64_t in_row = dims == 0 ? 1 : box.sizes[dims - 1] - at[dims - 1];
    for (uint64_t i = 0; i < in_row && next != end; ++i) {
      const uint64_t bytes = std::min<uint64_t>(element_bytes, static_cast<uint64_t>(end - next));
      put_element(name, index + i, bytes, next);
      next += bytes;
    }
    if (dims == 0) return;
    at[dims - 1] = 0;
    for (size_t d = dims - 1; d-- > 0;) {
      if (++at[d] < box.sizes[d]) break;
      at[d] = 0;
    }
  }
}

// The staged bytes by connection and slab, computed when they are read. A slab outlives the connection of its
// client. It keeps the save that was computed last, because the files of a rank are written one after the
// other. It also has the window of each client that loads.
//
// A save in parts has a slab that holds some of its bytes. Its trainer copies when the writer waits for
// a part; until then the place has other bytes. Requests and answers pass through the node's
// StagedParts.
class StoredPayload::StagedSlabs final : public actors::Slabs {
 public:
  struct Staged {
    AttemptKey key;
    LayoutPtr layout;
    Rank rank = 0;
    SharedVector<local::StagedPiece> pieces;
    uint64_t parts_slab_bytes = 0;
  };

  void stage(actors::ClientId client, uint32_t slab_id, Staged staged) {
    const Place place{rank_of(client), slab_id, client};
    staged_[place] = std::move(staged);
    if (made_of_ == place) made_.reset();
  }
  void free(Rank rank, uint32_t slab_id, const AttemptKey& key) {
    const auto end = staged_.lower_bound({rank, slab_id + 1, 0});
    for (auto each = staged_.lower_bound({rank, slab_id, 0}); each != end;) {
      if (each->second.key != key) {
        ++each;
        continue;
      }
      if (made_of_ == each->first) made_.reset();
      each = staged_.erase(each);
    }
  }
  void parts_copied(PartsCopied copied) { copied_ = std::move(copied); }
  void clear() {
    staged_.clear();
    made_.reset();
    windows_.clear();
  }
  // A window is as long as what was read into it so far requires.
  void widen_window(actors::ClientId client, uint64_t bytes) {
    std::shared_ptr<Bytes>& window = windows_[client];
    if (!window) window = std::make_shared<Bytes>();
    if (window->size() < bytes) window->resize(bytes);
  }

  Result<View> find(actors::ClientId client, uint32_t slab_id) override {
    if (slab_id == kSimulatedWindowSlab) {
      auto window = windows_.find(client);
      if (window == windows_.end()) {
        return Status(Code::not_found, fmt::format("client {} has no window", client));
      }
      return View{window->second, *window->second};
    }
    const auto found = staged_.find({rank_of(client), slab_id, client});
    if (found == staged_.end()) {
      return Status(Code::not_found, fmt::format("client {} has no slab {}", client, slab_id));
    }
    if (found->second.parts_slab_bytes != 0) {
      if (!parts_slab_ || parts_slab_->size() != found->second.parts_slab_bytes) {
        parts_slab_ = std::make_shared<Bytes>(found->second.parts_slab_bytes);
      }
      return View{parts_slab_, *parts_slab_};
    }
    make(found->first, found->second);
    return View{made_, *made_};
  }

  Result<std::unique_ptr<actors::PartSource>> parts_of(actors::ClientId client, uint32_t slab_id,
                                                       const AttemptKey& key) override {
    const auto found = staged_.find({rank_of(client), slab_id, client});
    if (!copied_ || found == staged_.end() || found->second.parts_slab_bytes == 0) {
      return Status(Code::not_found, fmt::format("client {} stages nothing in parts", client));
    }
    requested_.clear();
    parts_.client_attached(client);
    SHOAL_ASSIGN_OR_RETURN(auto source, parts_.open(client, slab_id, key));
    return std::unique_ptr<actors::PartSource>(
        std::make_unique<CopiedParts>(*this, client, found, *std::exchange(copied_, {}), std::move(source)));
  }

  Status release(actors::ClientId, uint32_t) override { return ok_status(); }

 private:
  using Place = std::tuple<Rank, uint32_t, actors::ClientId>;
  using StagedAt = std::map<Place, Staged>::const_iterator;

  // The trainer's end of a write in parts, which copies what PartsCopied says.
  class CopiedParts final : public actors::PartSource {
   public:
    CopiedParts(StagedSlabs& slabs, actors::ClientId client, StagedAt staged, PartsCopied copied,
                std::unique_ptr<actors::PartSource> node)
        : slabs_(slabs),
          client_(client),
          staged_(staged),
          copied_(std::move(copied)),
          node_(std::move(node)) {}

    uint64_t ask(std::vector<local::PartRange> ranges) override {
      for (const local::PartRange& range : ranges) {
        if (!fits(range)) continue;
        const MutableByteView place = MutableByteView(*slabs_.parts_slab_);
        std::ranges::fill(place.subspan(range.slab_offset, range.bytes), kNotCopied);
      }
      return node_->ask(std::move(ranges));
    }

    // The trainer has copied this part, and a fast one also those that are requested after it.
    Status wait(uint64_t number) override {
      const bool is_fast = (staged_->second.key.step + staged_->second.rank) % 2 == 0;
      for (auto next = slabs_.requested_.begin(); next != slabs_.requested_.end() && copies_ < copied_.copied;
           next = slabs_.requested_.erase(next)) {
        if (next->first > number && !is_fast) break;
        ++copies_;
        slabs_.parts_.answered(client_, {next->second.slab_id, next->first, copy(next->second)});
      }
      if (const auto refused = slabs_.requested_.find(number); refused != slabs_.requested_.end()) {
        if (copied_.end == PartsCopied::End::refused) {
          slabs_.parts_.answered(client_, {refused->second.slab_id, number, copied_.why});
        } else if (copied_.end == PartsCopied::End::gone) {
          slabs_.parts_.client_lost(client_);
        }
      }
      return node_->wait(number);
    }

   private:
    static constexpr std::byte kNotCopied{0xa5};

    bool fits(const local::PartRange& range) const {
      const uint64_t slab = slabs_.parts_slab_->size();
      return range.slab_offset <= slab && range.bytes <= slab - range.slab_offset;
    }
    // As a client does (client/session/staging.cpp).
    Status copy(const local::PartRequest& wanted) {
      const AttemptKey& key = staged_->second.key;
      if (wanted.step != key.step || wanted.attempt != key.attempt) {
        return Status(Code::aborted, "the trainer has given up this save");
      }
      slabs_.make(staged_->first, staged_->second);
      for (const local::PartRange& range : wanted.ranges) {
        const uint64_t all = slabs_.made_->size();
        if (!fits(range) || range.from > all || range.bytes > all - range.from) {
          return Status(Code::invalid_argument, "a part lies outside of the save");
        }
        const ByteView from = ByteView(*slabs_.made_).subspan(range.from, range.bytes);
        std::ranges::copy(from, slabs_.parts_slab_->begin() + static_cast<ptrdiff_t>(range.slab_offset));
      }
      return ok_status();
    }

    StagedSlabs& slabs_;
    const actors::ClientId client_;
    const StagedAt staged_;
    const PartsCopied copied_;
    const std::unique_ptr<actors::PartSource> node_;
    uint64_t copies_ = 0;
  };

  // Computes the staged bytes, as a slab that holds all of them.
  void make(const Place& place, const Staged& staged) {
    if (made_ && made_of_ == place) return;
    uint64_t bytes = 0;
    for (const local::StagedPiece& piece : staged.pieces) {
      bytes = std::max(bytes, piece.slab_offset + piece.bytes);
    }
    made_ = std::make_shared<Bytes>(bytes);
    made_of_ = place;
    const uint64_t state = state_of(staged.key);
    for (const local::StagedPiece& piece : staged.pieces) {
      const LayoutEntry& entry = staged.layout->entries()[piece.entry];
      const MutableByteView out = MutableByteView(*made_).subspan(piece.slab_offset, piece.bytes);
      const std::string fqn = value_fqn(entry, staged.rank);
      if (entry.kind == LayoutEntry::Kind::object) {
        fill_with_known_bytes(state, fqn, {piece.bytes}, Box{{0}, {piece.bytes}}, 1, 0, out);
        continue;
      }
      const std::vector<Box> boxes = staged.layout->shards_of(entry, staged.rank).boxes;
      fill_with_known_bytes(state, fqn, entry.shape, boxes.at(piece.local_box),
                            dtype_bytes(entry.dtype).value(), piece.local_offset, out);
    }
  }

  std::map<Place, Staged> staged_;
  std::map<actors::ClientId, std::shared_ptr<Bytes>> windows_;
  std::shared_ptr<Bytes> made_;
  Place made_of_;
  std::optional<PartsCopied> copied_;  // of the write that follows
  std::shared_ptr<Bytes> parts_slab_;
  std::map<uint64_t, local::PartRequest> requested_;  // by number
  // Answers are there before the writer waits, or never come.
  actors::StagedParts parts_{
      [this](actors::ClientId, const std::shared_ptr<const local::LocalMessage>& sent) {
        const auto& wanted = std::get<local::PartRequest>(*sent);
        requested_[wanted.number] = wanted;
      },
      std::chrono::milliseconds(0)};
};

StoredPayload::StoredPayload()
    : root_(std::make_shared<Root>()),
      catalog_(storage::make_memory_catalog()),
      slabs_(std::make_unique<StagedSlabs>()) {
  root_->open_storage();
  auto root_id = storage::open_root(*root_->storage, true, Nonce{});
  SHOAL_CHECK(root_id.ok());
  root_->id = *root_id;
}

StoredPayload::StoredPayload(const StoredPayload& before)
    : root_(before.root_),
      catalog_(storage::make_memory_catalog()),
      slabs_(std::make_unique<StagedSlabs>()),
      runners_of_(root_->storage_opened) {}

void StoredPayload::Root::open_storage() {
  auto opened = storage::LocalStorage::open(file_system, "/root", Nonce{});
  SHOAL_CHECK(opened.ok());
  storage = std::move(*opened);
  ++storage_opened;
}

void StoredPayload::lose_power(uint64_t seed) {
  root_->file_system.crash({MemoryFileSystem::Unsynced::Fate::mixed, seed});
  root_->open_storage();
}

StoredPayload::~StoredPayload() = default;

void StoredPayload::begin_generation() {
  runners_.clear();
  slabs_->clear();
  Nonce nonce;
  store_le64(nonce.bytes.data(), ++root_->nonces);
  SHOAL_CHECK(storage::claim_generation(*root_->storage, "simulated", nonce).ok());
}

uint32_t StoredPayload::begin_reader() {
  is_reader_ = true;
  Nonce nonce;
  store_le64(nonce.bytes.data(), mix64(++root_->nonces));
  const auto reader = storage::claim_reader(*root_->storage, "simulated-reader", nonce, 1);
  SHOAL_CHECK(reader.ok());
  return reader->number;
}

bool StoredPayload::rot(const AttemptKey& key, uint64_t part, uint64_t permille) {
  constexpr uint64_t kHeader = 1, kManifest = 2, kLengthBytes = 8, kHeadBytes = 32;
  const std::string folder = storage::attempt_folder(key);
  std::string name(storage::kDecisionName);
  if (part != kManifest) {
    const auto listed = root_->storage->list(folder);
    if (!listed.ok()) return false;
    std::vector<std::string> shards;
    for (const storage::ObjectInfo& object : *listed) {
      if (object.name.ends_with(".safetensors")) shards.push_back(object.name);
    }
    if (shards.empty()) return false;
    name = shards[permille % shards.size()];
  }
  const std::string path = folder + "/" + name;
  const auto file = root_->storage->open(path);
  if (!file.ok()) return false;
  uint64_t begin = 0, end = (*file)->size();
  if (part != kManifest) {
    Bytes length(kLengthBytes);
    if (!(*file)->read_at(0, length).ok()) return false;
    const uint64_t data = kLengthBytes + load_le64(length.data());
    if (part == kHeader) end = data;
    if (part != kHeader && data < end) begin = data;
  } else if (permille % 2 == 0) {
    end = std::min(end, kHeadBytes);  // which a listing reads
  }
  const uint64_t at = begin + std::min(end - begin - 1, (end - begin) * permille / 1000);
  root_->file_system.flip_bit(path, at * 8 + permille % 8);
  root_->damaged.emplace(key, part == kManifest);
  return true;
}

bool StoredPayload::may_differ(const actors::Operation& operation) const {
  const bool checks_chunk = std::holds_alternative<actors::operation::CheckChunk>(operation) ||
                            std::holds_alternative<actors::operation::CheckHeader>(operation);
  if (checks_chunk && root_->has_corrupt_chunks) return true;
  if (root_->damaged.empty()) return false;
  const auto is_damaged = [this](const auto& piece) { return root_->damaged.contains(piece->key); };
  const auto is_unreadable = [this](const AttemptKey& key) {
    const auto found = root_->damaged.find(key);
    return found != root_->damaged.end() && found->second;
  };
  using namespace actors::operation;
  return std::visit(
      base::Overloaded{
          // CountedRoot knows what these answer.
          [](const base::OneOf<ReadDecision, VerifyCheckpoint, DeleteCheckpoint> auto&) { return false; },
          [&](const base::OneOf<ListAttempts, ListNewestAttempts, ListAttemptsOfStep, ListCheckpoints,
                                PlanRetention> auto&) {
            return std::ranges::any_of(root_->damaged, [](const auto& each) { return each.second; });
          },
          [&](const auto& each) {
            if constexpr (requires { AttemptKey(each.key); }) {
              return is_unreadable(each.key);
            } else if constexpr (requires { each.ranges.front().piece; }) {
              return std::ranges::any_of(each.ranges,
                                         [&](const auto& range) { return is_damaged(range.piece); });
            } else if constexpr (requires { each.piece->key; }) {
              return is_damaged(each.piece);
            } else if constexpr (requires { each.pieces.front()->key; }) {
              return std::ranges::any_of(each.pieces, is_damaged);
            } else if constexpr (requires { each.manifest->key; }) {
              return is_unreadable(each.manifest->key);
            } else {
              return false;
            }
          }},
      operation);
}

void StoredPayload::stage(actors::ClientId client, uint32_t slab_id, const AttemptKey& key, LayoutPtr layout,
                          Rank rank, SharedVector<local::StagedPiece> pieces, uint64_t parts_slab_bytes) {
  slabs_->stage(client, slab_id, {key, std::move(layout), rank, std::move(pieces), parts_slab_bytes});
}

void StoredPayload::free(Rank rank, uint32_t slab_id, const AttemptKey& key) {
  slabs_->free(rank, slab_id, key);
}

void StoredPayload::parts_copied(PartsCopied copied) {
  slabs_->parts_copied(std::move(copied));
}

actors::OperationRunner& StoredPayload::runner(size_t node, bool has_catalog) {
  if (runners_of_ != root_->storage_opened) runners_.clear();
  runners_of_ = root_->storage_opened;
  std::unique_ptr<actors::OperationRunner>& runner = runners_[{node, has_catalog}];
  if (!runner) {
    actors::OperationRunner::Surroundings surroundings;
    surroundings.nonce = [this] {
      Nonce nonce;
      store_le64(nonce.bytes.data(), ++root_->nonces);
      return nonce;
    };
    surroundings.unix_time_ns = [] { return int64_t{1}; };
    surroundings.read_only = is_reader_;
    runner = std::make_unique<actors::OperationRunner>(
        *root_->storage, has_catalog ? catalog_.get() : nullptr, *slabs_, root_->id, std::move(surroundings));
  }
  return *runner;
}

Result<actors::OperationResult> StoredPayload::carry_out(size_t node, bool has_catalog,
                                                         const actors::Operation& operation,
                                                         Result<actors::OperationResult> counted,
                                                         uint64_t counted_bytes) {
  // The storage of a full run holds no records of epochs, and no peer listens.
  const bool is_only_counted = std::holds_alternative<actors::operation::ReadEpoch>(operation) ||
                               std::holds_alternative<actors::operation::ListenToPeers>(operation);
  if (is_only_counted) return counted;
  const auto* batch = std::get_if<actors::operation::ReadBatch>(&operation);
  const auto* copy = std::get_if<actors::operation::CopyChunk>(&operation);
  if (batch != nullptr && batch->slab_id == kSimulatedWindowSlab) {
    slabs_->widen_window(batch->client, bytes_of_window(*batch));
  }
  if (copy != nullptr) {
    for (const auto& each : copy->copies) slabs_->widen_window(each.client, each.slab_offset + each.bytes);
  }
  in_progress_ = actors::traits_of(operation).name;
  const uint64_t before = used_bytes();
  Result<actors::OperationResult> stored = runner(node, has_catalog).run(operation);
  const uint64_t after = used_bytes();
  // CountedRoot has no catalog, which keeps the decisions of checkpoints that were deleted since.
  const bool is_index = std::holds_alternative<actors::operation::RecordDecision>(operation) &&
                        stored.status().code() == Code::refused;
  if (!is_index && !may_differ(operation)) compare(counted, stored);
  // What was complete only after its cost was counted is committed instead of aborted.
  const auto* publish = std::get_if<actors::operation::PublishDecision>(&operation);
  const bool is_proven = publish != nullptr && stored.ok() &&
                         std::holds_alternative<storage::Tombstone>(*publish->body) &&
                         std::get<actors::DecisionPtr>(*stored)->committed();
  if (after > before && !is_proven) {
    const bool fits = may_write_less_than_counted(operation) && after - before <= counted_bytes;
    if (!fits) disagree("bytes written", counted_bytes, after - before);
  }
  if (const auto* write = std::get_if<actors::operation::WriteShard>(&operation);
      write != nullptr && stored.ok()) {
    // The first file under a name stays.
    root_->written.insert_or_assign(
        FileName{write->key, shard_file_name(write->rank, write->file)},
        WrittenFile{write->pieces, std::get<storage::WrittenShard>(*stored).header_digest});
  }
  if (batch != nullptr && stored.ok()) {
    check_bytes(batch->ranges, slabs_->find(batch->client, batch->slab_id)->bytes, false);
  }
  if (const auto* read = std::get_if<actors::operation::ReadChunk>(&operation);
      read != nullptr && stored.ok()) {
    check_bytes(read->ranges, std::get<actors::ChunkPtr>(*stored)->bytes, true);
  }
  return stored;
}

void StoredPayload::lose_shard(const AttemptKey& key, Rank rank, uint32_t file,
                               std::optional<uint64_t> bytes_left) {
  const std::string path = storage::shard_path(key, rank, file);
  if (bytes_left) return root_->file_system.resize(path, *bytes_left);
  root_->file_system.lose(path);  // a loss of power does not bring it back
}

void StoredPayload::mark(storage::MarkKind kind, const storage::Mark& mark) {
  const auto made = storage::create_mark(*root_->storage, kind, mark);
  SHOAL_CHECK(made.ok() && *made);
}

void StoredPayload::unmark(storage::MarkKind kind, const std::string& name) {
  SHOAL_CHECK(storage::remove_mark(*root_->storage, kind, name).ok());
}

void StoredPayload::disagree(std::string_view what, uint64_t counted, uint64_t stored) {
  if (counted == stored || !root_->disagreement.ok()) return;
  root_->disagreement = Status(
      Code::internal, fmt::format("{}: {}: counted {}, stored {}", in_progress_, what, counted, stored));
}

void StoredPayload::compare(const Result<actors::OperationResult>& counted,
                            const Result<actors::OperationResult>& stored) {
  if (!counted.ok() || !stored.ok()) {
    if (counted.status().code() == stored.status().code() || !root_->disagreement.ok()) return;
    root_->disagreement =
        Status(Code::internal, fmt::format("{}: counted: {}, stored: {}", in_progress_,
                                           counted.status().to_string(), stored.status().to_string()));
    return;
  }
  disagree("kind of answer", counted->index(), stored->index());
  if (counted->index() != stored->index()) return;
  std::visit(
      base::Overloaded{
          [&](const storage::WrittenShard& shard) {
            const auto& written = std::get<storage::WrittenShard>(*stored);
            disagree("bytes of a shard", shard.size, written.size);
            disagree("bytes of a shard's tensors", shard.payload_bytes, written.payload_bytes);
          },
          [&](const actors::DecisionPtr& decision) {
            compare(*decision, *std::get<actors::DecisionPtr>(*stored));
          },
          [&](const storage::AttemptList& list) { compare(list, std::get<storage::AttemptList>(*stored)); },
          [&](const storage::AttemptInfo& info) { compare(info, std::get<storage::AttemptInfo>(*stored)); },
          [&](const std::vector<uint64_t>& lengths) {
            disagree("the same lengths of objects", 1, lengths == std::get<std::vector<uint64_t>>(*stored));
          },
          [&](const actors::ChunkPtr& chunk) {
            disagree("bytes of a chunk", chunk->size, std::get<actors::ChunkPtr>(*stored)->size);
          },
          [&](const storage::LoadChoice& choice) {
            disagree("the same choice", 1, choice.key == std::get<storage::LoadChoice>(*stored).key);
          },
          [&](const storage::RosterRecord& roster) {
            const auto& existing = std::get<storage::RosterRecord>(*stored);
            disagree("the same roster", 1, roster.world->roster.id() == existing.world->roster.id());
          },
          [&](const std::shared_ptr<const storage::RetentionPlan>& plan) {
            compare(*plan, *std::get<std::shared_ptr<const storage::RetentionPlan>>(*stored));
          },
          [&](const storage::DeletionResult& deletion) {
            disagree("outcome of a deletion", static_cast<uint64_t>(deletion.outcome),
                     static_cast<uint64_t>(std::get<storage::DeletionResult>(*stored).outcome));
          },
          // Not compared: values with nonces and times of their own, bytes that a sweep removed, which
          // CountedRoot estimates, and answers that only one of the two gives.
          [](const base::OneOf<actors::operation::Done, uint64_t, std::shared_ptr<const storage::Mark>,
                               std::shared_ptr<const storage::EpochRecord>, std::string, DamageList,
                               actors::LocatedRangesPtr, std::shared_ptr<const CheckpointList>> auto&) {}},
      *counted);
}

void StoredPayload::compare(const storage::AttemptList& counted, const storage::AttemptList& stored) {
  disagree("attempts", counted.attempts.size(), stored.attempts.size());
  disagree("damaged attempts", 0, stored.damaged.size());
  if (counted.attempts.size() != stored.attempts.size()) return;
  for (size_t i = 0; i < stored.attempts.size(); ++i) compare(counted.attempts[i], stored.attempts[i]);
}

void StoredPayload::compare(const storage::RetentionPlan& counted, const storage::RetentionPlan& stored) {
  // A node remembers what it has read. So its plan may have a checkpoint that another node has deleted, if a
  // late write made the folder again. The deletion reads it anew.
  const auto has_all = [this](std::string_view what, const auto& all, const auto& among) {
    for (const storage::RetentionPlan::Item& item : all) {
      const auto is_it = [&](const storage::RetentionPlan::Item& other) { return other.key == item.key; };
      if (!std::ranges::any_of(among, is_it)) disagree(to_string(item.key) + " " + std::string(what), 1, 0);
    }
  };
  has_all("stays", counted.keep, stored.keep);
  has_all("goes", counted.remove, stored.remove);
  disagree("damaged checkpoints", 0, stored.damaged.size());
}

void StoredPayload::compare(const storage::Decision& counted, const storage::Decision& stored) {
  disagree("committed", counted.committed(), stored.committed());
  if (!counted.committed() || !stored.committed()) return;
  const storage::Manifest& one = counted.manifest();
  const storage::Manifest& other = stored.manifest();
  disagree("the same roster", 1, one.world->roster.id() == other.world->roster.id());
  disagree("bytes of all tensors", one.payload_bytes, other.payload_bytes);
  disagree("files", one.files.size(), other.files.size());
  for (size_t i = 0; i < std::min(one.files.size(), other.files.size()); ++i) {
    const storage::FileEntry& file = one.files[i];
    const storage::FileEntry& written = other.files[i];
    disagree("bytes of a file", file.size, written.size);
    // CountedRoot has no digests.
    const auto known = root_->written.find({stored.key, written.name});
    disagree("the same file", 1,
             file.name == written.name && file.rank == written.rank && known != root_->written.end() &&
                 known->second.header_digest == written.header_digest);
  }
}

void StoredPayload::compare(const storage::AttemptInfo& counted, const storage::AttemptInfo& stored) {
  disagree("the same attempt", 1, counted.key == stored.key);
  disagree("state", static_cast<uint64_t>(counted.state), static_cast<uint64_t>(stored.state));
  // Files that were swept come back if the storage loses power before it has written their removal.
  const bool may_come_back =
      root_->storage_opened > 1 && stored.state == storage::AttemptInfo::State::aborted;
  const auto same_unless_back = [&](std::string_view what, uint64_t one, uint64_t other) {
    if (!may_come_back || other < one) disagree(what, one, other);
  };
  same_unless_back("files", counted.leftover_files, stored.leftover_files);
  same_unless_back("rank manifests", counted.rank_manifests, stored.rank_manifests);
  same_unless_back("ranks of their manifests", counted.rank_world, stored.rank_world);
}

void StoredPayload::check_loaded(actors::ClientId client, const AttemptKey& key,
                                 const local::LoadTarget& target, const local::LoadedPiece& piece) {
  auto window = slabs_->find(client, kSimulatedWindowSlab);
  const bool is_there = window.ok() && piece.slab_offset + piece.bytes <= window->bytes.size();
  check_range(key, target, piece,
              is_there ? window->bytes.subspan(piece.slab_offset, piece.bytes) : ByteView());
}

void StoredPayload::check_range(const AttemptKey& key, const local::LoadTarget& target,
                                const local::StoredRange& range, ByteView bytes) {
  in_progress_ = "Loaded";
  const bool is_object = target.kind == LayoutEntry::Kind::object;
  Bytes expected(range.bytes);
  const Box box = is_object ? Box{{0}, {range.piece_bytes}} : range.box;
  const Dims shape = is_object ? Dims{range.piece_bytes} : target.shape;
  const uint64_t element_bytes = is_object ? 1 : dtype_bytes(target.dtype).value();
  fill_with_known_bytes(state_of(key), target.fqn, shape, box, element_bytes, range.piece_offset, expected);
  if (!std::ranges::equal(expected, bytes)) disagree("the bytes of " + target.fqn + " in the window", 1, 0);
}

Result<Bytes> StoredPayload::read_file(const std::string& path, uint64_t offset, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const auto file, root_->storage->open(path));
  Bytes out(bytes);
  SHOAL_RETURN_IF_ERROR(file->read_at(offset, out));
  return out;
}

const storage::ShardPiece* StoredPayload::piece_of(const actors::operation::PieceRef& ref) {
  auto file = root_->written.find({ref.key, ref.file_name});
  if (file == root_->written.end()) return nullptr;
  auto& by_key = root_->by_key[file->first];
  if (by_key.empty()) {
    for (const storage::ShardPiece& piece : file->second.pieces.vector()) by_key.emplace(piece.key, &piece);
  }
  auto found = by_key.find(ref.piece_key);
  return found == by_key.end() ? nullptr : found->second;
}

void StoredPayload::check_bytes(const std::vector<actors::operation::ReadRange>& ranges, ByteView bytes,
                                bool are_in_order) {
  uint64_t next = 0;
  for (const actors::operation::ReadRange& range : ranges) {
    const storage::ShardPiece* piece = piece_of(*range.piece);
    if (piece == nullptr) {
      return disagree("the piece " + range.piece->piece_key + " was written", 1, 0);
    }
    Bytes expected(range.end - range.begin);
    const auto [shape, box] = place_of(*piece);
    fill_with_known_bytes(state_of(range.piece->key), piece->fqn, shape, box, element_bytes_of(*piece),
                          range.begin, expected);
    const ByteView read = bytes.subspan(are_in_order ? next : range.slab_offset, expected.size());
    const bool is_equal = std::equal(read.begin(), read.end(), expected.begin());
    if (!is_equal) disagree("the bytes of " + piece->fqn, 1, 0);
    next += expected.size();
    root_->bytes_checked += expected.size();
  }
}

}  // namespace shoal::sim
