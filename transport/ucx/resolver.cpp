#include <netdb.h>

#include <cstring>
#include <utility>

#include "transport/ucx/resolver_internal.h"

namespace shoal {

Result<SocketAddress> resolve(const HostPort& address, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::unavailable, "the host " + address.host + " is not known: " + gai_strerror(error));
  }
  // UCX's TCP speaks IPv4 by preference: so does the choice among a name's addresses.
  const addrinfo* chosen = found;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET) continue;
    chosen = each;
    break;
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

void Resolver::ask(HostPort address, Answer answer) {
  std::lock_guard lock(mutex_);
  questions_.push_back({std::move(address), std::move(answer)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void Resolver::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !questions_.empty(); });
    if (stopping_) return;
    Question question = std::move(questions_.front());
    questions_.pop_front();
    lock.unlock();
    question.answer(resolve(question.address, false));
    lock.lock();
  }
}

}  // namespace shoal
