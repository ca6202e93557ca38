// Ranks agree on one job id. Rank 0 runs in a child process, because its id lives as long as the process.
#include "client/launch/job_id_service.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/owned_fd.h"
#include "local/socket/socket.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{20};

uint16_t free_port() {
  base::OwnedFd fd(::socket(AF_INET, SOCK_STREAM, 0));
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
  explicit Rank0(const CheckpointerOptions& options) : Rank0(std::vector{options}) {}
  // It opens these roots in turn and says their ids, one per line. `forks`: it then has a child of its own,
  // such as a worker that loads data, which lives until the last copy of start() is closed.
  explicit Rank0(const std::vector<CheckpointerOptions>& roots, bool forks = false) {
    int ends[2], start[2];
    EXPECT_EQ(::pipe(ends), 0);
    EXPECT_EQ(::pipe(start), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if a check ends the test
      char byte = 0;
      if (::read(start[0], &byte, 1) != 1) ::_exit(1);
      std::string received;
      for (const CheckpointerOptions& options : roots) {
        auto id = agree_on_job_id(options, Clock::now() + kPatience);
        received += (received.empty() ? "" : "\n") + (id.ok() ? *id : id.status().to_string());
      }
      if (forks && ::fork() == 0) {
        ::close(ends[1]);
        ::close(start[1]);
        while (::read(start[0], &byte, 1) > 0) {
        }
        ::_exit(0);
      }
      if (::write(ends[1], received.data(), received.size()) < 0) ::_exit(1);
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
  const std::string& received() const { return said_; }
  base::OwnedFd start() const { return base::OwnedFd(::dup(start_)); }

 private:
  pid_t pid_ = -1;
  int answer_ = -1, start_ = -1;
  std::string said_;
};

constexpr const char* kToken = "SHOAL_TOKEN";

class WithToken {
 public:
  WithToken() {
    ::unsetenv("SHOAL_TOKEN_FILE");
    ::setenv(kToken, "a secret", 1);
  }
  ~WithToken() { ::unsetenv(kToken); }
};

class JobIdService : public ::testing::TestWithParam<bool> {
 protected:
  const WithToken token_;
  const TemporaryRoot root_;
  const std::string address_ = GetParam() ? "127.0.0.1:" + std::to_string(free_port()) : "";
};

TEST_P(JobIdService, TellsEveryRankTheIdThatRank0Made) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  EXPECT_THAT(rank0.received(), StartsWith("rendezvous-"));
  for (Rank rank : {1u, 2u, 3u, 1u}) {
    auto id = agree_on_job_id(options_of(root_, rank, address_), Clock::now() + kPatience);
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    EXPECT_EQ(*id, rank0.received());
  }
}

TEST_P(JobIdService, MakesAnotherIdForTheNextRendezvous) {
  std::string first, second;
  {
    Rank0 rank0(options_of(root_, 0, address_));
    rank0.begin();
    first = rank0.received();
  }
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  second = rank0.received();
  EXPECT_THAT(second, StartsWith("rendezvous-"));
  EXPECT_NE(first, second);
  EXPECT_EQ(agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(), second);
}

// Regression: the child held the port, and the next rank 0 could not listen there.
TEST_P(JobIdService, IsNotHeldByAChildThatOutlivesRank0) {
  base::OwnedFd child;
  {
    Rank0 rank0({options_of(root_, 0, address_)}, true);
    rank0.begin();
    child = rank0.start();
  }
  CheckpointerOptions next = options_of(root_, 0, address_);
  Rank0 rank0(next);
  rank0.begin();
  const auto id = agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience);
  ASSERT_TRUE(id.ok()) << rank0.received() << "; " << id.status().to_string();
  EXPECT_EQ(*id, rank0.received());
}

// Regression: rank 0 served its id at the address of its first root only.
TEST_P(JobIdService, TellsTheSameIdForEachRootThatRank0Opens) {
  const TemporaryRoot other;
  const CheckpointerOptions first = options_of(root_, 0, address_), second = options_of(other, 0, address_);
  Rank0 rank0({first, second, first});
  rank0.begin();
  for (const TemporaryRoot* root : {&other, &root_}) {
    auto id = agree_on_job_id(options_of(*root, 1, address_), Clock::now() + kPatience);
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    EXPECT_EQ(rank0.received(), *id + "\n" + *id + "\n" + *id);
  }
}

// Regression: a job that loads from a root and then writes to another one could not open the second.
TEST_P(JobIdService, TellsTheIdForARootOfReadersAndThenForOneOfWriters) {
  CheckpointerOptions reads = options_of(root_, 0, address_);
  reads.read_only = true;
  Rank0 rank0({reads, options_of(root_, 0, address_)});
  rank0.begin();
  auto id = agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience);
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  reads.rank = 1;
  EXPECT_EQ(agree_on_job_id(reads, Clock::now() + kPatience).value(), *id);
}

TEST_P(JobIdService, WaitsForRank0) {
  Rank0 rank0(options_of(root_, 0, address_));
  std::string notified;
  std::thread rank1(
      [&] { notified = agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(); });
  rank0.begin();
  rank1.join();
  EXPECT_EQ(notified, rank0.received());
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

TEST_P(JobIdService, WaitsForNobodyOnceItIsInterrupted) {
  CheckpointerOptions options = options_of(root_, 1, address_);
  options.keep_waiting = [] { return false; };
  const Status failed = agree_on_job_id(options, Clock::now() + kPatience).status();
  EXPECT_THAT(failed.message(), StartsWith("interrupted: cannot get the job id from rank 0"));
}

TEST_P(JobIdService, SaysThatNobodyIsThere) {
  Status nobody = agree_on_job_id(options_of(root_, 1, address_), Clock::now()).status();
  EXPECT_EQ(nobody.code(), Code::unavailable);
  EXPECT_THAT(nobody.message(), HasSubstr("cannot get the job id from rank 0"));
}

INSTANTIATE_TEST_SUITE_P(Everywhere, JobIdService, ::testing::Bool(), [](const auto& each) {
  return each.param ? std::string("OverTheNetwork") : std::string("OnOneHost");
});

// Regression: rank 0 deleted whatever file the path of its socket named.
TEST(JobIdSocket, LeavesAFileThatIsNotASocket) {
  const TemporaryRoot root;
  const std::string path = root.path() + "/weights";
  std::ofstream(path + ".job") << "all of them";
  ::setenv("SHOAL_SOCKET", path.c_str(), 1);
  const Status refused = agree_on_job_id(options_of(root, 0, ""), Clock::now() + kPatience).status();
  ::unsetenv("SHOAL_SOCKET");
  EXPECT_EQ(refused.code(), Code::invalid_argument);
  EXPECT_THAT(refused.message(), HasSubstr(path + ".job: exists and is not a socket"));
  EXPECT_EQ(std::filesystem::file_size(path + ".job"), 11u);
}

// A stranger at the port of rank 0.
class JobIdListener : public ::testing::Test {
 protected:
  base::OwnedFd knock(const char* host = "127.0.0.1") const {
    base::OwnedFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{20, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    ::inet_pton(AF_INET, host, &to.sin_addr);
    const bool is_open = ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    return is_open ? std::move(fd) : base::OwnedFd();
  }
  // The whole answer to a stranger that sends only this.
  std::string hears(const std::string& words) const {
    base::OwnedFd fd = knock();
    EXPECT_TRUE(fd.valid());
    if (::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL) < 0) return "";
    ::shutdown(fd.get(), SHUT_WR);
    std::string out;
    char buffer[1024];
    for (ssize_t size; (size = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0;) {
      out.append(buffer, static_cast<size_t>(size));
    }
    return out;
  }

  const WithToken token_;
  const TemporaryRoot root_;
  const uint16_t port_ = free_port();
  const std::string address_ = "127.0.0.1:" + std::to_string(port_);
};

// Regression: the answer to a wrong question named the run and its ranks, and a question that repeated these
// was answered with the job's id.
TEST_F(JobIdListener, TellsAStrangerNothing) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  const std::string run7("\4\0\0\0\4\0\0\0", 8);  // 4 ranks, 4 bytes
  for (const std::string& words :
       {std::string(), "SHJ1" + run7 + "run7", "SHJ2" + run7 + std::string(64, '\0') + "run7",
        "SHJ2" + std::string(72, '\xff'), std::string(2000, 'x'), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    const std::string notified = hears(words);
    EXPECT_LE(notified.size(), 36u) << "a greeting: four letters and a nonce";
    EXPECT_TRUE(notified.empty() || notified.starts_with("SHJ2")) << notified;
  }
  EXPECT_EQ(agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(),
            rank0.received());
}

TEST_F(JobIdListener, RefusesAnotherToken) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  ::setenv(kToken, "another secret", 1);
  const Status refused = agree_on_job_id(options_of(root_, 1, address_), Clock::now()).status();
  EXPECT_EQ(refused.code(), Code::unavailable);
  EXPECT_THAT(refused.message(), HasSubstr("the answer does not prove the job's token"));
}

TEST_F(JobIdListener, NeedsATokenOnSeveralHosts) {
  ::unsetenv(kToken);
  for (Rank rank : {0u, 1u}) {
    const Status refused = agree_on_job_id(options_of(root_, rank, address_), Clock::now()).status();
    EXPECT_EQ(refused.code(), Code::invalid_argument);
    EXPECT_THAT(refused.message(), HasSubstr("SHOAL_TOKEN_FILE or SHOAL_TOKEN"));
  }
}

// Regression: each silent connection blocked the service for two seconds.
TEST_F(JobIdListener, IsHeardBesideHundredsThatSayNothing) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  std::vector<base::OwnedFd> silent;
  for (int i = 0; i < 500; ++i) silent.push_back(knock());
  EXPECT_EQ(agree_on_job_id(options_of(root_, 1, address_), Clock::now() + kPatience).value(),
            rank0.received());
}

// Regression: it listened on every interface.
TEST_F(JobIdListener, IsAtItsOwnAddressAlone) {
  Rank0 rank0(options_of(root_, 0, address_));
  rank0.begin();
  EXPECT_TRUE(knock("127.0.0.1").valid());
  EXPECT_FALSE(knock("127.0.0.2").valid());
}

}  // namespace
}  // namespace shoal::client
