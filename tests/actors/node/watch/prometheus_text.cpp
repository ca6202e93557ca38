#include "tests/actors/node/watch/prometheus_text.h"

#if defined(__GNUC__) && !defined(__clang__)
// Under the address sanitizer, GCC 12 reports the std::function inside std::regex as uninitialized.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <fmt/format.h>

#include <limits>
#include <regex>
#include <set>
#include <sstream>

namespace shoal::actors {

namespace {

Status bad(const std::string& line, const std::string& why) {
  return Status(Code::corrupt, fmt::format("'{}': {}", line, why));
}

Result<MetricSample> parse_sample(const std::string& line) {
  static const std::regex shape(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? ([^ ]+))");
  static const std::regex label(R"re(([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$))re");
  std::smatch match;
  if (!std::regex_match(line, match, shape)) return bad(line, "no sample");
  MetricSample sample;
  sample.name = match[1];
  std::string labels = match[3], number = match[4];
  if (match[2].matched && labels.empty()) return bad(line, "empty braces");
  while (!labels.empty()) {
    std::smatch one;
    if (!std::regex_search(labels, one, label, std::regex_constants::match_continuous)) {
      return bad(line, "malformed labels");
    }
    if (!sample.labels.emplace(one[1], one[2]).second) return bad(line, "a label twice");
    bool ends_in_comma = one[3] == ",";
    labels = one.suffix();
    if (ends_in_comma && labels.empty()) return bad(line, "a comma at the end");
  }
  if (number == "+Inf") {
    sample.value = std::numeric_limits<double>::infinity();
    return sample;
  }
  static const std::regex decimal(R"(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?)");
  if (!std::regex_match(number, decimal)) return bad(line, "no number");
  sample.value = std::stod(number);
  return sample;
}

std::string family_of(const std::string& name, const std::map<std::string, MetricFamily>& families) {
  for (const char* suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    std::string base = name.substr(0, name.size() - std::string(suffix).size());
    auto found = families.find(base);
    if (found != families.end() && found->second.type == "histogram") return base;
  }
  return name;
}

Status check_histogram(const std::string& name, const MetricFamily& family) {
  double le_before = -std::numeric_limits<double>::infinity(), before = 0, infinite = -1, count = -2;
  bool has_sum = false;
  for (const MetricSample& sample : family.samples) {
    if (sample.name == name + "_bucket") {
      auto le = sample.labels.find("le");
      if (le == sample.labels.end()) return bad(name, "a bucket without le");
      double bound = le->second == "+Inf" ? std::numeric_limits<double>::infinity() : std::stod(le->second);
      if (bound <= le_before || sample.value < before) return bad(name, "buckets do not grow");
      le_before = bound;
      before = sample.value;
      if (le->second == "+Inf") infinite = sample.value;
    } else if (sample.name == name + "_count") {
      count = sample.value;
    } else if (sample.name == name + "_sum") {
      has_sum = true;
    } else {
      return bad(name, "a histogram has no such sample");
    }
  }
  if (infinite != count || !has_sum) return bad(name, "+Inf and _count differ, or one is missing, or _sum");
  return ok_status();
}

Status check_family(const std::string& name, const MetricFamily& family) {
  if (family.type == "histogram") return check_histogram(name, family);
  std::set<std::map<std::string, std::string>> seen;
  for (const MetricSample& sample : family.samples) {
    if (sample.name != name) return bad(name, "a sample of another name");
    if (!seen.insert(sample.labels).second) return bad(name, "a sample twice");
    if (family.type == "counter" && sample.value < 0) return bad(name, "a counter below 0");
  }
  if (family.type == "counter" && !name.ends_with("_total")) return bad(name, "a counter is named _total");
  if (family.type == "gauge" && name.ends_with("_total")) return bad(name, "a gauge is not named _total");
  return ok_status();
}

}  // namespace

Result<std::map<std::string, MetricFamily>> parse_prometheus(const std::string& text) {
  std::map<std::string, MetricFamily> families;
  std::string current, helped;
  if (!text.ends_with('\n')) return bad("the end", "the last line ends in no line feed");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    static const std::regex comment(R"(# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
    std::smatch match;
    if (line.starts_with("#")) {
      if (!std::regex_match(line, match, comment)) return bad(line, "neither HELP nor TYPE");
      std::string name = match[2];
      if (match[1] == "HELP") {
        if (families.contains(name)) return bad(line, "a second HELP");
        families[helped = name].help = match[3];
        continue;
      }
      if (name != helped || name == current) return bad(line, "TYPE does not follow its HELP");
      if (match[3] != "counter" && match[3] != "gauge" && match[3] != "histogram") return bad(line, "type");
      families[current = name].type = match[3];
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(MetricSample sample, parse_sample(line));
    if (current.empty() || family_of(sample.name, families) != current) {
      return bad(line, "a sample that is not with its family");
    }
    families[current].samples.push_back(std::move(sample));
  }
  for (const auto& [name, family] : families) SHOAL_RETURN_IF_ERROR(check_family(name, family));
  return families;
}

}  // namespace shoal::actors
