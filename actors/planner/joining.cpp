#include "actors/planner/joining.h"

namespace shoal::actors {

std::string_view to_string(JoiningState state) {
  switch (state) {
    case JoiningState::idle:
      return "idle";
    case JoiningState::joining:
      return "joining";
    case JoiningState::known:
      return "known";
    case JoiningState::refused:
      return "refused";
  }
  return "?";
}

std::string_view to_string(JoiningTrigger trigger) {
  switch (trigger) {
    case JoiningTrigger::layout_declared:
      return "layout_declared";
    case JoiningTrigger::roster:
      return "roster";
    case JoiningTrigger::refused:
      return "refused";
  }
  return "?";
}

}  // namespace shoal::actors
