#include "cli/plan/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/plan/report.h"
#include "sim/reports/chart.h"

namespace shoal::cli {

namespace {

using actors::TimeNs;

constexpr double kPageWidth = 860, kPageHeight = 420;
constexpr double kPageLeft = 64, kPageRight = 210, kPageTop = 16, kPageBottom = 52;
constexpr double kNameGap = 16;  // between names of lines
constexpr size_t kLineColours = 8;
constexpr double kLeastShown = 0.004;  // a part of the bar that is too narrow for its name

// Colours are the classes c0 to c7 of the style below; parts of the bar have p0 to p7.
constexpr const char* kPageStyle =
    ":root{--bg:#fff;--fg:#222;--dim:#666;--grid:#e4e4e4;--card:#f6f7f9;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#00805e;--c3:#b0568c;--c4:#b37a00;--c5:#3a8fc0;--c6:#7a6b00;--c7:#555}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#e6e6e6;--dim:#a0a4aa;--grid:#343840;"
    "--card:#20242a;--c0:#56b4e9;--c1:#ff8a3d;--c2:#35c79c;--c3:#e39ac4;--c4:#f0b440;--c5:#8fd0f5;"
    "--c6:#d5c64a;--c7:#bbb}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:900px;padding:0 1em;"
    "background:var(--bg);color:var(--fg)}\n"
    "h1{font-size:1.25em}h2{font-size:1.05em;margin:2em 0 .4em}.lead{font-size:1.15em;background:var(--card);"
    "padding:.8em 1em;border-radius:6px}.dim{color:var(--dim)}\n"
    "svg{width:100%;height:auto;font:13px system-ui,sans-serif}svg text{fill:var(--fg)}"
    "svg .dim{fill:var(--dim)}svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--dim)}\n"
    "svg .mark{stroke:var(--fg);stroke-dasharray:4 4}svg "
    ".dot{fill:var(--bg);stroke:var(--fg);stroke-width:2}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "td.text,th.text{text-align:left}td.long{white-space:normal;text-align:left}"
    "tr.chosen td{font-weight:600}\n";

std::string line_style() {
  std::string out;
  for (size_t i = 0; i < kLineColours; ++i) {
    out += fmt::format(".c{0}{{stroke:var(--c{0})}}.p{0}{{fill:var(--c{0})}}", i);
  }
  return out + "\n";
}

std::string text_tag(double x, double y, const char* anchor, const char* of_class, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                     *of_class ? fmt::format(" class=\"{}\"", of_class) : "", sim::escaped_markup(text));
}

// Places of intervals (logarithmic) and of ETTR (linear) in the drawing.
struct CurveAxes {
  double from = 0, to = 1;     // logarithms of seconds
  double least = 0, most = 1;  // of ETTR
  double tick = 0.1;

  double x(TimeNs interval) const {
    const double at = std::log10(static_cast<double>(interval) / 1e9);
    return kPageLeft + (at - from) / (to - from) * (kPageWidth - kPageLeft - kPageRight);
  }
  double y(double ettr) const {
    return kPageTop + (most - ettr) / (most - least) * (kPageHeight - kPageTop - kPageBottom);
  }
};

// The scale shows all curves from the least value at a chosen interval on, with as much below as above.
CurveAxes axes_of(const PlanResult& result) {
  CurveAxes axes{1e9, -1e9, 1, 0, 0.1};
  for (const PlanCase& each : result.cases) {
    if (!each.has_run()) continue;
    for (const sim::IntervalPoint& point : each.curve.points)
      axes.most = std::max(axes.most, point.ettr.high);
    axes.least = std::min(axes.least, each.curve.at_chosen().ettr.low);
  }
  for (const sim::IntervalPoint& point : result.asked().curve.points) {
    axes.least = std::min(axes.least, std::max(point.ettr.low, axes.most - 0.25));
  }
  for (const PlanCase& each : result.cases) {
    for (const sim::IntervalPoint& point : each.curve.points) {
      if (point.ettr.high < axes.least) continue;
      const double at = std::log10(static_cast<double>(point.interval) / 1e9);
      axes.from = std::min(axes.from, at);
      axes.to = std::max(axes.to, at);
    }
  }
  if (axes.to - axes.from < 0.1) axes.from -= 0.2, axes.to += 0.2;
  for (const double tick : {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1}) {
    axes.tick = tick;
    if ((axes.most - axes.least) / tick <= 8) break;
  }
  axes.least = std::floor(axes.least / axes.tick) * axes.tick;
  axes.most = std::min(1.0, std::ceil(axes.most / axes.tick) * axes.tick);
  if (axes.most <= axes.least) axes.least = axes.most - axes.tick;
  return axes;
}

std::string grid_of(const CurveAxes& axes) {
  std::string out;
  const auto first = std::llround(axes.least / axes.tick), last = std::llround(axes.most / axes.tick);
  for (auto i = first; i <= last; ++i) {
    const double value = static_cast<double>(i) * axes.tick, at = axes.y(value);
    out += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kPageLeft,
                       at, kPageWidth - kPageRight, at);
    out += text_tag(kPageLeft - 8, at + 4, "end", "dim",
                    fmt::format("{:.{}f} %", 100 * value, axes.tick < 0.01 ? 1 : 0));
  }
  double last_at = -1e9;
  for (const int64_t seconds :
       {1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10'800, 36'000, 86'400, 259'200, 604'800}) {
    const TimeNs time = seconds * sim::kSecond;
    const double at = axes.x(time);
    if (at < kPageLeft - 1 || at > kPageWidth - kPageRight + 1 || at - last_at < 52) continue;
    last_at = at;
    out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", at,
                       kPageHeight - kPageBottom, kPageHeight - kPageBottom + 5);
    out += text_tag(at, kPageHeight - kPageBottom + 20, "middle", "dim", duration_text(time));
  }
  out += fmt::format("<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\"/>\n", kPageLeft,
                     kPageHeight - kPageBottom, kPageWidth - kPageRight);
  return out + text_tag((kPageLeft + kPageWidth - kPageRight) / 2, kPageHeight - 10, "middle", "dim",
                        "training between two saves");
}

std::string band_of(const sim::IntervalCurve& curve, const CurveAxes& axes) {
  std::string path;
  for (const sim::IntervalPoint& point : curve.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", axes.x(point.interval),
                        axes.y(point.ettr.high));
  }
  for (auto point = curve.points.rbegin(); point != curve.points.rend(); ++point) {
    path += fmt::format(" L{:.1f} {:.1f}", axes.x(point->interval), axes.y(point->ettr.low));
  }
  return fmt::format("<path class=\"p0\" fill-opacity=\".18\" d=\"{} Z\"/>\n", path);
}

std::string path_of(const sim::IntervalCurve& curve, const CurveAxes& axes, size_t number) {
  std::string path;
  for (const sim::IntervalPoint& point : curve.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", axes.x(point.interval),
                        axes.y(point.ettr.median));
  }
  return fmt::format("<path class=\"c{}\" fill=\"none\" stroke-width=\"{}\" d=\"{}\"/>\n",
                     number % kLineColours, number == 0 ? "2.6" : "1.6", path);
}

std::string case_name(const PlanResult& result, const PlanCase& each) {
  const bool one_profile = std::all_of(result.cases.begin(), result.cases.end(),
                                       [&](const PlanCase& other) { return other.profile == each.profile; });
  return one_profile ? each.name : each.name + ", " + each.profile;
}

// Names at the right ends of the lines, moved apart.
std::string names_of(const PlanResult& result, const CurveAxes& axes) {
  struct Name {
    double at;
    size_t number;
  };
  std::vector<Name> names;
  for (size_t i = 0; i < result.cases.size(); ++i) {
    if (result.cases[i].has_run())
      names.push_back({axes.y(result.cases[i].curve.points.back().ettr.median), i});
  }
  std::stable_sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.at < b.at; });
  double lowest = kPageHeight - kPageBottom;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->at = std::min(name->at, lowest);
    lowest = name->at - kNameGap;
  }
  double highest = kPageTop;
  std::string out;
  for (Name& name : names) {
    name.at = std::max(name.at, highest);
    highest = name.at + kNameGap;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:var(--c{})\">{}</text>\n",
                       kPageWidth - kPageRight + 8, name.at + 4, name.number % kLineColours,
                       sim::escaped_markup(case_name(result, result.cases[name.number])));
  }
  return out;
}

std::string curves_svg(const PlanResult& result) {
  const CurveAxes axes = axes_of(result);
  const sim::IntervalCurve& asked = result.asked().curve;
  std::string out =
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"ETTR against the interval\">\n",
                  kPageWidth, kPageHeight);
  out += fmt::format(
      "<defs><clipPath id=\"area\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath></defs>\n",
      kPageLeft, kPageTop - 3, kPageWidth - kPageLeft - kPageRight, kPageHeight - kPageTop - kPageBottom + 3);
  out += grid_of(axes) + "<g clip-path=\"url(#area)\">\n" + band_of(asked, axes);
  for (size_t i = result.cases.size(); i-- > 0;) {
    if (result.cases[i].has_run()) out += path_of(result.cases[i].curve, axes, i);
  }
  out += "</g>\n";
  const sim::IntervalPoint& chosen = asked.at_chosen();
  const double x = axes.x(chosen.interval), y = axes.y(chosen.ettr.median);
  out += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", x, y,
                     kPageHeight - kPageBottom);
  out += fmt::format("<circle class=\"dot\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>\n", x, y);
  out += text_tag(x + 8, kPageHeight - kPageBottom - 8, "start", "",
                  "chosen: " + duration_text(chosen.interval));
  return out + names_of(result, axes) + "</svg>\n";
}

double share_of(TimeNs part, const sim::LifeParts& parts) {
  return parts.sum() == 0 ? 0 : static_cast<double>(part) / static_cast<double>(parts.sum());
}

// The losses alone: beside the training that counts they would be too narrow to see.
std::string bar_svg(const sim::LifeParts& parts) {
  constexpr double kBarHeight = 34, kAll = kPageWidth;
  double lost = 0;
  for (const NamedPart& each : life_parts()) lost += each.is_lost ? share_of(parts.*each.part, parts) : 0;
  if (lost <= 0) return "<p>Nothing is lost.</p>\n";
  std::string out;
  double x = 0, y = kBarHeight + 22;
  size_t number = 0, names = 0;
  for (const NamedPart& each : life_parts()) {
    const size_t colour = number++ % kLineColours;
    const double share = share_of(parts.*each.part, parts);
    if (!each.is_lost || share <= 0) continue;
    const double width = share / lost * kAll;
    if (width >= kLeastShown * kAll) {
      out += fmt::format(
          "<rect class=\"p{}\" x=\"{:.1f}\" y=\"0\" width=\"{:.1f}\" height=\"{}\"><title>{} {}"
          "</title></rect>\n",
          colour, x, width, kBarHeight, each.name, percent_text(share));
    }
    x += width;
    const double name_x = names % 3 == 0 ? 0.0 : kAll / 3 * static_cast<double>(names % 3);
    out += fmt::format("<rect class=\"p{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\"/>\n", colour,
                       name_x, y - 10);
    out += text_tag(name_x + 17, y, "start", "", fmt::format("{}: {}", each.name, percent_text(share)));
    if (++names % 3 == 0) y += 24;
  }
  const double height = y + (names % 3 == 0 ? -14 : 10);
  return fmt::format("<svg viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"where lost time goes\">\n",
                     kAll, height) +
         out + "</svg>\n";
}

std::string head_row(const std::vector<std::string>& cells, size_t texts) {
  std::string out = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    out += fmt::format("<th{}>{}</th>", i < texts ? " class=\"text\"" : "", sim::escaped_markup(cells[i]));
  }
  return out + "</tr>\n";
}
std::string table_row(const std::vector<std::string>& cells, size_t texts, bool is_chosen = false) {
  std::string out = is_chosen ? "<tr class=\"chosen\">" : "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    out += fmt::format("<td{}>{}</td>", i < texts ? " class=\"text\"" : "", sim::escaped_markup(cells[i]));
  }
  return out + "</tr>\n";
}

std::string intervals_html(const PlanResult& result) {
  const sim::IntervalCurve& curve = result.asked().curve;
  std::string out =
      "<div class=\"wide\"><table>\n" +
      head_row({"interval", "steps", "ETTR", "10 %", "90 %", "goodput", "stalls", "lost steps"}, 0);
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const sim::IntervalPoint& point = curve.points[i];
    out += table_row(
        {duration_text(point.interval), fmt::to_string(point.interval / result.plan.step),
         percent_text(point.ettr.median), percent_text(point.ettr.low), percent_text(point.ettr.high),
         percent_text(point.goodput.median), percent_text(share_of(point.parts.stall, point.parts)),
         percent_text(share_of(point.parts.lost_steps, point.parts))},
        0, i == curve.chosen);
  }
  return out + "</table></div>\n";
}

std::string parts_html(const PlanResult& result) {
  const sim::LifeParts& parts = result.asked().curve.at_chosen().parts;
  std::string out = "<div class=\"wide\"><table>\n" +
                    head_row({"part (mean of the seeds)", "share", "hours", "GPU-hours"}, 1);
  for (const NamedPart& each : life_parts()) {
    const double hours = static_cast<double>(parts.*each.part) / static_cast<double>(sim::kHour);
    out += table_row({each.name, percent_text(share_of(parts.*each.part, parts)),
                      fmt::format("{:.1f}", hours), grouped_text(hours * result.ranks)},
                     1);
  }
  return out + "</table></div>\n";
}

std::string cases_html(const PlanResult& result) {
  std::string out =
      "<div class=\"wide\"><table>\n" +
      head_row({"profile", "saver", "interval", "ETTR", "10 %", "90 %", "stalls", "lost steps"}, 2);
  for (const PlanCase& each : result.cases) {
    if (!each.has_run()) {
      out += table_row({each.profile, each.name + ": not measured", "-", "-", "-", "-", "-", "-"}, 2);
      continue;
    }
    const sim::IntervalPoint& point = each.curve.at_chosen();
    out += table_row({each.profile, each.name, duration_text(point.interval), percent_text(point.ettr.median),
                      percent_text(point.ettr.low), percent_text(point.ettr.high),
                      percent_text(share_of(point.parts.stall, point.parts)),
                      percent_text(share_of(point.parts.lost_steps, point.parts))},
                     2, &each == &result.cases.front());
  }
  return out + "</table></div>\n";
}

std::string sensitivity_html(const PlanResult& result) {
  if (result.sensitivity.empty()) return "";
  std::string out =
      "<h2>How much each number moves the goodput, in percentage points</h2>\n<div class=\"wide\"><table>\n" +
      head_row({"number", "halved", "doubled", "interval if halved", "if doubled"}, 1);
  for (const sim::PlanSensitivity& each : result.sensitivity) {
    auto change = [&](const sim::ChangedPlan& run) {
      return run.has_run ? fmt::format("{:+.2f}", 100 * (run.at_interval - result.unchanged_goodput)) : "-";
    };
    auto chosen = [](const sim::ChangedPlan& run) { return run.has_run ? duration_text(run.chosen) : "-"; };
    out += table_row({std::string(each.key), change(each.halved), change(each.doubled), chosen(each.halved),
                      chosen(each.doubled)},
                     1);
  }
  return out + "</table></div>\n";
}

std::string numbers_html(const PlanResult& result) {
  std::string out = "<h2>Numbers and their sources</h2>\n<div class=\"wide\"><table>\n" +
                    head_row({"number", "value", "kind", "source"}, 4);
  for (const PlanNumber& each : result.numbers) {
    out += fmt::format(
        "<tr><td class=\"text\">{}</td><td>{}</td><td class=\"text\">{}</td><td class=\"long\">{}</td>"
        "</tr>\n",
        sim::escaped_markup(each.key), sim::escaped_markup(each.value), sim::escaped_markup(each.kind),
        sim::escaped_markup(each.source));
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string plan_page(const PlanResult& result) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>shoal plan: {0}</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light "
      "dark\">\n"
      "<style>\n{1}{2}</style></head><body>\n<h1>How often to save: {0} on {3} ranks</h1>\n"
      "<p class=\"lead\">{4}</p>\n<p class=\"dim\">{5}</p>\n",
      sim::escaped_markup(result.asked().measured->job.model), kPageStyle, line_style(), result.ranks,
      sim::escaped_markup(takeaway_text(result)), sim::escaped_markup(job_text(result)));
  out += "<h2>Effective training time against the interval</h2>\n" + curves_svg(result);
  out += fmt::format(
      "<p class=\"dim\">Lines are medians over {} seeds; the band holds 8 of 10 seeds of the chosen "
      "case. All cases meet the same failures.</p>\n",
      result.seeds);
  out += "<h2>Where lost time goes</h2>\n" + bar_svg(result.asked().curve.at_chosen().parts) +
         parts_html(result);
  if (result.cases.size() > 1) out += "<h2>Ways to save, beside each other</h2>\n" + cases_html(result);
  out += "<h2>Intervals</h2>\n" + intervals_html(result) + sensitivity_html(result) + numbers_html(result);
  return out + "</body></html>\n";
}

}  // namespace shoal::cli
