// What a std::visit over messages, events, effects or operations is written with, so that a new alternative
// of the variant does not compile until somebody decides what happens to it.
//
//   std::visit(Overloaded{[&](const Written& written) { … },
//                         [](const OneOf<Ping, Pong> auto&) {}},  // nothing is done for these
//              message);
#pragma once

#include <concepts>

namespace shoal::base {

// T is one of Ts. `const OneOf<A, B> auto&` names the alternatives for which nothing is done.
template <class T, class... Ts>
concept OneOf = (std::same_as<T, Ts> || ...);

// Calls the overload for the alternative held.
template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace shoal::base
