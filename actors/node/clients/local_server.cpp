#include "actors/node/clients/local_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/node/clients/local_connection.h"
#include "base/crash_report.h"
#include "base/owned_fd.h"

namespace shoal::actors {

namespace {

constexpr int kAcceptTickMs = 100;

}  // namespace

Result<std::unique_ptr<LocalServer>> LocalServer::listen(LocalServerOptions options, SlabTable& slabs,
                                                         LocalEvents& events) {
  SHOAL_ASSIGN_OR_RETURN(auto listener, local::LocalListener::listen(options.socket_file));
  return std::unique_ptr<LocalServer>(
      new LocalServer(std::move(options), std::move(listener), slabs, events));
}

LocalServer::LocalServer(LocalServerOptions options, std::unique_ptr<local::LocalListener> listener,
                         SlabTable& slabs, LocalEvents& events)
    : options_(std::move(options)),
      slabs_(slabs),
      events_(events),
      listener_(std::move(listener)),
      world_size_(options_.world_size) {}

LocalServer::~LocalServer() {
  close_all(0);
}

void LocalServer::serve() {
  accepting_ = base::vital_thread([this] { accept_loop(); });
}

void LocalServer::close_all(uint32_t flush_ms) {
  is_listening_ = false;
  if (accepting_.joinable()) accepting_.join();
  listener_.reset();  // closes connections that wait in its queue, and lets no further client connect
  std::map<ClientId, std::shared_ptr<Connection>> connections;
  {
    std::unique_lock lock(mutex_);
    is_closed_ = true;
    connections.swap(connections_);
    for (auto& [id, connection] : connections) connection->finish_writing();
    changed_.wait_for(lock, std::chrono::milliseconds(flush_ms), [&] {
      return std::all_of(connections.begin(), connections.end(),
                         [](const auto& each) { return each.second->has_ended(); });
    });
  }
  for (auto& [id, connection] : connections) connection->close();
  for (auto& [id, connection] : connections) connection->join();
}

void LocalServer::accept_loop() {
  while (is_listening_.load()) {
    auto accepted = listener_->accept(kAcceptTickMs);
    join_ended();
    if (!accepted.ok()) turn_away_in_place();
    if (!accepted.ok() || !accepted->has_value()) continue;
    std::lock_guard lock(mutex_);
    if (connections_.size() >= options_.clients_max) continue;  // this closes the connection
    if (is_closed_) continue;
    ClientId id = next_client_++;
    auto connection = std::make_shared<Connection>(*this, id, std::move(**accepted));
    if (connection->start()) connections_.emplace(id, connection);
  }
}

// There is no descriptor for the next client. It receives an error and tries again.
void LocalServer::turn_away_in_place() {
  base::OwnedFd fd = spare_descriptor_.accept_in_place(listener_->fd());
  if (fd.valid()) {
    Status why(Code::unavailable, "the node of this host: " + base::out_of_descriptors().message());
    (void)local::LocalSocket(std::move(fd)).try_send(local::Failed{.why = why});
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(kAcceptTickMs));
  }
  spare_descriptor_.refill();
}

void LocalServer::join_ended() {
  std::vector<std::shared_ptr<Connection>> ended;
  {
    std::lock_guard lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      bool has_ended = it->second->has_ended();
      if (has_ended) ended.push_back(std::move(it->second));
      it = has_ended ? connections_.erase(it) : std::next(it);
    }
  }
}

void LocalServer::send(ClientId client, std::shared_ptr<const local::LocalMessage> message) {
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard lock(mutex_);
    auto it = connections_.find(client);
    if (it == connections_.end()) return;
    connection = it->second;
  }
  connection->send(std::move(message));
}

size_t LocalServer::clients() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const auto& each) { return !each.second->has_ended(); }));
}

size_t LocalServer::attached() const {
  std::lock_guard lock(mutex_);
  return ranks_.size();
}

bool LocalServer::is_attached(Rank rank) const {
  std::lock_guard lock(mutex_);
  return ranks_.contains(rank);
}

void LocalServer::refuse_new(Status why) {
  {
    std::lock_guard lock(mutex_);
    refusal_ = std::move(why);
    takes_clients_ = false;
  }
  changed_.notify_all();
}

// REQUIRES: mutex_ is held.
Status LocalServer::refusal(const local::Attach& attach) const {
  auto known = processes_.find(attach.rank);
  const bool is_of_this_run = known == processes_.end() || known->second == attach.process;
  // Another run does not end with this node.
  if (refusal_.code() == Code::aborted && !is_of_this_run) {
    return Status(Code::unavailable, refusal_.message());
  }
  return refusal_;
}

bool LocalServer::settle(uint32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] {
    return std::all_of(connections_.begin(), connections_.end(),
                       [](const auto& each) { return each.second->has_ended() || each.second->is_silent(); });
  });
}

void LocalServer::fail_all(const Status& why) {
  std::lock_guard lock(mutex_);
  for (auto& [id, connection] : connections_) connection->fail(why);
}

Status LocalServer::check_attach(const local::Attach& attach) {
  if (attach.schema_version != local::kLocalSchemaVersion) {
    return Status(Code::version, fmt::format("the client speaks version {} of the local schema, but this "
                                             "node speaks version {}: use the same version of Shoal for both",
                                             attach.schema_version, local::kLocalSchemaVersion));
  }
  if (attach.read_only != options_.read_only) return of_another_kind(attach);
  if (attach.job_id != options_.job_id) {
    return of_another_run(fmt::format("this node serves job '{}', but the client belongs to job '{}'",
                                      options_.job_id, attach.job_id));
  }
  if (attach.world_size == 0 || attach.rank >= attach.world_size) {
    return Status(Code::invalid_argument,
                  fmt::format("rank {} is outside a world of {} ranks", attach.rank, attach.world_size));
  }
  const auto& expected = options_.expected_ranks;
  if (!expected.empty() && std::find(expected.begin(), expected.end(), attach.rank) == expected.end()) {
    return Status(Code::refused, fmt::format("rank {} does not belong to this host", attach.rank));
  }
  std::lock_guard lock(mutex_);
  if (world_size_ == 0) world_size_ = attach.world_size;
  if (attach.world_size == world_size_) return ok_status();
  std::string what = fmt::format("the world size of this job is {}, but rank {} has a world size of {}",
                                 world_size_, attach.rank, attach.world_size);
  // If ranks are attached, the client belongs to their run, and its world size is wrong.
  return ranks_.empty() ? of_another_run(std::move(what)) : Status(Code::refused, std::move(what));
}

// The client can only have found this node through SHOAL_SOCKET, which it has from its parent process.
Status LocalServer::of_another_kind(const local::Attach& attach) const {
  constexpr const char* kRemedy = "unset SHOAL_SOCKET, so that the client finds or starts its own node";
  if (options_.read_only) {
    return Status(Code::refused, fmt::format("the node at {} only reads, for job '{}', but the client of job "
                                             "'{}' saves: {}, or open the root with read_only",
                                             options_.socket_file, options_.job_id, attach.job_id, kRemedy));
  }
  return Status(
      Code::refused,
      fmt::format("the node at {} serves job '{}', which saves, but the client of job '{}' only reads: {}",
                  options_.socket_file, options_.job_id, attach.job_id, kRemedy));
}

Status LocalServer::of_another_run(std::string what) {
  if (options_.makes_way) is_requested_by_another_run_.store(true);
  return Status(options_.makes_way ? Code::unavailable : Code::refused, std::move(what));
}

Status LocalServer::take_rank(const local::Attach& attach, ClientId client) {
  const Rank rank = attach.rank;
  std::unique_lock lock(mutex_);
  const auto is_held = [&] { return ranks_.contains(rank); };
  changed_.wait_for(lock, std::chrono::milliseconds(options_.same_rank_patience_ms),
                    [&] { return !refusal_.ok() || !is_held(); });
  SHOAL_RETURN_IF_ERROR(refusal(attach));
  if (is_held()) return Status(Code::already_exists, fmt::format("rank {} is attached already", rank));
  Nonce& process = processes_[rank];
  if (!process.is_zero() && process != attach.process) {
    return of_another_run(
        fmt::format("rank {} of job '{}' was opened before, by a process that has ended: a job id names one "
                    "run, in which each rank is one process",
                    rank, options_.job_id));
  }
  process = attach.process;
  ranks_[rank] = client;
  is_requested_by_another_run_.store(false);  // this run goes on
  return ok_status();
}

void LocalServer::release_rank(Rank rank) {
  {
    std::lock_guard lock(mutex_);
    ranks_.erase(rank);
  }
  changed_.notify_all();
}

void LocalServer::connection_ended() {
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

}  // namespace shoal::actors
