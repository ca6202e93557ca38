#include "client/checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "client/job_id_service_internal.h"
#include "client/memory_budget_internal.h"
#include "client/node_process_internal.h"
#include "client/placing_internal.h"
#include "client/session_internal.h"
#include "client/slab_internal.h"
#include "client/staging_internal.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestClose{10};        // for the node to write what is staged
constexpr int kTries = 3;                                // of a request whose node went away
constexpr uint64_t kMinWindowBytes = uint64_t{4} << 20;  // what a node asks for

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

Status validate_checkpointer_options(CheckpointerOptions& options) {
  auto bad = [](std::string what) { return Status(Code::invalid_argument, std::move(what)); };
  if (options.root.empty()) return bad("the Checkpointer's root is not named");
  if (options.world_size == 0 || options.world_size > kMaxWorldSize || options.rank >= options.world_size) {
    return bad(fmt::format("rank {} of a world of {}", options.rank, options.world_size));
  }
  if (options.max_in_flight == 0 || options.max_in_flight >= kMaxSlabsPerClient) {
    return bad(fmt::format("max_in_flight is {}, from 1 to {} are allowed", options.max_in_flight,
                           kMaxSlabsPerClient - 1));
  }
  if (options.load_window_bytes < kMinWindowBytes || options.load_window_bytes > kMaxSlabBytes) {
    return bad(fmt::format("load_window_bytes is {}, from {} to {} are allowed", options.load_window_bytes,
                           kMinWindowBytes, kMaxSlabBytes));
  }
  if (options.job_id.size() > kMaxJobIdBytes || !is_clean_utf8(options.job_id)) {
    return bad(fmt::format("a job id is at most {} bytes of clean text", kMaxJobIdBytes));
  }
  if (options.job_id.empty()) {
    if (options.job_id_exchange && options.world_size > 1) {
      const auto deadline = std::chrono::steady_clock::now() + options.attach_timeout;
      SHOAL_ASSIGN_OR_RETURN(options.job_id, agree_on_job_id(options, deadline));
    } else if (options.world_size != 1) {
      return bad(
          "job_id (SHOAL_JOB_ID) is empty: all ranks of one incarnation need the same, never used again");
    } else {
      options.job_id = "single-" + random_128().to_hex();
    }
  }
  if (const char* may = std::getenv("SHOAL_START_NODE"); may && std::string_view(may) == "0") {
    options.start_node = false;
  }
  // A rank that knows of no other writes all that it holds.
  if (options.save.mode == SaveMode::rank_local) options.save.dedupe = Dedupe::none;
  return validate_options(options.save);
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

// How often a rank has called save in a generation, whichever Checkpointer it used: that names its next saves
// and loads.
struct CallCounts {
  Nonce process;
  uint32_t generation = 0;
  std::map<uint64_t, uint32_t> attempts;  // by step
  uint32_t saves = 0;
};

// What this process has counted so far, kept for the next Checkpointer of the rank: a node serves one at a
// time.
std::shared_ptr<CallCounts> call_counts(const CheckpointerOptions& options, uint32_t generation) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, Rank>, std::shared_ptr<CallCounts>> last;  // by root
  std::error_code error;
  std::string root = std::filesystem::weakly_canonical(options.root, error).string();
  std::lock_guard lock(mutex);
  std::shared_ptr<CallCounts>& counts = last[{std::move(root), options.rank}];
  if (!counts || counts->generation != generation || counts->process != process_nonce()) {
    counts = std::make_shared<CallCounts>(CallCounts{process_nonce(), generation, {}, 0});
  }
  return counts;
}

}  // namespace

struct Checkpointer::Impl {
  Impl(CheckpointerOptions given, std::unique_ptr<Session> attached)
      : options(std::move(given)),
        session(std::move(attached)),
        counts(call_counts(options, session->generation())),
        stager(make_host_stager()),
        slabs(options.max_in_flight) {}

  Status bind(const StateDict& state);
  Status refresh_recipe();
  uint64_t held_bytes() const;
  Status replace_slab(uint32_t slot, uint64_t bytes);
  Result<uint32_t> slot_for(uint64_t bytes, bool wait);
  Result<SaveHandle> save(uint64_t step, uint32_t attempt, const StateDict& state);
  template <class Ask>
  auto with_patience(Ask&& ask);
  Result<LoadResult> load(const StateDict& state, const LoadOptions& load_options);
  Result<Metadata> load_targets(Placer& placer, const LoadOptions& load_options);
  Status prepare_window(uint64_t bytes);
  Result<Metadata> receive_load(uint32_t request_id, Placer& placer, bool* ended);
  Status receive_pieces(uint32_t request_id, Placer& placer, bool* ended);

  CheckpointerOptions options;
  std::unique_ptr<Session> session;
  std::shared_ptr<CallCounts> counts;
  std::unique_ptr<Stager> stager;
  std::optional<BoundState> bound;  // of the layout that this generation saves
  SavePlanPtr planned;              // what `recipe` was made from; nullptr: everything held
  std::optional<StageRecipe> recipe;
  std::vector<MemorySlab> slabs;  // by slot
  MemorySlab window;              // of loads; kept from one to the next, whose pages are then there
  uint64_t window_link = 0;       // the connection whose node knows it; 0: none
  std::vector<CopyTask> tasks;
};

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
  SHOAL_RETURN_IF_ERROR(validate_checkpointer_options(options));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::open(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(session));
  return std::unique_ptr<Checkpointer>(new Checkpointer(std::move(impl)));
}

Checkpointer::Checkpointer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Checkpointer::~Checkpointer() {
  impl_->session->wait_all_free(kLongestClose);
  impl_->session->detach();
}

uint32_t Checkpointer::generation() const {
  return impl_->session->generation();
}

Status Checkpointer::prepare(const StateDict& state) {
  SHOAL_RETURN_IF_ERROR(impl_->bind(state));
  SHOAL_RETURN_IF_ERROR(impl_->refresh_recipe());
  SHOAL_ASSIGN_OR_RETURN(StageRecipe::Staging staging, impl_->recipe->lay_out(*impl_->bound));
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> free, impl_->session->free_slots(true));
  for (uint32_t slot : free) {
    if (impl_->slabs[slot].bytes() >= std::max<uint64_t>(staging.slab_bytes, 1)) continue;
    SHOAL_RETURN_IF_ERROR(impl_->replace_slab(slot, staging.slab_bytes));
  }
  return ok_status();
}

Result<SaveHandle> Checkpointer::save(uint64_t step, const StateDict& state) {
  ++impl_->counts->saves;
  const uint32_t attempt = ++impl_->counts->attempts[step];  // counted by every rank, whatever comes of it
  Result<SaveHandle> saved = impl_->save(step, attempt, state);
  // The other ranks' part of it is in vain: they hear so now, not at a deadline.
  if (!saved.ok()) impl_->session->not_staged(step, attempt, saved.status());
  return saved;
}

Result<SaveHandle> Checkpointer::Impl::save(uint64_t step, uint32_t attempt, const StateDict& state) {
  auto save = std::make_shared<SaveHandle::State>();
  save->key = {session->generation(), step, attempt};
  SHOAL_RETURN_IF_ERROR(session->status());
  SHOAL_RETURN_IF_ERROR(bind(state));
  const Clock::time_point slot_wanted = Clock::now();
  if (options.on_busy == OnBusy::decline) SHOAL_RETURN_IF_ERROR(session->free_slots(false).status());
  SHOAL_RETURN_IF_ERROR(session->free_slots(true).status());
  save->stats.seconds_waited = seconds_since(slot_wanted);

  SHOAL_RETURN_IF_ERROR(refresh_recipe());
  SHOAL_ASSIGN_OR_RETURN(StageRecipe::Staging staging, recipe->lay_out(*bound));
  SHOAL_ASSIGN_OR_RETURN(save->slot, slot_for(staging.slab_bytes, true));
  const Clock::time_point copy_begun = Clock::now();
  recipe->make_tasks(*bound, staging, slabs[save->slot].data(), tasks);
  SHOAL_RETURN_IF_ERROR(stager->wait(stager->submit(tasks)));
  save->stats.seconds_copying = seconds_since(copy_begun);
  save->stats.bytes_staged = staging.payload_bytes;
  save->stats.with_plan = planned != nullptr;

  local::Staged staged;
  staged.step = step;
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
  return SaveHandle(std::move(save));
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

Result<LoadResult> Checkpointer::load(const StateDict& state, const LoadOptions& load_options) {
  return impl_->with_patience([&] { return impl_->load(state, load_options); });
}

Result<LoadResult> Checkpointer::Impl::load(const StateDict& state, const LoadOptions& load_options) {
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
    Placer nothing(target, {});
    SHOAL_ASSIGN_OR_RETURN(Metadata metadata, load_targets(nothing, load_options));
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
  Placer placer(target, std::move(wanted));
  SHOAL_ASSIGN_OR_RETURN(Metadata metadata, load_targets(placer, chosen));
  if (chosen_key && metadata.key != *chosen_key) {
    return Status(Code::aborted, fmt::format("{} was committed while {} was loaded; load again",
                                             to_string(metadata.key), to_string(*chosen_key)));
  }
  return LoadResult{std::move(metadata), placer.bytes_placed(), seconds_since(begun), std::move(missing)};
}

}  // namespace shoal
