#include "sim/lifetime/failure_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/basics/integer_math.h"
#include "sim/basics/random.h"
#include "sim/campaign/csv.h"

namespace shoal::sim {

namespace {

constexpr double kLeastShape = 0.3, kMostShape = 10;

// The kinds of failures have streams of their own, so that one more kind moves no draw of the others.
Random random_of(uint64_t seed, uint64_t kind) {
  return Random(mix64(stream_seed(seed, Stream::life_failures) + kind));
}

// The scale of a Weibull distribution with this mean, to the microsecond: what floating point may differ in
// between machines is less.
uint64_t weibull_scale(actors::TimeNs mean, uint32_t shape_permille) {
  const double scale = static_cast<double>(mean) / std::tgamma(1 + 1000.0 / shape_permille);
  return static_cast<uint64_t>(std::llround(scale / 1000)) * 1000;
}

class Gaps {
 public:
  Gaps(const GapShape& shape, actors::TimeNs mean, Random random)
      : shape_(shape), mean_(static_cast<uint64_t>(mean)), random_(random) {
    if (shape.kind == GapShape::Kind::weibull) scale_ = weibull_scale(mean, shape.shape_permille);
    if (shape.kind == GapShape::Kind::recorded) next_ = random_.below(shape.gaps.size());
  }
  actors::TimeNs next() {
    switch (shape_.kind) {
      case GapShape::Kind::poisson:
        return static_cast<actors::TimeNs>(random_.exponential(mean_));
      case GapShape::Kind::weibull:
        return static_cast<actors::TimeNs>(random_.weibull(scale_, shape_.shape_permille));
      case GapShape::Kind::recorded:
        break;
    }
    const actors::TimeNs gap = shape_.gaps[next_++];
    if (next_ == shape_.gaps.size()) next_ = 0;
    return gap;
  }

 private:
  const GapShape& shape_;
  const uint64_t mean_;
  uint64_t scale_ = 0;
  size_t next_ = 0;
  Random random_;
};

Status too_many_failures() {
  return Status(Code::too_large, fmt::format("more than {} failures: raise the mean time between failures",
                                             kMaxFailuresOfALife));
}

// Adds failures of one kind.
Status add_failures(FailureTime::Kind kind, Gaps gaps, actors::TimeNs until,
                    std::vector<FailureTime>* failures) {
  for (actors::TimeNs at = 0;;) {
    const actors::TimeNs gap = std::max<actors::TimeNs>(1, gaps.next());
    if (gap >= until - at) return ok_status();
    at += gap;
    if (failures->size() == kMaxFailuresOfALife) return too_many_failures();
    failures->push_back({at, kind});
  }
}

uint32_t racks_of(const FailureModel& model, uint32_t hosts) {
  return model.rack_hosts == 0 ? 0 : (hosts + model.rack_hosts - 1) / model.rack_hosts;
}

bool has_racks(const FailureModel& model, uint32_t hosts) {
  return model.rack_mtbf != 0 && racks_of(model, hosts) != 0;
}

Status bad_record(const std::string& file, size_t line, const std::string& why) {
  return Status(Code::invalid_argument, fmt::format("{}:{}: {}", file, line, why));
}

}  // namespace

Result<GapShape> parse_gap_shape(std::string_view text) {
  GapShape shape;
  if (text == "poisson") return shape;
  constexpr std::string_view kWeibull = "weibull:shape=";
  double value = 0;
  if (text.starts_with(kWeibull) && parse_number(text.substr(kWeibull.size()), &value) &&
      value >= kLeastShape && value <= kMostShape) {
    shape.kind = GapShape::Kind::weibull;
    shape.shape_permille = static_cast<uint32_t>(std::lround(value * 1000));
    return shape;
  }
  return Status(Code::invalid_argument,
                fmt::format("failures '{}': write poisson, weibull:shape=K with K from {} to {}, or the name "
                            "of a .csv file",
                            text, kLeastShape, kMostShape));
}

Result<GapShape> parse_recorded_failures(std::string_view csv, const std::string& file) {
  GapShape shape;
  shape.kind = GapShape::Kind::recorded;
  size_t column = std::string_view::npos, number = 0;
  double last = -1;
  for (std::string_view line : split(csv, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    const std::vector<std::string_view> cells = split(line, ',');
    if (column == std::string_view::npos) {
      column = static_cast<size_t>(std::find(cells.begin(), cells.end(), "hours") - cells.begin());
      if (column == cells.size()) return bad_record(file, number, "the first line has no column 'hours'");
      continue;
    }
    double hours = 0;
    if (column >= cells.size() || !parse_number(cells[column], &hours) || !(hours >= 0) ||
        hours > static_cast<double>(kMaxMtbfHours)) {
      return bad_record(file, number, fmt::format("no number of hours from 0 to {}", kMaxMtbfHours));
    }
    if (hours < last) return bad_record(file, number, "this failure is earlier than the one before it");
    if (last >= 0) shape.gaps.push_back(std::llround((hours - last) * static_cast<double>(kHour)));
    last = hours;
    if (shape.gaps.size() > kMaxRecordedFailures) {
      return bad_record(file, number, fmt::format("more than {} failures", kMaxRecordedFailures));
    }
  }
  if (std::all_of(shape.gaps.begin(), shape.gaps.end(), [](actors::TimeNs gap) { return gap == 0; })) {
    return bad_record(file, number, "at least two failures at different times are needed");
  }
  return shape;
}

Result<DrawnFailures> draw_failure_times(const FailureModel& model, uint32_t hosts, actors::TimeNs until,
                                         uint64_t seed) {
  DrawnFailures drawn;
  if (until / mean_time_to_interruption(model, hosts) > static_cast<int64_t>(kMaxFailuresOfALife)) {
    return too_many_failures();
  }
  const bool is_recorded = model.shape.kind == GapShape::Kind::recorded;
  if (is_recorded || model.host_mtbf != 0) {
    const actors::TimeNs mean = std::max<actors::TimeNs>(1, model.host_mtbf / hosts);
    SHOAL_RETURN_IF_ERROR(add_failures(FailureTime::Kind::host, Gaps(model.shape, mean, random_of(seed, 0)),
                                       until, &drawn.ends));
  }
  const GapShape poisson;
  if (has_racks(model, hosts)) {
    const actors::TimeNs mean = std::max<actors::TimeNs>(1, model.rack_mtbf / racks_of(model, hosts));
    SHOAL_RETURN_IF_ERROR(
        add_failures(FailureTime::Kind::rack, Gaps(poisson, mean, random_of(seed, 1)), until, &drawn.ends));
  }
  if (model.process_mtbf != 0) {
    SHOAL_RETURN_IF_ERROR(add_failures(FailureTime::Kind::process,
                                       Gaps(poisson, model.process_mtbf, random_of(seed, 2)), until,
                                       &drawn.ends));
  }
  std::stable_sort(drawn.ends.begin(), drawn.ends.end(),
                   [](const FailureTime& a, const FailureTime& b) { return a.at < b.at; });
  if (model.outage_every == 0 || model.outage_lasts == 0) return drawn;
  std::vector<FailureTime> begins;
  SHOAL_RETURN_IF_ERROR(add_failures(FailureTime::Kind::process,
                                     Gaps(poisson, model.outage_every, random_of(seed, 3)), until, &begins));
  for (const FailureTime& begin : begins) {
    if (!drawn.outages.empty() && begin.at < drawn.outages.back().end) continue;
    drawn.outages.push_back({begin.at, begin.at + model.outage_lasts});
  }
  return drawn;
}

actors::TimeNs mean_time_to_interruption(const FailureModel& model, uint32_t hosts) {
  double rate = 0;  // of failures in a nanosecond
  if (model.shape.kind == GapShape::Kind::recorded) {
    double sum = 0;
    for (actors::TimeNs gap : model.shape.gaps) sum += static_cast<double>(gap);
    rate += static_cast<double>(model.shape.gaps.size()) / std::max(sum, 1.0);
  } else if (model.host_mtbf != 0) {
    rate += static_cast<double>(hosts) / static_cast<double>(model.host_mtbf);
  }
  if (has_racks(model, hosts)) rate += racks_of(model, hosts) / static_cast<double>(model.rack_mtbf);
  if (model.process_mtbf != 0) rate += 1 / static_cast<double>(model.process_mtbf);
  constexpr auto kNever = std::numeric_limits<actors::TimeNs>::max();
  if (rate * static_cast<double>(kNever) <= 1) return kNever;
  return std::max<actors::TimeNs>(1, std::llround(1 / rate));  // callers divide by it
}

}  // namespace shoal::sim
