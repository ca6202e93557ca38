// What the commands read of a root: which attempts a choice names, and which checkpoint is the newest.
#include "admin/root_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/golden_copy.h"

namespace shoal::admin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// The golden root: checkpoints at steps 1 and 4, step 2 aborted, step 3 deleted, step 5 undecided.
class ARoot : public ::testing::Test {
 protected:
  ARoot() {
    auto opened = open_root_for_reading(copy_.root());
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    root_ = std::move(*opened);
  }
  std::vector<uint64_t> steps(const AttemptChoice& choice) const {
    auto views = choose_attempts(root_, choice);
    EXPECT_TRUE(views.ok()) << views.status().to_string();
    std::vector<uint64_t> found;
    for (const storage::AttemptView& view : *views) found.push_back(view.key.step);
    return found;
  }
  Status refused(const AttemptChoice& choice) const { return choose_attempts(root_, choice).status(); }

  GoldenCopy copy_;
  OpenRoot root_;
};

TEST_F(ARoot, IsOpenedWithItsId) {
  EXPECT_NE(root_.id, RootId{});
  EXPECT_THAT(root_.storage->describe(), HasSubstr(copy_.root()));
}

TEST_F(ARoot, ThatDoesNotExistOrHoldsNoRunIsNotFound) {
  const std::string missing = copy_.beside("none");
  EXPECT_EQ(open_root_for_reading(missing).status().code(), Code::not_found);
  fs::create_directory(copy_.beside("empty"));
  const Status empty = open_root_for_reading(copy_.beside("empty")).status();
  EXPECT_EQ(empty.code(), Code::not_found);
  EXPECT_THAT(empty.message(), HasSubstr(copy_.beside("empty")));
  EXPECT_FALSE(open_root_for_reading(copy_.path("ROOT_ID")).ok()) << "a file is no root";
  EXPECT_FALSE(fs::exists(missing)) << "reading creates nothing";
}

TEST_F(ARoot, ListsAllAttemptsOrThoseOfAStep) {
  EXPECT_THAT(steps({}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(steps({.step = 4}), ElementsAre(4));
  EXPECT_THAT(steps({.step = 4, .attempt = "g2a1"}), ElementsAre(4));
}

TEST_F(ARoot, ReadsTheNewestCheckpointAndWhatIsAboveIt) {
  EXPECT_THAT(steps({.newest_only = true}), ElementsAre(4, 5));
}

TEST_F(ARoot, NamesWhatItDoesNotHave) {
  EXPECT_THAT(refused({.step = 6}).message(), HasSubstr("has no attempt at step 6"));
  EXPECT_THAT(refused({.step = 4, .attempt = "g1a1"}).message(), HasSubstr("has no attempt g1a1 at step 4"));
  EXPECT_THAT(refused({.tag = "best"}).message(), HasSubstr("has no tag 'best'"));
  for (const Status& status : {refused({.step = 6}), refused({.tag = "best"})}) {
    EXPECT_EQ(status.code(), Code::not_found);
  }
  EXPECT_EQ(refused({.attempt = "g1a1"}).code(), Code::invalid_argument) << "an attempt of which step?";
  EXPECT_EQ(refused({.step = 4, .attempt = "latest"}).code(), Code::invalid_argument);
}

TEST_F(ARoot, FindsACheckpointByItsTag) {
  storage::Mark tag;
  tag.name = "best";
  tag.key = {1, 1, 1};
  ASSERT_TRUE(storage::create_mark(*root_.storage, storage::MarkKind::tag, tag).ok());
  EXPECT_THAT(steps({.tag = "best"}), ElementsAre(1));
}

TEST_F(ARoot, WithADamagedNewestDecisionHasAnUnknownLatest) {
  auto views = choose_attempts(root_, {});
  ASSERT_TRUE(views.ok());
  EXPECT_EQ(newest_checkpoint(*views)->key.step, 4u);
  EXPECT_TRUE(check_reads_back(newest_checkpoint(*views)).ok());

  copy_.flip_bit_from_end("step-00000004/g2a1/manifest.shoal", 40);
  views = choose_attempts(root_, {});
  ASSERT_TRUE(views.ok());
  const storage::AttemptView* newest = newest_checkpoint(*views);
  ASSERT_NE(newest, nullptr);
  EXPECT_EQ(newest->key.step, 4u) << "an older checkpoint must not pass for the latest";
  const Status unknown = check_reads_back(newest);
  EXPECT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.message(), HasSubstr("it may be the newest checkpoint"));
}

TEST(NewestCheckpoint, OfNothingIsNoneAndIsNoError) {
  EXPECT_EQ(newest_checkpoint({}), nullptr);
  EXPECT_TRUE(check_reads_back(nullptr).ok());
}

TEST(AChoice, IsAStepOrATag) {
  AttemptChoice choice;
  EXPECT_TRUE(choose_step("18446744073709551615", &choice).ok());
  EXPECT_EQ(choice.step, UINT64_MAX);
  choice = {};
  EXPECT_TRUE(choose_step("best-1", &choice).ok());
  EXPECT_EQ(choice.tag, "best-1");
  for (const char* text : {"", "-1", "1.5", "latest", "18446744073709551616", "7x", "../up"}) {
    choice = {};
    EXPECT_EQ(choose_step(text, &choice).code(), Code::invalid_argument) << text;
  }
}

TEST(Texts, OfCountsNamesAndTimes) {
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(2, "box", "boxes"), "2 boxes");
  EXPECT_EQ(attempt_name({3, 1000, 2}), "g3a2");
  EXPECT_EQ(utc_time(0), "-");
  EXPECT_EQ(utc_time(1'000'000'000'000'000'000), "2001-09-09 01:46:40");
}

}  // namespace
}  // namespace shoal::admin
