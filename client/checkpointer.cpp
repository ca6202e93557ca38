#include "client/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <string_view>
#include <utility>

#include "client/call_counts_internal.h"
#include "client/checkpointer_options_internal.h"
#include "client/memory_budget_internal.h"
#include "client/node_process_internal.h"
#include "client/placing_internal.h"
#include "client/planned_load_internal.h"
#include "client/planned_save_internal.h"
#include "client/session_internal.h"
#include "client/slab_internal.h"
#include "client/staging_internal.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestClose{10};  // for the node to write what is staged
constexpr int kTries = 3;                          // of a request whose node went away

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

Status another_came(const AttemptKey& now, const AttemptKey& chosen) {
  return Status(Code::aborted, fmt::format("{} was committed while {} was loaded; load again", to_string(now),
                                           to_string(chosen)));
}

// A request's answers are dropped however it ends.
class RequestScope {
 public:
  explicit RequestScope(Session& session) : session_(session) {}
  ~RequestScope() { session_.end_request(); }
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

 private:
  Session& session_;
};

Result<Metadata> found_in(LocalMessage& answer) {
  auto* found = std::get_if<local::Found>(&answer);
  if (!found) return Status(Code::corrupt, "the node answered with something else than it was asked");
  if (!found->outcome.ok()) return found->outcome;
  return std::move(found->checkpoint);
}

}  // namespace

struct Checkpointer::Impl {
  Impl(CheckpointerOptions given, std::unique_ptr<Session> attached)
      : options(std::move(given)),
        session(std::move(attached)),
        counts(call_counts(options, session->generation())),
        stager(make_host_stager()),
        slabs(options.max_in_flight) {}

  // The state in the terms of the process group; of this call, or the state itself.
  Result<const StateDict*> of_group(const StateDict& state);
  Status bind(const StateDict& state);
  Status refresh_recipe();
  Status agree_on_recipe(const std::shared_ptr<SaveHandle::State>& save, bool follows_planner);
  uint64_t held_bytes() const;
  Status replace_slab(uint32_t slot, uint64_t bytes);
  Result<uint32_t> slot_for(uint64_t bytes, bool wait);
  template <class Save>
  Result<SaveHandle> count_save(uint64_t step, Save&& save);
  Result<std::shared_ptr<SaveHandle::State>> begin_save(uint64_t step, uint32_t attempt);
  Result<SaveHandle> save(const std::shared_ptr<SaveHandle::State>& save, const StateDict& state,
                          PlannedSave* planned_save = nullptr);
  template <class Ask>
  auto with_patience(Ask&& ask);
  dcp::Role role() const {
    return {options.rank, options.world_size, options.rank == options.coordinator_rank};
  }
  Result<LoadResult> load(const StateDict& state, const LoadOptions& load_options,
                          PlannedLoad* planned_load = nullptr);
  Result<Metadata> find_checkpoint(const LoadOptions& load_options);
  Result<Metadata> load_targets(Placer& placer, const LoadOptions& load_options);
  Status prepare_window(uint64_t bytes);
  Result<Metadata> receive_load(uint32_t request_id, Placer& placer, bool* ended);
  Status receive_pieces(uint32_t request_id, Placer& placer, bool* ended);

  CheckpointerOptions options;
  std::unique_ptr<Session> session;
  std::shared_ptr<CallCounts> counts;
  std::unique_ptr<Stager> stager;
  StateDict renumbered;             // what of_group made last
  std::optional<BoundState> bound;  // of the layout that this generation saves
  SavePlanPtr planned;              // what `recipe` was made from; nullptr: everything held
  std::optional<StageRecipe> recipe;
  std::vector<MemorySlab> slabs;  // by slot
  MemorySlab window;              // of loads; kept from one to the next, whose pages are then there
  uint64_t window_link = 0;       // the connection whose node knows it; 0: none
  std::vector<CopyTask> tasks;
};

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

uint64_t Checkpointer::Impl::held_bytes() const {
  uint64_t held = 0;
  for (const MemorySlab& slab : slabs) held += slab.bytes();
  return held + window.bytes();
}

// A new slab under the slot's number takes the place of the one that the node knew.
Status Checkpointer::Impl::replace_slab(uint32_t slot, uint64_t bytes) {
  const uint64_t wanted = slab_bytes_for(bytes);
  slabs[slot] = MemorySlab();
  SHOAL_RETURN_IF_ERROR(check_budget(wanted, held_bytes(), options.staging_bytes_max));
  SHOAL_ASSIGN_OR_RETURN(slabs[slot], MemorySlab::make(wanted));
  return session->offer_slab(slot, wanted, slabs[slot].fd());
}

// A free slot whose slab has room: the smallest that has; else a new slab where there is none; else in place
// of a free one that is too small. The slot is not taken yet.
Result<uint32_t> Checkpointer::Impl::slot_for(uint64_t bytes, bool wait) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> free, session->free_slots(wait));
  for (uint32_t slot : free) {
    if (!session->keeps_slab(slot)) slabs[slot] = MemorySlab();
  }
  auto rank_of = [&](uint32_t slot) {
    const uint64_t has = slabs[slot].bytes();
    const int group = has >= std::max<uint64_t>(bytes, 1) ? 0 : has == 0 ? 1 : 2;
    return std::pair(group, has);
  };
  const uint32_t best = *std::min_element(free.begin(), free.end(),
                                          [&](uint32_t a, uint32_t b) { return rank_of(a) < rank_of(b); });
  if (rank_of(best).first != 0) SHOAL_RETURN_IF_ERROR(replace_slab(best, bytes));
  return best;
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
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> free, impl_->session->free_slots(true));
  for (uint32_t slot : free) {
    if (impl_->slabs[slot].bytes() >= std::max<uint64_t>(staging.slab_bytes, 1)) continue;
    SHOAL_RETURN_IF_ERROR(impl_->replace_slab(slot, staging.slab_bytes));
  }
  return ok_status();
}

// Counted by every rank, whatever comes of it. Where it fails, the other ranks' part of it is in vain: they
// hear so now, not at a deadline.
template <class Save>
Result<SaveHandle> Checkpointer::Impl::count_save(uint64_t step, Save&& save) {
  ++counts->saves;
  const uint32_t attempt = ++counts->attempts[step];
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
      const Clock::time_point begun = Clock::now();
      Result<PlannerPlan> part = impl_->session->exchange_plans(save, std::move(mine), make);
      save->stats.seconds_planning += seconds_since(begun);
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
  SHOAL_ASSIGN_OR_RETURN(save->slot, slot_for(staging.slab_bytes, true));
  const Clock::time_point copy_begun = Clock::now();
  recipe->make_tasks(*bound, staging, slabs[save->slot].data(), tasks);
  SHOAL_RETURN_IF_ERROR(stager->wait(stager->submit(tasks)));
  save->stats.seconds_copying = seconds_since(copy_begun);
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
  staged.pieces = std::move(staging.pieces);
  SHOAL_RETURN_IF_ERROR(session->stage(save, std::move(staged)));
  save->stats.seconds_blocked = seconds_since(save->begun);
  return SaveHandle(save);
}

// `ask` again, where the node went away that was asked.
template <class Ask>
auto Checkpointer::Impl::with_patience(Ask&& ask) {
  auto answer = ask();
  for (int i = 1; i < kTries && !answer.ok() && session->was_interrupted(); ++i) answer = ask();
  return answer;
}

Result<Metadata> Checkpointer::latest() {
  return impl_->with_patience([this]() -> Result<Metadata> {
    SHOAL_ASSIGN_OR_RETURN(uint32_t id, impl_->session->begin_request());
    RequestScope request(*impl_->session);
    impl_->session->ask(local::Latest{id});
    SHOAL_ASSIGN_OR_RETURN(LocalMessage answer, impl_->session->next_answer());
    return found_in(answer);
  });
}

// A window for a load of `bytes`: as large as they are, within the bounds.
Status Checkpointer::Impl::prepare_window(uint64_t bytes) {
  const uint64_t wanted = std::clamp(slab_bytes_for(bytes), kMinWindowBytes,
                                     std::max(kMinWindowBytes, options.load_window_bytes));
  if (window.bytes() >= wanted) return ok_status();
  window = MemorySlab();
  window_link = 0;
  SHOAL_RETURN_IF_ERROR(check_budget(wanted, held_bytes(), options.staging_bytes_max));
  SHOAL_ASSIGN_OR_RETURN(window, MemorySlab::make(wanted));
  return ok_status();
}

// Asks for the placer's targets and places all that comes.
Result<Metadata> Checkpointer::Impl::load_targets(Placer& placer, const LoadOptions& load_options) {
  const uint32_t window_id = options.max_in_flight;  // slots have the numbers before it
  SHOAL_RETURN_IF_ERROR(prepare_window(placer.bytes_wanted()));

  local::Load load;
  uint64_t link = 0;
  SHOAL_ASSIGN_OR_RETURN(load.request_id, session->begin_request(&link));
  RequestScope request(*session);
  if (window_link != link) session->ask(local::Slab{window_id, window.bytes()}, window.fd());
  window_link = link;
  load.latest = !load_options.step;
  load.step = load_options.step.value_or(0);
  // Ranks call save alike: what they load after the same call of it is one choice, also where some of them
  // try again.
  load.ordinal = load.latest ? 1 + counts->saves : 0;
  load.slab_id = window_id;
  load.targets = placer.targets();
  session->ask(load);
  bool ended = false;
  auto loaded = receive_load(load.request_id, placer, &ended);
  if (!ended) {  // its node may still fill the window, and that of the next one under the same number
    session->abandon();
    window = MemorySlab();
    window_link = 0;
  }
  return loaded;
}

Result<Metadata> Checkpointer::Impl::receive_load(uint32_t request_id, Placer& placer, bool* ended) {
  SHOAL_ASSIGN_OR_RETURN(LocalMessage answer, session->next_answer());
  Result<Metadata> metadata = found_in(answer);
  if (!metadata.ok()) {
    *ended = std::holds_alternative<local::Found>(answer);
    return metadata;
  }
  SHOAL_RETURN_IF_ERROR(receive_pieces(request_id, placer, ended));
  return metadata;
}

Status Checkpointer::Impl::receive_pieces(uint32_t request_id, Placer& placer, bool* ended) {
  Status broken;  // what came was wrong: the rest is let by, so that the next request starts clean
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(LocalMessage answer, session->next_answer());
    if (const auto* done = std::get_if<local::LoadDone>(&answer)) {
      *ended = true;
      SHOAL_RETURN_IF_ERROR(done->outcome);
      SHOAL_RETURN_IF_ERROR(broken);
      return placer.finish();
    }
    const auto* loaded = std::get_if<local::Loaded>(&answer);
    if (!loaded) return Status(Code::corrupt, "the node answered a load twice");
    for (const local::LoadedPiece& piece : loaded->pieces) {
      if (broken.ok()) broken = placer.place(piece, ByteView(window.data(), window.bytes()));
    }
    session->ask(local::Placed{request_id, loaded->batch});
  }
}

Result<LoadResult> Checkpointer::load(const StateDict& given, const LoadOptions& load_options) {
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
  return impl_->with_patience([&] { return impl_->load(*state, load_options); });
}

// Which one it is and what it holds; nothing is read.
Result<Metadata> Checkpointer::Impl::find_checkpoint(const LoadOptions& load_options) {
  SHOAL_ASSIGN_OR_RETURN(BoundState nothing, BoundState::bind(StateDict(), options.rank));
  // Whatever this rank has saved is decided before the newest is chosen.
  if (!load_options.step) SHOAL_RETURN_IF_ERROR(session->wait_all_decided());
  Placer placer(nothing, {});
  return load_targets(placer, load_options);
}

Result<LoadResult> Checkpointer::load(const StateDict& given, dcp::LoadPlanner& planner,
                                      const LoadOptions& load_options) {
  const Clock::time_point begun = Clock::now();
  SHOAL_ASSIGN_OR_RETURN(const StateDict* state, impl_->of_group(given));
  Result<Metadata> found = impl_->with_patience([&] { return impl_->find_checkpoint(load_options); });
  if (!found.ok()) return found.status();
  PlannedLoad planned(planner);
  SHOAL_RETURN_IF_ERROR(planned.plan(*state, dcp::metadata_of(*found), impl_->role()));
  LoadOptions chosen;
  chosen.step = found->key.step;
  SHOAL_ASSIGN_OR_RETURN(LoadResult loaded, impl_->with_patience([&] {
    return impl_->load(planned.state_dict(), chosen, &planned);
  }));
  if (loaded.metadata.key != found->key) return another_came(loaded.metadata.key, found->key);
  SHOAL_RETURN_IF_ERROR(planned.finish());
  loaded.seconds = seconds_since(begun);
  return loaded;
}

Result<LoadResult> Checkpointer::Impl::load(const StateDict& state, const LoadOptions& load_options,
                                            PlannedLoad* planned_load) {
  const Clock::time_point begun = Clock::now();
  // What is saved is most often what is loaded.
  const bool is_known = bound && same_structure(bound->entries(), state.entries());
  SHOAL_ASSIGN_OR_RETURN(BoundState target,
                         is_known ? Result<BoundState>(*bound) : BoundState::bind(state, options.rank));
  if (is_known) SHOAL_RETURN_IF_ERROR(target.rebind(state));
  std::vector<uint32_t> wanted(target.layout()->entries().size());
  for (uint32_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
  // Whatever this rank has saved is decided before the newest is chosen.
  if (!load_options.step) SHOAL_RETURN_IF_ERROR(session->wait_all_decided());
  LoadOptions chosen = load_options;
  std::optional<AttemptKey> chosen_key;
  std::vector<std::string> missing;
  if (load_options.allow_missing) {
    // First which checkpoint it is and what it has; then the values that it has.
    SHOAL_ASSIGN_OR_RETURN(Metadata metadata, find_checkpoint(load_options));
    chosen.step = metadata.key.step;
    chosen_key = metadata.key;
    std::erase_if(wanted, [&](uint32_t entry) {
      std::string fqn = target.fqn_of(entry);
      const auto& stored = metadata.state_dict_metadata;
      auto found = std::lower_bound(stored.begin(), stored.end(), fqn,
                                    [](const TensorMetadata& a, const std::string& b) { return a.fqn < b; });
      const bool is_missing = found == stored.end() || found->fqn != fqn;
      if (is_missing) missing.push_back(std::move(fqn));
      return is_missing;
    });
  }
  if (planned_load) {  // begun again: what was handed over is the trainer's now
    std::erase_if(wanted, [&](uint32_t entry) { return planned_load->has_arrived(target.fqn_of(entry)); });
  }
  Placer placer(target, std::move(wanted));
  if (planned_load) placer.on_arrival([&](const std::string& fqn) { return planned_load->arrived(fqn); });
  SHOAL_ASSIGN_OR_RETURN(Metadata metadata, load_targets(placer, chosen));
  if (chosen_key && metadata.key != *chosen_key) return another_came(metadata.key, *chosen_key);
  return LoadResult{std::move(metadata), placer.bytes_placed(), seconds_since(begun), std::move(missing)};
}

}  // namespace shoal
