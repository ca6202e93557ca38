// Chart: lines as SVG. The axes are logarithmic, such as the cost of a save against the number of ranks, with
// marks at the points where two lines cross. A chart over time, in seconds from 0, has linear axes and no
// marks. The functions are pure: equal input gives equal text everywhere.
#pragma once

#include <string>
#include <vector>

namespace shoal::sim {

struct ChartPoint {
  double x = 0, y = 0;  // both greater than 0; over time: at least 0
};
struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // ascending in x
};
struct Chart {
  enum class Unit { seconds, bytes, count };  // unit of y: format of its ticks and values
  std::string title;
  std::string subtitle;  // in smaller type below the title; may be empty
  std::string x_label, y_label;
  Unit unit = Unit::seconds;
  std::vector<ChartLine> lines;  // at most kMaxChartLines have distinct colours
  bool is_over_time = false;
};
inline constexpr size_t kMaxChartLines = 8;

struct Crossover {
  size_t first = 0, second = 0;  // indexes of lines; first < second
  double x = 0, y = 0;
  bool second_is_above = false;  // the second line is above the first to the right of the crossing
};
// The points where two lines cross. Between points that both lines have, lines are straight in the logarithms
// of x and y. A touch is not a crossing. Sorted by x.
std::vector<Crossover> crossovers(const std::vector<ChartLine>& lines);

// The text with what HTML and SVG give a meaning to replaced. Control characters become spaces.
std::string escaped_markup(const std::string& text);
// One self-contained SVG document: no script, no font, no style sheet. Text is escaped.
std::string to_svg(const Chart& chart);
// An HTML page with the charts one below the other. Each chart that is not over time has a table of its
// values.
std::string to_html(const std::string& title, const std::vector<Chart>& charts);

}  // namespace shoal::sim
