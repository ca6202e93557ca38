#include "client/launch/slurm_nodelist.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

namespace shoal::client {

namespace {

constexpr size_t kMostShown = 80;  // bytes of a malformed list in a message
constexpr size_t kMaxDigits = 18;  // a number with this many digits fits into 64 bits

Status malformed(std::string_view text, std::string_view why) {
  return Status(Code::invalid_argument,
                fmt::format("'{}' is not a list of hosts: {}", text.substr(0, kMostShown), why));
}

struct Range {
  uint64_t first = 0, last = 0;
  size_t width = 0;
};

bool parse_number(std::string_view digits, uint64_t* value) {
  if (digits.empty() || digits.size() > kMaxDigits) return false;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *value);
  return error == std::errc() && end == digits.data() + digits.size();
}

// "08-10,12"
Result<std::vector<Range>> parse_ranges(std::string_view list, std::string_view text) {
  std::vector<Range> out;
  while (true) {
    std::string_view item = list.substr(0, list.find(','));
    std::string_view first = item.substr(0, item.find('-'));
    std::string_view last = first.size() == item.size() ? first : item.substr(first.size() + 1);
    Range range{.width = first.size()};
    if (!parse_number(first, &range.first) || !parse_number(last, &range.last) || range.last < range.first) {
      return malformed(text, fmt::format("'{}' is not a range of numbers", item.substr(0, kMostShown)));
    }
    out.push_back(range);
    if (item.size() == list.size()) return out;
    list.remove_prefix(item.size() + 1);
  }
}

// Expands one entry between commas, such as "r[1-2]n[0-1]": combines each prefix with each suffix.
Status expand_entry(std::string_view entry, std::string_view text, size_t most,
                    std::vector<std::string>* hosts) {
  std::vector<std::string> names = {""};
  while (!entry.empty()) {
    size_t open = entry.find('['), close = entry.find(']');
    std::string_view literal = entry.substr(0, open);
    if (literal.find(']') != std::string_view::npos) return malformed(text, "an opening bracket is missing");
    for (std::string& name : names) name += literal;
    if (open == std::string_view::npos) break;
    if (close == std::string_view::npos) return malformed(text, "a closing bracket is missing");
    SHOAL_ASSIGN_OR_RETURN(std::vector<Range> ranges,
                           parse_ranges(entry.substr(open + 1, close - open - 1), text));
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const Range& range : ranges) {
        for (uint64_t i = range.first; i <= range.last && longer.size() < most; ++i) {
          longer.push_back(fmt::format("{}{:0{}}", name, i, range.width));
        }
      }
    }
    names = std::move(longer);
    entry.remove_prefix(close + 1);
  }
  for (std::string& name : names) {
    if (name.empty() || name.size() > kMaxHostNameBytes)
      return malformed(text, "the name of a host is empty or too long");
    if (hosts->size() < most) hosts->push_back(std::move(name));
  }
  return ok_status();
}

// The length of the first entry, up to a comma outside of brackets.
size_t entry_length(std::string_view list) {
  bool is_inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') is_inside = true;
    if (list[i] == ']') is_inside = false;
    if (list[i] == ',' && !is_inside) return i;
  }
  return list.size();
}

}  // namespace

Result<std::vector<std::string>> expand_nodelist(std::string_view text, size_t most) {
  if (text.empty() || text.size() > kMaxNodelistBytes) return malformed(text, "it is empty or too long");
  std::vector<std::string> hosts;
  for (std::string_view rest = text;;) {
    size_t length = entry_length(rest);
    if (length == 0) return malformed(text, "an entry is empty");
    SHOAL_RETURN_IF_ERROR(expand_entry(rest.substr(0, length), text, most, &hosts));
    if (length == rest.size()) return hosts;
    rest.remove_prefix(length + 1);
  }
}

std::optional<uint32_t> tasks_on_node(std::string_view text, uint32_t node) {
  uint64_t hosts_before = 0;
  while (text.size() <= kMaxNodelistBytes) {
    std::string_view item = text.substr(0, text.find(','));
    const size_t length = item.size();
    uint64_t tasks = 0, hosts = 1;
    if (const size_t open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') return std::nullopt;
      if (!parse_number(item.substr(open + 2, item.size() - open - 3), &hosts)) return std::nullopt;
      item = item.substr(0, open);
    }
    if (!parse_number(item, &tasks) || tasks > UINT32_MAX || hosts > UINT32_MAX) return std::nullopt;
    hosts_before += hosts;
    if (node < hosts_before) return static_cast<uint32_t>(tasks);
    if (length == text.size()) return std::nullopt;
    text.remove_prefix(length + 1);
  }
  return std::nullopt;
}

}  // namespace shoal::client
