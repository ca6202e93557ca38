#include "actors/messages/link_messages.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "actors/messages/messages.h"
#include "tests/local/status/some_status.h"

namespace shoal::actors {
namespace {

const Bytes kMessage = encode_wire({RoleKind::coordinator, RoleKind::shard_writer,
                                    std::make_shared<WireBody>(wire::Pending{.key = {1, 2, 3}})});

std::vector<LinkMessage> sample_messages() {
  Nonce nonce;
  nonce.bytes[3] = std::byte{7};
  return {link::ServeAsRelay{12},
          link::RelayReady{"10.0.0.1:7", 12},
          link::RelayFailed{"no room"},
          link::UseRelay{"10.0.0.1:7", "full"},
          link::UseRelay{"", "not yet"},
          link::ChildUp{5, "host:12", nonce},
          link::ChildLost{5, "died"},
          link::FromChild{5, kMessage},
          link::ToChild{6, kMessage},
          link::DropChild{5, "nonsense"},
          link::Welcome{},
          link::JobStatusRequest{},
          link::JobStatusTable{local::encode_job_status(local::some_job_status())},
          link::HostStatusRequest{},
          link::HostStatusReport{local::encode_host_status(local::some_host_status())}};
}

TEST(LinkMessages, PassUnchanged) {
  for (const LinkMessage& word : sample_messages()) {
    auto read = decode_link(encode_link(word));
    ASSERT_TRUE(read.ok() && read->has_value()) << word.index() << ": " << read.status().to_string();
    EXPECT_EQ((*read)->index(), word.index());
    EXPECT_EQ(encode_link(**read), encode_link(word)) << word.index();
  }
}

TEST(LinkMessages, AreNotThoseOfRoles) {
  auto read = decode_link(kMessage);
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->has_value());
  for (const LinkMessage& word : sample_messages()) {
    EXPECT_EQ(decode_wire(encode_link(word)).status().code(), Code::corrupt) << word.index();
  }
}

TEST(LinkMessages, ThatAreDamagedAreErrorsAndNoMore) {
  std::mt19937 random(7);
  for (const LinkMessage& word : sample_messages()) {
    const Bytes whole = encode_link(word);
    for (int i = 0; i < 500; ++i) {
      Bytes bytes = whole;
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
      if (i % 5 == 0) bytes.resize(random() % bytes.size());
      (void)decode_link(bytes);
    }
  }
  EXPECT_FALSE(decode_link(encode_link(link::UseRelay{"nowhere", ""})).ok());
  EXPECT_FALSE(decode_link(encode_link(link::RelayReady{"", 4})).ok());
  EXPECT_FALSE(decode_link(encode_link(link::ChildUp{5, std::string(300, 'x'), {}})).ok());
  EXPECT_FALSE(decode_link(encode_link(link::ChildUp{5, "a\nb", {}})).ok());
  EXPECT_FALSE(decode_link(encode_link(link::HostStatusReport{Bytes(local::kMaxHostStatusBytes + 1)})).ok());
}

TEST(LinkMessages, CarryTheLargestMessageOfARoleWithinTheBoundOfATransport) {
  EXPECT_LE(encode_link(link::FromChild{~0ull, Bytes(kMaxRelayedBytes)}).size(), transport::kMaxMessageBytes);
}

}  // namespace
}  // namespace shoal::actors
