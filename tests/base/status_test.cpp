#include "shoal/status.h"

#include <gmock/gmock.h>

namespace shoal::base {
namespace {

Status fails(bool should_fail) {
  return should_fail ? Status(Code::io, "/a: no such file") : ok_status();
}

TEST(Status, IsOkUntilSomethingHappens) {
  EXPECT_TRUE(ok_status().ok());
  EXPECT_EQ(ok_status().code(), Code::ok);
  EXPECT_EQ(ok_status().message(), "");
  EXPECT_EQ(ok_status().to_string(), "ok");
  EXPECT_TRUE(Status(Code::ok, "ignored").ok());
}

TEST(Status, SaysWhatHappenedAndWhere) {
  Status status = fails(true).with_context("rank 7");
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_EQ(status.to_string(), "I/O error: rank 7: /a: no such file");
  EXPECT_TRUE(ok_status().with_context("rank 7").ok());
}

TEST(Status, EveryCodeHasAName) {
  for (unsigned short i = 0; i <= static_cast<unsigned short>(Code::internal); ++i) {
    EXPECT_NE(code_name(static_cast<Code>(i)), "unknown code");
  }
  EXPECT_EQ(code_name(static_cast<Code>(999)), "unknown code");
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status(Code::invalid_argument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  SHOAL_ASSIGN_OR_RETURN(int once, half(value));
  SHOAL_ASSIGN_OR_RETURN(int twice, half(once));
  SHOAL_RETURN_IF_ERROR(fails(twice == 100));
  return twice;
}

TEST(Result, HoldsAValueOrTheStatusThatPreventedIt) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_TRUE(quarter(8).status().ok());
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_EQ(quarter(400).status().code(), Code::io);
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorEndsTheProcess) {
  EXPECT_DEATH(static_cast<void>(*half(1)), "ok\\(\\) is false");
}

}  // namespace
}  // namespace shoal::base
