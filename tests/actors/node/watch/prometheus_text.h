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

// Parses the families by name. It rejects all that a Prometheus server would reject or warn of: a family
// without or with two HELP or TYPE lines, samples outside their family, invalid characters in names or
// labels, a repeated sample, a counter that is negative or not named _total, and a histogram whose buckets
// decrease, lack +Inf or disagree with _count.
Result<std::map<std::string, MetricFamily>> parse_prometheus(const std::string& text);

}  // namespace shoal::actors
