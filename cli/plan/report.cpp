#include "cli/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/table.h"
#include "shoal/bytes.h"

namespace shoal::cli {

namespace {

using actors::TimeNs;

double hours_of(TimeNs time) {
  return static_cast<double>(time) / static_cast<double>(sim::kHour);
}
double part_of_life(TimeNs part, const sim::LifeParts& parts) {
  return parts.sum() == 0 ? 0 : static_cast<double>(part) / static_cast<double>(parts.sum());
}
std::string points_text(double change) {  // percentage points
  return fmt::format("{:+.2f}", 100 * change);
}
std::string steps_text(TimeNs interval, TimeNs step) {
  const TimeNs steps = interval / step;
  return fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
}
TimeNs median_time(std::vector<TimeNs> times) {
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  return times[(times.size() - 1) / 2];
}
TimeNs median_stall(const PlanCase& each) {
  std::vector<TimeNs> times;
  for (const sim::SaveCost& save : each.costs.saves) times.push_back(save.stall);
  return median_time(std::move(times));
}
TimeNs median_commit(const PlanCase& each) {
  std::vector<TimeNs> times;
  for (const sim::SaveCost& save : each.costs.saves) times.push_back(save.commit);
  return median_time(std::move(times));
}

// Of all ranks, in the whole life: what was not training that counts.
double gpu_hours_lost(const PlanResult& result, const sim::IntervalPoint& point) {
  return (1 - point.goodput.median) * hours_of(result.plan.lasts) * result.ranks;
}

std::string note_of(const sim::IntervalCurve& curve, size_t i) {
  if (i == curve.chosen) return i == curve.best ? "chosen: the best" : "chosen: the longest of the flat top";
  return i == curve.best ? "the best" : "";
}

std::string intervals_table(const PlanResult& result) {
  const sim::IntervalCurve& curve = result.asked().curve;
  Table table({{"INTERVAL", Table::Align::right},
               {"STEPS", Table::Align::right},
               {"ETTR", Table::Align::right},
               {"10 %", Table::Align::right},
               {"90 %", Table::Align::right},
               {"GOODPUT", Table::Align::right},
               {"STALL", Table::Align::right},
               {"LOST STEPS", Table::Align::right},
               {"SAVES A DAY", Table::Align::right},
               {""}});
  const double days = hours_of(result.plan.lasts) / 24;
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const sim::IntervalPoint& point = curve.points[i];
    table.add_row({duration_text(point.interval), fmt::to_string(point.interval / result.plan.step),
                   percent_text(point.ettr.median), percent_text(point.ettr.low),
                   percent_text(point.ettr.high), percent_text(point.goodput.median),
                   percent_text(part_of_life(point.parts.stall, point.parts)),
                   percent_text(part_of_life(point.parts.lost_steps, point.parts)),
                   grouped_text(point.saves / days), note_of(curve, i)});
  }
  return table.to_string();
}

std::string parts_table(const PlanResult& result) {
  Table table({{"WHERE THE TIME GOES (MEAN)"},
               {"SHARE", Table::Align::right},
               {"HOURS", Table::Align::right},
               {"GPU-HOURS", Table::Align::right}});
  const sim::LifeParts& parts = result.asked().curve.at_chosen().parts;
  for (const NamedPart& each : life_parts()) {
    const TimeNs time = parts.*each.part;
    table.add_row({each.name, percent_text(part_of_life(time, parts)), fmt::format("{:.1f}", hours_of(time)),
                   grouped_text(hours_of(time) * result.ranks)});
  }
  return table.to_string();
}

std::string cases_table(const PlanResult& result) {
  Table table({{"PROFILE"},
               {"SAVER"},
               {"STALL", Table::Align::right},
               {"COMMITTED", Table::Align::right},
               {"LOAD", Table::Align::right},
               {"INTERVAL", Table::Align::right},
               {"ETTR", Table::Align::right},
               {"10 %", Table::Align::right},
               {"90 %", Table::Align::right},
               {"GPU-HOURS LOST", Table::Align::right}});
  for (const PlanCase& each : result.cases) {
    if (!each.has_run()) {
      table.add_row({each.profile, each.name, "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    const sim::IntervalPoint& point = each.curve.at_chosen();
    table.add_row({each.profile, each.name, duration_text(median_stall(each)),
                   duration_text(median_commit(each)), duration_text(median_time(each.costs.loads)),
                   duration_text(point.interval), percent_text(point.ettr.median),
                   percent_text(point.ettr.low), percent_text(point.ettr.high),
                   grouped_text(gpu_hours_lost(result, point))});
  }
  std::string out = table.to_string();
  for (const PlanCase& each : result.cases) {
    if (!each.has_run()) {
      out += fmt::format("{}, {} was not measured: {}\n", each.profile, each.name, each.failure.message());
    }
  }
  return out;
}

std::string change_cell(const PlanResult& result, const sim::ChangedPlan& run) {
  return run.has_run ? points_text(run.at_interval - result.unchanged_goodput) : "-";
}

std::string sensitivity_table(const PlanResult& result) {
  Table table({{"NUMBER"},
               {"GOODPUT POINTS x1/2", Table::Align::right},
               {"x2", Table::Align::right},
               {"INTERVAL x1/2", Table::Align::right},
               {"x2", Table::Align::right}});
  for (const sim::PlanSensitivity& each : result.sensitivity) {
    auto chosen = [](const sim::ChangedPlan& run) {
      return run.has_run ? duration_text(run.chosen) : std::string("-");
    };
    table.add_row({std::string(each.key), change_cell(result, each.halved), change_cell(result, each.doubled),
                   chosen(each.halved), chosen(each.doubled)});
  }
  return table.to_string();
}

std::string numbers_table(const PlanResult& result) {
  Table table({{"NUMBER"}, {"VALUE", Table::Align::right}, {"KIND"}, {"SOURCE"}});
  for (const PlanNumber& each : result.numbers) table.add_row({each.key, each.value, each.kind, each.source});
  return table.to_string();
}

nlohmann::ordered_json range_json(const sim::Range& range) {
  return {{"min", range.least},
          {"p10", range.low},
          {"p50", range.median},
          {"p90", range.high},
          {"max", range.greatest}};
}
nlohmann::ordered_json point_json(const sim::IntervalPoint& point) {
  nlohmann::ordered_json parts;
  for (const NamedPart& each : life_parts()) parts[each.key] = point.parts.*each.part;
  return {{"interval_ns", point.interval},
          {"ettr", range_json(point.ettr)},
          {"goodput", range_json(point.goodput)},
          {"mean_parts_ns", parts},
          {"mean_failures", point.failures},
          {"mean_restarts", point.restarts},
          {"mean_saves", point.saves},
          {"mean_unfinished_saves", point.unfinished},
          {"longest_loss_s", point.longest_loss_s}};
}
nlohmann::ordered_json measured_json(const sim::MeasuredCosts& measured) {
  nlohmann::ordered_json saves = nlohmann::ordered_json::array();
  for (const sim::MeasuredSave& save : measured.saves) {
    saves.push_back({{"plan_received_ns", save.planned},
                     {"blocked_ns", save.blocked},
                     {"written_ns", save.written},
                     {"committed_ns", save.committed}});
  }
  auto loads_json = [](const std::vector<sim::MeasuredLoad>& loads) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const sim::MeasuredLoad& load : loads) {
      all.push_back({{"found_ns", load.found}, {"loaded_ns", load.loaded}});
    }
    return all;
  };
  nlohmann::ordered_json out = {{"saves", saves},
                                {"loads", loads_json(measured.loads)},
                                {"loads_after_a_kill_in_a_save", loads_json(measured.loads_after_save)}};
  if (measured.abort) out["abort_after_a_lost_host_ns"] = *measured.abort;
  return out;
}
nlohmann::ordered_json case_json(const PlanCase& each) {
  nlohmann::ordered_json out = {{"profile", each.profile}, {"saver", each.name}};
  if (!each.has_run()) {
    out["not_measured"] = each.failure.to_string();
    return out;
  }
  out["measured"] = measured_json(*each.measured);
  nlohmann::ordered_json intervals = nlohmann::ordered_json::array();
  for (const sim::IntervalPoint& point : each.curve.points) intervals.push_back(point_json(point));
  out["best_interval_ns"] = each.curve.at_best().interval;
  out["chosen_interval_ns"] = each.curve.at_chosen().interval;
  out["intervals"] = intervals;
  return out;
}
nlohmann::ordered_json changed_json(const sim::ChangedPlan& run) {
  if (!run.has_run) return nullptr;
  return {{"goodput_at_chosen_interval", run.at_interval},
          {"chosen_interval_ns", run.chosen},
          {"goodput_at_its_own_interval", run.at_chosen}};
}

}  // namespace

std::string duration_text(TimeNs time) {
  const double seconds = static_cast<double>(time) / 1e9;
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 10) return fmt::format("{:.3g} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 120) return fmt::format("{} s", whole);
  if (whole >= 172'800 && whole % 86'400 == 0) return fmt::format("{} days", whole / 86'400);
  if (whole < 7200) {
    return whole % 60 == 0 ? fmt::format("{} min", whole / 60)
                           : fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  const auto minutes = std::llround(seconds / 60);
  return minutes % 60 == 0 ? fmt::format("{} h", minutes / 60)
                           : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string percent_text(double part) {
  return fmt::format("{:.2f} %", 100 * part);
}

std::string grouped_text(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

const std::vector<NamedPart>& life_parts() {
  static const std::vector<NamedPart> parts = {
      {"training that counts", "training", &sim::LifeParts::training, false},
      {"slower training on fewer hosts", "fewer_hosts", &sim::LifeParts::fewer_hosts, true},
      {"stalls of saves", "stall", &sim::LifeParts::stall, true},
      {"lost steps", "lost_steps", &sim::LifeParts::lost_steps, true},
      {"detection", "detection", &sim::LifeParts::detection, true},
      {"waiting for a host", "waiting", &sim::LifeParts::waiting, true},
      {"restart", "restart", &sim::LifeParts::restart, true},
      {"load", "load", &sim::LifeParts::load, true}};
  return parts;
}

std::string takeaway_text(const PlanResult& result) {
  const sim::IntervalCurve& curve = result.asked().curve;
  const sim::IntervalPoint& point = curve.at_chosen();
  const NamedPart* greatest = nullptr;
  for (const NamedPart& each : life_parts()) {
    if (each.is_lost && (greatest == nullptr || point.parts.*each.part > point.parts.*(greatest->part))) {
      greatest = &each;
    }
  }
  std::string out = fmt::format(
      "Save every {} ({}): {} of the time is training that counts ({} to {} in 8 of 10 seeds)",
      duration_text(point.interval), steps_text(point.interval, result.plan.step),
      percent_text(point.ettr.median), percent_text(point.ettr.low), percent_text(point.ettr.high));
  const TimeNs most = point.parts.*(greatest->part);
  if (most == 0) return out + ".";
  return out + fmt::format("; the greatest loss is {}, {} on average.", greatest->name,
                           percent_text(part_of_life(most, point.parts)));
}

std::string job_text(const PlanResult& result) {
  const sim::MeasuredCosts& measured = *result.asked().measured;
  const TimeNs mtti = sim::mean_time_to_interruption(result.plan.failures, result.plan.hosts);
  return fmt::format(
      "{}, {:.1f} G parameters, a checkpoint of {}, on {} ranks of {} hosts ({}), {}; profile {}; {} of "
      "training, {} "
      "seeds; {}",
      measured.job.model, static_cast<double>(measured.parameters) / 1e9, human_bytes(measured.bytes),
      result.ranks, result.plan.hosts, sim::to_string(measured.mesh), result.asked().name,
      result.asked().profile, fmt::format("{:.3g} days", hours_of(result.plan.lasts) / 24), result.seeds,
      mtti > sim::kMaxLife ? "nothing fails" : fmt::format("a failure every {}", duration_text(mtti)));
}

std::string plan_text(const PlanResult& result) {
  const sim::IntervalPoint& point = result.asked().curve.at_chosen();
  std::string out = fmt::format("{}\n\n{}\n\n{}\n{}\n", takeaway_text(result), job_text(result),
                                intervals_table(result), parts_table(result));
  out += fmt::format(
      "{:.1f} failures, {:.1f} restarts and {:.0f} saves ({:.1f} of them not committed) on average; "
      "the longest training that one failure lost is {}\n",
      point.failures, point.restarts, point.saves, point.unfinished,
      duration_text(std::llround(point.longest_loss_s * 1e9)));
  if (result.asked().measured->abort) {
    out += fmt::format("a host that dies in a save: all ranks know of the abort after {}\n",
                       duration_text(*result.asked().measured->abort));
  }
  if (result.cases.size() > 1) out += "\n" + cases_table(result);
  if (!result.sensitivity.empty()) out += "\n" + sensitivity_table(result);
  return out + "\n" + numbers_table(result);
}

nlohmann::ordered_json plan_json(const PlanResult& result) {
  nlohmann::ordered_json numbers = nlohmann::ordered_json::array();
  for (const PlanNumber& each : result.numbers) {
    numbers.push_back(
        {{"number", each.key}, {"value", each.value}, {"kind", each.kind}, {"source", each.source}});
  }
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const PlanCase& each : result.cases) cases.push_back(case_json(each));
  nlohmann::ordered_json sensitivity = nlohmann::ordered_json::array();
  for (const sim::PlanSensitivity& each : result.sensitivity) {
    sensitivity.push_back({{"number", each.key},
                           {"halved", changed_json(each.halved)},
                           {"doubled", changed_json(each.doubled)}});
  }
  const sim::MeasuredCosts& measured = *result.asked().measured;
  return {{"takeaway", takeaway_text(result)},
          {"job",
           {{"model", measured.job.model},
            {"parameters", measured.parameters},
            {"checkpoint_bytes", measured.bytes},
            {"ranks", result.ranks},
            {"hosts", result.plan.hosts},
            {"mesh", sim::to_string(measured.mesh)},
            {"lasts_ns", result.plan.lasts},
            {"step_ns", result.plan.step},
            {"seeds", result.seeds}}},
          {"numbers", numbers},
          {"cases", cases},
          {"sensitivity", sensitivity}};
}

std::string plan_csv(const PlanResult& result) {
  std::string out = "profile,saver,interval_s,chosen,ettr_p10,ettr_p50,ettr_p90,goodput_p50";
  for (const NamedPart& each : life_parts()) out += fmt::format(",{}_h", each.key);
  out += ",failures,restarts,saves\n";
  for (const PlanCase& each : result.cases) {
    for (size_t i = 0; i < each.curve.points.size(); ++i) {
      const sim::IntervalPoint& point = each.curve.points[i];
      out += fmt::format("{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f}", each.profile, each.name,
                         static_cast<double>(point.interval) / 1e9, i == each.curve.chosen ? 1 : 0,
                         point.ettr.low, point.ettr.median, point.ettr.high, point.goodput.median);
      for (const NamedPart& part : life_parts()) {
        out += fmt::format(",{:.4f}", hours_of(point.parts.*part.part));
      }
      out += fmt::format(",{:.2f},{:.2f},{:.1f}\n", point.failures, point.restarts, point.saves);
    }
  }
  return out;
}

}  // namespace shoal::cli
