#include "transport/live/network_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "transport/tcp/resolver.h"
#include "transport/tcp/socket.h"

namespace shoal::transport {
namespace {

using ::testing::HasSubstr;

SocketAddress loopback() {
  return *resolve({"127.0.0.1", 0}, false);
}

TEST(PortRange, IsReadAndWritten) {
  auto ports = parse_port_range("7100-7199");
  ASSERT_TRUE(ports.ok());
  EXPECT_EQ(ports->first, 7100);
  EXPECT_EQ(ports->last, 7199);
  EXPECT_EQ(to_string(*ports), "7100-7199");
  EXPECT_EQ(parse_port_range("7100-7100")->last, 7100);
  EXPECT_FALSE(parse_port_range("")->is_set());
  EXPECT_EQ(to_string(PortRange()), "");
}

TEST(PortRange, NamesWhatIsNone) {
  for (const char* text : {"7100", "7100-", "-7100", "7199-7100", "0-10", "7100-70000", "7100-7199x", "a-b",
                           "7100 - 7199", "7100-7199,7300"}) {
    auto ports = parse_port_range(text);
    ASSERT_FALSE(ports.ok()) << text;
    EXPECT_EQ(ports.status().code(), Code::invalid_argument);
    EXPECT_THAT(ports.status().message(), HasSubstr(std::string("'") + text + "' is not a range of ports"));
  }
}

TEST(AddressOfInterface, IsFoundByNameOrAddressElseThoseThatThereAreAreNamed) {
  EXPECT_EQ(address_of_interface("lo").value(), "127.0.0.1");
  EXPECT_EQ(address_of_interface("127.0.0.1").value(), "127.0.0.1");
  const Status none = address_of_interface("no-such-0").status();
  EXPECT_EQ(none.code(), Code::not_found);
  EXPECT_THAT(none.message(), HasSubstr("no interface 'no-such-0'"));
  EXPECT_THAT(none.message(), HasSubstr("lo (127.0.0.1)"));
}

// The kernel's /sys/class/infiniband, as far as it is looked at.
class RdmaInterface : public ::testing::Test {
 protected:
  RdmaInterface() {
    std::string name = ::testing::TempDir() + "shoal-rdma-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  ~RdmaInterface() override { std::filesystem::remove_all(folder_); }
  std::string devices() const { return folder_; }
  void write(const std::string& path, const std::string& line) const {
    const std::filesystem::path file = folder_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << line << "\n";
  }

 private:
  std::string folder_;
};

// Regression: an idle adapter sent sessions over a management network by UCX, unencrypted.
TEST_F(RdmaInterface, IsThatOfAnActiveDeviceAndNoOther) {
  write("mlx5_0/ports/1/state", "4: ACTIVE");
  write("mlx5_0/device/net/ens1/mtu", "9000");
  write("mlx5_1/ports/1/state", "1: DOWN");
  write("mlx5_1/device/net/ens2/mtu", "9000");
  EXPECT_TRUE(has_active_rdma_device(devices()));
  EXPECT_TRUE(is_rdma_interface("ens1", devices()));
  EXPECT_FALSE(is_rdma_interface("ens2", devices())) << "its device is down";
  EXPECT_FALSE(is_rdma_interface("eth0", devices())) << "of no device";
  EXPECT_FALSE(is_rdma_interface("lo", devices()));
  EXPECT_FALSE(is_rdma_interface("", devices())) << "unknown";
}

TEST_F(RdmaInterface, MayBeABondThatTheDevicesAddressesName) {
  write("mlx5_bond_0/ports/1/state", "4: ACTIVE");
  write("mlx5_bond_0/ports/1/gid_attrs/ndevs/0", "bond0");
  write("mlx5_bond_0/ports/1/gid_attrs/ndevs/1", "bond0.100");
  write("mlx5_bond_0/ports/2/state", "1: DOWN");
  write("mlx5_bond_0/ports/2/gid_attrs/ndevs/0", "bond1");
  EXPECT_TRUE(is_rdma_interface("bond0", devices()));
  EXPECT_TRUE(is_rdma_interface("bond0.100", devices()));
  EXPECT_FALSE(is_rdma_interface("bond1", devices()));
}

TEST_F(RdmaInterface, IsNoneWhereThereAreNoDevices) {
  EXPECT_FALSE(has_active_rdma_device(devices()));
  EXPECT_FALSE(has_active_rdma_device(devices() + "/absent"));
  EXPECT_FALSE(is_rdma_interface("eth0", devices() + "/absent"));
}

TEST(ListenerInARange, SkipsAPortThatIsTaken) {
  auto taken = Listener::listen(loopback(), {});
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  const uint16_t last = static_cast<uint16_t>(std::min(65535, taken->port() + 500));
  auto listener = Listener::listen(loopback(), {taken->port(), last});
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_GT(listener->port(), taken->port());
  EXPECT_LE(listener->port(), last);
}

TEST(ListenerInARange, SaysThatAllPortsAreTaken) {
  auto taken = Listener::listen(loopback(), {});
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  const Status all = Listener::listen(loopback(), {taken->port(), taken->port()}).status();
  EXPECT_EQ(all.code(), Code::unavailable);
  EXPECT_THAT(all.message(), HasSubstr("every port of"));
  EXPECT_THAT(all.message(), HasSubstr("--ports"));
}

TEST(ListenerInARange, LeavesAPortThatWasAskedForAlone) {
  auto any = Listener::listen(loopback(), {});
  ASSERT_TRUE(any.ok());
  SocketAddress address = loopback();
  set_port(address, any->port());
  EXPECT_FALSE(Listener::listen(address, {1, 65535}).ok()) << "the range is for port 0";
}

}  // namespace
}  // namespace shoal::transport
