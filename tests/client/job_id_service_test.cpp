// Ranks that come to one job id: rank 0 in a process of its own, for its id lives as long as the process.
#include "client/job_id_service_internal.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "local/socket.h"
#include "tests/client/fake_node.h"

namespace shoal {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{20};

uint16_t free_port() {
  OwnedFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t bytes = sizeof address;
  ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes);
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
  return ntohs(address.sin_port);
}

CheckpointerOptions options_of(const TemporaryRoot& root, Rank rank, const std::string& address) {
  CheckpointerOptions options;
  options.root = root.path();
  options.rank = rank;
  options.world_size = 4;
  options.job_id_exchange = JobIdExchange{address, "run7"};
  return options;
}

// A process that is rank 0, from begin() on until it is killed. Made before any thread is: a sanitizer has no
// use for a fork of several.
class Rank0 {
 public:
  explicit Rank0(const CheckpointerOptions& options) {
    int ends[2], start[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::pipe(start), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      char byte = 0;
      if (::read(start[0], &byte, 1) != 1) ::_exit(1);
      auto id = agree_on_job_id(options, Clock::now() + kPatience);
      std::string said = id.ok() ? *id : id.status().to_string();
      if (::write(ends[1], said.data(), said.size()) < 0) ::_exit(1);
      ::close(ends[1]);
      while (true) ::pause();
    }
    ::close(ends[1]);
    ::close(start[0]);
    answer_ = ends[0];
    start_ = start[1];
  }
  void begin() {
    EXPECT_EQ(::write(start_, "!", 1), 1);
    char text[1024];
    ssize_t bytes = ::read(answer_, text, sizeof text);
    said_.assign(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  }
  ~Rank0() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(answer_);
    ::close(start_);
  }
  const std::string& said() const { return said_; }

 private:
  pid_t pid_ = -1;
  int answer_ = -1, start_ = -1;
  std::string said_;
};

class JobIdService : public testing::TestWithParam<bool> {
 protected:
  const TemporaryRoot root_;
  const std::string address_ = GetParam() ? "127.0.0.1:" + std::to_string(free_port()) : "";
};

TEST_P(JobIdService, TellsEveryRankTheIdThatRank0Made) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  EXPECT_THAT(rank0.said(), StartsWith("rendezvous-"));
  for (Rank rank : {1u, 2u, 3u, 1u}) {
    auto id = agree_on_job_id(options_of(root_, rank, address_), Clock::now() + kPatience);
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    EXPECT_EQ(*id, rank0.said());
  }
}

TEST_P(JobIdService, MakesAnotherIdForTheNextRendezvous) {
  std::string first, second;
  {
    Rank0 rank0(options_of(root_, 0, address_));
    rank0.begin();
    first = rank0.said();
  }
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  second = rank0.said();
  EXPECT_THAT(second, StartsWith("rendezvous-"));
  EXPECT_NE(first, second);
  EXPECT_EQ(agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(), second);
}

TEST_P(JobIdService, WaitsForRank0) {
  Rank0 rank0(options_of(root_, 0, address_));
  std::string told;
  std::thread rank1(
      [&] { told = agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(); });
  rank0.begin();
  rank1.join();
  EXPECT_EQ(told, rank0.said());
}

TEST_P(JobIdService, RefusesARankOfAnotherRunOrWorldSize) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  CheckpointerOptions other = options_of(root_, 1, address_);
  other.job_id_exchange->run = "run8";
  Status refused = agree_on_job_id(other, Clock::now()).status();
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(), HasSubstr("run 'run7' with 4 ranks"));
  other = options_of(root_, 1, address_);
  other.world_size = 8;
  EXPECT_EQ(agree_on_job_id(other, Clock::now()).status().code(), Code::refused);
}

TEST_P(JobIdService, SaysThatNobodyIsThere) {
  Status nobody = agree_on_job_id(options_of(root_, 1, address_), Clock::now()).status();
  EXPECT_EQ(nobody.code(), Code::unavailable);
  EXPECT_THAT(nobody.message(), HasSubstr("the job's id, of rank 0"));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, JobIdService, testing::Bool(), [](const auto& each) {
  return each.param ? std::string("OverTheNetwork") : std::string("OnOneHost");
});

}  // namespace
}  // namespace shoal
