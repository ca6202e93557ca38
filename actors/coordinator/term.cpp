#include "actors/coordinator/term.h"

namespace shoal::actors {

std::string_view to_string(OfficeState state) {
  switch (state) {
    case OfficeState::starting:
      return "starting";
    case OfficeState::in_office:
      return "in_office";
    case OfficeState::serving_loads:
      return "serving_loads";
    case OfficeState::superseded:
      return "superseded";
  }
  return "?";
}

std::string_view to_string(OfficeTrigger trigger) {
  switch (trigger) {
    case OfficeTrigger::started:
      return "started";
    case OfficeTrigger::started_read_only:
      return "started_read_only";
    case OfficeTrigger::later_epoch_exists:
      return "later_epoch_exists";
  }
  return "?";
}

std::string_view to_string(FirstRosterState state) {
  switch (state) {
    case FirstRosterState::reading:
      return "reading";
    case FirstRosterState::gathering:
      return "gathering";
    case FirstRosterState::publishing:
      return "publishing";
    case FirstRosterState::known:
      return "known";
    case FirstRosterState::refused:
      return "refused";
  }
  return "?";
}

std::string_view to_string(FirstRosterTrigger trigger) {
  switch (trigger) {
    case FirstRosterTrigger::none_found:
      return "none_found";
    case FirstRosterTrigger::all_joined:
      return "all_joined";
    case FirstRosterTrigger::known:
      return "known";
    case FirstRosterTrigger::refused:
      return "refused";
  }
  return "?";
}

std::string_view to_string(ShutdownState state) {
  switch (state) {
    case ShutdownState::running:
      return "running";
    case ShutdownState::stopping:
      return "stopping";
    case ShutdownState::stopping_with_trainers:
      return "stopping_with_trainers";
    case ShutdownState::finishing:
      return "finishing";
    case ShutdownState::draining:
      return "draining";
    case ShutdownState::handing_over:
      return "handing_over";
    case ShutdownState::drained:
      return "drained";
    case ShutdownState::handed_over:
      return "handed_over";
  }
  return "?";
}

std::string_view to_string(ShutdownTrigger trigger) {
  switch (trigger) {
    case ShutdownTrigger::stop_requested:
      return "stop_requested";
    case ShutdownTrigger::stop_requested_with_trainers:
      return "stop_requested_with_trainers";
    case ShutdownTrigger::drain_requested:
      return "drain_requested";
    case ShutdownTrigger::drain_requested_with_trainers:
      return "drain_requested_with_trainers";
    case ShutdownTrigger::others_continue:
      return "others_continue";
    case ShutdownTrigger::nothing_in_flight:
      return "nothing_in_flight";
  }
  return "?";
}

}  // namespace shoal::actors
