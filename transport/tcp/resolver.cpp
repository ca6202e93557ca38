#include <netdb.h>

#include <cstring>
#include <utility>

#include "base/crash_report.h"

#include "base/host_port.h"
#include "transport/tcp/resolver.h"

namespace shoal::transport {

Result<SocketAddress> resolve(const base::HostPort& address, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::unavailable, "cannot resolve host " + address.host + ": " + gai_strerror(error));
  }
  // IPv4 only, one rule for both transports. UCX 1.13's TCP uses IPv4 by default; a listener on an IPv6
  // address then makes it write past the end of memory.
  const addrinfo* chosen = found;
  while (chosen != nullptr && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
  if (chosen == nullptr) {
    freeaddrinfo(found);
    return Status(Code::invalid_argument, address.host + " has only IPv6 addresses, but nodes need IPv4");
  }
  SocketAddress out;
  out.bytes = chosen->ai_addrlen;
  std::memcpy(&out.storage, chosen->ai_addr, chosen->ai_addrlen);
  freeaddrinfo(found);
  return out;
}

Resolver::~Resolver() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Resolver::ask(base::HostPort address, Answer answer) {
  std::lock_guard lock(mutex_);
  questions_.push_back({std::move(address), std::move(answer)});
  if (!thread_.joinable()) thread_ = base::vital_thread([this] { run(); });
  changed_.notify_all();
}

Result<SocketAddress> Resolver::look_up(base::HostPort address) const {
  if (!find_host_) return resolve(address, false);
  SHOAL_ASSIGN_OR_RETURN(address.host, find_host_(address.host));
  return resolve(address, true);
}

void Resolver::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    Question question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    question.answer(look_up(std::move(question.address)));
    lock.lock();
  }
}

}  // namespace shoal::transport
