#include "actors/shard_writer/rank_save.h"

namespace shoal::actors {

std::string_view to_string(RankSaveState state) {
  switch (state) {
    case RankSaveState::planning:
      return "planning";
    case RankSaveState::gathering:
      return "gathering";
    case RankSaveState::awaiting_plan:
      return "awaiting_plan";
    case RankSaveState::has_plan:
      return "has_plan";
    case RankSaveState::asking_root:
      return "asking_root";
    case RankSaveState::staged:
      return "staged";
    case RankSaveState::awaiting_roster:
      return "awaiting_roster";
    case RankSaveState::writing:
      return "writing";
    case RankSaveState::written:
      return "written";
    case RankSaveState::published:
      return "published";
    case RankSaveState::dropped:
      return "dropped";
    case RankSaveState::writing_committed:
      return "writing_committed";
  }
  return "?";
}

std::string_view to_string(RankSaveTrigger trigger) {
  switch (trigger) {
    case RankSaveTrigger::offered_plan:
      return "offered_plan";
    case RankSaveTrigger::gathered:
      return "gathered";
    case RankSaveTrigger::requested_plan:
      return "requested_plan";
    case RankSaveTrigger::received_plan:
      return "received_plan";
    case RankSaveTrigger::staged_by_plan:
      return "staged_by_plan";
    case RankSaveTrigger::no_decision_found:
      return "no_decision_found";
    case RankSaveTrigger::layout_is_not_newest:
      return "layout_is_not_newest";
    case RankSaveTrigger::planned:
      return "planned";
    case RankSaveTrigger::planning_failed:
      return "planning_failed";
    case RankSaveTrigger::all_durable:
      return "all_durable";
    case RankSaveTrigger::not_all_durable:
      return "not_all_durable";
    case RankSaveTrigger::manifest_published:
      return "manifest_published";
    case RankSaveTrigger::undecidable:
      return "undecidable";
    case RankSaveTrigger::committed:
      return "committed";
  }
  return "?";
}

void RankSave::stage(ClientId from, std::optional<uint32_t> slab,
                     std::shared_ptr<const local::LocalMessage> bytes, UserMetadataPtr metadata) {
  client = listener = from;
  slab_id = listener_slab_id = slab.value_or(0);
  slab_in_use = slab.has_value();
  message = std::move(bytes);
  user = std::move(metadata);
  offer.reset();
}

}  // namespace shoal::actors
