#include "transport/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "schema/wire.capnp.h"
#include "transport/handshake_codec.h"

namespace shoal::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

HandshakeNonce nonce_of(uint8_t fill) {
  HandshakeNonce nonce;
  nonce.fill(std::byte{fill});
  return nonce;
}

Identity identity_of(const std::string& name) {
  Identity identity;
  identity.root_id = xxh3_128(as_view("root"));
  identity.job_id = "job-1";
  identity.generation = 4;
  identity.epoch = 2;
  identity.incarnation = xxh3_128(as_view(name));
  identity.name = name;
  return identity;
}

std::shared_ptr<const Bytes> token_of(const std::string& text) {
  return std::make_shared<const Bytes>(as_view(text).begin(), as_view(text).end());
}

struct Sides {
  Identity connector_identity = identity_of("connector"), listener_identity = identity_of("listener");
  std::string connector_token = "secret", listener_token = "secret";
  uint32_t connector_version = schema::SCHEMA_VERSION, listener_version = schema::SCHEMA_VERSION;

  Handshake connector() const {
    return Handshake(HandshakeRole::connector, connector_identity, token_of(connector_token), nonce_of(1),
                     connector_version);
  }
  Handshake listener() const {
    return Handshake(HandshakeRole::listener, listener_identity, token_of(listener_token), nonce_of(2),
                     listener_version);
  }
};

struct Outcome {
  bool connector_proven = false, listener_proven = false;
  Status connector_failure, listener_failure;
  FrameTags connector_tags, listener_tags;
  uint16_t data_port = 0;
};

// Passes frames in both directions until neither side sends any.
Outcome run(const Sides& sides) {
  Handshake connector = sides.connector(), listener = sides.listener();
  Outcome out;
  Bytes frame = connector.hello();
  for (bool to_listener = true; !frame.empty(); to_listener = !to_listener) {
    Handshake::Answer answer = (to_listener ? listener : connector).on_frame(frame);
    (to_listener ? out.listener_proven : out.connector_proven) = answer.proven;
    (to_listener ? out.listener_failure : out.connector_failure) = answer.failure;
    frame = to_listener && answer.proven ? listener.welcome(4711) : answer.reply;
  }
  out.data_port = connector.data_port();
  out.connector_tags = connector.tags();
  out.listener_tags = listener.tags();
  return out;
}

TEST(Handshake, ProvesBothSidesToEachOtherWithTheSameTags) {
  Outcome outcome = run(Sides());
  EXPECT_EQ(outcome.data_port, 4711);
  EXPECT_TRUE(outcome.connector_proven && outcome.listener_proven);
  EXPECT_NE(outcome.connector_tags.connector, 0u);
  EXPECT_NE(outcome.connector_tags.connector, outcome.connector_tags.listener);
  EXPECT_EQ(outcome.connector_tags.connector, outcome.listener_tags.connector);
  EXPECT_EQ(outcome.connector_tags.listener, outcome.listener_tags.listener);
}

TEST(Handshake, TellsEachSideWhoTheOtherIs) {
  Sides sides;
  Handshake connector = sides.connector(), listener = sides.listener();
  Bytes challenge = listener.on_frame(connector.hello()).reply;
  Bytes proof = connector.on_frame(challenge).reply;
  EXPECT_TRUE(listener.on_frame(proof).proven);
  EXPECT_TRUE(connector.on_frame(listener.welcome(4711)).proven);
  EXPECT_EQ(connector.peer().name, "listener");
  EXPECT_EQ(listener.peer().name, "connector");
  EXPECT_EQ(listener.peer().incarnation, sides.connector_identity.incarnation);
  EXPECT_EQ(listener.peer().epoch, 2u);
}

TEST(Handshake, RefusesAnotherToken) {
  Sides sides;
  sides.connector_token = "Secret";
  Outcome outcome = run(sides);
  EXPECT_FALSE(outcome.connector_proven || outcome.listener_proven);
  EXPECT_EQ(outcome.connector_failure.code(), Code::refused);
  EXPECT_EQ(outcome.listener_failure.code(), Code::refused);
  EXPECT_THAT(outcome.connector_failure.message(), AllOf(HasSubstr("token"), Not(HasSubstr("ecret"))));
}

TEST(Handshake, RefusesAnotherRootJobOrGenerationNamingBoth) {
  Sides root, job, generation;
  root.connector_identity.root_id = xxh3_128(as_view("another root"));
  job.connector_identity.job_id = "job-2";
  generation.connector_identity.generation = 5;
  struct Case {
    Sides sides;
    std::string words[3];
  } cases[] = {
      {root,
       {"roots differ", root.connector_identity.root_id.to_hex(), root.listener_identity.root_id.to_hex()}},
      {job, {"jobs differ", "job-1", "job-2"}},
      {generation, {"generations differ", "4", "5"}}};
  for (const Case& each : cases) {
    Outcome outcome = run(each.sides);
    for (const Status& failure : {outcome.connector_failure, outcome.listener_failure}) {
      EXPECT_EQ(failure.code(), Code::refused);
      for (const std::string& word : each.words) EXPECT_THAT(failure.message(), HasSubstr(word));
    }
  }
}

TEST(Handshake, AcceptsAGenerationThatOneSideDoesNotKnowYet) {
  Sides sides;
  sides.connector_identity.generation = 0;
  EXPECT_TRUE(run(sides).listener_proven);
}

TEST(Handshake, NamesBothSchemaVersionsWhereTheyDiffer) {
  Sides sides;
  sides.connector_version = schema::SCHEMA_VERSION + 1;
  Outcome outcome = run(sides);
  EXPECT_EQ(outcome.connector_failure.code(), Code::version);
  EXPECT_EQ(outcome.listener_failure.code(), Code::version);
  EXPECT_EQ(outcome.connector_failure.message(),
            "the peer speaks version 2 of the schema, but this node speaks version 1");
}

TEST(Handshake, DoesNotTakeAnOldProofForANewChallenge) {
  Sides sides;
  Handshake connector = sides.connector(), first = sides.listener();
  Bytes hello = connector.hello();
  Bytes proof = connector.on_frame(first.on_frame(hello).reply).reply;
  Handshake second(HandshakeRole::listener, sides.listener_identity, token_of("secret"), nonce_of(3));
  second.on_frame(hello);
  EXPECT_EQ(second.on_frame(proof).failure.code(), Code::refused);
}

TEST(Handshake, DoesNotTakeItsOwnChallengeMacForAProof) {
  Sides sides;
  Handshake connector = sides.connector(), listener = sides.listener();
  Bytes challenge = listener.on_frame(connector.hello()).reply;
  auto decoded = decode_handshake(challenge, schema::SCHEMA_VERSION);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(listener.on_frame(encode_proof(decoded->mac)).failure.code(), Code::refused);
}

TEST(Handshake, DoesNotTakeAnIdentityThatWasChangedOnTheWay) {
  Sides sides;
  Handshake connector = sides.connector(), listener = sides.listener();
  connector.hello();
  Identity changed = sides.connector_identity;
  changed.epoch = 99;
  Bytes challenge = listener.on_frame(encode_hello(changed, schema::SCHEMA_VERSION, nonce_of(1))).reply;
  EXPECT_EQ(connector.on_frame(challenge).failure.code(), Code::refused);
}

TEST(Handshake, RefusesFramesOutOfTurn) {
  Sides sides;
  Handshake listener = sides.listener();
  EXPECT_EQ(listener.on_frame(encode_proof({})).failure.code(), Code::corrupt);
  Handshake connector = sides.connector();
  Bytes hello = connector.hello();
  EXPECT_EQ(connector.on_frame(hello).failure.code(), Code::corrupt);
}

TEST(Handshake, SurvivesEveryTruncationAndBitFlipOfAHello) {
  Sides sides;
  Bytes hello = sides.connector().hello();
  for (size_t length = 0; length < hello.size(); ++length) {
    EXPECT_FALSE(sides.listener().on_frame(ByteView(hello).first(length)).failure.ok()) << length;
  }
  for (size_t bit = 0; bit < hello.size() * 8; ++bit) {
    Bytes flipped = hello;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(sides.listener().on_frame(flipped).proven) << bit;
  }
}

TEST(Handshake, SurvivesRandomBytes) {
  std::mt19937_64 random(7);
  Sides sides;
  for (int i = 0; i < 5000; ++i) {
    Bytes bytes(8 * (1 + random() % 40));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    store_le32(bytes.data(), 0);
    store_le32(bytes.data() + 4, static_cast<uint32_t>(bytes.size() / 8 - 1));
    EXPECT_FALSE(sides.listener().on_frame(bytes).proven);
  }
}

TEST(Handshake, ShowsNoControlCharactersOfAStranger) {
  Identity identity = identity_of("connector");
  identity.name = "red\x1b[31m";
  Sides sides;
  Handshake listener = sides.listener();
  EXPECT_EQ(listener.on_frame(encode_hello(identity, schema::SCHEMA_VERSION, nonce_of(1))).failure.code(),
            Code::corrupt);
  EXPECT_THAT(decode_refusal(encode_refusal(Status(Code::refused, "bell\a"))).message(),
              Not(HasSubstr("\a")));
}

TEST(Handshake, CutsALongReasonBetweenCharacters) {
  std::string reason;
  while (reason.size() < 2 * kMaxReasonBytes) reason += "ü€";
  Status notified = decode_refusal(encode_refusal(Status(Code::version, reason)));
  EXPECT_EQ(notified.code(), Code::version);
  EXPECT_GT(notified.message().size(), kMaxReasonBytes - 8);
  EXPECT_TRUE(is_clean_utf8(notified.message()));
}

}  // namespace
}  // namespace shoal::transport
