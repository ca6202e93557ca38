// The names of the enumerators of an enumeration, as its definition spells them. So a state or a trigger is
// named in one place.
//
// The name is read from the signature that the compiler gives to a template instance. GCC and Clang print an
// enumerator with its name and any other value as a cast: "(Lamp)7".
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

namespace shoal::base {

// "" if no enumerator has this value.
template <auto kValue>
constexpr std::string_view enumerator_name() {
  constexpr std::string_view kBefore = "kValue = ";
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.find(kBefore) + kBefore.size());
  name = name.substr(0, name.find_first_of(";]"));
  if (const size_t scope = name.rfind("::"); scope != std::string_view::npos) name.remove_prefix(scope + 2);
  return name.find(')') == std::string_view::npos ? name : std::string_view();
}

inline constexpr size_t kMaxEnumerators = 32;  // of a state or a trigger

// The names of E's enumerators, by their values, which count up from 0; then empty names.
template <class E>
inline constexpr auto kEnumeratorNames = []<size_t... kIndex>(std::index_sequence<kIndex...>) {
  return std::array<std::string_view, sizeof...(kIndex)>{enumerator_name<static_cast<E>(kIndex)>()...};
}
(std::make_index_sequence<kMaxEnumerators>());

// Precondition: `value` is an enumerator of E.
template <class E>
constexpr std::string_view name_of_enumerator(E value) {
  static_assert(std::is_enum_v<E>);
  static_assert(!kEnumeratorNames<E>[0].empty(), "its enumerators do not count up from 0");
  static_assert(kEnumeratorNames<E>[kMaxEnumerators - 1].empty(), "raise kMaxEnumerators");
  return kEnumeratorNames<E>[static_cast<size_t>(value)];
}

}  // namespace shoal::base
