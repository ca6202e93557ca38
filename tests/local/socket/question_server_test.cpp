// A server for any local process: it answers each question, whatever other connections do.
#include "local/socket/question_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/owned_fd.h"
#include "tests/loopback.h"

namespace shoal::local {
namespace {

using std::chrono::milliseconds;

constexpr int kPatienceMs = 30'000;

// Answers "NAME\n" with what it greeted with and the name.
class QuestionServerTest : public ::testing::Test {
 protected:
  void begin(const QuestionLimits& limits) {
    base::OwnedFd listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address_;
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(listener.get(), 4096), 0);
    ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address_), &bytes), 0);
    server_ = std::make_unique<QuestionServer>(
        std::move(listener), limits,
        QuestionServer::Words{
            .greet = [this] { return std::to_string(++greeted_) + ":"; },
            .answer = [](std::string_view greeting, std::string_view question) -> std::optional<std::string> {
              if (question == "?\n") return "";
              if (!question.ends_with('\n')) return std::nullopt;
              return std::string(greeting) + std::string(question);
            },
            .too_long = "too long",
            .turned_away = [this] { ++turned_away_; }});
    thread_ = std::thread([this] { server_->run(stop_.get()); });
  }
  void TearDown() override {
    const uint64_t one = 1;
    EXPECT_EQ(write(stop_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    if (thread_.joinable()) thread_.join();
  }
  base::OwnedFd connect_to() const { return connect_to_loopback(ntohs(address_.sin_port)); }
  std::string ask(const std::string& question) const {
    base::OwnedFd fd = connect_to();
    EXPECT_EQ(send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(question.size()));
    return read_all(fd);
  }

  std::atomic<int> turned_away_{0};

 private:
  base::OwnedFd stop_{eventfd(0, EFD_CLOEXEC)};
  sockaddr_in address_{};
  int greeted_ = 0;
  std::unique_ptr<QuestionServer> server_;
  std::thread thread_;
};

TEST_F(QuestionServerTest, AnswersEachByItsOwnGreeting) {
  begin({});
  EXPECT_EQ(ask("one\n"), "1:1:one\n");
  EXPECT_EQ(ask("two\n"), "2:2:two\n");
  EXPECT_EQ(ask("?\n"), "3:") << "closed without an answer";
}

TEST_F(QuestionServerTest, AnswersWhileManyMoreThanItTakesSayNothing) {
  begin({.connections_max = 4, .life_max = milliseconds(60'000)});
  std::vector<base::OwnedFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to());
  EXPECT_EQ(ask("me\n"), "101:101:me\n");
  EXPECT_EQ(read_all(silent.front()), "1:") << "the oldest one made room";
  EXPECT_EQ(turned_away_.load(), 97) << "all but those that it holds are counted";
}

// Regression: each byte restarted the timeout.
TEST_F(QuestionServerTest, ClosesOneThatSendsAByteAtATime) {
  begin({.question_bytes_max = 1 << 30, .life_max = milliseconds(200)});
  base::OwnedFd slow = connect_to();
  const auto give_up = std::chrono::steady_clock::now() + milliseconds(kPatienceMs);
  std::string received;
  bool is_closed = false;
  while (!is_closed && std::chrono::steady_clock::now() < give_up) {
    if (send(slow.get(), "x", 1, MSG_NOSIGNAL) != 1) is_closed = true;
    pollfd readable{slow.get(), POLLIN, 0};
    if (poll(&readable, 1, 20) <= 0) continue;
    char buffer[16];
    is_closed = recv(slow.get(), buffer, sizeof buffer, 0) <= 0 || is_closed;
  }
  EXPECT_TRUE(is_closed);
}

TEST_F(QuestionServerTest, RefusesALongQuestion) {
  begin({.question_bytes_max = 10});
  EXPECT_EQ(ask(std::string(11, 'x')), "1:too long");
}

}  // namespace
}  // namespace shoal::local
