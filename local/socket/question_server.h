// QuestionServer: a server for unauthenticated peers. A connection sends one question, gets one answer, and
// is closed. One thread serves all connections with poll, and no connection delays another.
//
// The number of connections and their lifetime are bounded, whatever they send. When there are too many, the
// server closes the oldest one that has sent nothing yet. It keeps each for at least `life_min`: that gives
// each the time to send its question, and bounds how fast a flood of connections is accepted.
//
// If memory is short, the server closes the connection that needs it and continues: its answers are not worth
// ending the process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptors.h"
#include "base/owned_fd.h"
#include "local/socket/socket.h"

namespace shoal::local {

struct QuestionLimits {
  size_t connections_max = 64;
  size_t question_bytes_max = 8192;
  std::chrono::milliseconds life_max{2000};  // from the connection to the last byte of its answer
  std::chrono::milliseconds life_min{25};
};

class QuestionServer {
 public:
  // The texts that the server sends. The thread of run() calls these functions.
  struct Words {
    // Makes the greeting that is sent first, a new one for each connection; at most a few hundred bytes. Not
    // set: the server sends no greeting.
    std::function<std::string()> greet;
    // Makes the answer. `question` is what has arrived so far, `greeting` the connection's greeting. nullopt:
    // more bytes are needed. Empty: the server closes the connection without an answer.
    std::function<std::optional<std::string>(std::string_view greeting, std::string_view question)> answer;
    std::string too_long;  // the answer to a question longer than question_bytes_max
    // Called when a connection was closed without an answer, because others needed its place or there was no
    // descriptor for it. May be empty.
    std::function<void()> turned_away = nullptr;
  };

  // `listener` is a listening, non-blocking socket.
  QuestionServer(base::OwnedFd listener, const QuestionLimits& limits, Words words);
  ~QuestionServer();           // closes every connection
  void run(int stop_fd = -1);  // serves until stop_fd is readable

 private:
  struct Connection;
  using Time = std::chrono::steady_clock::time_point;
  bool wait_and_serve(int stop_fd);
  void serve_or_close(Connection& connection);
  int timeout_ms(Time now) const;
  void accept_all();
  std::vector<std::unique_ptr<Connection>>::iterator first_to_go();
  void close_for_others(std::vector<std::unique_ptr<Connection>>::iterator goes);
  bool close_in_place();
  void begin(base::OwnedFd fd);
  void serve(Connection& connection);

  const base::OwnedFd listener_;
  const QuestionLimits limits_;
  const Words words_;
  std::vector<std::unique_ptr<Connection>> connections_;  // in the order of their accept
  std::optional<Time> shut_until_;                        // until then all are too young to be closed
  base::SpareDescriptor spare_descriptor_;
};

}  // namespace shoal::local
