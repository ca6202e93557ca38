#include "cli/sim_chart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace shoal {

namespace {

struct NamedField {
  const char* key;
  bool is_number;  // which says nothing without the key
  std::string (*text)(const SimulationReport& report);
};
// What a line may be of, in the order of its name.
const NamedField kFields[] = {
    {"mode", false,
     [](const SimulationReport& report) { return std::string(mode_name(report.scenario.mode)); }},
    {"model", false, [](const SimulationReport& report) { return report.scenario.model; }},
    {"profile", false, [](const SimulationReport& report) { return report.scenario.profile; }},
    {"ranks a host", true,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.ranks_per_host); }},
    {"skew ms", true,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.arrival_skew_ms); }},
    {"seed", true, [](const SimulationReport& report) { return fmt::to_string(report.scenario.seed); }},
};

}  // namespace

std::vector<Chart> charts_of(const std::vector<SimulationReport>& reports) {
  std::vector<const NamedField*> differing, common;
  for (const NamedField& field : kFields) {
    std::set<std::string> values;
    for (const SimulationReport& report : reports) values.insert(field.text(report));
    (values.size() > 1 ? differing : common).push_back(&field);
  }
  auto name_of = [](const std::vector<const NamedField*>& fields, const SimulationReport& report,
                    bool with_keys) {
    std::vector<std::string> parts;
    for (const NamedField* field : fields) {
      parts.push_back(with_keys || field->is_number ? fmt::format("{} {}", field->key, field->text(report))
                                                    : field->text(report));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  };
  const std::string subtitle = reports.empty() ? "" : name_of(common, reports.front(), true);
  auto chart_of = [&](std::string title, std::string y_label, Chart::Unit unit, auto value) {
    Chart chart{std::move(title), subtitle, "ranks", std::move(y_label), unit, {}};
    for (const SimulationReport& report : reports) {
      if (report.saves.empty() || report.saves.back().aborted_ranks != 0) continue;
      std::string name = name_of(differing, report, false);
      if (name.empty()) name = mode_name(report.scenario.mode);
      auto line = std::find_if(chart.lines.begin(), chart.lines.end(),
                               [&](const ChartLine& each) { return each.name == name; });
      if (line == chart.lines.end()) line = chart.lines.insert(chart.lines.end(), ChartLine{name, {}});
      line->points.push_back({static_cast<double>(report.scenario.ranks), value(report.saves.back())});
    }
    for (ChartLine& line : chart.lines) {
      std::sort(line.points.begin(), line.points.end(),
                [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
    }
    return chart;
  };
  auto seconds = [](TimeNs time) { return static_cast<double>(time) / 1e9; };
  return {
      chart_of("Until every rank is told of the commit", "the slowest rank", Chart::Unit::seconds,
               [&](const SaveReport& save) { return seconds(save.committed.greatest); }),
      chart_of("Until save returns on every rank", "the slowest rank", Chart::Unit::seconds,
               [&](const SaveReport& save) { return seconds(save.blocked.greatest); }),
      chart_of("Messages of the coordinator, in and out", "messages", Chart::Unit::count,
               [](const SaveReport& save) {
                 return static_cast<double>(save.costs.hub.messages_in + save.costs.hub.messages_out);
               }),
      chart_of("Bytes of the coordinator, in and out", "bytes", Chart::Unit::bytes,
               [](const SaveReport& save) {
                 return static_cast<double>(save.costs.hub.bytes_in + save.costs.hub.bytes_out);
               }),
  };
}

Status check_plot(const std::string& file, const std::vector<Scenario>& scenarios) {
  if (!file.ends_with(".svg") && !file.ends_with(".html")) {
    return Status(Code::invalid_argument, fmt::format("--plot {}: a name that ends in .svg or .html", file));
  }
  std::set<uint32_t> ranks;
  for (const Scenario& scenario : scenarios) ranks.insert(scenario.ranks);
  if (ranks.size() > 1) return ok_status();
  return Status(Code::invalid_argument, "--plot draws cost against ranks: --sweep ranks=A,B,... is needed");
}

Status write_plot(const std::string& file, const std::vector<SimulationReport>& reports) {
  const std::vector<Chart> charts = charts_of(reports);
  std::ofstream out(file, std::ios::trunc);
  out << (file.ends_with(".svg") ? to_svg(charts.front()) : to_html("What coordination costs", charts));
  out.close();
  return out ? ok_status() : Status(Code::io, file + ": it cannot be written");
}

}  // namespace shoal
