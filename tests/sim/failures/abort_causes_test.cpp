// The oracle cause-is-true: causes that failures give, and the same causes where, when or to whom they do not
// give them.
#include "sim/failures/abort_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr actors::TimeNs kSecond = 1'000 * actors::kMillisecond;
constexpr actors::TimeNs kHostLost = 15 * kSecond;

Failure failure_of(Failure::Kind kind, uint64_t at_ms, uint64_t for_ms = 0) {
  Failure failure;
  failure.kind = kind;
  failure.at_ms = at_ms;
  failure.for_ms = for_ms;
  return failure;
}

class CauseIsTrue : public ::testing::Test {
 protected:
  // Ranks 4 n to 4 n + 3 are on host n. The save runs from 100 s to 140 s.
  std::string doubt(const std::string& cause) const {
    AbortCauses causes({failures_, run_began_, kHostLost, [](Rank rank) { return size_t{rank} / 4; },
                        [this](Rank rank, uint32_t) { return rank == staged_; }});
    return causes.doubt({3, 100 * kSecond, 140 * kSecond, cause});
  }

  std::vector<Failure> failures_;
  actors::TimeNs run_began_ = 0;
  Rank staged_ = 99;
};

TEST_F(CauseIsTrue, NeedsARuleForEachText) {
  EXPECT_THAT(doubt("the moon is full"), HasSubstr("no rule"));
}

TEST_F(CauseIsTrue, BelievesThatAHostIsLostWhichWasAwayForLong) {
  const std::string cause = "host host3 (ranks 12, 13) is lost (closed by the peer): neither its node nor";
  EXPECT_THAT(doubt(cause), Not(IsEmpty()));
  failures_ = {failure_of(Failure::Kind::stalls, 101'000, 5'000)};
  failures_[0].host = 3;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "too short";
  failures_[0].for_ms = 20'000;
  EXPECT_THAT(doubt(cause), IsEmpty());
  failures_[0].host = 2;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "another host";
  failures_[0].host = 0;
  EXPECT_THAT(doubt(cause), IsEmpty()) << "the coordinator's host";
  failures_[0].host = 3;
  failures_[0].at_ms = 1'000;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "long before";
  failures_[0].at_ms = 150'000;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "later";
}

TEST_F(CauseIsTrue, DoubtsOneOfTwoHosts) {
  failures_ = {failure_of(Failure::Kind::dies, 101'000)};
  failures_[0].host = 3;
  EXPECT_THAT(doubt("hosts host3, host4 (ranks 12, 16) are lost: neither their nodes"), Not(IsEmpty()));
  failures_[0].hosts = 2;
  EXPECT_THAT(doubt("hosts host3, host4 (ranks 12, 16) are lost: neither their nodes"), IsEmpty());
}

TEST_F(CauseIsTrue, BelievesADiskOfTheNamedHostWhileTheSaveRan) {
  const std::string cause = "rank 5 (host host1): I/O error: host 1: WriteShard: the disk fails";
  failures_ = {failure_of(Failure::Kind::disk_fails, 101'000, 100)};
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "of host 0";
  failures_[0].host = 1;
  EXPECT_THAT(doubt(cause), IsEmpty());
  failures_[0].at_ms = 99'000;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "over before the save began";
  failures_[0] = failure_of(Failure::Kind::disk_full, 101'000, 100);
  failures_[0].host = 1;
  EXPECT_THAT(doubt(cause), Not(IsEmpty()));
  EXPECT_THAT(doubt("rank 5 (host host1): no space: host 1: WriteShard: the disk is full"), IsEmpty());
}

TEST_F(CauseIsTrue, BelievesThatARankHasLeftWhichDid) {
  const std::string cause = "rank 5 (host host1): its trainer ended before it staged this save: signal 9";
  failures_ = {failure_of(Failure::Kind::ends, 50'000)};
  EXPECT_THAT(doubt(cause), HasSubstr("no failure took rank 5 away"));
  failures_[0].rank = 5;
  EXPECT_THAT(doubt(cause), IsEmpty());
  staged_ = 5;
  EXPECT_THAT(doubt(cause), HasSubstr("rank 5 has staged it"));
  staged_ = 6;
  run_began_ = 60 * kSecond;
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "a trainer of the run before";
}

TEST_F(CauseIsTrue, DoubtsThatATrainerLeftWhichAttachesAgainAtOnce) {
  const std::string cause = "rank 5 (host host1): it closed its connection before it staged this save";
  failures_ = {failure_of(Failure::Kind::reconnects, 101'000)};
  failures_[0].rank = 5;
  EXPECT_THAT(doubt(cause), Not(IsEmpty()));
  failures_[0].for_ms = 16'000;
  EXPECT_THAT(doubt(cause), IsEmpty());
}

TEST_F(CauseIsTrue, NeedsADisturbanceForWhatDidNotComeInTime) {
  const std::string cause = "nothing came from rank 5 (host host1) within 2 min 00 s of the last report";
  EXPECT_THAT(doubt(cause), Not(IsEmpty()));
  failures_ = {failure_of(Failure::Kind::twins, 101'000, 100)};
  EXPECT_THAT(doubt(cause), Not(IsEmpty())) << "another process of a rank disturbs nothing";
  failures_ = {failure_of(Failure::Kind::loses, 101'000, 100)};
  EXPECT_THAT(doubt(cause), IsEmpty());
}

}  // namespace
}  // namespace shoal::sim
