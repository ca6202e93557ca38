// Direct reads by clients: which messages clients receive, and what the node reads instead of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/loader/read_plan.h"
#include "tests/actors/loader/loader_by_itself.h"
#include "tests/actors/test_ids.h"
#include "tests/storage/decisions/decision_samples.h"

namespace shoal::actors {
namespace {

using ::testing::HasSubstr;

// A load of a weight, a quarter of which each of four files has.
class LoaderFiles : public ::testing::Test {
 protected:
  static constexpr uint64_t kWeightBytes = 8 * 3 * 4;

  explicit LoaderFiles(bool clients_read_files = true) : loader_(false, clients_read_files) {}
  void SetUp() override {
    begin();
    auto locate = loader_.take_start<operation::LocateRanges>(&locating_);
    ASSERT_TRUE(locate) << (ends().empty() ? "" : ends()[0].outcome.to_string());
    ranges_ = locate->ranges;
    ASSERT_EQ(ranges_.size(), 4u);
  }
  void begin() {
    loader_.from_client(kClient, local::Slab{kSlab, kMinWindowBytes});
    local::Load load;
    load.request_id = 1;
    load.latest = false;
    load.step = kLoadedKey.step;
    load.slab_id = kSlab;
    load.reads_files = true;
    load.targets = {{"weight", LayoutEntry::Kind::tensor, DType::f32, {8, 3}, {whole(Dims{8, 3})}}};
    loader_.from_client(kClient, load);
    storage::AttemptList list;
    list.attempts.emplace_back();
    list.attempts.back().key = kLoadedKey;
    list.attempts.back().state = storage::AttemptInfo::State::committed;
    ASSERT_TRUE(loader_.answer<operation::ListAttemptsOfStep>(OperationResult(list)));
    ASSERT_TRUE(loader_.answer<operation::PinAttempt>(OperationResult(
        std::make_shared<const storage::Mark>(storage::Mark{"a pin", kLoadedKey, true, 0, "", 0, {}}))));
    storage::Manifest manifest = storage::sample_manifest(kLoadedKey).manifest();
    manifest.files.back() = {shard_file_name(3, 0), 4126, storage::nonce_of(103), 3, 0u};
    storage::Decision decision{kLoadedKey, storage::nonce_of(1), storage::nonce_of(77), 0,
                               std::move(manifest)};
    ASSERT_TRUE(loader_.answer<operation::ReadDecision>(
        OperationResult(std::make_shared<const storage::Decision>(std::move(decision)))));
  }
  // Each range is in a different file, except those without a file.
  void locate(const std::vector<uint32_t>& without = {}) {
    auto located = std::make_shared<LocatedRanges>();
    for (uint32_t i = 0; i < ranges_.size(); ++i) {
      LocatedRanges::Place& place = located->places.emplace_back();
      if (std::count(without.begin(), without.end(), i) > 0) continue;
      place = {static_cast<uint32_t>(located->files.size()), 4096 + i};
      located->files.push_back(ranges_[i].piece->file_name);
      located->digests.push_back(100 + i);
    }
    loader_.handle(event::OperationDone{locating_, OperationResult(LocatedRangesPtr(std::move(located)))});
  }
  void read(std::vector<local::UnreadRange> unread = {}, uint32_t batch = 0) {
    loader_.from_client(kClient, local::FilesRead{1, batch, std::move(unread)});
  }
  std::vector<local::LoadDone> ends() { return loader_.notified<local::LoadDone>(kClient); }
  // Carries out one ReadBatch and places it; its ranges.
  std::vector<operation::ReadRange> read_into_window() {
    OperationId id = 0;
    auto batch = loader_.take_start<operation::ReadBatch>(&id);
    if (!batch) return {};
    loader_.handle(event::OperationDone{id, OperationResult(DamageList{})});
    const auto loaded = loader_.notified<local::Loaded>(kClient);
    EXPECT_EQ(loaded.size(), 1u);
    EXPECT_EQ(loaded.back().pieces.size(), batch->ranges.size());
    for (size_t i = 0; i < batch->ranges.size(); ++i) {
      const local::LoadedPiece& piece = loaded.back().pieces[i];
      EXPECT_EQ(piece.bytes, batch->ranges[i].end - batch->ranges[i].begin);
      EXPECT_EQ(piece.slab_offset, batch->ranges[i].slab_offset);
      EXPECT_EQ(piece.piece_bytes, piece.bytes);
    }
    loader_.from_client(kClient, local::Placed{1, loaded.back().batch});
    return batch->ranges;
  }

  LoaderByItself loader_;
  OperationId locating_ = 0;
  std::vector<operation::ReadRange> ranges_;
};

class LoaderOfAnObjectStore : public LoaderFiles {
 protected:
  LoaderOfAnObjectStore() : LoaderFiles(false) {}
  void SetUp() override { begin(); }
};

TEST_F(LoaderOfAnObjectStore, ReadsIntoTheWindowWhatTheClientOffersToRead) {
  EXPECT_FALSE(loader_.take_start<operation::LocateRanges>(&locating_));
  EXPECT_EQ(read_into_window().size(), 4u);
  EXPECT_TRUE(loader_.notified<local::FilesToRead>(kClient).empty());
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].outcome.ok()) << ends()[0].outcome.to_string();
}

// The client may use the window for another load as soon as it has the error.
TEST_F(LoaderOfAnObjectStore, ReportsAFailureOnlyWhenNothingFillsTheWindowAnyMore) {
  OperationId reading = 0;
  ASSERT_TRUE(loader_.take_start<operation::ReadBatch>(&reading));
  loader_.pass(5'000 * kMillisecond);
  ASSERT_TRUE(loader_.answer<operation::RenewPin>(Status(Code::not_found, "somebody ended it")));
  EXPECT_TRUE(ends().empty());
  loader_.handle(event::OperationDone{reading, OperationResult(DamageList{})});
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].outcome.code(), Code::unavailable);
  EXPECT_TRUE(loader_.notified<local::Loaded>(kClient).empty());
}

TEST_F(LoaderOfAnObjectStore, RejectsALoadIntoAWindowThatAnotherOneFills) {
  local::Load load;
  load.request_id = 2;
  load.latest = false;
  load.step = kLoadedKey.step;
  load.slab_id = kSlab;
  load.targets = {{"weight", LayoutEntry::Kind::tensor, DType::f32, {8, 3}, {whole(Dims{8, 3})}}};
  loader_.from_client(kClient, load);
  ASSERT_EQ(loader_.notified<local::Found>(kClient).size(), 2u);
  EXPECT_EQ(loader_.notified<local::Found>(kClient)[1].outcome.code(), Code::busy);
}

// A batch that is being read is not the client's yet.
TEST_F(LoaderOfAnObjectStore, TakesNoBatchBackThatTheClientDoesNotHave) {
  loader_.from_client(kClient, local::Placed{1, 0});
  EXPECT_TRUE(ends().empty());
  EXPECT_EQ(read_into_window().size(), 4u);
  EXPECT_EQ(ends().size(), 1u);
}

TEST_F(LoaderOfAnObjectStore, RemovesAPinAgainThatARenewalMayHaveMadeAgain) {
  loader_.pass(5'000 * kMillisecond);
  ASSERT_EQ(loader_.started<operation::RenewPin>(), 1u);
  EXPECT_EQ(read_into_window().size(), 4u);
  ASSERT_TRUE(loader_.answer<operation::RemovePin>(OperationResult(operation::Done{})));
  ASSERT_TRUE(loader_.answer<operation::RenewPin>(OperationResult(operation::Done{})));
  OperationId id = 0;
  const auto again = loader_.take_start<operation::RemovePin>(&id);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->name, "a pin");
  loader_.pass(60'000 * kMillisecond);
  EXPECT_EQ(loader_.started<operation::RenewPin>(), 0u);
}

TEST_F(LoaderFiles, AreToldWithTheirDigestsAndThatIsAll) {
  locate();
  const auto notified = loader_.notified<local::FilesToRead>(kClient);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].request_id, 1u);
  ASSERT_EQ(notified[0].ranges.size(), ranges_.size());
  EXPECT_EQ(notified[0].digests.size(), ranges_.size());
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const local::FileRange& range = notified[0].ranges[i];
    EXPECT_EQ(range.target, 0u);
    EXPECT_EQ(range.box, ranges_[i].piece->box);
    EXPECT_EQ(range.bytes, ranges_[i].end - ranges_[i].begin);
    EXPECT_EQ(notified[0].files.at(range.file), ranges_[i].piece->file_name);
    EXPECT_EQ(range.file_offset, 4096 + i);
  }
  EXPECT_TRUE(ends().empty());
  read();
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].outcome.ok());
  EXPECT_EQ(ends()[0].times.bytes_read, kWeightBytes);
  EXPECT_EQ(loader_.started<operation::ReadBatch>(), 0u);
  EXPECT_EQ(loader_.started<operation::ReleaseWindow>(), 0u) << "it had none";
}

TEST_F(LoaderFiles, ThatTheClientCouldNotReadAreReadIntoItsWindow) {
  locate();
  read({{1, 0, ranges_[1].end}, {3, 0, ranges_[3].end}});
  EXPECT_TRUE(ends().empty());
  const auto again = read_into_window();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].piece->file_name, ranges_[1].piece->file_name);
  EXPECT_EQ(again[1].piece->file_name, ranges_[3].piece->file_name);
  EXPECT_EQ(again[1].end, ranges_[3].end);
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].outcome.ok());
  EXPECT_EQ(ends()[0].times.bytes_read, kWeightBytes) << "each byte counts once";
}

TEST_F(LoaderFiles, WithoutAPlaceAreReadIntoTheWindowOnceTheClientHasReadTheOthers) {
  locate({0, 2});
  const auto notified = loader_.notified<local::FilesToRead>(kClient);
  ASSERT_EQ(notified.size(), 1u);
  EXPECT_EQ(notified[0].ranges.size(), ranges_.size() - 2);
  EXPECT_EQ(notified[0].ranges[1].box, ranges_[3].piece->box);
  EXPECT_EQ(loader_.started<operation::ReadBatch>(), 0u);
  read({{1, 0, ranges_[3].end}});  // as the message says: the fourth range
  const auto again = read_into_window();
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].piece->file_name, ranges_[0].piece->file_name);
  EXPECT_EQ(again[1].piece->file_name, ranges_[2].piece->file_name);
  EXPECT_EQ(again[2].piece->file_name, ranges_[3].piece->file_name);
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].outcome.ok());
}

TEST_F(LoaderFiles, ThatNobodyCanLocateAreReadByTheNode) {
  loader_.handle(event::OperationDone{locating_, Status(Code::unavailable, "not here")});
  EXPECT_TRUE(loader_.notified<local::FilesToRead>(kClient).empty());
  EXPECT_EQ(read_into_window().size(), ranges_.size());
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].outcome.ok());
}

TEST_F(LoaderFiles, FailAsTheNodesOwnReadOfThemFails) {
  locate();
  read({{1, 0, ranges_[1].end}});
  ASSERT_TRUE(loader_.answer<operation::ReadBatch>(Status(Code::corrupt, "a flipped bit")));
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].outcome, Status(Code::corrupt, "a flipped bit"));
}

TEST_F(LoaderFiles, OfWhichTheClientSaysWhatCannotBeEndTheLoad) {
  locate();
  const auto range = static_cast<uint32_t>(ranges_.size());
  read({{range, 0, 1}});
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_THAT(ends()[0].outcome.message(), HasSubstr("was not asked to read"));
}

TEST_F(LoaderFiles, PartsOfABlockAreNone) {
  locate();
  read({{0, 0, ranges_[0].end - 1}});
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].outcome.code(), Code::invalid_argument);
}

TEST_F(LoaderFiles, AreNotReadBeforeTheyAreTold) {
  read();
  read({}, 4'000'000'000u);
  EXPECT_TRUE(ends().empty());
  locate();
  read({}, 1);
  EXPECT_TRUE(ends().empty());
  read();
  read();  // twice
  EXPECT_EQ(ends().size(), 1u);
}

TEST_F(LoaderFiles, OfAClientThatDiedAreNobodysAnyMore) {
  locate();
  loader_.handle(event::ClientLost{kClient});
  EXPECT_EQ(loader_.started<operation::RemovePin>(), 1u);
  read();
  EXPECT_TRUE(ends().empty());
}

TEST_F(LoaderFiles, OfAClientThatDiedBeforeTheyWereLocatedToo) {
  loader_.handle(event::ClientLost{kClient});
  locate();
  EXPECT_TRUE(loader_.notified<local::FilesToRead>(kClient).empty());
}

}  // namespace
}  // namespace shoal::actors
