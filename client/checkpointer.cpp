#include "shoal/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "client/checkpointer.h"
#include "client/launch/checkpointer_options.h"

namespace shoal {

namespace {

constexpr std::chrono::minutes kLongestClose{10};  // for the node to write the staged saves

}  // namespace

Result<const StateDict*> Checkpointer::Impl::of_group(const StateDict& state) {
  if (options.process_group.empty()) return &state;
  SHOAL_ASSIGN_OR_RETURN(renumbered, client::in_process_group(options, state));
  return &renumbered;
}

// Binds `bound` to this state. If the layout is new, passes it to the session.
Status Checkpointer::Impl::bind(const StateDict& state) {
  if (bound && client::same_structure(bound->entries(), state.entries())) return bound->rebind(state);
  SHOAL_ASSIGN_OR_RETURN(client::BoundState fresh, client::BoundState::bind(state, options.rank));
  recipe.reset();
  if (bound && fresh.layout()->id() == bound->layout()->id()) {
    bound = std::move(fresh);
    return ok_status();
  }
  // Until there is a roster with this layout, this rank stages everything it holds.
  session->set_layout(fresh.layout());
  bound = std::move(fresh);
  return ok_status();
}

Status Checkpointer::Impl::refresh_recipe() {
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, session->plan());
  if (recipe && plan == planned) return ok_status();
  recipe = plan ? client::StageRecipe(*bound, *plan)
                : client::StageRecipe(*bound, plan_all_held(*bound->layout(), options.rank));
  planned = std::move(plan);
  return ok_status();
}

// Mode collective: all ranks send their layouts, and wait until each gets its plan.
Status Checkpointer::Impl::agree_on_recipe(const std::shared_ptr<SaveHandle::State>& save,
                                           bool follows_planner) {
  const Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(SavePlanPtr plan, session->agree_on_plan(save, follows_planner));
  save->stats.seconds_planning += seconds_since(begun);
  if (recipe && plan == planned) return ok_status();
  SHOAL_RETURN_IF_ERROR(
      check_plan(*plan, *bound->layout()).with_context("the plan of the coordinator for this rank"));
  recipe = client::StageRecipe(*bound, *plan);
  planned = std::move(plan);
  return ok_status();
}

Result<std::unique_ptr<Checkpointer>> Checkpointer::open(CheckpointerOptions options) {
  SHOAL_RETURN_IF_ERROR(client::complete_options(options));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::Session> session, client::Session::open(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(session));
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(impl)));
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Checkpointer::~Checkpointer() {
  if (!impl_->check_process().ok()) {
    static_cast<void>(impl_.release());
    return;
  }
  if (!impl_->is_closed) {
    impl_->session->wait_all_free(kLongestClose);
    impl_->session->detach();
  }
  const std::optional<client::FailedSaves::Unreported> unreported = impl_->session->failures()->unreported();
  if (!unreported) return;
  fmt::print(stderr, "shoal: rank {}: {} (the trainer did not collect this outcome)\n",
             client::rank_in_world(impl_->options), client::describe_unreported(*unreported));
}

Status Checkpointer::wait_all(std::optional<std::chrono::milliseconds> timeout) {
  SHOAL_RETURN_IF_ERROR(impl_->check_process());
  const Status waited = impl_->session->wait_all_decided(timeout);
  if (waited.code() == Code::busy) return waited;
  const std::optional<client::FailedSaves::Unreported> unreported =
      impl_->session->failures()->take_unreported();
  if (unreported) {
    // Both codes would state that saves are undecided.
    const Code code = unreported->first.why.code();
    const bool is_mistakable = code == Code::deadline_exceeded || code == Code::busy;
    return Status(is_mistakable ? Code::earlier_save_failed : code,
                  fmt::format("rank {}: {}", client::rank_in_world(impl_->options),
                              client::describe_unreported(*unreported)));
  }
  return waited;
}

Status Checkpointer::close(std::optional<std::chrono::milliseconds> timeout) {
  SHOAL_RETURN_IF_ERROR(impl_->check_process());
  if (impl_->is_closed) return ok_status();
  const Status waited = impl_->session->wait_all_decided(timeout);
  if (!waited.ok()) return waited.with_context("the Checkpointer is still open");
  impl_->is_closed = true;
  impl_->session->detach();
  impl_->session->end();
  return wait_all();
}

void Checkpointer::abandon() {
  if (!impl_->check_process().ok()) return;
  if (std::exchange(impl_->is_closed, true)) return;
  impl_->session->end();
}

std::optional<SaveHandle> Checkpointer::last_save() const {
  return impl_->last_save;
}

std::optional<Progress> Checkpointer::save_progress() const {
  if (!impl_->check_process().ok()) return std::nullopt;
  return impl_->session->save_progress();
}

std::optional<Progress> Checkpointer::load_progress() const {
  const client::LoadCounts& counts = impl_->load_counts;
  if (!counts.is_loading) return std::nullopt;
  const uint64_t total = counts.bytes_total;
  return Progress{{},
                  counts.is_reading ? ProgressPhase::reading : ProgressPhase::choosing,
                  std::min(counts.bytes_done.load(), total),
                  total};
}

const CheckpointerOptions& Checkpointer::options() const {
  return impl_->options;
}

uint32_t Checkpointer::generation() const {
  return impl_->session->generation();
}

Status Checkpointer::prepare(const StateDict& given) {
  SHOAL_RETURN_IF_ERROR(impl_->check_open());
  SHOAL_RETURN_IF_ERROR(impl_->check_may_save());
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
  SHOAL_RETURN_IF_ERROR(impl_->bind(*state));
  SHOAL_RETURN_IF_ERROR(impl_->refresh_recipe());
  SHOAL_ASSIGN_OR_RETURN(client::StageRecipe::Staging staging, impl_->recipe->lay_out(*impl_->bound));
  if (impl_->bound->uses_devices()) SHOAL_RETURN_IF_ERROR(impl_->devices.check(*impl_->bound));
  SHOAL_RETURN_IF_ERROR(impl_->prepare_slabs(staging.slab_bytes));
  if (!impl_->bound->uses_devices()) return ok_status();
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> free, impl_->session->free_slots(true));
  for (const uint32_t slot : free) impl_->devices.pin(impl_->slabs[slot]);
  return ok_status();
}

Status Checkpointer::Impl::check_process() const {
  if (::getpid() == process) return ok_status();
  return Status(
      Code::refused,
      "this process was forked from the one that opened the Checkpointer: open one in this process");
}

Status Checkpointer::Impl::check_open() const {
  SHOAL_RETURN_IF_ERROR(check_process());
  return is_closed ? Status(Code::refused, "this Checkpointer is closed") : ok_status();
}

Status Checkpointer::Impl::check_may_save() const {
  if (!options.read_only) return ok_status();
  return Status(Code::refused,
                fmt::format("rank {} opened root {} for reading only (read_only, SHOAL_READ_ONLY): it saved "
                            "nothing; open the Checkpointer without read_only to save",
                            client::rank_in_world(options), root));
}

Status Checkpointer::Impl::check_failures() const {
  const client::FailedSaves& failures = *session->failures();
  if (const auto too_many = failures.too_many()) {
    return Status(
        Code::earlier_save_failed,
        fmt::format("it was not staged: {} saves in a row failed, as many as max_failed_saves allows; "
                    "the last one, {}: {}",
                    too_many->count, to_string(too_many->last.key), too_many->last.why.to_string()));
  }
  if (options.on_failed != OnFailed::refuse || !failures.has_own_unreported()) return ok_status();
  return Status(
      Code::earlier_save_failed,
      fmt::format(
          "{}; this save was not staged ({}): collect the failure with wait_all or its handle to save again",
          client::describe_unreported(*failures.unreported()), client::kRefusedAfterFailure));
}

// Counts the save, even if it fails, because every rank must count alike. If it fails here, it reports that
// at once, so that the other ranks' saves abort without waiting for a deadline. Its error begins with the
// name of the save, like that of a handle.
template <class Save>
Result<SaveHandle> Checkpointer::Impl::count_save(uint64_t step, Save&& save) {
  SHOAL_RETURN_IF_ERROR(check_open());
  SHOAL_RETURN_IF_ERROR(check_may_save());
  counts->begin_next();
  const AttemptKey key{session->generation(), step, counts->attempts.next(step)};
  counts->last_save = key;
  client::FailedSaves& failures = *session->failures();
  auto give_up = [&](const Status& why) {
    session->not_staged(step, key.attempt, why);
    failures.on_failed_call(key, why);
    return why.with_context(client::name_save(failures.rank(), key));
  };
  if (Status refused = check_failures(); !refused.ok()) return give_up(refused);
  try {
    Result<SaveHandle> saved = save(key.attempt);
    if (!saved.ok()) return give_up(saved.status());
    last_save = *saved;
    session->returned(key, saved->stats());
  } catch (const std::exception& thrown) {  // thrown by a planner or a storage; the trainer must catch it
    (void)give_up(Status(Code::invalid_argument, fmt::format("save threw an exception: {}", thrown.what())));
    throw;
  }
  if (options.on_failed == OnFailed::refuse) return *last_save;
  const std::optional<client::FailedSaves::Unreported> unreported = failures.take_unreported(key);
  if (!unreported) return *last_save;
  return Status(
      Code::earlier_save_failed,
      fmt::format("{}: {}; this save was staged nevertheless, and last_save has its handle",
                  client::name_save(failures.rank(), key), client::describe_unreported(*unreported)));
}

Result<SaveHandle> Checkpointer::save(uint64_t step, const StateDict& given,
                                      const SaveAttributes& attributes) {
  return impl_->count_save(step, [&](uint32_t attempt) -> Result<SaveHandle> {
    SHOAL_RETURN_IF_ERROR(validate_user_metadata(attributes.metadata));
    SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
    SHOAL_ASSIGN_OR_RETURN(auto save, impl_->begin_save(step, attempt));
    return impl_->save(save, *state, attributes);
  });
}

Result<SaveHandle> Checkpointer::save(uint64_t step, const StateDict& given, dcp::SavePlanner& planner,
                                      const SaveAttributes& attributes) {
  return impl_->count_save(step, [&](uint32_t attempt) -> Result<SaveHandle> {
    SHOAL_RETURN_IF_ERROR(validate_user_metadata(attributes.metadata));
    SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
    SHOAL_ASSIGN_OR_RETURN(auto save, impl_->begin_save(step, attempt));
    const auto exchange = [&](plan::PlannerPlan mine, const dcp::internal::MakePlans& make) {
      const auto begun = Impl::Clock::now();
      Result<plan::PlannerPlan> part = impl_->session->exchange_plans(save, std::move(mine), make);
      save->stats.seconds_planning += Impl::seconds_since(begun);
      return part;
    };
    client::PlannedSave planned(planner);
    SHOAL_RETURN_IF_ERROR(planned.plan(*state, save->key, impl_->role(), impl_->options.save.mode, exchange));
    return impl_->save(save, planned.state_dict(), attributes, &planned);
  });
}

Result<std::shared_ptr<SaveHandle::State>> Checkpointer::Impl::begin_save(uint64_t step, uint32_t attempt) {
  SHOAL_RETURN_IF_ERROR(session->status());
  auto save = std::make_shared<SaveHandle::State>();
  save->key = {session->generation(), step, attempt};
  save->failures = session->failures();
  return save;
}

Result<plan::ReplicaDigestsPtr> Checkpointer::Impl::digest_replicas(SaveStats* stats) {
  if (options.save.replica_check == ReplicaCheck::off) return plan::ReplicaDigestsPtr();
  const Clock::time_point begun = Clock::now();
  if (!replicas || replicas->layout()->id() != bound->layout()->id()) {
    replicas.emplace(bound->layout(), options.rank);
  }
  const uint32_t number = plan::replica_window_of(session->generation(), counts->saves);
  auto digests = replicas->digest(*bound, options.save.replica_check, number, &stats->replica_bytes);
  stats->seconds_comparing = seconds_since(begun);
  return digests;
}

Result<SaveHandle> Checkpointer::Impl::save(const std::shared_ptr<SaveHandle::State>& save,
                                            const StateDict& state, const SaveAttributes& attributes,
                                            client::PlannedSave* planned_save) {
  SHOAL_RETURN_IF_ERROR(bind(state));
  const Clock::time_point slot_wanted = Clock::now();
  if (options.on_busy == OnBusy::decline) SHOAL_RETURN_IF_ERROR(session->free_slots(false).status());
  SHOAL_RETURN_IF_ERROR(session->free_slots(true).status());
  save->stats.seconds_waited = seconds_since(slot_wanted);

  const bool is_collective = options.save.mode == SaveMode::collective;
  const bool follows_planner = planned_save && planned_save->has_exchanged();
  SHOAL_RETURN_IF_ERROR(is_collective ? agree_on_recipe(save, follows_planner) : refresh_recipe());
  if (planned_save) SHOAL_RETURN_IF_ERROR(planned_save->resolve(*bound, planned.get()));
  SHOAL_ASSIGN_OR_RETURN(client::StageRecipe::Staging staging, recipe->lay_out(*bound));
  if (bound->uses_devices()) SHOAL_RETURN_IF_ERROR(devices.check(*bound));
  SHOAL_ASSIGN_OR_RETURN(plan::ReplicaDigestsPtr digests, digest_replicas(&save->stats));
  SHOAL_ASSIGN_OR_RETURN(const Place place, place_for(staging.slab_bytes, &save->stats));
  const Filling filling(*session, save->slot = place.slot);
  const std::optional<client::Session::StagingGrant> grant = session->staging_grant();
  save->stats.in_flight_max = grant ? grant->slabs : options.max_in_flight;
  if (bound->uses_devices()) devices.pin(slabs[save->slot]);
  std::shared_ptr<gpu::DeviceWork> copies;
  if (!place.in_parts) {
    const Clock::time_point copy_begun = Clock::now();
    SHOAL_ASSIGN_OR_RETURN(copies, copy_whole(save->slot, staging));
    save->stats.seconds_copying = seconds_since(copy_begun);
  }
  save->stats.bytes_staged = staging.payload_bytes;
  save->stats.with_plan = planned != nullptr;

  session->failures()->on_staged(save->key);
  local::Staged staged;
  staged.replicas = std::move(digests);
  staged.step = save->key.step;
  staged.attempt = save->key.attempt;
  staged.layout_id = bound->layout()->id();
  if (planned) {
    staged.roster_id = planned->roster_id;
    staged.plan_id = planned->id;
  }
  staged.slab_id = save->slot;
  if (!attributes.metadata.empty()) {
    staged.user = std::make_shared<const UserMetadata>(attributes.metadata);
  }
  if (place.in_parts) {
    staged.pieces = staging.pieces;
    SHOAL_RETURN_IF_ERROR(stage_in_parts(save, staging, std::move(staged)));
  } else {
    staged.pieces = std::move(staging.pieces);
    SHOAL_RETURN_IF_ERROR(copies ? session->begin_copying(save) : session->stage(save, std::move(staged)));
  }
  save->stats.seconds_blocked = seconds_since(save->begun);
  if (copies) stage_when_copied(save, std::move(staged), std::move(copies));
  return SaveHandle(save);
}

}  // namespace shoal
