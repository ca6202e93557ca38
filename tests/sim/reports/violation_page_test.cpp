// The page of a violation.
#include "sim/reports/violation_page.h"

#include <gmock/gmock.h>

#include <string>

#include "sim/basics/toml_tree.h"
#include "tests/sim/simulated.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Scenario job_with_a_restart() {
  Scenario job;
  job.ranks = 6;
  job.ranks_per_host = 2;
  job.model = "tiny";
  job.profile = "nvme";
  job.saves = 2;
  job.interval_ms = 500;
  Failure restarts{Failure::Kind::restarts, 600};
  restarts.host = 2;
  restarts.for_ms = 100;
  job.failures = {restarts};
  return job;
}

TEST(AViolationPage, ShowsLanesMessagesFailuresAndWhatMustHold) {
  ViolationPage page;
  auto report = simulate(job_with_a_restart(), profile_named("nvme"), page.listeners());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  report->violation = Violation{"one-decision", 1'234'000'000, "step 2 <g1a1> has two"};
  const std::string html = page.html(*report, "shoal replay v.toml");
  EXPECT_THAT(html, HasSubstr(">node 0<"));
  EXPECT_THAT(html, HasSubstr(">node 2<"));
  EXPECT_THAT(html, Not(HasSubstr(">node 3<")));
  EXPECT_THAT(html, HasSubstr("<line class=\"m\""));
  EXPECT_THAT(html, HasSubstr("host 2 restarts at 600 ms for 100 ms"));
  EXPECT_THAT(html, HasSubstr("step 2 &lt;g1a1&gt; has two"));
  EXPECT_THAT(html, HasSubstr(std::string(meaning_of_oracle("one-decision"))));
  EXPECT_THAT(html, HasSubstr("<code>shoal replay v.toml</code>"));
  EXPECT_THAT(html, HasSubstr("\nranks_per_host = 2\n"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("href")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
}

TEST(AViolationPage, KnowsEveryOracleOfTheDocumentation) {
  const auto text = read_text(std::string(kSource) + "/docs/explanation/simulator.md");
  ASSERT_TRUE(text.ok());
  const size_t begin = text->find("## Oracles"), end = text->find("## What it has shown");
  ASSERT_LT(begin, end);
  size_t known = 0;
  for (size_t row = text->find("\n| `", begin); row < end; row = text->find("\n| `", row + 1)) {
    const size_t cell_end = text->find(" | ", row + 3);
    for (size_t name = row + 4; name < cell_end && name > row;) {
      const size_t name_end = text->find('`', name);
      const std::string oracle = text->substr(name, name_end - name);
      EXPECT_NE(meaning_of_oracle(oracle), "") << oracle;
      ++known;
      name = text->find('`', name_end + 1) + 1;
    }
  }
  EXPECT_GT(known, 25u);
  EXPECT_EQ(meaning_of_oracle("no-such-oracle"), "");
}

}  // namespace
}  // namespace shoal::sim
