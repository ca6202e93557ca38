// Charts: where lines cross, and that the drawing is complete, readable and well-formed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/reports/chart.h"

namespace shoal::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChartLine line(std::string name, std::vector<ChartPoint> points) {
  return {std::move(name), std::move(points)};
}

Chart three_modes() {
  return {"Save & commit <of 405b>",
          "one \"profile\"",
          "ranks",
          "until told of the commit",
          Chart::Unit::seconds,
          {line("collective", {{512, 0.05}, {4096, 0.4}, {16384, 1.6}}),
           line("rank-local", {{512, 0.2}, {4096, 0.25}, {16384, 0.4}}),
           line("collective-free", {{512, 0.02}, {4096, 0.06}, {16384, 0.2}})}};
}

size_t count(const std::string& text, const std::string& what) {
  size_t times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

// Every element that is opened is closed, in order.
std::string first_fault(const std::string& markup) {
  std::vector<std::string> open;
  for (size_t at = markup.find('<'); at != std::string::npos; at = markup.find('<', at + 1)) {
    const size_t end = markup.find('>', at);
    if (end == std::string::npos) return markup.substr(at);
    const bool closes = markup[at + 1] == '/', is_empty = markup[end - 1] == '/';
    const size_t first = at + (closes ? 2 : 1);
    const std::string name = markup.substr(first, markup.find_first_of(" />", first) - first);
    if (is_empty || name == "meta" || name == "!doctype") continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + ">";
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "<" + open.back() + ">";
}

TEST(Crossovers, AreStraightInLogarithms) {
  // y = x and y = 100 / x cross at 10.
  const auto found = crossovers({line("up", {{1, 1}, {100, 100}}), line("down", {{1, 100}, {100, 1}})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NEAR(found[0].x, 10, 1e-9);
  EXPECT_NEAR(found[0].y, 10, 1e-9);
  EXPECT_FALSE(found[0].second_is_above);
}

TEST(Crossovers, AreFoundBetweenTheLinesThatCrossAndAscend) {
  const auto found = crossovers(three_modes().lines);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 0u);
  EXPECT_EQ(found[0].second, 1u);
  EXPECT_GT(found[0].x, 512);
  EXPECT_LT(found[0].x, 4096);
  const auto twice = crossovers({line("a", {{1, 1}, {10, 10}, {100, 1}, {1000, 10}}),
                                 line("b", {{1, 3}, {10, 3}, {100, 3}, {1000, 3}})});
  ASSERT_EQ(twice.size(), 3u);
  EXPECT_LT(twice[0].x, twice[1].x);
  EXPECT_LT(twice[1].x, twice[2].x);
  EXPECT_NE(twice[0].second_is_above, twice[1].second_is_above);
}

TEST(Crossovers, ATouchOrAGapIsNone) {
  EXPECT_TRUE(
      crossovers({line("a", {{1, 1}, {10, 3}, {100, 1}}), line("b", {{1, 3}, {10, 3}, {100, 3}})}).empty());
  EXPECT_TRUE(crossovers({line("a", {{1, 1}, {10, 5}}), line("b", {{2, 3}, {20, 3}})}).empty())
      << "no point of both";
  EXPECT_TRUE(crossovers({line("a", {{1, 2}, {10, 2}}), line("b", {{1, 2}, {10, 2}})}).empty());
  EXPECT_TRUE(crossovers({}).empty());
  // Equal for a while, then on the other side.
  EXPECT_EQ(
      crossovers({line("a", {{1, 1}, {10, 3}, {100, 9}}), line("b", {{1, 3}, {10, 3}, {100, 3}})}).size(),
      1u);
}

TEST(Chart, DrawsEveryLineWithItsNameAndMarksTheCrossover) {
  const std::string svg = to_svg(three_modes());
  EXPECT_EQ(first_fault(svg), "");
  for (const char* text : {"collective  1.60 s", "rank-local  400.0 ms", "collective-free  200.0 ms",
                           "16,384", "until told of the commit", "Save &amp; commit &lt;of 405b&gt;"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_EQ(count(svg, "<circle class=\"mark\""), 1u);
  EXPECT_EQ(count(svg, "r=\"3.2\""), 9u) << "a dot for each point";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
}

TEST(Chart, WithNothingOrOnePointIsStillADrawing) {
  Chart chart = three_modes();
  chart.lines.clear();
  EXPECT_THAT(to_svg(chart), HasSubstr("nothing to draw"));
  chart.lines = {line("one", {{8, 0.1}}), line("none", {}), line("wrong", {{0, 1}, {3, -2}})};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("one  100.0 ms"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(Chart, OfBytesAndCountsSaysThemSo) {
  Chart chart = three_modes();
  chart.unit = Chart::Unit::bytes;
  chart.lines = {line("bytes", {{2, 3e3}, {4, 5e6}})};
  EXPECT_THAT(to_svg(chart), HasSubstr(">1 MB<"));
  chart.unit = Chart::Unit::count;
  chart.lines = {line("messages", {{2, 12}, {4, 34567}})};
  EXPECT_THAT(to_svg(chart), HasSubstr("messages  34,567"));
}

TEST(Chart, AsAPageHasATableAndSaysWhichIsDearer) {
  const std::string page = to_html("Costs", {three_modes(), three_modes()});
  EXPECT_EQ(first_fault(page), "");
  EXPECT_EQ(count(page, "<svg"), 2u);
  EXPECT_EQ(count(page, "<table>"), 2u);
  EXPECT_THAT(page, HasSubstr("collective takes more than rank-local"));
  EXPECT_THAT(page, HasSubstr("<td>4,096</td><td>400.0 ms</td><td>250.0 ms</td><td>60.0 ms</td>"));
}

TEST(Chart, IsTheSameTextForTheSameInput) {
  EXPECT_EQ(to_svg(three_modes()), to_svg(three_modes()));
}

TEST(AChartOverTime, BeginsAtZeroAndHasNeitherMarksNorATable) {
  const Chart chart{"Queue",
                    "4,096 ranks",
                    "since the save began",
                    "",
                    Chart::Unit::count,
                    {line("collective", {{0, 0}, {2.4, 0}, {2.4, 730}, {6.1, 730}, {6.1, 0}}),
                     line("rank-local", {{0, 500}, {5, 10}})},
                    true};
  const std::string svg = to_svg(chart);
  EXPECT_EQ(first_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr(">0</text>"));
  EXPECT_THAT(svg, HasSubstr(">6 s</text>"));
  EXPECT_THAT(svg, HasSubstr(">700</text>"));
  EXPECT_EQ(count(svg, "<path d"), 4u) << "a line and its label each";
  EXPECT_EQ(count(svg, "<circle"), 0u);
  EXPECT_EQ(count(to_html("Page", {chart}), "<table>"), 0u);
}

}  // namespace
}  // namespace shoal::sim
