#include "sim/reports/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "shoal/bytes.h"

namespace shoal::sim {

namespace {

constexpr double kWidth = 860, kHeight = 520;
constexpr double kLeft = 88, kRight = 190, kTop = 76, kBottom = 64;
constexpr double kLabelGap = 17;  // minimum distance between names at the ends of lines
constexpr double kTickGap = 34;   // minimum distance between labels of the x axis
constexpr size_t kMaxMarked = 6;  // crossovers with a label in the chart; a list below has all of them
// The palette of Okabe and Ito, which colour-blind readers can distinguish.
constexpr const char* kColours[kMaxChartLines] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#e69f00", "#56b4e9", "#8a7a00", "#000000"};
constexpr const char* kDashes[] = {"", "7 4", "2 3", "9 3 2 3"};

std::string short_number(double value) {
  return value >= 1e15 || value < 1e-3 ? fmt::format("{:.2g}", value) : fmt::format("{:.4g}", value);
}

std::string with_commas(double value) {
  const std::string digits = fmt::format("{:.0f}", value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// A value between two points is known to at most two digits.
std::string about(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
  return with_commas(std::round(value / unit) * unit);
}

std::string value_text(Chart::Unit unit, double value) {
  switch (unit) {
    case Chart::Unit::seconds:
      return human_seconds(value);
    case Chart::Unit::bytes:
      return human_bytes(static_cast<uint64_t>(value));
    case Chart::Unit::count:
      break;
  }
  return value >= 1000 ? with_commas(value) : short_number(value);
}

std::string tick_text(Chart::Unit unit, double value) {
  if (unit == Chart::Unit::count) return value_text(unit, value);
  if (unit == Chart::Unit::bytes) {
    static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    size_t power = 0;
    for (; value >= 1000 && power + 1 < std::size(kUnits); ++power) value /= 1000;
    return fmt::format("{} {}", short_number(value), kUnits[power]);
  }
  static constexpr std::pair<double, const char*> kTimes[] = {
      {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  for (const auto& [scale, name] : kTimes) {
    if (value >= scale * 0.999) return fmt::format("{} {}", short_number(value / scale), name);
  }
  return fmt::format("{} s", short_number(value));
}

struct Axis {
  double least = 0, most = 0;        // least < most; logarithms unless the axis is linear
  double at_least = 0, at_most = 0;  // in the drawing
  bool is_linear = false;

  double place(double value) const {
    return at_least +
           ((is_linear ? value : std::log10(value)) - least) / (most - least) * (at_most - at_least);
  }
};

struct Extent {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

std::vector<ChartPoint> drawable(const ChartLine& line, bool is_over_time = false) {
  std::vector<ChartPoint> out;
  for (const ChartPoint& point : line.points) {
    const bool is_large = is_over_time ? point.x >= 0 && point.y >= 0 : point.x > 0 && point.y > 0;
    if (is_large && std::isfinite(point.x) && std::isfinite(point.y)) out.push_back(point);
  }
  return out;
}

// A step of 1, 2 or 5 times a power of ten, so that about five to ten steps make `most`.
double tick_of(double most) {
  const double power = std::pow(10.0, std::floor(std::log10(most)));
  for (double times : {0.1, 0.2, 0.5}) {
    if (most / (times * power) <= 10) return times * power;
  }
  return power;
}

// An axis from 0 to a whole number of ticks.
Axis from_zero(const Extent& extent, double at_least, double at_most) {
  const double most = extent.most > 0 ? extent.most : 1;
  return {0, std::ceil(most / tick_of(most) * 0.999) * tick_of(most), at_least, at_most, true};
}

// An axis of whole decades around the values.
Axis decades(const Extent& extent, double at_least, double at_most) {
  double least = std::floor(std::log10(extent.least)), most = std::ceil(std::log10(extent.most));
  if (most - least < 1) most = least + 1;
  return {least, most, at_least, at_most};
}

// An axis of the range of the values, with a margin.
Axis fitting(const Extent& extent, double at_least, double at_most) {
  double least = std::log10(extent.least), most = std::log10(extent.most);
  if (most - least < 0.1) {
    least -= 0.3;
    most += 0.3;
  }
  const double room = (most - least) * 0.03;
  return {least - room, most + room, at_least, at_most};
}

std::string text_at(double x, double y, const char* anchor, const std::string& more,
                    const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped_markup(text));
}

std::string linear_ticks(const Axis& x, const Axis& y, Chart::Unit unit) {
  std::string out;
  const double of_x = tick_of(x.most), of_y = tick_of(y.most);
  for (int i = 0; i * of_y <= y.most * 1.001; ++i) {
    const double at = y.place(i * of_y);
    out += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kLeft, at,
                       kWidth - kRight, at);
    out += text_at(kLeft - 8, at + 4, "end", "", i == 0 ? "0" : tick_text(unit, i * of_y));
  }
  for (int i = 0; i * of_x <= x.most * 1.001; ++i) {
    const double at = x.place(i * of_x);
    out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", at,
                       kHeight - kBottom, kHeight - kBottom + 5);
    out += text_at(at, kHeight - kBottom + 20, "middle", "",
                   i == 0 ? "0" : tick_text(Chart::Unit::seconds, i * of_x));
  }
  return out;
}

std::string y_ticks(const Axis& y, Chart::Unit unit) {
  std::string out;
  const int every = std::max(1, static_cast<int>(std::ceil((y.most - y.least) / 8)));
  for (int power = static_cast<int>(y.least); power <= static_cast<int>(y.most); ++power) {
    const double at = y.place(std::pow(10.0, power));
    out += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kLeft, at,
                       kWidth - kRight, at);
    if ((power - static_cast<int>(y.least)) % every == 0) {
      out += text_at(kLeft - 8, at + 4, "end", "", tick_text(unit, std::pow(10.0, power)));
    }
  }
  return out;
}

// Ticks at the x values of points, as far as there is room.
std::string x_ticks(const Axis& x, const std::set<double>& values) {
  std::string out;
  double last = -kTickGap;
  for (double value : values) {
    const double at = x.place(value);
    out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", at,
                       kHeight - kBottom, kHeight - kBottom + 5);
    const std::string text = value >= 1000 ? with_commas(value) : short_number(value);
    const double half = 3.4 * static_cast<double>(text.size());
    if (at - half < last + 6) continue;
    last = at + half;
    out += text_at(at, kHeight - kBottom + 20, "middle", "", text);
  }
  return out;
}

std::string line_of(const std::vector<ChartPoint>& points, const Axis& x, const Axis& y, size_t number,
                    bool has_dots) {
  const char* colour = kColours[number % kMaxChartLines];
  const char* dash = kDashes[number % std::size(kDashes)];
  std::string path;
  for (const ChartPoint& point : points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x.place(point.x), y.place(point.y));
  }
  std::string out =
      fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{}/>\n", path, colour,
                  has_dots ? "2.2" : "1.5", *dash ? fmt::format(" stroke-dasharray=\"{}\"", dash) : "");
  for (const ChartPoint& point : points) {
    if (!has_dots) break;
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" fill=\"{}\"/>\n", x.place(point.x),
                       y.place(point.y), colour);
  }
  return out;
}

struct EndLabel {
  size_t line = 0;
  double y = 0, wanted = 0;
};

// Names at the right ends of lines, moved apart if they would overlap.
std::vector<EndLabel> end_labels(const std::vector<std::vector<ChartPoint>>& lines, const Axis& y) {
  std::vector<EndLabel> labels;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const double at = y.place(lines[i].back().y);
    labels.push_back({i, at, at});
  }
  std::stable_sort(labels.begin(), labels.end(),
                   [](const auto& a, const auto& b) { return a.wanted < b.wanted; });
  for (size_t i = 1; i < labels.size(); ++i) labels[i].y = std::max(labels[i].y, labels[i - 1].y + kLabelGap);
  const double lowest = kHeight - kBottom;
  if (!labels.empty() && labels.back().y > lowest) {
    labels.back().y = lowest;
    for (size_t i = labels.size() - 1; i-- > 0;)
      labels[i].y = std::min(labels[i].y, labels[i + 1].y - kLabelGap);
  }
  return labels;
}

std::string crossover_text(const Chart& chart, const Crossover& each) {
  const std::string& cheaper = chart.lines[each.second_is_above ? each.first : each.second].name;
  const std::string& dearer = chart.lines[each.second_is_above ? each.second : each.first].name;
  return fmt::format("beyond about {} {}, {} takes more than {}", about(each.x), chart.x_label, dearer,
                     cheaper);
}

std::string marks_of(const Chart& chart, const std::vector<Crossover>& crossings, const Axis& x,
                     const Axis& y) {
  std::string out;
  for (size_t i = 0; i < crossings.size() && i < kMaxMarked; ++i) {
    const double at_x = x.place(crossings[i].x), at_y = y.place(crossings[i].y);
    out += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n",
                       at_x, at_y, kHeight - kBottom);
    out +=
        fmt::format("<circle class=\"mark\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"7\"><title>{}</title></circle>\n",
                    at_x, at_y, escaped_markup(crossover_text(chart, crossings[i])));
    out += text_at(at_x, at_y - 12, "middle", " class=\"crossing\"", about(crossings[i].x));
  }
  return out;
}

std::string style() {
  return "<style>\n"
         ".chart{background:#fff;font:13px system-ui,sans-serif}\n"
         ".chart text{fill:#222}.chart .title{font-size:17px;font-weight:600}.chart .note{fill:#555}\n"
         ".chart .grid{stroke:#e4e4e4}.chart .axis{stroke:#444}\n"
         ".chart line.mark{stroke:#777;stroke-dasharray:3 3}.chart circle.mark{fill:none;stroke:#222;"
         "stroke-width:1.6}\n"
         ".chart .crossing{font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:4px}\n"
         "</style>\n";
}

}  // namespace

std::string escaped_markup(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::vector<Crossover> crossovers(const std::vector<ChartLine>& lines) {
  std::vector<Crossover> out;
  for (size_t a = 0; a < lines.size(); ++a) {
    for (size_t b = a + 1; b < lines.size(); ++b) {
      // For the points that both lines have: the logarithms, and the distance of the second line above the
      // first.
      std::vector<std::pair<double, double>> apart;
      std::vector<double> height;
      for (const ChartPoint& point : drawable(lines[a])) {
        for (const ChartPoint& other : drawable(lines[b])) {
          if (other.x != point.x) continue;
          apart.emplace_back(std::log10(point.x), std::log10(other.y) - std::log10(point.y));
          height.push_back(std::log10(point.y));
        }
      }
      std::optional<size_t> before;  // the last point at which the lines differ
      for (size_t i = 0; i < apart.size(); ++i) {
        if (apart[i].second == 0) continue;
        if (before && (apart[*before].second > 0) != (apart[i].second > 0)) {
          const auto& [x0, d0] = apart[*before];
          const auto& [x1, d1] = apart[i];
          const double part = d0 / (d0 - d1);
          const double y = height[*before] + part * (height[i] - height[*before]);
          out.push_back({a, b, std::pow(10.0, x0 + part * (x1 - x0)), std::pow(10.0, y), d1 > 0});
        }
        before = i;
      }
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Crossover& a, const Crossover& b) { return a.x < b.x; });
  return out;
}

std::string to_svg(const Chart& chart) {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "role=\"img\" aria-label=\"{2}\">\n{3}<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      kWidth, kHeight, escaped_markup(chart.title), style());
  out += text_at(kLeft, 30, "start", " class=\"title\"", chart.title);
  out += text_at(kLeft, 50, "start", " class=\"note\"", chart.subtitle);
  std::vector<std::vector<ChartPoint>> lines;
  std::set<double> values;
  Extent of_x, of_y;
  for (const ChartLine& line : chart.lines) {
    lines.push_back(drawable(line, chart.is_over_time));
    for (const ChartPoint& point : lines.back()) {
      values.insert(point.x);
      of_x.take(point.x);
      of_y.take(point.y);
    }
  }
  if (values.empty()) {
    out += text_at(kWidth / 2, kHeight / 2, "middle", "", "nothing to draw");
    return out + "</svg>\n";
  }
  const bool is_over_time = chart.is_over_time;
  const Axis x = (is_over_time ? from_zero : fitting)(of_x, kLeft, kWidth - kRight);
  const Axis y = (is_over_time ? from_zero : decades)(of_y, kHeight - kBottom, kTop);
  out += is_over_time ? linear_ticks(x, y, chart.unit) : y_ticks(y, chart.unit) + x_ticks(x, values);
  out += fmt::format("<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\"/>\n", kLeft,
                     kHeight - kBottom, kWidth - kRight);
  out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 20, "middle", "", chart.x_label);
  out +=
      text_at(0, 0, "middle",
              fmt::format(" transform=\"translate(20 {:.1f}) rotate(-90)\"", (kTop + kHeight - kBottom) / 2),
              chart.y_label);
  for (size_t i = 0; i < lines.size(); ++i) out += line_of(lines[i], x, y, i, !is_over_time);
  for (const EndLabel& label : end_labels(lines, y)) {
    const double end = x.place(lines[label.line].back().x);
    out += fmt::format("<path d=\"M{:.1f} {:.1f} L{:.1f} {:.1f}\" stroke=\"{}\" stroke-width=\"0.8\"/>\n",
                       end + 5, label.wanted, kWidth - kRight + 14, label.y,
                       kColours[label.line % kMaxChartLines]);
    out += text_at(kWidth - kRight + 18, label.y + 4, "start", "",
                   is_over_time ? chart.lines[label.line].name
                                : fmt::format("{}  {}", chart.lines[label.line].name,
                                              value_text(chart.unit, lines[label.line].back().y)));
  }
  if (is_over_time) return out + "</svg>\n";
  out += marks_of(chart, crossovers(chart.lines), x, y);
  return out + "</svg>\n";
}

std::string to_html(const std::string& title, const std::vector<Chart>& charts) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
      "body{{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:900px;padding:0 1em;color:#222}}\n"
      "svg{{width:100%;height:auto}}table{{border-collapse:collapse;margin:0 0 2em}}\n"
      "td,th{{padding:.2em .8em;text-align:right;border-bottom:1px solid "
      "#ddd;font-variant-numeric:tabular-nums}}\n"
      "</style></head><body>\n<h1>{0}</h1>\n",
      escaped_markup(title));
  for (const Chart& chart : charts) {
    out += to_svg(chart);
    if (chart.is_over_time) continue;
    const std::vector<Crossover> crossings = crossovers(chart.lines);
    if (!crossings.empty()) out += "<ul>\n";
    for (const Crossover& each : crossings)
      out += fmt::format("<li>{}</li>\n", escaped_markup(crossover_text(chart, each)));
    if (!crossings.empty()) out += "</ul>\n";
    std::set<double> values;
    for (const ChartLine& line : chart.lines) {
      for (const ChartPoint& point : drawable(line)) values.insert(point.x);
    }
    out += fmt::format("<table><tr><th>{}</th>", escaped_markup(chart.x_label));
    for (const ChartLine& line : chart.lines) out += fmt::format("<th>{}</th>", escaped_markup(line.name));
    out += "</tr>\n";
    for (double x : values) {
      out += fmt::format("<tr><td>{}</td>", with_commas(x));
      for (const ChartLine& line : chart.lines) {
        const auto points = drawable(line);
        const auto found =
            std::find_if(points.begin(), points.end(), [x](const ChartPoint& point) { return point.x == x; });
        out += fmt::format("<td>{}</td>",
                           found == points.end() ? "" : escaped_markup(value_text(chart.unit, found->y)));
      }
      out += "</tr>\n";
    }
    out += "</table>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace shoal::sim
