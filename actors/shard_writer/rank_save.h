// RankSave: the part of one rank in one save at its node, from the first message about it until the save is
// decided. It does no I/O: the ShardWriter starts the operations and calls on() with what happened.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/ids.h"
#include "actors/messages/messages.h"
#include "actors/operation.h"
#include "base/state_machine.h"
#include "local/messages/messages.h"
#include "shoal/save_plan.h"

namespace shoal::storage {
struct RankManifest;
}

namespace shoal::actors {

enum class RankSaveState : uint8_t {
  // Mode collective, before the client stages.
  planning,       // The client makes its plan. No request of it waits for an answer.
  gathering,      // The client has offered its plan to the plan gather.
  awaiting_plan,  // The client has requested its plan from the coordinator.
  has_plan,       // The client has its plan.
  // All modes.
  asking_root,      // Offered again. The node reads from the root whether the attempt has a decision.
  staged,           // The bytes are in the slab, or in files of an earlier node. No roster for them is known.
  awaiting_roster,  // Staged with another layout than that of the newest roster. The attempt gets a roster.
  writing,          // The node writes the files, or the record of a rank that has no file.
  written,          // The files are durable.
  published,        // Mode rank-local: the manifest of the rank is in the root.
  dropped,          // Its bytes are not written, or not all of them: the save fails.
  writing_committed,  // The node still writes, and the save is committed: the client is informed afterwards.
};
enum class RankSaveTrigger : uint8_t {
  offered_plan,          // the client offered its plan, or the plans that its planner made of all offers
  gathered,              // the client received what the plan gather made for it
  requested_plan,        // the client requested its plan
  received_plan,         // the coordinator sent the plan
  staged_by_plan,        // mode collective: the client has staged
  no_decision_found,     // the root has no decision
  layout_is_not_newest,  // the newest roster has another layout for the rank
  planned,               // a roster is known, and the plan that follows from it
  planning_failed,       // no plan follows, or what is durable does not fit the plan
  all_durable,           // every file is written
  not_all_durable,       // a file could not be written
  manifest_published,    // mode rank-local
  undecidable,           // the root takes no decision: what is not written yet is never written
  committed,             // the save is committed by what another process of the rank had written
};

inline constexpr auto kRankSaveTransitions = [] {
  using S = RankSaveState;
  using T = RankSaveTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::planning, T::offered_plan, S::gathering},
      {S::planning, T::requested_plan, S::awaiting_plan},
      {S::planning, T::staged_by_plan, S::staged},
      {S::gathering, T::offered_plan, S::gathering},
      {S::gathering, T::gathered, S::planning},
      {S::gathering, T::requested_plan, S::awaiting_plan},
      {S::gathering, T::staged_by_plan, S::staged},
      {S::awaiting_plan, T::offered_plan, S::gathering},
      {S::awaiting_plan, T::requested_plan, S::awaiting_plan},
      {S::awaiting_plan, T::received_plan, S::has_plan},
      {S::awaiting_plan, T::staged_by_plan, S::staged},
      {S::has_plan, T::offered_plan, S::gathering},
      {S::has_plan, T::staged_by_plan, S::staged},
      {S::asking_root, T::no_decision_found, S::staged},
      {S::asking_root, T::undecidable, S::dropped},
      {S::staged, T::layout_is_not_newest, S::awaiting_roster},
      {S::staged, T::planned, S::writing},
      {S::staged, T::planning_failed, S::dropped},
      {S::staged, T::undecidable, S::dropped},
      {S::awaiting_roster, T::planned, S::writing},
      {S::awaiting_roster, T::planning_failed, S::dropped},
      {S::awaiting_roster, T::undecidable, S::dropped},
      {S::writing, T::all_durable, S::written},
      {S::writing, T::not_all_durable, S::dropped},
      {S::writing, T::committed, S::writing_committed},
      {S::written, T::manifest_published, S::published},
  });
}();
using RankSaveMachine = base::StateMachine<kRankSaveTransitions>;

class RankSave {
 public:
  explicit RankSave(RankSaveState initial, RankSaveMachine::Counts& counts)
      : state_(initial), counts_(&counts) {}

  RankSaveState state() const { return state_.state(); }
  void on(RankSaveTrigger trigger) { state_.on(trigger, *counts_); }
  bool may(RankSaveTrigger trigger) const { return state_.may(trigger); }

  // Whether the rank has staged, or its files are durable already. Mode collective: false while it plans.
  bool has_staged() const {
    return !state_.is_one_of(RankSaveState::planning, RankSaveState::gathering, RankSaveState::awaiting_plan,
                             RankSaveState::has_plan);
  }
  // Staged, and not planned yet. on(planned) and on(planning_failed) are legal.
  bool is_unplanned() const {
    return state_.is_one_of(RankSaveState::staged, RankSaveState::awaiting_roster);
  }
  bool is_writing() const {
    return state_.is_one_of(RankSaveState::writing, RankSaveState::writing_committed);
  }
  bool is_written() const { return state_.is_one_of(RankSaveState::written, RankSaveState::published); }
  bool is(RankSaveState state) const { return state_.is(state); }
  // The rank waits for a message of the coordinator: its plan, the plan gather, or the roster of the attempt.
  bool awaits_coordinator() const {
    return state_.is_one_of(RankSaveState::gathering, RankSaveState::awaiting_plan,
                            RankSaveState::awaiting_roster);
  }

  // The client stages the rank, or offers it again. slab: nullopt if the files are durable already.
  void stage(ClientId from, std::optional<uint32_t> slab, std::shared_ptr<const local::LocalMessage> bytes,
             UserMetadataPtr metadata, plan::ReplicaDigestsPtr digests);

  ClientId client = 0;  // the client whose slab holds the bytes
  bool slab_in_use = false;
  // The client that receives SlabFree and Decided: a later connection of the rank, if that offered the save
  // again.
  ClientId listener = 0;
  std::optional<uint32_t>
      listener_slab_id;        // nullopt: it offered no slab, so that none of its slabs is freed
  bool offered_again = false;  // an earlier node may have reported it
  // Staged or Written. Null before it is staged, and after the slab is free.
  std::shared_ptr<const local::LocalMessage> message;
  LayoutId layout_id;  // in awaiting_plan and awaiting_roster: the layout that waits
  UserMetadataPtr user;
  plan::ReplicaDigestsPtr replicas;

  // Mode collective.
  SavePlanPtr plan;            // the newest that the coordinator sent for this save
  PlanId client_knows;         // assignment_id_of the plan that the client has
  plan::PlannerPlan offer;     // in gathering: what the planner of the rank offers
  bool is_offer_sent = false;  // the node has sent the offer to the coordinator
  bool follows_planner = false;

  // Mode rank-local, in writing: the manifest of the rank, without its files. The node may forget the world
  // by which the rank was planned before it has written.
  std::shared_ptr<storage::RankManifest> manifest;

  // From writing on.
  RosterId roster_id;
  PlanId plan_id;
  std::vector<wire::WrittenFile> files;
  size_t files_writing = 0;
  bool write_failed = false;

 private:
  RankSaveMachine state_;
  RankSaveMachine::Counts* counts_;
};

}  // namespace shoal::actors
