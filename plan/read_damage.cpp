#include "plan/read_damage.h"

#include <fmt/format.h>

#include <utility>

namespace shoal {

std::string to_string(const ReadDamage& damage) {
  std::string where = fmt::format("'{}'", damage.fqn);
  if (damage.box.dims() != 0) where += fmt::format(" {}", to_string(damage.box));
  where += fmt::format(" of rank {} is damaged in {}", damage.rank, damage.file);
  if (damage.end != 0) where += fmt::format(", bytes {} to {}", damage.begin, damage.end);
  return fmt::format("{} ({}); read from {} instead", where, damage.cause, damage.read_instead);
}

void DamageList::add(ReadDamage damage) {
  ++count;
  if (named.size() < kMaxDamageNamed) named.push_back(std::move(damage));
}

void DamageList::add(DamageList others) {
  count += others.count - others.named.size();
  for (ReadDamage& damage : others.named) add(std::move(damage));
}

}  // namespace shoal
