#include "sim/failures/failure_draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

using Kind = Failure::Kind;

constexpr uint64_t kMsOfAnHour = 3'600'000;
constexpr uint64_t kMostHours = 1'000'000'000;
constexpr uint64_t kLongestHangMs = 600'000;
constexpr uint64_t kMostRuleMs = uint64_t{366} * 24 * kMsOfAnHour;

Status bad_rule(const std::string& what) {
  return Status(Code::invalid_argument, fmt::format("failures: {}", what));
}

struct Key {
  std::string_view name;
  uint64_t FailureRule::*value;
  uint64_t least, most;
  std::string_view of;  // kinds of rules that have the key: p, w, m
};
constexpr Key kKeys[] = {{"mtbf_node_hours", &FailureRule::node_hours, 1, kMostHours, "p"},
                         {"scale_node_hours", &FailureRule::node_hours, 1, kMostHours, "w"},
                         {"rack_hosts", &FailureRule::rack_hosts, 1, 1 << 20, "pw"},
                         {"mtbf_rack_hours", &FailureRule::rack_hours, 1, kMostHours, "pw"},
                         {"spread_permille", &FailureRule::spread_permille, 0, kPermille, "pw"},
                         {"spread_ms", &FailureRule::spread_ms, 1, kMostRuleMs, "pw"},
                         {"back_after_ms", &FailureRule::back_after_ms, 1, kMostRuleMs, "pw"},
                         {"until_ms", &FailureRule::until_ms, 1, kMostRuleMs, "pwm"},
                         {"count", &FailureRule::count, 1, kMaxFailures, "m"}};

Result<uint64_t> number(std::string_view key, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stopped != text.data() + text.size() || value < least || value > most) {
    return bad_rule(fmt::format("{}: '{}' is not a number from {} to {}", key, text, least, most));
  }
  return value;
}

// Parses a decimal such as "0.78", in thousandths.
Result<uint64_t> thousandths(std::string_view key, std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, dot));
  std::string fraction(text.substr(std::min(dot + 1, text.size())));
  if (fraction.size() > 3) return bad_rule(fmt::format("{}: '{}' has more than three decimals", key, text));
  fraction.resize(3, '0');
  auto value = number(key, digits + fraction, 100, 100'000);
  if (!value.ok()) return bad_rule(fmt::format("{}: '{}' is not a number from 0.1 to 100", key, text));
  return value;
}

Result<std::vector<Failure::Kind>> parse_kinds(std::string_view text) {
  std::vector<Failure::Kind> kinds;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    size_t kind = 0;
    while (kind < Failure::kKinds && failure_kind_name(static_cast<Failure::Kind>(kind)) != name) ++kind;
    if (kind == Failure::kKinds) {
      return bad_rule(fmt::format("kinds: '{}' is not a kind of failure; known kinds are {}", name,
                                  failure_kind_names()));
    }
    kinds.push_back(static_cast<Failure::Kind>(kind));
    begin = end + 1;
  }
  return kinds;
}

Status set_key(FailureRule& rule, char of, std::string_view key, std::string_view value) {
  if (key == "k" && of == 'w') {
    SHOAL_ASSIGN_OR_RETURN(rule.shape_permille, thousandths(key, value));
    return ok_status();
  }
  if (key == "kinds" && of == 'm') {
    SHOAL_ASSIGN_OR_RETURN(rule.kinds, parse_kinds(value));
    return ok_status();
  }
  for (const Key& each : kKeys) {
    if (each.name != key || each.of.find(of) == std::string_view::npos) continue;
    SHOAL_ASSIGN_OR_RETURN(rule.*each.value, number(key, value, each.least, each.most));
    return ok_status();
  }
  return bad_rule(fmt::format("'{}' is not known here", key));
}

Result<FailureRule> parse_rule(std::string_view text) {
  FailureRule rule;
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  const std::string_view values = text.substr(std::min(colon + 1, text.size()));
  if (name == "weibull") rule.kind = FailureRule::Kind::weibull;
  if (name == "mixed") rule.kind = FailureRule::Kind::mixed;
  if (rule.kind == FailureRule::Kind::poisson && name != "poisson") {
    return bad_rule(fmt::format("'{}' must begin with poisson:, weibull: or mixed:", name));
  }
  for (size_t begin = 0; begin < values.size();) {
    const size_t end = std::min(values.find(',', begin), values.size());
    const std::string_view part = values.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return bad_rule(fmt::format("'{}': expected KEY=VALUE", part));
    SHOAL_RETURN_IF_ERROR(set_key(rule, name[0], part.substr(0, equals), part.substr(equals + 1)));
    begin = end + 1;
  }
  const bool is_mixed = rule.kind == FailureRule::Kind::mixed;
  if (is_mixed && rule.count == 0) return bad_rule("mixed: needs a count");
  if (!is_mixed && rule.node_hours == 0 && rule.rack_hours == 0) {
    return bad_rule(
        fmt::format("{}: needs a {}", name, name == "weibull" ? "scale_node_hours" : "mtbf_node_hours"));
  }
  if (rule.rack_hosts == 0 && (rule.rack_hours != 0 || rule.spread_permille != 0)) {
    return bad_rule(fmt::format("{}: racks need rack_hosts", name));
  }
  return rule;
}

class Drawer {
 public:
  Drawer(const FailureRule& rule, const DrawnJob& job, uint64_t seed)
      : rule_(rule), job_(job), until_ms_(rule.until_ms != 0 ? rule.until_ms : job.until_ms), random_(seed) {}

  std::vector<Failure> draw() {
    if (rule_.kind == FailureRule::Kind::mixed) {
      for (uint64_t i = 0; i < rule_.count; ++i) add_mixed();
    } else {
      draw_deaths();
    }
    return std::move(failures_);
  }

 private:
  void draw_deaths() {
    for (uint64_t host = 0; host < job_.hosts && rule_.node_hours != 0; ++host) {
      const uint64_t scale_ms = rule_.node_hours * kMsOfAnHour;
      const bool is_weibull = rule_.kind == FailureRule::Kind::weibull;
      const uint64_t at = is_weibull ? random_.weibull(scale_ms, static_cast<uint32_t>(rule_.shape_permille))
                                     : random_.exponential(scale_ms);
      if (at >= until_ms_) continue;
      add_death(at, host, 1);
      if (rule_.spread_permille != 0) spread(at, host);
    }
    for (uint64_t first = 0; first < job_.hosts && rule_.rack_hours != 0; first += rule_.rack_hosts) {
      const uint64_t at = random_.exponential(rule_.rack_hours * kMsOfAnHour);
      if (at < until_ms_) add_death(at, first, std::min(rule_.rack_hosts, job_.hosts - first));
    }
  }

  void spread(uint64_t at, uint64_t host) {
    const uint64_t first = host - host % rule_.rack_hosts;
    for (uint64_t other = first; other < std::min(first + rule_.rack_hosts, job_.hosts); ++other) {
      if (other == host || random_.below(kPermille) >= rule_.spread_permille) continue;
      add_death(at + random_.below(rule_.spread_ms), other, 1);
    }
  }

  void add_death(uint64_t at, uint64_t host, uint64_t hosts) {
    Failure failure{Failure::Kind::dies, at, host};
    failure.hosts = hosts;
    failure.back_after_ms = rule_.back_after_ms;
    failures_.push_back(failure);
  }

  // Draws durations such that each octave is equally likely.
  uint64_t duration(uint64_t least_ms, uint32_t octaves) {
    const uint64_t base = least_ms << random_.below(octaves);
    return base + random_.below(base);
  }

  Failure::Kind draw_kind() {
    if (rule_.kinds.empty()) return static_cast<Failure::Kind>(random_.below(Failure::kMixedKinds));
    return rule_.kinds[random_.below(rule_.kinds.size())];
  }

  void add_mixed() {
    Failure failure;
    failure.kind = draw_kind();
    failure.at_ms = random_.below(until_ms_);
    // Often the coordinator's host.
    const uint64_t host = random_.below(3) == 0 ? 0 : random_.below(job_.hosts);
    const uint64_t lasts = duration(20, 11);    // 20 ms to 41 s
    const uint64_t permille = duration(10, 6);  // 10 to 639
    const bool is_rank = is_of_rank(failure.kind);
    if (is_rank) {
      failure.rank = random_.below(job_.ranks);
      if (failure.kind == Kind::reopens || failure.kind == Kind::twins) failure.for_ms = lasts;
      if (failure.kind == Kind::twins) failure.host = host;
      if (failure.kind == Kind::reconnects && random_.below(3) == 0) failure.for_ms = lasts;
      failures_.push_back(failure);
      return;
    }
    failure.host = host;
    if (failure.kind == Kind::job_restarts) {
      // Mostly the whole job ends. Else hosts of it go on, and two runs use one root.
      const bool goes_on = random_.below(3) == 0;
      failure.host = goes_on ? random_.below(job_.hosts) : 0;
      failure.hosts = goes_on ? 1 + random_.below(job_.hosts - failure.host) : 0;
      failure.ranks = 1 + random_.below(job_.ranks + 4);
    }
    if (failure.kind >= Kind::pins && failure.kind <= Kind::rots) return add_act(failure, lasts);
    if (failure.kind == Kind::dies) {
      if (random_.below(2) == 0) failure.back_after_ms = lasts;
    } else if (failure.kind != Kind::coordinates && failure.kind != Kind::sweeps) {
      failure.for_ms = lasts;
    }
    if (failure.kind >= Kind::cut && failure.kind <= Kind::reorders) {
      if (random_.below(2) == 0) failure.host = 0, failure.hosts = 0;
      const bool is_one = random_.below(2) == 0;
      if (is_one && failure.hosts == 0) failure.to_host = host, failure.to_hosts = 1;
      if (failure.kind != Kind::cut) failure.permille = permille;
    }
    if (failure.kind >= Kind::delays && failure.kind <= Kind::reorders) failure.by_ms = duration(1, 12);
    if (failure.kind == Kind::disk_slow) failure.factor = 2 + random_.below(30);
    // Mostly longer than any deadline, and than a load.
    const bool is_long = failure.kind == Kind::disk_hangs || failure.kind == Kind::corrupts;
    if (is_long && random_.below(4) != 0) failure.for_ms += kLongestHangMs;
    const bool is_of_a_disk = failure.kind >= Kind::disk_fails && failure.kind <= Kind::disk_loses;
    if ((is_of_a_disk && failure.kind != Kind::disk_full) || failure.kind == Kind::corrupts) {
      failure.permille = permille;
    }
    failures_.push_back(failure);
  }

  // What an operator does.
  void add_act(Failure failure, uint64_t lasts) {
    if (failure.kind == Kind::collects) {
      failure.keep = 1 + random_.below(3);
    } else {
      failure.behind = random_.below(4);
    }
    if (failure.kind == Kind::rots) {
      failure.behind /= 2;  // mostly the newest
      failure.part = random_.below(3);
      failure.permille = 1 + random_.below(kPermille);
    }
    const bool is_mark = failure.kind == Kind::pins || failure.kind == Kind::tags;
    if (is_mark && random_.below(2) == 0) failure.for_ms = lasts;
    failures_.push_back(failure);
  }

  const FailureRule& rule_;
  const DrawnJob& job_;
  const uint64_t until_ms_;
  Random random_;
  std::vector<Failure> failures_;
};

}  // namespace

Result<std::vector<FailureRule>> parse_failure_rules(std::string_view text) {
  std::vector<FailureRule> rules;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    SHOAL_ASSIGN_OR_RETURN(FailureRule rule, parse_rule(text.substr(begin, end - begin)));
    rules.push_back(std::move(rule));
    begin = end + 1;
  }
  return rules;
}

Result<std::vector<Failure>> draw_failures(const std::vector<FailureRule>& rules, const DrawnJob& job) {
  std::vector<Failure> failures;
  uint64_t seed = stream_seed(job.seed, Stream::failures);
  for (const FailureRule& rule : rules) {
    const std::vector<Failure> drawn = Drawer(rule, job, ++seed).draw();
    failures.insert(failures.end(), drawn.begin(), drawn.end());
    if (failures.size() > kMaxFailures) {
      return Status(Code::too_large, fmt::format("failures: more than {} would be drawn", kMaxFailures));
    }
  }
  return failures;
}

}  // namespace shoal::sim
