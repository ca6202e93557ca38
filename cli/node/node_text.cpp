// The state of nodes and root as text.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/node/node_view.h"
#include "cli/table.h"
#include "local/status/node_query.h"

namespace shoal::cli {

namespace {

constexpr size_t kRunsShown = 8;    // of consecutive ranks
constexpr size_t kPeersShown = 8;   // the rest is only counted
constexpr size_t kErrorsShown = 5;  // the newest

std::string ago(uint64_t ms) {
  return human_seconds(static_cast<double>(ms) / 1e3);
}

bool is_coordinator_lost(const local::NodeStatus& node) {
  return !node.coordinates && std::none_of(node.peers.begin(), node.peers.end(),
                                           [](const local::PeerStatus& peer) { return peer.coordinates; });
}

std::string heading(const local::NodeStatus& node) {
  std::string role = node.coordinates ? fmt::format("coordinates at {}", node.coordinator)
                                      : fmt::format("coordinator at {}{}", node.coordinator,
                                                    is_coordinator_lost(node) ? " (not connected)" : "");
  std::string out = fmt::format("node {} (pid {}), {}{}\n", node.host, node.pid, role,
                                node.is_stopping ? ", is stopping" : "");
  std::string place = node.read_only ? fmt::format("reads only (readers/{})", node.generation)
                                     : fmt::format("generation {}, epoch {}", node.generation, node.epoch);
  out += fmt::format("job {}, {}, root {}, up {}\n", node.job_id, place, node.root, ago(node.uptime_ms));
  std::string world = node.world_size == 0 ? "" : fmt::format(" of {}", node.world_size);
  out += fmt::format("ranks here: {}{}; nodes connected: {}", describe_ranks(node.ranks, node.ranks.size()),
                     world, node.peers_count);
  for (size_t i = 0; i < std::min(node.peers.size(), kPeersShown); ++i) {
    out += fmt::format("{}{}{}", i == 0 ? " (" : ", ", node.peers[i].name,
                       node.peers[i].coordinates ? " coordinates" : "");
  }
  if (!node.peers.empty()) out += node.peers_count > kPeersShown ? ", ...)" : ")";
  return out + "\n";
}

std::string last_commit(const local::NodeStatus& node) {
  if (!node.last_commit) return "last commit: none yet\n";
  const local::CommitStatus& commit = *node.last_commit;
  std::string out = fmt::format("last commit: {}", to_string(commit.key));
  if (commit.unix_time_ns != 0) out += fmt::format(" at {}", admin::utc_time(commit.unix_time_ns));
  if (commit.payload_bytes != 0) out += fmt::format(", {}", human_bytes(commit.payload_bytes));
  out += fmt::format(", took {}", ago(commit.duration_ms));
  if (commit.slowest_rank) out += fmt::format(", rank {} was last", *commit.slowest_rank);
  return out + "\n";
}

std::string counts(const local::NodeCounts& now, const local::NodeCounts* before, double seconds) {
  std::string out =
      fmt::format("saves: {} begun, {} committed, {} aborted; staged {}, written {}, read {}\n",
                  now.saves_begun, now.saves_committed, now.saves_aborted, human_bytes(now.bytes_staged),
                  human_bytes(now.bytes_written), human_bytes(now.bytes_read));
  if (before == nullptr || seconds <= 0) return out;
  auto rate = [&](uint64_t late, uint64_t early) {
    uint64_t grown = late - std::min(early, late);
    return human_bytes(static_cast<uint64_t>(static_cast<double>(grown) / seconds));
  };
  return out + fmt::format("now: staging {}/s, writing {}/s, reading {}/s\n",
                           rate(now.bytes_staged, before->bytes_staged),
                           rate(now.bytes_written, before->bytes_written),
                           rate(now.bytes_read, before->bytes_read));
}

// Trainers of this host among those that a save waits for: each that is stopped, and the only one.
std::string awaited_trainers(const local::NodeStatus& node, const local::SaveStatus& save) {
  std::string out;
  for (const local::TrainerStatus& trainer : node.trainers) {
    if (!std::binary_search(save.awaited.begin(), save.awaited.end(), trainer.rank)) continue;
    if (save.awaited_count == 1) {
      out += fmt::format(" (pid {}{})", trainer.pid, trainer.is_stopped ? ", stopped" : "");
    } else if (trainer.is_stopped) {
      out += fmt::format("; rank {} (pid {}) is stopped", trainer.rank, trainer.pid);
    }
  }
  return out;
}

std::string waits_for(const local::NodeStatus& node, const local::SaveStatus& save) {
  std::string out;
  if (save.awaited_count != 0) {
    out = fmt::format("rank {}{}", describe_ranks(save.awaited, save.awaited_count),
                      awaited_trainers(node, save));
  } else {
    out = save.phase == local::SavePhase::committing ? "the root" : "the decision";
  }
  if (is_coordinator_lost(node)) out += "; the coordinator is not connected";
  if (!save.trouble.empty()) out += "; " + save.trouble;
  return out;
}

std::string saves(const NodeView& node) {
  if (node.status.saves.empty()) return "no save in flight\n";
  using Align = Table::Align;
  Table table({{"STEP", Align::right},
               {"ATTEMPT"},
               {"PHASE"},
               {"AGE", Align::right},
               {"STAGED", Align::right},
               {"WRITTEN", Align::right},
               {"TO WRITE", Align::right},
               {"ON DISK", Align::right},
               {"REPORTED", Align::right},
               {"WAITS FOR"}});
  for (size_t i = 0; i < node.status.saves.size(); ++i) {
    const local::SaveStatus& save = node.status.saves[i];
    std::string reported =
        node.status.coordinates ? fmt::format("{}/{}", save.ranks_reported, node.status.world_size) : "-";
    table.add_row({fmt::to_string(save.key.step), admin::attempt_name(save.key),
                   std::string(local::phase_name(save.phase)), ago(save.age_ms),
                   human_bytes(save.bytes_staged), human_bytes(save.bytes_written),
                   human_bytes(save.bytes_to_write),
                   node.bytes_on_disk[i] ? human_bytes(*node.bytes_on_disk[i]) : "-", reported,
                   waits_for(node.status, save)});
  }
  return table.to_string();
}

std::string errors(const local::NodeStatus& node) {
  std::string out;
  size_t first = node.errors.size() - std::min(node.errors.size(), kErrorsShown);
  for (size_t i = first; i < node.errors.size(); ++i) {
    out += fmt::format("{} ago: {}\n", ago(node.errors[i].age_ms), node.errors[i].line);
  }
  return out;
}

std::string slow_calls(const local::NodeStatus& node) {
  std::string out;
  for (const local::SlowCallStatus& call : node.slow_calls) {
    out += fmt::format("storage: {} has taken {} and has not returned\n", call.what, ago(call.age_ms));
  }
  return out;
}

std::string space_text(std::optional<uint64_t> bytes_free, uint64_t payload_bytes) {
  if (!bytes_free) return "";
  std::string out = fmt::format("space: {} free in the root", human_bytes(*bytes_free));
  if (auto fit = checkpoints_that_fit(*bytes_free, payload_bytes)) {
    out +=
        fmt::format(", enough for {} of the size of the last one", admin::counted(*fit, "more checkpoint"));
  }
  return out + "\n";
}

std::string state_of(const local::HostStatus& host) {
  if (host.state == local::HostState::silent) return "does not answer";
  if (host.state == local::HostState::lost) return "not connected";
  return host.coordinates ? "coordinates" : host.is_stopping ? "is stopping" : "ok";
}

std::string saves_of(const local::HostStatus& host) {
  std::string out;
  for (const local::SaveStatus& save : host.saves) {
    if (!out.empty()) out += ", ";
    out += fmt::format("step {} {}", save.key.step, local::phase_name(save.phase));
  }
  const uint64_t more = host.saves_count - std::min<uint64_t>(host.saves_count, host.saves.size());
  if (more > 0) out += fmt::format(" and {} more", more);
  return out.empty() ? "-" : out;
}

std::string host_table(const local::JobStatus& job) {
  using Align = Table::Align;
  Table table({{"HOST"},
               {"STATE"},
               {"RANKS"},
               {"UP", Align::right},
               {"RESTARTS", Align::right},
               {"STAGED", Align::right},
               {"WRITTEN", Align::right},
               {"READ", Align::right},
               {"LAST COMMIT"},
               {"SAVES"}});
  for (const local::HostStatus& host : job.hosts) {
    table.add_row(
        {host.host, state_of(host), describe_ranks(host.ranks, host.ranks_count),
         host.uptime_ms == 0 ? "-" : ago(host.uptime_ms), fmt::to_string(host.restarts),
         human_bytes(host.bytes_staged), human_bytes(host.bytes_written), human_bytes(host.bytes_read),
         host.last_commit ? fmt::format("step {}", host.last_commit->key.step) : "-", saves_of(host)});
  }
  return table.to_string();
}

std::string wait_text(const local::JobSave& save) {
  std::string out;
  for (const local::HostWait& wait : save.waits) {
    out += fmt::format("{} waits for {}: ", to_string(save.save.key),
                       wait.host.empty() ? "an unknown host" : "host " + wait.host);
    if (wait.ranks_count > 0) out += fmt::format("rank {}, ", describe_ranks(wait.ranks, wait.ranks_count));
    out += wait.host.empty() ? "which no host has" : std::string(local::wait_reason_text(wait.reason));
    if (!wait.detail.empty()) out += "; " + wait.detail;
    out += "\n";
  }
  if (save.waits_count > save.waits.size()) {
    out += fmt::format("{} waits for {} more\n", to_string(save.save.key),
                       admin::counted(save.waits_count - save.waits.size(), "host"));
  }
  return out;
}

std::string last_abort(const RootView& root) {
  if (!root.last_abort) return "";
  return fmt::format("aborted: {}; the newest is {}: {}\n", admin::counted(root.aborted, "attempt"),
                     to_string(root.last_abort->key), root.last_abort->cause);
}

std::string root_text(const RootView& root) {
  std::string out = fmt::format("root {}: {}, {}; ", root.path, admin::counted(root.attempts, "attempt"),
                                admin::counted(root.checkpoints, "checkpoint"));
  if (root.latest) {
    out += fmt::format("the latest is {} at {}, {}\n", to_string(*root.latest),
                       admin::utc_time(root.latest_unix_time_ns), human_bytes(root.latest_payload_bytes));
  } else if (!root.latest_unknown.ok()) {
    out += "the latest is unknown\n";
  } else {
    out += "no checkpoint yet\n";
  }
  out += space_text(root.bytes_free, root.latest_payload_bytes);
  out += last_abort(root);
  for (const UndecidedView& one : root.undecided) {
    out += fmt::format("undecided: {}, {} in its folder\n", to_string(one.key), human_bytes(one.bytes));
  }
  for (const std::string& line : root.damaged) out += fmt::format("damaged: {}\n", line);
  if (root.coordinator) {
    out += fmt::format("last coordinator: {} of job {} (epoch {})\n", root.coordinator->address,
                       root.coordinator->job_id, root.coordinator->epoch);
  }
  return out;
}

}  // namespace

std::string describe_ranks(const std::vector<Rank>& ranks, uint64_t count) {
  if (ranks.empty()) return "none";
  std::string out;
  uint64_t shown = 0;
  size_t runs = 0;
  for (size_t i = 0; i < ranks.size() && runs < kRunsShown; ++runs) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!out.empty()) out += ", ";
    out += i == last ? fmt::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    shown += last - i + 1;
    i = last + 1;
  }
  return shown < count ? out + fmt::format(" and {} more", count - shown) : out;
}

std::optional<uint64_t> checkpoints_that_fit(uint64_t bytes_free, uint64_t payload_bytes) {
  if (payload_bytes == 0) return std::nullopt;
  return bytes_free / payload_bytes;
}

std::string job_text(const local::NodeStatus& node, const Result<local::JobStatus>& job) {
  if (!job.ok()) return fmt::format("job: unknown: {}\n", job.status().to_string());
  if (!job->incomplete.empty()) return fmt::format("job: {}\n", job->incomplete);
  if (job->hosts_count < 2) return "";
  std::string out;
  for (const local::JobSave& save : job->saves) out += wait_text(save);
  std::string heading = fmt::format("job: {}", admin::counted(job->hosts_count, "host"));
  if (job->hosts_silent > 0) heading += fmt::format(", {} without an answer", job->hosts_silent);
  if (job->hosts_lost > 0) heading += fmt::format(", {} not connected", job->hosts_lost);
  if (!node.coordinates && job->last_commit) {
    heading += fmt::format("; last commit: {}", to_string(job->last_commit->key));
  }
  out += heading + "\n" + host_table(*job);
  for (const local::HostStatus& host : job->hosts) {
    for (const local::SlowCallStatus& call : host.slow_calls) {
      out += fmt::format("storage of host {}: {} has taken {} and has not returned\n", host.host, call.what,
                         ago(call.age_ms));
    }
  }
  if (job->hosts_count > job->hosts.size()) {
    out += fmt::format("and {} more\n", admin::counted(job->hosts_count - job->hosts.size(), "host"));
  }
  return out;
}

std::string as_text(const JobView& view, const EarlierView* before) {
  std::string out;
  for (const NodeView& node : view.nodes) {
    const local::NodeCounts* early = nullptr;
    for (size_t i = 0; before != nullptr && i < before->view.nodes.size(); ++i) {
      const NodeView& same = before->view.nodes[i];
      if (same.socket == node.socket && same.status.pid == node.status.pid) early = &same.status.counts;
    }
    if (!out.empty()) out += "\n";
    out += heading(node.status) + last_commit(node.status) +
           counts(node.status.counts, early, before == nullptr ? 0 : before->seconds) + saves(node) +
           slow_calls(node.status) +
           space_text(node.bytes_free, node.status.last_commit ? node.status.last_commit->payload_bytes : 0) +
           job_text(node.status, node.job) + errors(node.status);
  }
  for (const auto& silent : view.silent) {
    if (!out.empty()) out += "\n";
    out += fmt::format("no node answers at {}\n", silent.second.message());
    if (silent.second.code() != Code::unavailable) continue;
    out += "  the node of another user, or one with another SHOAL_RUNTIME_DIR, has another socket\n";
  }
  if (view.nodes.empty() && view.silent.empty()) {
    out += fmt::format("no node of this user runs on this host: {} has no socket (SHOAL_RUNTIME_DIR)\n",
                       local::runtime_folder());
  }
  for (const std::string& root : view.hanging) {
    out += fmt::format("root {} did not answer within {} s: its storage hangs or is very slow\n", root,
                       kRootPatience.count());
  }
  if (!view.root) return out;
  if (view.nodes.empty()) return out + root_text(*view.root);
  // A running node knows more than the root, but it forgets errors, and its log may be on another host.
  out += last_abort(*view.root);
  if (!view.root->latest_unknown.ok()) {
    out += fmt::format("damaged: {}\n", view.root->latest_unknown.message());
  }
  return out;
}

}  // namespace shoal::cli
