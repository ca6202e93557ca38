#include "base/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::base {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;

const NetworkInterface kLoopback{"lo", "127.0.0.1", true, true};
const NetworkInterface kOutside{"eth0", "10.0.0.7", true, false};
const NetworkInterface kSecond{"ib0", "10.1.0.7", true, false};
const NetworkInterface kDown{"eth1", "10.2.0.7", false, false};

TEST(Interfaces, HaveTheLoopbackAmongThem) {
  auto all = network_interfaces();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_THAT(*all, Contains(AllOf(Field(&NetworkInterface::address, "127.0.0.1"),
                                   Field(&NetworkInterface::is_loopback, true))));
}

TEST(Interfaces, TheOnlyOneThatIsUpBeyondTheLoopbackIsListenedAt) {
  EXPECT_EQ(address_to_listen_at({kLoopback, kDown, kOutside}, ""), "10.0.0.7");
  EXPECT_EQ(address_to_listen_at({kLoopback, kOutside, kSecond}, ""), std::nullopt) << "either may be meant";
  EXPECT_EQ(address_to_listen_at({kLoopback, kDown}, ""), std::nullopt);
}

TEST(Interfaces, OneIsGivenByItsNameOrAddress) {
  EXPECT_EQ(address_to_listen_at({kLoopback, kOutside, kSecond}, "ib0"), "10.1.0.7");
  EXPECT_EQ(address_to_listen_at({kLoopback, kOutside, kSecond}, "10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(address_to_listen_at({kLoopback, kOutside}, "ib0"), std::nullopt);
}

}  // namespace
}  // namespace shoal::base
