#include "sim/failures/load_oracles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/visit.h"

namespace shoal::sim {

namespace {

std::string named(const std::optional<AttemptKey>& key) {
  return key ? to_string(*key) : "nothing";
}

}  // namespace

LoadOracles::LoadOracles(actors::TimeNs now, const RootView& root, std::optional<AttemptKey> before,
                         bool falls_back)
    : root_(root), began_(now), falls_back_(falls_back), existed_(root.committed()), newest_(root.latest()) {
  if (before && (!newest_ || *newest_ < *before)) {
    violated("latest-goes-forward", now,
             fmt::format("the latest checkpoint was {}, but now it is {}", named(before), named(newest_)));
  }
}

void LoadOracles::violated(std::string oracle, actors::TimeNs now, std::string what) {
  if (!violation_) violation_ = {std::move(oracle), now, std::move(what)};
}

bool LoadOracles::is_committed(const AttemptKey& key) const {
  const auto existing = root_.decision(key);
  return existing && existing->committed();
}

void LoadOracles::asked(actors::TimeNs now, const actors::Operation& operation) {
  if (is_over_) return;
  using namespace actors::operation;
  std::visit(
      base::Overloaded{
          [&](const base::OneOf<ReadBatch, ReadChunk, LocateRanges> auto& read) {
            for (const ReadRange& range : read.ranges) check_read(now, *range.piece);
          },
          [&](const ReadHeader& header) { check_read(now, *header.piece); },
          [&](const MeasureObjects& measure) {
            for (const auto& piece : measure.pieces) check_read(now, *piece);
          },
          // What peers sent, the verification before a choice, and all that reads no shard.
          [](const base::OneOf<
              CheckChunk, CheckHeader, CopyChunk, ReleaseWindow, ListenToPeers, WriteShard, RecordStaged,
              PublishDecision, PublishRankManifest, CompleteRankLocal, ListMissingManifests, CompleteAttempt,
              ReadDecision, DecodeDecision, VerifyCheckpoint, CheckFiles, RecordDecision, PublishRoster,
              ReadRoster, ReadEpoch, ListAttempts, ListNewestAttempts, ListAttemptsOfStep, ListCheckpoints,
              InspectAttempt, SweepAttempt, PinAttempt, RenewPin, RemovePin, PlanRetention, DeleteCheckpoint,
              RemoveRemains, PublishLoadChoice, ReadLoadChoice, MeasureWrites> auto&) {}},
      operation);
}

void LoadOracles::check_read(actors::TimeNs now, const actors::operation::PieceRef& piece) {
  if (!read_) {
    read_ = piece.key;
    if (!is_committed(piece.key)) {
      return violated("load-is-committed", now,
                      fmt::format("a load reads {} of {}, which is not committed", piece.file_name,
                                  to_string(piece.key)));
    }
    for (const storage::FileEntry& file : root_.decision(piece.key)->manifest().files) {
      const auto* index = std::get_if<uint32_t>(&file.contents);
      files_[file.name] = root_.file_bytes(piece.key, file.rank, index == nullptr ? 0 : *index).value_or(0);
    }
  }
  if (piece.key != *read_) {
    return violated(
        "load-is-one", now,
        fmt::format("one rank reads {}, but another reads {}", to_string(*read_), to_string(piece.key)));
  }
  const auto file = files_.find(piece.file_name);
  if (file == files_.end()) {
    violated("load-is-committed", now,
             fmt::format("a load reads {}, which {} does not list", piece.file_name, to_string(piece.key)));
  } else if (file->second != piece.file_size) {
    violated("load-is-committed", now,
             fmt::format("a load reads {} as {} bytes, but it has {}", piece.file_name, piece.file_size,
                         file->second));
  }
}

void LoadOracles::finish(actors::TimeNs now, uint32_t generation, bool is_rank_local) {
  if (!choice_) return;
  for (const AttemptKey& key : root_.committed()) {
    if (key.generation >= generation || (choice_->found && key <= choice_->key)) continue;
    if (falls_back_ && root_.damaged_at(key)) continue;  // passed over
    if (is_rank_local && std::ranges::find(undecided_, key) == undecided_.end()) continue;
    violated("choice-is-final", now,
             fmt::format("generation {} loads {}, but {} of an earlier run was committed later", generation,
                         choice_->found ? to_string(choice_->key) : "nothing", to_string(key)));
  }
}

void LoadOracles::check_choice(actors::TimeNs now, const std::optional<AttemptKey>& chosen) {
  if (falls_back_ && chosen) {
    const auto damaged = root_.damaged_at(*chosen);
    if (damaged && *damaged < began_) {
      violated("load-is-sound", now,
               fmt::format("a load chose {}, which was damaged before it began", to_string(*chosen)));
    }
  }
  std::optional<AttemptKey> newest;
  for (const AttemptKey& key : existed_) {
    if (root_.was_deleted(key) || (falls_back_ && root_.damaged_at(key))) continue;
    newest = std::max(newest.value_or(key), key);
  }
  if (newest && (!chosen || *chosen < *newest)) {
    violated("load-is-newest", now,
             fmt::format("a load chose {}, but {} is the newest", named(chosen), to_string(*newest)));
  }
}

void LoadOracles::answered(actors::TimeNs now, const actors::OperationResult& result) {
  if (is_over_) return;  // of trainers that read later
  const auto* choice = std::get_if<storage::LoadChoice>(&result);
  if (choice == nullptr) return;
  if (!choice_) {
    choice_ = *choice;
    undecided_ = root_.undecided();
  }
  const auto chosen = choice->found ? std::optional(choice->key) : std::nullopt;
  if (chosen && !is_committed(*chosen)) {
    violated("load-is-committed", now,
             fmt::format("a load chose {}, which is not committed", to_string(*chosen)));
  }
  check_choice(now, chosen);
}

}  // namespace shoal::sim
