#include "sim/failures/oracles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/rank_names.h"
#include "transport/transport.h"

namespace shoal::sim {

namespace {

std::string summary(const storage::Decision& decision) {
  if (!decision.committed()) return fmt::format("tombstone: {}", decision.tombstone().cause);
  const storage::Manifest& manifest = decision.manifest();
  return fmt::format("manifest of {} files, {} bytes", manifest.files.size(), manifest.payload_bytes);
}

// A party that gives up looks at the root first. Until its tombstone exists, files may still appear.
constexpr actors::TimeNs kOverlooked = 1'000 * actors::kMillisecond;

constexpr actors::TimeNs kLookAgain = 1'000 * actors::kMillisecond;  // at trainers that wait for a slab

}  // namespace

void Oracles::violated(std::string oracle, actors::TimeNs now, std::string what) {
  if (!violation_) violation_ = {std::move(oracle), now, std::move(what)};
}

std::vector<AttemptKey> Oracles::told_committed() const {
  std::vector<AttemptKey> keys;
  for (const auto& [key, was_checked] : checked_) keys.push_back(key);
  return keys;
}

void Oracles::superseded() {
  is_superseded_ = true;
  open_.clear();
}

void Oracles::save_begins(actors::TimeNs now, uint32_t save) {
  if (is_superseded_) return;
  began_[save] = now;
  open_[save] = {now, std::vector<bool>(facts_.ranks)};
  const actors::TimeNs is_due = due(save, open_[save], now);
  next_due_ = next_due_ == 0 ? is_due : std::min(next_due_, is_due);
}

bool Oracles::is_excused(const Save& save) const {
  if (save.began < facts_.recovered) return true;
  for (Rank rank = 0; rank < facts_.ranks; ++rank) {
    if (!facts_.lives(rank)) return true;
  }
  return false;
}

// A trainer may copy for any time, or wait for a slab. So the deadline counts from the first message to a
// node.
actors::TimeNs Oracles::due(uint32_t number, const Save& save, actors::TimeNs now) const {
  const actors::TimeNs writing = facts_.writing ? facts_.writing(number) : 0;
  const actors::TimeNs received = facts_.notified_at ? facts_.notified_at(number) : save.began;
  const actors::TimeNs while_failing =
      root_.has_roster() ? facts_.save_deadline : std::max(facts_.save_deadline, facts_.first_deadline);
  const actors::TimeNs deadline = is_excused(save) ? while_failing : facts_.prompt_deadline;
  return std::max(received < 0 ? now : received, facts_.failures_end) + deadline + writing;
}

void Oracles::answered(actors::TimeNs now, const std::shared_ptr<const storage::Decision>& decision) {
  if (root_.was_deleted(decision->key)) return;  // kept-by-rule
  const Known answer{decision->committed(), summary(*decision)};
  const auto [known, is_new] = known_.try_emplace(decision->key, answer);
  if (known->second.committed != answer.committed || known->second.summary != answer.summary) {
    violated("one-decision", now,
             fmt::format("{}: the decision was '{}', but now it is '{}'", to_string(decision->key),
                         known->second.summary, answer.summary));
  }
  const auto existing = root_.decision(decision->key);
  if (!existing || summary(*existing) != answer.summary) {
    violated("one-decision", now,
             fmt::format("{}: the answer was '{}', but the root has {}", to_string(decision->key),
                         answer.summary, existing ? fmt::format("'{}'", summary(*existing)) : "no decision"));
  }
  if (is_new) check_latest(now);
  const auto complete_for = root_.complete_when_aborted(decision->key);
  // A full disk fails each write, also one of what exists already, which a rank that is offered again
  // repeats.
  const bool is_of_full_disk = answer.summary.find("the disk is full") != std::string::npos;
  if (is_new && complete_for && *complete_for > kOverlooked && !is_of_full_disk) {
    violated("complete-is-committed", now,
             fmt::format("{} was aborted ('{}') when it had been complete for {} ms",
                         to_string(decision->key), answer.summary, *complete_for / actors::kMillisecond));
  }
}

void Oracles::notified(actors::TimeNs now, Rank rank, const AttemptKey& key, const Status& outcome) {
  const auto save = open_.find(static_cast<uint32_t>(key.step));
  if (save != open_.end()) save->second.notified[rank] = true;
  // A node that looks for the decision after the checkpoint was deleted cannot know it, and says so. Without
  // failures it has been informed before.
  const bool may_not_know = outcome.ok() || save == open_.end() || is_excused(save->second);
  if (root_.was_deleted(key) && outcome.code() != Code::aborted && may_not_know) return;
  if (save != open_.end()) {
    check_commits_again(now, save->second, key, outcome);
  }
  if (facts_.needs_no_abort && !outcome.ok()) {
    violated(
        "needless-abort", now,
        fmt::format("rank {} was notified that {} failed: {}", rank, to_string(key), outcome.to_string()));
  }
  if (facts_.loses_only_trainers && !outcome.ok() && facts_.all_staged(static_cast<uint32_t>(key.step))) {
    violated("staged-is-saved", now,
             fmt::format("rank {} was notified that {}, which every rank has staged, failed: {}", rank,
                         to_string(key), outcome.to_string()));
  }
  if (!outcome.ok()) check_cause(now, rank, key, outcome);
  const auto existing = root_.decision(key);
  const std::string who = fmt::format("rank {} was notified that {}", rank, to_string(key));
  if (outcome.ok()) {
    if (!existing || !existing->committed()) {
      return violated("notified-of-what-exists", now, who + " is committed, but no manifest exists");
    }
    if (!std::exchange(checked_[key], true)) check_durable(now, key, existing->manifest());
  } else if (outcome.code() == Code::aborted && (!existing || existing->was_committed())) {
    violated("notified-of-what-exists", now,
             fmt::format("{} is aborted ({}), but {} exists", who, outcome.message(),
                         existing ? "a manifest" : "no tombstone"));
  }
}

void Oracles::check_cause(actors::TimeNs now, Rank rank, const AttemptKey& key, const Status& outcome) {
  const auto began = began_.find(static_cast<uint32_t>(key.step));
  if (!facts_.causes || began == began_.end() || outcome.code() == Code::not_found) return;
  // Later a rank may have staged what has failed.
  if (!checked_causes_.emplace(key, outcome.message()).second) return;
  const std::string doubt = facts_.causes->doubt({began->first, began->second, now, outcome.message()});
  if (doubt.empty()) return;
  violated("cause-is-true", now,
           fmt::format("rank {} was notified that {} failed: {}; but {}", rank, to_string(key),
                       outcome.to_string(), doubt));
}

void Oracles::check_durable(actors::TimeNs now, const AttemptKey& key, const storage::Manifest& manifest) {
  std::vector<bool> has_file(manifest.world->roster.world_size());
  for (const storage::FileEntry& file : manifest.files) {
    const auto* index = std::get_if<uint32_t>(&file.contents);
    const auto bytes = root_.file_bytes(key, file.rank, index == nullptr ? 0 : *index);
    if (!bytes || *bytes != file.size) {
      return violated("committed-durable", now,
                      fmt::format("{}: {} has {} bytes, not {}", to_string(key), file.name,
                                  bytes ? std::to_string(*bytes) : "no", file.size));
    }
    if (file.rank < has_file.size()) has_file[file.rank] = true;
  }
  if (has_file.size() != facts_.ranks) {
    return violated(
        "committed-durable", now,
        fmt::format("{} has {} ranks, but the job has {}", to_string(key), has_file.size(), facts_.ranks));
  }
  uint64_t bytes = 0;
  for (Rank rank = 0; rank < has_file.size(); ++rank) {
    const uint64_t assigned = facts_.assigned_bytes(manifest, rank);
    bytes += assigned;
    if (assigned != 0 && !has_file[rank]) {
      return violated("committed-durable", now,
                      fmt::format("{} has no file of rank {}", to_string(key), rank));
    }
  }
  if (manifest.payload_bytes < bytes) {
    violated("committed-durable", now,
             fmt::format("{} has {} bytes, but its ranks saved {}", to_string(key), manifest.payload_bytes,
                         bytes));
  }
}

void Oracles::check_commits_again(actors::TimeNs now, const Save& save, const AttemptKey& key,
                                  const Status& outcome) {
  if (outcome.ok() || is_excused(save)) return;
  // A flipped bit stays, and replica_check may abort each save for it (replicas-are-named).
  if (outcome.message().find("replicas differ") != std::string::npos) return;
  violated(
      "commits-again", now,
      fmt::format("{} began at {} ms, after all failures were over at {} ms, but it is not committed: {}",
                  to_string(key), save.began / actors::kMillisecond,
                  facts_.failures_end / actors::kMillisecond, outcome.message()));
}

void Oracles::check_latest(actors::TimeNs now) {
  const std::optional<AttemptKey> latest = root_.latest();
  if (latest_ && (!latest || *latest < *latest_) && (!latest || latest->generation == latest_->generation)) {
    violated("latest-goes-forward", now,
             fmt::format("the latest checkpoint was {}, but now it is {}", to_string(*latest_),
                         latest ? to_string(*latest) : "no tombstone"));
  }
  latest_ = latest;
  if (!latest) return;
  const auto existing = root_.decision(*latest);
  if (!existing || !existing->committed()) {
    return violated("latest-is-committed", now,
                    fmt::format("the latest checkpoint is {}, which is not committed", to_string(*latest)));
  }
}

void Oracles::sent(actors::TimeNs now, size_t from, size_t to, uint64_t bytes) {
  last_sent_ = now;
  if (bytes <= transport::kMaxMessageBytes) return;
  violated("bounds", now,
           fmt::format("a message of {} bytes from node {} to node {} is too large", bytes, from, to));
}

void Oracles::slabs(actors::TimeNs now, Rank rank, uint32_t in_use) {
  if (in_use <= facts_.max_in_flight) return;
  violated(
      "bounds", now,
      fmt::format("rank {} uses {} slabs of {}", rank, static_cast<int32_t>(in_use), facts_.max_in_flight));
}

void Oracles::slab_unmapped(actors::TimeNs now, size_t node, Rank rank) {
  violated("slabs-outlive-writes", now,
           fmt::format("node {} unmaps the slabs of rank {}, although a write reads them", node, rank));
}

bool Oracles::stops(actors::TimeNs now) {
  if (facts_.causes) facts_.causes->coordinates(facts_.coordinator());
  if (const auto wrong = root_.wrongly_deleted(); wrong && !violation_) {
    violated("kept-by-rule", now, fmt::format("{} was deleted, but the rule keeps it", to_string(*wrong)));
  }
  if (!open_.empty() && now >= next_due_) check_deadlines(now);
  return violation_.has_value();
}

void Oracles::check_deadlines(actors::TimeNs now) {
  next_due_ = 0;
  for (auto save = open_.begin(); save != open_.end();) {
    std::vector<Rank> missing;
    for (Rank rank = 0; rank < facts_.ranks; ++rank) {
      if (!save->second.notified[rank] && facts_.lives(rank)) missing.push_back(rank);
    }
    const bool all_wait = std::ranges::all_of(
        missing, [&](Rank rank) { return facts_.waits_for_disk && facts_.waits_for_disk(now, rank); });
    const actors::TimeNs is_due = all_wait ? now + kLookAgain : due(save->first, save->second, now);
    if (!missing.empty() && now >= is_due) {
      violated(
          "ends-in-time", now,
          fmt::format("save {} began at {} ms, but {} not notified of its outcome", save->first,
                      save->second.began / actors::kMillisecond,
                      fmt::format("{} {}", base::name_ranks(missing), missing.size() == 1 ? "is" : "are")));
    }
    if (missing.empty()) {
      save = open_.erase(save);
      continue;
    }
    next_due_ = next_due_ == 0 ? is_due : std::min(next_due_, is_due);
    ++save;
  }
}

void Oracles::finish(actors::TimeNs now) {
  check_deadlines(now);
  check_latest(now);
  for (const AttemptKey& key : root_.committed()) {
    if (key.generation != facts_.generation) continue;
    check_durable(now, key, root_.decision(key)->manifest());
  }
}

}  // namespace shoal::sim
