#include "actors/node/links/own_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

transport::NetworkOptions at(const std::string& interface) {
  transport::NetworkOptions out;
  out.interface = interface;
  return out;
}

TEST(OwnAddressTowards, APeerIsThatOfTheInterfaceThatWasAskedFor) {
  EXPECT_EQ(own_address_towards("203.0.113.1:7070", at("lo")).value(), "127.0.0.1");
  const Status none = own_address_towards("203.0.113.1:7070", at("no-such-0")).status();
  EXPECT_THAT(none.message(), HasSubstr("no interface 'no-such-0'"));
}

// Regression: with an interface set, a job on one host opened a port on it for loads that are shared.
TEST(OwnAddressTowards, APeerOnTheLoopbackIsTheLoopbackWhateverTheInterface) {
  EXPECT_EQ(own_address_towards("127.0.0.1:7070", at("no-such-0")).value(), "127.0.0.1");
  EXPECT_EQ(own_address_towards("localhost:7070", at("no-such-0")).value(), "127.0.0.1");
  EXPECT_EQ(own_address_towards("127.0.0.1:7070").value(), "127.0.0.1");
}

TEST(OwnAddressBeside, ACoordinatorOnTheLoopbackIsTheLoopbackWhateverTheInterface) {
  EXPECT_EQ(own_address_beside("127.0.0.1:7070", at("no-such-0")).value(), "127.0.0.1");
}

TEST(OwnAddressBeside, ACoordinatorElsewhereIsTheInterfaceElseWhereItListens) {
  EXPECT_EQ(own_address_beside("0.0.0.0:7070", at("lo")).value(), "127.0.0.1");
  EXPECT_EQ(own_address_beside("203.0.113.1:7070", at("")).value(), "203.0.113.1");
  EXPECT_EQ(own_address_beside("203.0.113.1:7070", at("no-such-0")).status().code(), Code::not_found);
}

}  // namespace
}  // namespace shoal::actors
