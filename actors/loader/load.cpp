#include "actors/loader/load.h"

namespace shoal::actors {

std::string_view to_string(LoadState state) {
  switch (state) {
    case LoadState::opening:
      return "opening";
    case LoadState::in_round:
      return "in_round";
    case LoadState::choosing:
      return "choosing";
    case LoadState::pinning:
      return "pinning";
    case LoadState::reading_manifest:
      return "reading_manifest";
    case LoadState::decoding:
      return "decoding";
    case LoadState::planning:
      return "planning";
    case LoadState::measuring:
      return "measuring";
    case LoadState::awaiting_round:
      return "awaiting_round";
    case LoadState::awaiting_window:
      return "awaiting_window";
    case LoadState::transferring:
      return "transferring";
    case LoadState::failing:
      return "failing";
    case LoadState::done:
      return "done";
    case LoadState::failed:
      return "failed";
    case LoadState::left:
      return "left";
  }
  return "?";
}

std::string_view to_string(LoadTrigger trigger) {
  switch (trigger) {
    case LoadTrigger::shares:
      return "shares";
    case LoadTrigger::chooses:
      return "chooses";
    case LoadTrigger::chosen:
      return "chosen";
    case LoadTrigger::pinned:
      return "pinned";
    case LoadTrigger::manifest_encoded:
      return "manifest_encoded";
    case LoadTrigger::manifest_known:
      return "manifest_known";
    case LoadTrigger::lengths_needed:
      return "lengths_needed";
    case LoadTrigger::planned_in_round:
      return "planned_in_round";
    case LoadTrigger::window_needed:
      return "window_needed";
    case LoadTrigger::transfer_begins:
      return "transfer_begins";
    case LoadTrigger::transferred:
      return "transferred";
    case LoadTrigger::failed:
      return "failed";
    case LoadTrigger::ended:
      return "ended";
    case LoadTrigger::client_left:
      return "client_left";
  }
  return "?";
}

}  // namespace shoal::actors
