#include "storage/decisions/decision.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "plan/layout/codec.h"
#include "storage/decisions/record.h"
#include "storage/root/run_root.h"
#include "tests/storage/decisions/decision_samples.h"
#include "tests/storage/interrupted_storage.h"

namespace shoal::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Bytes encoded(const Decision& decision) {
  auto bytes = encode_decision(decision);
  SHOAL_CHECK(bytes.ok());
  return std::move(bytes).value();
}

// The same body under correct digests: a forged file.
Bytes resealed(ByteView record, uint32_t state, ByteView body) {
  (void)record;
  auto bytes = seal_record({"SHOALDEC", "decision", kDecisionFormatVersion, kMaxDecisionBytes}, state, body);
  SHOAL_CHECK(bytes.ok());
  return std::move(bytes).value();
}
ByteView body_of(const Bytes& record) {
  return ByteView(record).subspan(kRecordHeadBytes, record.size() - kRecordHeadBytes - kRecordTailBytes);
}

TEST(Decision, ManifestReadsBackAsItWasWritten) {
  Decision written = sample_manifest();
  auto read = decode_decision(encoded(written), "x");
  ASSERT_OK(read.status());
  EXPECT_TRUE(read->committed());
  EXPECT_EQ(read->key, written.key);
  EXPECT_EQ(read->nonce, written.nonce);
  EXPECT_EQ(read->root_id, written.root_id);
  EXPECT_EQ(read->unix_time_ns, written.unix_time_ns);
  const Manifest &got = read->manifest(), &expected = written.manifest();
  EXPECT_EQ(got.world->roster.id(), expected.world->roster.id());
  EXPECT_EQ(got.rule_version, kRuleVersion);
  EXPECT_EQ(got.options, expected.options);
  EXPECT_EQ(got.payload_bytes, 1234u);
  ASSERT_EQ(got.files.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.files[i].name, expected.files[i].name);
    EXPECT_EQ(got.files[i].size, expected.files[i].size);
    EXPECT_EQ(got.files[i].header_digest, expected.files[i].header_digest);
    EXPECT_EQ(got.files[i].rank, expected.files[i].rank);
  }
  EXPECT_EQ(std::get<uint32_t>(got.files[2].contents), 0u);
  const auto& pieces = std::get<std::vector<FilePiece>>(got.files[3].contents);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].fqn, "weight");
  EXPECT_EQ(pieces[0].box, (Box{{6, 0}, {2, 3}}));
  EXPECT_EQ(pieces[1].key, "loader");
}

TEST(Decision, CarriesTheMetadataOfTheSave) {
  Decision written = sample_manifest();
  const UserMetadata user = {{"run", "a"}, {"config", "x: 1\ny: \"2\""}};
  std::get<Manifest>(written.body).user = user;
  auto read = decode_decision(encoded(written), "x");
  ASSERT_OK(read.status());
  EXPECT_EQ(read->manifest().user, user);
  EXPECT_EQ(metadata_of(*read).user, user);
  auto opened = open_decision(encoded(written), "x");
  ASSERT_OK(opened.status());
  EXPECT_EQ(metadata_of(*opened, false).user, user) << "before its layouts are decoded";
  std::get<Manifest>(written.body).user = {{"", "no key"}};
  EXPECT_EQ(encode_decision(written).status().code(), Code::invalid_argument);
}

TEST(Decision, TombstoneReadsBackAsItWasWritten) {
  for (auto reason : {Tombstone::Reason::aborted, Tombstone::Reason::deleted}) {
    auto read = decode_decision(encoded(sample_tombstone(kKey, 2, reason)), "x");
    ASSERT_OK(read.status());
    EXPECT_FALSE(read->committed());
    EXPECT_EQ(read->tombstone().reason, reason);
    EXPECT_EQ(read->tombstone().cause, "rank 2: the disk is full");
  }
}

TEST(Decision, EncodesToTheSameBytesEveryTime) {
  EXPECT_EQ(encoded(sample_manifest()), encoded(sample_manifest()));
  auto again = decode_decision(encoded(sample_manifest()), "x");
  EXPECT_EQ(encoded(*again), encoded(sample_manifest()));
}

TEST(Decision, CausesAreCutAndCleaned) {
  Decision decision = sample_tombstone();
  std::get<Tombstone>(decision.body).cause = "line 1\nline 2\x01\xff";
  EXPECT_EQ(decode_decision(encoded(decision), "x")->tombstone().cause, "line 1 line 2 ?");
  std::string cause(kMaxCauseBytes - 1, 'x');
  std::get<Tombstone>(decision.body).cause = cause + "\xc3\xa9 and more";
  EXPECT_EQ(decode_decision(encoded(decision), "x")->tombstone().cause, cause)
      << "no character is cut in two";
}

TEST(Decision, CanBeOpenedBeforeItsLayoutsAreDecoded) {
  const Decision written = sample_manifest();
  auto opened = open_decision(encoded(written), "/root/d");
  ASSERT_OK(opened.status());
  EXPECT_EQ(opened->manifest().world, nullptr);
  const Metadata metadata = metadata_of(*opened), expected = metadata_of(written, false);
  EXPECT_EQ(metadata.key, expected.key);
  EXPECT_EQ(metadata.world_size, expected.world_size);
  EXPECT_EQ(metadata.payload_bytes, expected.payload_bytes);
  EXPECT_EQ(metadata.files, expected.files);
  EXPECT_TRUE(metadata.state_dict_metadata.empty());
  const plan::EncodedWorld& layouts = opened->manifest().encoded->world;
  EXPECT_EQ(plan::decode_world(layouts).value()->roster.id(), written.manifest().world->roster.id());
  auto all = decode_rest(*opened);
  ASSERT_OK(all.status());
  EXPECT_EQ(encode_decision(*all).value(), encoded(written));
  EXPECT_EQ(all->manifest().encoded, opened->manifest().encoded);
}

TEST(Decision, OfATombstoneIsOpenedWhole) {
  auto opened = open_decision(encoded(sample_tombstone()), "x");
  ASSERT_OK(opened.status());
  EXPECT_EQ(opened->tombstone().cause, sample_tombstone().tombstone().cause);
}

TEST(Decision, CatchesEveryFlippedBit) {
  for (const Decision& decision : {sample_manifest(), sample_tombstone()}) {
    Bytes bytes = encoded(decision);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      Status status = decode_decision(bytes, "/root/d").status();
      ASSERT_EQ(status.code(), Code::corrupt) << "bit " << bit << ": " << status.to_string();
      ASSERT_THAT(status.message(), HasSubstr("/root/d: damaged decision"));
      ASSERT_EQ(open_decision(bytes, "/root/d").status(), status);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(Decision, IsRefusedWhenCutAnywhereOrPadded) {
  Bytes bytes = encoded(sample_tombstone());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_decision(ByteView(bytes).first(size), "x").status().code(), Code::corrupt) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(decode_decision(bytes, "x").status().code(), Code::corrupt);
}

TEST(Decision, OfANewerFormatIsRefusedNamingBothVersions) {
  auto newer = seal_record({"SHOALDEC", "decision", 2, kMaxDecisionBytes}, 1, as_view("unknown"));
  Status status = decode_decision(*newer, "/root/d").status();
  EXPECT_EQ(status.code(), Code::version);
  EXPECT_EQ(status.message(), "/root/d: this file has format 2, but this program reads only formats up to 1");
  EXPECT_EQ(read_decision_state(*newer, newer->size(), "/root/d").status().code(), Code::version);
}

TEST(Decision, WhoseHeadAndBodyDisagreeIsRefused) {
  Bytes bytes = encoded(sample_tombstone());
  Status status = decode_decision(resealed(bytes, 1, body_of(bytes)), "/root/d").status();
  EXPECT_EQ(status.message(), "/root/d: damaged decision: its head and body disagree");
}

TEST(Decision, SurvivesAnyBodyUnderARightDigest) {
  std::mt19937_64 random(3);
  for (const Decision& decision : {sample_manifest(), sample_tombstone()}) {
    Bytes bytes = encoded(decision);
    for (int i = 0; i < 20'000; ++i) {
      Bytes body(body_of(bytes).begin(), body_of(bytes).end());
      for (uint64_t changes = random() % 4 + 1; changes > 0; --changes) {
        size_t at = random() % body.size();
        static constexpr uint8_t tricky[] = {0, 1, 0x7f, 0x80, 0xff};
        body[at] =
            random() % 2 ? static_cast<std::byte>(tricky[random() % 5]) : static_cast<std::byte>(random());
      }
      if (random() % 8 == 0) body.resize(random() % body.size() / 8 * 8);
      const Bytes file = resealed(bytes, decision.committed() ? 1 : 2, body);
      Status status = decode_decision(file, "x").status();
      auto opened = open_decision(file, "x");
      ASSERT_TRUE(opened.ok() || !status.ok());
      if (opened.ok() && opened->committed()) {
        ASSERT_EQ(decode_rest(*opened).status(), status);
      }
      ASSERT_TRUE(status.ok() || status.code() == Code::corrupt || status.code() == Code::version)
          << status.to_string();
      ASSERT_EQ(status.message().find('\n'), std::string::npos);
    }
  }
}

TEST(Decision, IsNotWrittenWithFilesThatNoReaderAccepts) {
  auto refused = [](auto change) {
    Decision decision = sample_manifest();
    change(std::get<Manifest>(decision.body));
    auto bytes = encode_decision(decision);
    EXPECT_EQ(bytes.status().code(), Code::invalid_argument);
    return bytes.status().message();
  };
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].name = "../x"; }),
              HasSubstr("'../x' is not a valid name"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].name = "manifest.shoal"; }),
              HasSubstr("this is not a name for a shard"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].name = partial_name("x", {}); }),
              HasSubstr("this is not a name for a shard"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].rank = 4; }), HasSubstr("rank 4 is not in the world"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[2].contents = kMaxFilesPerRank; }),
              HasSubstr("file index 16"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[2].contents = 1u; }),
              HasSubstr("not the name of that rank's file"));
  EXPECT_THAT(refused([](Manifest& m) { std::swap(m.files[0], m.files[1]); }), HasSubstr("out of order"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[1] = m.files[0]; }), HasSubstr("out of order"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].name = m.files[0].name; }), HasSubstr("is listed twice"));
  EXPECT_THAT(refused([](Manifest& m) { m.files[3].size = ~uint64_t{0}; }),
              HasSubstr("larger than any file"));
  EXPECT_THAT(refused([](Manifest& m) { m.payload_bytes = 1 << 20; }), HasSubstr("its payload is larger"));
  EXPECT_THAT(refused([](Manifest& m) { m.options.unit_bytes = 1; }), HasSubstr("unit"));
  EXPECT_THAT(refused([](Manifest& m) { m.rule_version = 0; }), HasSubstr("its planning rule is 0"));
  EXPECT_THAT(refused([](Manifest& m) { m.world = nullptr; }), HasSubstr("the manifest has no world"));
  auto piece = [](Manifest& m) -> FilePiece& { return std::get<1>(m.files[3].contents)[0]; };
  EXPECT_THAT(refused([&](Manifest& m) { piece(m).fqn = "unknown"; }), HasSubstr("that is in no layout"));
  EXPECT_THAT(refused([&](Manifest& m) { piece(m).key = ""; }), HasSubstr("shard key"));
  EXPECT_THAT(refused([&](Manifest& m) { piece(m).box.sizes[0] = 9; }), HasSubstr("weight"));
}

TEST(Decision, StateIsKnownFromItsHeadAlone) {
  for (auto [decision, state] :
       {std::pair{sample_manifest(), DecisionState::committed},
        std::pair{sample_tombstone(), DecisionState::aborted},
        std::pair{sample_tombstone(kKey, 1, Tombstone::Reason::deleted), DecisionState::deleted}}) {
    Bytes bytes = encoded(decision);
    auto read = read_decision_state(ByteView(bytes).first(kRecordHeadBytes), bytes.size(), "x");
    ASSERT_OK(read.status());
    EXPECT_EQ(*read, state);
  }
}

TEST(PublishDecision, TheFirstStandsForEver) {
  MemoryStorage memory;
  auto first = publish_decision(*memory, sample_manifest(kKey, 1));
  ASSERT_OK(first.status());
  EXPECT_TRUE(first->committed());
  auto second = publish_decision(*memory, sample_tombstone(kKey, 2));
  ASSERT_OK(second.status());
  EXPECT_TRUE(second->committed());
  EXPECT_EQ(second->nonce, nonce_of(1));
  auto read = read_decision(*memory, kKey);
  ASSERT_OK(read.status());
  EXPECT_EQ(read->nonce, nonce_of(1));
}

// Regression: the sweep removed the temporary file of the second one, whose load then failed as if the root
// were damaged.
TEST(PublishDecision, IsAnsweredWithTheFirstAlsoIfItsWriterHasSwept) {
  uint64_t first = 0, second = 0;
  for (uint64_t call = 0; call < 40; ++call) {
    MemoryStorage memory;
    Result<Decision> answer = Status(Code::internal, "not run");
    InterruptedStorage::run(
        memory, call,
        [&](Storage& storage) { answer = publish_decision(storage, sample_tombstone(kKey, 1)); },
        [&](Storage& storage) {
          ASSERT_OK(publish_decision(storage, sample_tombstone(kKey, 2)).status());
          ASSERT_OK(sweep_attempt(storage, kKey).status());
        });
    ASSERT_OK(answer.status()) << "call " << call;
    EXPECT_EQ(answer->nonce, read_decision(*memory, kKey)->nonce) << "call " << call;
    (answer->nonce == nonce_of(1) ? first : second) += 1;
  }
  EXPECT_GT(first, 0u);
  EXPECT_GT(second, 3u);
}

TEST(PublishDecision, OnesOwnEarlierSuccessIsASuccess) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_manifest(kKey, 1)).status());
  auto again = publish_decision(*memory, sample_manifest(kKey, 1));
  ASSERT_OK(again.status());
  EXPECT_EQ(again->nonce, nonce_of(1));
  EXPECT_TRUE(again->committed());
}

TEST(PublishDecision, ADamagedWinnerIsAnErrorAndNotReplaced) {
  MemoryStorage memory;
  ASSERT_OK(publish_decision(*memory, sample_tombstone()).status());
  for (uint64_t bit : {300, 301}) memory.files.flip_bit(decision_path(kKey), bit);  // one is repaired
  Status status = publish_decision(*memory, sample_manifest()).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("/root/step-00001000/g3a1/manifest.shoal: damaged decision"));
}

TEST(ReadDecision, KnowsAnUndecidedAttempt) {
  MemoryStorage memory;
  EXPECT_EQ(read_decision(*memory, kKey).status().code(), Code::not_found);
}

TEST(ReadDecision, RefusesTheDecisionOfAnotherAttempt) {
  MemoryStorage memory;
  ASSERT_OK(memory->create_exclusive(decision_path({3, 1000, 2}), encoded(sample_tombstone())).status());
  Status status = read_decision(*memory, {3, 1000, 2}).status();
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_THAT(status.message(), HasSubstr("holds the decision of step 1000 (g3a1)"));
}

TEST(Metadata, ListsEveryValueOnceByName) {
  Metadata metadata = metadata_of(sample_manifest());
  EXPECT_EQ(metadata.key, kKey);
  EXPECT_EQ(metadata.world_size, 4u);
  EXPECT_EQ(metadata.files, 4u);
  EXPECT_EQ(metadata.payload_bytes, 1234u);
  std::vector<std::string> fqns;
  for (const TensorMetadata& value : metadata.state_dict_metadata) fqns.push_back(value.fqn);
  EXPECT_THAT(fqns, ElementsAre("bias", "empty", "loader", "step", "weight"));
  EXPECT_EQ(metadata.state_dict_metadata[2].kind, LayoutEntry::Kind::object);
  EXPECT_EQ(metadata.state_dict_metadata[4].shape, (Dims{8, 3}));
}

}  // namespace
}  // namespace shoal::storage
