#include "actors/loader/round.h"

namespace shoal::actors {

std::string_view to_string(RoundState state) {
  switch (state) {
    case RoundState::gathering:
      return "gathering";
    case RoundState::opening_address:
      return "opening_address";
    case RoundState::asking:
      return "asking";
    case RoundState::planning:
      return "planning";
    case RoundState::awaiting_memory:
      return "awaiting_memory";
    case RoundState::exchanging:
      return "exchanging";
    case RoundState::direct:
      return "direct";
  }
  return "?";
}

std::string_view to_string(RoundTrigger trigger) {
  switch (trigger) {
    case RoundTrigger::gathered:
      return "gathered";
    case RoundTrigger::gathered_to_share:
      return "gathered_to_share";
    case RoundTrigger::address_known:
      return "address_known";
    case RoundTrigger::answered:
      return "answered";
    case RoundTrigger::no_answer:
      return "no_answer";
    case RoundTrigger::all_planned:
      return "all_planned";
    case RoundTrigger::member_left:
      return "member_left";
    case RoundTrigger::memory_granted:
      return "memory_granted";
    case RoundTrigger::too_little_memory:
      return "too_little_memory";
  }
  return "?";
}

}  // namespace shoal::actors
