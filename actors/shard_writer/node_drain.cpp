#include "actors/shard_writer/node_drain.h"

namespace shoal::actors {

std::string_view to_string(NodeDrainState state) {
  switch (state) {
    case NodeDrainState::serving:
      return "serving";
    case NodeDrainState::draining:
      return "draining";
    case NodeDrainState::handing_over:
      return "handing_over";
    case NodeDrainState::ranks_ended:
      return "ranks_ended";
    case NodeDrainState::drained:
      return "drained";
    case NodeDrainState::stopped:
      return "stopped";
  }
  return "?";
}

std::string_view to_string(NodeDrainTrigger trigger) {
  switch (trigger) {
    case NodeDrainTrigger::requested:
      return "requested";
    case NodeDrainTrigger::patience_over:
      return "patience_over";
    case NodeDrainTrigger::patience_over_with_trainers:
      return "patience_over_with_trainers";
    case NodeDrainTrigger::finished:
      return "finished";
    case NodeDrainTrigger::finished_to_stop:
      return "finished_to_stop";
  }
  return "?";
}

}  // namespace shoal::actors
