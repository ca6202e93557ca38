#include "shoal/read_damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "shoal/bytes.h"

namespace shoal {

namespace {

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

// Causes contain the numbers of blocks and are otherwise equal.
bool is_same_cause(std::string_view a, std::string_view b) {
  size_t i = 0, k = 0;
  while (i < a.size() && k < b.size()) {
    if (is_digit(a[i]) && is_digit(b[k])) {
      while (i < a.size() && is_digit(a[i])) ++i;
      while (k < b.size() && is_digit(b[k])) ++k;
    } else if (a[i++] != b[k++]) {
      return false;
    }
  }
  return i == a.size() && k == b.size();
}

bool join(ReadDamage& known, const ReadDamage& one) {
  if (known.rank != one.rank || known.file != one.file) return false;
  const bool is_whole = known.end == 0 && one.end == 0;
  if (!is_whole) {
    const bool touch = known.end != 0 && one.end != 0 && (known.end == one.begin || one.end == known.begin);
    if (!touch || known.fqn != one.fqn || known.box != one.box || known.read_instead != one.read_instead) {
      return false;
    }
  }
  if (!is_same_cause(known.cause, one.cause)) return false;
  if (one.begin < known.begin) known.cause = one.cause;
  known.begin = std::min(known.begin, one.begin);
  known.end = std::max(known.end, one.end);
  known.bytes += one.bytes;
  return true;
}

}  // namespace

std::string to_string(const ReadDamage& damage) {
  std::string where = fmt::format("'{}'", damage.fqn);
  if (damage.box.dims() != 0) where += fmt::format(" {}", to_string(damage.box));
  where += fmt::format(" of rank {} is damaged in {}", damage.rank, damage.file);
  if (damage.end != 0) {
    where += fmt::format(", bytes {} to {}", damage.begin, damage.end);
  } else if (damage.bytes != 0) {
    where +=
        fmt::format(", as is the rest of that file; the load needed {} of it", human_bytes(damage.bytes));
  }
  return fmt::format("{} ({}); the load read {} instead", where, damage.cause, damage.read_instead);
}

bool DamageList::add(ReadDamage damage) {
  const auto joined =
      std::find_if(named.rbegin(), named.rend(), [&](ReadDamage& known) { return join(known, damage); });
  if (joined != named.rend()) return false;
  ++count;
  if (named.size() == kMaxDamageNamed) return false;
  named.push_back(std::move(damage));
  return true;
}

std::vector<ReadDamage> DamageList::add(DamageList others) {
  count += others.count - others.named.size();
  std::vector<ReadDamage> fresh;
  for (ReadDamage& damage : others.named) {
    if (add(damage)) fresh.push_back(std::move(damage));
  }
  return fresh;
}

}  // namespace shoal
