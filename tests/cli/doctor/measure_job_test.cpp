// What `shoal doctor` measures of ports, names and tokens.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <fstream>

#include "base/owned_fd.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/measure_facts.h"
#include "shoal/check.h"
#include "tests/temporary_folder.h"

namespace shoal::cli {
namespace {

using ::testing::HasSubstr;

// Listens on a free port of the loopback.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    SHOAL_CHECK(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    SHOAL_CHECK(::listen(socket_.get(), 1) == 0);
    SHOAL_CHECK(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }

 private:
  base::OwnedFd socket_;
  uint16_t port_ = 0;
};

JobShape job_at(uint16_t port) {
  JobShape job;
  job.hosts = 2;
  job.coordinator = fmt::format("127.0.0.1:{}", port);
  job.coordinates_here = true;
  return job;
}

TEST(DoctorPorts, OfTheCoordinatorMustBeFree) {
  const TakenPort taken;
  const NetworkFacts facts = measure_network_of_job(job_at(taken.port()), local::Settings());
  ASSERT_EQ(facts.ports.size(), 1u);
  EXPECT_FALSE(facts.ports[0].listening.ok());
  EXPECT_THAT(facts.ports[0].listening.message(), HasSubstr("in use"));
}

TEST(DoctorPorts, OfARangeMustBeFreeForTwoListeners) {
  const TakenPort taken;
  JobShape job;
  job.hosts = 2;
  auto listening = [&](const std::string& range) {
    local::Settings settings;
    EXPECT_TRUE(settings.set("ports", range, "test").ok());
    const NetworkFacts facts = measure_network_of_job(job, settings);
    return facts.ports.size() == 1 ? facts.ports[0].listening : Status(Code::internal, "no port was tried");
  };
  EXPECT_FALSE(listening(fmt::format("{0}-{0}", taken.port())).ok());
  EXPECT_TRUE(listening("20000-30000").ok());
}

TEST(DoctorPorts, OfMetricsMustBeFree) {
  const TakenPort taken;
  local::Settings settings;
  ASSERT_TRUE(settings.set("metrics", fmt::format("127.0.0.1:{}", taken.port()), "test").ok());
  const NetworkFacts facts = measure_network_of_job({}, settings);
  ASSERT_EQ(facts.ports.size(), 1u);
  EXPECT_FALSE(facts.ports[0].listening.ok());
}

TEST(DoctorNames, ThatDoNotResolveAreErrors) {
  JobShape job;
  job.host_names = {"127.0.0.1", "no-such-host.invalid"};
  const NetworkFacts facts = measure_network_of_job(job, local::Settings());
  ASSERT_EQ(facts.hosts.size(), 2u);
  EXPECT_TRUE(facts.hosts[0].address_towards.ok());
  EXPECT_TRUE(facts.hosts[0].is_this_host);
  EXPECT_FALSE(facts.hosts[1].address_towards.ok());
}

TEST(DoctorTokenFile, ThatOthersCanReadIsRejectedAsByANode) {
  TemporaryFolder folder;
  const std::string file = folder.path() + "/token";
  std::ofstream(file) << "0123456789abcdef0123456789abcdef\n";
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  EXPECT_THAT(measure_token(file).read.message(), HasSubstr("chmod 600"));
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_TRUE(measure_token(file).read.ok());
  EXPECT_EQ(measure_token(file).bytes, 32u);
}

}  // namespace
}  // namespace shoal::cli
