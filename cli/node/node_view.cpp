#include "cli/node/node_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "actors/node/watch/job_json.h"
#include "cli/json_output.h"
#include "local/socket/socket.h"
#include "local/status/node_query.h"

namespace shoal::cli {

namespace {

std::optional<uint64_t> bytes_free_in(const std::string& root) {
  std::error_code error;
  const auto space = std::filesystem::space(root, error);
  if (error) return std::nullopt;
  return space.available;
}

Result<RootView> view_root(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(admin::OpenRoot root, admin::open_root_for_reading(path));
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> attempts, storage::view_attempts(*root.storage));
  RootView out;
  out.path = root.storage->describe();
  out.attempts = attempts.size();
  out.bytes_free = bytes_free_in(path);
  for (const storage::AttemptView& attempt : attempts) {
    if (!attempt.damage.ok()) {
      out.damaged.push_back(attempt.damage.message());
    } else if (attempt.committed()) {
      ++out.checkpoints;
      out.latest = attempt.key;
      out.latest_unix_time_ns = attempt.decision->unix_time_ns;
      out.latest_payload_bytes = attempt.decision->manifest().payload_bytes;
    } else if (attempt.info.state == storage::AttemptInfo::State::aborted) {
      ++out.aborted;
      if (attempt.decision) out.last_abort = {attempt.key, attempt.decision->tombstone().cause};
    } else if (attempt.info.state == storage::AttemptInfo::State::undecided) {
      out.undecided.push_back({attempt.key, attempt.info.files_bytes});
    }
  }
  out.latest_unknown = admin::check_reads_back(admin::newest_checkpoint(attempts));
  if (!out.latest_unknown.ok()) out.latest.reset();
  auto epoch = storage::highest_epoch(*root.storage);
  if (epoch.ok()) out.coordinator = std::move(*epoch);
  return out;
}

// Returns the result of `look`, or nothing after kRootPatience. Then the thread of `look` goes on, detached.
template <class Look>
auto within_patience(Look look) -> std::optional<decltype(look())> {
  auto promise = std::make_shared<std::promise<decltype(look())>>();
  auto found = promise->get_future();
  std::thread([promise, look = std::move(look)] { promise->set_value(look()); }).detach();
  if (found.wait_for(kRootPatience) != std::future_status::ready) return std::nullopt;
  return found.get();
}

struct DiskView {
  std::vector<std::optional<uint64_t>> bytes_on_disk;
  std::optional<uint64_t> bytes_free;
};
DiskView view_disk(const std::string& root_path, const std::vector<AttemptKey>& saves) {
  DiskView out{std::vector<std::optional<uint64_t>>(saves.size()), bytes_free_in(root_path)};
  if (saves.empty()) return out;
  auto root = admin::open_root_for_reading(root_path);
  for (size_t i = 0; root.ok() && i < saves.size(); ++i) {
    auto info = storage::inspect_attempt(*root->storage, saves[i]);
    if (info.ok()) out.bytes_on_disk[i] = info->files_bytes;
  }
  return out;
}

void hangs(const std::string& root, JobView* out) {
  if (std::find(out->hanging.begin(), out->hanging.end(), root) == out->hanging.end()) {
    out->hanging.push_back(root);
  }
}

// `root`: if not empty, only a node that serves this root counts.
void ask(const std::string& socket, const std::string& root, JobView* out) {
  auto status = local::ask_node(socket);
  if (!status.ok()) {
    out->silent.emplace_back(socket, status.status());
    return;
  }
  if (!root.empty() && status->root != root) return;
  NodeView node{socket, std::move(*status), {}, local::ask_job(socket), {}};
  std::vector<AttemptKey> saves;
  for (const local::SaveStatus& save : node.status.saves) saves.push_back(save.key);
  node.bytes_on_disk.resize(saves.size());
  if (auto disk = within_patience([path = node.status.root, saves] { return view_disk(path, saves); })) {
    node.bytes_on_disk = std::move(disk->bytes_on_disk);
    node.bytes_free = disk->bytes_free;
  } else {
    hangs(node.status.root, out);
  }
  out->nodes.push_back(std::move(node));
}

nlohmann::ordered_json parsed(const std::string& text) {
  return nlohmann::ordered_json::parse(text);
}

nlohmann::ordered_json counts_json(const local::NodeCounts& counts) {
  return {{"saves_begun", counts.saves_begun},          {"saves_committed", counts.saves_committed},
          {"saves_aborted", counts.saves_aborted},      {"bytes_staged", counts.bytes_staged},
          {"bytes_written", counts.bytes_written},      {"bytes_read", counts.bytes_read},
          {"loads_begun", counts.loads_begun},          {"loads_done", counts.loads_done},
          {"loads_failed", counts.loads_failed},        {"bytes_to_peers", counts.bytes_to_peers},
          {"bytes_from_peers", counts.bytes_from_peers}};
}

nlohmann::ordered_json node_json(const NodeView& node) {
  const local::NodeStatus& status = node.status;
  nlohmann::ordered_json out;
  out["socket"] = node.socket;
  out["version"] = status.version;
  out["host"] = status.host;
  out["pid"] = status.pid;
  out["root"] = status.root;
  out["root_id"] = status.root_id;
  out["job_id"] = status.job_id;
  out["generation"] = status.generation;
  out["epoch"] = status.epoch;
  out["read_only"] = status.read_only;
  out["coordinates"] = status.coordinates;
  out["coordinator"] = status.coordinator;
  out["world_size"] = status.world_size;
  out["uptime_ms"] = status.uptime_ms;
  out["is_stopping"] = status.is_stopping;
  out["ranks"] = status.ranks;
  out["trainers"] = nlohmann::ordered_json::array();
  for (const local::TrainerStatus& trainer : status.trainers) {
    out["trainers"].push_back(
        {{"rank", trainer.rank}, {"pid", trainer.pid}, {"is_stopped", trainer.is_stopped}});
  }
  out["peers"] = nlohmann::ordered_json::array();
  for (const local::PeerStatus& peer : status.peers) {
    out["peers"].push_back({{"name", peer.name}, {"coordinates", peer.coordinates}});
  }
  out["peers_count"] = status.peers_count;
  out["saves"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < status.saves.size(); ++i) {
    out["saves"].push_back(parsed(actors::save_json(status.saves[i], node.bytes_on_disk[i])));
  }
  out["saves_count"] = status.saves_count;
  out["last_commit"] =
      status.last_commit ? parsed(actors::commit_json(*status.last_commit)) : nlohmann::ordered_json();
  out["errors"] = nlohmann::ordered_json::array();
  for (const local::ErrorStatus& error : status.errors) {
    out["errors"].push_back({{"age_ms", error.age_ms}, {"line", error.line}});
  }
  out["slow_calls"] = parsed(actors::calls_json(status.slow_calls));
  out["counts"] = counts_json(status.counts);
  add_space(node.bytes_free, status.last_commit ? status.last_commit->payload_bytes : 0, &out);
  if (node.job.ok()) {
    out["job"] = parsed(actors::job_json(*node.job));
  } else {
    out["job"] = {{"incomplete", node.job.status().to_string()}};
  }
  return out;
}

nlohmann::ordered_json root_json(const RootView& root) {
  nlohmann::ordered_json out;
  out["path"] = root.path;
  out["attempts"] = root.attempts;
  out["checkpoints"] = root.checkpoints;
  out["latest"] = nlohmann::ordered_json();
  if (root.latest) {
    out["latest"] = key_json(*root.latest);
    out["latest"]["unix_time_ns"] = root.latest_unix_time_ns;
    out["latest"]["payload_bytes"] = root.latest_payload_bytes;
  }
  add_space(root.bytes_free, root.latest_payload_bytes, &out);
  if (!root.latest_unknown.ok()) out["latest_unknown"] = root.latest_unknown.message();
  out["aborted"] = root.aborted;
  if (root.last_abort) {
    out["last_abort"] = key_json(root.last_abort->key);
    out["last_abort"]["cause"] = root.last_abort->cause;
  }
  out["undecided"] = nlohmann::ordered_json::array();
  for (const UndecidedView& one : root.undecided) {
    out["undecided"].push_back(key_json(one.key));
    out["undecided"].back()["folder_bytes"] = one.bytes;
  }
  out["damaged"] = root.damaged;
  if (root.coordinator) {
    out["last_coordinator"] = {{"epoch", root.coordinator->epoch},
                               {"address", root.coordinator->address},
                               {"job_id", root.coordinator->job_id}};
  }
  return out;
}

// Adds the readers that answer. Jobs that ended badly leave sockets behind.
void ask_readers(const std::string& root, JobView* out) {
  auto sockets = within_patience([root] { return local::list_reader_sockets(root); });
  if (!sockets || !sockets->ok()) return;
  JobView readers;
  for (const std::string& socket : **sockets) ask(socket, "", &readers);
  std::move(readers.nodes.begin(), readers.nodes.end(), std::back_inserter(out->nodes));
}

}  // namespace

Result<JobView> look_at(const NodeTarget& target) {
  JobView out;
  if (!target.root.empty()) {
    std::string socket = target.socket;
    const char* from_environment = std::getenv("SHOAL_SOCKET");
    if (socket.empty() && from_environment != nullptr) socket = from_environment;
    if (socket.empty()) {
      auto paths = within_patience([root = target.root] { return local::node_paths(root); });
      if (paths && paths->ok()) socket = (*paths)->socket_file;
    }
    if (!socket.empty()) {
      ask(socket, "", &out);
    } else {  // the real path of the root, from which the socket is named, is unknown
      for (const std::string& each : local::list_node_sockets()) ask(each, target.root, &out);
      out.silent.clear();
    }
    auto root = within_patience([path = target.root] { return view_root(path); });
    if (!root) {
      hangs(target.root, &out);
    } else if (!root->ok()) {
      return root->status();
    } else {
      out.root = std::move(**root);
    }
    if (target.socket.empty()) ask_readers(target.root, &out);
  } else if (!target.socket.empty()) {
    ask(target.socket, "", &out);
  } else {
    for (const std::string& socket : local::list_node_sockets()) ask(socket, "", &out);
  }
  return out;
}

void add_space(std::optional<uint64_t> bytes_free, uint64_t payload_bytes, nlohmann::ordered_json* out) {
  if (!bytes_free) return;
  (*out)["bytes_free"] = *bytes_free;
  if (auto fit = checkpoints_that_fit(*bytes_free, payload_bytes)) (*out)["checkpoints_fit"] = *fit;
}

nlohmann::ordered_json as_json(const JobView& view) {
  nlohmann::ordered_json out;
  out["nodes"] = nlohmann::ordered_json::array();
  for (const NodeView& node : view.nodes) out["nodes"].push_back(node_json(node));
  out["silent"] = nlohmann::ordered_json::array();
  for (const auto& [socket, why] : view.silent) {
    out["silent"].push_back({{"socket", socket}, {"cause", why.to_string()}});
  }
  if (view.root) out["root"] = root_json(*view.root);
  if (!view.hanging.empty()) out["hanging_roots"] = view.hanging;
  return out;
}

}  // namespace shoal::cli
