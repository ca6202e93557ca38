#include "sim/cluster/reading_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shoal::sim {

namespace {

constexpr actors::TimeNs kLongestReadingNs = 120'000 * actors::kMillisecond;

std::vector<std::vector<Rank>> hosts_of(const ReadingJob::Job& job) {
  std::vector<std::vector<Rank>> hosts((job.ranks + job.ranks_per_host - 1) / job.ranks_per_host);
  for (Rank rank = 0; rank < job.ranks; ++rank) hosts[rank / job.ranks_per_host].push_back(rank);
  return hosts;
}

}  // namespace

ReadingJob::ReadingJob(EventHeap& events, const Profile& profile, VirtualCluster& of,
                       const StoredPayload& payload, Job job, PathCounts* paths)
    : events_(events),
      root_(of.counted_root()),
      job_(std::move(job)),
      began_(events.now()),
      existed_(root_.committed()),
      payload_(payload),
      checked_(job_.ranks) {
  VirtualCluster::Job nodes{.ranks_of_node = hosts_of(job_),
                            .world_size = job_.ranks,
                            .generation = payload_.begin_reader(),
                            .timeouts = job_.timeouts,
                            .root = of.shared_root(),
                            .read_only = true};
  cluster_ = std::make_unique<VirtualCluster>(events, profile, job_.seed, std::move(nodes));
  cluster_->keep_bytes(&payload_);
  cluster_->count_paths(paths);
  CountedLoads::Job loads;
  loads.layouts = job_.layouts;
  loads.ranks = job_.ranks;
  loads.ranks_per_host = job_.ranks_per_host;
  loads.method = job_.method;
  loads.falls_back = job_.falls_back;
  loads.payload = &payload_;
  loads_ = std::make_unique<CountedLoads>(events, *cluster_, profile, std::move(loads));
  loads_->ends_with_errors();
  loads_->start();
}

void ReadingJob::violated(std::string oracle, const std::string& what) {
  if (!violation_) violation_ = {std::move(oracle), events_.now(), "a job that only reads: " + what};
}

const std::optional<Violation>& ReadingJob::check() {
  for (Rank rank = 0; rank < job_.ranks; ++rank) {
    if (!checked_[rank] && loads_->has_loaded(rank)) check_rank(rank);
  }
  if (!loads_->incomplete().ok()) violated("read-is-whole", loads_->incomplete().message());
  if (!done() && events_.now() - began_ > kLongestReadingNs) {
    violated("reader-ends-in-time", fmt::format("it began at {} ms, and not all ranks have an answer",
                                                began_ / actors::kMillisecond));
  }
  return violation_;
}

void ReadingJob::check_rank(Rank rank) {
  checked_[rank] = true;
  const Status& outcome = loads_->outcome(rank);
  const std::optional<AttemptKey> key = loads_->found_by(rank);
  std::optional<AttemptKey> newest;
  for (const AttemptKey& each : existed_) {
    if (root_.was_deleted(each) || (job_.falls_back && root_.damaged_at(each))) continue;
    newest = std::max(newest.value_or(each), each);
  }
  if (key) {
    const auto damaged = root_.damaged_at(*key);
    if (newest && *key < *newest) {
      violated("reader-finds", fmt::format("rank {} found {}, but {} existed when it began", rank,
                                           to_string(*key), to_string(*newest)));
    }
    if (job_.falls_back && damaged && *damaged < began_) {
      violated("reader-finds",
               fmt::format("rank {} found {}, which was damaged before", rank, to_string(*key)));
    }
    if (std::exchange(found_, *key).value_or(*key) != *key) {
      violated("reader-finds",
               fmt::format("rank {} found {}, but another rank another one", rank, to_string(*key)));
    }
  }
  if (outcome.ok()) return;
  // A checkpoint that was chosen and then deleted is not loaded. The trainers would load again.
  const auto went = [this](const AttemptKey& each) {
    const auto deleted = root_.deleted_at(each);
    const auto damaged = root_.damaged_at(each);
    return (deleted && *deleted >= began_) || damaged.has_value();
  };
  const bool has_none = outcome.code() == Code::not_found && !newest;
  const bool is_gone = key ? went(*key) : root_.has_damage() || std::ranges::any_of(root_.deleted(), went);
  if (!has_none && !is_gone) violated("reader-is-possible", outcome.to_string());
}

}  // namespace shoal::sim
