// Failures of saves whose outcome no call requested: how and how often a trainer is notified of each.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/owned_fd.h"
#include "client/launch/save_report.h"
#include "tests/client/fake_node.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kCause = "rank 1 did not report";

class FailedSave : public ::testing::Test {
 protected:
  FailedSave() {
    options_.root = root_.path();
    options_.world_size = 2;
    options_.job_id = "job";
    options_.start_node = false;
    options_.attach_timeout = milliseconds(1'000);
    options_.max_in_flight = 4;
    state_.add_tensor("x", DType::u8, {4}, Mesh::contiguous({2}), {Placement::replicate()}, bytes_);
  }
  void TearDown() override {
    node_.die();
    checkpointer_.reset();
    ::unsetenv(kSaveReportVariable);
  }
  void open() { checkpointer_ = attach(node_, options_); }
  Result<SaveHandle> save(uint64_t step) { return checkpointer_->save(step, state_); }
  void decide(uint64_t step, Status outcome) {
    if (!std::exchange(has_layout_, true))
      node_.expect<local::LayoutUpdate>();  // it comes before the first save
    const auto staged = node_.expect<local::Staged>();
    ASSERT_EQ(staged.step, step);
    node_.send(local::SlabFree{staged.slab_id, step, staged.attempt, {}});
    node_.send(local::Decided{step, staged.attempt, std::move(outcome), {}});
  }
  void fail(uint64_t step) { decide(step, Status(Code::aborted, kCause)); }
  // The receiving thread gets it a moment later.
  template <class Holds>
  static bool soon(Holds&& holds) {
    for (int i = 0; i < 2'000 && !holds(); ++i) std::this_thread::sleep_for(milliseconds(5));
    return holds();
  }
  bool is_done_soon(const SaveHandle& handle) {
    return soon([&] { return handle.done(); });
  }

  TemporaryRoot root_;
  FakeNode node_{root_.path()};
  CheckpointerOptions options_;
  std::byte bytes_[4] = {};
  StateDict state_;
  std::unique_ptr<Checkpointer> checkpointer_;
  bool has_layout_ = false;
};

TEST_F(FailedSave, TheNextSaveTellsOfItOnceAndIsStagedAllTheSame) {
  open();
  ASSERT_TRUE(save(5).ok());
  const SaveHandle first = *checkpointer_->last_save();
  fail(5);
  ASSERT_TRUE(is_done_soon(first));

  const Result<SaveHandle> second = save(6);
  ASSERT_EQ(second.status().code(), Code::earlier_save_failed);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr("rank 0, step 6 (g3a1): the save of step 5 (g3a1) failed"), HasSubstr(kCause),
                    HasSubstr("this save was staged")));
  SaveHandle handle = *checkpointer_->last_save();
  EXPECT_EQ(handle.key(), (AttemptKey{3, 6, 1}));
  decide(6, ok_status());
  EXPECT_TRUE(handle.wait_committed().ok());
  EXPECT_TRUE(save(7).ok());
}

TEST_F(FailedSave, WhatItsHandleHasToldIsNotToldAgain) {
  open();
  SaveHandle waited = save(5).value();
  fail(5);
  EXPECT_EQ(waited.wait_committed().status().code(), Code::aborted);
  SaveHandle asked = save(6).value();
  fail(6);
  ASSERT_TRUE(is_done_soon(asked));
  EXPECT_EQ(asked.error().code(), Code::aborted);
  EXPECT_TRUE(save(7).ok());
  decide(7, ok_status());
  EXPECT_TRUE(checkpointer_->wait_all().ok());
}

TEST_F(FailedSave, SeveralAreOneErrorThatNamesTheFirst) {
  open();
  for (uint64_t step : {1, 2, 3}) ASSERT_TRUE(save(step).ok());
  const SaveHandle last = *checkpointer_->last_save();
  for (uint64_t step : {1, 2, 3}) fail(step);
  ASSERT_TRUE(is_done_soon(last));
  const Status notified = save(4).status();
  EXPECT_THAT(notified.message(), AllOf(HasSubstr("step 1 (g3a1)"), HasSubstr("2 more failed")));
  EXPECT_TRUE(save(5).ok());
}

TEST_F(FailedSave, WaitAllAndCloseTellOfIt) {
  open();
  ASSERT_TRUE(save(5).ok());
  EXPECT_EQ(checkpointer_->wait_all(milliseconds(1)).code(), Code::deadline_exceeded);
  EXPECT_EQ(checkpointer_->close(milliseconds(1)).code(), Code::deadline_exceeded);
  fail(5);
  const Status waited = checkpointer_->wait_all();
  EXPECT_EQ(waited.code(), Code::aborted);
  EXPECT_THAT(waited.message(), AllOf(HasSubstr("step 5 (g3a1)"), HasSubstr(kCause)));
  EXPECT_TRUE(checkpointer_->wait_all().ok());

  ASSERT_TRUE(save(6).ok());
  fail(6);
  EXPECT_THAT(checkpointer_->close().message(), HasSubstr("step 6 (g3a1)"));
  EXPECT_TRUE(checkpointer_->close().ok());
  EXPECT_EQ(save(7).status().code(), Code::refused);
  EXPECT_EQ(checkpointer_->latest().status().code(), Code::refused);
}

// Regression: the caller took it for a save that is still undecided, and called again. Then nothing was left
// to return.
TEST_F(FailedSave, ThatExceededItsDeadlineIsNotUndecided) {
  open();
  for (const uint64_t step : {5, 6}) {
    SaveHandle saved = save(step).value();
    node_.send(local::Decided{step, 1, Status(Code::deadline_exceeded, "the root hangs"), nullptr});
    ASSERT_TRUE(is_done_soon(saved));
    const Status failed = step == 5 ? checkpointer_->wait_all() : checkpointer_->close();
    EXPECT_EQ(failed.code(), Code::earlier_save_failed);
    EXPECT_THAT(failed.message(), HasSubstr("deadline exceeded: the root hangs"));
  }
}

TEST_F(FailedSave, ALineTellsOfItWhereTheCheckpointerEnds) {
  open();
  ASSERT_TRUE(save(5).ok());
  const SaveHandle first = *checkpointer_->last_save();
  fail(5);
  ASSERT_TRUE(is_done_soon(first));
  ::testing::internal::CaptureStderr();
  checkpointer_.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), AllOf(HasSubstr("step 5 (g3a1)"), HasSubstr(kCause)));
}

TEST_F(FailedSave, ASaveThatWasNeverDecidedIsNoFailure) {
  open();
  ASSERT_TRUE(save(5).ok());
  node_.expect<local::LayoutUpdate>();
  const auto staged = node_.expect<local::Staged>();
  node_.send(local::SlabFree{staged.slab_id, 5, 1, {}});
  ::testing::internal::CaptureStderr();
  checkpointer_.reset();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(FailedSave, ToRefuseIsToStageNothingUntilItWasTold) {
  options_.on_failed = OnFailed::refuse;
  open();
  ASSERT_TRUE(save(5).ok());
  const SaveHandle first = *checkpointer_->last_save();
  fail(5);
  ASSERT_TRUE(is_done_soon(first));
  for (uint64_t step : {6, 7}) {
    EXPECT_EQ(save(step).status().code(), Code::earlier_save_failed);
    const auto received = node_.expect<local::NotStaged>();  // reports it to the other ranks
    EXPECT_EQ(received.step, step);
    node_.send(local::Decided{step, received.attempt, Status(Code::aborted, "rank 0 took no part"), {}});
  }
  EXPECT_EQ(checkpointer_->wait_all().code(), Code::aborted);
  EXPECT_TRUE(save(8).ok());
}

// Otherwise two ranks that refuse at different steps would refuse in turns for ever.
TEST_F(FailedSave, ThatAnotherRankRefusedIsNoReasonToRefuse) {
  options_.on_failed = OnFailed::refuse;
  open();
  SaveHandle refused = save(5).value();
  // The text of a rank that refuses.
  decide(5, Status(Code::aborted, "rank 1: step 5 was not staged (on_failed = refuse)"));
  ASSERT_TRUE(is_done_soon(refused));
  EXPECT_TRUE(save(6).ok());
}

TEST_F(FailedSave, TheCallbackHearsEachOnce) {
  std::mutex mutex;
  std::vector<std::string> notified;
  options_.on_save_failed = [&](const AttemptKey& key, const Status& why) {
    std::lock_guard lock(mutex);
    notified.push_back(to_string(key) + ": " + why.message());
  };
  auto count = [&] {
    std::lock_guard lock(mutex);
    return notified.size();
  };
  open();
  for (uint64_t step : {1, 2, 3}) ASSERT_TRUE(save(step).ok());
  fail(1);
  decide(2, ok_status());
  fail(3);
  EXPECT_TRUE(soon([&] { return count() == 2; }));
  (void)checkpointer_->wait_all();
  EXPECT_THAT(notified,
              ElementsAre("step 1 (g3a1): " + std::string(kCause), "step 3 (g3a1): " + std::string(kCause)));
}

TEST_F(FailedSave, AfterAsManyInARowAsMayBeNothingIsStaged) {
  options_.max_failed_saves = 2;
  open();
  auto saves = [&](uint64_t step, Status outcome) {
    SaveHandle handle = save(step).value();
    decide(step, std::move(outcome));
    return handle.wait_committed().ok();
  };
  const Status failure(Code::aborted, kCause);
  EXPECT_FALSE(saves(1, failure));
  EXPECT_TRUE(saves(2, ok_status()));  // the row starts again
  EXPECT_FALSE(saves(3, failure));
  EXPECT_FALSE(saves(4, failure));
  const Status refused = save(5).status();
  EXPECT_EQ(refused.code(), Code::earlier_save_failed);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("2 saves in a row"), HasSubstr("step 4"), HasSubstr(kCause)));
  EXPECT_EQ(node_.expect<local::NotStaged>().step, 5u);
}

class SaveReport : public FailedSave {
 protected:
  SaveReport() {
    const std::string path = root_.folder() + "/report";
    SHOAL_CHECK(::mkfifo(path.c_str(), 0600) == 0);
    fifo_ = base::OwnedFd(::open(path.c_str(), O_RDWR | O_NONBLOCK));
    ::setenv(kSaveReportVariable, path.c_str(), 1);
  }
  std::vector<SaveEvent> events() {
    char buffer[65536];
    const ssize_t size = ::read(fifo_.get(), buffer, sizeof buffer);
    std::vector<SaveEvent> out;
    std::string_view text(buffer, size < 0 ? 0 : static_cast<size_t>(size));
    for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      out.push_back(parse_save_event(text.substr(0, end)).value());
    }
    return out;
  }

  base::OwnedFd fifo_;
};

TEST_F(SaveReport, TheLauncherHearsWhatBecomesOfEverySave) {
  options_.max_failed_saves = 1;
  open();
  using Kind = SaveEvent::Kind;
  const AttemptKey first{3, 1, 1}, second{3, 2, 1};
  SaveHandle one = save(1).value();
  decide(1, ok_status());
  EXPECT_TRUE(one.wait_committed().ok());
  EXPECT_THAT(events(),
              ElementsAre(SaveEvent{Kind::staged, 0, first, ""}, SaveEvent{Kind::committed, 0, first, ""}));
  SaveHandle two = save(2).value();
  fail(2);
  ASSERT_TRUE(is_done_soon(two));
  const std::string cause = "aborted: " + std::string(kCause);
  ASSERT_TRUE(soon([&] { return checkpointer_->last_save()->done(); }));
  EXPECT_THAT(events(),
              ElementsAre(SaveEvent{Kind::staged, 0, second, ""}, SaveEvent{Kind::failed, 0, second, cause},
                          SaveEvent{Kind::too_many, 0, second, cause}));
  EXPECT_FALSE(two.error().ok());
  EXPECT_THAT(events(), ElementsAre(SaveEvent{Kind::notified, 0, second, ""}));
  EXPECT_FALSE(two.error().ok());
  EXPECT_THAT(events(), IsEmpty());
}

TEST(SaveEventLine, ReadsBackAndIsOneLineHoweverLongTheCause) {
  const SaveEvent event{SaveEvent::Kind::failed, 7, {2, 18'000'000'000'000'000'000u, 3}, "two\nlines"};
  const std::string line = save_event_line(event);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  SaveEvent back = parse_save_event(std::string_view(line).substr(0, line.size() - 1)).value();
  EXPECT_EQ(back.cause, "two lines");
  back.cause = event.cause;
  EXPECT_EQ(back, event);
  EXPECT_LE(save_event_line({SaveEvent::Kind::failed, 7, {}, std::string(100'000, 'x')}).size(), 4096u);
  for (const char* wrong : {"", "staged", "staged x 1 1 1 ", "began 1 1 1 1 ", "staged 1 1 1"}) {
    EXPECT_EQ(parse_save_event(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace shoal::client
