#include "shoal/checkpoint_info.h"

namespace shoal {

std::string_view state_name(CheckpointInfo::State state) {
  switch (state) {
    case CheckpointInfo::State::committed:
      return "committed";
    case CheckpointInfo::State::aborted:
      return "aborted";
    case CheckpointInfo::State::undecided:
      return "undecided";
    case CheckpointInfo::State::deleted:
      return "deleted";
    case CheckpointInfo::State::damaged:
      return "damaged";
  }
  return "unknown";
}

}  // namespace shoal
