// QuestionServer: a door to which anybody may come. A connection asks one question, gets one answer, and is
// closed. One thread serves all of them with poll; nobody waits for anybody else.
//
// Connections are few and live for a short time, whatever they send. When another one comes, the oldest that
// has asked nothing yet is closed; each is kept for `life_min` at least, which bounds how fast a flood of
// them is let in and gives each the time to ask.
//
// Where memory is short, the connection that needs it is closed, and the server goes on: what it serves is
// never worth the process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptors.h"
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
  // Called on the thread of run().
  struct Words {
    // Is sent first, to each connection one of its own; at most a few hundred bytes. Not set: nothing is.
    std::function<std::string()> greet;
    // The answer to what has come of a question, on the connection that was greeted so. Nothing: more is
    // needed. Empty: the connection is closed without a word.
    std::function<std::optional<std::string>(std::string_view greeting, std::string_view question)> answer;
    std::string too_long;  // the answer to a question longer than question_bytes_max
    // A connection was closed unanswered, for others came, or no descriptor was left for it. Not set:
    // nothing.
    std::function<void()> turned_away = nullptr;
  };

  // `listener` listens, and does not block.
  QuestionServer(OwnedFd listener, const QuestionLimits& limits, Words words);
  ~QuestionServer();           // closes every connection
  void run(int stop_fd = -1);  // until that descriptor can be read

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
  void begin(OwnedFd fd);
  void serve(Connection& connection);

  const OwnedFd listener_;
  const QuestionLimits limits_;
  const Words words_;
  std::vector<std::unique_ptr<Connection>> connections_;  // in the order they came
  std::optional<Time> shut_until_;                        // all are too young to be closed
  base::SpareDescriptor spare_descriptor_;
};

}  // namespace shoal::local
