#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "actors/node/clients/local_connection.h"

#include "base/owned_fd.h"
#include "base/process_state.h"
#include "base/visit.h"

namespace shoal::actors {

namespace {

constexpr int kReadTickMs = 100;  // how often a reader checks whether the server stops
// Longest time from the end of a connection to the end of its process: the memory of a GPU is given back
// then.
constexpr int kDyingMs = 1'000;

}  // namespace

LocalServer::Connection::Connection(LocalServer& server, ClientId id, base::OwnedFd fd)
    : server_(server), id_(id), socket_(std::move(fd)) {}

LocalServer::Connection::~Connection() {
  close();
  join();
}

void LocalServer::Connection::join() {
  if (reader_.joinable()) reader_.join();
}

bool LocalServer::Connection::start() {
  try {
    writer_ = std::thread([this] { write_loop(); });
    reader_ = std::thread([this] { read_loop(); });
    return true;
  } catch (const std::exception&) {  // no thread can be created
    close();
    if (writer_.joinable()) writer_.join();
    return false;
  }
}

void LocalServer::Connection::send(std::shared_ptr<const local::LocalMessage> message) {
  bool is_full = false;
  {
    std::lock_guard lock(mutex_);
    if (is_last_queued_) return;
    has_failed_ = is_last_queued_ = std::holds_alternative<local::Failed>(*message);
    is_full = outgoing_.size() >= server_.options_.outgoing_max;
    if (is_full) is_last_queued_ = true;
    if (!is_full) outgoing_.push_back(std::move(message));
  }
  changed_.notify_one();
  if (is_full) close();
}

void LocalServer::Connection::close() {
  socket_.shutdown();
  std::lock_guard lock(mutex_);
  outgoing_.clear();
  is_last_queued_ = true;
  changed_.notify_one();
}

void LocalServer::Connection::finish_writing() {
  {
    std::lock_guard lock(mutex_);
    is_last_queued_ = true;
  }
  changed_.notify_one();
}

void LocalServer::Connection::write_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_last_queued_ || !outgoing_.empty(); });
    if (outgoing_.empty()) break;
    std::shared_ptr<const local::LocalMessage> message = std::move(outgoing_.front());
    outgoing_.pop_front();
    lock.unlock();
    bool is_sent = socket_.send(*message).ok();
    lock.lock();
    if (!is_sent) {
      outgoing_.clear();
      is_last_queued_ = true;
    }
  }
  lock.unlock();
  socket_.shutdown();
}

void LocalServer::Connection::fail(const Status& why) {
  send(std::make_shared<const local::LocalMessage>(local::Failed{.why = why}));
}

void LocalServer::Connection::read_loop() {
  Status status = attach();
  bool has_detached = false;
  while (status.ok()) {
    auto received = socket_.receive(kReadTickMs);
    if (!received.ok()) {
      status = received.status();
    } else if (received->has_value()) {
      if (std::holds_alternative<local::Detach>((*received)->message)) {
        server_.events_.from_client(
            id_, std::make_shared<const local::LocalMessage>(std::move((*received)->message)));
        has_detached = true;
        break;
      }
      status = handle(std::move(**received));
    } else if (!server_.takes_clients_.load()) {
      is_silent_ = true;
      server_.connection_ended();
    }
  }
  const bool was_refused = has_failed() || (!status.ok() && status.code() != Code::unavailable);
  if (!status.ok() && status.code() != Code::unavailable) fail(status);
  finish_writing();
  if (rank_) {
    if (!has_detached) server_.release_rank(*rank_);  // a trainer that lives attaches again meanwhile
    server_.events_.client_lost(id_, !has_detached && !was_refused && may_attach_again());
    if (has_detached) server_.release_rank(*rank_);
  } else {
    server_.slabs_.forget(id_);
  }
  writer_.join();  // so that the client receives the last message, with the cause
  has_ended_ = true;
  server_.connection_ended();
}

// The node has told the client why it ends the connection. The client does not attach again.
bool LocalServer::Connection::has_failed() {
  std::lock_guard lock(mutex_);
  return has_failed_;
}

// The kernel closes the connection of a process that dies shortly before that process has ended.
bool LocalServer::Connection::may_attach_again() const {
  return server_.is_listening_.load() && base::outlives(socket_.peer_pid(), kDyingMs);
}

Status LocalServer::Connection::attach() {
  SHOAL_ASSIGN_OR_RETURN(auto first, socket_.receive(static_cast<int>(server_.options_.attach_timeout_ms)));
  if (!first) return Status(Code::deadline_exceeded, "the client sent no Attach in time");
  if (std::get_if<local::StatusRequest>(&first->message) != nullptr) {
    send(std::make_shared<const local::LocalMessage>(local::StatusReport{server_.events_.status()}));
    return Status(Code::unavailable, "answered");
  }
  if (std::get_if<local::JobStatusRequest>(&first->message) != nullptr) {
    send(std::make_shared<const local::LocalMessage>(local::JobStatusReport{server_.events_.job_status()}));
    return Status(Code::unavailable, "answered");
  }
  const auto* attach = std::get_if<local::Attach>(&first->message);
  if (attach == nullptr) return Status(Code::refused, "the first message must be Attach");
  Status why = server_.check_attach(*attach);
  if (why.ok()) why = server_.take_rank(*attach, id_);
  if (why.code() == Code::unavailable) fail(why);  // elsewhere this code means that the client has gone
  SHOAL_RETURN_IF_ERROR(why);
  rank_ = attach->rank;
  server_.events_.from_client(id_, std::make_shared<const local::LocalMessage>(std::move(first->message)));
  return ok_status();
}

namespace {
// OK: a client may send this message after Attach.
Status check_sender(const local::LocalMessage& message, bool read_only) {
  return std::visit(
      base::Overloaded{
          // The messages of a save.
          [read_only](const base::OneOf<local::LayoutUpdate, local::Staged, local::Written, local::NotStaged,
                                        local::PlanRequest, local::PlanGathering, local::StagingRequest,
                                        local::StagingKept, local::PartStaged, local::SaveReturned> auto&) {
            if (!read_only) return ok_status();
            return Status(Code::refused, "this node only reads the root, and saves nothing");
          },
          [](const base::OneOf<local::Slab, local::Latest, local::List, local::Load, local::Placed,
                               local::FilesRead, local::Close, local::Ping> auto&) { return ok_status(); },
          // Detach ends the connection before this; the others only begin one.
          [](const base::OneOf<local::Attach, local::Detach, local::StatusRequest,
                               local::JobStatusRequest> auto&) {
            return Status(Code::invalid_argument, "a client must not send this message");
          },
          [](const local::OnlyFromNode auto&) {
            return Status(Code::invalid_argument, "a client must not send this message");
          }},
      message);
}
}  // namespace

Status LocalServer::Connection::handle(local::ReceivedLocal received) {
  SHOAL_RETURN_IF_ERROR(check_sender(received.message, server_.options_.read_only));
  if (const auto* slab = std::get_if<local::Slab>(&received.message)) {
    SHOAL_RETURN_IF_ERROR(server_.slabs_.add(id_, *slab, std::move(received.fd)));
  }
  server_.events_.from_client(id_, std::make_shared<const local::LocalMessage>(std::move(received.message)));
  return ok_status();
}

}  // namespace shoal::actors
