// Chart: lines over logarithmic axes as SVG, such as the cost of a save against the number of ranks, with the
// points where two lines cross marked; or over time, in seconds from 0, with linear axes and no marks. A pure
// function of its input: the same text everywhere.
#pragma once

#include <string>
#include <vector>

namespace shoal::sim {

struct ChartPoint {
  double x = 0, y = 0;  // both greater than 0; over time: not less
};
struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // ascending in x
};
struct Chart {
  enum class Unit { seconds, bytes, count };  // of y: how its ticks and values are written
  std::string title;
  std::string subtitle;  // smaller, below; may be empty
  std::string x_label, y_label;
  Unit unit = Unit::seconds;
  std::vector<ChartLine> lines;  // at most kMaxChartLines are told apart by colour
  bool is_over_time = false;
};
inline constexpr size_t kMaxChartLines = 8;

struct Crossover {
  size_t first = 0, second = 0;  // of lines; first < second
  double x = 0, y = 0;
  bool second_is_above = false;  // to the right of it
};
// Where two lines cross between points that they have, straight in logarithms of x and y; a touch is none.
// Ascending in x.
std::vector<Crossover> crossovers(const std::vector<ChartLine>& lines);

// One SVG document, which needs nothing else: no script, no font, no style sheet. Text is escaped.
std::string to_svg(const Chart& chart);
// Charts one below the other in an HTML page, each but those over time with the table of its values.
std::string to_html(const std::string& title, const std::vector<Chart>& charts);

}  // namespace shoal::sim
