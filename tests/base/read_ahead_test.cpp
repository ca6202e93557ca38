#include "base/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

namespace shoal::base {
namespace {

TEST(ReadAhead, IsDoneOfFilesThatThePageCacheHolds) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(is_read_ahead(fileno(file)));
  EXPECT_TRUE(is_read_ahead(fileno(file)));  // as it is known by now
  read_ahead(fileno(file), 0, 4096);
  std::fclose(file);
  EXPECT_FALSE(is_read_ahead(-1));
  read_ahead(-1, 0, 4096);
}

}  // namespace
}  // namespace shoal::base
