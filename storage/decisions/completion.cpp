#include "storage/decisions/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/helper_threads.h"
#include "base/rank_names.h"
#include "storage/decisions/rank_manifest_set.h"
#include "storage/decisions/staged_record.h"
#include "storage/root/run_root.h"
#include "storage/shards/shard_file.h"

namespace shoal::storage {

namespace {

constexpr size_t kRanksPerThread = 32;
constexpr size_t kMaxProofThreads = 8;
constexpr std::string_view kShardPrefix = "rank-";

struct ListedShard {
  Rank rank = 0;
  uint32_t file = 0;
  friend auto operator<=>(const ListedShard&, const ListedShard&) = default;
};

std::optional<ListedShard> parse_shard_name(std::string_view name) {
  if (!name.starts_with(kShardPrefix)) return std::nullopt;
  const char* const last = name.data() + name.size();
  ListedShard shard;
  auto [end, error] = std::from_chars(name.data() + kShardPrefix.size(), last, shard.rank);
  if (error != std::errc()) return std::nullopt;
  if (end != last && *end == '-' && std::from_chars(end + 1, last, shard.file).ec != std::errc()) {
    return std::nullopt;
  }
  if (shard_file_name(shard.rank, shard.file) != name) return std::nullopt;
  return shard;
}

// Ascending by rank, then by index.
std::vector<ListedShard> shards_in(const std::vector<ObjectInfo>& listed) {
  std::vector<ListedShard> shards;
  for (const ObjectInfo& object : listed) {
    std::optional<ListedShard> shard = parse_shard_name(object.name);
    if (shard && !object.is_folder) shards.push_back(*shard);
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

// The ranks with a staged record: they staged the attempt and write nothing. Ascending.
std::vector<Rank> records_in(const std::vector<ObjectInfo>& listed) {
  std::vector<Rank> ranks;
  for (const ObjectInfo& object : listed) {
    std::optional<Rank> rank = parse_staged_record_name(object.name);
    if (rank && !object.is_folder) ranks.push_back(*rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::span<const ListedShard> shards_of(const std::vector<ListedShard>& shards, Rank rank) {
  auto [begin, end] = std::equal_range(shards.begin(), shards.end(), ListedShard{rank, 0},
                                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return {begin, end};
}

// One attempt's folder, compared with one roster.
class Proof {
 public:
  Proof(Storage& storage, const AttemptKey& key, const std::vector<ListedShard>& shards,
        const std::vector<Rank>& records, const RosterRecord& roster)
      : storage_(storage),
        folder_(attempt_folder(key)),
        key_(key),
        shards_(shards),
        records_(records),
        world_(*roster.world),
        options_(roster.options),
        roster_(roster) {}

  // A rank without a shard may have staged a layout other than this roster's. It then waited for a later
  // roster, which may never have been published or may be damaged. So even a plan without files proves
  // nothing about the rank; only its staged record does.
  Status check_ranks() const {
    const uint32_t ranks = world_.roster.world_size();
    if (shards_.back().rank >= ranks) {
      return missing(fmt::format("{} exists, but the roster has only {} ranks",
                                 shard_file_name(shards_.back().rank, shards_.back().file), ranks));
    }
    if (!records_.empty() && records_.back() >= ranks) {
      return missing(fmt::format("{} exists, but the roster has only {} ranks",
                                 staged_record_name(records_.back()), ranks));
    }
    std::vector<Rank> absent;
    size_t next = 0, next_record = 0;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const bool has_shard = next < shards_.size() && shards_[next].rank == rank;
      const bool has_record = next_record < records_.size() && records_[next_record] == rank;
      if (has_shard && has_record) {
        return missing(fmt::format("{} exists, but so does a shard of that rank", staged_record_name(rank)));
      }
      if (!has_shard && !has_record) absent.push_back(rank);
      next_record += has_record;
      while (next < shards_.size() && shards_[next].rank == rank) ++next;
    }
    if (absent.empty()) return ok_status();
    return missing(fmt::format("there is no shard of {}, and no record that it has nothing to write",
                               base::name_ranks(absent)));
  }

  Result<Manifest> read_headers() const {
    const uint32_t ranks = world_.roster.world_size();
    std::vector<std::optional<Result<RankFiles>>> files_of_ranks(ranks);
    base::for_each_by_threads(
        ranks, std::min<size_t>(kMaxProofThreads, 1 + ranks / kRanksPerThread),
        [&](size_t rank) { files_of_ranks[rank] = read_rank_files(static_cast<Rank>(rank)); });
    Manifest manifest;
    manifest.world = roster_.world;
    manifest.rule_version = roster_.rule_version;
    manifest.options = options_;
    manifest.files.reserve(shards_.size());
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto& rank_files = files_of_ranks[rank];
      SHOAL_RETURN_IF_ERROR(rank_files->status());
      SHOAL_RETURN_IF_ERROR(take_user(rank, **rank_files, &manifest));
      for (FileEntry& file : (*rank_files)->files) manifest.files.push_back(std::move(file));
      manifest.payload_bytes += (*rank_files)->payload_bytes;
    }
    if (Status covers = check_coverage(world_, options_); !covers.ok()) {
      return Status(Code::corrupt, full_folder() + ": " + covers.message());
    }
    return manifest;
  }

 private:
  struct RankFiles {
    std::vector<FileEntry> files;
    uint64_t payload_bytes = 0;
    UserMetadata user;  // from its files or from its record
  };

  std::string full_folder() const { return storage_.describe() + "/" + folder_; }
  Status missing(std::string_view what) const {
    return Status(Code::not_found, fmt::format("{}: {}", full_folder(), what));
  }

  // Checks that all ranks have the same user metadata.
  Status take_user(Rank rank, const RankFiles& rank_files, Manifest* manifest) const {
    if (rank == 0) manifest->user = rank_files.user;
    Status same = check_same_user_metadata(0, manifest->user, rank, rank_files.user);
    return same.ok() ? same : Status(Code::corrupt, full_folder() + ": " + same.message());
  }

  Result<RankFiles> read_rank_files(Rank rank) const {
    auto planned = plan_save(world_, rank, options_);
    if (!planned.ok()) return Status(Code::corrupt, full_folder() + ": " + planned.status().message());
    const SavePlan& plan = *planned;
    const std::span<const ListedShard> listed = shards_of(shards_, rank);
    for (uint32_t file = 0; file < plan.files; ++file) {
      if (file >= listed.size() || listed[file].file != file) {
        return missing(shard_file_name(rank, file) + " is missing");
      }
    }
    if (listed.size() > plan.files) {
      return missing(fmt::format("{} exists, but the roster gives that rank {} shards",
                                 shard_file_name(rank, listed.back().file), plan.files));
    }
    RankFiles rank_files;
    if (plan.files == 0) {
      SHOAL_ASSIGN_OR_RETURN(rank_files.user, read_record(plan));
      return rank_files;
    }
    const std::vector<std::string> keys = item_keys(world_.layout_of(rank), plan);
    for (size_t item = 0, file = 0; file < plan.files; ++file) {
      SHOAL_RETURN_IF_ERROR(read_file(plan, keys, static_cast<uint32_t>(file), &item, &rank_files));
    }
    return rank_files;
  }

  // Compares the rank's record with the plan. Every roster that gives this rank the same layout and no file
  // matches.
  Result<UserMetadata> read_record(const SavePlan& plan) const {
    SHOAL_ASSIGN_OR_RETURN(StagedRecord record, read_staged_record(storage_, key_, plan.rank));
    if (record.layout_id == plan.layout_id && record.assignment_id == assignment_id_of(plan))
      return record.user;
    return missing(fmt::format("{} is of layout {}, but the roster gives that rank layout {}",
                               staged_record_name(plan.rank), record.layout_id.short_hex(),
                               plan.layout_id.short_hex()));
  }

  // `item`: the first item of this file; on return, the first one of the next file.
  Status read_file(const SavePlan& plan, const std::vector<std::string>& keys, uint32_t file, size_t* item,
                   RankFiles* rank_files) const {
    const std::string name = shard_file_name(plan.rank, file);
    SHOAL_ASSIGN_OR_RETURN(auto reader,
                           ShardReader::open(storage_, shard_path(key_, plan.rank, file), nullptr, nullptr));
    const ShardPieces& pieces = reader->pieces();
    size_t at = 0;
    for (; *item < plan.items.size() && plan.items[*item].file == file; ++*item, ++at) {
      if (at == pieces.size() || !is_item(pieces[at], plan, *item, keys[*item])) {
        return Status(Code::corrupt, fmt::format("{}/{}: it does not hold '{}' where the plan of its rank "
                                                 "puts it: it was written by another plan, or it is damaged",
                                                 full_folder(), name, keys[*item]));
      }
      rank_files->payload_bytes += pieces.bytes(at);
    }
    if (at != pieces.size()) {
      return Status(Code::corrupt,
                    fmt::format("{}/{}: it holds '{}', which the plan of its rank does not have",
                                full_folder(), name, pieces.key(at)));
    }
    UserMetadata user = or_none(reader->user());
    if (!rank_files->files.empty() && user != rank_files->user) {
      return Status(Code::corrupt,
                    fmt::format("{}/{}: its metadata of the save differs from that of the previous file",
                                full_folder(), name));
    }
    rank_files->user = std::move(user);
    rank_files->files.push_back({name, reader->file_size(), reader->header_digest(), plan.rank, file});
    return ok_status();
  }

  bool is_item(const ShardPiece& piece, const SavePlan& plan, size_t at, const std::string& key) const {
    const WriteItem& item = plan.items[at];
    const LayoutEntry& entry = world_.layout_of(plan.rank).entries()[item.entry];
    const bool is_object = entry.kind == LayoutEntry::Kind::object;
    return piece.key == key && piece.fqn == value_fqn(entry, plan.rank) && piece.dtype == entry.dtype &&
           piece.is_object == is_object && piece.global_shape == entry.shape && piece.box == item.box &&
           (is_object || piece.bytes == item.bytes);
  }

  Storage& storage_;
  const std::string folder_;
  const AttemptKey key_;
  const std::vector<ListedShard>& shards_;
  const std::vector<Rank>& records_;
  const World& world_;
  const SaveOptions options_;
  const RosterRecord& roster_;
};

bool have_same_layouts(const World& a, const World& b) {
  return a.roster.layout_ids() == b.roster.layout_ids() && a.roster.layout_runs() == b.roster.layout_runs();
}

Result<Manifest> prove_by_shards(Storage& storage, const AttemptKey& key) {
  const std::string folder = attempt_folder(key), full_folder = storage.describe() + "/" + folder;
  // A visible name may be newer than the last sync of its folder, so sync it first.
  SHOAL_RETURN_IF_ERROR(storage.sync_folder(folder));
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  const std::vector<ListedShard> shards = shards_in(listed);
  const std::vector<Rank> records = records_in(listed);
  if (shards.empty()) return Status(Code::not_found, full_folder + ": it holds no shard");
  // Read the rosters after the shards: a shard is written only after its roster was published.
  SHOAL_ASSIGN_OR_RETURN(std::vector<RosterRecord> rosters, list_rosters(storage, key.generation));
  std::erase_if(rosters, [](const auto& roster) { return roster.options.mode == SaveMode::rank_local; });
  std::optional<Manifest> proven;
  std::optional<Status> first_failure;
  for (const RosterRecord& roster : rosters) {
    const Proof proof(storage, key, shards, records, roster);
    Status ranks = proof.check_ranks();
    Result<Manifest> manifest = ranks.ok() ? proof.read_headers() : Result<Manifest>(ranks);
    if (!manifest.ok()) {
      if (!is_unproven(manifest.status())) return manifest.status();
      if (!first_failure) first_failure = manifest.status();
    } else if (proven && !have_same_layouts(*proven->world, *manifest->world)) {
      return Status(Code::not_found, full_folder + ": its shards match two rosters of its generation");
    } else if (!proven) {
      proven = std::move(*manifest);
    }
  }
  if (proven) return std::move(*proven);
  if (first_failure) return *first_failure;
  return Status(Code::not_found, fmt::format("{}: {} holds no readable roster of generation {}", full_folder,
                                             storage.describe() + "/generations", key.generation));
}

Result<Decision> prove_and_publish(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                   const BeforeCommit& before_commit) {
  SHOAL_ASSIGN_OR_RETURN(Manifest manifest, prove_complete(storage, key));
  SHOAL_RETURN_IF_ERROR(allow_commit(before_commit));
  return publish_decision_in_folder(
      storage, Decision{key, stamp.nonce, stamp.root_id, stamp.unix_time_ns, std::move(manifest)});
}

}  // namespace

bool is_unproven(const Status& why) {
  return why.code() == Code::not_found || why.code() == Code::corrupt;
}

Result<Manifest> prove_complete(Storage& storage, const AttemptKey& key) {
  SHOAL_ASSIGN_OR_RETURN(AttemptInfo info, inspect_attempt(storage, key));
  return info.rank_manifests != 0 ? merge_rank_manifests(storage, key) : prove_by_shards(storage, key);
}

Result<Decision> complete_attempt(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                  const BeforeCommit& before_commit) {
  auto existing = read_decision(storage, key);
  if (existing.ok() || existing.status().code() != Code::not_found) return existing;
  if (auto listed = storage.list(attempt_folder(key)); listed.status().code() == Code::not_found) {
    return folder_gone(key, stamp.root_id);
  }
  return prove_and_publish(storage, key, stamp, before_commit);
}

Result<Decision> complete_if_begun(Storage& storage, const AttemptKey& key, const DecisionStamp& stamp,
                                   const BeforeCommit& before_commit) {
  auto existing = read_decision(storage, key);
  if (existing.ok() || existing.status().code() != Code::not_found) return existing;
  return prove_and_publish(storage, key, stamp, before_commit);
}

}  // namespace shoal::storage
