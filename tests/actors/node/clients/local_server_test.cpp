// The node's end of the Unix socket, with real sockets: which clients are accepted, in which order messages
// are passed on, and that a client that misbehaves affects no other client.
#include "actors/node/clients/local_server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>

#include <fcntl.h>

#include "base/owned_fd.h"
#include "local/status/node_query.h"

namespace shoal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kPatienceMs = 20'000;

// Writes down what the roles would hear.
class HeardOfClients final : public actors::LocalEvents {
 public:
  void from_client(actors::ClientId client, std::shared_ptr<const local::LocalMessage> message) override {
    add(fmt::format("{} {}", client, message->index()));
  }
  void client_lost(actors::ClientId client, bool process_lives) override {
    {
      std::lock_guard lock(mutex_);
      if (process_lives) living_.insert(client);
    }
    add(fmt::format("{} lost", client));
  }
  std::shared_ptr<const local::NodeStatus> status() override {
    local::NodeStatus status;
    status.host = "host-of-the-test";
    return std::make_shared<const local::NodeStatus>(std::move(status));
  }
  std::shared_ptr<const local::JobStatus> job_status() override {
    return std::make_shared<const local::JobStatus>(local::JobStatus{.hosts_count = 77});
  }

  bool wait_for(const std::string& line) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                             [&] { return std::find(lines_.begin(), lines_.end(), line) != lines_.end(); });
  }
  // Of a client that was lost: whether its process lived.
  bool lives(actors::ClientId client) {
    std::lock_guard lock(mutex_);
    return living_.contains(client);
  }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  void add(std::string line) {
    {
      std::lock_guard lock(mutex_);
      lines_.push_back(std::move(line));
    }
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  std::set<actors::ClientId> living_;
};

std::string index_of(const local::LocalMessage& message) {
  return std::to_string(message.index());
}
const std::string kAttach = index_of(local::Attach{});
const std::string kLatest = index_of(local::Latest{});
const std::string kPlaced = index_of(local::Placed{});

class Server : public ::testing::Test {
 protected:
  Server() {
    char path[] = "/tmp/shoal-server-XXXXXX";
    folder_ = mkdtemp(path);
    options_.socket_file = folder_ + "/socket";
    options_.job_id = "job";
    options_.same_rank_patience_ms = 50;
  }
  ~Server() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  void serve() {
    auto server = actors::LocalServer::listen(options_, slabs_, heard_);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
    server_->serve();
  }
  std::unique_ptr<local::LocalSocket> connect() {
    return local::LocalSocket::connect(options_.socket_file).value();
  }
  static local::Attach attach(Rank rank = 0, uint32_t world_size = 2) {
    return {.rank = rank, .world_size = world_size, .job_id = "job", .pid = getpid()};
  }
  std::unique_ptr<local::LocalSocket> attached(Rank rank = 0) {
    auto socket = connect();
    EXPECT_TRUE(socket->send(attach(rank)).ok());
    return socket;
  }
  // Why the server ended this connection; OK if it did not say.
  static Status failure_of(local::LocalSocket& socket) {
    while (true) {
      auto received = socket.receive(kPatienceMs);
      if (!received.ok() || !received->has_value()) return ok_status();
      if (auto* failed = std::get_if<local::Failed>(&(*received)->message)) return failed->why;
    }
  }
  Status failure_after(const local::LocalMessage& message) {
    auto socket = connect();
    EXPECT_TRUE(socket->send(message).ok());
    return failure_of(*socket);
  }

  std::string folder_;
  actors::LocalServerOptions options_;
  actors::SlabTable slabs_;
  HeardOfClients heard_;
  std::unique_ptr<actors::LocalServer> server_;
};

base::OwnedFd memory_file(uint64_t bytes, int seals) {
  base::OwnedFd fd(memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A trainer that lives attaches again, so that its saves need not fail.
TEST_F(Server, TellsAProcessThatLostItsConnectionFromOneThatHasEnded) {
  serve();
  attached().reset();
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  EXPECT_TRUE(heard_.lives(1));
  const pid_t child = fork();
  if (child == 0) {
    const auto socket = connect();
    _exit(socket->send(attach(1)).ok() ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  ASSERT_TRUE(heard_.wait_for("2 lost"));
  EXPECT_FALSE(heard_.lives(2)) << "nobody has collected its status yet";
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
}

TEST_F(Server, ExpectsNobodyBackWhomItHasRejected) {
  serve();
  const auto socket = attached();
  ASSERT_TRUE(socket->send(local::Attached{}).ok());
  EXPECT_EQ(failure_of(*socket).code(), Code::invalid_argument);
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  EXPECT_FALSE(heard_.lives(1));
}

TEST_F(Server, ExpectsNobodyBackWhoHasDetached) {
  serve();
  const auto socket = attached();
  ASSERT_TRUE(socket->send(local::Detach{}).ok());
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  EXPECT_FALSE(heard_.lives(1));
}

TEST_F(Server, HandsOnWhatAClientSaysInItsOrderAndThatItIsLost) {
  serve();
  auto socket = attached();
  ASSERT_TRUE(socket->send(local::Latest{.request_id = 1}).ok());
  ASSERT_TRUE(socket->send(local::Placed{.request_id = 1}).ok());
  socket.reset();
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  EXPECT_THAT(heard_.lines(), ElementsAre("1 " + kAttach, "1 " + kLatest, "1 " + kPlaced, "1 lost"));
}

TEST_F(Server, TellsItsStatusToWhoeverAsksInPlaceOfAttaching) {
  serve();
  auto client = attached();
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  for (int i = 0; i < 3; ++i) {
    auto status = local::ask_node(options_.socket_file);
    ASSERT_TRUE(status.ok()) << status.status().to_string();
    EXPECT_EQ(status->host, "host-of-the-test");
  }
  server_->refuse_new(Status(Code::unavailable, "stopping"));
  EXPECT_TRUE(local::ask_node(options_.socket_file).ok()) << "a node that stops says so";
  EXPECT_EQ(server_->attached(), 1u) << "who asks is no trainer";
  EXPECT_THAT(heard_.lines(), ElementsAre("1 " + kAttach));
}

TEST_F(Server, AStatusIsNotAskedForByATrainer) {
  serve();
  auto socket = attached();
  ASSERT_TRUE(socket->send(local::StatusRequest{}).ok());
  EXPECT_THAT(failure_of(*socket).message(), HasSubstr("a client must not send this message"));
}

TEST(AskingANode, SaysThatNobodyListens) {
  auto status = local::ask_node("/tmp/shoal-no-such-socket");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.status().code(), Code::unavailable);
}

// With no descriptor left: who comes hears so, and the thread that accepts does not turn in a loop.
TEST_F(Server, TellsWhoComesThatNoDescriptorIsLeft) {
#if defined(SHOAL_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer needs descriptors of its own to look at memory";
#endif
  serve();
  auto before = attached();
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  rlimit limit{}, few{};
  getrlimit(RLIMIT_NOFILE, &limit);
  few = {200, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  std::vector<int> taken;
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = dup(fd)) taken.push_back(fd);
  close(taken.back());  // for the client's end
  taken.pop_back();
  auto late = connect();
  Status why = failure_of(*late);
  timespec began{}, ended{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
  usleep(200'000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
  for (int fd : taken) close(fd);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(why.code(), Code::unavailable);
  EXPECT_THAT(why.message(), HasSubstr("this process has no file descriptor left (limit 200"));
  EXPECT_LT((ended.tv_sec - began.tv_sec) * 1000 + (ended.tv_nsec - began.tv_nsec) / 1'000'000, 100);
  EXPECT_EQ(server_->attached(), 1u);
  attached(1);
  EXPECT_TRUE(heard_.wait_for("2 " + kAttach)) << "as soon as there are some again";
}

TEST_F(Server, EndsAClientThatDetaches) {
  serve();
  auto socket = attached();
  ASSERT_TRUE(socket->send(local::Detach{}).ok());
  EXPECT_TRUE(heard_.wait_for("1 lost"));
  EXPECT_TRUE(failure_of(*socket).ok());
}

TEST_F(Server, CarriesAnswersInTheirOrder) {
  serve();
  auto socket = attached();
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  for (uint32_t slab = 0; slab < 100; ++slab) {
    server_->send(1, std::make_shared<const local::LocalMessage>(local::SlabFree{slab}));
  }
  for (uint32_t slab = 0; slab < 100; ++slab) {
    auto received = socket->receive(kPatienceMs);
    ASSERT_TRUE(received.ok() && received->has_value());
    EXPECT_EQ(std::get<local::SlabFree>((*received)->message).slab_id, slab);
  }
  server_->send(77, std::make_shared<const local::LocalMessage>(local::SlabFree{1}));  // never was: ignored
}

TEST_F(Server, RefusesByNameWhoDoesNotBelong) {
  options_.expected_ranks = {0, 1};
  serve();
  auto other_job = attach();
  other_job.job_id = "another";
  EXPECT_THAT(failure_after(other_job).message(),
              HasSubstr("serves job 'job', but the client belongs to job 'another'"));
  auto newer = attach();
  newer.schema_version = 99;
  EXPECT_EQ(failure_after(newer).code(), Code::version);
  EXPECT_EQ(failure_after(attach(5, 5)).code(), Code::corrupt);
  EXPECT_EQ(failure_after(attach(0, 0)).code(), Code::corrupt);
  EXPECT_THAT(failure_after(attach(3, 8)).message(), HasSubstr("rank 3 does not belong to this host"));
  EXPECT_THAT(failure_after(local::Latest{}).message(), HasSubstr("must be Attach"));
  auto first = attached(0);
  ASSERT_TRUE(heard_.wait_for("7 " + kAttach));
  EXPECT_THAT(failure_after(attach(1, 3)).message(), HasSubstr("the world size of this job is 2"));
  EXPECT_EQ(heard_.lines().size(), 1u) << "roles never hear of those who were refused";
}

TEST_F(Server, OfAJobThatOnlyReadsTakesInReadersAloneAndNothingOfASave) {
  options_.read_only = true;
  serve();
  EXPECT_THAT(failure_after(attach()).message(),
              AllOf(HasSubstr("only reads, for job 'job'"), HasSubstr("unset SHOAL_SOCKET")));
  local::Attach reader = attach();
  reader.read_only = true;
  auto socket = connect();
  ASSERT_TRUE(socket->send(reader).ok());
  ASSERT_TRUE(socket->send(local::Latest{1}).ok());
  ASSERT_TRUE(socket->send(local::NotStaged{1, 1, Status(Code::io, "")}).ok());
  EXPECT_THAT(failure_of(*socket).message(), HasSubstr("saves nothing"));
  ASSERT_TRUE(heard_.wait_for("2 lost"));
  EXPECT_THAT(heard_.lines(), ElementsAre("2 " + kAttach, "2 " + kLatest, "2 lost"));
}

TEST_F(Server, OfAJobThatSavesTakesInNoReaders) {
  serve();
  local::Attach reader = attach();
  reader.read_only = true;
  const Status refused = failure_after(reader);
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("serves job 'job', which saves"), HasSubstr("SHOAL_SOCKET")));
}

TEST_F(Server, KeepsARankForItsFirstClientAndGivesItToTheNextOneAfterwards) {
  serve();
  auto first = attached(1);
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  EXPECT_THAT(failure_after(attach(1)).message(), HasSubstr("rank 1 is attached already"));
  first.reset();
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  auto second = attached(1);
  EXPECT_TRUE(heard_.wait_for("3 " + kAttach));
}

TEST_F(Server, RejectsAlsoAClientThatStillWaitsForItsRankOnceTheNodeStops) {
  options_.same_rank_patience_ms = kPatienceMs;
  serve();
  auto first = attached(1);
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  auto second = attached(1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(local::ask_node(options_.socket_file).ok());  // it waits by now
  server_->refuse_new(Status(Code::aborted, "the node is stopping"));
  first.reset();
  const Status why = failure_of(*second);
  EXPECT_EQ(why.code(), Code::aborted);
  EXPECT_THAT(why.message(), HasSubstr("the node is stopping"));
}

TEST_F(Server, GivesARankToNoOtherProcessInOneRun) {
  serve();
  auto of = [](uint64_t process) {
    auto body = attach(1);
    body.process = xxh3_128(as_view(std::to_string(process)));
    return body;
  };
  for (int i : {1, 2}) {  // it may come again
    auto socket = connect();
    ASSERT_TRUE(socket->send(of(7)).ok());
    ASSERT_TRUE(heard_.wait_for(fmt::format("{} {}", i, kAttach)));
    socket.reset();
    ASSERT_TRUE(heard_.wait_for(fmt::format("{} lost", i)));
  }
  Status refused = failure_after(of(8));
  EXPECT_EQ(refused.code(), Code::refused);
  EXPECT_THAT(refused.message(),
              HasSubstr("rank 1 of job 'job' was opened before, by a process that has ended"));
}

TEST_F(Server, MakesWayForAnotherRunOfItsJobId) {
  options_.makes_way = true;
  serve();
  auto body = attach(1);
  body.process = xxh3_128(as_view("first"));
  auto socket = connect();
  ASSERT_TRUE(socket->send(body).ok());
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  auto of_three = attach(0, 3);
  EXPECT_EQ(failure_after(of_three).code(), Code::refused) << "while a rank of this run is here";
  EXPECT_FALSE(server_->is_requested_by_another_run());
  socket.reset();
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  for (auto& next : {body, of_three}) {
    auto later = next;
    later.process = xxh3_128(as_view("second"));
    EXPECT_EQ(failure_after(later).code(), Code::unavailable) << "it is to try again";
  }
  EXPECT_TRUE(server_->is_requested_by_another_run());
}

TEST_F(Server, KeepsSlabsUntilTheyAreForgotten) {
  serve();
  auto socket = attached();
  base::OwnedFd fd = memory_file(4096, kSeals);
  ASSERT_EQ(pwrite(fd.get(), "hello", 5, 0), 5);
  ASSERT_TRUE(socket->send(local::Slab{.slab_id = 2, .bytes = 4096}, fd.get()).ok());
  ASSERT_TRUE(socket->send(local::Latest{}).ok());
  ASSERT_TRUE(heard_.wait_for("1 " + kLatest));
  socket.reset();
  ASSERT_TRUE(heard_.wait_for("1 lost"));
  auto view = slabs_.find(1, 2);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(as_text(view->bytes).substr(0, 5), "hello");
  slabs_.forget(1);
  EXPECT_EQ(slabs_.find(1, 2).status().code(), Code::not_found);
  EXPECT_EQ(as_text(view->bytes).substr(0, 5), "hello") << "who holds a view keeps the mapping";
}

TEST_F(Server, RefusesSlabsThatCouldBeCutUnderTheNode) {
  serve();
  auto failure = [&](base::OwnedFd fd, uint64_t bytes) {
    auto socket = attached();
    EXPECT_TRUE(socket->send(local::Slab{.slab_id = 7, .bytes = bytes}, fd.get()).ok());
    return failure_of(*socket);
  };
  EXPECT_THAT(failure(memory_file(4096, 0), 4096).message(), HasSubstr("slab 7"));
  EXPECT_THAT(failure(memory_file(4096, kSeals), 8192).message(), HasSubstr("slab 7"));
  EXPECT_THAT(failure(base::OwnedFd(open("/dev/null", O_RDWR | O_CLOEXEC)), 4096).message(),
              HasSubstr("slab 7"));
  EXPECT_TRUE(slabs_.empty());
}

TEST_F(Server, SurvivesGarbageCutFramesAndSilence) {
  options_.attach_timeout_ms = 50;
  options_.clients_max = 8;
  serve();
  auto good = attached();
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  {
    auto garbage = connect();
    std::string bytes(64, '\xff');
    ASSERT_EQ(::send(garbage->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 64);
    EXPECT_FALSE(failure_of(*garbage).ok());
    auto cut = connect();
    ASSERT_EQ(::send(cut->fd(), "\x40\x00\x00\x00half", 8, MSG_NOSIGNAL), 8);
  }
  auto silent = connect();
  EXPECT_EQ(failure_of(*silent).code(), Code::deadline_exceeded);
  auto speaks_as_node = attached(1);
  ASSERT_TRUE(speaks_as_node->send(local::Attached{}).ok());
  EXPECT_EQ(failure_of(*speaks_as_node).code(), Code::invalid_argument);
  ASSERT_TRUE(good->send(local::Latest{}).ok());
  EXPECT_TRUE(heard_.wait_for("1 " + kLatest));
}

TEST_F(Server, ClosesAClientThatDoesNotRead) {
  options_.outgoing_max = 4;
  serve();
  auto lazy = attached(0), good = attached(1);
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  ASSERT_TRUE(heard_.wait_for("2 " + kAttach));
  auto pieces =
      std::make_shared<local::LocalMessage>(local::Loaded{.pieces = std::vector<local::LoadedPiece>(20'000)});
  for (int i = 0; i < 50; ++i) server_->send(1, pieces);
  EXPECT_TRUE(heard_.wait_for("1 lost"));
  ASSERT_TRUE(good->send(local::Latest{}).ok());
  EXPECT_TRUE(heard_.wait_for("2 " + kLatest));
}

TEST_F(Server, HandsOnWhatWasSentBeforeItSettles) {
  serve();
  auto socket = attached();
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(socket->send(local::Latest{}).ok());
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  server_->refuse_new(Status(Code::unavailable, "stopping"));
  EXPECT_TRUE(server_->settle(kPatienceMs));
  EXPECT_EQ(heard_.lines().size(), 501u);
}

TEST_F(Server, SendsWhatIsQueuedBeforeItCloses) {
  serve();
  auto socket = attached();
  ASSERT_TRUE(heard_.wait_for("1 " + kAttach));
  for (uint32_t slab = 0; slab < 50; ++slab) {
    server_->send(1, std::make_shared<const local::LocalMessage>(local::SlabFree{slab}));
  }
  server_->close_all(kPatienceMs);
  EXPECT_TRUE(heard_.wait_for("1 lost"));
  size_t received = 0;
  while (true) {
    auto next = socket->receive(kPatienceMs);
    if (!next.ok()) break;
    ++received;
  }
  EXPECT_EQ(received, 50u);
}

}  // namespace
}  // namespace shoal::testing
