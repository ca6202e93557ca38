#include "cli/sim/chart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/text_file.h"

namespace shoal::cli {

namespace {

struct NamedField {
  const char* key;
  bool is_number;  // its value is meaningless without the key
  bool is_minor;   // left out of subtitles
  std::string (*text)(const sim::SimulationReport& report);
};
// The fields by which lines may differ, in the order of their names in the label.
const NamedField kFields[] = {
    {"mode", false, false,
     [](const sim::SimulationReport& report) { return std::string(mode_name(report.scenario.mode)); }},
    {"model", false, false, [](const sim::SimulationReport& report) { return report.scenario.model; }},
    {"profile", false, false,
     [](const sim::SimulationReport& report) { return sim::profile_label(report.scenario); }},
    {"mesh", false, true, [](const sim::SimulationReport& report) { return report.scenario.mesh; }},
    {"saves", true, true,
     [](const sim::SimulationReport& report) { return fmt::to_string(report.scenario.saves); }},
    {"interval ms", true, true,
     [](const sim::SimulationReport& report) { return fmt::to_string(report.scenario.interval_ms); }},
    {"ranks a host", true, false,
     [](const sim::SimulationReport& report) { return fmt::to_string(report.scenario.ranks_per_host); }},
    {"skew ms", true, false,
     [](const sim::SimulationReport& report) { return sim::arrival_skew_text(report.scenario); }},
    {"seed", true, false,
     [](const sim::SimulationReport& report) { return fmt::to_string(report.scenario.seed); }},
};

// Names simulations by the fields in which they differ.
class Naming {
 public:
  explicit Naming(const std::vector<sim::SimulationReport>& reports) {
    for (const NamedField& field : kFields) {
      std::set<std::string> values;
      for (const sim::SimulationReport& report : reports) values.insert(field.text(report));
      if (values.size() > 1) {
        differing_.push_back(&field);
      } else if (!field.is_minor) {
        common_.push_back(&field);
      }
    }
  }
  std::string of(const sim::SimulationReport& report) const {
    const std::string name = join(differing_, report, false);
    return name.empty() ? std::string(mode_name(report.scenario.mode)) : name;
  }
  std::string common(const std::vector<sim::SimulationReport>& reports) const {
    return reports.empty() ? "" : join(common_, reports.front(), true);
  }

 private:
  static std::string join(const std::vector<const NamedField*>& fields, const sim::SimulationReport& report,
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

std::vector<sim::Chart> charts_of(const std::vector<sim::SimulationReport>& reports) {
  const Naming naming(reports);
  const std::string subtitle = naming.common(reports);
  auto chart_of = [&](std::string title, std::string y_label, sim::Chart::Unit unit, auto value) {
    sim::Chart chart{std::move(title), subtitle, "ranks", std::move(y_label), unit, {}};
    for (const sim::SimulationReport& report : reports) {
      if (report.saves.empty() || !report.saves.back().is_committed()) continue;
      const std::string name = naming.of(report);
      auto line = std::find_if(chart.lines.begin(), chart.lines.end(),
                               [&](const sim::ChartLine& each) { return each.name == name; });
      if (line == chart.lines.end()) line = chart.lines.insert(chart.lines.end(), sim::ChartLine{name, {}});
      line->points.push_back({static_cast<double>(report.scenario.ranks), value(report.saves.back())});
    }
    for (sim::ChartLine& line : chart.lines) {
      std::sort(line.points.begin(), line.points.end(),
                [](const sim::ChartPoint& a, const sim::ChartPoint& b) { return a.x < b.x; });
    }
    return chart;
  };
  auto seconds = [](actors::TimeNs time) { return static_cast<double>(time) / 1e9; };
  return {
      chart_of("Time until every rank is notified of the commit", "the slowest rank",
               sim::Chart::Unit::seconds,
               [&](const sim::SaveReport& save) { return seconds(save.committed.greatest); }),
      chart_of("Time until save returns on every rank", "the slowest rank", sim::Chart::Unit::seconds,
               [&](const sim::SaveReport& save) { return seconds(save.blocked.greatest); }),
      chart_of("Messages that the coordinator receives and sends", "messages", sim::Chart::Unit::count,
               [](const sim::SaveReport& save) {
                 return static_cast<double>(save.costs.coordinator.messages_in +
                                            save.costs.coordinator.messages_out);
               }),
      chart_of("Bytes that the coordinator receives and sends", "bytes", sim::Chart::Unit::bytes,
               [](const sim::SaveReport& save) {
                 return static_cast<double>(save.costs.coordinator.bytes_in +
                                            save.costs.coordinator.bytes_out);
               }),
  };
}

// Charts the last save of each of the largest jobs; time 0 is its beginning.
std::vector<sim::Chart> charts_over_time(const std::vector<sim::SimulationReport>& reports) {
  uint32_t most = 0;
  for (const sim::SimulationReport& report : reports) most = std::max(most, report.scenario.ranks);
  std::vector<const sim::SimulationReport*> largest;
  for (const sim::SimulationReport& report : reports) {
    if (report.scenario.ranks == most && !report.saves.empty()) largest.push_back(&report);
  }
  actors::TimeNs longest = 0;  // from the beginning of a save to its last sample
  for (const sim::SimulationReport* report : largest) {
    if (report->coordinator_over_time.empty()) continue;
    longest = std::max(longest, report->coordinator_over_time.back().end - report->saves.back().began);
  }
  const Naming naming(reports);
  // Between samples the queue is empty, and the other values stay the same.
  auto chart_of = [&](std::string title, sim::Chart::Unit unit, bool falls_to_zero, auto value) {
    sim::Chart chart{std::move(title),
                     fmt::format("{} ranks, {}", most, naming.common(reports)),
                     "since the last save began",
                     "",
                     unit,
                     {},
                     true};
    for (const sim::SimulationReport* report : largest) {
      sim::ChartLine line{naming.of(*report), {}};
      double last = 0;
      auto add = [&](actors::TimeNs at, double y) {
        line.points.push_back({static_cast<double>(at) / 1e9, y});
      };
      auto pass_to = [&](actors::TimeNs at) {
        if (falls_to_zero) last = 0;
        const actors::TimeNs from =
            line.points.empty() ? 0 : static_cast<actors::TimeNs>(line.points.back().x * 1e9);
        add(from, last);
        add(at, last);
      };
      const actors::TimeNs began = report->saves.back().began;
      actors::TimeNs until = 0;
      for (const sim::CoordinatorSample& sample : report->coordinator_over_time) {
        if (sample.end <= began) {
          last = static_cast<double>(value(sample.most));
          continue;
        }
        const actors::TimeNs begin = std::max<actors::TimeNs>(0, sample.begin - began);
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
  return {chart_of("Events that wait for the coordinator's processor", sim::Chart::Unit::count, true,
                   [](const sim::CoordinatorLoad& state) { return state.queue; }),
          chart_of("Memory of the coordinator, including waiting messages", sim::Chart::Unit::bytes, false,
                   [](const sim::CoordinatorLoad& state) { return state.memory_bytes; }),
          chart_of("File descriptors of the coordinator's node", sim::Chart::Unit::count, false,
                   [](const sim::CoordinatorLoad& state) { return state.descriptors; })};
}

Status check_plot(const std::string& file, const std::vector<sim::Scenario>& scenarios) {
  if (!file.ends_with(".svg") && !file.ends_with(".html")) {
    return Status(Code::invalid_argument, fmt::format("--plot {}: the name must end in .svg or .html", file));
  }
  std::set<uint32_t> ranks;
  for (const sim::Scenario& scenario : scenarios) ranks.insert(scenario.ranks);
  if (ranks.size() > 1) return check_writable(file);
  return Status(Code::invalid_argument, "--plot draws cost against ranks: add --sweep ranks=A,B,...");
}

Status write_plot(const std::string& file, const std::vector<sim::SimulationReport>& reports) {
  std::vector<sim::Chart> charts = charts_of(reports);
  if (file.ends_with(".svg")) return write_text(file, sim::to_svg(charts.front()));
  for (sim::Chart& chart : charts_over_time(reports)) charts.push_back(std::move(chart));
  return write_text(file, sim::to_html("What coordination costs", charts));
}

}  // namespace shoal::cli
