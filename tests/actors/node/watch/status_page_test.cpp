// What the status page shows, and that nothing from outside becomes part of it.
#include "actors/node/watch/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::actors {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

PageFacts facts() {
  PageFacts facts;
  facts.node.host = "a";
  facts.node.job_id = "<script>alert(1)</script>";
  facts.node.world_size = 4;
  facts.node.errors = {{10, "line with \xff and </script>"}};
  facts.counts.newest = NewestCheckpoint{{1, 7, 1}, 1'000, 100};
  facts.counts.aborted[static_cast<size_t>(AbortCause::storage)] = 2;
  facts.bytes_free = 350;
  SaveRecord record;
  record.key = {1, 7, 1};
  record.state = SaveRecord::State::aborted;
  record.staged_ms = 3;
  record.decided_ms = 9;
  record.abort_cause = AbortCause::storage;
  record.cause = "no space";
  facts.saves = {record};
  return facts;
}

TEST(StatusPage, HasItsFactsAsJson) {
  PageFacts some = facts();
  json page = json::parse(status_page_json(some));
  EXPECT_EQ(page["host"], "a");
  EXPECT_TRUE(page["job"].is_null()) << "nothing is gathered yet";
  EXPECT_EQ(page["checkpoints_fit"], 3);
  ASSERT_EQ(page["saves"].size(), 1u);
  EXPECT_EQ(page["saves"][0]["state"], "aborted");
  EXPECT_EQ(page["saves"][0]["abort_cause"], "storage");
  EXPECT_EQ(page["saves"][0]["staged_ms"], 3);
  EXPECT_FALSE(page["saves"][0].contains("durable_ms"));
  EXPECT_EQ(page["aborted"]["storage"], 2);
  EXPECT_EQ(page["aborted"].size(), kAbortCauses);
  some.job = std::make_shared<const local::JobStatus>(local::JobStatus{.hosts_count = 77});
  page = json::parse(status_page_json(some));
  EXPECT_EQ(page["job"]["hosts_count"], 77);
}

TEST(StatusPage, PassesTextsFromOutsideOnlyAsJson) {
  const json page = json::parse(status_page_json(facts()));
  EXPECT_EQ(page["job_id"], "<script>alert(1)</script>") << "the page inserts it as text";
  EXPECT_EQ(page["errors"][0]["line"], "line with \xef\xbf\xbd and </script>");
  const std::string html(status_page_html());
  for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(html, Not(HasSubstr(way))) << "this would make markup or code of a text";
  }
}

TEST(StatusPage, LoadsNothingFromElsewhere) {
  const std::string html(status_page_html());
  for (const char* other : {"http:", "https:", "//cdn", "src=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(other)));
  }
  EXPECT_THAT(std::string(kPageHeaders), HasSubstr("default-src 'none'"));
}

}  // namespace
}  // namespace shoal::actors
