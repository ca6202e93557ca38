// A strict reader of Prometheus' text format 0.0.4:
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shoal/status.h"

namespace shoal::actors {

struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
struct MetricFamily {
  std::string type, help;
  std::vector<MetricSample> samples;
};

// By name. Refuses what a Prometheus server would refuse or warn of: a family without HELP and TYPE or with
// two, samples apart from their family, names or labels of other characters, a sample twice, a counter not
// named _total or below 0, a histogram whose buckets do not grow, lack +Inf or disagree with _count.
Result<std::map<std::string, MetricFamily>> parse_prometheus(const std::string& text);

}  // namespace shoal::actors
