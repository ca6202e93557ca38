#include "sim/failures/fault_draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/basics/random.h"

namespace shoal::sim {

namespace {

constexpr uint64_t kMsOfAnHour = 3'600'000;
constexpr uint64_t kMostHours = 1'000'000'000;
constexpr uint64_t kMostMs = uint64_t{366} * 24 * kMsOfAnHour;

Status bad(const std::string& what) {
  return Status(Code::invalid_argument, fmt::format("failures: {}", what));
}

struct Key {
  std::string_view name;
  uint64_t FaultRule::*value;
  uint64_t least, most;
  std::string_view of;  // kinds of rules that have the key: p, w, m
};
constexpr Key kKeys[] = {{"mtbf_node_hours", &FaultRule::node_hours, 1, kMostHours, "p"},
                         {"scale_node_hours", &FaultRule::node_hours, 1, kMostHours, "w"},
                         {"rack_hosts", &FaultRule::rack_hosts, 1, 1 << 20, "pw"},
                         {"mtbf_rack_hours", &FaultRule::rack_hours, 1, kMostHours, "pw"},
                         {"spread_permille", &FaultRule::spread_permille, 0, kPermille, "pw"},
                         {"spread_ms", &FaultRule::spread_ms, 1, kMostMs, "pw"},
                         {"back_after_ms", &FaultRule::back_after_ms, 1, kMostMs, "pw"},
                         {"until_ms", &FaultRule::until_ms, 1, kMostMs, "pwm"},
                         {"count", &FaultRule::count, 1, kMaxFaults, "m"}};

Result<uint64_t> number(std::string_view key, std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stopped != text.data() + text.size() || value < least || value > most) {
    return bad(fmt::format("{}: '{}' is not a number from {} to {}", key, text, least, most));
  }
  return value;
}

// Parses a decimal such as "0.78", in thousandths.
Result<uint64_t> thousandths(std::string_view key, std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, dot));
  std::string fraction(text.substr(std::min(dot + 1, text.size())));
  if (fraction.size() > 3) return bad(fmt::format("{}: '{}' has more than three decimals", key, text));
  fraction.resize(3, '0');
  auto value = number(key, digits + fraction, 100, 100'000);
  if (!value.ok()) return bad(fmt::format("{}: '{}' is not a number from 0.1 to 100", key, text));
  return value;
}

Result<std::vector<Fault::Kind>> parse_kinds(std::string_view text) {
  std::vector<Fault::Kind> kinds;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    size_t kind = 0;
    while (kind < Fault::kKinds && fault_kind_name(static_cast<Fault::Kind>(kind)) != name) ++kind;
    if (kind == Fault::kKinds) return bad(fmt::format("kinds: '{}' is not a kind", name));
    kinds.push_back(static_cast<Fault::Kind>(kind));
    begin = end + 1;
  }
  return kinds;
}

Status set_key(FaultRule& rule, char of, std::string_view key, std::string_view value) {
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
  return bad(fmt::format("'{}' is not known here", key));
}

Result<FaultRule> parse_rule(std::string_view text) {
  FaultRule rule;
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  const std::string_view values = text.substr(std::min(colon + 1, text.size()));
  if (name == "weibull") rule.kind = FaultRule::Kind::weibull;
  if (name == "mixed") rule.kind = FaultRule::Kind::mixed;
  if (rule.kind == FaultRule::Kind::poisson && name != "poisson") {
    return bad(fmt::format("'{}' must begin with poisson:, weibull: or mixed:", name));
  }
  for (size_t begin = 0; begin < values.size();) {
    const size_t end = std::min(values.find(',', begin), values.size());
    const std::string_view part = values.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return bad(fmt::format("'{}': expected KEY=VALUE", part));
    SHOAL_RETURN_IF_ERROR(set_key(rule, name[0], part.substr(0, equals), part.substr(equals + 1)));
    begin = end + 1;
  }
  const bool is_mixed = rule.kind == FaultRule::Kind::mixed;
  if (is_mixed && rule.count == 0) return bad("mixed: needs a count");
  if (!is_mixed && rule.node_hours == 0 && rule.rack_hours == 0) {
    return bad(
        fmt::format("{}: needs a {}", name, name == "weibull" ? "scale_node_hours" : "mtbf_node_hours"));
  }
  if (rule.rack_hosts == 0 && (rule.rack_hours != 0 || rule.spread_permille != 0)) {
    return bad(fmt::format("{}: racks need rack_hosts", name));
  }
  return rule;
}

class Drawer {
 public:
  Drawer(const FaultRule& rule, const DrawnJob& job, uint64_t seed)
      : rule_(rule), job_(job), until_ms_(rule.until_ms != 0 ? rule.until_ms : job.until_ms), random_(seed) {}

  std::vector<Fault> draw() {
    if (rule_.kind == FaultRule::Kind::mixed) {
      for (uint64_t i = 0; i < rule_.count; ++i) add_mixed();
    } else {
      draw_deaths();
    }
    return std::move(faults_);
  }

 private:
  void draw_deaths() {
    for (uint64_t host = 0; host < job_.hosts && rule_.node_hours != 0; ++host) {
      const uint64_t scale_ms = rule_.node_hours * kMsOfAnHour;
      const bool is_weibull = rule_.kind == FaultRule::Kind::weibull;
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
    Fault fault{Fault::Kind::dies, at, host};
    fault.hosts = hosts;
    fault.back_after_ms = rule_.back_after_ms;
    faults_.push_back(fault);
  }

  // Draws durations such that each octave is equally likely.
  uint64_t duration(uint64_t least_ms, uint32_t octaves) {
    const uint64_t base = least_ms << random_.below(octaves);
    return base + random_.below(base);
  }

  Fault::Kind draw_kind() {
    if (rule_.kinds.empty()) return static_cast<Fault::Kind>(random_.below(Fault::kKinds));
    return rule_.kinds[random_.below(rule_.kinds.size())];
  }

  void add_mixed() {
    Fault fault;
    fault.kind = draw_kind();
    fault.at_ms = random_.below(until_ms_);
    // Often the coordinator's host.
    const uint64_t host = random_.below(3) == 0 ? 0 : random_.below(job_.hosts);
    const uint64_t lasts = duration(20, 11);    // 20 ms to 41 s
    const uint64_t permille = duration(10, 6);  // 10 to 639
    const bool is_rank = fault.kind == Kind::ends || fault.kind == Kind::vanishes;
    if (is_rank) {
      fault.rank = random_.below(job_.ranks);
      faults_.push_back(fault);
      return;
    }
    fault.host = host;
    if (fault.kind == Kind::dies) {
      if (random_.below(2) == 0) fault.back_after_ms = lasts;
    } else if (fault.kind != Kind::coordinates) {
      fault.for_ms = lasts;
    }
    if (fault.kind >= Kind::cut && fault.kind <= Kind::reorders) {
      if (random_.below(2) == 0) fault.host = 0, fault.hosts = 0;
      const bool is_one = random_.below(2) == 0;
      if (is_one && fault.hosts == 0) fault.to_host = host, fault.to_hosts = 1;
      if (fault.kind != Kind::cut) fault.permille = permille;
    }
    if (fault.kind >= Kind::delays && fault.kind <= Kind::reorders) fault.by_ms = duration(1, 12);
    if (fault.kind == Kind::disk_slow) fault.factor = 2 + random_.below(30);
    if (fault.kind == Kind::disk_fails) fault.permille = permille;
    faults_.push_back(fault);
  }

  const FaultRule& rule_;
  const DrawnJob& job_;
  const uint64_t until_ms_;
  Random random_;
  std::vector<Fault> faults_;
};

}  // namespace

Result<std::vector<FaultRule>> parse_fault_rules(std::string_view text) {
  std::vector<FaultRule> rules;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    SHOAL_ASSIGN_OR_RETURN(FaultRule rule, parse_rule(text.substr(begin, end - begin)));
    rules.push_back(std::move(rule));
    begin = end + 1;
  }
  return rules;
}

Result<std::vector<Fault>> draw_faults(const std::vector<FaultRule>& rules, const DrawnJob& job) {
  std::vector<Fault> faults;
  uint64_t seed = stream_seed(job.seed, Stream::faults);
  for (const FaultRule& rule : rules) {
    const std::vector<Fault> drawn = Drawer(rule, job, ++seed).draw();
    faults.insert(faults.end(), drawn.begin(), drawn.end());
    if (faults.size() > kMaxFaults) {
      return Status(Code::too_large, fmt::format("failures: more than {} would be drawn", kMaxFaults));
    }
  }
  return faults;
}

}  // namespace shoal::sim
