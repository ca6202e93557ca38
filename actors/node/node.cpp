#include "actors/node/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "actors/caf/caf_host.h"
#include "actors/executor/operation_runner.h"
#include "actors/node/bootstrap.h"
#include "actors/node/clients/first_save.h"
#include "actors/node/clients/local_server.h"
#include "actors/node/clients/slab_table.h"
#include "actors/node/clients/staged_parts.h"
#include "actors/node/clients/staging_memory.h"
#include "actors/node/descriptors.h"
#include "actors/node/launcher_reports.h"
#include "actors/node/links/own_address.h"
#include "actors/node/links/peer_links.h"
#include "actors/node/links/relay_server.h"
#include "actors/node/links/sharing_links.h"
#include "actors/node/lock.h"
#include "actors/node/unused_catalogs.h"
#include "actors/node/watch/free_space.h"
#include "actors/node/watch/job_watch.h"
#include "actors/node/watch/log.h"
#include "actors/node/watch/metrics_server.h"
#include "actors/node/watch/rejection_lines.h"
#include "actors/node/watch/report.h"
#include "actors/node/watch/stats.h"
#include "actors/node/watch/status_page.h"
#include "actors/node/wiring.h"
#include "base/clock.h"
#include "base/owned_fd.h"
#include "base/process_state.h"
#include "local/socket/socket_file.h"
#include "local/status/node_query.h"
#include "storage/catalog/watched_catalog.h"
#include "storage/root/attempt_views.h"
#include "storage/root/run_claims.h"
#include "storage/root/run_root.h"
#include "transport/live/make_transport.h"

namespace shoal::actors {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopTick{20};
constexpr std::chrono::milliseconds kTryAddressFor{transport::kHandshakeTimeoutMs + 1'000};
constexpr int kHolderAnswerTimeoutMs = 1'000;  // for the node that has the lock of this host
// A client's first node waits so long for the coordinator of an earlier job, of this root or another one, to
// end. Its trainers may have ended just now, and it ends after the nodes of its other hosts.
constexpr std::chrono::milliseconds kEarlierRunPatience{30'000};
constexpr std::chrono::milliseconds kEarlierRunPause{250};

bool may_create_root(const NodeOptions& options) {
  return !options.rejoin || *options.rejoin == storage::kGenerationOfJob;
}

constexpr uint32_t kSettleMs = 2'000;          // to read what clients have sent already
constexpr uint32_t kFlushClientsMs = 2'000;    // to send what clients must still receive
constexpr uint32_t kDrainTransportMs = 2'000;  // to send what other nodes must still receive
// Of a job that only reads: any but 0. Its coordinator has no claim that another one could fence.
constexpr uint32_t kReaderEpoch = 1;
constexpr std::string_view kOnlyReads = " (read-only)";  // appended to the job id

class Node {
 public:
  Node(const NodeOptions& options, const std::atomic<int>& stop)
      : options_(options),
        stop_(stop),
        process_(random_128()),
        name_(options.name.empty() ? own_host_name() : options.name),
        log_(name_),
        hosts_(options.world_size, static_cast<uint32_t>(options.expected_ranks.size())),
        launcher_(options.launcher_fd) {}

  Status run(const std::function<void(const std::string& address, uint32_t generation)>& on_ready);

 private:
  bool must_stop() const { return stop_.load() != 0; }
  bool must_stop_at_once() const { return stop_.load() == 2; }
  Status open();
  void warn(const std::string& line);
  std::string socket_file() const;
  Status with_job_of_holder(const Status& taken) const;
  Status take_place();
  Status take_generation();
  transport::Identity sent_identity() const;
  void end_reading();
  Status check_root_is_ours();
  Status wait_for_root();
  bool waits_for_earlier_job(const Status& why, std::string_view until);
  Status open_transport();
  bool starter_has_ended() const;
  Status taken_over(const storage::EpochRecord& by) const;
  Status take_descriptors();
  Status check_hosts() const;
  Status start_coordinating();
  void remove_locks_of_the_past();
  void remove_catalogs_of_the_past();
  Status follow_coordinator();
  void try_address(bool by_root);
  Status keep_claims();
  void report_if_unreachable();
  Status open_listener();
  Status open_pages();
  Result<std::unique_ptr<MetricsServer>> start_server(const std::string& what, const std::string& address,
                                                      std::vector<HttpRoute> routes);
  void add_page(std::vector<HttpRoute>* routes);
  void look_for_newest_checkpoint();
  void scraper_turned_away();
  void prepare_sharing();
  void prepare_job_watch();
  void prepare_staging();
  Result<std::string> own_host() const;
  Status open_protocol_log();
  void serve();
  void wait_until_stopped();
  void read_launcher();
  void stop();
  void drain(RoleKind role, const event::Drain& how, std::chrono::steady_clock::time_point deadline);
  void stop_transport(uint32_t drain_ms);
  void close();

  const NodeOptions options_;
  const std::atomic<int>& stop_;
  const Nonce process_;
  const std::string name_;
  NodeLog log_;
  local::NodePaths paths_;
  std::optional<NodeLock> lock_;
  std::unique_ptr<Activity> activity_;
  std::atomic<Activity*> shown_{nullptr};  // the same object, once it exists
  OpenedRoot root_;                        // its watch reports to the activity
  storage::RunClaims claims_;              // does not change once operations run
  transport::Identity identity_;
  SlabTable slabs_;
  std::string epoch_address_;                     // at which others reach the coordinator here
  std::string earlier_coordinator_;               // of this job; it may be live
  std::optional<Clock::time_point> waits_until_;  // for an earlier job to end
  base::OwnedFd starter_;                         // the client that started this node
  HostCount hosts_;
  uint64_t peers_max_ = 1;    // for which there are descriptors
  uint64_t peers_least_ = 1;  // that must have a session with this node
  uint64_t direct_max_ = 1;   // nodes that connect to the coordinator directly
  LauncherReports launcher_;
  Status ended_by_;  // not OK: why the node stopped by itself
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<transport::Transport> transport_;
  std::unique_ptr<PeerLinks> links_;
  std::unique_ptr<RelayServer> relay_;
  RelayCounts relayed_;  // of the relay that was here
  std::unique_ptr<OperationRunner> runner_;
  std::unique_ptr<NodeReport> report_;
  std::unique_ptr<JobWatch> job_;
  std::unique_ptr<StagingMemory> staging_;
  std::unique_ptr<StagedParts> parts_;
  std::unique_ptr<NodeWiring> wiring_;
  std::unique_ptr<FirstSaveWatch> first_save_;
  std::unique_ptr<SharingLinks> sharing_;
  std::unique_ptr<LocalServer> server_;
  std::unique_ptr<CafHost> host_;
  RejectionLines scrapers_{"the metrics page"};
  std::unique_ptr<FreeSpace> free_space_;
  std::unique_ptr<MetricsServer> metrics_, page_;
};

std::string Node::socket_file() const {
  return local::node_socket_file(options_.socket_file, paths_);
}

// Adds to the error of a held lock the job of the node that holds it, if that answers.
Status Node::with_job_of_holder(const Status& taken) const {
  if (taken.code() != Code::already_exists) return taken;
  auto holder = local::ask_node(socket_file(), kHolderAnswerTimeoutMs);
  if (!holder.ok()) return taken;
  return Status(
      taken.code(),
      fmt::format("{}, for job '{}', generation {}; --take-over cannot end that node: stop it first",
                  taken.message(), holder->job_id, holder->generation));
}

// Takes the lock and opens the root.
Status Node::open() {
  starter_ = base::watch_process(options_.started_by);
  SHOAL_RETURN_IF_ERROR(take_descriptors());
  SHOAL_ASSIGN_OR_RETURN(paths_, local::node_paths(options_.root, options_.read_only ? options_.job_id : ""));
  auto lock = NodeLock::take(paths_.lock_file, options_.root);
  if (!lock.ok()) return with_job_of_holder(lock.status());
  lock_.emplace(std::move(*lock));
  remove_locks_of_the_past();
  const auto log_slow = [this](const std::string& line) { warn(line); };
  SHOAL_ASSIGN_OR_RETURN(root_, options_.read_only ? open_root_to_read(options_.root, process_, log_slow)
                                                   : open_node_root(options_.root, process_,
                                                                    may_create_root(options_), log_slow));
  identity_.root_id = root_.root_id;
  identity_.job_id = options_.job_id;
  if (options_.read_only && options_.job_id.size() + kOnlyReads.size() > base::kMaxJobIdBytes) {
    return Status(Code::invalid_argument, fmt::format("the id of a job that only reads is at most {} bytes",
                                                      base::kMaxJobIdBytes - kOnlyReads.size()));
  }
  identity_.incarnation = process_;
  identity_.name = fmt::format("{}:{}", name_, getpid());
  return ok_status();
}

// Logs the line, and shows it among the errors of `shoal status`.
void Node::warn(const std::string& line) {
  log_.warning(line);
  if (Activity* activity = shown_.load()) activity->warned(base::steady_now_ns(), line);
}

// Raises the limit of descriptors for the coordinator, the trainers here and, if this node coordinates, other
// nodes.
Status Node::take_descriptors() {
  const NodeDescriptors needed = descriptors_of_node(options_.coordinate, options_.expected_ranks.size(),
                                                     hosts_.hosts(), options_.max_direct_nodes);
  peers_least_ = needed.demand.peers;
  SHOAL_ASSIGN_OR_RETURN(peers_max_, ensure_descriptors(needed.demand, needed.peers_max));
  direct_max_ = direct_nodes_within(options_.max_direct_nodes, peers_max_);
  return options_.coordinate ? check_hosts() : ok_status();
}

// For the coordinator: whether it can reach all hosts of the job, as far as they are known.
Status Node::check_hosts() const {
  if (hosts_.hosts() - 1 <= nodes_within(direct_max_)) return ok_status();
  std::string remedy =
      direct_max_ < options_.max_direct_nodes
          ? fmt::format("the limit of file descriptors allows no more; {}", base::kDescriptorRemedy)
          : std::string("raise --max-direct-nodes");
  return Status(Code::refused, fmt::format("the job has {} hosts or more, but a coordinator with {} direct "
                                           "nodes reaches only {} besides its own: {}",
                                           hosts_.hosts(), direct_max_, nodes_within(direct_max_), remedy));
}

// The identity in handshakes. A node that saves and one that only reads must never join one job.
transport::Identity Node::sent_identity() const {
  transport::Identity body = identity_;
  if (options_.read_only) body.job_id += kOnlyReads;
  return body;
}

// For the coordinator.
Status Node::take_generation() {
  if (options_.read_only) {
    SHOAL_ASSIGN_OR_RETURN(storage::ReaderRecord reader,
                           take_reader(root_.storage(), identity_, options_.rejoin));
    identity_.generation = reader.number;
    return ok_status();
  }
  if (!options_.take_over) SHOAL_RETURN_IF_ERROR(wait_for_root());
  SHOAL_ASSIGN_OR_RETURN(
      storage::GenerationRecord generation,
      options_.rejoin
          ? storage::rejoin_generation(root_.storage(), *options_.rejoin, options_.job_id, process_)
          : storage::claim_generation(root_.storage(), options_.job_id, process_));
  identity_.generation = generation.generation;
  claims_.generation = generation;
  return ok_status();
}

Status Node::open_transport() {
  transport::TransportOptions transport;
  transport.listen = options_.coordinate ? options_.listen : "";
  transport.identity = sent_identity();
  transport.token = options_.token;
  transport.network = options_.network;
  if (options_.coordinate) transport.limits.peers = peers_max_;
  while (true) {
    transport_ = transport::make_transport(transport);
    links_ = std::make_unique<PeerLinks>(*transport_, options_.coordinate ? "" : options_.coordinator,
                                         direct_max_);
    if (!options_.coordinate) {
      RelayServer::Settings relay{transport, options_.expected_ranks.size(),
                                  [this](const std::string& line) { log_.info(line); },
                                  [this](const std::string& line) { log_.warning(line); }};
      relay_ = std::make_unique<RelayServer>(
          std::move(relay), [this](Bytes message) { return links_->send_up(std::move(message)); });
      links_->set_relay(relay_.get());
    }
    Status started = transport_->start(*links_);
    const bool may_be_taken = options_.coordinate && started.code() == Code::unavailable;
    if (!may_be_taken || !waits_for_earlier_job(started, "the program that uses it ends")) return started;
    transport_->stop(0);
    transport_.reset();
  }
}

Status Node::take_place() {
  claims_.root_id = root_.root_id;
  identity_.generation = options_.rejoin.value_or(0);
  if (options_.coordinate) SHOAL_RETURN_IF_ERROR(take_generation());
  SHOAL_RETURN_IF_ERROR(open_transport());
  SHOAL_RETURN_IF_ERROR(options_.coordinate ? start_coordinating() : follow_coordinator());
  log_.info(options_.read_only
                ? fmt::format("job {} only reads root {}, as readers/{}", options_.job_id,
                              root_.storage().describe(), identity_.generation)
                : fmt::format("job {}, generation {}, epoch {}, root {}", options_.job_id,
                              identity_.generation, identity_.epoch, root_.storage().describe()));
  if (!options_.settings_sources.empty()) log_.info("settings: " + options_.settings_sources);
  return ok_status();
}

Status Node::check_root_is_ours() {
  Status status = check_no_other_run(root_.storage(), identity_, options_.token, options_.rejoin);
  const bool had_root = options_.rejoin && *options_.rejoin != storage::kGenerationOfJob;
  if (status.code() != Code::refused || !had_root) return status;
  SHOAL_ASSIGN_OR_RETURN(auto last, storage::highest_epoch(root_.storage()));
  return last ? taken_over(*last) : status;
}

Status Node::wait_for_root() {
  while (true) {
    const Status status = check_root_is_ours();
    if (status.code() != Code::refused || !waits_for_earlier_job(status, "that job ends")) return status;
  }
}

bool Node::starter_has_ended() const {
  pollfd end{starter_.get(), POLLIN, 0};
  return starter_.valid() && ::poll(&end, 1, 0) > 0;
}

// False: the node starts nothing and ends with this cause. True after a pause, so try again.
bool Node::waits_for_earlier_job(const Status& why, std::string_view until) {
  if (!options_.idle_exit || options_.rejoin) return false;
  const auto patience =
      std::min(kEarlierRunPatience, std::chrono::milliseconds(options_.timeouts.find_coordinator_ms));
  if (!waits_until_) {
    waits_until_ = Clock::now() + patience;
    warn(fmt::format("{}; this node waits until {}, at most {}", why.message(), until,
                     human_seconds(std::chrono::duration<double>(patience).count())));
  }
  const Clock::time_point next = Clock::now() + kEarlierRunPause;
  if (next > *waits_until_) return false;
  while (Clock::now() < next && !must_stop()) std::this_thread::sleep_for(kStopTick);
  return !must_stop() && !starter_has_ended();
}

Status Node::taken_over(const storage::EpochRecord& by) const {
  return Status(Code::superseded,
                fmt::format("{} has taken over {}: epoch {} at {}", storage::run_of(by, options_.job_id),
                            options_.root, by.epoch, by.address));
}

void Node::remove_locks_of_the_past() {
  std::vector<std::string> removed;
  const Status status =
      remove_unused_locks(std::filesystem::path(paths_.lock_file).parent_path(), paths_.lock_file,
                          std::chrono::system_clock::now() - kUnusedCatalogAge, &removed);
  for (const std::string& path : removed) {
    log_.info(fmt::format("removed {}, of a node that has not run for {} days", path,
                          kUnusedCatalogAge / std::chrono::hours(24)));
  }
  if (!status.ok()) warn(status.to_string());
}

void Node::remove_catalogs_of_the_past() {
  std::vector<std::string> removed;
  const Status status =
      remove_unused_catalogs(std::filesystem::path(paths_.catalog_dir).parent_path(), paths_.catalog_dir,
                             std::chrono::system_clock::now(), &removed);
  for (const std::string& path : removed) {
    log_.info(fmt::format("removed {}, a catalog that no node used for {} days", path,
                          kUnusedCatalogAge / std::chrono::hours(24)));
  }
  if (!status.ok()) warn(status.to_string());
}

Status Node::start_coordinating() {
  if (options_.read_only) {
    identity_.epoch = kReaderEpoch;
    return ok_status();
  }
  bool is_default = options_.catalog_dir.empty();
  SHOAL_ASSIGN_OR_RETURN(
      catalog_, storage::open_watched_catalog(is_default ? paths_.catalog_dir : options_.catalog_dir,
                                              is_default, root_.root_id, root_.storage(), *root_.watch,
                                              [this](const std::string& line) { warn(line); }));
  if (is_default) remove_catalogs_of_the_past();
  std::string address = reachable_address(transport_->listen_address(), own_host_name());
  SHOAL_ASSIGN_OR_RETURN(auto before, storage::highest_epoch(root_.storage()));
  if (before && storage::is_of_run(*before, options_.job_id, identity_.generation) &&
      before->address != address) {
    earlier_coordinator_ = before->address;
  }
  SHOAL_ASSIGN_OR_RETURN(identity_.epoch, claim_next_epoch(root_.storage(), address, identity_));
  epoch_address_ = address;
  claims_.epoch = storage::EpochRecord{identity_.epoch, address, identity_.job_id, identity_.incarnation,
                                       identity_.generation};
  return ok_status();
}

Status Node::follow_coordinator() {
  // The coordinator may run elsewhere now, so the node tries the configured address and the one in the root
  // in turn.
  Clock::time_point look_at = Clock::now() + kTryAddressFor;
  bool by_root = false;
  auto give_up = [&] {
    // The root names the coordinator of the job that trains.
    if (Clock::now() >= look_at && !options_.read_only) {
      by_root = !by_root;
      look_at = Clock::now() + kTryAddressFor;
      try_address(by_root);
    }
    report_if_unreachable();
    return must_stop() || starter_has_ended();
  };
  // The coordinator of an earlier job may still be at this address.
  const bool is_first = options_.idle_exit && !options_.rejoin;
  const auto refused_patience_ms =
      is_first ? static_cast<uint32_t>(kEarlierRunPatience.count()) : kRefusedPatienceMs;
  SHOAL_ASSIGN_OR_RETURN(
      transport::Identity coordinator,
      links_->find_coordinator(options_.timeouts.find_coordinator_ms, refused_patience_ms, give_up));
  identity_.generation = coordinator.generation;
  identity_.epoch = coordinator.epoch;
  if (options_.read_only) return ok_status();
  auto generation = storage::read_generation_record(root_.storage(), identity_.generation);
  if (generation.ok()) claims_.generation = *generation;
  return ok_status();
}

void Node::report_if_unreachable() {
  if (auto line = links_->unreachable_line()) warn(*line);
}

void Node::try_address(bool by_root) {
  auto highest = storage::highest_epoch(root_.storage());
  bool is_ours =
      highest.ok() && *highest && storage::is_of_run(**highest, options_.job_id, identity_.generation);
  if (is_ours) links_->redirect((*highest)->epoch, by_root ? (*highest)->address : options_.coordinator);
}

// Called before each commit: restores the run's records. In a root without them nobody would find the
// checkpoint.
Status Node::keep_claims() {
  auto restored = storage::restore_claims(root_.storage(), claims_);
  SHOAL_RETURN_IF_ERROR(restored.status());
  for (const std::string& path : *restored) {
    log_.warning(fmt::format("{}/{} was missing or damaged: this node has restored it",
                             root_.storage().describe(), path));
  }
  return ok_status();
}

Status Node::open_listener() {
  LocalServerOptions options;
  options.socket_file = socket_file();
  options.job_id = options_.job_id;
  options.world_size = options_.world_size;
  options.expected_ranks = options_.expected_ranks;
  options.read_only = options_.read_only;
  options.makes_way = options_.idle_exit;
  SHOAL_ASSIGN_OR_RETURN(server_, LocalServer::listen(std::move(options), slabs_, *wiring_));
  return ok_status();
}

// The metrics of the coordinator begin with the newest checkpoint of the root. Roles do not use it.
void Node::look_for_newest_checkpoint() {
  if (options_.read_only || !options_.coordinate) return;  // one node lists the root, not all of them
  constexpr uint32_t kEnoughForDamage = 100;
  bool is_found = false;
  for (const uint32_t newest : {uint32_t{1}, kEnoughForDamage}) {
    const Result<CheckpointList> found = storage::list_newest_checkpoints(root_.storage(), newest);
    if (!found.ok()) {
      return warn("the metrics do not show the last commit before the next one: " +
                  found.status().to_string());
    }
    for (const CheckpointInfo& info : found->attempts) {
      is_found = is_found || info.committed();
      if (info.committed()) activity_->checkpoint_exists({info.key, info.unix_time_ns, info.payload_bytes});
      if (newest != 1 || info.state != CheckpointInfo::State::damaged) continue;
      warn("the metrics show an older checkpoint as the last commit: " + to_string(info.key) +
           " is damaged: " + info.cause);
    }
    if (is_found || found->omitted == 0) return;
  }
}

// Both on one server if they have one address.
Status Node::open_pages() {
  const std::string& page = options_.coordinate ? options_.status_page : std::string();
  if (!options_.status_page.empty() && !options_.coordinate) {
    log_.info("the coordinator's node serves the status page, and this one does not");
  }
  if (options_.metrics.empty() && page.empty()) return ok_status();
  look_for_newest_checkpoint();
  std::vector<HttpRoute> routes;
  if (!options_.metrics.empty()) {
    routes.push_back(
        {"/metrics", kMetricsContentType, "", [this] { return format_metrics(report_->metrics()); }});
  }
  const bool is_one = page == options_.metrics;
  if (is_one) add_page(&routes);
  if (!options_.metrics.empty()) {
    SHOAL_ASSIGN_OR_RETURN(metrics_, start_server("metrics", options_.metrics, routes));
  }
  if (!page.empty() && !is_one) {
    routes.clear();
    add_page(&routes);
    SHOAL_ASSIGN_OR_RETURN(page_, start_server("status page", page, routes));
  }
  if (metrics_) log_.info(fmt::format("metrics at http://{}/metrics", metrics_->address()));
  if (!page.empty()) {
    log_.info(fmt::format("status page at http://{}/", is_one ? metrics_->address() : page_->address()));
  }
  for (const MetricsServer* server : {metrics_.get(), page_.get()}) {
    if (server == nullptr) continue;
    if (const auto line = server->warning()) log_.warning(*line);
  }
  return ok_status();
}

Result<std::unique_ptr<MetricsServer>> Node::start_server(const std::string& what, const std::string& address,
                                                          std::vector<HttpRoute> routes) {
  return MetricsServer::start(address, what, std::move(routes), kMetricsClientTimeoutMs,
                              [this] { scraper_turned_away(); });
}

void Node::add_page(std::vector<HttpRoute>* routes) {
  free_space_ = std::make_unique<FreeSpace>(root_.storage().describe());
  const std::string headers(kPageHeaders);
  routes->push_back({"/", kHtmlContentType, headers, [] { return std::string(status_page_html()); }});
  routes->push_back({"/status.json", kJsonContentType, headers, [this] {
                       return status_page_json({report_->status(), job_->newest(),
                                                activity_->save_records(base::steady_now_ns()),
                                                report_->metrics().activity, free_space_->newest(),
                                                base::unix_now_ns() / kMillisecond});
                     }});
}

void Node::scraper_turned_away() {
  static const Status flood(Code::busy,
                            fmt::format("more than {} connections at once, or no file descriptor for another "
                                        "one: this node closed a connection that had sent no request",
                                        kMaxMetricsConnections));
  if (auto line = scrapers_.line(base::steady_now_ns(), "", flood)) warn(*line);
}

void Node::prepare_job_watch() {
  job_ = std::make_unique<JobWatch>(JobWatch::Surroundings{
      options_.coordinate, base::steady_now_ns, [this] { return report_->status(); },
      [this] { return activity_->job_facts(); },
      [this](NodeId to, const LinkMessage& message) { links_->send_status(to, message); }});
  wiring_->watch(*job_);
  links_->set_status(job_.get());
}

// Opens nothing: the Loader does when it needs it.
void Node::prepare_sharing() {
  SharingLinks::Settings settings;
  settings.transport.identity = sent_identity();
  settings.transport.token = options_.token;
  settings.transport.network = options_.network;
  settings.own_host = [this] { return own_host(); };
  settings.host_name = own_host_name();
  settings.other_peers = peers_least_;
  settings.trainers = options_.expected_ranks.size();
  settings.log = [this](const std::string& line) { log_.info(line); };
  settings.warn = [this](const std::string& line) { log_.warning(line); };
  settings.on_left = [this](SendId id) { wiring_->on_left(id); };
  sharing_ = std::make_unique<SharingLinks>(
      std::move(settings), [this](NodeId from, WireMessage message, size_t encoded_bytes) {
        return wiring_->received(from, std::move(message), encoded_bytes);
      });
  wiring_->share(*sharing_);
  report_->set_sharing(sharing_.get());
}

void Node::prepare_staging() {
  StagingLimits limits;
  limits.bytes_max = options_.staging_memory_bytes;
  limits.ranks = static_cast<uint32_t>(options_.expected_ranks.size());
  auto send = [this](ClientId client, std::shared_ptr<const local::LocalMessage> message) {
    server_->send(client, std::move(message));
  };
  auto read_memory = options_.host_memory;
  if (!read_memory) {
    read_memory = [bytes_max = limits.bytes_max] { return memory_of_this_host(bytes_max); };
  }
  staging_ = std::make_unique<StagingMemory>(
      limits, StagingMemory::Surroundings{std::move(read_memory), send,
                                          [this](const std::string& line) { log_.info(line); }});
  parts_ = std::make_unique<StagedParts>(send);
  slabs_.stage_by(*parts_);
  wiring_->stage_by(*staging_, *parts_);
  first_save_ = std::make_unique<FirstSaveWatch>(root_.storage(), identity_.generation,
                                                 [this](const std::string& line) { wiring_->warn(line); });
  wiring_->watch(*first_save_);
}

// The host name or address at which other nodes reach this one.
Result<std::string> Node::own_host() const {
  if (!options_.coordinate) return own_address_towards(links_->coordinator(), options_.network);
  return own_address_beside(transport_->listen_address(), options_.network);
}

void Node::serve() {
  NodeConfig config;
  static_cast<RoleSettings&>(config) = options_;
  config.generation = identity_.generation;
  config.epoch = identity_.epoch;
  config.host = name_;
  config.pid = getpid();
  config.message_bytes_max = kMaxRelayedBytes;
  config.grants_staging = config.counts_returns = !options_.read_only;
  config.clients_read_files = root_.storage().has_files();
  std::vector<std::unique_ptr<Role>> roles;
  if (options_.coordinate) roles.push_back(make_coordinator(config));
  roles.push_back(make_planner(config));
  roles.push_back(make_shard_writer(config));
  roles.push_back(make_loader(config));
  host_ = std::make_unique<CafHost>(CafHostOptions{.coordinator_is_here = options_.coordinate},
                                    std::move(roles), *wiring_);
  report_->set_host(host_.get());
  wiring_->connect(*host_, *server_);
  if (options_.coordinate) {
    wiring_->check_joins([this](const std::string& host, uint32_t ranks, uint32_t world_size) {
      return hosts_.joined(host, ranks, world_size) ? check_hosts() : ok_status();
    });
  }
  links_->serve(*wiring_);
  transport_->set_generation(identity_.generation, identity_.epoch);
  server_->serve();
  if (earlier_coordinator_.empty()) return;
  wire::Superseded later{identity_.epoch, epoch_address_};
  links_->notify(earlier_coordinator_, {RoleKind::coordinator, RoleKind::coordinator,
                                        std::make_shared<const WireBody>(std::move(later))});
}

Status Node::open_protocol_log() {
  if (options_.protocol_log.empty()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(auto log, ProtocolLog::open(options_.protocol_log, wiring_->now()));
  wiring_->keep(std::move(log));
  return ok_status();
}

Status Node::run(const std::function<void(const std::string& address, uint32_t generation)>& on_ready) {
  SHOAL_RETURN_IF_ERROR(open());
  Status placed = take_place();
  if (placed.ok()) {
    runner_ = std::make_unique<OperationRunner>(
        root_.storage(), catalog_.get(), slabs_, root_.root_id,
        OperationRunner::Surroundings{[] { return random_128(); }, base::unix_now_ns,
                                      [this] { return keep_claims(); }, options_.read_only});
    activity_ = std::make_unique<Activity>(identity_.generation, options_.world_size);
    shown_ = activity_.get();
    report_ =
        std::make_unique<NodeReport>(NodeReport::Facts{name_, root_.storage().describe(), identity_,
                                                       transport_->listen_address(), options_.read_only},
                                     *activity_, *links_, *transport_, *root_.watch, slabs_, stop_);
    wiring_ = std::make_unique<NodeWiring>(*runner_, *links_, slabs_, log_, *activity_, *report_,
                                           options_.around_operation);
    prepare_sharing();
    prepare_staging();
    prepare_job_watch();
    placed = open_protocol_log();
    if (placed.ok()) placed = open_listener();
    if (placed.ok()) placed = open_pages();
  }
  if (!placed.ok()) {
    stop_transport(0);
    return placed;
  }
  serve();
  std::string address = transport_->listen_address();
  log_.info(options_.coordinate ? fmt::format("ready, coordinating at {}", address)
                                : fmt::format("ready, coordinator at {}", links_->coordinator()));
  if (on_ready) on_ready(address, identity_.generation);
  wait_until_stopped();
  stop();
  close();
  return ended_by_;
}

void Node::wait_until_stopped() {
  Clock::time_point busy_at = Clock::now();
  bool has_next_run = false;
  while (!must_stop()) {
    std::this_thread::sleep_for(kStopTick);
    links_->look_for_coordinator();
    report_if_unreachable();
    sharing_->close_idle();
    staging_->tick(wiring_->now());
    job_->tick();
    read_launcher();
    std::optional<storage::EpochRecord> later = wiring_->superseded_by();
    if (later && !storage::is_of_run(*later, options_.job_id, identity_.generation)) {
      ended_by_ = taken_over(*later);
      return;
    }
    // The trainers of a launcher may still start, and the launcher stops the node after them.
    const bool may_be_needed = !later || options_.launcher_fd >= 0;
    if (!options_.idle_exit && may_be_needed) continue;
    const bool is_requested = server_->is_requested_by_another_run();
    if (is_requested && !has_next_run) host_->post(RoleKind::shard_writer, event::NextRunStarts{});
    has_next_run = is_requested;
    bool has_followers = options_.coordinate && !later && links_->peers_up() > 0;
    bool has_children = relay_ && relay_->counts().children > 0;
    bool is_idle = server_->attached() == 0 && slabs_.empty() && !has_followers && !has_children;
    if (!is_idle) busy_at = Clock::now();
    bool makes_way = is_idle && is_requested;
    if (makes_way || Clock::now() - busy_at >= std::chrono::milliseconds(options_.idle_exit_after_ms)) {
      log_.info(makes_way ? "idle, and another run is starting" : later ? "idle, and superseded" : "idle");
      return;
    }
  }
}

// Reports that a trainer has ended only after its last messages have been posted.
void Node::read_launcher() {
  launcher_.receive([this](const LauncherReports::Ended& body) {
    if (server_->is_attached(body.rank)) return false;
    host_->post(RoleKind::shard_writer, event::TrainerEnded{body.rank, body.how});
    return true;
  });
}

void Node::stop() {
  // A client that comes to an idle node that ends shall wait for the next node. If the node was requested to
  // stop, there is none.
  const bool is_notified = must_stop();
  Status stopping(is_notified ? Code::aborted : Code::unavailable,
                  fmt::format("the node of this host {}stopping (pid {})",
                              is_notified ? "received a request to stop and is " : "is ", getpid()));
  server_->refuse_new(ended_by_.ok() ? stopping : ended_by_);
  if (must_stop_at_once()) return;
  log_.info("stopping: this node writes the staged saves first");
  server_->settle(kSettleMs);
  read_launcher();
  event::Drain how{.by_request = is_notified, .trainers_live = is_notified && server_->attached() > 0};
  auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.timeouts.node_deadline_ms);
  // First decides what was staged here, then what other nodes have in flight.
  if (options_.coordinate && how.by_request)
    host_->post(RoleKind::coordinator, event::Stopping{how.trainers_live});
  drain(RoleKind::shard_writer, how, deadline);
  how.trainers_live = is_notified && server_->attached() > 0;  // some may have ended meanwhile
  if (options_.coordinate) drain(RoleKind::coordinator, how, deadline);
}

void Node::drain(RoleKind role, const event::Drain& how, std::chrono::steady_clock::time_point deadline) {
  host_->post(role, how);
  while (!wiring_->wait_drained(role, kStopTick)) {
    staging_->tick(wiring_->now());
    job_->tick();
    if (must_stop_at_once()) return;
    if (std::chrono::steady_clock::now() < deadline) continue;
    log_.warning(fmt::format("the {} still has work, but the time to stop (node_deadline_ms) is over",
                             role_name(role)));
    return;
  }
}

// The relay ends first, so that its children receive everything.
void Node::stop_transport(uint32_t drain_ms) {
  if (!transport_) return;
  links_->set_relay(nullptr);
  if (relay_) relayed_ = relay_->counts();
  relay_.reset();
  if (sharing_) sharing_->stop(drain_ms);
  transport_->stop(drain_ms);
}

// Load choices of this job are not needed once its last rank has ended. `shoal gc` removes what remains.
void Node::end_reading() {
  if (!options_.read_only || !options_.coordinate) return;
  if (server_->attached() > 0 || links_->peers_up() > 0) return;
  Status removed = storage::remove_reader(root_.storage(), identity_.generation);
  if (!removed.ok()) log_.warning(removed.to_string());
}

void Node::close() {
  bool is_hurried = must_stop_at_once();
  wiring_->refuse_clients();
  job_->close();
  if (!ended_by_.ok()) server_->fail_all(ended_by_);
  server_->close_all(is_hurried ? 0 : kFlushClientsMs);
  parts_->close();
  end_reading();
  stop_transport(is_hurried ? 0 : kDrainTransportMs);
  metrics_.reset();
  page_.reset();
  NodeStats stats = report_->stats();
  stats.relay = relayed_;
  wiring_->add_stats(&stats);
  report_->set_host(nullptr);
  host_.reset();
  report_->set_sharing(nullptr);
  sharing_.reset();
  runner_.reset();
  catalog_.reset();
  server_.reset();
  if (!options_.stats_file.empty()) {
    Status written = write_stats_file(options_.stats_file, stats);
    if (!written.ok()) log_.warning(written.to_string());
  }
  log_.info("stopped");
}

}  // namespace

Status run_node(const NodeOptions& options, const std::atomic<int>& stop,
                const std::function<void(const std::string& address, uint32_t generation)>& on_ready) {
  std::signal(SIGPIPE, SIG_IGN);
  return Node(options, stop).run(on_ready);
}

}  // namespace shoal::actors
