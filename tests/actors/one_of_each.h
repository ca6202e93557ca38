// One value of each alternative of a variant.
#pragma once

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace shoal::actors {

template <class Variant>
std::vector<Variant> one_of_each() {
  return []<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::vector<Variant>{Variant(std::in_place_index<kIndex>)...};
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace shoal::actors
