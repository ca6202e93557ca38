#include "client/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "client/checkpointer_internal.h"
#include "client/checkpointer_options_internal.h"

namespace shoal {

namespace {

constexpr std::chrono::minutes kLongestClose{10};  // for the node to write what is staged

}  // namespace

Result<const StateDict*> Checkpointer::Impl::of_group(const StateDict& state) {
  if (options.process_group.empty()) return &state;
  SHOAL_ASSIGN_OR_RETURN(renumbered, in_process_group(options, state));
  return &renumbered;
}

// Makes `bound` be of this state; the first time, tells the node.
Status Checkpointer::Impl::bind(const StateDict& state) {
  if (bound && same_structure(bound->entries(), state.entries())) return bound->rebind(state);
  SHOAL_ASSIGN_OR_RETURN(BoundState fresh, BoundState::bind(state, options.rank));
  recipe.reset();
  if (bound && fresh.layout()->id() == bound->layout()->id()) {
    bound = std::move(fresh);
    return ok_status();
  }
  // Until there is a roster with this layout, everything held is staged.
  session->set_layout(fresh.layout());
  bound = std::move(fresh);
  return ok_status();
}

Status Checkpointer::Impl::refresh_recipe() {
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, session->plan());
  if (recipe && plan == planned) return ok_status();
  recipe =
      plan ? StageRecipe(*bound, *plan) : StageRecipe(*bound, plan_all_held(*bound->layout(), options.rank));
  planned = std::move(plan);
  return ok_status();
}

// Mode collective: all ranks say what they hold, and wait until each is told its part.
Status Checkpointer::Impl::agree_on_recipe(const std::shared_ptr<SaveHandle::State>& save,
                                           bool follows_planner) {
  const Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, session->agree_on_plan(save, follows_planner));
  save->stats.seconds_planning += seconds_since(begun);
  if (recipe && plan == planned) return ok_status();
  SHOAL_RETURN_IF_ERROR(check_plan(*plan, *bound->layout()).with_context("the plan that this rank was told"));
  recipe = StageRecipe(*bound, *plan);
  planned = std::move(plan);
  return ok_status();
}

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(CheckpointerOptions options) {
  SHOAL_RETURN_IF_ERROR(complete_options(options));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::open(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(session));
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(impl)));
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Checkpointer::~Checkpointer() {
  impl_->session->wait_all_free(kLongestClose);
  impl_->session->detach();
}

const CheckpointerOptions& Checkpointer::options() const {
  return impl_->options;
}

uint32_t Checkpointer::generation() const {
  return impl_->session->generation();
}

Status Checkpointer::prepare(const StateDict& given) {
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
  SHOAL_RETURN_IF_ERROR(impl_->bind(*state));
  SHOAL_RETURN_IF_ERROR(impl_->refresh_recipe());
  SHOAL_ASSIGN_OR_RETURN(StageRecipe::Staging staging, impl_->recipe->lay_out(*impl_->bound));
  return impl_->prepare_slabs(staging.slab_bytes);
}

// Counted by every rank, whatever comes of it. Where it fails, the other ranks' part of it is in vain: they
// hear so now, not at a deadline.
template <class Save>
Result<SaveHandle> Checkpointer::Impl::count_save(uint64_t step, Save&& save) {
  ++counts->saves;
  counts->loads = 0;
  const uint32_t attempt = counts->attempts.next(step);
  try {
    Result<SaveHandle> saved = save(attempt);
    if (!saved.ok()) session->not_staged(step, attempt, saved.status());
    return saved;
  } catch (const std::exception& thrown) {  // by a planner or a storage: the trainer's to catch
    session->not_staged(step, attempt, Status(Code::internal, fmt::format("save threw: {}", thrown.what())));
    throw;
  }
}

Result<SaveHandle> Checkpointer::save(uint64_t step, const StateDict& given) {
  return impl_->count_save(step, [&](uint32_t attempt) -> Result<SaveHandle> {
    SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
    SHOAL_ASSIGN_OR_RETURN(auto save, impl_->begin_save(step, attempt));
    return impl_->save(save, *state);
  });
}

Result<SaveHandle> Checkpointer::save(uint64_t step, const StateDict& given, dcp::SavePlanner& planner) {
  return impl_->count_save(step, [&](uint32_t attempt) -> Result<SaveHandle> {
    SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
    SHOAL_ASSIGN_OR_RETURN(auto save, impl_->begin_save(step, attempt));
    const auto exchange = [&](PlannerPlan mine, const dcp::internal::MakePlans& make) {
      const auto begun = Impl::Clock::now();
      Result<PlannerPlan> part = impl_->session->exchange_plans(save, std::move(mine), make);
      save->stats.seconds_planning += Impl::seconds_since(begun);
      return part;
    };
    PlannedSave planned(planner);
    SHOAL_RETURN_IF_ERROR(planned.plan(*state, save->key, impl_->role(), impl_->options.save.mode, exchange));
    return impl_->save(save, planned.state_dict(), &planned);
  });
}

Result<std::shared_ptr<SaveHandle::State>> Checkpointer::Impl::begin_save(uint64_t step, uint32_t attempt) {
  SHOAL_RETURN_IF_ERROR(session->status());
  auto save = std::make_shared<SaveHandle::State>();
  save->key = {session->generation(), step, attempt};
  return save;
}

Result<SaveHandle> Checkpointer::Impl::save(const std::shared_ptr<SaveHandle::State>& save,
                                            const StateDict& state, PlannedSave* planned_save) {
  SHOAL_RETURN_IF_ERROR(bind(state));
  const Clock::time_point slot_wanted = Clock::now();
  if (options.on_busy == OnBusy::decline) SHOAL_RETURN_IF_ERROR(session->free_slots(false).status());
  SHOAL_RETURN_IF_ERROR(session->free_slots(true).status());
  save->stats.seconds_waited = seconds_since(slot_wanted);

  const bool is_collective = options.save.mode == SaveMode::collective;
  const bool follows_planner = planned_save && planned_save->has_exchanged();
  SHOAL_RETURN_IF_ERROR(is_collective ? agree_on_recipe(save, follows_planner) : refresh_recipe());
  if (planned_save) SHOAL_RETURN_IF_ERROR(planned_save->resolve(*bound, planned.get()));
  SHOAL_ASSIGN_OR_RETURN(StageRecipe::Staging staging, recipe->lay_out(*bound));
  SHOAL_ASSIGN_OR_RETURN(const Place place, place_for(staging.slab_bytes, &save->stats));
  const Filling filling(*session, save->slot = place.slot);
  const std::optional<Session::StagingGrant> grant = session->staging_grant();
  save->stats.in_flight_max = grant ? grant->slabs : options.max_in_flight;
  if (!place.in_parts) {
    const Clock::time_point copy_begun = Clock::now();
    recipe->make_tasks(*bound, staging, slabs[save->slot].data(), tasks);
    SHOAL_RETURN_IF_ERROR(stager->wait(stager->submit(tasks)));
    save->stats.seconds_copying = seconds_since(copy_begun);
  }
  save->stats.bytes_staged = staging.payload_bytes;
  save->stats.with_plan = planned != nullptr;

  local::Staged staged;
  staged.step = save->key.step;
  staged.attempt = save->key.attempt;
  staged.layout_id = bound->layout()->id();
  if (planned) {
    staged.roster_id = planned->roster_id;
    staged.plan_id = planned->id;
  }
  staged.slab_id = save->slot;
  if (place.in_parts) {
    staged.pieces = staging.pieces;
    SHOAL_RETURN_IF_ERROR(stage_in_parts(save, staging, std::move(staged)));
  } else {
    staged.pieces = std::move(staging.pieces);
    SHOAL_RETURN_IF_ERROR(session->stage(save, std::move(staged)));
  }
  save->stats.seconds_blocked = seconds_since(save->begun);
  return SaveHandle(save);
}

}  // namespace shoal
