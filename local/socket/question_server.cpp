#include "local/socket/question_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <thread>
#include <utility>

#include "base/owned_fd.h"

namespace shoal::local {

namespace {

constexpr std::chrono::milliseconds kPauseAfterFailure{100};  // of poll, or for lack of memory

bool must_wait(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

struct QuestionServer::Connection {
  base::OwnedFd fd;
  Time came, deadline;
  std::string greeting;
  std::string question;
  std::string answer;  // not empty: the question is complete
  size_t sent = 0;
  bool has_ended = false;
};

QuestionServer::QuestionServer(base::OwnedFd listener, const QuestionLimits& limits, Words words)
    : listener_(std::move(listener)), limits_(limits), words_(std::move(words)) {}

QuestionServer::~QuestionServer() = default;

void QuestionServer::run(int stop_fd) {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = wait_and_serve(stop_fd);
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPauseAfterFailure);
    }
  }
}

// False: the server must stop.
bool QuestionServer::wait_and_serve(int stop_fd) {
  Time now = std::chrono::steady_clock::now();
  if (shut_until_ && now >= *shut_until_) shut_until_.reset();
  std::vector<pollfd> polled = {{stop_fd, POLLIN, 0}, {shut_until_ ? -1 : listener_.get(), POLLIN, 0}};
  for (const auto& each : connections_) {
    polled.push_back({each->fd.get(), static_cast<short>(each->answer.empty() ? POLLIN : POLLOUT), 0});
  }
  if (poll(polled.data(), polled.size(), timeout_ms(now)) < 0) {
    if (errno != EINTR) std::this_thread::sleep_for(kPauseAfterFailure);
    return true;
  }
  if (polled[0].revents != 0) return false;
  now = std::chrono::steady_clock::now();
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (polled[i + 2].revents != 0) serve_or_close(*connections_[i]);
    if (now >= connections_[i]->deadline) connections_[i]->has_ended = true;
  }
  std::erase_if(connections_, [](const auto& each) { return each->has_ended; });
  if (polled[1].revents != 0) accept_all();
  return true;
}

int QuestionServer::timeout_ms(Time now) const {
  std::optional<Time> wake_at = shut_until_;
  for (const auto& each : connections_) {
    wake_at = wake_at ? std::min(*wake_at, each->deadline) : each->deadline;
  }
  if (!wake_at) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*wake_at - now).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

void QuestionServer::accept_all() {
  for (;;) {
    const bool is_full = connections_.size() >= limits_.connections_max;
    const auto goes = first_to_go();
    const bool may_go =
        goes != connections_.end() && std::chrono::steady_clock::now() >= (*goes)->came + limits_.life_min;
    if (is_full && !may_go) {
      shut_until_ = (*goes)->came + limits_.life_min;
      return;
    }
    base::OwnedFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      if (is_full) close_for_others(goes);
      begin(std::move(fd));
    } else if (!base::is_out_of_descriptors(errno)) {
      return;
    } else if (may_go) {
      close_for_others(goes);
    } else if (!close_in_place()) {
      return;
    }
  }
}

// The oldest connection without a complete question; if there is none, the oldest.
std::vector<std::unique_ptr<QuestionServer::Connection>>::iterator QuestionServer::first_to_go() {
  const auto silent = std::find_if(connections_.begin(), connections_.end(),
                                   [](const auto& each) { return each->answer.empty(); });
  return silent == connections_.end() ? connections_.begin() : silent;
}

void QuestionServer::close_for_others(std::vector<std::unique_ptr<Connection>>::iterator goes) {
  connections_.erase(goes);
  if (words_.turned_away) words_.turned_away();
}

// Closes a waiting connection, because there is no descriptor to answer it. False: none could be closed.
bool QuestionServer::close_in_place() {
  base::OwnedFd fd = spare_descriptor_.accept_in_place(listener_.get());
  const bool is_closed = fd.valid();
  if (is_closed && words_.turned_away) words_.turned_away();
  fd.reset();
  spare_descriptor_.refill();
  return is_closed;
}

void QuestionServer::begin(base::OwnedFd fd) {
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(fd);
  connection->came = std::chrono::steady_clock::now();
  connection->deadline = connection->came + limits_.life_max;
  if (words_.greet) connection->greeting = words_.greet();
  const std::string& greeting = connection->greeting;
  // The greeting is short and the first data: the socket accepts it whole, or the peer is gone.
  if (!greeting.empty() && send(connection->fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
                               static_cast<ssize_t>(greeting.size())) {
    return;
  }
  connections_.push_back(std::move(connection));
}

void QuestionServer::serve_or_close(Connection& connection) {
  try {
    serve(connection);
  } catch (const std::bad_alloc&) {
    connection.has_ended = true;
  }
}

void QuestionServer::serve(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[2048];
    const ssize_t size = recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (size < 0 && must_wait(errno)) return;
    connection.has_ended = size <= 0;
    if (connection.has_ended) return;
    connection.question.append(buffer, static_cast<size_t>(size));
    if (connection.question.size() > limits_.question_bytes_max) {
      connection.answer = words_.too_long;
    } else if (auto answer = words_.answer(connection.greeting, connection.question)) {
      connection.answer = std::move(*answer);
    } else {
      return;
    }
  }
  while (connection.sent < connection.answer.size()) {
    const ssize_t size = send(connection.fd.get(), connection.answer.data() + connection.sent,
                              connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (size < 0 && must_wait(errno)) return;
    if (size < 0) break;
    connection.sent += static_cast<size_t>(size);
  }
  connection.has_ended = true;
}

}  // namespace shoal::local
