#include "transport/live/shared.h"
#include "transport/message_check.h"

namespace shoal::transport {

PeerId Shared::connect(const std::string& address) {
  std::lock_guard lock(mutex_);
  auto found = by_address_.find(address);
  if (found != by_address_.end()) return found->second;
  PeerId peer = ++last_peer_;
  if (refuses_) return peer;
  by_address_.emplace(address, peer);
  queues_.open(peer);
  Command command;
  command.kind = Command::Kind::connect;
  command.peer = peer;
  command.address = address;
  commands_.push_back(std::move(command));
  wake_locked();
  return peer;
}

Status Shared::send(PeerId peer, Bytes message) {
  // A message for which the peer would end the session is an error of the caller.
  if (Status fits = check_segment_table(message); !fits.ok()) {
    return fits.code() == Code::too_large ? fits : Status(Code::invalid_argument, fits.message());
  }
  if (refuses_) return Status(Code::unavailable, "the transport is stopping");
  bool wake = false;
  SHOAL_RETURN_IF_ERROR(queues_.push(peer, std::move(message), wake));
  if (!wake) return ok_status();
  std::lock_guard lock(mutex_);
  wake_locked();
  return ok_status();
}

void Shared::post(Command command) {
  std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
  wake_locked();
}

void Shared::set_generation(uint32_t generation, uint32_t epoch) {
  std::lock_guard lock(mutex_);
  if (generation != 0) identity_.generation = generation;
  if (epoch != 0) identity_.epoch = epoch;
}

TransportStats Shared::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void Shared::set_wake(std::function<void()> wake) {
  std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

std::vector<Command> Shared::take_commands() {
  std::lock_guard lock(mutex_);
  return std::exchange(commands_, {});
}

PeerId Shared::add_peer() {
  std::lock_guard lock(mutex_);
  PeerId peer = ++last_peer_;
  queues_.open(peer);
  return peer;
}

void Shared::remove_peer(PeerId peer, const std::string& address) {
  queues_.close(peer);
  std::lock_guard lock(mutex_);
  auto found = by_address_.find(address);
  if (found != by_address_.end() && found->second == peer) by_address_.erase(found);
}

void Shared::refuse_new() {
  std::lock_guard lock(mutex_);
  refuses_ = true;
}

void Shared::refuse_all() {
  refuse_new();
  queues_.close_all();
}

Identity Shared::identity() const {
  std::lock_guard lock(mutex_);
  return identity_;
}

}  // namespace shoal::transport
