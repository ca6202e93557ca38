#include "cli/sim/chart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/text_file.h"

namespace shoal {

namespace {

struct NamedField {
  const char* key;
  bool is_number;  // which says nothing without the key
  bool is_minor;   // and is not worth a subtitle
  std::string (*text)(const SimulationReport& report);
};
// What a line may be of, in the order of its name.
const NamedField kFields[] = {
    {"mode", false, false,
     [](const SimulationReport& report) { return std::string(mode_name(report.scenario.mode)); }},
    {"model", false, false, [](const SimulationReport& report) { return report.scenario.model; }},
    {"profile", false, false, [](const SimulationReport& report) { return report.scenario.profile; }},
    {"mesh", false, true, [](const SimulationReport& report) { return report.scenario.mesh; }},
    {"saves", true, true,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.saves); }},
    {"interval ms", true, true,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.interval_ms); }},
    {"ranks a host", true, false,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.ranks_per_host); }},
    {"skew ms", true, false,
     [](const SimulationReport& report) { return arrival_skew_text(report.scenario); }},
    {"seed", true, false,
     [](const SimulationReport& report) { return fmt::to_string(report.scenario.seed); }},
};

// Names simulations by what they differ in.
class Naming {
 public:
  explicit Naming(const std::vector<SimulationReport>& reports) {
    for (const NamedField& field : kFields) {
      std::set<std::string> values;
      for (const SimulationReport& report : reports) values.insert(field.text(report));
      if (values.size() > 1) {
        differing_.push_back(&field);
      } else if (!field.is_minor) {
        common_.push_back(&field);
      }
    }
  }
  std::string of(const SimulationReport& report) const {
    const std::string name = join(differing_, report, false);
    return name.empty() ? std::string(mode_name(report.scenario.mode)) : name;
  }
  std::string common(const std::vector<SimulationReport>& reports) const {
    return reports.empty() ? "" : join(common_, reports.front(), true);
  }

 private:
  static std::string join(const std::vector<const NamedField*>& fields, const SimulationReport& report,
                          bool with_keys) {
    std::vector<std::string> parts;
    for (const NamedField* field : fields) {
      parts.push_back(with_keys || field->is_number ? fmt::format("{} {}", field->key, field->text(report))
                                                    : field->text(report));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }
  std::vector<const NamedField*> differing_, common_;
};

}  // namespace

std::vector<Chart> charts_of(const std::vector<SimulationReport>& reports) {
  const Naming naming(reports);
  const std::string subtitle = naming.common(reports);
  auto chart_of = [&](std::string title, std::string y_label, Chart::Unit unit, auto value) {
    Chart chart{std::move(title), subtitle, "ranks", std::move(y_label), unit, {}};
    for (const SimulationReport& report : reports) {
      if (report.saves.empty() || !report.saves.back().is_committed()) continue;
      const std::string name = naming.of(report);
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

// The last save of each of the largest jobs, on the clock of its beginning.
std::vector<Chart> charts_over_time(const std::vector<SimulationReport>& reports) {
  uint32_t most = 0;
  for (const SimulationReport& report : reports) most = std::max(most, report.scenario.ranks);
  std::vector<const SimulationReport*> largest;
  for (const SimulationReport& report : reports) {
    if (report.scenario.ranks == most && !report.saves.empty()) largest.push_back(&report);
  }
  TimeNs longest = 0;  // from a save's begin to the last sample of it
  for (const SimulationReport* report : largest) {
    if (report->hub_over_time.empty()) continue;
    longest = std::max(longest, report->hub_over_time.back().end - report->saves.back().began);
  }
  const Naming naming(reports);
  // Between samples nothing waits, and what is held stays.
  auto chart_of = [&](std::string title, Chart::Unit unit, bool falls_to_zero, auto value) {
    Chart chart{std::move(title),
                fmt::format("{} ranks, {}", most, naming.common(reports)),
                "since the last save began",
                "",
                unit,
                {},
                true};
    for (const SimulationReport* report : largest) {
      ChartLine line{naming.of(*report), {}};
      double last = 0;
      auto add = [&](TimeNs at, double y) { line.points.push_back({static_cast<double>(at) / 1e9, y}); };
      auto pass_to = [&](TimeNs at) {
        if (falls_to_zero) last = 0;
        const TimeNs from = line.points.empty() ? 0 : static_cast<TimeNs>(line.points.back().x * 1e9);
        add(from, last);
        add(at, last);
      };
      const TimeNs began = report->saves.back().began;
      TimeNs until = 0;
      for (const HubSample& sample : report->hub_over_time) {
        if (sample.end <= began) {
          last = static_cast<double>(value(sample.most));
          continue;
        }
        const TimeNs begin = std::max<TimeNs>(0, sample.begin - began);
        if (begin > until) pass_to(begin);
        last = static_cast<double>(value(sample.most));
        until = sample.end - began;
        add(begin, last);
        add(until, last);
      }
      if (until < longest) pass_to(longest);
      chart.lines.push_back(std::move(line));
    }
    return chart;
  };
  return {chart_of("Events that wait for the coordinator's processor", Chart::Unit::count, true,
                   [](const HubState& state) { return state.queue; }),
          chart_of("What the coordinator remembers, with messages that wait", Chart::Unit::bytes, false,
                   [](const HubState& state) { return state.memory_bytes; }),
          chart_of("File descriptors of the coordinator's node", Chart::Unit::count, false,
                   [](const HubState& state) { return state.descriptors; })};
}

Status check_plot(const std::string& file, const std::vector<Scenario>& scenarios) {
  if (!file.ends_with(".svg") && !file.ends_with(".html")) {
    return Status(Code::invalid_argument, fmt::format("--plot {}: a name that ends in .svg or .html", file));
  }
  std::set<uint32_t> ranks;
  for (const Scenario& scenario : scenarios) ranks.insert(scenario.ranks);
  if (ranks.size() > 1) return check_writable(file);
  return Status(Code::invalid_argument, "--plot draws cost against ranks: --sweep ranks=A,B,... is needed");
}

Status write_plot(const std::string& file, const std::vector<SimulationReport>& reports) {
  std::vector<Chart> charts = charts_of(reports);
  if (file.ends_with(".svg")) return write_text(file, to_svg(charts.front()));
  for (Chart& chart : charts_over_time(reports)) charts.push_back(std::move(chart));
  return write_text(file, to_html("What coordination costs", charts));
}

}  // namespace shoal
